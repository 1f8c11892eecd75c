"""Videos on several workers: how much faster than one, what kills cost, and whether answers are equal.

    python benchmarks/cluster.py                       1, 2 and 4 workers on this machine
    python benchmarks/cluster.py --waiting             as if each worker had a machine of its own
    python benchmarks/cluster.py --kills 2 --questions 12

Each round indexes the same videos with each number of workers, in an order that turns from round to round,
since other programs may run here. Speed is frames a second between a fifth and four fifths of the frames:
workers are started once for a whole archive. Processor seconds are of the workers from beginning to end.

With --waiting the encoder is replaced by a wait of fixed length, so that workers do not share cores: what
remains is all else that could hold them up (handing out, decoding, writing, committing, counting).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from index_kill import contents, make_video, tiny_localizer

from lastseen.cluster import Cluster, ModelChoice
from lastseen.cluster.machines import machines
from lastseen.cluster.shards import places
from lastseen.index import Index
from lastseen.localizer import Localizer
from lastseen.progress import Progress
from lastseen.query import Query
from lastseen.video import Video
from lastseen.weights import save_model

WAIT_S = 0.12  # for a batch of four frames, with --waiting: about what the bundled model takes on one core


@dataclass(frozen=True, kw_only=True)
class Waiting(ModelChoice):
    """A model that waits where it would encode; its features are those of the first batch."""

    def load(self) -> Localizer:
        localizer = super().load()
        made: dict[tuple[int, ...], torch.Tensor] = {}
        encode = localizer.engine.encode_pictures

        def wait(pictures: Any, batch: int) -> torch.Tensor:
            time.sleep(WAIT_S * len(pictures) / batch)
            key = (len(pictures), *pictures[0].shape)
            if key not in made:
                made[key] = encode(pictures, batch)
            return made[key]

        localizer.engine.encode_pictures = wait  # type: ignore[method-assign]
        return localizer


def indexers() -> dict[int, float]:
    """The processes of our cluster that index, with their processor seconds."""
    import ray

    session = str(ray._private.worker._global_node.get_session_dir_path()).encode()
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if not (place / "cmdline").read_bytes().startswith(b"ray::IndexWorker"):
                continue
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            raylet = Path(f"/proc/{fields[1]}/cmdline").read_bytes()
        except OSError:
            continue
        if session in raylet:
            found[int(place.name)] = (int(fields[11]) + int(fields[12])) / tick
    return found


class Watch:
    """Follows the progress: when how many frames were done, what the workers took; kills some of them."""

    def __init__(self, kills: int = 0) -> None:
        self.told: list[tuple[float, int, int]] = []
        self.cpu_s: dict[int, float] = {}
        self.kills, self.killed = kills, 0

    def __call__(self, progress: Progress) -> None:
        self.told.append((time.monotonic(), progress.done, progress.total))
        there = indexers()
        self.cpu_s |= there
        due = self.kills and progress.done > progress.total * (self.killed + 1) / (self.kills + 2)
        if self.killed < self.kills and due and there:
            os.kill(next(iter(there)), signal.SIGKILL)
            self.killed += 1

    @property
    def frames_s(self) -> float:
        total = self.told[-1][2]
        middle = [(at, done) for at, done, _ in self.told if 0.2 * total <= done <= 0.8 * total]
        return (middle[-1][1] - middle[0][1]) / (middle[-1][0] - middle[0][0])


def indexed(folder: Path, videos: Path, workers: int, model: ModelChoice, kills: int = 0) -> dict[str, Any]:
    watch, began = Watch(kills), time.monotonic()
    outcomes = Cluster(folder, workers=workers, model=model).add(videos, progress=watch)
    # "known": its worker was killed between the commit and its report.
    assert {one.outcome for one in outcomes} <= ({"added", "known"} if kills else {"added"}), outcomes
    return {
        "frames_s": watch.frames_s,
        "seconds": time.monotonic() - began,
        "processor_s": sum(watch.cpu_s.values()),
        "killed": watch.killed,
    }


def shard_contents(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for place in places(folder).values():
        of_shard = contents(place)
        assert not of_shard.keys() & found.keys(), "a video was done twice"
        found |= of_shard
    return found


def equal_answers(folder: Path, one: Path, videos: Path, model: ModelChoice, count: int) -> int:
    """How many of `count` questions get the one-machine answer to the last bit from all shards."""
    rng, paths = np.random.default_rng(0), sorted(videos.glob("*.mp4"))
    queries = {}
    for number in range(count):
        video = Video(paths[number % len(paths)])
        x, y = int(rng.integers(0, video.width - 48)), int(rng.integers(0, video.height - 48))
        moment = float(rng.uniform(0, video.duration_s - 1))
        queries[str(number)] = Query.from_video(video, moment, box=(x, y, x + 48, y + 48))
    with Index(one, localizer=model.load()) as index:
        expected = index.ask_many(queries)
    found = Cluster(folder, model=model).ask_many(queries)
    equal = 0
    for name, (theirs,) in expected.items():
        (mine,) = found[name]
        assert mine.curve is not None and theirs.curve is not None
        same = (mine.sightings, mine.best_guess) == (theirs.sightings, theirs.best_guess)
        equal += same and np.array_equal(mine.curve.scores, theirs.curve.scores)
    return equal


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--videos", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each video")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--waiting", action="store_true")
    parser.add_argument("--kills", type=int, default=0, help="workers to kill in one round more")
    parser.add_argument("--questions", type=int, default=0, help="to compare with one index of one machine")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "videos").mkdir()
        for number in range(arguments.videos):
            make_video(root / "videos" / f"{number:02d}.mp4", arguments.seconds, number)
        kind = Waiting if arguments.waiting else ModelChoice
        save_model(tiny_localizer("maps").model, root / "model")  # type: ignore[arg-type]
        model = kind(weights=str(root / "model"), engine="torch-fp32", device="cpu")
        rounds: dict[int, list[dict[str, Any]]] = {workers: [] for workers in arguments.workers}
        report: dict[str, Any] = {"cores": os.cpu_count(), "load": os.getloadavg()[0], **vars(arguments)}
        with machines("auto", cpus=max(arguments.workers)):
            for number in range(arguments.rounds):
                turn = number % len(arguments.workers)
                for workers in arguments.workers[turn:] + arguments.workers[:turn]:
                    folder = root / f"{workers}-{number}"
                    rounds[workers].append(indexed(folder, root / "videos", workers, model))
                    print(workers, rounds[workers][-1], file=sys.stderr, flush=True)
            for workers, measured in rounds.items():
                report[f"{workers} workers"] = {
                    name: round(statistics.median(one[name] for one in measured), 2)
                    for name in ("frames_s", "seconds", "processor_s")
                }
            first = rounds[arguments.workers[0]]
            for workers, measured in rounds.items():
                ratios = [mine["frames_s"] / theirs["frames_s"] for mine, theirs in zip(measured, first)]
                report[f"{workers} workers"]["times as fast, each round"] = [round(one, 2) for one in ratios]
            if arguments.questions or arguments.kills:
                model = ModelChoice(weights=model.weights, engine=model.engine, device="cpu")
                most, one = max(arguments.workers), root / "one"
                with Index(one, localizer=model.load()) as index:
                    for path in sorted((root / "videos").glob("*.mp4")):
                        index.add(path)
                killed = indexed(root / "killed", root / "videos", most, model, arguments.kills)
                same = shard_contents(root / "killed") == contents(one)
                report["killed"] = {"workers": killed["killed"], "features equal to the last bit": same}
                equal = equal_answers(root / "killed", one, root / "videos", model, arguments.questions)
                report["answers equal to the last bit"] = f"{equal} of {arguments.questions}"
        print(json.dumps({**report, "load after": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()

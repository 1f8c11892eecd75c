"""How fast the rivals and ours answer, end to end: frames in host memory to a track.

    python benchmarks/rivals_speed.py --weights runs/rivals/siamrcnn-448 --weights bundled \\
        --results results.json --set rooms1+rooms2 --out speed.json --device cuda
    python docs/make_tradeoff.py speed.json docs/pictures/tradeoff.svg

The first question reads, resizes, encodes and localizes all frames and, for a detector, follows the peak with
`--tracker`; a further question is to the features that are kept. Frames a second are those of the video; each
number is the median of `--repeats` after a warm-up. Decoding is not in it. stAP25 with its interval is copied
from the table of runs/rivals_answers.py, and weights are counted, so that the file holds all that the figure
shows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lastseen.access import VideoAccess
from lastseen.files import write_whole
from lastseen.localizer import Localizer
from lastseen.query import Query
from lastseen.sighting import Evidence
from lastseen.video import Frame

SCHEMA = "lastseen/rivals-speed@1"


class HostFrames:
    """Frames in host memory, as a decoder would hand them out; few are repeated to make many."""

    path = Path("host memory")

    def __init__(self, count: int, width: int, height: int, fps: float = 5.0) -> None:
        rng = np.random.default_rng(0)
        base = rng.integers(0, 256, (height + 64, width, 3), dtype=np.uint8)
        self.images = [base[n : n + height].copy() for n in range(min(64, count))]
        self.count, self.width, self.height, self.fps = count, width, height, fps
        self.duration_s = count / fps

    def frame_count(self, fps: float = 5.0) -> int:
        return self.count

    def frames(
        self, fps: float = 5.0, start_s: float = 0.0, end_s: float | None = None, *, ahead: int = 0
    ) -> Generator[Frame, None, None]:
        stop = self.count if end_s is None else min(self.count, round(end_s * fps))
        for number in range(round(start_s * fps), stop):
            yield Frame(number, number / fps, self.images[number % len(self.images)])


def median_s(work: Callable[[], object], repeats: int, device: torch.device) -> float:
    work()
    times = []
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(localizer: Localizer, video: HostFrames, query: Query, repeats: int) -> dict[str, float]:
    """Frames a second of the first question and of a further one."""
    here = localizer.at(video.fps)
    first_s = median_s(lambda: here.ask(video, query), repeats, localizer.device)  # type: ignore[arg-type]
    features = torch.cat(list(here.encoded(video, 0, video.count)))  # type: ignore[arg-type]

    def further() -> object:
        views = here.encode_query(query)
        (predictions,) = here.predict_encoded(video, [features], [views], [video.count])
        access = VideoAccess(
            here,
            video,
            views,
            lambda start, stop: features[start:stop],
            lambda: video,  # type: ignore[arg-type,return-value]
        )
        evidence = here.procedure.refine(Evidence.of(predictions), access)
        return here.procedure.tracks(evidence)

    further_s = median_s(further, repeats, localizer.device)
    return {"first_fps": video.count / first_s, "further_fps": video.count / further_s}


def weights_of(localizer: Localizer) -> int:
    model: Any = localizer.model
    return sum(value.numel() for value in model.state_dict().values())


def accuracy_of(results: dict[str, Any], name: str, tracker: str | None, of_set: str) -> dict[str, Any]:
    """stAP25 of the table's row, ranked by its own peak and as published; nothing where it was not
    answered."""
    row = results.get(f"{name}+{tracker}@{of_set}") or results.get(f"{name}@{of_set}")
    if row is None:
        return {}
    every = row["groups"]["all"]
    return {"stap25": every["stap25"], "stap25_constant": every["stap25_unranked"], "set": of_set}


def row_of(weights: str, given: argparse.Namespace, video: HostFrames, query: Query) -> dict[str, Any]:
    folder = None if weights == "bundled" else weights
    device = torch.device(given.device)
    localizer, tracker = Localizer.from_pretrained(folder, device=device), None
    if [step.name for step in localizer.rule.refinement] == ["track"]:
        tracker = given.tracker
        localizer = Localizer.from_pretrained(
            folder, device=device, tracker=tracker, tracker_weights=given.tracker_weights
        )
    results = json.loads(given.results.read_text()) if given.results else {}
    of_set = given.of_set.name if given.of_set else ""
    return {
        "name": Path(weights).name,
        "title": localizer.model.title,
        "after_peak": tracker,
        "engine": localizer.engine.name,
        "weights": weights_of(localizer),
        **measure(localizer, video, query, given.repeats),
        **accuracy_of(results, Path(weights).name, tracker, of_set),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--weights", action="append", required=True)
    add("--tracker", default="particles", help="after a detector's peak")
    add("--tracker-weights", type=Path)
    add("--results", type=Path, help="the table's JSON, for stAP25")
    add("--set", type=Path, dest="of_set", help="the set of it that the figure shows")
    add("--frames", type=int, default=600)
    add("--width", type=int, default=1920)
    add("--height", type=int, default=1080)
    add("--repeats", type=int, default=3)
    add("--device", default="cuda")
    add("--out", type=Path, required=True)
    given = parser.parse_args()
    width, height = given.width, given.height
    video = HostFrames(given.frames, width, height)
    query = Query.from_array(video.images[0], (0.2 * width, 0.2 * height, 0.4 * width, 0.5 * height))
    rows = []
    for weights in given.weights:
        rows.append(row_of(weights, given, video, query))
        print(rows[-1], flush=True)
    on_gpu = torch.device(given.device).type == "cuda"
    kept = {
        "schema": SCHEMA,
        "machine": torch.cuda.get_device_name(given.device) if on_gpu else "CPU",
        "torch": torch.__version__,
        "frames": given.frames,
        "size": [width, height],
        "rows": rows,
    }
    write_whole(given.out, (json.dumps(kept, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()

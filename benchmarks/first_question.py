"""A first question to a video file, and indexing one, on a CPU: today's defaults against eager float32.

    python benchmarks/first_question.py --set real_dev --minutes 5 --turns 2

The video is a haystack: videos of the set in a row, in a seeded order, so that the thing is in one place. The
ways take turns, so that whatever else the machine does slows both; ratios are of medians. A question runs
decoding, encoding, heads, refinement. Indexing writes to disk.

    first question    torch-fp32 with --exhaustive, against the default; whether both give the same answer
    indexing          torch-fp32 with --keep full, against the default; bytes an hour at 5 frames a second
    from the index    a question to what the default has indexed, with and without the video file at hand

Without --set the bundled walk is repeated: then the thing is in view again and again, which says little about
a coarse-to-fine search. `peak_mb` is of the whole process up to then, after the first turn of each way.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from equal_answers import SAME_STIOU, boxes_of, st_iou

import lastseen
from lastseen import Localizer, Query, Video
from lastseen.answer import Answer
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.engine import default_engine
from lastseen.evaluate.benchmark import query_of
from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.index.search import search
from lastseen.video import VideoWriter

ASSETS = Path(lastseen.__file__).parent / "assets"
EXACT = "torch-fp32"
PARTS = "first question", "indexing", "from the index"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", type=Path, dest="folder", metavar="FOLDER", help="annotations.json, videos/")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--exact", default=EXACT, help="the engine of the slow way")
    arguments = parser.parse_args()
    parts = arguments.only or PARTS
    exact = Localizer.from_pretrained(device="cpu", engine=arguments.exact)
    fast = Localizer.from_pretrained(device="cpu", engine=default_engine(exact.device, paper=False))
    with tempfile.TemporaryDirectory() as place:
        seconds = 60 * arguments.minutes
        if arguments.folder:
            video, query = haystack(arguments.folder, Path(place) / "hay.mp4", seconds, arguments.seed)
        else:
            video, query = repeated(Path(place) / "walk.mp4", seconds)
        for localizer in (fast, exact):  # kernels are chosen and networks converted before
            localizer.ask(Video(video), query.asked(2.0))
        facts = {"video_s": round(Video(video).duration_s), "engines": [arguments.exact, fast.engine.name]}
        if "first question" in parts:
            compare(
                "first question",
                facts,
                arguments.turns,
                lambda: fast.ask(Video(video), query),
                lambda: exact.ask(Video(video), query, exhaustive=True),
            )
        if "indexing" in parts:
            compare(
                "indexing",
                facts,
                arguments.turns,
                lambda: indexed(fast, video, None),
                lambda: indexed(exact, video, "full"),
            )
        if "from the index" in parts:
            from_index(fast, video, query, Path(place) / "index", facts)


def compare(
    name: str, facts: dict[str, Any], turns: int, quick: Callable[[], Any], slow: Callable[[], Any]
) -> None:
    times: tuple[list[float], list[float]] = ([], [])
    said: list[Any] = [None, None]
    peaks = []
    for _ in range(turns):
        for number, (way, taken) in enumerate(zip((quick, slow), times)):
            began = time.perf_counter()
            said[number] = way()
            taken.append(time.perf_counter() - began)
            peaks.append(peak_mb())
    after, before = map(statistics.median, times)
    row = {"what": name, **facts, "seconds": [round(before, 1), round(after, 1)]}
    row |= {"times_as_fast": round(before / after, 2), "peak_mb": peaks[:2]}
    if isinstance(said[0], Answer):
        row |= {"same_answer": same(*said), "ran_on": round(float(said[0].curve.searched.mean()), 3)}
    else:
        row["gb_an_hour"] = [round(said[1], 2), round(said[0], 2)]
    tell(row)


def from_index(fast: Localizer, video: Path, query: Query, place: Path, facts: dict[str, Any]) -> None:
    exact = fast.ask(Video(video), query, exhaustive=True)
    with Index(place) as index:
        add_file(index, fast, video)
        for name in ("with the video file", "from the index alone"):
            began = time.perf_counter()
            (answer,) = search(index, fast, {"it": query})["it"]
            seconds = round(time.perf_counter() - began, 1)
            tell({"what": name, **facts, "seconds": seconds, "same_answer": same(answer, exact)})
            if video.exists():
                video.unlink()


def tell(row: dict[str, Any]) -> None:
    print(json.dumps({**row, "load": round(os.getloadavg()[0], 1)}), flush=True)


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def same(one: Answer, other: Answer) -> bool:
    if one.found != other.found:
        return False
    return not one.found or st_iou(boxes_of(one), boxes_of(other)) >= SAME_STIOU


def haystack(folder: Path, path: Path, seconds: float, seed: int) -> tuple[Path, Query]:
    """Videos of a set in a row, and a question about one of them."""
    rng = random.Random(seed)
    clips = find_videos(load_vq2d(folder / "annotations.json"), folder / "videos")
    rng.shuffle(clips)
    clip, section = clips[0]
    question = rng.choice([question for question in clip.questions if question.truth])
    query = query_of(question, Video(section.path), clip.fps).asked(None)
    chosen = [section.path]
    total = Video(section.path).duration_s
    for _, other in clips[1:]:
        if total < seconds:
            chosen.append(other.path)
            total += Video(other.path).duration_s
    rng.shuffle(chosen)
    return written(path, Video(chosen[0]), pictures(chosen, seconds)), query


def pictures(paths: list[Path], seconds: float) -> Iterator[Any]:
    left = round(seconds * Video(paths[0]).fps)
    for path in paths:
        source = Video(path)
        for frame in source.frames(source.fps):
            if left:
                left -= 1
                yield frame.image


def repeated(path: Path, seconds: float) -> tuple[Path, Query]:
    """The bundled walk again and again, at its own rate."""
    times = int(seconds // Video(ASSETS / "demo.mp4").duration_s) + 1
    made = written(path, Video(ASSETS / "demo.mp4"), pictures([ASSETS / "demo.mp4"] * times, seconds))
    return made, Query.from_image(ASSETS / "demo_query.jpg")


def written(path: Path, like: Video, images: Iterator[Any]) -> Path:
    with VideoWriter(path, like.width, like.height, like.fps) as writer:
        for image in images:
            writer.write(image)
    return path


def indexed(localizer: Localizer, video: Path, keep: str | None) -> float:
    """Gigabytes of an hour."""
    with tempfile.TemporaryDirectory() as place, Index(place) as index:
        kept = add_file(index, localizer, video, keep=keep).video
        return index.size_bytes(kept) / kept.frames * 3600 * localizer.fps / 1e9


if __name__ == "__main__":
    main()

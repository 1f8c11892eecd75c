"""A first question to a video file, and indexing one, on a CPU: today's defaults against eager float32.

    python benchmarks/first_question.py --seconds 60 --turns 2

The video is the bundled walk (16:9), repeated to the length asked for. The ways take turns, so that whatever
else the machine does slows both; ratios are of medians. A question runs decoding, encoding, heads on all
frames, refinement. Indexing writes to disk. `peak_mb` is of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lastseen
from lastseen import Localizer, Query, Video
from lastseen.engine import default_engine
from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.video import VideoWriter

ASSETS = Path(lastseen.__file__).parent / "assets"
EXACT = "torch-fp32"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    exact = Localizer.from_pretrained(device="cpu", engine=EXACT)
    fast = Localizer.from_pretrained(device="cpu", engine=default_engine(exact.device, paper=False))
    with tempfile.TemporaryDirectory() as folder:
        video = repeated(Path(folder) / "walk.mp4", arguments.seconds)
        query = Query.from_image(ASSETS / "demo_query.jpg")
        ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "first question": (
                lambda: exact.ask(Video(video), query),
                lambda: fast.ask(Video(video), query),
            ),
            "indexing": (lambda: indexed(exact, video, "full"), lambda: indexed(fast, video, "small")),
        }
        for localizer in (exact, fast):  # kernels are chosen and networks converted before
            localizer.ask(Video(video), query.asked(2.0))
        for name, (slow, quick) in ways.items():
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(arguments.turns):
                for way, taken in zip((slow, quick), times):
                    began = time.perf_counter()
                    way()
                    taken.append(time.perf_counter() - began)
            before, after = map(statistics.median, times)
            print(
                json.dumps(
                    {
                        "what": name,
                        "video_s": arguments.seconds,
                        "engines": [EXACT, fast.engine.name],
                        "seconds": [round(before, 1), round(after, 1)],
                        "times_as_fast": round(before / after, 2),
                        "load": round(os.getloadavg()[0], 1),
                        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                    }
                ),
                flush=True,
            )


def repeated(path: Path, seconds: float) -> Path:
    """The bundled walk again and again, at its own rate."""
    source = Video(ASSETS / "demo.mp4")
    images = [frame.image for frame in source.frames(source.fps)]
    with VideoWriter(path, source.width, source.height, source.fps) as writer:
        for number in range(round(seconds * source.fps)):
            writer.write(images[number % len(images)])
    return path


def indexed(localizer: Localizer, video: Path, keep: str) -> None:
    with tempfile.TemporaryDirectory() as place, Index(place) as index:
        add_file(index, localizer, video, keep=keep)


if __name__ == "__main__":
    main()

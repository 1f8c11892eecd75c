"""Memory does not grow with the length of a video: make an hour of 720p and search all of it.

    python benchmarks/memory.py                    one minute, then an hour; about an hour on 2 cores
    python benchmarks/memory.py --minutes 1 5      quicker

Each length runs in its own process; the peak is what the operating system says that process used.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from lastseen.video import VideoWriter

WIDTH, HEIGHT, FPS = 1280, 720, 30


def make_video(path: Path, minutes: float) -> None:
    """A picture drifting under the camera: cheap to make, real to decode."""
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 255, (90, 240, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    with VideoWriter(path, WIDTH, HEIGHT, FPS) as writer:
        for number in range(round(minutes * 60 * FPS)):
            x = number * 3 % (blocks.shape[1] - WIDTH)
            writer.write(np.ascontiguousarray(blocks[:HEIGHT, x : x + WIDTH]))


def search(path: Path) -> None:
    """In a process of its own: find a thing that is not there, print frames, seconds and peak memory."""
    from lastseen import Localizer, Query, Video

    picture = np.random.default_rng(1).integers(0, 255, (96, 96, 3), np.uint8)
    video = Video(path)
    begin = time.perf_counter()
    predictions = Localizer.from_pretrained().predict(video, [Query.from_array(picture)])[0]
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux
    print(json.dumps({"frames": len(predictions), "seconds": round(seconds, 1), "peak_gib": round(peak, 3)}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, nargs="+", default=[1, 60])
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.search)
        return
    with tempfile.TemporaryDirectory() as folder:
        for minutes in arguments.minutes:
            path = Path(folder) / f"{minutes:g}min.mp4"
            make_video(path, minutes)
            command = [sys.executable, __file__, "--search", str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            print(
                f"{minutes:g} minutes of {WIDTH}x{HEIGHT}: {done.stdout.strip()}",
                flush=True,
            )


if __name__ == "__main__":
    main()

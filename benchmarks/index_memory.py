"""Indexing does not take more memory for a longer video.

    python benchmarks/index_memory.py --minutes 1 10 --fps 1

1280x720 at 30 frames a second as in memory.py; each length in a process of its own. The peak is what the
operating system says that the process used.
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

from memory import make_minute, repeated


def index_one(path: Path, folder: Path, fps: float, keep: str) -> None:
    from lastseen import Localizer
    from lastseen.index import Index
    from lastseen.index.record import add_file

    began = time.perf_counter()
    with Index(folder, create=True) as index:
        video = add_file(index, Localizer.from_pretrained().at(fps), path, keep=keep).video
        size = index.size_bytes(video)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux
    row = {"minutes": round(video.duration_s / 60, 2), "frames": video.frames, "keep": keep}
    row |= {"bytes_a_frame": size // video.frames, "seconds": round(time.perf_counter() - began, 1)}
    print(json.dumps({**row, "peak_gib": round(peak, 3)}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--fps", type=float, default=1.0)
    parser.add_argument("--keep", default="full")
    parser.add_argument("--one", type=Path, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        index_one(*arguments.one, arguments.fps, arguments.keep)
        return
    with tempfile.TemporaryDirectory() as folder:
        minute = Path(folder) / "minute.mp4"
        make_minute(minute)
        for minutes in arguments.minutes:
            path, index = Path(folder) / f"{minutes}min.mp4", Path(folder) / f"index{minutes}"
            repeated(minute, path, minutes)
            command = [sys.executable, __file__, "--one", str(path), str(index), "--fps", str(arguments.fps)]
            done = subprocess.run(
                [*command, "--keep", arguments.keep], check=True, capture_output=True, text=True
            )
            print(done.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()

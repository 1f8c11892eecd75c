"""Memory does not grow with the length of a video: make an hour of 720p and search all of it.

    python benchmarks/memory.py                         one minute, then an hour, at 5 frames a second
    python benchmarks/memory.py --minutes 1 60 --fps 1  every frame decoded, a fifth of them searched

On 2 cores an hour takes about 40 minutes at 5 frames a second. Each length runs in its own process; the
peak is what the operating system says that process used.
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

import av
import numpy as np

from lastseen.video import VideoWriter

WIDTH, HEIGHT, FPS = 1280, 720, 30


def make_minute(path: Path) -> None:
    """A picture drifting under the camera: cheap to make, real to decode."""
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 255, (90, 240, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    with VideoWriter(path, WIDTH, HEIGHT, FPS) as writer:
        for number in range(60 * FPS):
            x = number * 3 % (blocks.shape[1] - WIDTH)
            writer.write(np.ascontiguousarray(blocks[:HEIGHT, x : x + WIDTH]))


def repeated(minute: Path, path: Path, minutes: int) -> None:
    """The same minute over and over, copied without coding it again."""
    with av.open(str(path), "w") as out:
        stream = None
        for turn in range(minutes):
            with av.open(str(minute)) as source:
                video = source.streams.video[0]
                stream = stream or out.add_stream_from_template(video)
                shift = round(turn * 60 / video.time_base)
                for packet in source.demux(video):
                    if packet.dts is not None:
                        packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, stream
                        out.mux(packet)


def search(path: Path, fps: float) -> None:
    """In a process of its own: look for what is not there, print frames, seconds and peak memory."""
    from lastseen import Localizer, Query, Video

    picture = np.random.default_rng(1).integers(0, 255, (96, 96, 3), np.uint8)
    video = Video(path)
    begin = time.perf_counter()
    predictions = Localizer.from_pretrained().at(fps).predict(video, [Query.from_array(picture)])[0]
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux
    print(
        json.dumps(
            {
                "minutes": round(video.duration_s / 60, 2),
                "frames": len(predictions),
                "seconds": round(seconds, 1),
                "peak_gib": round(peak, 3),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, nargs="+", default=[1, 60])
    parser.add_argument("--fps", type=float, default=5.0)
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.search, arguments.fps)
        return
    with tempfile.TemporaryDirectory() as folder:
        minute = Path(folder) / "minute.mp4"
        make_minute(minute)
        for minutes in arguments.minutes:
            path = Path(folder) / f"{minutes}min.mp4"
            repeated(minute, path, minutes)
            command = [sys.executable, __file__, "--search", str(path), "--fps", str(arguments.fps)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            print(done.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()

"""How long a question to an index takes and how large the index is, for hours of video.

    python benchmarks/index_speed.py --hours 1 --index /tmp/hours

Encoding hours takes hours on a CPU, and a question does not care what the frames show: one video, the demo,
is encoded and its features are appended again and again until there are enough. Everything else is real:
files, catalogue, memory maps, coarse scores, the exact model on the candidates. An hour takes 1 GB of disk,
or 14.2 GB with --keep full.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import torch

import lastseen
from lastseen import Localizer, Query, Video
from lastseen.index import Index
from lastseen.index.recorder import Recorder
from lastseen.index.search import search

ASSETS = Path(lastseen.__file__).parent / "assets"


def fill(index: Index, localizer: Localizer, hours: float, keep: str) -> None:
    """One video of so many hours; its first frames are those of the demo, and so are all others."""
    source = Video(ASSETS / "demo.mp4")
    frames = round(hours * 3600 * localizer.fps)
    index.bind(localizer)
    video = index.catalogue.add(
        "hours",
        source="hours.mp4",
        kind="live",
        identity=f"hours:{hours}",
        width=source.width,
        height=source.height,
        fps=source.fps,
        duration_s=frames / localizer.fps,
        recorded_at=1e9,
        keep=keep,
    )
    if video.complete:
        return
    once = torch.cat(list(localizer.encoded(source, 0, source.frame_count(localizer.fps))))
    with index.writing(video):
        recorder = Recorder(index, localizer, video, commit_s=10)
        while recorder.end < frames:
            recorder.append(once[: frames - recorder.end])
        recorder.commit(complete=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--keep", choices=("small", "full"), default="small")
    parser.add_argument("--exhaustive", action="store_true", help="also time the exact model on every frame")
    arguments = parser.parse_args()
    localizer = Localizer.from_pretrained()
    with Index(arguments.index, create=True) as index:
        fill(index, localizer, arguments.hours, arguments.keep)
        (video,) = index.videos()
        for rows in filter(None, (index.fine(video), index.compact(video))):
            print(
                json.dumps(
                    {"kept": rows.kind, "bytes a frame": rows.row_bytes, "GB": rows.size_bytes() / 1e9}
                )
            )
        query = Query.from_image(ASSETS / "demo_query.jpg")
        began = time.perf_counter()
        localizer.encode_query(query)
        print(json.dumps({"seconds to encode the query": round(time.perf_counter() - began, 2)}))
        ways = [("again, from memory", {}), ("first", {})][::-1]
        ways += [("exhaustive", {"exhaustive": True})] if arguments.exhaustive else []
        for name, options in ways:
            began = time.perf_counter()
            found = search(index, localizer, {"it": query}, **options)["it"]  # type: ignore[arg-type]
            seconds = time.perf_counter() - began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux
            row = {"search": name, "frames": video.frames, "seconds": round(seconds, 2), "found": bool(found)}
            print(json.dumps({**row, "peak_gib": round(peak, 2)}), flush=True)


if __name__ == "__main__":
    main()

"""Time questions to an index of the bundled demo: the simulator draws its service times from them.

    python -m benchmarks.scale.measure --questions 30 --out benchmarks/scale/measured.json

One thread, without refinement. Every question is timed by the clock and by the processor: the first includes
what other programs on the machine took away, and is the better picture of a shared server. Nobody indexes an
hour for this: the demo's tokens are scored again and again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import lastseen
from lastseen import Index, Localizer, Query
from lastseen.clips import cut
from lastseen.files import whole_file
from lastseen.index.compact import coarse_scores, query_vectors
from lastseen.index.fine import FineFeatures

ASSETS = Path(lastseen.__file__).parent / "assets"
SCHEMA = "lastseen/service-times@1"
STEPS = ("zoom", "verify", "extend")
SCORED = 2_000  # frames of the first stage that are timed together


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock and by the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def measure(questions: int) -> dict[str, object]:
    torch.set_num_threads(1)
    localizer = Localizer.from_pretrained()
    localizer = localizer.with_rule(localizer.rule.without(STEPS))
    query = Query.from_image(ASSETS / "demo_query.jpg")
    with tempfile.TemporaryDirectory() as place, Index(Path(place) / "i", localizer=localizer) as index:
        localizer.encode_query(query)  # the engine is converted at first use
        _, adding = timed(lambda: index.add(ASSETS / "demo.mp4"))
        (video,) = index.videos()
        index.ask(query)  # the first question also checks what it reads
        asked = [timed(lambda: index.ask(query)) for _ in range(questions)]
        encoding = [timed(lambda: localizer.encode_query(query)) for _ in range(5)]
        views = localizer.encode_query(query)
        vectors = [torch.cat([query_vectors(localizer.model, view) for view in views])]
        fine = FineFeatures(index, localizer, video)
        pieces = [tokens for _, _, tokens in fine.token_pieces() if tokens is not None]
        frames = sum(map(len, pieces))
        passes = -(-SCORED // frames)

        def score() -> None:
            for _ in range(passes):
                for tokens in pieces:
                    coarse_scores(fine.grid, tokens, vectors)

        scored = [timed(score) for _ in range(5)]
        kept = {rows.kind: rows.row_bytes for rows in index.kept(video)}
    return {
        "schema": SCHEMA,
        "command": f"python -m benchmarks.scale.measure --questions {questions}",
        "commit": _said_by("git", "rev-parse", "--short", "HEAD"),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, one thread, "
        f"load {os.getloadavg()[0]:.0f}, torch {torch.__version__}, {localizer.engine.name}",
        "frames": video.frames,
        "tokens_a_frame": fine.grid.tokens,
        "query_vectors": sum(map(len, vectors)),
        "bytes_a_frame": kept,
        "clips": len(
            list(cut([torch.empty(video.frames, 0)], localizer.model.clip_length, localizer.model.context))
        ),
        "index_frame_core_s": round(adding / video.frames, 4),
        "encode_query_core_s": round(statistics.median(core for _, core in encoding), 4),
        "score_frame_core_s": round(statistics.median(core for _, core in scored) / (passes * frames), 8),
        "ask_wall_s": [round(wall, 3) for wall, _ in asked],
        "ask_core_s": [round(core, 3) for _, core in asked],
    }


def _said_by(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("measured.json"))
    arguments = parser.parse_args()
    with whole_file(arguments.out) as part:
        part.write_text(json.dumps(measure(arguments.questions), indent=1) + "\n")
    print(arguments.out)


if __name__ == "__main__":
    main()

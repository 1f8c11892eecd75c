"""Time questions to an index of the bundled demo: the simulator draws its service times from them.

    python -m benchmarks.scale.measure --questions 24 --out benchmarks/scale/measured.json

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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import lastseen
from benchmarks.scale.constants import SAMPLES
from lastseen import Index, Localizer, Query
from lastseen.clips import cut
from lastseen.files import whole_file
from lastseen.index.compact import CompactGrid, coarse_scores
from lastseen.index.fine import FineFeatures
from lastseen.index.small import SmallGrid
from lastseen.search.ranking import query_vectors, representatives

ASSETS = Path(lastseen.__file__).parent / "assets"
SCHEMA = "lastseen/service-times@1"
STEPS = ("zoom", "verify", "extend")
SCORED = 1_000  # frames of the first stage that are timed together
TURNS = 9
FEWER = 16  # vectors of the query, of 64


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock and by the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def measure(questions: int, former: dict[str, Any]) -> dict[str, Any]:
    """`questions` 0: the first stage alone; the rest stays as it was."""
    torch.set_num_threads(1)
    localizer = Localizer.from_pretrained()
    localizer = localizer.with_rule(localizer.rule.without(STEPS))
    query = Query.from_image(ASSETS / "demo_query.jpg")
    with tempfile.TemporaryDirectory() as place, Index(Path(place) / "i", localizer=localizer) as index:
        localizer.encode_query(query)  # the engine is converted at first use
        _, adding = timed(lambda: index.add(ASSETS / "demo.mp4"))
        with Index(Path(place) / "small", localizer=localizer) as other:
            other.add(ASSETS / "demo.mp4", keep="small")
            fine, small = (FineFeatures(each, localizer, each.videos()[0]) for each in (index, other))
            stage = {"first_stage": {**_made_by(localizer), **first_stage(fine, small, query)}}
        if not questions:
            return {**former, **stage}
        return {
            "schema": SCHEMA,
            "command": f"python -m benchmarks.scale.measure --questions {questions}",
            **_made_by(localizer),
            "index_frame_core_s": round(adding / index.videos()[0].frames, 4),
            **asked(index, query, questions),
            **stage,
        }


def asked(index: Index, query: Query, questions: int) -> dict[str, Any]:
    """The whole question, again and again."""
    (video,), localizer = index.videos(), index.localizer
    index.ask(query)  # the first one also checks what it reads
    seconds = [timed(lambda: index.ask(query)) for _ in range(questions)]
    encoding = [timed(lambda: localizer.encode_query(query))[1] for _ in range(5)]
    clips = cut([torch.empty(video.frames, 0)], localizer.model.clip_length, localizer.model.context)
    return {
        "frames": video.frames,
        "clips": len(list(clips)),
        "bytes_a_frame": {rows.kind: rows.row_bytes for rows in index.kept(video)},
        "encode_query_core_s": round(statistics.median(encoding), 4),
        "ask_wall_s": [round(wall, 3) for wall, _ in seconds],
        "ask_core_s": [round(core, 3) for _, core in seconds],
    }


def first_stage(fine: FineFeatures, small: FineFeatures, query: Query) -> dict[str, Any]:
    """Scoring the tokens: as the product does it, and as it does not: in bfloat16, with fewer vectors."""
    model, views = fine.localizer.model, fine.localizer.encode_query(query)
    every = torch.cat([query_vectors(model, view) for view in views])
    fewer = torch.cat([representatives(query_vectors(model, view), FEWER) for view in views])
    pieces, small_pieces = list(fine.token_pieces()), list(small.token_pieces())
    grid, small_grid = fine.grid, small.grid
    assert isinstance(grid, CompactGrid) and isinstance(small_grid, SmallGrid)
    works: dict[str, Callable[[], np.ndarray]] = {
        "compact": lambda: _joined(coarse_scores(grid, t, at, [every])[0] for at, _, t in pieces),
        "small": lambda: _joined(coarse_scores(small_grid, t, at, [every])[0] for at, _, t in small_pieces),
        "bfloat16": lambda: _joined(_in_bfloat16(grid, t, every) for _, _, t in pieces),
        "bfloat16_fewer": lambda: _joined(_in_bfloat16(grid, t, fewer) for _, _, t in pieces),
        "unpacking": lambda: _joined(small_grid.unpack(t)[:, 0, 0, 0].numpy() for _, _, t in small_pieces),
    }
    frames = fine.video.frames
    passes = -(-SCORED // frames)
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(TURNS):  # alternating: what disturbs one disturbs all
        for name, work in works.items():
            _, core = timed(lambda: [work() for _ in range(passes)])  # noqa: B023
            taken[name].append(core / passes / frames)
    return {
        "tokens_a_frame": grid.tokens,
        "bytes_a_frame": {"compact": grid.row_bytes, "small": small_grid.row_bytes},
        "query_vectors": {"all": len(every), "fewer": len(fewer)},
        "score_frame_core_s": {name: round(statistics.median(taken[name]), 8) for name in works},
        "largest_difference": {
            name: round(float(np.abs(works[name]() - works["compact"]()).max()), 4)
            for name in ("bfloat16", "bfloat16_fewer")
        },
    }


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate(list(parts))


def _in_bfloat16(grid: CompactGrid, packed: np.ndarray, vectors: Tensor) -> np.ndarray:
    """As CompactGrid.similarity and coarse_scores; codes of int8 are exact in bfloat16."""
    split = grid.tokens * grid.channels
    codes = torch.from_numpy(np.array(packed[:, :split]).view(np.int8)).bfloat16()
    scales = torch.from_numpy(np.array(packed[:, split:]).view(np.float16)).float()
    products = codes.view(-1, grid.tokens, grid.channels) @ vectors.bfloat16().T
    return (products.amax(2).float() * scales).amax(1).numpy()  # scales are positive


def _made_by(localizer: Localizer) -> dict[str, str]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    return {
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, one thread, "
        f"load {os.getloadavg()[0]:.0f}, torch {torch.__version__}, {localizer.engine.name}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=24, help="0: only the first stage again")
    parser.add_argument("--out", type=Path, default=SAMPLES)
    arguments = parser.parse_args()
    former = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    found = measure(arguments.questions, former)
    with whole_file(arguments.out) as part:
        part.write_text(json.dumps(found, indent=1) + "\n")
    print(arguments.out)


if __name__ == "__main__":
    main()

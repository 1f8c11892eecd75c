"""Kill the indexing of videos again and again: nothing that was committed is lost, nothing is wrong.

    python benchmarks/index_kill.py                 50 kills with SIGKILL at random moments
    python benchmarks/index_kill.py --kills 20

Each victim is a process of its own that indexes three videos with a tiny random model, committing after every
batch. After each kill the index is opened as it was left: committed frames may only have grown, their bytes
equal those of an uninterrupted run, and every checksum holds. When all three are whole, their files are
compared byte by byte, and it begins anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.localizer import Localizer
from lastseen.model import (
    Backbone,
    BackboneConfig,
    SimilarityConfig,
    SimilarityModel,
    TrainingFreeConfig,
    TrainingFreeModel,
    VQLoC,
    VQLoCConfig,
)
from lastseen.procedure import Procedure, Standard
from lastseen.video import VideoWriter

TINY = BackboneConfig(dim=32, depth=2, heads=2)
SECONDS = (20, 12.4, 16)  # of the videos


def tiny_localizer(
    kind: str = "patches", *, seed: int = 0, procedure: Procedure = Standard(), **fields: Any
) -> Localizer:
    """Random weights: useless answers, but a full path in milliseconds a frame."""
    torch.manual_seed(seed)
    model: VQLoC | SimilarityModel | TrainingFreeModel
    if kind == "patches":
        config = TrainingFreeConfig(longer_edge=112, query_scales_px=(28, 56), query_canvas_px=(56, 112))
        model = TrainingFreeModel(Backbone(TINY), config)
    elif kind == "maps":
        small = {"image_size": 112, "dim": 32, "query_size": 56, "skip_connection": False, **fields}
        model = SimilarityModel.from_config(SimilarityConfig(backbone=TINY, **small))
    else:
        model = VQLoC.from_config(VQLoCConfig(backbone=TINY, image_size=112, dim=32, **fields))
    _enliven(model)
    return Localizer(model.eval(), procedure=procedure)


def _enliven(model: torch.nn.Module) -> None:
    """Weights large enough for frames to differ; heads start near zero otherwise."""
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1:
                value.normal_(std=1.5 / value[0].numel() ** 0.5)


def make_video(path: Path, seconds: float, seed: int) -> Path:
    """Coloured blocks that drift."""
    rng = np.random.default_rng(seed)
    world = rng.integers(0, 255, (12, 40, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    with VideoWriter(path, 128, 96, 10) as writer:
        for number in range(round(seconds * 10)):
            x = number * 2 % (world.shape[1] - 128)
            writer.write(np.ascontiguousarray(world[:, x : x + 128]))
    return path


def index_all(folder: Path, videos: list[Path], commit_s: float = 0.0) -> None:
    with Index(folder, create=True) as index:
        for video in videos:
            add_file(index, tiny_localizer(), video, commit_s=commit_s)


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes that count, by video and kind."""
    found = {}
    with Index(folder) as index:
        for video in index.videos():
            for rows in filter(None, (index.fine(video), index.compact(video))):
                found[f"{video.name}:{rows.kind}"] = rows.read(video.first, video.frames).tobytes()
    return found


def killed_after(delay_s: float, folder: Path, videos: list[Path]) -> bool:
    """Index in another process and kill that; False if it was done before."""
    child = os.fork()
    if child == 0:
        try:
            index_all(folder, videos)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise AssertionError("indexing failed")
    return os.WIFSIGNALED(status)


def check(folder: Path, reference: dict[str, bytes], least: dict[str, int]) -> None:
    """Raises if anything that was committed is lost or wrong; notes how far each video is."""
    if not (folder / "catalogue.sqlite").exists():
        assert not least
        return
    for name, data in contents(folder).items():
        assert data == reference[name][: len(data)], f"{name}: wrong bytes"
        assert len(data) >= least.get(name, 0), f"{name}: committed frames are lost"
        least[name] = len(data)
    with Index(folder) as index:
        for video in index.videos():
            problems = index.verify(video)
            assert not problems, problems


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        videos = [make_video(root / f"{i}.mp4", seconds, i) for i, seconds in enumerate(SECONDS)]
        began = time.monotonic()
        index_all(root / "reference", videos)
        whole_s = time.monotonic() - began
        reference = contents(root / "reference")
        kills = finished = amid = 0
        least: dict[str, int] = {}
        began = time.monotonic()
        while kills < arguments.kills or finished == 0:
            # Towards the end of the kills it is let run, so that one more index gets whole.
            delay_s = rng.uniform(0, whole_s / 2) if kills < arguments.kills else 10 * whole_s
            before = dict(least)
            killed = killed_after(delay_s, root / "index", videos)
            check(root / "index", reference, least)
            kills += killed
            amid += killed and least != before
            if len(least) == len(reference) and all(least[name] == len(reference[name]) for name in least):
                assert contents(root / "index") == reference
                finished += 1
                shutil.rmtree(root / "index")
                least = {}
        report = {
            "kills": kills,
            "amid committing": amid,
            "indexes finished and equal": finished,
            "whole run s": round(whole_s, 2),
        }
        print(json.dumps({**report, "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()

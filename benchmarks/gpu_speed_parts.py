"""What gpu_speed.py measures with: sizes, models, frames in host memory, medians, a table of results."""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from lastseen.engine import fused
from lastseen.localizer import Localizer
from lastseen.model import VIT_S, BackboneConfig, SimilarityConfig, TrainedConfig, TrainedModel, VQLoCConfig
from lastseen.query import Query
from lastseen.train.recipes import synth_small
from lastseen.video import Frame
from lastseen.weights import make_model

PLAIN = "PyTorch's operations"
Result = TypeVar("Result")
TARGETS = {  # what is to be shown on one H200
    ("cold", "ViT-B"): ("frames/s", 1800.0),
    ("cold", "ViT-S"): ("frames/s", 5000.0),
    ("wide", "ViT-B"): ("frames/s", 3300.0),
    ("wide", "shipped"): ("frames/s", 12_000.0),
    ("pipeline", "ViT-B"): ("frames/s", 3000.0),
    ("pipeline", "ViT-S"): ("frames/s", 2000.0),
    ("hour", "ViT-B"): ("s", 0.25),
    ("hour", "ViT-S"): ("s", 0.25),
    ("hour", "shipped"): ("s", 0.25),
    ("compact", "ViT-S"): ("s", 2.0),
}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    pixels: int = 448
    width: int = 1920
    height: int = 1080
    frames: int = 1920  # of a cold video, in half precision
    slow_frames: int = 96  # the same, in float32
    host_frames: int = 600  # distinct ones in host memory
    hour: int = 18_000
    batches: tuple[int, ...] = (32, 64, 128)  # for queries and indexes; for encoding; for encoding
    repeats: int = 3


TOY = Size(
    pixels=112,
    width=192,
    height=108,
    frames=96,
    slow_frames=64,
    host_frames=40,
    hour=200,
    batches=(2, 4, 8),
    repeats=1,
)


class HostVideo:
    """Frames in host memory, as a decoder would hand them out; few are repeated to make many."""

    path = Path("host memory")

    def __init__(self, size: Size, frames: int, fps: float = 5.0) -> None:
        rng = np.random.default_rng(0)
        base = rng.integers(0, 256, (size.height + size.host_frames, size.width, 3), dtype=np.uint8)
        self.images = [base[i : i + size.height].copy() for i in range(size.host_frames)]
        self.width, self.height, self.total, self.fps = size.width, size.height, frames, fps
        self.duration_s = frames / fps

    def frame_count(self, fps: float) -> int:
        return self.total

    def frames(
        self, fps: float, start_s: float = 0.0, end_s: float | None = None, *, ahead: int = 0
    ) -> Generator[Frame, None, None]:
        stop = self.total if end_s is None else min(self.total, round(end_s * fps))
        for number in range(round(start_s * fps), stop):
            yield Frame(number, number / fps, self.images[number % len(self.images)])


class Measuring:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.device = torch.device(arguments.device)
        self.size = TOY if arguments.toy else Size()
        self.out: Path | None = arguments.out
        self.wanted: list[str] = arguments.only
        self.rows: list[dict[str, Any]] = []
        self.notes: dict[str, Any] = {"torch": torch.__version__, "device": self._device_name()}
        if self.device.type == "cuda":
            self.notes["kernels not used"] = fused.problem(self.device)
        self.models = {name: made.to(self.device) for name, made in models(arguments.toy).items()}
        self.query = Query.from_array(
            np.random.default_rng(1).integers(0, 256, (200, 160, 3), dtype=np.uint8)
        )

    def _device_name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def median(self, work: Callable[[], object], repeats: int | None = None, warm_up: int = 1) -> float:
        for _ in range(warm_up):
            work()
        self.wait()
        times = []
        for _ in range(repeats or self.size.repeats):
            began = time.perf_counter()
            work()
            self.wait()
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    def section(self, name: str, model: str, work: Callable[..., None], options: tuple[Any, ...]) -> None:
        if self.wanted and name not in self.wanted:
            return
        began = time.perf_counter()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        try:
            work(*options)
        except Exception as error:
            traceback.print_exc()
            problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            self.add(name, model, " ".join(map(str, options[1:])), "", 0.0, problem=problem)
        took = self.notes.setdefault("section seconds", {})
        took[name] = round(took.get(name, 0.0) + time.perf_counter() - began, 1)
        self.save()

    def add(self, section: str, model: str, variant: str, unit: str, value: float, **more: Any) -> None:
        peak = torch.cuda.max_memory_allocated(self.device) / 2**30 if self.device.type == "cuda" else 0.0
        row = {"section": section, "model": model, "variant": variant, "unit": unit, "value": value}
        self.rows.append({**row, "peak_gib": round(peak, 2), **more})
        print(json.dumps(self.rows[-1]), flush=True)

    def save(self) -> None:
        if self.out is not None:
            text = json.dumps({"notes": self.notes, "rows": self.rows}, indent=1)
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(text + "\n")

    def localizer(self, model: str, engine: str, batch: int, **options: Any) -> Localizer:
        made = Localizer(self.models[model], device=self.device, batch=batch, engine=engine, **options)
        made.clips_at_once = max(made.clips_at_once, 2)  # the CPU's toy run takes the GPU's way
        return made

    def host_video(self, frames: int) -> HostVideo:
        if not hasattr(self, "_held"):
            self._held = HostVideo(self.size, frames)
        self._held.total, self._held.duration_s = frames, frames / self._held.fps
        return self._held

    def markdown(self) -> str:
        """The best of each section and model, beside what was to be shown; then everything."""
        lines = ["| section | model | best | to be shown | by |", "|---|---|---|---|---|"]
        for (section, model), (unit, target) in TARGETS.items():
            rows = [r for r in self.rows if (r["section"], r["model"]) == (section, model) and r["value"]]
            if rows:
                best = (min if unit == "s" else max)(rows, key=lambda row: row["value"])
                sign = "<=" if unit == "s" else ">="
                found = f"{best['value']:g} {unit} | {sign} {target:g}"
                lines.append(f"| {section} | {model} | {found} | {best['variant']} |")
        lines += ["", "| section | model | variant | value | peak GiB |", "|---|---|---|---|---|"]
        for row in self.rows:
            value = row.get("problem") or f"{row['value']:g} {row['unit']}"
            lines.append(
                f"| {row['section']} | {row['model']} | {row['variant']} | {value} | {row['peak_gib']} |"
            )
        return "\n".join(lines)


def models(toy: bool) -> dict[str, TrainedModel]:
    configs: dict[str, TrainedConfig] = {
        "ViT-B": VQLoCConfig(),
        "ViT-S": VQLoCConfig(backbone=VIT_S),
        "shipped": synth_small().model,
    }
    if toy:
        small = BackboneConfig(dim=64, depth=2, heads=2)
        plain = VQLoCConfig(backbone=small, image_size=112, dim=32)
        maps = SimilarityConfig(
            backbone=small,
            image_size=112,
            dim=32,
            query_scales=(1.0, 0.5),
            query_size=112,
            skip_connection=False,
        )
        configs = {"ViT-B": plain, "ViT-S": plain, "shipped": maps}
    torch.manual_seed(0)
    made = {name: make_model(config).eval() for name, config in configs.items()}
    for model in made.values():
        torch.nn.init.normal_(model.head.score.weight, std=0.05)  # scores that differ, as of a trained head
    return made


@contextmanager
def plain() -> Iterator[None]:
    """Half-precision models without Triton kernels."""
    chosen = fused._kernels_for
    fused._kernels_for = lambda x: None
    try:
        yield
    finally:
        fused._kernels_for = chosen


def captured(work: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """`work` as a CUDA graph, and what each replay writes anew. Kernels are compiled before."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


def graphed(encode: Callable[[Tensor], Tensor], example: Tensor) -> Callable[[Tensor], Tensor]:
    """`encode` as a CUDA graph for batches of one shape."""
    fixed = example.clone()
    graph, result = captured(lambda: encode(fixed))

    def replay(frames: Tensor) -> Tensor:
        fixed.copy_(frames)
        graph.replay()
        return result.clone()

    return replay

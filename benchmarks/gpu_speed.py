"""How fast frames are encoded and questions answered on a GPU.

    python benchmarks/gpu_speed.py --out speed.json
    python benchmarks/gpu_speed.py --toy --device cpu --out toy.json     # does it run at all?

Models have random weights: speed does not depend on them. Sections:

    cold       frames of 448 px on the GPU -> features -> boxes and logits of every frame, by engine and batch
    pipeline   1080p frames in host memory -> upload, resize, encode, localize -> track
    hour       a further question to an hour of full features on the GPU, the query's encoding included
    compact    the same to an index that keeps a few tokens a frame: coarse scores from disk, candidates
               encoded again from frames in host memory (decoding them from a file is not in it)
    fused      what takes one pass (lastseen.model.fused) against PyTorch's own operations, after a check that
               both give the same
    kernels    where the time goes

Each figure is the median of several runs after a warm-up. A section that fails is reported, the rest runs,
and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.index import Index
from lastseen.index.fine import FineFeatures
from lastseen.index.recorder import Recorder
from lastseen.index.search import search
from lastseen.localizer import Localizer
from lastseen.model import VIT_S, BackboneConfig, VQLoC, VQLoCConfig, fused
from lastseen.query import Query
from lastseen.track import TrackRule
from lastseen.train.recipes import synth_small
from lastseen.video import Frame

PLAIN = "PyTorch's operations"
TARGETS = {  # what is to be shown on one H200
    ("cold", "ViT-B"): ("frames/s", 1800.0),
    ("cold", "ViT-S"): ("frames/s", 5000.0),
    ("pipeline", "ViT-B"): ("frames/s", 1000.0),
    ("pipeline", "ViT-S"): ("frames/s", 2000.0),
    ("hour", "ViT-B"): ("s", 0.5),
    ("hour", "ViT-S"): ("s", 0.5),
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


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.device = torch.device(arguments.device)
        self.size = TOY if arguments.toy else Size()
        self.out: Path | None = arguments.out
        self.wanted: list[str] = arguments.only
        self.rows: list[dict[str, Any]] = []
        self.notes: dict[str, Any] = {"torch": torch.__version__, "device": self._device_name()}
        if self.device.type == "cuda":
            self.notes["kernels not used"] = fused.problem()
        self.models = {name: made.to(self.device) for name, made in _models(arguments.toy).items()}
        self.query = Query.from_array(
            np.random.default_rng(1).integers(0, 256, (200, 160, 3), dtype=np.uint8)
        )

    def _device_name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"

    # --- measuring ---

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

    # --- sections ---

    @torch.inference_mode()
    def cold(self, model: str, engine: str, batch: int, variant: str = "") -> None:
        """Frames of the model's own size, on the GPU."""
        size, side = self.size, self.size.pixels
        total = size.slow_frames if engine == "torch-fp32" else size.frames // (2 if model == "ViT-B" else 1)
        total -= total % batch
        localizer = self.localizer(model, engine, batch)
        generator = torch.Generator(self.device).manual_seed(0)
        held = max(batch, total // 4 - total // 4 % batch)
        frames = torch.randint(
            0, 256, (held, side, side, 3), dtype=torch.uint8, device=self.device, generator=generator
        )
        encode = localizer.engine.encode_frames
        if variant == "graphs":
            encode = _graphed(encode, frames[:batch])
        views = localizer.encode_query(self.query)
        footage = HostVideo(replace(size, width=side, height=side, host_frames=1), total)

        def pieces() -> Iterator[Tensor]:
            for at in range(0, total, batch):
                at %= held
                yield encode(frames[at : at + batch]).to(localizer.feature_dtype)

        with ExitStack() as stack:
            if variant == PLAIN:
                stack.enter_context(_plain())
            began = time.perf_counter()
            localizer.predict_encoded(footage, pieces(), [views], [total])
            self.wait()
            first_s = time.perf_counter() - began
            whole = self.median(
                lambda: localizer.predict_encoded(footage, pieces(), [views], [total]), warm_up=0
            )
            alone = self.median(lambda: [None for _ in pieces()], warm_up=0)
        name = f"{engine}{', ' if variant else ''}{variant}, batch {batch}"
        more = {"encode alone": round(total / alone, 1), "first run s": round(first_s, 2), "frames": total}
        self.add("cold", model, name, "frames/s", round(total / whole, 1), **more)

    @torch.inference_mode()
    def accuracy(self, model: str) -> None:
        """Half precision against float32 on this device: random weights, real arithmetic."""
        side, count = self.size.pixels, 8
        images = list(np.random.default_rng(2).integers(0, 256, (count, side // 2, side, 3), dtype=np.uint8))
        exact = self.localizer(model, "torch-fp32", count).engine.encode_pictures(images, count).float()
        for name in ("torch-fp16", "torch-bf16"):
            quick = self.localizer(model, name, count).engine.encode_pictures(images, count).float()
            cosine = torch.nn.functional.cosine_similarity(exact, quick, dim=1)
            low, mean = cosine.min().item(), cosine.mean().item()
            self.add("accuracy", model, f"{name} against float32", "lowest cosine", low, mean=mean)

    @torch.inference_mode()
    def pipeline(self, model: str, engine: str, batch: int) -> None:
        total = self.size.frames - self.size.frames % batch
        localizer = self.localizer(model, engine, batch)
        video = self._host_video(total)
        seconds = self.median(lambda: localizer.locate(video, self.query))  # type: ignore[arg-type]
        more = {"frames": total, "distinct": len(video.images)}
        self.add("pipeline", model, f"{engine}, batch {batch}", "frames/s", round(total / seconds, 1), **more)

    @torch.inference_mode()
    def upload(self, batch: int) -> None:
        """The pipeline without a model: what the way to the GPU allows, and what resizing there costs."""
        from lastseen.box import Letterbox
        from lastseen.engine.upload import Upload
        from lastseen.model.inputs import resized, resized_by_products

        video = self._host_video(4 * batch)
        images = video.images[:batch]
        if self.device.type == "cuda":
            upload = Upload(self.device)

            def send() -> None:
                for _ in range(4):
                    with upload.sent(images):
                        pass

            seconds = self.median(send)
            count = 4 * len(images)
            rate = count * images[0].nbytes / seconds / 1e9
            self.add("upload", "-", "1080p to the GPU", "frames/s", round(count / seconds, 1), gb_s=rate)
        frames = torch.from_numpy(np.stack(images)).to(self.device)
        box = Letterbox.square(video.width, video.height, self.size.pixels)
        new = box.content_width, box.content_height
        for name, resize in (("products", resized_by_products), ("interpolate", resized)):
            seconds = self.median(lambda resize=resize: resize(frames, *new))  # type: ignore[misc]
            self.add("resize", "-", name, "frames/s", round(len(frames) / seconds, 1))

    @torch.inference_mode()
    def hour(self, model: str, engine: str, at_once: int | None = None) -> None:
        localizer = self.localizer(model, engine, self.size.batches[0])
        if at_once is not None:
            localizer.clips_at_once = at_once
        config: VQLoCConfig = localizer.model.config
        channels = config.match_dim if config.fusion == "match" else config.dim + config.match_dim
        shape = (self.size.hour, channels, config.side, config.side)
        features = torch.empty(shape, dtype=torch.float16, device=self.device).normal_()
        if config.fusion == "match":
            for part in features.split(1000):
                part.copy_(torch.nn.functional.normalize(part.float(), dim=1))
        video = HostVideo(replace(self.size, host_frames=1), self.size.hour)

        def ask() -> None:
            views = localizer.encode_query(self.query)
            found = localizer.predict_encoded(video, [features], [views], [self.size.hour])[0]
            localizer.tracks(found)

        seconds = self.median(ask)
        encoding = self.median(lambda: localizer.encode_query(self.query))
        name = f"{engine}, {localizer.clips_at_once} clips at once"
        more = {"of it the query": round(encoding, 4), "features GiB": round(features.nbytes / 2**30, 2)}
        self.add("hour", model, name, "s", round(seconds, 3), **more)

    @torch.inference_mode()
    def compact(self, model: str, engine: str, *candidates: int) -> None:
        """No track is reported (threshold above 1), so that random scores do not lead it on; instead the
        second figure looks at as many clips as a thing that was seen may cost at most."""
        batch = self.size.batches[0]
        localizer = self.localizer(model, engine, batch, rule=TrackRule(threshold=1.1))
        video = self._host_video(self.size.hour)
        with tempfile.TemporaryDirectory() as folder, Index(folder, create=True) as index:
            began = time.perf_counter()
            index.bind(localizer)
            bound_s = time.perf_counter() - began
            entry = index.catalogue.add(
                "hour",
                source=str(video.path),
                kind="file",
                identity="hour",
                width=video.width,
                height=video.height,
                fps=5.0,
                duration_s=video.duration_s,
                recorded_at=1e9,
                keep="compact",
            )
            images = video.images[: 8 * batch]
            once = torch.cat(
                [localizer.encode_pictures(images[at : at + batch]) for at in range(0, len(images), batch)]
            )
            began = time.perf_counter()
            with index.writing(entry):
                recorder = Recorder(index, localizer, entry, commit_s=1000)
                while recorder.end < self.size.hour:
                    recorder.append(once[: self.size.hour - recorder.end])
                recorder.commit(complete=1)
            stored_s = time.perf_counter() - began
            rows = index.compact(index.videos()[0])
            assert rows is not None
            FineFeatures._opened = lambda self: video  # type: ignore[assignment, method-assign, return-value]
            for number, most in enumerate(candidates):
                seconds = self.median(
                    lambda: search(index, localizer, {"it": self.query}, candidates=most),  # noqa: B023
                    repeats=min(2, self.size.repeats),
                    warm_up=0 if number else 1,
                )
                more = {
                    "index MB": round(rows.size_bytes() / 1e6),
                    "packing and writing s": round(stored_s, 1),
                    "of it the fingerprint s": round(bound_s, 3),
                }
                name = f"{engine}, {most} candidates"
                self.add("compact", model, name, "s", round(seconds, 3), **more)

    @torch.inference_mode()
    def fused(self) -> None:
        """Additions and norms of a batch's tokens, by kernel shape; whether the product had better add; what
        else has a kernel, at the sizes of the paper's heads; what one token too many costs attention."""
        if fused.problem() is not None:
            raise RuntimeError(fused.problem())
        from lastseen.model import kernels

        for dtype in fused.HALVES:
            fused.compare(kernels, self.device, dtype)
        for columns in (384, 768):
            self._norms(kernels, columns)
        self._other_steps()

    def _norms(self, kernels: ModuleType, columns: int) -> None:
        tokens = self.size.batches[1] * ((self.size.pixels // 14) ** 2 + 5)  # as with registers
        x, branch, hidden = torch.randn(3, tokens, columns, device=self.device).half()
        layer = torch.nn.Linear(columns, columns).to(self.device).half()
        norm = torch.nn.LayerNorm(columns, eps=1e-6).to(self.device).half()
        for value in norm.parameters():
            torch.nn.init.normal_(value)
        args = norm.weight, norm.bias, norm.eps
        both = x.float() + branch.float()
        of_both = F.layer_norm(both, (columns,), norm.weight.float(), norm.bias.float(), norm.eps)
        shapes = [(1024, 1), (2048, 1), (2048, 2), (4096, 2), (4096, 4)]
        for tile, warps in shapes:
            total, normed = kernels.add_norm(x, branch, *args, True, tile, warps)
            torch.testing.assert_close(total.float(), both, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(normed.float(), of_both, rtol=2e-3, atol=4e-3)
        alone = kernels.add_norm(x, None, *args, False)[1]
        torch.testing.assert_close(alone, norm(x), rtol=2e-3, atol=4e-3)
        del both, of_both, total, normed, alone

        kept = kernels.TILE, kernels.NORM_WARPS
        works: dict[str, Callable[[], object]] = {
            "x + branch, F.layer_norm": lambda: norm(x + branch),
            "F.layer_norm": lambda: norm(x),
            "kernel, norm alone": lambda: fused.norm_of(x, None, norm),
            "kernel, sum not kept": lambda: fused.norm_of(x, branch, norm),
            **{
                f"kernel, {tile} numbers, {warps} warps{' (in use)' if (tile, warps) == kept else ''}": (
                    lambda tile=tile, warps=warps: kernels.add_norm(x, branch, *args, True, tile, warps)
                )
                for tile, warps in shapes
            },
            "product, then add and norm": lambda: fused.add_norm(x, layer(hidden), norm),
            "product into the sum, then norm": lambda: fused.norm_of(
                x.addmm_(hidden, layer.weight.t()), None, norm
            ),
        }
        for name, work in works.items():
            self._add_step(f"[{len(x)}, {columns}] {name}", work)

    def _other_steps(self) -> None:
        from lastseen.box import Letterbox
        from lastseen.model.propagation import frames_seen

        def some(*shape: int) -> Tensor:
            return torch.randn(shape, device=self.device).half()

        count, side = self.size.batches[1], self.size.pixels
        patch_count = (side // 14) ** 2
        conv = torch.nn.Conv2d(256, 256, 3, padding=1).to(self.device).half()
        conv = conv.to(memory_format=torch.channels_last)
        pictures = some(4 * count, 256, 16, 16).to(memory_format=torch.channels_last)
        qkv, seen = some(count // 4, 30, 64, 3 * 256), frames_seen(30, 2, None, self.device)
        frames = torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8, device=self.device)
        rows, box = some(count, 1 + patch_count, 592)[:, 1:], Letterbox.square(side, side, side)

        def patches() -> Tensor:
            fused.patch_rows(frames.permute(0, 3, 1, 2), box, 0.0, 14, rows)
            return rows[:, :, :588]

        works: dict[str, Callable[[], Tensor]] = {
            "convolution, leaky ReLU": lambda: fused.conv_leaky(pictures, conv, 0.01),
            "local attention": lambda: fused.local_attention(qkv, seen, 8),
            "rows of patches": patches,
        }
        for name, work in works.items():
            found = work().clone()
            self._add_step(f"{name}, kernel", work)
            with _plain():
                torch.testing.assert_close(found, work(), rtol=0.01, atol=0.01)
                self._add_step(f"{name}, {PLAIN}", work)
        for length in (patch_count, patch_count + 1):
            q, k, v = some(3, count, 6, length, 64)
            self._add_step(
                f"attention of {length} tokens",
                lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v),
            )

    def _add_step(self, name: str, work: Callable[[], object], times: int = 20) -> None:
        def often() -> None:
            for _ in range(times):
                work()

        seconds = self.median(often)
        self.add("fused", "-", name, "us", round(seconds / times * 1e6, 1))

    @torch.inference_mode()
    def kernels(self, model: str, engine: str, batch: int) -> None:
        from torch.profiler import ProfilerActivity, profile

        localizer = self.localizer(model, engine, batch)
        side = self.size.pixels
        frames = torch.randint(0, 256, (batch, side, side, 3), dtype=torch.uint8, device=self.device)
        features = localizer.engine.encode_frames(frames).to(torch.float16)
        length, context = localizer.model.clip_length, localizer.model.context
        run = length + (localizer.clips_at_once - 1) * (length - 2 * context)
        many = features.repeat(-(-run // batch), 1, 1, 1)[:run]
        view = localizer.encode_query(self.query)[0]
        works = {
            "encode": lambda: localizer.engine.encode_frames(frames),
            "localize": lambda: localizer.engine.localize_run(many, view, context, context).best(),
        }
        on_gpu = self.device.type == "cuda"
        for name, work in works.items():
            took = self.median(work, repeats=10, warm_up=3)
            activities = [ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
            with profile(activities=activities) as profiled:
                work()
                self.wait()
            unit = "self_device_time_total" if on_gpu else "self_cpu_time_total"
            table = sorted(profiled.key_averages(), key=lambda row: -getattr(row, unit))[:25]
            self.notes[f"kernels {model} {name}"] = [
                {"kernel": row.key[:110], "us": round(getattr(row, unit)), "calls": row.count}
                for row in table
            ]
            of = batch if name == "encode" else run
            self.add("kernels", model, f"{name} {of} frames", "ms", round(took * 1e3, 3))

    def _host_video(self, frames: int) -> HostVideo:
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


def _models(toy: bool) -> dict[str, VQLoC]:
    configs = {
        "ViT-B": VQLoCConfig(),
        "ViT-S": VQLoCConfig(backbone=VIT_S),
        "shipped": synth_small().model,
    }
    if toy:
        small = BackboneConfig(dim=64, depth=2, heads=2)
        plain = VQLoCConfig(backbone=small, image_size=112, dim=32)
        match = replace(plain, fusion="match", match_dim=16, query_shares=(1.0, 0.5))
        configs = {"ViT-B": plain, "ViT-S": plain, "shipped": match}
    torch.manual_seed(0)
    made = {name: VQLoC.from_config(config).eval() for name, config in configs.items()}
    for model in made.values():
        torch.nn.init.normal_(model.head.score.weight, std=0.05)  # scores that differ, as of a trained head
    return made


@contextmanager
def _plain() -> Iterator[None]:
    """Quick models without kernels of their own."""
    chosen = fused._kernels_for
    fused._kernels_for = lambda x: None
    try:
        yield
    finally:
        fused._kernels_for = chosen


def _graphed(encode: Callable[[Tensor], Tensor], example: Tensor) -> Callable[[Tensor], Tensor]:
    """`encode` as a CUDA graph for batches of one shape."""
    fixed = example.clone()
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            encode(fixed)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = encode(fixed)

    def replay(frames: Tensor) -> Tensor:
        fixed.copy_(frames)
        graph.replay()
        return result.clone()

    return replay


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="tiny models and few frames")
    parser.add_argument("--out", type=Path, help="JSON, written after each section")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="sections to run (default: all)")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    quick, on_gpu, batches = "torch-fp16", bench.device.type == "cuda", bench.size.batches
    began = time.perf_counter()
    small, middle, large = batches
    plan: list[tuple[str, str, Callable[..., None], tuple[Any, ...]]] = []
    if on_gpu:
        plan.append(("fused", "-", bench.fused, ()))
    for model in bench.models:
        plan.append(("accuracy", model, bench.accuracy, (model,)))
        plan.append(("cold", model, bench.cold, (model, quick, large)))
    plan.append(("cold", "ViT-S", bench.cold, ("ViT-S", quick, 2 * large)))
    for model in ("ViT-B", "ViT-S"):
        plan.append(("cold", model, bench.cold, (model, quick, middle)))
    plan.append(("cold", "ViT-S", bench.cold, ("ViT-S", quick, middle, PLAIN)))
    if on_gpu:
        plan.append(("cold", "ViT-S", bench.cold, ("ViT-S", quick, middle, "graphs")))
    plan.append(("cold", "ViT-S", bench.cold, ("ViT-S", "torch-bf16", middle)))
    plan.append(("upload", "-", bench.upload, (small,)))
    for model in bench.models:
        plan.append(("pipeline", model, bench.pipeline, (model, quick, middle)))
        plan.append(("hour", model, bench.hour, (model, quick, 16)))
    plan.append(("hour", "ViT-S", bench.hour, ("ViT-S", quick, 32)))
    plan.append(("compact", "shipped", bench.compact, ("shipped", quick, 24, 60)))
    plan.append(("compact", "ViT-S", bench.compact, ("ViT-S", quick, 24)))
    plan += [("kernels", model, bench.kernels, (model, quick, middle)) for model in bench.models]
    plan += [("cold", model, bench.cold, (model, "torch-fp32", small)) for model in ("ViT-B", "ViT-S")]
    if on_gpu and not arguments.no_compile:
        compiled = "torch-fp16-compiled"
        plan += [("cold", model, bench.cold, (model, compiled, middle)) for model in ("ViT-S", "ViT-B")]
        plan.append(("hour", "ViT-S", bench.hour, ("ViT-S", compiled)))
    for section, model, work, options in plan:
        bench.section(section, model, work, options)
    bench.notes["seconds in all"] = round(time.perf_counter() - began, 1)
    bench.notes["markdown"] = bench.markdown()
    bench.save()
    print(bench.markdown())
    if any("problem" in row for row in bench.rows):
        sys.exit(1)


if __name__ == "__main__":
    main()

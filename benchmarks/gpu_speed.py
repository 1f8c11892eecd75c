"""How fast frames are encoded and questions answered on a GPU.

    python benchmarks/gpu_speed.py --out speed.json
    python benchmarks/gpu_speed.py --toy --device cpu --out toy.json     # does it run at all?

Models have random weights: speed does not depend on them. Sections:

    cold       frames of 448 px on the GPU -> features -> boxes and logits of every frame, by engine and batch
    wide       the same with frames of 448 x 252: 16:9, whose padding some engines encode in groups
    pipeline   1080p frames in host memory -> upload, resize, encode, localize -> track
    hour       a further question to an hour of full features on the GPU, the query's encoding included
    compact    the same to an index that keeps a few tokens a frame: coarse scores from disk, candidates
               encoded again from frames in host memory (decoding them from a file is not in it)
    fused      what takes one pass (lastseen.engine.fused) against PyTorch's own operations, after a check
                that both give the same
    kernels    where the time goes

Each figure is the median of several runs after a warm-up. A section that fails is reported, the rest runs,
and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from gpu_speed_parts import PLAIN, HostVideo, Measuring, graphed, plain
from gpu_speed_steps import measure_steps
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from lastseen.box import Letterbox
from lastseen.engine.upload import Upload
from lastseen.index import Index
from lastseen.index.fine import FineFeatures
from lastseen.index.recorder import Recorder
from lastseen.index.search import search
from lastseen.model import SimilarityConfig, VQLoCConfig
from lastseen.model.inputs import resized, resized_by_products
from lastseen.procedure import Standard
from lastseen.rule import Rule
from lastseen.sighting import Confidence, Evidence

GROUPED = "torch-fp16-grouped"


class Bench(Measuring):
    @torch.inference_mode()
    def wide(self, model: str, engine: str, batch: int) -> None:
        self.cold(model, engine, batch, section="wide")

    @torch.inference_mode()
    def cold(self, model: str, engine: str, batch: int, variant: str = "", section: str = "cold") -> None:
        """Frames of the model's own size, on the GPU."""
        size, side = self.size, self.size.pixels
        height = side * 9 // 16 if section == "wide" else side
        total = size.slow_frames if engine == "torch-fp32" else size.frames // (2 if model == "ViT-B" else 1)
        total -= total % batch
        localizer = self.localizer(model, engine, batch)
        generator = torch.Generator(self.device).manual_seed(0)
        held = max(batch, total // 4 - total // 4 % batch)
        frames = torch.randint(
            0, 256, (held, height, side, 3), dtype=torch.uint8, device=self.device, generator=generator
        )
        encode = localizer.engine.encode_frames
        if variant == "graphs":
            encode = graphed(encode, frames[:batch])
        views = localizer.encode_query(self.query)
        footage = HostVideo(replace(size, width=side, height=height, host_frames=1), total)

        def pieces() -> Iterator[Tensor]:
            for at in range(0, total, batch):
                at %= held
                yield encode(frames[at : at + batch]).to(localizer.feature_dtype)

        with ExitStack() as stack:
            if variant == PLAIN:
                stack.enter_context(plain())
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
        self.add(section, model, name, "frames/s", round(total / whole, 1), **more)

    @torch.inference_mode()
    def accuracy(self, model: str) -> None:
        """Half precision against float32 on this device: random weights, real arithmetic."""
        side, count = self.size.pixels, 8
        images = list(np.random.default_rng(2).integers(0, 256, (count, side // 2, side, 3), dtype=np.uint8))
        reference = self.localizer(model, "torch-fp32", count)
        exact = reference.engine.encode_pictures(images, count)
        view = reference.encode_query(self.query)[0]
        logits = reference.engine.localize_clip(exact, view).logits
        for name in ("torch-fp16", "torch-bf16", GROUPED):
            engine = self.localizer(model, name, count).engine
            cosines = {
                "a patch's features": (exact, engine.encode_pictures(images, count), 1),
                "a frame's logits": (logits, engine.localize_clip(exact, view).logits, -1),
            }
            for what, (expected, found, dim) in cosines.items():
                cosine = F.cosine_similarity(expected.float(), found.float(), dim=dim)
                low, mean = cosine.min().item(), cosine.mean().item()
                variant = f"{name} against float32, {what}"
                self.add("accuracy", model, variant, "lowest cosine", low, mean=mean)

    @torch.inference_mode()
    def pipeline(self, model: str, engine: str, batch: int) -> None:
        total = self.size.frames - self.size.frames % batch
        localizer = self.localizer(model, engine, batch)
        video = self.host_video(total)
        seconds = self.median(lambda: localizer.locate(video, self.query))  # type: ignore[arg-type]
        more = {"frames": total, "distinct": len(video.images)}
        self.add("pipeline", model, f"{engine}, batch {batch}", "frames/s", round(total / seconds, 1), **more)

    @torch.inference_mode()
    def upload(self, batch: int) -> None:
        """The pipeline without a model: what the way to the GPU allows, and what resizing there costs."""
        video = self.host_video(4 * batch)
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
        config: VQLoCConfig | SimilarityConfig = localizer.model.config
        on_maps = isinstance(config, SimilarityConfig)
        channels = config.backbone.channels if on_maps else config.dim
        shape = (self.size.hour, channels, config.side, config.side)
        features = torch.empty(shape, dtype=torch.float16, device=self.device).normal_()
        if on_maps:
            for part in features.split(1000):
                part.copy_(F.normalize(part.float(), dim=1))
        video = HostVideo(replace(self.size, host_frames=1), self.size.hour)

        def ask() -> None:
            views = localizer.encode_query(self.query)
            found = localizer.predict_encoded(video, [features], [views], [self.size.hour])[0]
            localizer.procedure.tracks(Evidence.of(found))

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
        localizer = self.localizer(
            model, engine, batch, procedure=Standard(Rule(confidence=Confidence(threshold=1.1)))
        )
        video = self.host_video(self.size.hour)
        with (
            tempfile.TemporaryDirectory() as folder,
            Index(folder, create=True) as index,
            patch.object(FineFeatures, "opened", lambda _: video),
        ):
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
    def kernels(self, model: str, engine: str, batch: int) -> None:
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
        plan.append(("fused", "-", measure_steps, (bench,)))
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
    for model in bench.models:
        plan += [("wide", model, bench.wide, (model, engine, large)) for engine in (quick, GROUPED)]
    plan.append(("upload", "-", bench.upload, (small,)))
    for model in bench.models:
        engines = (quick, GROUPED)
        plan += [("pipeline", model, bench.pipeline, (model, engine, middle)) for engine in engines]
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

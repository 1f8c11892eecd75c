"""How much faster the CPU engines are than float32, and what they cost in digits.

    python benchmarks/cpu_engines.py --out cpu.json

Speeds are ratios within one run: engines take turns batch by batch, so that whatever else the machine does
slows all of them. The backbone is the bundled one, its frames are the demo's.

    encode     frames to features, by model: speed, and the cosine to float32's features of each patch that
               shows the picture
    indexing   a video file into an index, decoding and writing included (training-free localizer)
    digits     the backbone's features in float16 and bfloat16 against float32's, without speed
    ahead      frames decoded while others are encoded, against one after the other: with the fastest engine
    answers    the demo's question: the answer with each engine, and how far scores are from float32's
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import lastseen
from lastseen import Localizer, Query, Video, VQLoC
from lastseen.engine.half import HalfBackbone
from lastseen.errors import LastSeenError
from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.localizer import TRAINING_FREE_RULE
from lastseen.model import Model, TrainedModel, VQLoCConfig
from lastseen.model.inputs import letterboxed
from lastseen.model.training_free import TrainingFreeModel
from lastseen.procedure import Standard
from lastseen.sighting import Evidence
from lastseen.video import VideoWriter
from lastseen.weights import bundled_model, load_backbone, load_model, load_training_free

ASSETS = Path(lastseen.__file__).parent / "assets"
EXACT = "torch-fp32"
ENGINES = (EXACT, "torch-fp32-grouped", "torch-bf16", "openvino-bf16")


def bundled() -> TrainedModel:
    return load_model(bundled_model())


def paper() -> VQLoC:
    backbone = load_backbone()
    model = VQLoC.from_config(VQLoCConfig(backbone=backbone.config))
    model.backbone = backbone
    return model.eval()


MODELS: dict[str, Callable[[], Any]] = {
    "training-free, 448 x 252": load_training_free,
    "the bundled model, 448 x 448": bundled,
    "VQLoC with ViT-S, 448 x 448": paper,
}


class Bench:
    def __init__(self, out: Path | None) -> None:
        self.out = out
        self.rows: list[dict[str, Any]] = []
        self.notes = {"torch": torch.__version__, "threads": torch.get_num_threads(), "cores": os.cpu_count()}

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        if self.out is not None:
            self.out.write_text(json.dumps({"notes": self.notes, "rows": self.rows}, indent=1) + "\n")


def localizers(model: Any) -> dict[str, Localizer]:
    made = {}
    for engine in ENGINES:
        try:
            made[engine] = Localizer(model, procedure=Standard(TRAINING_FREE_RULE), engine=engine)
        except LastSeenError as error:
            print(f"{engine}: left out: {error}")
    return made


def picture_patches(model: Model, width: int, height: int) -> tuple[slice, slice]:
    """Rows and columns of the patches that show the picture, not only padding."""
    letterbox, patch = model.letterbox(width, height), model.patch
    return (
        slice(letterbox.top // patch, -(-(letterbox.top + letterbox.content_height) // patch)),
        slice(letterbox.left // patch, -(-(letterbox.left + letterbox.content_width) // patch)),
    )


def encode(bench: Bench, name: str, turns: int) -> None:
    made = localizers(MODELS[name]())
    images = [frame.image for frame in Video(ASSETS / "demo.mp4").frames(1.0)][: 4 * turns]
    batches = [images[at : at + 4] for at in range(0, len(images), 4)]
    first_s = {}
    for engine, localizer in made.items():
        began = time.perf_counter()
        localizer.encode_pictures(batches[0])
        first_s[engine] = time.perf_counter() - began
    times: dict[str, list[float]] = {engine: [] for engine in made}
    features: dict[str, list[torch.Tensor]] = {engine: [] for engine in made}
    for batch in batches:
        for engine, localizer in made.items():
            began = time.perf_counter()
            features[engine].append(localizer.encode_pictures(batch))
            times[engine].append(time.perf_counter() - began)
    shows = picture_patches(made[EXACT].model, *images[0].shape[1::-1])
    exact = torch.cat(features[EXACT]).float()[:, :, *shows]
    for engine in made:
        # The median of ratios: each turn of an engine against float32's of the same moment.
        ratio = statistics.median(a / b for a, b in zip(times[EXACT], times[engine]))
        cosine = F.cosine_similarity(
            exact, torch.cat(features[engine]).float()[:, :, *shows], dim=1
        ).flatten()
        bench.add(
            section="encode",
            model=name,
            engine=engine,
            times_float32=round(ratio, 2),
            frames_s=round(4 / statistics.median(times[engine]), 2),
            first_batch_s=round(first_s[engine], 1),
            mean_cosine=round(cosine.mean().item(), 6),
            lowest_percent_cosine=round(cosine.kthvalue(max(1, len(cosine) // 100)).values.item(), 5),
        )


def indexing(bench: Bench, seconds: float) -> None:
    made = localizers(load_training_free())
    source = Video(ASSETS / "demo.mp4", end_s=seconds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.mp4"
        with VideoWriter(path, source.width, source.height, source.fps) as writer:
            for frame in source.frames(source.fps):
                writer.write(frame.image)
        took: dict[str, list[float]] = {engine: [] for engine in made}
        for turn in range(3):
            for engine, localizer in made.items():
                with Index(Path(folder) / f"{engine}-{turn}", create=True) as index:
                    index.bind(localizer)
                    began = time.perf_counter()
                    frames = add_file(index, localizer, path).video.frames
                    took[engine].append(time.perf_counter() - began)
    for engine in made:
        ratio = statistics.median(a / b for a, b in zip(took[EXACT][1:], took[engine][1:]))
        rate = frames / statistics.median(took[engine][1:])
        bench.add(section="indexing", engine=engine, times_float32=round(ratio, 2), frames_s=round(rate, 2))


@torch.inference_mode()
def digits(bench: Bench) -> None:
    for blocks, final_norm in (((6,), False), ((7,), False), ((11,), True)):
        backbone = load_backbone(blocks=blocks, final_norm=final_norm)
        matcher = TrainingFreeModel(backbone)
        images = [frame.image for frame in Video(ASSETS / "demo.mp4").frames(1.0)][:4]
        frames = torch.from_numpy(np.stack(images))
        letterbox = matcher.letterbox(frames.shape[2], frames.shape[1])
        pictures = letterboxed(frames, letterbox, matcher.padding)
        exact = backbone(pictures)
        for dtype in (torch.float16, torch.bfloat16):
            features = HalfBackbone(backbone, dtype)(pictures).float()
            cosine = F.cosine_similarity(exact, features, dim=1)
            bench.add(
                section="digits",
                block=blocks[0] + 1,
                dtype=str(dtype).removeprefix("torch."),
                mean_cosine=round(cosine.mean().item(), 6),
                lowest_cosine=round(cosine.min().item(), 5),
            )


class _OneByOne(Video):
    """A video that is decoded when it is asked, as if `ahead` did not exist."""

    def frames(self, *arguments: Any, ahead: int = 0, **options: Any) -> Any:
        return super().frames(*arguments, **options)


def ahead(bench: Bench, seconds: float) -> None:
    engine, localizer = list(localizers(load_training_free()).items())[-1]
    path, took = ASSETS / "demo.mp4", []
    for _ in range(4):
        pair = []
        for kind in (_OneByOne, Video):
            video = kind(path, end_s=seconds)
            began = time.perf_counter()
            for _ in localizer.encoded(video, 0, video.frame_count(localizer.fps)):
                pass
            pair.append(time.perf_counter() - began)
        took.append(pair)
    ratio = statistics.median(one / other for one, other in took[1:])
    bench.add(section="ahead", engine=engine, times_one_by_one=round(ratio, 2))


def answers(bench: Bench, fps: float) -> None:
    made = localizers(load_training_free())
    video, query = Video(ASSETS / "demo.mp4"), Query.from_image(ASSETS / "demo_query.jpg")
    exact = None
    for engine, localizer in made.items():
        found = localizer.at(fps).predict(video, [query])[0]
        track = localizer.procedure.tracks(Evidence.of(found))[0][-1]
        exact = exact or (found, track)
        other = replace(found, logits=found.logits - exact[0].logits)
        overlap = [
            track.boxes[n - track.first_frame].iou(exact[1].boxes[n - exact[1].first_frame])
            for n in range(
                max(track.first_frame, exact[1].first_frame), min(track.last_frame, exact[1].last_frame) + 1
            )
        ]
        bench.add(
            section="answers",
            engine=engine,
            frames=f"{track.first_frame}-{track.last_frame}",
            score=round(track.score, 4),
            mean_iou=round(statistics.mean(overlap), 3) if overlap else 0.0,
            largest_logit_change=round(float(abs(other.logits).max()), 3),
            logits=f"{found.logits.min():.2f} to {found.logits.max():.2f}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--turns", type=int, default=5, help="batches of 4 frames for each engine")
    parser.add_argument("--seconds", type=float, default=8.0, help="of video that is indexed")
    parser.add_argument("--fps", type=float, default=2.0, help="at which the demo's question is asked")
    parser.add_argument("--only", nargs="*", help="sections to run (default: all)")
    arguments = parser.parse_args()
    bench = Bench(arguments.out)
    sections: dict[str, Callable[[], object]] = {
        "encode": lambda: [encode(bench, name, arguments.turns) for name in MODELS],
        "indexing": lambda: indexing(bench, arguments.seconds),
        "digits": lambda: digits(bench),
        "ahead": lambda: ahead(bench, arguments.seconds),
        "answers": lambda: answers(bench, arguments.fps),
    }
    for name in arguments.only or sections:
        sections[name]()


if __name__ == "__main__":
    main()

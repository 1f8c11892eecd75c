"""The paper's four ablations on the synthetic benchmark, with small equal budgets.

    python runs/ablations.py --walks walks --val val --backbone backbone.safetensors --out runs/ablations
    python runs/ablations.py --table --out runs/ablations

The second command judges what the first one kept, and needs no GPU.
Every variant is trained for the same number of steps on the same clips and judged on the same unseen
episodes; walks as of `lastseen train`, episodes as of `lastseen synth --split val`. ViT-B has no row: its
weights are not in the package.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lastseen.datasets.vq2d import load_absent, load_vq2d
from lastseen.evaluate.calibration import load_answered, save_answered
from lastseen.evaluate.encoded import EncodedSet, cross_fitted
from lastseen.model import VQLoCConfig
from lastseen.train.gallery import Gallery
from lastseen.train.loop import train
from lastseen.train.loss import LossConfig
from lastseen.train.recipes import TrainConfig, synth_small
from lastseen.train.start import start_backbone
from lastseen.train.store import FeatureStore, SynthData

FOCAL = LossConfig(score="focal", score_weight=100.0)
BCE, MINING = LossConfig(score="bce"), LossConfig()
OURS = {"fusion": "match", "match_dim": 128, "mask_query": True}


class Variant(NamedTuple):
    """`paper`: tAP25, stAP25, recovery %, success % of its table; "base" stands for a row of every table."""

    table: str
    name: str
    model: dict[str, Any]
    loss: LossConfig
    paper: tuple[float, ...] | None


VARIANTS = [
    Variant("base", "ViT-S, 448 px, attention, window 5, focal", {}, FOCAL, (0.28, 0.18, 37.71, 52.18)),
    Variant("fusion", "convolution", {"fusion": "conv"}, FOCAL, (0.22, 0.13, 32.27, 44.95)),
    Variant("fusion", "attention, 3 layers", {"spatial_layers": 3}, FOCAL, (0.29, 0.20, 37.91, 53.74)),
    Variant("fusion", "similarity maps alone (ours)", OURS, FOCAL, None),
    Variant("window", "7", {"attention_radius": 3}, FOCAL, (0.27, 0.19, 36.97, 50.21)),
    Variant("window", "9", {"attention_radius": 4}, FOCAL, (0.27, 0.18, 37.98, 51.08)),
    Variant("window", "global", {"attention_radius": None}, FOCAL, (0.08, 0.03, 12.49, 15.73)),
    Variant("head", "no anchors, BCE", {"anchors": False}, BCE, (0.17, 0.10, 34.23, 47.60)),
    Variant("head", "anchors, BCE", {}, BCE, (0.12, 0.07, 40.23, 42.27)),
    Variant("head", "anchors, BCE + mining", {}, MINING, (0.31, 0.22, 47.05, 55.89)),
    Variant("resolution", "224 px (paper: ViT-B)", {"image_size": 224}, FOCAL, (0.22, 0.10, 32.18, 45.84)),
]


def config_of(arguments: argparse.Namespace, variant: Variant) -> TrainConfig:
    small = synth_small()
    paper = VQLoCConfig(backbone=small.model.backbone, dim=arguments.dim)
    return replace(
        small,
        model=replace(paper, **variant.model),
        heads_say=None,
        loss=variant.loss,
        steps=arguments.steps,
        batch=arguments.batch,
        backbone=str(arguments.backbone),
        checkpoint_every=arguments.steps,
        optimiser=replace(small.optimiser, warmup_steps=min(100, arguments.steps // 5)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="judge what was answered")
    for name in ("walks", "val", "backbone"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    if arguments.table:
        print_table(arguments.out)
    else:
        train_all(arguments)


def train_all(arguments: argparse.Namespace) -> None:
    arguments.out.mkdir(parents=True, exist_ok=True)
    device = torch.device(arguments.device)
    gallery = Gallery.open(sorted(arguments.walks.glob("*.npz")), device)
    annotations = load_vq2d(arguments.val / "annotations.json")
    absent = load_absent(arguments.val / "absent.json")
    opened: dict[int, tuple[FeatureStore, EncodedSet]] = {}
    for number, variant in enumerate(VARIANTS):
        config = config_of(arguments, variant)
        size = config.model.image_size
        if size not in opened:  # one set of features at a time fits the memory
            opened.clear()
            backbone = start_backbone(config)
            store = FeatureStore(
                gallery, SynthData(refresh_steps=None), config.model, backbone, config.batch, 0
            )
            val = EncodedSet.of(annotations, arguments.val / "videos", absent, backbone, config.model, device)
            opened[size] = (store, val)
        store, val = opened[size]
        store.model = config.model
        began = time.monotonic()
        trained = train(config, arguments.out / f"{number:02d}", source=store, device=arguments.device)
        seconds = time.monotonic() - began
        save_answered(val.answer(trained), arguments.out / f"{number:02d}.json.gz")
        (arguments.out / f"{number:02d}.txt").write_text(f"{seconds:.0f}\n")
        print(f"{variant.table}, {variant.name}: {arguments.steps} steps in {seconds:.0f} s", flush=True)


def print_table(out: Path) -> None:
    print("| table | variant | tAP25 | stAP25 | recovery % | success % | s | paper |\n" + "|---" * 8 + "|")
    for number, variant in enumerate(VARIANTS):
        answers = out / f"{number:02d}.json.gz"
        if not answers.exists():
            continue
        report = cross_fitted(load_answered(answers), draws=0)
        values = [report.value(name) for name in ("tap25", "stap25", "recovery", "success")]
        ours = " | ".join("" if v is None else f"{v:.{d}f}" for v, d in zip(values, (3, 3, 1, 1)))
        theirs = "" if variant.paper is None else " / ".join(f"{v:g}" for v in variant.paper)
        seconds = answers.with_name(f"{number:02d}.txt").read_text().strip()
        print(f"| {variant.table} | {variant.name} | {ours} | {seconds} | {theirs} |", flush=True)


if __name__ == "__main__":
    main()

"""From rendered walks to a model and its answers, in one process: how the shipped weights are made.

    lastseen synth val --split val --episodes 24 --seed 0 --fps 5 --assets packs --workers 14
    python runs/train_synth.py --packs packs --walks walks --set val --set real_pan --out runs/shipped \
        --rooms 110 --photos 150 --backbone-steps 2500 --heads-steps 3000 --workers 14

    python runs/judge.py runs/shipped/heads

The stages are those of `lastseen train --recipe backbone_small` and `--recipe synth_small`; here they share
what is in memory, and the numbers of steps follow from the seconds they may take.
`--heads NAME field=value ..` (again and again) trains several heads on the same features, to choose from;
`--head-score-weights` keeps their answers with other weights, too. Either stage is left out with 0 seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from lastseen.datasets.vq2d import load_absent, load_vq2d
from lastseen.evaluate.asking import WAYS
from lastseen.evaluate.calibration import save_answered
from lastseen.evaluate.encoded import EncodedSet
from lastseen.model import Backbone, SimilarityModel, TrainedModel
from lastseen.train.backbone_stage import BackboneStageConfig, patch_precision, save_backbone, train_backbone
from lastseen.train.checkpoint import RunFolder
from lastseen.train.distributed import joined
from lastseen.train.feature_store import FeatureStore, SynthData
from lastseen.train.fields import parse_setting, with_settings
from lastseen.train.gallery import Gallery
from lastseen.train.harvest import harvest
from lastseen.train.loop import Training, train
from lastseen.train.pairs import PhotoPairs, WalkPairs
from lastseen.train.recipes import TrainConfig, synth_small
from lastseen.weights import load_backbone, save_model
from lastseen_synth.library import open_library

BEGAN = time.monotonic()


def say(*words: object) -> None:
    print(f"{time.monotonic() - BEGAN:6.0f} s ", *words, flush=True)


def steps_in(seconds: float, several: Callable[[int], object], count: int) -> int:
    """How many steps fit, from the time that more of them take than fewer."""
    several(2)
    marks = [time.monotonic()]
    for number in (count, 3 * count):
        several(number)
        marks.append(time.monotonic())
    a_step = (marks[2] - 2 * marks[1] + marks[0]) / (2 * count)
    return max(1, int(seconds / max(a_step, 1e-3)))


def train_backbone_stage(arguments: argparse.Namespace, gallery: Gallery, start: Backbone) -> Backbone:
    device = arguments.device
    pictures = open_library("train", arguments.packs).pictures
    walks, photos = WalkPairs(gallery), PhotoPairs(pictures, device)
    config = BackboneStageConfig(
        groups=arguments.groups,
        frames=arguments.frames,
        warmup_steps=min(50, arguments.timed),
        **({} if arguments.lr is None else {"lr": arguments.lr}),
    )

    def several(count: int) -> None:
        train_backbone(replace(config, steps=count), walks, photos, start=start, device=device)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    steps = arguments.backbone_steps or steps_in(arguments.backbone_seconds, several, arguments.timed)
    say("backbone:", steps, "steps")
    folder = RunFolder(arguments.out / "backbone")
    config = replace(config, steps=steps, checkpoint_every=steps)
    folder.claim({"steps": steps})
    return train_backbone(config, walks, photos, start=start, device=device, folder=folder)


def say_precision(name: str, backbone: Backbone, arguments: argparse.Namespace) -> None:
    """How well patches of unseen things are found, in unseen rooms and in unseen photographs."""
    device = arguments.device
    unseen = Gallery.open(sorted(arguments.val_walks.glob("*.npz")), device, scales=(1.0, 0.5, 0.25))
    pictures = open_library("val", arguments.packs).pictures
    for kind, source in (("walks", WalkPairs(unseen)), ("photographs", PhotoPairs(pictures, device))):
        say(name, "on unseen", kind, patch_precision(backbone.to(device).eval(), source, groups=24))


def try_steps(config: TrainConfig, store: FeatureStore, device: torch.device, count: int) -> None:
    with joined(device) as (world, where):
        run = Training(config, world, where)
        for number in range(count):
            run.step(number, store.batch(number))
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def train_heads(
    arguments: argparse.Namespace, store: FeatureStore, config: TrainConfig, out: Path
) -> TrainedModel:
    device = torch.device(arguments.device)
    assert isinstance(config.data, SynthData)
    store.data, store.model = config.data, config.model
    several = partial(try_steps, config, store, device)
    steps = arguments.heads_steps or steps_in(arguments.heads_seconds, several, arguments.timed)
    say("heads:", steps, "steps")
    # Augmented and encoded anew half-way.
    store.data = replace(config.data, refresh_steps=-(-steps // 2))
    config = replace(config, data=store.data, steps=steps, checkpoint_every=steps)
    return train(config, out, source=store, device=device)


def encode_set(root: Path, backbone: Backbone, config: TrainConfig, device: str) -> EncodedSet:
    annotations, absent = load_vq2d(root / "annotations.json"), load_absent(root / "absent.json")
    return EncodedSet.of(annotations, root / "videos", absent, backbone, config.model, torch.device(device))


def keep_answers(sets: dict[str, EncodedSet], model: TrainedModel, out: Path) -> None:
    """NAME@WAY.json.gz: a set asked in one way."""
    out.mkdir(exist_ok=True)
    for name, questions in sets.items():
        save_answered(questions.answer(model), out / f"{name}.json.gz")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("walks", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--packs", type=Path)
    parser.add_argument("--set", type=Path, action="append", default=[], help="judged, never trained on")
    parser.add_argument("--rooms", type=int, default=110, help="walks through rooms")
    parser.add_argument("--photos", type=int, default=150, help="walks over photographs")
    parser.add_argument("--start", type=Path, help="a backbone to begin with instead of the bundled one")
    parser.add_argument("--val-walks", type=Path, help="rendered walks of the val split, to judge backbones")
    parser.add_argument("--heads", nargs="+", action="append", metavar="NAME field=value")
    parser.add_argument("--harvest-minutes", type=float, help="render no walk after so many")
    parser.add_argument("--backbone-seconds", type=float, default=240.0)
    parser.add_argument("--backbone-steps", type=int, help="instead of as many as take so long")
    parser.add_argument("--heads-seconds", type=float, default=300.0)
    parser.add_argument("--heads-steps", type=int, help="instead of as many as take so long")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--groups", type=int, default=BackboneStageConfig.groups)
    parser.add_argument("--frames", type=int, default=BackboneStageConfig.frames, help="of a group")
    parser.add_argument("--lr", type=float, help="of the backbone")
    parser.add_argument("--head-score-weights", type=float, nargs="*", default=[])
    parser.add_argument("--batch", type=int, default=synth_small().batch)
    parser.add_argument("--timed", type=int, default=12, help="steps to measure the speed with")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    harvest(
        arguments.walks,
        partial(open_library, "train", arguments.packs),
        walks=arguments.rooms,
        photos=arguments.photos,
        device=arguments.device,
        workers=arguments.workers,
        minutes=arguments.harvest_minutes,
    )
    config = replace(synth_small(), batch=arguments.batch)
    paths = sorted(arguments.walks.glob("*.npz"))
    gallery = Gallery.open(paths, arguments.device, scales=config.model.query_scales)
    say(len(paths), "walks,", sum(map(len, gallery.frames)), "frames,", len(gallery.views), "views")
    start = load_backbone(arguments.start)
    if arguments.val_walks:
        say_precision("the first backbone", start.shortened(8), arguments)
    backbone = (
        train_backbone_stage(arguments, gallery, start) if arguments.backbone_seconds else start.shortened(8)
    )
    save_backbone(backbone, arguments.out / "backbone.safetensors")
    if arguments.val_walks:
        say_precision("the trained backbone", backbone, arguments)
    if not arguments.heads_seconds:
        return
    config = replace(config, backbone=str(arguments.out / "backbone.safetensors"))
    assert isinstance(config.data, SynthData)
    settings = replace(config.data, refresh_steps=None)
    store = FeatureStore(gallery, settings, config.model, backbone, config.batch, config.seed)
    store.batch(0)
    say("all frames encoded")
    sets = {}
    for root in arguments.set:
        encoded = encode_set(root, backbone, config, arguments.device)
        for way in WAYS:
            sets[f"{root.name}@{way}"] = encoded.asked_as(way, backbone, config.model)
    say("questions encoded")
    for name, *changes in arguments.heads or [["heads"]]:
        say("heads", name, *changes)
        changed = with_settings(replace(config, data=settings), [parse_setting(text) for text in changes])
        model = train_heads(arguments, store, changed, arguments.out / name)
        save_model(model.half(), arguments.out / name / "shipped")
        model.float()
        keep_answers(sets, model, arguments.out / name)
        for weight in arguments.head_score_weights:
            assert isinstance(model, SimilarityModel)
            model.config = replace(model.config, head_score_weight=weight)
            keep_answers(sets, model, arguments.out / name / f"head-score-weight-{weight:g}")
        say("answered")


if __name__ == "__main__":
    main()

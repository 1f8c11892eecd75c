"""How the shipped weights are made: from rendered walks to a model and its answers, in one process.

    python runs/train_synth.py --packs packs --walks walks --out runs/shipped --workers 11 \\
        --set val --set real_pan --set photo_pan

The numbers of walks and steps and all seeds are the defaults below, so this command gives the shipped
weights again, up to the rounding of the GPU. A run that was stopped goes on where it was. The stages
are those of `lastseen train --recipe backbone_small` and `--recipe synth_small`; here they share memory.

Each `--set` is answered without refinement in three ways, NAME@WAY.json.gz, for runs/fit_rule.py.
`--heads NAME field=value ..` (again and again) trains several heads on the same features, to choose from;
`--head-score-weights` keeps their answers with other weights, too.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, replace
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
from lastseen.train.feature_store import FeatureStore, SynthData
from lastseen.train.fields import parse_setting, with_settings
from lastseen.train.gallery import Gallery
from lastseen.train.harvest import harvest
from lastseen.train.loop import train
from lastseen.train.pairs import PhotoPairs, WalkPairs
from lastseen.train.recipes import TrainConfig, synth_small
from lastseen.weights import load_backbone, save_model
from lastseen_synth.library import open_library

ROOMS, PHOTOS = 110, 130  # walks
BACKBONE_STEPS, HEADS_STEPS = 3500, 1500
PHOTO_SHARE = 0.5  # of the clips that heads are trained on
SAME_WALK_SHARE = 0.3  # of queries from the clip's own walk, at another time
REFRESH_STEPS = 700  # of heads, between two rounds of augmentation
CHECKPOINT_EVERY = 1000
BEGAN = time.monotonic()


def say(*words: object) -> None:
    print(f"{time.monotonic() - BEGAN:6.0f} s ", *words, flush=True)


def train_backbone_stage(arguments: argparse.Namespace, gallery: Gallery, start: Backbone) -> Backbone:
    device = arguments.device
    pictures = open_library("train", arguments.packs).pictures
    walks, photos = WalkPairs(gallery), PhotoPairs(pictures, device)
    config = BackboneStageConfig(steps=arguments.backbone_steps, checkpoint_every=CHECKPOINT_EVERY)
    folder = RunFolder(arguments.out / "backbone")
    folder.claim(asdict(config))
    return train_backbone(config, walks, photos, start=start, device=device, folder=folder)


def say_precision(name: str, backbone: Backbone, arguments: argparse.Namespace) -> None:
    """How well patches of unseen things are found, in unseen rooms and in unseen photographs."""
    device = arguments.device
    unseen = Gallery.open(sorted(arguments.val_walks.glob("*.npz")), device, scales=(1.0, 0.5, 0.25))
    pictures = open_library("val", arguments.packs).pictures
    for kind, source in (("walks", WalkPairs(unseen)), ("photographs", PhotoPairs(pictures, device))):
        say(name, "on unseen", kind, patch_precision(backbone.to(device).eval(), source, groups=24))


def train_heads(
    arguments: argparse.Namespace, store: FeatureStore, config: TrainConfig, out: Path
) -> TrainedModel:
    assert isinstance(config.data, SynthData)
    store.data, store.model = config.data, config.model
    return train(config, out, source=store, device=torch.device(arguments.device))


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
    parser.add_argument("--set", type=Path, action="append", default=[], help="answered, never trained on")
    parser.add_argument("--rooms", type=int, default=ROOMS, help="walks through rooms")
    parser.add_argument("--photos", type=int, default=PHOTOS, help="walks over photographs")
    parser.add_argument("--start", type=Path, help="a backbone to begin with instead of the bundled one")
    parser.add_argument("--backbone", type=Path, help="a trained backbone: heads only")
    parser.add_argument("--val-walks", type=Path, help="rendered walks of the val split, to judge backbones")
    parser.add_argument("--heads", nargs="+", action="append", metavar="NAME field=value")
    parser.add_argument("--backbone-steps", type=int, default=BACKBONE_STEPS)
    parser.add_argument("--heads-steps", type=int, default=HEADS_STEPS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--head-score-weights", type=float, nargs="*", default=[])
    parser.add_argument("--batch", type=int, default=synth_small().batch)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    paths = harvest(
        arguments.walks,
        partial(open_library, "train", arguments.packs),
        walks=arguments.rooms,
        photos=arguments.photos,
        device=arguments.device,
        workers=arguments.workers,
    )
    refreshed = SynthData(
        photo_share=PHOTO_SHARE, same_walk_query_share=SAME_WALK_SHARE, refresh_steps=REFRESH_STEPS
    )
    config = replace(
        synth_small(),
        data=refreshed,
        batch=arguments.batch,
        steps=arguments.heads_steps,
        checkpoint_every=CHECKPOINT_EVERY,
        backbone=str(arguments.backbone or arguments.out / "backbone.safetensors"),
    )
    gallery = Gallery.open(paths, arguments.device, scales=config.model.query_scales)
    say(len(paths), "walks,", sum(map(len, gallery.frames)), "frames,", len(gallery.views), "views")
    if arguments.backbone:
        backbone = load_backbone(arguments.backbone)
    else:
        start = load_backbone(arguments.start)
        if arguments.val_walks:
            say_precision("the first backbone", start.shortened(8), arguments)
        backbone = train_backbone_stage(arguments, gallery, start)
        save_backbone(backbone, arguments.out / "backbone.safetensors")
        say("backbone trained:", arguments.backbone_steps, "steps")
    if arguments.val_walks:
        say_precision("the trained backbone", backbone, arguments)
    # What inference will compute with: the saved, rounded weights.
    backbone = load_backbone(config.backbone).shortened(config.model.backbone.depth)
    store = FeatureStore(gallery, refreshed, config.model, backbone, config.batch, config.seed)
    for name, *changes in arguments.heads or [["heads"]]:
        say("heads", name, *changes)
        changed = with_settings(config, [parse_setting(text) for text in changes])
        model = train_heads(arguments, store, changed, arguments.out / name)
        save_model(model.half(), arguments.out / name / "shipped")
        say("heads trained:", changed.steps, "steps")
        model.float()
        for root in arguments.set:
            encoded = encode_set(root, backbone, config, arguments.device)
            for way in WAYS:
                sets = {f"{root.name}@{way}": encoded.asked_as(way, backbone, config.model)}
                keep_answers(sets, model, arguments.out / name)
                for weight in arguments.head_score_weights:
                    assert isinstance(model, SimilarityModel)
                    model.config = replace(model.config, head_score_weight=weight)
                    keep_answers(sets, model, arguments.out / name / f"head-score-weight-{weight:g}")
                    model.config = changed.trained_model()
            say("answered", root.name)


if __name__ == "__main__":
    main()

"""Run of the backbone stage: open walks and photographs, train the backbone, write its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lastseen.engine.devices import best_device, checked_device
from lastseen.errors import TrainError
from lastseen.train.backbone_stage import BackboneStageConfig, save_backbone, train_backbone
from lastseen.train.checkpoint import RunFolder
from lastseen.train.feature_store import SynthData, library_of, open_gallery
from lastseen.train.pairs import PhotoPairs, WalkPairs
from lastseen.weights import load_backbone

FILE = "backbone.safetensors"


def run_backbone_stage(
    stage: BackboneStageConfig,
    data: SynthData,
    backbone: str | None,
    everything: dict[str, Any],
    out: Path,
    device: str | None,
    minutes: float | None,
) -> str:
    """Train for the command line; returns what to tell the user. `everything` is the run's whole config."""
    where = best_device() if device is None else checked_device(device)
    folder = RunFolder(out)
    folder.claim(everything)
    begun_with = load_backbone(backbone)
    if begun_with.config.depth < stage.depth:
        raise TrainError(
            f"the backbone has {begun_with.config.depth} blocks, stage.depth is {stage.depth}; "
            "set stage.depth to at most that"
        )
    walks = WalkPairs(open_gallery(data, stage.seed, where, stage.query_scales))
    pictures = library_of(data, "train").pictures
    enough = len(pictures) >= stage.frames and stage.photo_share
    photos = PhotoPairs(pictures, where) if enough else None
    trained = train_backbone(
        stage, walks, photos, start=begun_with, device=where, folder=folder, minutes=minutes
    )
    save_backbone(trained, folder.root / FILE)
    done = folder.numbers()[-1]
    rest = "" if done == stage.steps else f" of {stage.steps}; the same command goes on"
    return f"{folder.root / FILE}: the backbone after {done} steps{rest}"

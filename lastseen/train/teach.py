"""The recipe of a backbone, run: walks and photographs opened, the backbone trained, its file written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lastseen.engine.devices import best_device, checked_device
from lastseen.errors import TrainError
from lastseen.train.backbone_stage import MatchingConfig, save_backbone, train_matching
from lastseen.train.checkpoint import RunFolder
from lastseen.train.feature_store import SynthData, library_of, open_gallery
from lastseen.train.pairs import PhotoPairs, WalkPairs
from lastseen.weights import load_backbone

FILE = "backbone.safetensors"


def run_matching(
    matching: MatchingConfig,
    data: SynthData,
    backbone: str | None,
    everything: dict[str, Any],
    out: Path,
    device: str | None,
    minutes: float | None,
) -> str:
    """Train for the command line, and say what there is now. `everything` is the run's config, to be kept."""
    where = best_device() if device is None else checked_device(device)
    folder = RunFolder(out)
    folder.claim(everything)
    start = load_backbone(backbone)
    if start.config.depth < matching.depth:
        raise TrainError(f"the backbone has {start.config.depth} blocks, matching.depth is {matching.depth}")
    walks = WalkPairs(open_gallery(data, matching.seed, where, matching.query_shares))
    pictures = library_of(data, "train").pictures
    enough = len(pictures) >= matching.frames and matching.photo_share
    photos = PhotoPairs(pictures, where) if enough else None
    trained = train_matching(
        matching, walks, photos, start=start, device=where, folder=folder, minutes=minutes
    )
    save_backbone(trained, folder.root / FILE)
    done = folder.numbers()[-1]
    rest = "" if done == matching.steps else f" of {matching.steps}; the same command goes on"
    return f"{folder.root / FILE}: the backbone after {done} steps{rest}"

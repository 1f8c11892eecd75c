"""Rivals by name or folder: config.json and model.safetensors, as of any model, and procedure.json, what
follows the peak.

runs/rivals.py makes such folders; those in the user's models folder go by name: --weights siamrcnn
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from lastseen.baselines.cocoformer import CocoFormer, CocoFormerConfig
from lastseen.baselines.detector import DetectorConfig, RivalDetector
from lastseen.baselines.nanotrack import NanoTrack
from lastseen.baselines.nanotrack_network import load_nanotrack
from lastseen.baselines.nfm import NFM, NFMConfig
from lastseen.baselines.particle_filter import ParticleFilter
from lastseen.baselines.peaks import PeakRule
from lastseen.baselines.procedure import RivalProcedure, StarkProcedure
from lastseen.baselines.siamrcnn import SiamRCNN, SiamRCNNConfig
from lastseen.baselines.stark import Stark, StarkConfig
from lastseen.baselines.tracking import Ends, Track, Tracker
from lastseen.errors import LastSeenError, WeightsError
from lastseen.files import write_whole
from lastseen.masks.stored import VARIABLE, models_folder
from lastseen.model import TrainedModel
from lastseen.plain import check_fields, made_of
from lastseen.stored_config import SIZES, json_in
from lastseen.tensors import check_fits, load_strictly, read_state
from lastseen.weights import save_model

Rival = RivalDetector | Stark
RivalConfig = DetectorConfig | StarkConfig
DETECTORS: dict[str, tuple[type[DetectorConfig], type[RivalDetector]]] = {
    DetectorConfig.kind: (DetectorConfig, RivalDetector),  # proposals alone, the first stage of training
    SiamRCNNConfig.kind: (SiamRCNNConfig, SiamRCNN),
    NFMConfig.kind: (NFMConfig, NFM),
    CocoFormerConfig.kind: (CocoFormerConfig, CocoFormer),
}
NAMES = ("siamrcnn", "nfm", "cocoformer", "stark", "stark-positions")
TRACKERS = ("particles", "nano", "ends")
RIVAL_ENGINES = ("torch-fp32", "torch-fp32-grouped", "torch-fp16", "torch-bf16")
PROCEDURE_FILE = "procedure.json"
RIVAL_SIZES = {  # least and most in a config, beside those of any model
    "channels": (1, 4096),
    "hidden": (1, 16384),
    "proposals": (1, 10_000),
    "encoder_layers": (1, 64),
    "decoder_layers": (1, 64),
    "encoder_hidden": (1, 65536),
    "decoder_hidden": (1, 65536),
}


@dataclass(frozen=True, kw_only=True)
class AfterPeak:
    """What runs/rivals.py fits on rendered rooms; the defaults are the originals'."""

    least_score: float = 0.5
    particles_stop: float = 0.85
    nano_stop: float = 0.8


def rival_folder(path: str | os.PathLike[str]) -> Path | None:
    """The folder of a rival, given by name or as a folder; None if it is another model."""
    name = os.fspath(path)
    folder = Path(name)
    if name in NAMES and not folder.is_dir():
        folder = models_folder() / "rivals" / name
        if not (folder / "config.json").is_file():
            raise WeightsError(
                f"{name} has no weights in {folder}: train it with runs/rivals.py and copy its folder there "
                f"(${VARIABLE} names another place), or give the folder itself"
            )
    try:
        data = json_in(folder / "config.json")
    except (ValueError, OSError):
        return None  # whoever reads other models says what is wrong
    kind = data.get("model") if isinstance(data, dict) else None
    return folder if kind in (*DETECTORS, StarkConfig.kind) else None


def rival_engine(device: torch.device) -> str:
    """The fastest that was tried: half precision on GPUs, as the bundled model."""
    return "torch-fp16" if device.type == "cuda" else "torch-fp32"


def make_rival(config: RivalConfig) -> Rival:
    """With random weights."""
    if isinstance(config, StarkConfig):
        return Stark(config)
    return DETECTORS[config.kind][1](config)


def read_rival_config(data: dict[str, Any]) -> RivalConfig:
    """A config.json's content; ValueError says what is wrong with it."""
    kind: type[RivalConfig] = (
        StarkConfig if data["model"] == StarkConfig.kind else DETECTORS[data["model"]][0]
    )
    check_fields(kind, data, "config")
    for part in (data["backbone"], data):
        for name, (least, most) in (SIZES | RIVAL_SIZES).items():
            value = part.get(name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} must be {least} to {most}, got {value}")
    return kind.from_dict(data)


def load_rival(folder: Path) -> tuple[Rival, AfterPeak]:
    config_file, weights_file = folder / "config.json", folder / "model.safetensors"
    try:
        config = read_rival_config(json_in(config_file))
        with torch.device("meta"):
            outline = make_rival(config)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        words = (str(error).splitlines() or [type(error).__name__])[0]
        raise WeightsError(f"{config_file}: not a rival's config: {words}") from None
    state = read_state(weights_file)
    check_fits(outline, state, weights_file)
    model = make_rival(config)
    load_strictly(model, state, weights_file)
    return model.eval(), load_after_peak(folder)


def load_after_peak(folder: Path) -> AfterPeak:
    file = folder / PROCEDURE_FILE
    if not file.exists():
        return AfterPeak()
    try:
        return made_of(AfterPeak, json_in(file), "procedure")
    except (ValueError, TypeError) as error:
        raise WeightsError(f"{file}: not a rival's procedure: {error}; mend it, or remove it") from None


def save_rival(model: Rival, after: AfterPeak, folder: Path) -> None:
    save_model(cast(TrainedModel, model), folder)  # a config and tensors, as any model
    save_after_peak(after, folder)


def save_after_peak(after: AfterPeak, folder: Path) -> None:
    write_whole(folder / PROCEDURE_FILE, (json.dumps(asdict(after), indent=2) + "\n").encode())


def procedure_of(
    model: Rival,
    after: AfterPeak,
    *,
    constant_score: bool,
    tracker: str | None = None,
    tracker_weights: str | os.PathLike[str] | None = None,
) -> RivalProcedure | StarkProcedure:
    """`model` is on its device. `tracker`: one of TRACKERS, the particle filter unless given."""
    if isinstance(model, Stark):
        if tracker is not None:
            raise LastSeenError(f"{model.name} follows nothing after its peak: leave --tracker out")
        return StarkProcedure(constant_score)
    device = next(model.parameters()).device
    return RivalProcedure(
        after_peak_of(after, tracker, tracker_weights, model.backbone, device), constant_score
    )


def after_peak_of(
    after: AfterPeak,
    tracker: str | None,
    weights: str | os.PathLike[str] | None,
    backbone: nn.Module | None,
    device: torch.device,
) -> Track | Ends:
    peaks = PeakRule(least_score=after.least_score)
    if tracker == "ends":
        return Ends(peaks)
    return Track(peaks, make_tracker(tracker or "particles", after, weights, backbone, device))


def make_tracker(
    name: str,
    after: AfterPeak,
    weights: str | os.PathLike[str] | None,
    backbone: nn.Module | None,
    device: torch.device,
) -> Tracker:
    if name == "nano":
        if weights is None:
            raise LastSeenError("the tracker nano needs its weights: --tracker-weights nanotrack_v2.pth")
        return NanoTrack(network=load_nanotrack(Path(weights)).to(device), stop=after.nano_stop)
    if name == "particles" and backbone is not None:
        return ParticleFilter(backbone=backbone, stop=after.particles_stop)
    raise LastSeenError(f"no such tracker: {name}; choose one of {', '.join(TRACKERS)}")

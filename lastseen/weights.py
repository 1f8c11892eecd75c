"""Weights: bundled, on disk, or converted from the published checkpoints. Verified, loaded strictly.

A model is a folder: `config.json` (what it is) beside `model.safetensors` (its numbers).
A backbone is one file with DINOv2's own key names: bundled, official (.pth) or derived.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from lastseen.errors import OutputError, WeightsError
from lastseen.files import sync, whole_file, write_whole
from lastseen.model import (
    VIT_B,
    VIT_G,
    VIT_L,
    VIT_S,
    Backbone,
    BackboneConfig,
    SimilarityConfig,
    SimilarityModel,
    TrainedConfig,
    TrainedModel,
    TrainingFreeModel,
    VQLoC,
    VQLoCConfig,
)
from lastseen.model.token_basis import BANDS, TokenBasis
from lastseen.rule import Rule
from lastseen.stored_config import check_sizes, json_in
from lastseen.stored_config import read_config as read_config
from lastseen.tensors import State, check_fits, load_strictly, read_state, save_tensors

M = TypeVar("M", bound=nn.Module)

# Of 12, chosen on real video (docs/results.md); without the final norm, which belongs to the last block.
MATCHING_BLOCK = 6
RULE_FILE = "rule.json"
TOKEN_BASIS_FILE = "token_basis.safetensors"
BUNDLED_BACKBONE = "backbone_vits14_reg4.safetensors"
BUNDLED_BACKBONE_SHA256 = "e5c577c49f2dcfe031fca660e481942100c5f8c8b5082e6778d5c6c8f03df8b5"
BUNDLED_MODEL = "model"
BUNDLED_MODEL_SHA256 = "c2a2250c87844c373a368382def234fa1739dd8fb98ebba28c5f3b2c2b107c4c"


def bundled_backbone() -> Path:
    """The backbone inside the package (DINOv2-derived ViT-S/14; see NOTICE), its checksum verified."""
    return _bundled(BUNDLED_BACKBONE, BUNDLED_BACKBONE_SHA256)


def bundled_model() -> Path:
    """The folder of the trained model inside the package, the checksum of its weights verified."""
    return _bundled(f"{BUNDLED_MODEL}/model.safetensors", BUNDLED_MODEL_SHA256).parent


def _bundled(name: str, sha256: str) -> Path:
    path = Path(str(files("lastseen") / "assets" / name))
    if not path.is_file():
        raise WeightsError(f"{path} is missing: the installation is incomplete, install lastseen again")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise WeightsError(
            f"{path} is damaged (sha256 {found[:12]}..., expected {sha256[:12]}...): install lastseen again"
        )
    return path


def load_backbone(
    path: str | os.PathLike[str] | None = None,
    *,
    blocks: tuple[int, ...] = (-1,),
    final_norm: bool = True,
) -> Backbone:
    """A backbone from the package (no path) or from an official or derived DINOv2 file."""
    source = bundled_backbone() if path is None else Path(path)
    state = read_state(source)
    state.pop("mask_token", None)  # pre-training only
    config = _backbone_of(state, source)
    try:
        config = replace(config, blocks=blocks, final_norm=final_norm)
    except ValueError as error:
        raise WeightsError(f"{source}: {error}") from None
    return _loaded(lambda: Backbone(config), state, source).eval()


def _loaded(make: Callable[[], M], state: State, source: Path) -> M:
    """A module with these weights. Whether they fit is seen before memory is taken for it."""
    try:
        with torch.device("meta"):
            outline = make()
    except (ValueError, TypeError, IndexError, ArithmeticError, RuntimeError) as error:
        raise WeightsError(f"{source}: no such model can be made: {_first_line(error)}") from None
    check_fits(outline, state, source)
    module = make()
    load_strictly(module, state, source)
    return module


def _backbone_of(state: State, source: Path) -> BackboneConfig:
    expected = "expected a ViT/14 file such as dinov2_vits14_pretrain.pth or dinov2_vitb14_reg4_pretrain.pth"
    try:
        return backbone_config(state)
    except KeyError as error:
        raise WeightsError(
            f"{source} is not a DINOv2 backbone: no {error.args[0]!r} in it; {expected}"
        ) from None
    except (ValueError, IndexError) as error:
        raise WeightsError(f"{source} is not a DINOv2 backbone: {_first_line(error)}; {expected}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def load_token_basis(folder: str | os.PathLike[str]) -> TokenBasis | None:
    """The basis of a model's small features (`runs/fit_token_basis.py`); None if its folder has none."""
    path = Path(folder) / TOKEN_BASIS_FILE
    if not path.exists():
        return None
    state = read_state(path)
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    channels = shapes.get("mean", (0,))[0]
    if shapes != {
        "mean": (channels,),
        "axes": (channels, channels),
        "deviations": (BANDS, channels),
        "padding": (2, max(1, *shapes.get("padding", (0, 0))[1:2]), channels),
    }:
        raise WeightsError(f"{path} is no token basis: it holds {shapes}")
    basis = TokenBasis(**{name: value.float() for name, value in state.items()})
    if not all(part.isfinite().all() for part in state.values()):
        raise WeightsError(f"{path} holds numbers that are none")
    return basis


def save_token_basis(basis: TokenBasis, folder: str | os.PathLike[str]) -> None:
    state = {
        "mean": basis.mean,
        "axes": basis.axes.half(),
        "deviations": basis.deviations,
        "padding": basis.padding.half(),
    }
    with whole_file(Path(folder) / TOKEN_BASIS_FILE) as building:
        save_tensors(state, building)


def load_training_free(path: str | os.PathLike[str] | None = None) -> TrainingFreeModel:
    """Training-free patch matching on the bundled backbone or another one."""
    return TrainingFreeModel(load_backbone(path, blocks=(MATCHING_BLOCK,), final_norm=False)).eval()


def backbone_config(state: State) -> BackboneConfig:
    """The shape of a DINOv2 state dict, read off its tensors."""
    dim = state["pos_embed"].shape[-1]
    depth = 1 + max((int(m[1]) for m in map(re.compile(r"blocks\.(\d+)\.").match, state) if m), default=-1)
    if not depth:
        raise KeyError("blocks.0.norm1.weight")
    known = {shape.dim: shape for shape in (VIT_S, VIT_B, VIT_L, VIT_G)}
    heads = known[dim].heads if dim in known else max(1, dim // 64)
    registers = state["register_tokens"].shape[1] if "register_tokens" in state else 0
    ffn = "swiglu" if "blocks.0.mlp.w12.weight" in state else "mlp"
    if depth > len(state):
        raise ValueError(f"it has {len(state)} tensors and block {depth - 1}")
    if not dim or dim % heads:
        raise ValueError(f"its width is {dim}")
    return BackboneConfig(dim=dim, depth=depth, heads=heads, registers=registers, ffn=ffn)


def load_model(folder: str | os.PathLike[str]) -> TrainedModel:
    """A model from a folder that `save_model` or `lastseen convert` wrote."""
    root = Path(folder)
    config_file, weights_file = root / "config.json", root / "model.safetensors"
    for file in (config_file, weights_file):
        if not file.is_file():
            raise WeightsError(
                f"{root} is not a model: {file.name} is missing; expected a folder made by "
                "'lastseen train' or 'lastseen convert', or the word training-free"
            )
    try:
        config = read_config(json_in(config_file))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WeightsError(f"{config_file}: not a model's config: {_first_line(error)}") from None
    state = {_current_name(name): value for name, value in read_state(weights_file).items()}
    return _loaded(lambda: make_model(config), state, weights_file).eval()


def make_model(config: TrainedConfig) -> TrainedModel:
    """With random weights."""
    if isinstance(config, SimilarityConfig):
        return SimilarityModel.from_config(config)
    return VQLoC.from_config(config)


def check_new_folder(folder: str | os.PathLike[str]) -> None:
    """Raise WeightsError if a model cannot be saved there; call it before long work."""
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise WeightsError(f"{target} is a file: choose the name of a new folder")
    if target.exists() and any(target.iterdir()):
        raise WeightsError(f"{target} exists and is not empty: choose a new folder, or remove it first")


def save_model(model: TrainedModel, folder: str | os.PathLike[str]) -> None:
    """Write config.json and model.safetensors; the folder appears whole or not at all."""
    target = Path(folder)
    check_new_folder(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise OutputError(f"{target} cannot be made: {error.strerror or error}") from None
    try:
        save_tensors(
            {k: v.contiguous() for k, v in model.state_dict().items()}, building / "model.safetensors"
        )
        (building / "config.json").write_text(json.dumps(model.config.to_dict(), indent=2) + "\n")
        for file in building.iterdir():
            sync(file)
        building.chmod(0o755)
        if target.exists():
            target.rmdir()
        building.rename(target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)


def load_rule(folder: str | os.PathLike[str]) -> Rule:
    """How this model's scores become answers: its `rule.json`, or the default if it was never fitted."""
    file = Path(folder) / RULE_FILE
    if not os.path.lexists(file):
        return Rule()
    try:
        if not file.is_file():
            raise ValueError("not a file")
        return Rule.from_dict(json_in(file))
    except (ValueError, TypeError) as error:
        remedy = "mend it, or remove it and run 'lastseen calibrate'"
        raise WeightsError(f"{file}: not a rule: {_first_line(error)}; {remedy}") from None


def save_rule(rule: Rule, folder: str | os.PathLike[str]) -> None:
    write_whole(Path(folder) / RULE_FILE, (json.dumps(rule.to_dict(), indent=2) + "\n").encode())


# --- Weights of before ---------------------------------------------------------------------------

_OLD_PREFIXES = {
    "reduce.embed": "projection.rotation",
    "correspondence.maps.": "correspondence.",
    "likeness.scale": "prior.scale",
    "likeness.even": "prior.midpoint",
}


def _current_name(name: str) -> str:
    for old, new in _OLD_PREFIXES.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


# --- The published VQLoC checkpoints -----------------------------------------------------------

# (pattern of the published key, our key); both use the same index in layer lists
_RENAMED = [
    (r"pe_3d$", "propagation.positions"),
    (r"(backbone|reduce)\.(.+)", r"\1.\2"),
    (r"down_heads\.(\d+)\.(.+)", r"propagation.shrink.\1.\2"),
    (r"CQ_corr_transformer\.(\d+)\.self_attn\.(.+)", r"correspondence.layers.\1.frame_attention.\2"),
    (r"CQ_corr_transformer\.(\d+)\.multihead_attn\.(.+)", r"correspondence.layers.\1.query_attention.\2"),
    (r"CQ_corr_transformer\.(\d+)\.norm1\.(.+)", r"correspondence.layers.\1.frame_norm.\2"),
    (r"CQ_corr_transformer\.(\d+)\.norm2\.(.+)", r"correspondence.layers.\1.query_norm.\2"),
    (r"CQ_corr_transformer\.(\d+)\.norm3\.(.+)", r"correspondence.layers.\1.feed_norm.\2"),
    (r"CQ_corr_transformer\.(\d+)\.linear1\.(.+)", r"correspondence.layers.\1.feed_forward.up.\2"),
    (r"CQ_corr_transformer\.(\d+)\.linear2\.(.+)", r"correspondence.layers.\1.feed_forward.down.\2"),
    (r"feat_corr_transformer\.(\d+)\.self_attn\.(.+)", r"propagation.layers.\1.attention.\2"),
    (r"feat_corr_transformer\.(\d+)\.norm1\.(.+)", r"propagation.layers.\1.attention_norm.\2"),
    (r"feat_corr_transformer\.(\d+)\.norm2\.(.+)", r"propagation.layers.\1.feed_norm.\2"),
    (r"feat_corr_transformer\.(\d+)\.linear1\.(.+)", r"propagation.layers.\1.feed_forward.up.\2"),
    (r"feat_corr_transformer\.(\d+)\.linear2\.(.+)", r"propagation.layers.\1.feed_forward.down.\2"),
    (r"head\.up_convs\.0\.(.+)", r"head.trunk.enlarge.\1"),
    (r"head\.in_conv\.(.+)", r"head.trunk.split.\1"),
    (r"head\.regression_conv\.(.+)", r"head.trunk.for_box.\1"),
    (r"head\.classification_conv\.(.+)", r"head.trunk.for_score.\1"),
    (r"head\.regression_head\.(.+)", r"head.box.\1"),
    (r"head\.classification_head\.(.+)", r"head.score.\1"),
]


def convert_published(checkpoint: str | os.PathLike[str]) -> tuple[VQLoC, list[str]]:
    """A published VQLoC checkpoint as a VQLoC, and the keys in it that no forward pass uses."""
    source = Path(checkpoint)
    published = read_state(source)
    config = _published_config(published, source)
    with torch.device("meta"):
        wanted = VQLoC.from_config(config).state_dict()
    state: State = {}
    unused = []
    for key, value in published.items():
        ours = _converted(key, value)
        state.update({k: v for k, v in ours.items() if k in wanted})
        if not any(k in wanted for k in ours):
            unused.append(key)
    for key in wanted:
        if key.endswith("num_batches_tracked"):  # a counter that inference never reads
            state[key] = torch.zeros((), dtype=torch.int64)
    return _loaded(lambda: VQLoC.from_config(config), state, source).eval(), unused


def _converted(key: str, value: Tensor) -> State:
    for pattern, replacement in _RENAMED:
        if match := re.fullmatch(pattern, key):
            ours = match.expand(replacement)
            break
    else:
        return {}
    ours = ours.replace(".out_proj.", ".out.")
    if ".in_proj_" not in ours or not value.ndim:
        return {ours: value}
    prefix, kind = ours.split(".in_proj_")
    return {f"{prefix}.{part}.{kind}": v for part, v in zip(("query", "key", "value"), value.chunk(3))}


def _published_config(published: State, source: Path) -> VQLoCConfig:
    backbone = {k.removeprefix("backbone."): v for k, v in published.items() if k.startswith("backbone.")}
    heads = {key.split(".")[1] for key in published if key.startswith("down_heads.")}
    spatial = {key.split(".")[1] for key in published if key.startswith("CQ_corr_transformer.")}
    if "pe_3d" not in published or not heads or not spatial:
        raise WeightsError(
            f"{source} is not a published VQLoC checkpoint: no pe_3d, down_heads or CQ_corr_transformer"
        )
    shape = _backbone_of(backbone, source)
    try:
        config = VQLoCConfig(
            backbone=shape,
            # The release keeps one halving more than it could use: 4 for 32 patches a side, 3 for 16.
            image_size=2 ** min(len(heads) + 1, 32) * shape.patch,
            clip_length=published["pe_3d"].shape[1] // 64,
            spatial_layers=len(spatial),
            padding=0.5,  # what the release pads with at test time
        )
        check_sizes(config)
    except (ValueError, IndexError) as error:
        raise WeightsError(f"{source} is not a published VQLoC checkpoint: {_first_line(error)}") from None
    return config

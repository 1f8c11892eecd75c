"""Initialisation of a run: the model with its initial weights, and the source of its data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from lastseen.errors import TrainError
from lastseen.model import Backbone, SimilarityConfig, TrainedConfig, TrainedModel, VQLoC
from lastseen.train.batch import Batch, SharedSource, Source
from lastseen.train.compare_start import begin_by_comparing
from lastseen.train.feature_store import FeatureStore, SynthData, open_gallery
from lastseen.train.files_data import FilesData, VideoClips
from lastseen.train.recipes import BUNDLED_MODEL, COMPARE, RANDOM, TrainConfig
from lastseen.train.rounds import Rounds
from lastseen.train.toy import ToyClips
from lastseen.weights import bundled_model, load_backbone, load_model, make_model


def initial_model(config: TrainConfig) -> TrainedModel:
    """The model before its first step, which depends on the config (and its seed) alone."""
    torch.manual_seed(config.seed)
    if config.init_from is None:
        model = make_model(config.model)
        if config.first_weights == COMPARE:
            assert isinstance(model, VQLoC)
            begin_by_comparing(model, config.seed)
        if config.backbone != RANDOM:
            model.backbone.load_state_dict(initial_backbone(config).state_dict())
    else:
        model = _loaded(config)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = config.dropout
    model.requires_grad_(True)
    model.backbone.requires_grad_(False)
    if config.train_backbone_from_block is not None:
        unfreeze(model.backbone, config.train_backbone_from_block)
    if config.train_only:
        _freeze_others(model, config.train_only)
    return model


def _loaded(config: TrainConfig) -> TrainedModel:
    assert config.init_from is not None
    if config.backbone is not None:
        raise TrainError("init_from is a whole model with its backbone; leave backbone out")
    model = load_model(config.init_from)
    found, wanted = _architecture(model.config), _architecture(config.model)
    if found != wanted:
        differ = ", ".join(name for name in wanted if found.get(name) != wanted[name])
        raise TrainError(
            f"the model in {config.init_from} is of another shape: {differ}; change model.*, or init_from"
        )
    model.config = config.model
    return model


def _architecture(config: TrainedConfig) -> dict[str, Any]:
    """The config without what only scales scores at inference."""
    if isinstance(config, SimilarityConfig):
        config = replace(config, head_score_weight=1.0)
    return config.to_dict()


def _freeze_others(model: TrainedModel, names: tuple[str, ...]) -> None:
    learning = [name for name, _ in model.named_parameters() if not name.startswith("backbone.")]
    for name in names:
        if not any(known.startswith(name) for known in learning):
            raise TrainError(f"no parameter's name begins with {name}; its parts: {_parts(learning)}")
    for known, weight in model.named_parameters():
        weight.requires_grad_(weight.requires_grad and known.startswith(names))


def _parts(names: list[str]) -> str:
    return ", ".join(sorted({".".join(name.split(".")[:2]) for name in names}))


def freeze_norms_of_frozen_parts(model: nn.Module) -> None:
    """Modules without any trained weight run as at inference: batch norms keep their statistics."""
    for part in model.modules():
        weights = list(part.parameters())
        if weights and not any(weight.requires_grad for weight in weights):
            part.eval()


def initial_backbone(config: TrainConfig) -> Backbone:
    """The backbone file, shortened to the depth that the model uses."""
    if config.init_from is not None:
        return cast(Backbone, load_model(config.init_from).backbone)
    wanted = config.model.backbone
    if config.backbone == RANDOM:  # the draw that `initial_model` begins with
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            return Backbone(wanted).eval()
    if config.backbone == BUNDLED_MODEL:
        found = cast(Backbone, load_model(bundled_model()).backbone)
    else:
        found = load_backbone(config.backbone)
    if found.config.depth > wanted.depth:
        found = found.shortened(wanted.depth)
    shape = replace(found.config, blocks=wanted.blocks, final_norm=wanted.final_norm)
    if shape != wanted:
        raise TrainError(
            f"backbone {config.backbone or '(bundled)'} has width {shape.dim}, {shape.depth} blocks and "
            f"{shape.registers} registers, the model wants {wanted.dim}, {wanted.depth} and "
            f"{wanted.registers}: give --set backbone=FILE that fits, or change model.backbone"
        )
    backbone = Backbone(wanted)
    backbone.load_state_dict(found.state_dict())
    return backbone.eval()


def unfreeze(backbone: nn.Module, first_block: int) -> None:
    """Train the blocks from `first_block` on, and the norm after them, as well."""
    assert isinstance(backbone, Backbone)
    used = max(block % backbone.config.depth for block in backbone.config.blocks)
    if not 0 <= first_block <= used:
        raise TrainError(f"train_backbone_from_block must be 0 to {used}, got {first_block}")
    for block in backbone.blocks[first_block : used + 1]:
        block.requires_grad_(True)
    if backbone.config.final_norm:
        backbone.norm.requires_grad_(True)


def open_source(config: TrainConfig, device: torch.device) -> Source:
    data, size, seed = config.data, config.batch, config.seed
    if isinstance(data, FilesData):
        return VideoClips.open(data, config.model, size, seed)
    if isinstance(data, SynthData) and data.round_steps is not None:
        return Rounds(data, config.model, initial_backbone(config), size, seed, device)
    if isinstance(data, SynthData):
        gallery = open_gallery(data, seed, device, config.model.query_scales, config.model.query_size)
        return FeatureStore(gallery, data, config.model, initial_backbone(config), size, seed)
    return ToyClips(data, config.model, size, seed)


def rows_of(source: Source, first: int, last: int, size: int) -> Source:
    """Only these rows of every batch, made without the others where the source can."""
    if (first, last) == (0, size):
        return source
    return source.share(first, last) if isinstance(source, SharedSource) else _Rows(source, first, last)


class _Rows:
    def __init__(self, source: Source, first: int, last: int) -> None:
        self._source, self._first, self._last = source, first, last

    def batch(self, step: int) -> Batch:
        return self._source.batch(step).rows(self._first, self._last)

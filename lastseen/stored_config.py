"""A model's config.json, also of before, with types and sizes checked: nothing is made of nonsense."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lastseen.files import regular_bytes
from lastseen.model import BackboneConfig, SimilarityConfig, TrainedConfig, VQLoCConfig
from lastseen.plain import check_fields

MOST_JSON_BYTES = 2**20  # of config.json and rule.json
HEADS = 8  # of propagation
SIZES = {  # least and most in a config
    "image_size": (1, 4096),
    "query_size": (1, 4096),
    "clip_length": (1, 4096),
    "attention_radius": (0, 4096),
    "dim": (1, 16384),
    "depth": (1, 256),
    "heads": (1, 1024),
    "registers": (0, 1024),
    "patch": (1, 256),
    "spatial_layers": (1, 64),
    "padding": (0, 1),
}

_CONFIGS: dict[str, type[VQLoCConfig] | type[SimilarityConfig]] = {
    config.kind: config for config in (VQLoCConfig, SimilarityConfig)
}
# Fields of the one config that there was for both models.
_BOTH = ("backbone", "image_size", "clip_length", "dim", "attention_radius", "anchors", "padding")
_OLD_VQLOC = (*_BOTH, "fusion", "spatial_layers")
_OLD_SIMILARITY = {
    **{name: name for name in _BOTH},
    "query_shares": "query_scales",
    "query_size": "query_size",
    "query_background": "background_cosine",
    "heads_say": "head_score_weight",
    "fine": "skip_connection",
}
_OLD_DEFAULTS: dict[str, Any] = {
    "image_size": 448,
    "dim": 256,
    "fusion": "attention",
    "match_dim": 0,
    "mask_query": False,
    "query_shares": [1.0],
    "query_size": None,
    "query_background": None,
    "heads_say": 1.0,
    "fine": False,
}


def read_config(data: dict[str, Any]) -> TrainedConfig:
    """A config.json's content; ValueError says what is wrong with it. Files without "model" are older than
    the second kind of model."""
    if not isinstance(data, dict) or not isinstance(data.get("backbone"), dict):
        raise ValueError("no backbone in it")
    check_fields(BackboneConfig, data["backbone"], "backbone")
    _check_ranges(data["backbone"])
    if "model" not in data:
        data = _migrated(data)
    if data["model"] not in list(_CONFIGS):
        raise ValueError(f'"model" must be one of {", ".join(_CONFIGS)}, got {data["model"]!r}')
    kind = _CONFIGS[data["model"]]
    check_fields(kind, data, "config")
    _check_ranges(data)
    config = kind.from_dict(data)
    check_sizes(config)
    return config


def check_sizes(config: TrainedConfig) -> None:
    """Raise ValueError for numbers that no model has, since they take memory, time or both."""
    for part in (config.backbone, config):
        _check_ranges(vars(part))
    if config.backbone.dim % config.backbone.heads:
        raise ValueError(f"backbone.heads must divide {config.backbone.dim}, got {config.backbone.heads}")
    if config.dim % HEADS:
        raise ValueError(f"dim must be a multiple of {HEADS}, got {config.dim}")


def _migrated(old: dict[str, Any]) -> dict[str, Any]:
    unknown = set(old) - {*_OLD_VQLOC, *_OLD_SIMILARITY, "match_dim", "mask_query"}
    if unknown:
        raise ValueError(f"unknown fields in the model's config: {', '.join(sorted(unknown))}")
    full = {**_OLD_DEFAULTS, **old}
    if full["fusion"] != "match" and not full["match_dim"] and not full["fine"]:
        return {"model": VQLoCConfig.kind, **{name: old[name] for name in _OLD_VQLOC if name in old}}
    channels = full["backbone"]["dim"] * len(full["backbone"]["blocks"])
    if full["fusion"] != "match" or not full["mask_query"] or full["match_dim"] != channels:
        raise ValueError(
            "this variant (attention with similarity maps, or maps of projected or unmasked queries) is not "
            "supported any more; train it again with the recipe synth_small"
        )
    values = {new: full[name] for name, new in _OLD_SIMILARITY.items() if name in full}
    if values["query_size"] is None:
        values["query_size"] = values["image_size"]
    return {"model": SimilarityConfig.kind, **values}


def _check_ranges(values: Mapping[str, Any]) -> None:
    for name, (least, most) in SIZES.items():
        value = values.get(name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name} must be {least} to {most}, got {value}")


def json_in(file: Path) -> Any:
    """ValueError if it cannot be read as JSON."""
    try:
        return json.loads(regular_bytes(file, MOST_JSON_BYTES))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None

"""Configs of models as dictionaries, for files."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, TypeVar

from lastseen.model.backbone import BackboneConfig

C = TypeVar("C")


def config_dict(config: Any) -> dict[str, Any]:
    return {"model": config.kind, **asdict(config)}


def config_from_dict(cls: type[C], data: dict[str, Any]) -> C:
    """Lists become tuples; ValueError for a field that is unknown, or a model of another kind."""
    kind = cls.kind  # type: ignore[attr-defined]
    if data.get("model", kind) != kind:
        raise ValueError(f'model must be "{kind}", got {data["model"]!r}')
    values = {name: value for name, value in data.items() if name != "model"}
    unknown = set(values) - {field.name for field in fields(cls)}  # type: ignore[arg-type]
    if unknown:
        raise ValueError(f"unknown fields in the model's config: {', '.join(sorted(unknown))}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    if "backbone" in values:
        backbone = values["backbone"]
        values["backbone"] = BackboneConfig(**{**backbone, "blocks": tuple(backbone["blocks"])})
    return cls(**values)


def checked_size(name: str, size_px: int, multiple: int) -> None:
    if size_px < 1 or size_px % multiple:
        raise ValueError(f"{name} must be a multiple of {multiple}, got {size_px}")

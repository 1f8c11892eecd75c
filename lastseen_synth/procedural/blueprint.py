"""Blueprints of procedural assets: the size is known, mesh and textures are built on load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lastseen_synth.assets import Loaded, Point, Support
from lastseen_synth.meshes import Material
from lastseen_synth.procedural.patterns import Colour
from lastseen_synth.shapes import Part, merged
from lastseen_synth.texture import colour_texture, picture_texture

Built = tuple[list[Part], list[Material]]
GLOSSY, SATIN = (0.25, 60.0), (0.08, 20.0)  # strength and shininess of highlights


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """`size_m`: bounding box to which the built parts, which nearly fill it, are moved and scaled."""

    size_m: Point
    build: Callable[[], Built]
    supports: tuple[Support, ...] = ()

    def load(self) -> Loaded:
        parts, materials = self.build()
        used = sorted({p.material for p in parts})
        parts = [replace(p, material=used.index(p.material)) for p in fitted(parts, self.size_m)]
        return merged(parts), tuple(materials[k] for k in used)


def fitted(parts: Sequence[Part], size_m: Point) -> list[Part]:
    """Centred in x and y, standing on z = 0, scaled to the given size."""
    low = np.min([p.positions.min(0) for p in parts], 0)
    high = np.max([p.positions.max(0) for p in parts], 0)
    scale = np.asarray(size_m) / np.maximum(high - low, 1e-9)
    middle = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]])
    return [p.moved(-middle).stretched(scale) for p in parts]


def in_material(parts: Sequence[Part], material: int) -> list[Part]:
    return [replace(p, material=material) for p in parts]


def plain(colour: Colour, shine: tuple[float, float] = (0.0, 1.0)) -> Material:
    return Material(texture=colour_texture(colour), specular=shine[0], shininess=shine[1])


def painted(image: np.ndarray, shine: tuple[float, float] = (0.0, 1.0), *, emission: float = 0.0) -> Material:
    texture = picture_texture(image, wrap=False)
    return Material(texture=texture, specular=shine[0], shininess=shine[1], emission=emission)


def face_px(width_m: float, height_m: float, largest_px: int = 256) -> tuple[int, int]:
    """Width and height in pixels of a picture with this aspect."""
    scale = largest_px / max(width_m, height_m)
    return max(8, round(width_m * scale)), max(8, round(height_m * scale))

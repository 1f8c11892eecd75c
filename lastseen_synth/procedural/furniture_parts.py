"""Parts of procedural furniture: shared wood and fabric materials, boards, cushions, legs and drawers.

Every maker draws the Blueprint of one piece: its size and supports are known at once, its parts and materials
are built when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from lastseen_synth.assets import Support
from lastseen_synth.meshes import Material
from lastseen_synth.procedural.blueprint import GLOSSY, SATIN, Blueprint, plain
from lastseen_synth.procedural.patterns import fabric_colour, rgb, weave, wood, wood_colour
from lastseen_synth.shapes import Part, box, revolved, rotation
from lastseen_synth.texture import picture_texture

Rng = np.random.Generator
Corner = tuple[float, float, float]
Makers = dict[str, tuple[tuple[Callable[[Rng], Blueprint], int], ...]]  # type -> (maker, count), ...
WOOD, SECOND, METAL = 0, 1, 2  # materials of a wooden piece
WOOD_M, FABRIC_M = 0.6, 0.4  # size of a texture tile
STYLES = 7
KNOB_M = 0.027  # by which a knob protrudes from its drawer


@cache
def wood_material(seed: int, number: int) -> Material:
    """One of STYLES woods; the same object every time, so that a scene stores it once."""
    rng = np.random.default_rng([seed, number, 1])
    grain = picture_texture(wood(rng, wood_colour(rng)), wrap=True)
    return Material(texture=grain, specular=SATIN[0], shininess=SATIN[1])


@cache
def fabric_material(seed: int, number: int) -> Material:
    rng = np.random.default_rng([seed, number, 2])
    return Material(texture=picture_texture(weave(rng, fabric_colour(rng)), wrap=True))


def woods(rng: Rng) -> Callable[[], list[Material]]:
    """Two woods (often the same, or white paint) and a metal."""
    seed, first, second = int(rng.integers(3)), int(rng.integers(STYLES)), int(rng.integers(STYLES))
    painted = rgb(rng.random(), rng.choice([0.02, 0.1, 0.3]), rng.uniform(0.6, 0.95))
    choice = rng.random()
    metal = (40, 40, 42) if rng.random() < 0.5 else (185, 185, 188)

    def materials() -> list[Material]:
        body = wood_material(seed, first)
        other = (
            body if choice < 0.5 else wood_material(seed, second) if choice < 0.7 else plain(painted, SATIN)
        )
        return [body, other, plain(metal, GLOSSY)]

    return materials


def fabrics_of(rng: Rng) -> Callable[[], list[Material]]:
    seed, first, second, legs = (int(n) for n in rng.integers(STYLES, size=4))
    return lambda: [
        fabric_material(seed % 3, first),
        fabric_material(seed % 3, second),
        wood_material(seed % 3, legs),
    ]


def board(low: Corner, high: Corner, material: int = WOOD, *, edge_m: float = 0.003) -> list[Part]:
    """A plank with its grain along its longest side."""
    along = int(np.argmax(np.subtract(high, low)))
    return [p.tiled(WOOD_M, swap_uv=along == 0) for p in box(low, high, edge_m=edge_m, materials=material)]


def cushion(low: Corner, high: Corner, material: int, *, soft_m: float = 0.05) -> list[Part]:
    return [p.tiled(FABRIC_M) for p in box(low, high, edge_m=soft_m, steps=2, materials=material)]


def legs(
    wide: float, deep: float, high: float, inset: float, thick: float, material: int, *, tapered: bool
) -> list[Part]:
    parts = []
    for x in (-1, 1):
        for y in (-1, 1):
            foot = (x * (wide / 2 - inset), y * (deep / 2 - inset))
            if tapered:
                leg = revolved([(thick * 0.35, 0), (thick * 0.6, high)], segments=12, material=material)
                parts.append(leg.moved((*foot, 0)))
            else:
                parts += board(
                    (foot[0] - thick / 2, foot[1] - thick / 2, 0),
                    (foot[0] + thick / 2, foot[1] + thick / 2, high),
                    material,
                )
    return parts


def top(wide: float, deep: float, z: float, clearance: float = float("inf"), *, y: float = 0.0) -> Support:
    return Support(
        z_m=z, x0_m=-wide / 2, y0_m=y - deep / 2, x1_m=wide / 2, y1_m=y + deep / 2, clearance_m=clearance
    )


def drawers_in(low: Corner, high: Corner, rows: int, columns: int) -> list[Part]:
    """A closed body with a grid of drawer or door fronts, each with a knob."""
    (x0, y0, z0), (x1, y1, z1) = low, high
    parts = board((x0, y0 + 0.02, z0), (x1, y1, z1), WOOD)
    wide, tall = (x1 - x0) / columns, (z1 - z0) / rows
    for row in range(rows):
        for column in range(columns):
            left, under = x0 + column * wide, z0 + row * tall
            parts += board(
                (left + 0.006, y0, under + 0.006),
                (left + wide - 0.006, y0 + 0.02, under + tall - 0.006),
                SECOND,
            )
            # Tall fronts are doors: their knobs are where the pair meets.
            side = 0.5 if tall < 2 * wide else (0.88 if column % 2 == 0 else 0.12)
            knob = revolved(
                [(0.006, 0), (0.006, 0.012), (0.014, 0.018), (0.01, 0.026), (0, KNOB_M)],
                segments=10,
                material=METAL,
            )
            parts.append(knob.moved((left + wide * side, y0, under + tall / 2), turn=rotation("x", 90)))
    return parts

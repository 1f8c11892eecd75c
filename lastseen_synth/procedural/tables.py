"""Tables, desks and kitchen counters. They face -y."""

from __future__ import annotations

from lastseen_synth.procedural.blueprint import GLOSSY, Blueprint, Built, plain
from lastseen_synth.procedural.furniture_parts import (
    KNOB_M,
    SECOND,
    WOOD,
    WOOD_M,
    Makers,
    Rng,
    board,
    drawers_in,
    legs,
    top,
    woods,
)
from lastseen_synth.procedural.patterns import rgb
from lastseen_synth.shapes import box, revolved


def table(rng: Rng) -> Blueprint:
    return _four_legs(rng, low=False)


def coffee_table(rng: Rng) -> Blueprint:
    return _four_legs(rng, low=True)


def _four_legs(rng: Rng, *, low: bool) -> Blueprint:
    """Low ones have a board below."""
    wide, deep = (
        (rng.uniform(0.8, 1.2), rng.uniform(0.45, 0.7))
        if low
        else (rng.uniform(0.9, 1.8), rng.uniform(0.6, 0.95))
    )
    high, slab, thick = (
        (rng.uniform(0.38, 0.48) if low else rng.uniform(0.72, 0.76)),
        rng.uniform(0.022, 0.04),
        rng.uniform(0.04, 0.08),
    )
    tapered, materials = bool(rng.random() < 0.4), woods(rng)

    def build() -> Built:
        inset = thick / 2 + 0.03
        parts = board((-wide / 2, -deep / 2, high - slab), (wide / 2, deep / 2, high), WOOD, edge_m=0.005)
        parts += legs(wide, deep, high - slab, inset, thick, SECOND, tapered=tapered)
        for side in (-1, 1):
            y, x = side * (deep / 2 - inset), side * (wide / 2 - inset)
            parts += board(
                (-wide / 2 + inset, y - 0.01, high - slab - 0.08),
                (wide / 2 - inset, y + 0.01, high - slab),
                SECOND,
            )
            parts += board(
                (x - 0.01, -deep / 2 + inset, high - slab - 0.08),
                (x + 0.01, deep / 2 - inset, high - slab),
                SECOND,
            )
        if low:
            parts += board(
                (-wide / 2 + inset, -deep / 2 + inset, 0.12),
                (wide / 2 - inset, deep / 2 - inset, 0.14),
                SECOND,
            )
        return parts, materials()

    supports = [top(wide, deep, high)]
    if low:
        inset = 2 * (thick + 0.03)
        supports.append(top(wide - inset - thick, deep - inset, 0.14, high - slab - 0.08 - 0.14))
    return Blueprint(size_m=(wide, deep, high), build=build, supports=tuple(supports))


def round_table(rng: Rng) -> Blueprint:
    radius, high, materials = rng.uniform(0.3, 0.6), rng.uniform(0.5, 0.76), woods(rng)

    def build() -> Built:
        slab = [(radius - 0.02, high - 0.03), (radius, high - 0.015), (radius - 0.004, high), (0.0, high)]
        stem = [
            (radius * 0.6, 0),
            (radius * 0.6, 0.02),
            (0.05, 0.06),
            (0.035, high / 2),
            (0.06, high - 0.03),
            (radius - 0.02, high - 0.03),
        ]
        parts = [
            revolved(slab, segments=40, material=WOOD).tiled(WOOD_M),
            revolved(stem, segments=32, material=SECOND).tiled(WOOD_M),
        ]
        return parts, materials()

    inner = radius * 1.38  # the square inside the circle
    return Blueprint(size_m=(2 * radius, 2 * radius, high), build=build, supports=(top(inner, inner, high),))


def desk(rng: Rng) -> Blueprint:
    """With a chest of drawers under its right side."""
    wide, deep, high, materials = (
        rng.uniform(1.1, 1.6),
        rng.uniform(0.55, 0.75),
        rng.uniform(0.72, 0.75),
        woods(rng),
    )
    drawers, chest = int(rng.integers(2, 5)), rng.uniform(0.35, 0.45)

    def build() -> Built:
        slab = 0.03
        parts = board((-wide / 2, -deep / 2, high - slab), (wide / 2, deep / 2, high), WOOD, edge_m=0.004)
        parts += board(
            (-wide / 2 + 0.02, -deep / 2 + 0.04, 0), (-wide / 2 + 0.05, deep / 2 - 0.02, high - slab), SECOND
        )
        parts += board(
            (-wide / 2 + 0.05, deep / 2 - 0.06, high * 0.4),
            (wide / 2 - chest, deep / 2 - 0.04, high - slab),
            SECOND,
        )
        parts += drawers_in(
            (wide / 2 - chest, -deep / 2 + 0.03, 0.04),
            (wide / 2 - 0.02, deep / 2 - 0.02, high - slab),
            drawers,
            1,
        )
        return parts, materials()

    return Blueprint(size_m=(wide, deep, high), build=build, supports=(top(wide, deep, high),))


def counter(rng: Rng) -> Blueprint:
    """Kitchen cabinets under a stone top."""
    columns, high, deep = int(rng.integers(2, 5)), rng.uniform(0.86, 0.92), rng.uniform(0.58, 0.64)
    wide, materials = columns * rng.uniform(0.45, 0.6), woods(rng)
    stone = rgb(rng.random(), 0.08, float(rng.choice([0.2, 0.5, 0.85])))

    def build() -> Built:
        parts = board((-wide / 2, -deep / 2 + 0.06, 0), (wide / 2, deep / 2, 0.1), SECOND)
        parts += drawers_in(
            (-wide / 2, -deep / 2 + KNOB_M, 0.1), (wide / 2, deep / 2, high - 0.035), 1, columns
        )
        parts += box(
            (-wide / 2, -deep / 2, high - 0.035), (wide / 2, deep / 2, high), edge_m=0.004, materials=3
        )
        return parts, [*materials(), plain(stone, GLOSSY)]

    return Blueprint(size_m=(wide, deep, high), build=build, supports=(top(wide, deep, high),))


TABLES: Makers = {
    "table": ((table, 4), (coffee_table, 3), (round_table, 3), (desk, 4)),
    "counter": ((counter, 4),),
}

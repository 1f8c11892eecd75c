"""Shelves, cabinets and kitchen machines. They face -y."""

from __future__ import annotations

from itertools import pairwise

from lastseen_synth.assets import Support
from lastseen_synth.procedural.blueprint import GLOSSY, Blueprint, Built, plain
from lastseen_synth.procedural.furniture_parts import (
    KNOB_M,
    METAL,
    SECOND,
    WOOD,
    Makers,
    Rng,
    board,
    drawers_in,
    legs,
    top,
    woods,
)
from lastseen_synth.procedural.patterns import rgb
from lastseen_synth.shapes import box, revolved, rotation, tube


def chest(rng: Rng) -> Blueprint:
    rows, columns = ((4, 1), (3, 2), (5, 1))[int(rng.integers(3))]
    return _case(rng, rows, columns, columns * rng.uniform(0.6, 0.75), rng.uniform(0.72, 1.1))


def cupboard(rng: Rng) -> Blueprint:
    return _case(rng, 1, 2, rng.uniform(0.8, 1.1), rng.uniform(0.9, 1.4))


def wardrobe(rng: Rng) -> Blueprint:
    columns = int(rng.integers(2, 4))
    return _case(rng, 1, columns, columns * rng.uniform(0.42, 0.55), rng.uniform(1.75, 2.05))


def bedside(rng: Rng) -> Blueprint:
    return _case(rng, 2, 1, rng.uniform(0.4, 0.52), rng.uniform(0.45, 0.6))


def wall_cabinet(rng: Rng) -> Blueprint:
    """To hang in a kitchen."""
    return _case(
        rng, 1, 2, rng.uniform(0.6, 0.9), rng.uniform(0.55, 0.8), deep=rng.uniform(0.3, 0.38), hung=True
    )


def _case(
    rng: Rng, rows: int, columns: int, wide: float, high: float, *, deep: float = 0.0, hung: bool = False
) -> Blueprint:
    """Closed by drawers or doors."""
    deep = deep or rng.uniform(0.38, 0.5)
    foot, materials = (0.0 if hung else rng.uniform(0.04, 0.1)), woods(rng)

    def build() -> Built:
        lid = 0.025
        parts = board(
            (-wide / 2, -deep / 2 + 0.02, high - lid), (wide / 2, deep / 2, high), WOOD, edge_m=0.004
        )
        parts += drawers_in(
            (-wide / 2 + 0.01, -deep / 2 + KNOB_M, foot),
            (wide / 2 - 0.01, deep / 2, high - lid),
            rows,
            columns,
        )
        feet = [] if hung else legs(wide, deep, foot, 0.06, 0.05, SECOND, tapered=True)
        return [*parts, *feet], materials()

    return Blueprint(size_m=(wide, deep, high), build=build, supports=(top(wide, deep - 0.02, high, y=0.01),))


def shelf(rng: Rng) -> Blueprint:
    """Boards between two sides, open to the front; some have a back and an upright in the middle."""
    wide, deep, high = rng.uniform(0.6, 1.2), rng.uniform(0.26, 0.4), rng.uniform(0.8, 1.9)
    count = max(2, round(high / rng.uniform(0.3, 0.4)))  # compartments
    divided, backed, slab, materials = (
        bool(rng.random() < 0.3 and wide > 0.8),
        bool(rng.random() < 0.7),
        0.022,
        woods(rng),
    )
    levels = [0.06 + k * (high - slab - 0.06) / count for k in range(count)]
    gap = (high - slab - 0.06) / count - slab

    def build() -> Built:
        parts = board((-wide / 2, -deep / 2, high - slab), (wide / 2, deep / 2, high))
        for side in (-1, 1):
            x = side * (wide / 2 - slab / 2)
            parts += board((x - slab / 2, -deep / 2, 0), (x + slab / 2, deep / 2, high - slab))
        for z in levels:
            parts += board(
                (-wide / 2 + slab, -deep / 2 + 0.004, z), (wide / 2 - slab, deep / 2 - 0.008, z + slab)
            )
        if backed:
            parts += board(
                (-wide / 2 + slab, deep / 2 - 0.008, 0.04),
                (wide / 2 - slab, deep / 2, high - slab),
                SECOND,
                edge_m=0,
            )
        if divided:
            parts += board(
                (-slab / 2, -deep / 2 + 0.004, 0.06 + slab), (slab / 2, deep / 2 - 0.008, high - slab)
            )
        return parts, materials()

    supports = [top(wide, deep, high)]
    for z in reversed(levels):
        spans = (
            [(-wide / 2 + slab, -slab / 2), (slab / 2, wide / 2 - slab)]
            if divided
            else [(-wide / 2 + slab, wide / 2 - slab)]
        )
        supports += [
            Support(
                z_m=z + slab, x0_m=x0, y0_m=-deep / 2 + 0.004, x1_m=x1, y1_m=deep / 2 - 0.008, clearance_m=gap
            )
            for x0, x1 in spans
        ]
    return Blueprint(size_m=(wide, deep, high), build=build, supports=tuple(supports))


def bench(rng: Rng) -> Blueprint:
    """Low and long, for under a screen: drawers on the left, open on the right."""
    wide, deep, high, slab = rng.uniform(1.2, 1.8), rng.uniform(0.36, 0.45), rng.uniform(0.42, 0.55), 0.025
    materials, split = woods(rng), rng.uniform(-0.1, 0.1)

    def build() -> Built:
        parts = board((-wide / 2, -deep / 2, high - slab), (wide / 2, deep / 2, high), edge_m=0.004)
        parts += board((-wide / 2, -deep / 2, 0.05), (wide / 2, deep / 2, 0.05 + slab))
        parts += board((wide / 2 - slab, -deep / 2, 0.05 + slab), (wide / 2, deep / 2, high - slab))
        parts += board(
            (split, deep / 2 - 0.01, 0.05 + slab), (wide / 2 - slab, deep / 2, high - slab), SECOND
        )
        parts += drawers_in(
            (-wide / 2, -deep / 2 + KNOB_M, 0.05 + slab), (split, deep / 2, high - slab), 2, 1
        )
        return [*parts, *legs(wide, deep, 0.05, 0.06, 0.05, METAL, tapered=True)], materials()

    inside = Support(
        z_m=0.05 + slab,
        x0_m=split,
        y0_m=-deep / 2,
        x1_m=wide / 2 - slab,
        y1_m=deep / 2 - 0.01,
        clearance_m=high - 0.05 - 2 * slab,
    )
    return Blueprint(size_m=(wide, deep, high), build=build, supports=(top(wide, deep, high), inside))


def fridge(rng: Rng) -> Blueprint:
    return _appliance(rng, rng.uniform(0.55, 0.7), rng.uniform(1.4, 1.9), doors=2)


def stove(rng: Rng) -> Blueprint:
    return _appliance(rng, 0.6, rng.uniform(0.84, 0.9), doors=1)


def _appliance(rng: Rng, wide: float, high: float, *, doors: int) -> Blueprint:
    """Enamelled: a fridge of two doors, or a stove with a window in its door and plates on top."""
    deep, body = rng.uniform(0.58, 0.66), rgb(rng.random(), 0.04, float(rng.choice([0.25, 0.7, 0.92])))
    share = rng.uniform(0.55, 0.7)

    def build() -> Built:
        front = -deep / 2 + 0.029  # the handles stand out
        parts = box((-wide / 2, front + 0.03, 0.0), (wide / 2, deep / 2, high), edge_m=0.008, materials=0)
        edges = [0.06, high * share, high] if doors == 2 else [0.12, high - 0.13]
        for low, up in pairwise(edges):
            parts += box(
                (-wide / 2, front, low + 0.004), (wide / 2, front + 0.03, up - 0.004), edge_m=0.008, steps=2
            )
            capsule = [(-wide * 0.38, front - 0.02, up - 0.06), (wide * 0.38, front - 0.02, up - 0.06)]
            if doors == 2:
                capsule = [(wide * 0.42, front - 0.02, low + 0.1), (wide * 0.42, front - 0.02, low + 0.42)]
            ends = [[end, (end[0], front + 0.005, end[2])] for end in capsule]
            parts += [tube(path, 0.009, sides=8, material=2) for path in (capsule, *ends)]
        if doors == 1:
            parts += box((-wide * 0.36, front - 0.002, 0.25), (wide * 0.36, front, high - 0.28), materials=1)
            for k in range(4):
                plate = revolved(
                    [(0.085, high), (0.085, high + 0.004), (0, high + 0.004)], segments=24, material=1
                )
                parts.append(plate.moved((0.13 * (2 * (k % 2) - 1), 0.13 * (2 * (k // 2) - 1) + 0.02, 0)))
                knob = revolved([(0.02, 0), (0.017, 0.02), (0, 0.02)], segments=14, material=2)
                parts.append(
                    knob.moved((wide * (k - 1.5) / 4.6, front + 0.03, high - 0.06), turn=rotation("x", 90))
                )
        return parts, [plain(body, GLOSSY), plain((22, 22, 25), GLOSSY), plain((180, 180, 182), GLOSSY)]

    rise = 0.0 if doors == 2 else 0.004
    supports = (top(wide - 0.04, deep - 0.15, high, y=0.04),) if doors == 2 else ()
    return Blueprint(size_m=(wide, deep, high + rise), build=build, supports=supports)


STORAGE: Makers = {
    "shelf": ((shelf, 7),),
    "cabinet": ((chest, 4), (cupboard, 3), (wardrobe, 3), (bedside, 3), (bench, 3)),
    "wall": ((wall_cabinet, 3),),
    "appliance": ((fridge, 2), (stove, 2)),
}

"""Sofas, beds and chairs. They face -y."""

from __future__ import annotations

import numpy as np

from lastseen_synth.assets import Support
from lastseen_synth.procedural.blueprint import Blueprint, Built, in_material, plain
from lastseen_synth.procedural.furniture_parts import (
    FABRIC_M,
    SECOND,
    WOOD,
    WOOD_M,
    Makers,
    Rng,
    board,
    cushion,
    fabrics_of,
    legs,
    top,
    woods,
)
from lastseen_synth.shapes import box, revolved, rotation, tube


def sofa(rng: Rng) -> Blueprint:
    return _upholstered(rng, int(rng.integers(2, 4)))


def armchair(rng: Rng) -> Blueprint:
    return _upholstered(rng, 1)


def _upholstered(rng: Rng, seats: int) -> Blueprint:
    """With or without a loose cushion."""
    arm, deep = rng.uniform(0.12, 0.22), rng.uniform(0.78, 0.95)
    each, seat, high = rng.uniform(0.55, 0.7), rng.uniform(0.4, 0.46), rng.uniform(0.82, 0.92)
    wide, back, materials, loose = (
        seats * each + 2 * arm,
        rng.uniform(0.2, 0.26),
        fabrics_of(rng),
        bool(rng.random() < 0.6),
    )

    def build() -> Built:
        inner, rear = wide / 2 - arm, deep / 2
        parts = cushion(
            (-wide / 2 + 0.02, -rear + 0.03, 0.08), (wide / 2 - 0.02, rear, seat - 0.13), 0, soft_m=0.02
        )
        parts += cushion(
            (-wide / 2 + 0.02, rear - 0.12, seat - 0.16), (wide / 2 - 0.02, rear, high - 0.06), 0, soft_m=0.05
        )
        for side in (-1, 1):
            x = side * (wide / 2 - arm / 2)
            parts += cushion((x - arm / 2, -rear, 0.08), (x + arm / 2, rear, seat + 0.17), 0, soft_m=0.05)
        for k in range(seats):
            x0, x1 = -inner + k * each, -inner + (k + 1) * each
            parts += cushion(
                (x0 + 0.004, -rear, seat - 0.15), (x1 - 0.004, rear - 0.1, seat), 0, soft_m=0.045
            )
            parts += cushion(
                (x0 + 0.006, rear - back, seat - 0.03), (x1 - 0.006, rear - 0.05, high), 0, soft_m=0.075
            )
        if loose:
            pad = box((-0.18, -0.06, -0.18), (0.18, 0.06, 0.18), edge_m=0.059, steps=2, materials=1)
            lean = rotation("z", 20) @ rotation("x", -18)
            parts += [
                p.tiled(FABRIC_M).moved((-inner + 0.24, rear - back - 0.11, seat + 0.17), turn=lean)
                for p in pad
            ]
        return [*parts, *legs(wide, deep, 0.09, 0.08, 0.05, 2, tapered=True)], materials()

    supports = tuple(
        Support(
            z_m=seat,
            x0_m=-wide / 2 + arm + k * each + 0.05,
            y0_m=-deep / 2 + 0.05,
            x1_m=-wide / 2 + arm + (k + 1) * each - 0.05,
            y1_m=deep / 2 - back - 0.03,
        )
        for k in range(1 if loose else 0, seats)  # the loose cushion lies on the first seat
    )
    return Blueprint(size_m=(wide, deep, high), build=build, supports=supports)


def bed(rng: Rng) -> Blueprint:
    wide, long, high = float(rng.choice([0.95, 1.45, 1.65])), rng.uniform(2.02, 2.15), rng.uniform(0.85, 1.1)
    cover, fabrics, timber = rng.uniform(0.45, 0.58), fabrics_of(rng), woods(rng)
    pillows = 1 if wide < 1.2 else 2

    def build() -> Built:
        head = long / 2
        parts = in_material(board((-wide / 2, head - 0.06, 0), (wide / 2, head, high)), 2)
        parts += in_material(board((-wide / 2, -head, 0.1), (wide / 2, head - 0.06, 0.28)), 2)
        parts += in_material(legs(wide, long, 0.1, 0.06, 0.07, 0, tapered=False), 2)
        parts += cushion(
            (-wide / 2 + 0.02, -head + 0.02, 0.26),
            (wide / 2 - 0.02, head - 0.07, cover - 0.06),
            3,
            soft_m=0.05,
        )
        parts += cushion((-wide / 2 - 0.0, -head + 0.0, 0.3), (wide / 2, head - 0.62, cover), 0, soft_m=0.06)
        each = wide / pillows
        for k in range(pillows):
            x = -wide / 2 + each * (k + 0.5)
            parts += cushion(
                (x - each * 0.44, head - 0.56, cover - 0.08),
                (x + each * 0.44, head - 0.1, cover + 0.09),
                1,
                soft_m=0.085,
            )
        linen = plain((226, 224, 216))
        return parts, [fabrics()[0], fabrics()[1], timber()[0], linen]

    place = Support(
        z_m=cover, x0_m=-wide / 2 + 0.1, y0_m=-long / 2 + 0.1, x1_m=wide / 2 - 0.1, y1_m=long / 2 - 0.72
    )
    return Blueprint(size_m=(wide, long, high), build=build, supports=(place,))


def chair(rng: Rng) -> Blueprint:
    """With slats, a panel or a padded back."""
    wide, deep, seat, high = (
        rng.uniform(0.4, 0.46),
        rng.uniform(0.42, 0.48),
        rng.uniform(0.44, 0.47),
        rng.uniform(0.8, 0.95),
    )
    style, tapered, materials, fabrics = (
        int(rng.integers(3)),
        bool(rng.random() < 0.5),
        woods(rng),
        fabrics_of(rng),
    )

    def build() -> Built:
        rear = deep / 2
        parts = legs(wide, deep, seat - 0.03, 0.03, 0.038, SECOND, tapered=tapered)
        parts += board(
            (-wide / 2, -deep / 2, seat - 0.035),
            (wide / 2, deep / 2, seat - (0.02 if style == 2 else 0)),
            WOOD,
            edge_m=0.008,
        )
        for x in (-1, 1):
            post = [
                (x * (wide / 2 - 0.02), rear - 0.02, seat - 0.03),
                (x * (wide / 2 - 0.02), rear - 0.015, high - 0.01),
            ]
            parts.append(tube(post, 0.015, material=SECOND))
        if style == 0:
            for k in range(3):
                z = seat + 0.12 + (high - seat - 0.16) * k / 2
                parts += board(
                    (-wide / 2 + 0.02, rear - 0.026, z - 0.025),
                    (wide / 2 - 0.02, rear - 0.008, z + 0.04),
                    SECOND,
                )
        elif style == 1:
            parts += board(
                (-wide / 2 + 0.01, rear - 0.03, seat + 0.15),
                (wide / 2 - 0.01, rear - 0.008, high),
                SECOND,
                edge_m=0.008,
            )
        else:
            parts += cushion(
                (-wide / 2 + 0.01, -deep / 2 + 0.01, seat - 0.03),
                (wide / 2 - 0.01, rear - 0.05, seat),
                3,
                soft_m=0.014,
            )
            parts += cushion(
                (-wide / 2 + 0.01, rear - 0.05, seat + 0.12), (wide / 2 - 0.01, rear, high), 3, soft_m=0.02
            )
        return parts, [*materials(), fabrics()[0]]

    place = top(wide - 0.04, deep - 0.1, seat, y=-0.03)
    return Blueprint(size_m=(wide, deep, high), build=build, supports=(place,))


def stool(rng: Rng) -> Blueprint:
    radius, high, materials = (
        rng.uniform(0.15, 0.19),
        float(rng.choice([0.45, 0.65])) + rng.uniform(0, 0.06),
        woods(rng),
    )

    def build() -> Built:
        seat = [(radius * 0.9, high - 0.035), (radius, high - 0.02), (radius - 0.005, high), (0, high)]
        under = [(0.0, high - 0.035), (radius * 0.9, high - 0.035)]
        parts = [revolved(p, segments=28, material=WOOD).tiled(WOOD_M) for p in (seat, under)]
        for k in range(4):
            angle = np.pi / 4 + k * np.pi / 2
            out = np.array([np.cos(angle), np.sin(angle), 0])
            parts.append(
                tube(
                    [out * radius * 0.95 + [0, 0, 0.003], out * radius * 0.6 + [0, 0, high - 0.03]],
                    [0.013, 0.017],
                    material=SECOND,
                )
            )
        return parts, materials()

    inner = radius * 1.3
    return Blueprint(size_m=(2 * radius, 2 * radius, high), build=build, supports=(top(inner, inner, high),))


SEATS: Makers = {
    "sofa": ((sofa, 4),),
    "bed": ((bed, 4),),
    "chair": ((chair, 6), (stool, 3), (armchair, 3)),
}

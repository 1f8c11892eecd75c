"""Procedural cartons, cans, tins, bottles, tubes and books; one function makes a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from lastseen_synth.procedural import packaging
from lastseen_synth.procedural.blueprint import GLOSSY, SATIN, Blueprint, Built, face_px, painted, plain
from lastseen_synth.procedural.packaging import Brand
from lastseen_synth.procedural.patterns import Colour, noise, rgb, shaded
from lastseen_synth.shapes import Part, box, disc, revolved, rotation, tube

Profile = list[tuple[float, float]]
Rng = np.random.Generator


def cartons(rng: Rng, brands: Sequence[Brand], *, small: bool) -> list[Blueprint]:
    """Boxes of card with six different sides."""
    if small:
        size = (rng.uniform(0.07, 0.15), rng.uniform(0.03, 0.07), rng.uniform(0.05, 0.13))
    else:
        size = (rng.uniform(0.14, 0.21), rng.uniform(0.045, 0.085), rng.uniform(0.2, 0.3))
    return [Blueprint(size_m=size, build=partial(_carton, brand, size)) for brand in brands]


def _carton(brand: Brand, size: tuple[float, float, float]) -> Built:
    wide, deep, high = size
    parts = box(
        (-wide / 2, -deep / 2, 0), (wide / 2, deep / 2, high), edge_m=0.0012, materials=(0, 1, 2, 3, 4, 5)
    )
    pictures = [
        packaging.front(brand, face_px(wide, high)),
        packaging.back(brand, face_px(wide, high)),
        packaging.side(brand, face_px(deep, high), table=True),
        packaging.side(brand, face_px(deep, high), table=False),
        packaging.top(brand, face_px(wide, deep)),
    ]
    return parts, [*(painted(p, SATIN) for p in pictures), plain(brand.palette.paper)]


def gables(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    """Milk cartons: a square body, a sloping roof and a fin along its ridge."""
    wide, body, roof = rng.uniform(0.065, 0.095), rng.uniform(0.14, 0.2), rng.uniform(0.03, 0.04)
    cap = bool(rng.random() < 0.5)
    size = (wide, wide, body + roof + 0.018)
    return [Blueprint(size_m=size, build=partial(_gable, brand, wide, body, roof, cap)) for brand in brands]


def _gable(brand: Brand, wide: float, body: float, roof: float, cap: bool) -> Built:
    half, ridge = wide / 2, body + roof
    parts = box((-half, -half, 0), (half, half, body), edge_m=0.001, materials=(0, 1, 2, 2, 3, 3))
    front = np.array([(-half, -half, body), (half, -half, body), (half, 0, ridge), (-half, 0, ridge)])
    gable = np.array([(half, -half, body), (half, half, body), (half, 0, ridge)])
    for turn in (rotation("z", 0), rotation("z", 180)):
        for corners in (front @ turn.T, gable @ turn.T):
            parts.append(_flat(corners, 4))
    parts += box((-half, -0.002, ridge), (half, 0.002, ridge + 0.018), materials=4)
    if cap:
        lid = revolved([(0.016, 0), (0.016, 0.012), (0.014, 0.014), (0, 0.014)], segments=16, material=5)
        tilt = rotation("x", float(np.rad2deg(np.arctan2(roof, half))))
        parts.append(lid.moved((0, -half / 2, body + roof / 2), turn=tilt))
    px = face_px(wide, body)
    side = packaging.side(brand, px, table=True)
    pictures = [packaging.front(brand, px), packaging.back(brand, px), side]
    plains = [plain(c, SATIN) for c in (brand.palette.paper, brand.palette.accent, (240, 240, 238))]
    return parts, [*(painted(p, SATIN) for p in pictures), *plains]


def _flat(corners: np.ndarray, material: int) -> Part:
    """A flat polygon, counter-clockwise."""
    normal = np.cross(corners[1] - corners[0], corners[2] - corners[0])
    fan = [(0, k, k + 1) for k in range(1, len(corners) - 1)]
    return Part(
        positions=corners,
        normals=np.tile(normal / np.linalg.norm(normal), (len(corners), 1)),
        uv=np.array([(0, 0), (1, 0), (1, 1), (0, 1)], float)[: len(corners)],
        triangles=np.array(fan),
        material=material,
    )


def cans(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    slim = rng.random() < 0.5
    radius = rng.uniform(0.026, 0.034) if slim else rng.uniform(0.034, 0.052)
    high = rng.uniform(0.115, 0.16) if slim else rng.uniform(0.06, 0.12)
    seed = int(rng.integers(2**31))
    size = (2 * radius, 2 * radius, high)
    return [
        Blueprint(size_m=size, build=partial(_can, brand, radius, high, bool(slim), seed)) for brand in brands
    ]


def _can(brand: Brand, radius: float, high: float, slim: bool, seed: int) -> Built:
    rim, inset = 0.004, radius * (0.85 if slim else 0.96)
    neck = 0.012 if slim else 0.002
    shoulder, groove = high - rim - neck, inset - 0.002
    lid = [(radius, shoulder), (inset, high - rim), (inset, high), (groove, high), (groove, high - 0.004)]
    parts = [
        revolved([(radius, rim + neck), (radius, shoulder)], material=0),
        revolved([(inset, 0), (inset, rim), (radius, rim + neck)], material=1),
        revolved(lid, material=1),
        disc(groove, high - 0.004, material=2),
        disc(inset, 0, up=False, material=1),
    ]
    label = painted(packaging.band(brand, face_px(2 * np.pi * radius, high, 320)), SATIN)
    return parts, [label, plain((190, 192, 196), GLOSSY), painted(_can_top(seed), GLOSSY)]


def _can_top(seed: int) -> np.ndarray:
    y, x = np.mgrid[-1:1:96j, -1:1:96j]
    distance = np.hypot(x, y)
    rings = 0.12 * np.sin(distance * 28) * (distance > 0.55)
    pull = -0.25 * ((np.abs(x) < 0.14) & (np.abs(y + 0.15) < 0.35)) + 0.2 * (np.hypot(x, y + 0.4) < 0.1)
    return shaded((185, 187, 190), rings + pull + 0.02 * noise(np.random.default_rng(seed), 96))


def tins(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    """Low tins with a lid, round or square."""
    wide, high, is_round = rng.uniform(0.07, 0.19), rng.uniform(0.035, 0.09), bool(rng.random() < 0.5)
    deep = wide if is_round else wide * rng.uniform(0.6, 1.0)
    build = _round_tin if is_round else _square_tin
    return [
        Blueprint(size_m=(wide, deep, high), build=partial(build, brand, wide, deep, high))
        for brand in brands
    ]


def _round_tin(brand: Brand, wide: float, deep: float, high: float) -> Built:
    radius, seam = wide / 2, high * 0.62
    parts = [
        revolved([(radius - 0.004, 0), (radius - 0.0015, 0.003), (radius - 0.0015, seam)], material=0),
        revolved(
            [(radius - 0.002, seam), (radius, seam), (radius, high - 0.003), (radius - 0.004, high)],
            material=1,
        ),
        disc(radius - 0.004, high, material=2),
        disc(radius - 0.004, 0, up=False, material=1),
    ]
    band = painted(packaging.band(brand, face_px(np.pi * wide, seam, 320)), GLOSSY)
    return parts, [
        band,
        plain(brand.palette.accent, GLOSSY),
        painted(packaging.lid(brand, (200, 200)), GLOSSY),
    ]


def _square_tin(brand: Brand, wide: float, deep: float, high: float) -> Built:
    seam = high * 0.62
    body = box(
        (-wide / 2 + 0.002, -deep / 2 + 0.002, 0),
        (wide / 2 - 0.002, deep / 2 - 0.002, seam),
        edge_m=0.006,
        steps=2,
        materials=(0, 0, 1, 1, 1, 1),
    )
    lid = box(
        (-wide / 2, -deep / 2, seam),
        (wide / 2, deep / 2, high),
        edge_m=0.006,
        steps=2,
        materials=(1, 1, 1, 1, 2, 1),
    )
    front = painted(packaging.top(brand, face_px(wide, seam)), GLOSSY)
    return [*body, *lid], [
        front,
        plain(brand.palette.accent, GLOSSY),
        painted(packaging.front(brand, face_px(wide, deep)), GLOSSY),
    ]


def bottles(rng: Rng, brands: Sequence[Brand], *, kind: str) -> list[Blueprint]:
    """kind: bottle (long neck), jar (wide lid) or pump (soap)."""
    radius = rng.uniform(0.03, 0.045)
    if kind == "jar":
        high, neck, shoulder, cap = rng.uniform(0.07, 0.15), radius * rng.uniform(0.82, 0.96), 0.1, 0.016
    elif kind == "pump":
        high, neck, shoulder, cap = rng.uniform(0.13, 0.18), radius * 0.38, 0.12, 0.018
    else:
        high, neck, shoulder, cap = (
            rng.uniform(0.19, 0.29),
            rng.uniform(0.012, 0.015),
            rng.uniform(0.2, 0.38),
            0.02,
        )
    flat = rng.uniform(0.6, 0.8) if kind == "pump" and rng.random() < 0.5 else 1.0
    bent = rng.uniform(0.2, 0.8)
    spout = 0.045 if kind == "pump" else 0.0
    size = (2 * radius, max(2 * radius * flat, radius * flat + spout), high + spout)
    clear = rng.random() < 0.5
    plans = []
    for k, brand in enumerate(brands):
        content = (
            rgb(rng.random(), rng.uniform(0.3, 0.8), rng.uniform(0.2, 0.7)) if clear else brand.palette.accent
        )
        shape = (radius, high, neck, shoulder, cap, bent, flat)
        plans.append(Blueprint(size_m=size, build=partial(_bottle, brand, shape, content, kind, k)))
    return plans


def _bottle(brand: Brand, shape: tuple[float, ...], content: Colour, kind: str, variant: int) -> Built:
    radius, high, neck, shoulder, cap, bent, flat = shape
    body_top = high * (1 - shoulder) - cap
    label_low, label_high = body_top * 0.14, body_top * 0.86
    curve = np.linspace(0, 1, 9)
    slope = neck + (radius - neck) * (bent * (1 - curve) + (1 - bent) * np.cos(curve * np.pi / 2))
    rise = body_top + (high - cap - body_top) * (curve if bent < 0.5 else curve**0.7)
    foot: Profile = [(radius * 0.8, 0), (radius * 0.96, 0.003), (radius, 0.01), (radius, label_low)]
    parts = [
        disc(radius * 0.8, 0, up=False, material=1),
        revolved(foot, material=1),
        revolved([(radius * 1.004, label_low), (radius * 1.004, label_high)], material=0),
        revolved([(radius, label_high), *zip(slope.tolist(), rise.tolist())], material=1),
        revolved(
            [(neck * 1.12, high - cap), (neck * 1.12, high - 0.002), (neck * 1.04, high), (0, high)],
            material=2,
        ),
    ]
    if flat < 1:
        parts = [p.stretched((1, flat, 1)) for p in parts]
    if kind == "pump":
        stem = revolved([(0.005, high), (0.005, high + 0.03)], segments=10, material=2)
        path = [(0, 0.012, high + 0.036), (0, -0.025, high + 0.038), (0, -0.043, high + 0.033)]
        parts += [stem, tube(path, [0.012, 0.007, 0.005], sides=12, material=2)]
    wrap = painted(packaging.band(brand, face_px(2 * np.pi * radius, label_high - label_low, 320)), SATIN)
    return parts, [
        wrap,
        plain(content, GLOSSY),
        plain(brand.palette.pop if variant % 2 else brand.palette.paper, SATIN),
    ]


def tubes(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    """Tubes of paste or cream, lying, flat at the far end."""
    radius, long = rng.uniform(0.016, 0.026), rng.uniform(0.12, 0.19)
    size = (2 * radius * 1.45, long + 0.022, 2.09 * radius)
    return [Blueprint(size_m=size, build=partial(_tube, brand, radius, long)) for brand in brands]


def _tube(brand: Brand, radius: float, long: float) -> Built:
    body = revolved([(radius, z) for z in np.linspace(0, long, 10)], segments=24, material=0)
    share = body.positions[:, 2:3] / long
    pressed = np.concatenate([1 + 0.45 * share, 1 - 0.96 * share**1.3, np.ones_like(share)], 1)
    normals = body.normals / pressed
    soft = replace(
        body,
        positions=body.positions * pressed,
        normals=normals / np.linalg.norm(normals, axis=1, keepdims=True),
    )
    cap = revolved(
        [(0, -0.022), (radius * 0.72, -0.022), (radius * 0.8, -0.002), (radius, 0)], segments=24, material=1
    )
    # The label faces up, and both ends touch the ground.
    lean = float(np.rad2deg(np.arctan2(radius, long)))
    lying = [p.moved(turn=rotation("x", -90 - lean)) for p in (soft, cap)]
    label = packaging.band(brand, face_px(2 * np.pi * radius, long, 288))
    return lying, [painted(label, SATIN), plain(brand.palette.pop, SATIN)]


def books(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    """Lying on their back, or standing with the spine to the front."""
    wide, tall, thick = rng.uniform(0.11, 0.19), rng.uniform(0.17, 0.26), rng.uniform(0.012, 0.045)
    standing, style, hard = bool(rng.random() < 0.35), int(rng.integers(100)), bool(rng.random() < 0.6)
    size = (thick, wide, tall) if standing else (wide, tall, thick)
    return [
        Blueprint(size_m=size, build=partial(_book, brand, (wide, tall, thick), standing, style + k, hard))
        for k, brand in enumerate(brands)
    ]


def _book(brand: Brand, size: tuple[float, float, float], standing: bool, style: int, hard: bool) -> Built:
    wide, tall, thick = size
    board, inset = (0.0025, 0.004) if hard else (0.0008, 0.0)
    left, right, near, far = -wide / 2, wide / 2, -tall / 2, tall / 2
    # Lying: the front cover up, its spine at -x.
    upper = box((left, near, thick - board), (right, far, thick), edge_m=0.0006, materials=(3, 3, 3, 3, 0, 3))
    under = box((left, near, 0), (right, far, board), edge_m=0.0006, materials=(3, 3, 3, 3, 3, 2))
    spine = box((left, near, 0), (left + board, far, thick), materials=(3, 3, 1, 3, 3, 3))
    pages = box((left + board, near + inset, board), (right - inset, far - inset, thick - board), materials=4)
    # Pictures upright when the book stands or is turned over, not as they lie.
    under[5] = replace(under[5], uv=1 - under[5].uv)
    spine[2] = replace(spine[2], uv=np.stack([spine[2].uv[:, 1], 1 - spine[2].uv[:, 0]], 1))
    parts = [*upper, *under, *spine, *pages]
    if standing:  # x -> y, y -> z, z -> x: the spine to the front, the front cover to the right
        parts = [p.moved(turn=np.eye(3)[[2, 0, 1]]) for p in parts]
    edge = np.random.default_rng([brand.seed, 8])
    lines = shaded((236, 228, 208), 0.06 * noise(edge, 128, fall=0.2, stretch=(16, 0.3)))
    back = packaging.back(brand, face_px(wide, tall))
    front = packaging.book(brand, face_px(wide, tall), style=style)
    strip = packaging.spine(brand, face_px(thick, tall))
    return parts, [
        painted(front, SATIN),
        painted(strip, SATIN),
        painted(back, SATIN),
        plain(brand.palette.paper),
        painted(lines),
    ]

"""Procedural lamps, screens, plants, rugs, curtains, doors and windows, facing -y."""

from __future__ import annotations

import numpy as np
from PIL import Image

from lastseen_synth.meshes import Material
from lastseen_synth.procedural.blueprint import (
    GLOSSY,
    SATIN,
    Blueprint,
    Built,
    face_px,
    in_material,
    painted,
    plain,
)
from lastseen_synth.procedural.drawing import reduced, sheet
from lastseen_synth.procedural.furniture_parts import (
    FABRIC_M,
    STYLES,
    Makers,
    Rng,
    board,
    fabric_material,
    wood_material,
)
from lastseen_synth.procedural.patterns import fabric_colour, rgb, wallpaper
from lastseen_synth.procedural.pictures import art
from lastseen_synth.shapes import Part, box, disc, revolved, rotation, smooth_normals, tube
from lastseen_synth.texture import colour_texture, picture_texture


def floor_lamp(rng: Rng) -> Blueprint:
    return _lamp(rng, high=rng.uniform(1.35, 1.65), radius=rng.uniform(0.17, 0.24))


def table_lamp(rng: Rng) -> Blueprint:
    return _lamp(rng, high=rng.uniform(0.32, 0.5), radius=rng.uniform(0.1, 0.14))


def _lamp(rng: Rng, *, high: float, radius: float) -> Blueprint:
    """A foot, a stem and a shade that glows."""
    shade_high, narrow, lit = (
        radius * rng.uniform(1.0, 1.6),
        rng.uniform(0.55, 0.95),
        rng.uniform(0.5, 1.1),
    )
    shade, metal = (
        rgb(0.11, rng.uniform(0.05, 0.45), 0.95),
        rgb(rng.random(), 0.3, float(rng.choice([0.15, 0.4, 0.8]))),
    )
    bulge = rng.uniform(0.012, 0.05) if high < 0.7 else 0.012

    def build() -> Built:
        low, foot = high - shade_high, radius * 0.65
        stem = [
            (foot, 0),
            (foot, 0.012),
            (0.014, 0.03),
            (bulge, low * 0.4),
            (0.012, low),
            (0.012, high - 0.02),
            (0, high - 0.02),
        ]
        outside = [(radius, low), (radius * narrow, high)]
        inside = [(radius * narrow - 0.002, high), (radius - 0.002, low)]
        parts = [
            revolved(stem, segments=20, material=1),
            revolved(outside, material=0),
            revolved(inside, material=0),
        ]
        parts.append(disc(foot, 0, up=False, segments=20, material=1))
        glow = Material(texture=colour_texture(shade), emission=lit)
        return parts, [glow, plain(metal, GLOSSY)]

    return Blueprint(size_m=(2 * radius, 2 * radius, high), build=build)


def television(rng: Rng) -> Blueprint:
    """A screen on a foot; its picture is emissive."""
    wide = rng.uniform(0.7, 1.3)
    tall, seed, lit = wide * 0.58, int(rng.integers(2**31)), rng.uniform(0.5, 1.0)
    high = tall + 0.06

    def build() -> Built:
        parts = box((-wide / 2, -0.02, 0.06), (wide / 2, 0.025, high), edge_m=0.004, materials=1)
        pane = box((-wide / 2 + 0.012, -0.0206, 0.075), (wide / 2 - 0.012, -0.02, high - 0.012), materials=0)
        foot = box((-wide * 0.22, -0.11, 0), (wide * 0.22, 0.11, 0.012), edge_m=0.003, materials=1)
        neck = box((-0.04, 0, 0.012), (0.04, 0.02, 0.062), materials=1)
        show = art(np.random.default_rng(seed), *face_px(wide, tall))
        return [*parts, pane[0], *foot, *neck], [
            painted(show, emission=lit),
            plain((18, 18, 20), SATIN),
        ]

    return Blueprint(size_m=(wide, 0.22, high), build=build)


def laptop(rng: Rng) -> Blueprint:
    wide, deep, seed = rng.uniform(0.3, 0.37), rng.uniform(0.21, 0.25), int(rng.integers(2**31))
    body, lean_deg = rgb(0.6, 0.05, float(rng.choice([0.2, 0.6, 0.8]))), rng.uniform(8, 28)

    def build() -> Built:
        keys, draw = sheet(face_px(wide, deep), body)
        width, height = keys.size
        for row in range(5):
            for column in range(14):
                x, y = width * (0.06 + column * 0.063), height * (0.1 + row * 0.095)
                draw.rectangle([x, y, x + width * 0.053, y + height * 0.078], fill=(28, 28, 30))
        draw.rectangle(
            [width * 0.36, height * 0.63, width * 0.64, height * 0.93], outline=(90, 90, 90), width=3
        )
        parts = box(
            (-wide / 2, -deep / 2, 0), (wide / 2, deep / 2, 0.014), edge_m=0.004, materials=(1, 1, 1, 1, 0, 1)
        )
        screen = box((-wide / 2, -0.005, 0), (wide / 2, 0, deep), edge_m=0.002, materials=(2, 1, 1, 1, 1, 1))
        parts += [p.moved((0, deep / 2, 0.012), turn=rotation("x", -lean_deg)) for p in screen]
        show = art(np.random.default_rng(seed), *face_px(wide * 0.94, deep * 0.9))
        framed, _ = sheet(face_px(wide, deep), (12, 12, 12))
        inner = (round(framed.size[0] * 0.94), round(framed.size[1] * 0.9))
        corner = (round(framed.size[0] * 0.03), round(framed.size[1] * 0.05))
        framed.paste(Image.fromarray(show).resize(inner), corner)
        return parts, [
            painted(reduced(keys)),
            plain(body, SATIN),
            painted(reduced(framed), GLOSSY, emission=0.6),
        ]

    lean = np.deg2rad(lean_deg)
    return Blueprint(
        size_m=(wide, deep * (1 + float(np.sin(lean))), 0.012 + deep * float(np.cos(lean))), build=build
    )


def photo_frame(rng: Rng) -> Blueprint:
    tall, lean_deg = rng.uniform(0.13, 0.24), rng.uniform(10, 16)
    wide, seed, wood = (
        tall * float(rng.choice([0.75, 1.33])),
        int(rng.integers(2**31)),
        int(rng.integers(STYLES)),
    )

    def build() -> Built:
        tilt = rotation("x", -lean_deg)
        rim = 0.018
        parts = [
            *board((-wide / 2, 0, 0), (wide / 2, 0.012, rim)),
            *board((-wide / 2, 0, tall - rim), (wide / 2, 0.012, tall)),
        ]
        for x in (-wide / 2, wide / 2 - rim):
            parts += board((x, 0, rim), (x + rim, 0.012, tall - rim))
        parts += box(
            (-wide / 2 + rim, 0.004, rim), (wide / 2 - rim, 0.01, tall - rim), materials=(1, 0, 0, 0, 0, 0)
        )
        leaning = [p.moved(turn=tilt) for p in parts]
        prop = tube([(0, tall * 0.35, 0.006), (0, tall * 0.18 + 0.012, tall * 0.5)], 0.006, material=0)
        photo = art(np.random.default_rng(seed), *face_px(wide, tall))
        return [*leaning, prop], [wood_material(0, wood), painted(photo, GLOSSY)]

    high = tall * float(np.cos(np.deg2rad(lean_deg)))
    return Blueprint(size_m=(wide, tall * 0.35 + 0.006, high), build=build)


def floor_plant(rng: Rng) -> Blueprint:
    return _plant(rng, high=rng.uniform(0.7, 1.4), pot=rng.uniform(0.13, 0.18))


def small_plant(rng: Rng) -> Blueprint:
    return _plant(rng, high=rng.uniform(0.18, 0.35), pot=rng.uniform(0.045, 0.07))


def _plant(rng: Rng, *, high: float, pot: float) -> Blueprint:
    """Leaves that arch out of a pot."""
    leaves, broad, seed = int(rng.integers(14, 30)), rng.uniform(0.06, 0.16), int(rng.integers(2**31))
    green, clay = (
        rgb(rng.uniform(0.24, 0.38), rng.uniform(0.4, 0.75), rng.uniform(0.3, 0.6)),
        fabric_colour(rng),
    )
    spread = high * rng.uniform(0.7, 0.9)

    def build() -> Built:
        own = np.random.default_rng(seed)
        rim, soil = pot * 1.7, pot * 1.55
        body = [(pot * 0.7, 0), (pot, rim), (pot * 0.92, rim), (pot * 0.9, soil)]
        parts = [
            revolved(body, segments=24, material=1),
            disc(pot * 0.9, soil, material=2),
            disc(pot * 0.7, 0, up=False, material=1),
        ]
        for k in range(leaves):
            angle = k * 2.399963 + own.normal(0, 0.2)  # golden angle: leaves do not overlap
            lift = own.uniform(0.45, 1.0)
            parts.append(
                _leaf(angle, soil, (high - soil) * lift, spread / 2 * (1.25 - 0.8 * lift), broad * high, own)
            )
        return parts, [plain(green, SATIN), plain(clay, SATIN), plain((62, 44, 32))]

    return Blueprint(size_m=(max(0.77 * spread, 2 * pot), max(0.77 * spread, 2 * pot), high), build=build)


def _leaf(angle: float, z: float, rise: float, reach: float, broad: float, rng: Rng) -> Part:
    t = np.linspace(0, 1, 7)
    droop = rng.uniform(0.05, 0.45)
    out, up = reach * t**1.2, rise * (t * (1 + droop) - droop * t**2.5)
    half = broad / 2 * np.sin(np.pi * np.clip(t, 0.04, 0.98)) ** 0.8
    ahead, side = np.array([np.cos(angle), np.sin(angle), 0]), np.array([-np.sin(angle), np.cos(angle), 0])
    spine = out[:, None] * ahead + up[:, None] * [0, 0, 1] + [0, 0, z]
    fold = np.array([0, 0, 0.25])
    rows = np.stack([spine - half[:, None] * (side - fold), spine, spine + half[:, None] * (side + fold)], 1)
    corner = (np.arange(6)[:, None] * 3 + np.arange(2)).ravel()
    triangles = np.concatenate(
        [np.stack([corner, corner + 4, corner + 1], 1), np.stack([corner, corner + 3, corner + 4], 1)]
    )
    positions = rows.reshape(-1, 3)
    normals = smooth_normals(positions, triangles)
    uv = np.dstack(np.broadcast_arrays(np.array([0, 0.5, 1])[None], t[:, None])).reshape(-1, 2)
    return Part(positions=positions, normals=normals, uv=uv, triangles=triangles)


def rug(rng: Rng) -> Blueprint:
    wide, deep, is_round, seed = (
        rng.uniform(1.2, 2.2),
        rng.uniform(0.8, 1.6),
        bool(rng.random() < 0.3),
        int(rng.integers(2**31)),
    )
    ground, ink = fabric_colour(rng), fabric_colour(rng)

    def build() -> Built:
        tile = wallpaper(np.random.default_rng(seed), ground, ink)
        cloth = Material(texture=picture_texture(tile, wrap=True))
        if is_round:
            parts = [
                revolved([(wide / 2, 0), (wide / 2, 0.01)], material=1),
                disc(wide / 2, 0.01, segments=40).tiled(0.6),
            ]
        else:
            parts = in_material(box((-wide / 2, -deep / 2, 0), (wide / 2, deep / 2, 0.01)), 1)
            middle = box(
                (-wide / 2 + 0.06, -deep / 2 + 0.06, 0.01),
                (wide / 2 - 0.06, deep / 2 - 0.06, 0.0105),
                materials=0,
            )
            parts.append(middle[4].tiled(0.6))
        return parts, [cloth, plain(ink)]

    return Blueprint(size_m=(wide, wide if is_round else deep, 0.01 if is_round else 0.0105), build=build)


def curtain(rng: Rng) -> Blueprint:
    """One curtain in folds."""
    wide, high, folds = rng.uniform(0.5, 1.0), rng.uniform(2.0, 2.35), int(rng.integers(5, 10))
    seed, style, phase = int(rng.integers(3)), int(rng.integers(STYLES)), rng.random()

    def build() -> Built:
        columns, rows = folds * 6 + 1, 6
        u, v = np.linspace(0, 1, columns), np.linspace(0, 1, rows)
        wave = np.sin(2 * np.pi * (folds * u[None] + phase) + 0.5 * np.sin(3 * v[:, None]))
        y = 0.045 * wave * (1.1 - 0.5 * v[:, None])
        x, z = np.broadcast_arrays(wide * (u[None] - 0.5), high * v[:, None])
        positions = np.dstack([x, y, z]).reshape(-1, 3)
        corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
        up = corner + columns
        triangles = np.concatenate(
            [np.stack([corner, corner + 1, up + 1], 1), np.stack([corner, up + 1, up], 1)]
        )
        uv = np.dstack(np.broadcast_arrays(u[None] * wide * 1.6, v[:, None] * high)).reshape(-1, 2) / FABRIC_M
        cloth = Part(
            positions=positions, normals=smooth_normals(positions, triangles), uv=uv, triangles=triangles
        )
        return [cloth], [fabric_material(seed, style)]

    return Blueprint(size_m=(wide, 0.1, high), build=build)


def door(rng: Rng) -> Blueprint:
    wide, high, panels, wood = (
        rng.uniform(0.8, 0.95),
        rng.uniform(2.02, 2.12),
        int(rng.integers(1, 4)),
        int(rng.integers(STYLES)),
    )
    white = bool(rng.random() < 0.5)

    def build() -> Built:
        parts = in_material(board((-wide / 2, -0.06, 0), (-wide / 2 + 0.07, 0.06, high)), 1)
        parts += in_material(board((wide / 2 - 0.07, -0.06, 0), (wide / 2, 0.06, high)), 1)
        parts += in_material(board((-wide / 2 + 0.07, -0.06, high - 0.07), (wide / 2 - 0.07, 0.06, high)), 1)
        left, right, top = -wide / 2 + 0.07, wide / 2 - 0.07, high - 0.07
        parts += board((left, -0.02, 0), (right, 0.02, top))
        for k in range(panels):
            low, up = 0.15 + (top - 0.15) * k / panels, (top - 0.15) * (k + 1) / panels
            parts += board((left + 0.12, -0.032, low), (right - 0.12, 0.032, up), edge_m=0.012)
        for y in (-1, 1):
            lever = [
                (right - 0.06, y * 0.02, 1.02),
                (right - 0.06, y * 0.055, 1.02),
                (right - 0.17, y * 0.06, 1.02),
            ]
            parts.append(tube(lever, 0.009, sides=8, material=2))
        leaf = plain((232, 230, 222), SATIN) if white else wood_material(0, wood)
        return parts, [leaf, plain((238, 236, 230)) if white else leaf, plain((180, 178, 170), GLOSSY)]

    return Blueprint(size_m=(wide, 0.138, high), build=build)


def window(rng: Rng) -> Blueprint:
    """A frame and its bars, without panes."""
    wide, high, columns, rows = (
        rng.uniform(0.8, 1.6),
        rng.uniform(1.0, 1.4),
        int(rng.integers(1, 4)),
        int(rng.integers(1, 3)),
    )
    wood, white = int(rng.integers(STYLES)), bool(rng.random() < 0.7)

    def build() -> Built:
        rim, parts = 0.07, []
        for x in (-wide / 2, wide / 2 - rim):
            parts += board((x, -0.06, 0), (x + rim, 0.06, high))
        for z in (0.0, high - rim):
            parts += board((-wide / 2 + rim, -0.06, z), (wide / 2 - rim, 0.06, z + rim))
        for k in range(1, columns):
            x = -wide / 2 + wide * k / columns
            parts += board((x - 0.02, -0.025, rim), (x + 0.02, 0.025, high - rim))
        for k in range(1, rows):
            z = high * k / rows
            parts += board((-wide / 2 + rim, -0.02, z - 0.02), (wide / 2 - rim, 0.02, z + 0.02))
        parts += board((-wide / 2 - 0.04, -0.16, -0.03), (wide / 2 + 0.04, 0.06, 0.0))
        return parts, [plain((240, 239, 235), SATIN) if white else wood_material(0, wood)]

    return Blueprint(size_m=(wide + 0.08, 0.22, high + 0.03), build=build)


FITTINGS: Makers = {
    "lamp": ((floor_lamp, 4),),
    "screen": ((television, 4),),
    "plant": ((floor_plant, 5),),
    "rug": ((rug, 5),),
    "curtain": ((curtain, 4),),
}
SMALL: Makers = {
    "lamp": ((table_lamp, 4),),
    "plant": ((small_plant, 4),),
    "screen": ((laptop, 3),),
    "frame": ((photo_frame, 5),),
}
OPENINGS: Makers = {"door": ((door, 4),), "window": ((window, 4),)}

"""Procedural crockery, balls, clocks and soft toys; one function makes a family in several colours and
prints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from lastseen_synth.capsules import Capsule, ball, blended_surface, bounds, capsule
from lastseen_synth.meshes import Material
from lastseen_synth.procedural.blueprint import GLOSSY, SATIN, Blueprint, Built, face_px, painted, plain
from lastseen_synth.procedural.drawing import icon, readable, reduced, sheet, star, write
from lastseen_synth.procedural.packaging import Brand
from lastseen_synth.procedural.patterns import Colour, carpet, mixed, wallpaper
from lastseen_synth.shapes import disc, revolved, rotation, tube
from lastseen_synth.texture import picture_texture

Rng = np.random.Generator


def _print(brand: Brand, size: tuple[int, int], style: int) -> np.ndarray:
    """Decoration around a pot: bands, a row of pictures, a pattern or a name."""
    palette = brand.palette
    image, draw = sheet(size, palette.paper)
    width, height = image.size
    match style % 4:
        case 0:
            for k, colour in enumerate((palette.accent, palette.pop, palette.accent)):
                draw.rectangle(
                    [0, height * (0.15 + 0.25 * k), width, height * (0.28 + 0.25 * k)], fill=colour
                )
        case 1:
            for k in range(4):
                icon(draw, brand.icon, (width * (k + 0.5) / 4, height / 2), height * 0.33, *palette.icon)
        case 2:
            return wallpaper(np.random.default_rng(style), palette.paper, palette.accent, px=128)
        case _:
            for middle in (0.25, 0.75):
                write(
                    draw,
                    brand.name,
                    (width * (middle - 0.17), height * 0.2, width * (middle + 0.17), height * 0.8),
                    palette.ink,
                )
    return reduced(image)


def mugs(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    radius, high, taper = rng.uniform(0.036, 0.046), rng.uniform(0.08, 0.115), rng.uniform(0.8, 1.0)
    style, reach = int(rng.integers(100)), rng.uniform(0.026, 0.034)
    size = (1.97 * radius + reach + 0.005, 2 * radius, high)
    return [
        Blueprint(size_m=size, build=partial(_mug, brand, radius, high, taper, reach, style))
        for brand in brands
    ]


def _mug(brand: Brand, radius: float, high: float, taper: float, reach: float, style: int) -> Built:
    foot, wall = radius * taper, 0.004
    outside = [(foot, 0.004), (radius, high * 0.6), (radius, high - 0.002)]
    lip = [
        (radius, high - 0.002),
        (radius - wall / 2, high),
        (radius - wall, high - 0.002),
        (foot - wall, 0.01),
    ]
    angle = np.linspace(-1.25, 1.25, 11)
    handle = np.stack(
        [radius * 0.97 + reach * (np.cos(angle) - 0.3) / 0.7, 0 * angle, high * (0.5 + 0.33 * np.sin(angle))],
        1,
    )
    parts = [
        revolved(outside, material=0),
        revolved([(foot - 0.004, 0), (foot, 0.004)], material=1),
        revolved(lip, material=2),
        disc(foot - wall, 0.01, material=2),
        disc(foot - 0.004, 0, up=False, material=1),
        tube(handle, 0.0052, flat=1.4, material=1),
    ]
    band = painted(_print(brand, face_px(2 * np.pi * radius, high), style), GLOSSY)
    inside = (240, 238, 232) if style % 2 else brand.palette.accent
    return parts, [band, plain(brand.palette.paper, GLOSSY), plain(inside, GLOSSY)]


def bowls(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    radius, high, style = rng.uniform(0.06, 0.11), rng.uniform(0.04, 0.075), int(rng.integers(100))
    size = (2 * radius, 2 * radius, high)
    return [Blueprint(size_m=size, build=partial(_bowl, brand, radius, high, style)) for brand in brands]


def _bowl(brand: Brand, radius: float, high: float, style: int) -> Built:
    t = np.linspace(0, 1, 9)
    foot = radius * 0.45
    r, z = (
        foot + (radius - foot) * np.sin(t * np.pi / 2),
        0.006 + (high - 0.006) * (1 - np.cos(t * np.pi / 2)),
    )
    inner = [(x - 0.004, y + 0.002) for x, y in zip(r[::-1].tolist(), z[::-1].tolist())]
    inner[0] = (radius - 0.003, high)
    parts = [
        revolved([(foot, 0), *zip(r.tolist(), z.tolist())], material=0),
        revolved([(radius, high), *inner], material=1),
        disc(foot - 0.004, 0.008, material=1),
        disc(foot, 0, up=False, material=1),
    ]
    band = painted(_print(brand, face_px(2 * np.pi * radius, high * 1.4), style), GLOSSY)
    return parts, [band, plain(brand.palette.accent if style % 2 else brand.palette.paper, GLOSSY)]


def vases(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    high, radius, phase, style = (
        rng.uniform(0.16, 0.3),
        rng.uniform(0.04, 0.07),
        rng.uniform(0.5, 2.2),
        int(rng.integers(100)),
    )
    size = (2 * radius, 2 * radius, high)
    return [
        Blueprint(size_m=size, build=partial(_vase, brand, radius, high, phase, style)) for brand in brands
    ]


def _vase(brand: Brand, radius: float, high: float, phase: float, style: int) -> Built:
    t = np.linspace(0, 1, 15)
    r = 0.62 + 0.38 * np.sin(phase + t * 4.2)
    r = radius * r / r.max()
    wall, inner = list(zip(r.tolist(), (t * high).tolist())), np.maximum(r - 0.004, 0.003)
    parts = [
        revolved(wall, material=0),
        revolved([wall[-1], *zip(inner[:9:-1].tolist(), (t[:9:-1] * high).tolist())], material=1),
        disc(float(inner[10]), float(t[10]) * high, material=1),
        disc(float(r[0]), 0, up=False, material=1),
    ]
    band = painted(_print(brand, face_px(2 * np.pi * radius * 0.7, high), style), GLOSSY)
    return parts, [band, plain(brand.palette.accent, GLOSSY)]


def balls(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    radius, style = float(rng.choice([0.033, 0.05, 0.075, 0.105])), int(rng.integers(100))
    size = (2 * radius,) * 3
    return [
        Blueprint(size_m=(size[0], size[1], size[2]), build=partial(_ball, brand, radius, style))
        for brand in brands
    ]


def _ball(brand: Brand, radius: float, style: int) -> Built:
    angle = np.linspace(-np.pi / 2, np.pi / 2, 17)
    sphere = revolved(
        list(zip((radius * np.cos(angle)).clip(0).tolist(), (radius * np.sin(angle)).tolist())), segments=32
    )
    palette = brand.palette
    image, draw = sheet((256, 128), palette.paper)
    width, height = image.size
    match style % 4:
        case 0:
            for k in range(6):
                colour = (palette.paper, palette.accent, palette.pop)[k % 3]
                draw.rectangle([width * k / 6, 0, width * (k + 1) / 6, height], fill=colour)
        case 1:
            for k in range(5):
                for row, y in enumerate((0.3, 0.7)):
                    x = width * ((k + 0.5 * row + 0.25) / 5 % 1)
                    draw.polygon(
                        star(x, height * y, height * 0.14, 5, 0.42 if style % 8 > 3 else 0.85),
                        fill=palette.accent,
                    )
        case 2:
            draw.rectangle([0, height * 0.36, width, height * 0.64], fill=palette.accent)
            for middle in (0.25, 0.75):
                write(
                    draw,
                    brand.name,
                    (width * (middle - 0.16), height * 0.4, width * (middle + 0.16), height * 0.6),
                    readable(palette.accent),
                )
        case _:
            for k in range(4):
                draw.line([(width * k / 4, 0), (width * k / 4, height)], fill=palette.ink, width=6)
            curve = np.linspace(0, width, 60)
            for offset in (0.5, -0.5):
                seam = height * (0.5 + 0.3 * np.sin(2 * np.pi * 2 * curve / width + np.pi * offset))
                draw.line(list(zip(curve.tolist(), seam.tolist())), fill=palette.ink, width=6)
    tipped = rotation("x", 25) @ rotation("z", 20)
    return [sphere.moved(turn=tipped)], [painted(reduced(image), SATIN)]


def clocks(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    """Alarm clocks: a drum with its face to the front, on two feet."""
    radius, deep, bells = rng.uniform(0.04, 0.065), rng.uniform(0.03, 0.05), bool(rng.random() < 0.5)
    hours = int(rng.integers(4096))
    size = (2 * radius, deep, 2 * radius + 0.012 + (radius * 0.18 if bells else 0))
    return [
        Blueprint(size_m=size, build=partial(_clock, b, radius, deep, bells, hours + k))
        for k, b in enumerate(brands)
    ]


def _clock(brand: Brand, radius: float, deep: float, bells: bool, hours: int) -> Built:
    forward = rotation("x", 90)  # from facing up to facing the front, upright
    drum = revolved(
        [
            (radius * 0.94, 0),
            (radius, 0.004),
            (radius, deep - 0.004),
            (radius * 0.94, deep),
            (radius * 0.88, deep - 0.003),
        ],
        material=1,
    )
    centre = (0, deep / 2, radius + 0.012)
    face = disc(radius * 0.88, deep - 0.003, material=0)
    back = disc(radius * 0.94, 0, up=False, material=1)
    parts = [p.moved(centre, turn=forward) for p in (drum, face, back)]
    for x in (-0.55, 0.55):
        parts.append(
            tube([(x * radius, 0, 0), (x * radius * 0.8, 0, radius * 0.5)], [0.004, 0.007], material=2)
        )
        if bells:
            dome = revolved(
                [(radius * 0.33, 0), (radius * 0.25, radius * 0.2), (0, radius * 0.28)],
                segments=16,
                material=2,
            )
            parts.append(dome.moved((x * radius, 0, 0.012 + radius * 1.85), turn=rotation("y", x * 55)))
    palette = brand.palette
    image, draw = sheet((160, 160), (248, 246, 238) if hours % 3 else palette.ink)
    ink = readable((248, 246, 238) if hours % 3 else palette.ink)
    for k in range(12):
        x, y = 160 + 122 * np.sin(k * np.pi / 6), 160 - 122 * np.cos(k * np.pi / 6)
        write(draw, str(k or 12), (x - 20, y - 14, x + 20, y + 14), ink)
    for turns, long, width in ((hours / 720, 70, 12), (hours / 60, 105, 8)):
        x, y = 160 + long * np.sin(2 * np.pi * turns), 160 - long * np.cos(2 * np.pi * turns)
        draw.line([(160, 160), (x, y)], fill=palette.accent, width=width)
    return parts, [painted(reduced(image), SATIN), plain(palette.paper, GLOSSY), plain(palette.pop, GLOSSY)]


def toys(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    """Sitting soft animals: bears, rabbits, cats, ducks; a family is one animal in several furs."""
    high, animal = rng.uniform(0.16, 0.26), str(rng.choice(["bear", "rabbit", "cat", "duck"]))
    fur, snout = _animal(high, animal, plump=rng.uniform(0.85, 1.15), nose=rng.uniform(0.8, 1.2))
    low, top = bounds([*fur, *snout])
    wide, deep, tall = (top - low).tolist()
    return [
        Blueprint(size_m=(wide, deep, tall), build=partial(_toy, b, fur, snout, high, animal)) for b in brands
    ]


def _animal(h: float, animal: str, *, plump: float, nose: float) -> tuple[list[Capsule], list[Capsule]]:
    """Capsules in the colour of the fur, and in the second colour; h: height without ears."""
    fur = [
        ball((0, 0, 0.3 * h), 0.24 * h * plump, (1, 0.85, 1.1)),
        ball((0, -0.02 * h, 0.68 * h), 0.2 * h, (1.08, 1, 0.95)),
    ]
    if animal == "duck":
        foot = ball((0.12 * h, -0.16 * h, 0.045 * h), 0.075 * h, (1, 1.5, 0.55))
        snout = [ball((0, -0.2 * h, 0.64 * h), 0.085 * h * nose, (1.2, 1.3, 0.45)), foot, foot.mirrored()]
        limbs = [capsule((0.22 * h, 0, 0.4 * h), (0.27 * h, 0.08 * h, 0.22 * h), 0.06 * h, 0.04 * h)]
    else:
        snout = [ball((0, -0.17 * h, 0.63 * h), 0.085 * h * nose)]
        limbs = [
            capsule((0.2 * h, -0.03 * h, 0.42 * h), (0.25 * h, -0.16 * h, 0.26 * h), 0.07 * h, 0.065 * h),
            capsule((0.13 * h, -0.1 * h, 0.1 * h), (0.17 * h, -0.3 * h, 0.085 * h), 0.085 * h, 0.08 * h),
        ]
        limbs += {
            "bear": [ball((0.15 * h, 0, 0.85 * h), 0.07 * h, (1, 0.6, 1))],
            "rabbit": [capsule((0.07 * h, 0, 0.82 * h), (0.11 * h, 0.03 * h, 1.08 * h), 0.05 * h, 0.045 * h)],
            "cat": [capsule((0.1 * h, 0, 0.82 * h), (0.14 * h, 0, 0.93 * h), 0.06 * h, 0.015 * h)],
        }[animal]
    return [*fur, *limbs, *(b.mirrored() for b in limbs)], snout


def _toy(brand: Brand, fur: Sequence[Capsule], snout: Sequence[Capsule], h: float, animal: str) -> Built:
    palette = brand.palette
    cell = h / 19
    body = blended_surface(fur, cell_m=cell, blend_m=h * 0.02, material=0).tiled(0.08)
    muzzle = blended_surface(snout, cell_m=cell * 0.8, blend_m=h * 0.01, material=1).tiled(0.08)
    eyes = [
        blended_surface(
            [ball((x * h, -0.19 * h, 0.73 * h), 0.02 * h)], cell_m=h * 0.009, blend_m=h * 0.001, material=2
        )
        for x in (-0.075, 0.075)
    ]
    tip = blended_surface(
        [ball((0, -0.17 * h - snout[0].start_radius, 0.65 * h), 0.025 * h, (1.4, 1, 1))],
        cell_m=h * 0.01,
        blend_m=h * 0.001,
        material=2,
    )
    scarf = revolved(
        [(0.13 * h, 0.5 * h), (0.185 * h, 0.53 * h), (0.14 * h, 0.57 * h)], segments=20, material=3
    )
    rng = np.random.default_rng([brand.seed, 9])
    furs = [
        painted_tile(carpet(rng, c, px=128))
        for c in (palette.paper, palette.pop if animal == "duck" else palette.accent)
    ]
    parts = [body, muzzle, *eyes, scarf.tiled(0.05)] + ([tip] if animal != "duck" else [])
    return parts, [*furs, plain((15, 12, 12), GLOSSY), painted_tile(_stripes(palette.pop, palette.ink))]


def painted_tile(image: np.ndarray) -> Material:
    return Material(texture=picture_texture(image, wrap=True))


def _stripes(a: Colour, b: Colour) -> np.ndarray:
    across = (np.arange(64) // 16 % 2)[None].repeat(64, 0)
    return mixed(a, b, across.astype(float)).astype(np.uint8)

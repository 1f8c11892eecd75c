"""Procedural remotes, phones, torches, cameras, toy cars and puzzle cubes; one function makes a family."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from PIL import Image

from lastseen_synth.procedural.blueprint import GLOSSY, SATIN, Blueprint, Built, face_px, painted, plain
from lastseen_synth.procedural.drawing import icon, readable, reduced, sheet, write
from lastseen_synth.procedural.packaging import Brand
from lastseen_synth.procedural.patterns import Colour, rgb
from lastseen_synth.procedural.pictures import art
from lastseen_synth.shapes import box, disc, revolved, rotation

Rng = np.random.Generator
KEYS = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "*", "0", "#")


def _bodies(rng: Rng, brands: Sequence[Brand]) -> list[Colour]:
    """Devices come in black, grey, white and the brand's colour; no two of a family in the same."""
    dull = [rgb(rng.random(), 0.06, value) for value in (0.1, 0.42, 0.88)]
    order = rng.permutation(len(brands)).tolist()
    return [dull[n] if n < 3 else brand.palette.accent for n, brand in zip(order, brands)]


def remotes(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    wide, long, thick = rng.uniform(0.04, 0.055), rng.uniform(0.13, 0.2), rng.uniform(0.014, 0.024)
    layout = int(rng.integers(2**31))
    return [
        Blueprint(size_m=(wide, long, thick), build=partial(_remote, b, (wide, long, thick), layout, body))
        for b, body in zip(brands, _bodies(rng, brands))
    ]


def _remote(brand: Brand, size: tuple[float, float, float], layout: int, body: Colour) -> Built:
    wide, long, thick = size
    rng = np.random.default_rng(layout)
    image, draw = sheet(face_px(wide, long), body)
    width, height = image.size
    columns, ring, gap = int(rng.integers(3, 5)), rng.uniform(0.3, 0.45), rng.random() < 0.5
    key, ink = readable(body), body
    soft = tuple(int(0.55 * a + 0.45 * b) for a, b in zip(key, body))
    draw.ellipse(
        [width * 0.42, height * 0.02, width * 0.58, height * 0.02 + width * 0.16], fill=(210, 30, 30)
    )
    for row in range(int(rng.integers(4, 6))):
        for column in range(columns):
            x, y = width * (column + 0.75) / (columns + 0.5), height * (0.52 + row * 0.075)
            r = width * 0.33 / columns
            draw.rounded_rectangle(
                [x - r, y - r * 0.8, x + r, y + r * 0.8], r * (0.8 if gap else 0.2), fill=soft
            )
            write(
                draw,
                KEYS[(row * columns + column) % 12],
                (x - r * 0.5, y - r * 0.5, x + r * 0.5, y + r * 0.5),
                ink,
            )
    cx, cy, r = width / 2, height * 0.3, width * ring
    draw.ellipse([cx - r, cy - r, cx + r, cy + r], fill=soft)
    draw.ellipse([cx - r * 0.4, cy - r * 0.4, cx + r * 0.4, cy + r * 0.4], fill=brand.palette.pop)
    for k in range(3):
        x = width * (0.25 + 0.25 * k)
        draw.ellipse(
            [x - 8, height * 0.13 - 8, x + 8, height * 0.13 + 8], fill=brand.palette.pop if k == 1 else soft
        )
    write(draw, brand.name, (width * 0.25, height * 0.93, width * 0.75, height * 0.97), key)
    parts = box(
        (-wide / 2, -long / 2, 0),
        (wide / 2, long / 2, thick),
        edge_m=thick * 0.35,
        steps=2,
        materials=(1, 1, 1, 1, 0, 1),
    )
    return parts, [painted(reduced(image), SATIN), plain(body, SATIN)]


def phones(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    """Lying with the screen up; it shows a picture, its icons and the time."""
    size = (rng.uniform(0.066, 0.078), rng.uniform(0.138, 0.162), rng.uniform(0.008, 0.012))
    rows = int(rng.integers(3, 6))
    return [
        Blueprint(size_m=size, build=partial(_phone, b, size, rows, body, 10 * 60 + 37 * k))
        for k, (b, body) in enumerate(zip(brands, _bodies(rng, brands)))
    ]


def _phone(brand: Brand, size: tuple[float, float, float], rows: int, body: Colour, minutes: int) -> Built:
    wide, long, thick = size
    rng = np.random.default_rng([brand.seed, 10])
    image, draw = sheet(face_px(wide, long), (12, 12, 14))
    width, height = image.size
    screen = art(rng, round(width * 0.46), round(height * 0.455))
    image.paste(
        Image.fromarray(screen).resize((round(width * 0.92), round(height * 0.91))),
        (round(width * 0.04), round(height * 0.045)),
    )
    write(
        draw,
        f"{minutes // 60}:{minutes % 60:02d}",
        (width * 0.2, height * 0.1, width * 0.8, height * 0.2),
        (250, 250, 250),
    )
    for row in range(rows):
        for column in range(4):
            x, y, r = width * (0.17 + 0.22 * column), height * (0.9 - 0.1 * row), width * 0.075
            colour = rgb(rng.random(), rng.uniform(0.3, 0.9), rng.uniform(0.6, 1))
            draw.rounded_rectangle([x - r, y - r, x + r, y + r], r * 0.4, fill=colour)
    back, on_back = sheet(face_px(wide, long), body)
    icon(on_back, brand.icon, (back.size[0] / 2, back.size[1] / 2), back.size[0] * 0.2, *brand.palette.icon)
    on_back.rounded_rectangle(
        [back.size[0] * 0.08, back.size[1] * 0.04, back.size[0] * 0.45, back.size[1] * 0.2],
        20,
        fill=(20, 20, 22),
    )
    parts = box(
        (-wide / 2, -long / 2, 0),
        (wide / 2, long / 2, thick),
        edge_m=thick * 0.3,
        steps=2,
        materials=(1, 1, 1, 1, 0, 2),
    )
    return parts, [
        painted(reduced(image), GLOSSY, emission=0.25),
        plain(body, GLOSSY),
        painted(reduced(back), GLOSSY),
    ]


def torches(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    radius, long, head = rng.uniform(0.012, 0.017), rng.uniform(0.11, 0.19), rng.uniform(1.4, 2.0)
    size = (2 * radius * head, long, 2 * radius * head)
    return [
        Blueprint(size_m=size, build=partial(_torch, b, radius, long, head, body))
        for b, body in zip(brands, _bodies(rng, brands))
    ]


def _torch(brand: Brand, radius: float, long: float, head: float, body: Colour) -> Built:
    wide, neck, front = radius * head, long * 0.68, long * 0.8
    image, draw = sheet((128, 128), body)
    for k in range(8):
        draw.rectangle([0, 20 + 14 * k, 256, 26 + 14 * k], fill=tuple(int(c * 0.6) for c in body))
    draw.rectangle([0, 150, 256, 215], fill=brand.palette.accent)
    write(draw, brand.name, (70, 160, 190, 205), readable(brand.palette.accent))
    flare = [
        (radius, neck),
        (wide, front),
        (wide, long - 0.002),
        (wide * 0.92, long),
        (wide * 0.85, long - 0.004),
    ]
    parts = [
        revolved([(radius * 0.9, 0), (radius, 0.003), (radius, neck)], segments=20, material=0),
        revolved(flare, segments=20, material=1),
        disc(wide * 0.85, long - 0.004, segments=20, material=2),
        disc(radius * 0.9, 0, up=False, segments=20, material=1),
    ]
    lens, on_lens = sheet((64, 64), (225, 225, 215))
    for r, colour in ((0.34, (180, 182, 180)), (0.24, (240, 240, 230)), (0.1, (255, 250, 200))):
        on_lens.ellipse([128 * (0.5 - r), 128 * (0.5 - r), 128 * (0.5 + r), 128 * (0.5 + r)], fill=colour)
    lying = [p.moved(turn=rotation("x", 90) @ rotation("z", 180)) for p in parts]  # light ahead, name up
    return lying, [
        painted(reduced(image), SATIN),
        plain(brand.palette.pop, SATIN),
        painted(reduced(lens), GLOSSY),
    ]


def cameras(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    wide, deep, high = rng.uniform(0.1, 0.14), rng.uniform(0.035, 0.05), rng.uniform(0.06, 0.085)
    lens, reach = high * rng.uniform(0.34, 0.44), rng.uniform(0.025, 0.05)
    size = (wide, deep + reach, high + 0.014)
    return [
        Blueprint(size_m=size, build=partial(_camera, b, (wide, deep, high), lens, reach, body))
        for b, body in zip(brands, _bodies(rng, brands))
    ]


def _camera(brand: Brand, size: tuple[float, float, float], lens: float, reach: float, body: Colour) -> Built:
    wide, deep, high = size
    image, draw = sheet(face_px(wide, high), body)
    width, height = image.size
    draw.rectangle([0, 0, width, height * 0.28], fill=(205, 205, 200))
    draw.rectangle([0, height * 0.28, width, height * 0.33], fill=brand.palette.accent)
    draw.rounded_rectangle([width * 0.7, height * 0.05, width * 0.92, height * 0.22], 8, fill=(235, 235, 225))
    write(draw, brand.name, (width * 0.06, height * 0.06, width * 0.4, height * 0.24), (20, 20, 20))
    rear, on_rear = sheet(face_px(wide, high), body)
    on_rear.rectangle([width * 0.1, height * 0.25, width * 0.7, height * 0.9], fill=(25, 28, 35))
    for k in range(4):
        on_rear.ellipse(
            [width * 0.8, height * (0.3 + 0.15 * k), width * 0.88, height * (0.38 + 0.15 * k)],
            fill=(200, 200, 200),
        )
    parts = box(
        (-wide / 2, 0, 0), (wide / 2, deep, high), edge_m=0.006, steps=2, materials=(0, 1, 2, 2, 3, 2)
    )
    barrel = revolved(
        [(lens, 0), (lens, reach * 0.8), (lens * 0.9, reach), (lens * 0.75, reach - 0.006)],
        segments=24,
        material=4,
    )
    glass = disc(lens * 0.75, reach - 0.006, segments=24, material=5)
    parts += [p.moved((0, 0, high * 0.42), turn=rotation("x", 90)) for p in (barrel, glass)]
    button = revolved([(0.009, 0), (0.009, 0.008), (0, 0.008)], segments=14, material=6)
    parts += [
        button.moved((wide * 0.3, deep / 2, high)),
        *box((-0.018, deep * 0.2, high), (0.018, deep * 0.8, high + 0.014), edge_m=0.002, materials=2),
    ]
    eye, on_eye = sheet((64, 64), (20, 22, 30))
    for r, colour in ((0.42, (40, 30, 70)), (0.3, (15, 15, 25)), (0.15, (60, 90, 140))):
        on_eye.ellipse([128 * (0.5 - r), 128 * (0.5 - r), 128 * (0.5 + r), 128 * (0.5 + r)], fill=colour)
    metal = plain((205, 205, 200), GLOSSY)
    dark = plain((35, 35, 38), SATIN)
    return parts, [
        painted(reduced(image), SATIN),
        painted(reduced(rear), SATIN),
        plain(body, SATIN),
        metal,
        dark,
        painted(reduced(eye), GLOSSY),
        plain(brand.palette.pop, GLOSSY),
    ]


def cars(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    """Toy cars and vans, nose to the left."""
    long, wide, high = rng.uniform(0.09, 0.2), rng.uniform(0.045, 0.075), rng.uniform(0.045, 0.07)
    nose, tail, wheel = rng.uniform(0.2, 0.35), rng.uniform(0.0, 0.22), high * rng.uniform(0.2, 0.26)
    size = (long, wide + 0.006, high)
    return [
        Blueprint(size_m=size, build=partial(_car, b, (long, wide, high), nose, tail, wheel, k))
        for k, b in enumerate(brands)
    ]


def _car(
    brand: Brand, size: tuple[float, float, float], nose: float, tail: float, wheel: float, number: int
) -> Built:
    long, wide, high = size
    palette, low, belt = brand.palette, wheel * 0.7, wheel + (high - wheel) * 0.42
    flank, draw = sheet(face_px(long, belt - low, 200), palette.paper)
    draw.rectangle([0, flank.size[1] * 0.45, flank.size[0], flank.size[1] * 0.75], fill=palette.accent)
    x, y, r = flank.size[0] / 2, flank.size[1] / 2, flank.size[1] * 0.4
    draw.ellipse([x - r, y - r, x + r, y + r], fill=(250, 250, 250))
    write(draw, str(7 + 11 * number), (x - r * 0.7, y - r * 0.6, x + r * 0.7, y + r * 0.6), (20, 20, 20))
    panes, on_panes = sheet((128, 64), palette.paper)
    for a, b in ((0.06, 0.46), (0.54, 0.94)):
        on_panes.rounded_rectangle([256 * a, 18, 256 * b, 104], 10, fill=(60, 75, 90))
    bonnet, on_bonnet = sheet((128, 96), palette.paper)
    icon(on_bonnet, brand.icon, (128, 96), 70, *palette.icon)
    parts = box(
        (-long / 2, -wide / 2, low),
        (long / 2, wide / 2, belt),
        edge_m=0.006,
        steps=2,
        materials=(0, 0, 3, 3, 3, 3),
    )
    cabin = box(
        (-long * (0.5 - nose), -wide * 0.45, belt - 0.002),
        (long * (0.5 - tail), wide * 0.45, high),
        edge_m=0.008,
        steps=2,
        materials=(1, 1, 1, 1, 2, 3),
    )
    tyre = revolved(
        [(wheel * 0.5, -0.006), (wheel, -0.005), (wheel, 0.005), (wheel * 0.55, 0.006)],
        segments=18,
        material=4,
    )
    hub = disc(wheel * 0.55, 0.006, segments=14, material=5)
    wheels = []
    for x in (-0.3, 0.3):
        for side, turn in ((-1, rotation("x", 90)), (1, rotation("x", -90))):
            wheels += [p.moved((x * long, side * (wide / 2 - 0.003), wheel), turn=turn) for p in (tyre, hub)]
    return [*parts, *cabin, *wheels], [
        painted(reduced(flank), GLOSSY),
        painted(reduced(panes), GLOSSY),
        painted(reduced(bonnet), GLOSSY),
        plain(palette.paper, GLOSSY),
        plain((28, 28, 30)),
        plain(palette.pop, GLOSSY),
    ]


def cubes(rng: Rng, brands: Sequence[Brand]) -> list[Blueprint]:
    """Puzzle cubes and building blocks: a grid of colours, or letters and pictures."""
    side, count = rng.uniform(0.045, 0.075), int(rng.integers(1, 5))
    return [Blueprint(size_m=(side, side, side), build=partial(_cube, b, side, count)) for b in brands]


def _cube(brand: Brand, side: float, count: int) -> Built:
    rng = np.random.default_rng([brand.seed, 11])
    palette, images = brand.palette, []
    colours = [palette.paper, palette.accent, palette.pop, (245, 245, 245), (30, 90, 190), (220, 40, 40)]
    for k in range(6):
        image, draw = sheet((96, 96), (22, 22, 24) if count > 1 else palette.paper)
        if count == 1:
            draw.rectangle([10, 10, 182, 182], outline=colours[1 + k % 2], width=12)
            if k % 2:
                icon(draw, brand.icon, (96, 96), 60, *palette.icon)
            else:
                write(draw, brand.name[k // 2].upper(), (50, 50, 142, 142), palette.ink)
        else:
            step = 192 / count
            for row in range(count):
                for column in range(count):
                    x, y = column * step, row * step
                    draw.rounded_rectangle(
                        [x + 5, y + 5, x + step - 5, y + step - 5], 6, fill=colours[int(rng.integers(6))]
                    )
        images.append(painted(reduced(image), SATIN))
    half = side / 2
    return box(
        (-half, -half, 0), (half, half, side), edge_m=side * 0.05, steps=2, materials=(0, 1, 2, 3, 4, 5)
    ), images

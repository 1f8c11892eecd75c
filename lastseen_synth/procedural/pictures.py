"""Procedural pictures for walls, screens and book covers: uint8 [height, width, 3] sRGB."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw
from scipy.spatial import cKDTree

from lastseen_synth.procedural.patterns import Colour, mixed, noise, petal, rgb


def _canvas(field: np.ndarray) -> Image.Image:
    return Image.fromarray(np.clip(field, 0, 255).astype(np.uint8))


def _gradient(width: int, height: int, top: Colour, bottom: Colour) -> Image.Image:
    share = np.broadcast_to(np.linspace(0, 1, height)[:, None], (height, width))
    return _canvas(mixed(top, bottom, share))


def _ridge(rng: np.random.Generator, width: int, level: float, rough: float, amplitude: float) -> list[float]:
    x = np.arange(width) / width
    curve = np.zeros(width)
    for k in range(1, 40):
        curve += rng.normal() / k**rough * np.sin(2 * np.pi * (k * x + rng.random()))
    return (level + amplitude * curve / max(float(np.abs(curve).max()), 1e-9)).tolist()


def landscape(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Sky, sun or moon, and ranges of hills that pale with distance; water in front of some."""
    hue, evening = rng.random(), rng.random() < 0.5
    sky_top = rgb(hue if evening else 0.58, rng.uniform(0.3, 0.7), rng.uniform(0.4, 0.9))
    horizon = rgb(rng.uniform(0.03, 0.14) if evening else 0.55, rng.uniform(0.1, 0.6), 0.97)
    image = _gradient(width, height, sky_top, horizon)
    draw = ImageDraw.Draw(image)
    x, y, radius = (
        rng.uniform(0.15, 0.85) * width,
        rng.uniform(0.12, 0.4) * height,
        rng.uniform(0.04, 0.12) * width,
    )
    draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=rgb(0.13, 0.25, 1.0))
    ranges = int(rng.integers(3, 6))
    land = rng.choice([0.3, 0.38, 0.6, 0.75, 0.02])
    for k in range(ranges):
        near = (k + 1) / ranges
        curve = _ridge(rng, width, height * (0.38 + 0.5 * near), 1.0 + near * 0.6, height * 0.13)
        colour = rgb(land + 0.03 * k, 0.2 + 0.4 * near, 0.8 - 0.5 * near)
        draw.polygon([(0, height), *enumerate(curve), (width, height)], fill=colour)
    if rng.random() < 0.35:
        level = int(height * rng.uniform(0.68, 0.8))
        pixels = np.asarray(image).copy()
        mirror = pixels[level - (height - level) : level][::-1]
        ripple = 1 + 0.12 * np.sin(np.arange(height - level) ** 0.8)[:, None, None]
        pixels[level:] = np.clip(mirror * ripple * 0.75, 0, 255)
        image = Image.fromarray(pixels)
    return image


def shapes(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Circles, half circles, bars and triangles in a few colours."""
    colours = _palette(rng, 5)
    image = Image.new("RGB", (width, height), colours[0])
    draw = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(6, 14))):
        x, y, size = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.1, 0.4) * width
        colour = colours[int(rng.integers(1, 5))]
        match int(rng.integers(4)):
            case 0:
                draw.ellipse([x - size / 2, y - size / 2, x + size / 2, y + size / 2], fill=colour)
            case 1:
                start = float(rng.choice([0, 90, 180, 270]))
                draw.pieslice([x - size, y - size, x + size, y + size], start, start + 180, fill=colour)
            case 2:
                draw.rectangle([x, y, x + size * rng.uniform(0.1, 1), y + size], fill=colour)
            case _:
                draw.polygon([(x, y), (x + size, y), (x + size / 2, y - size)], fill=colour)
    return image


def mosaic(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Cells around random points, like stained glass."""
    points = rng.random((int(rng.integers(20, 80)), 2)) * [width, height]
    colours = np.array(_palette(rng, 6))[rng.integers(0, 6, len(points))]
    y, x = np.mgrid[:height, :width]
    distance, cell = cKDTree(points).query(np.stack([x, y], -1), k=2)
    lead = (distance[..., 1] - distance[..., 0] < width * 0.012)[..., None]
    return _canvas(np.where(lead, 25, colours[cell[..., 0]]))


def clouds(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Flowing colour, or contour lines of it."""
    side = max(width, height)
    field = noise(rng, side, fall=2.0)[:height, :width]
    a, b, c = _palette(rng, 3)
    colour = mixed(a, b, field * 0.4 + 0.5)
    if rng.random() < 0.5:
        return _canvas(np.where((np.abs(field * 4 % 1 - 0.5) < 0.06)[..., None], c, colour))
    return _canvas(
        mixed(a, b, field * 0.4 + 0.5) * 0.6 + mixed(b, c, noise(rng, side, fall=1.8)[:height, :width]) * 0.4
    )


def skyline(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    night, hue = rng.random() < 0.5, rng.random()
    top, bottom = rgb(hue, 0.7, 0.2 if night else 0.8), rgb(hue + 0.4, 0.45, 0.55 if night else 1.0)
    image = _gradient(width, height, top, bottom)
    draw = ImageDraw.Draw(image)
    for depth in (0.0, 0.5, 1.0):
        left = -10.0
        while left < width:
            wide, roof = (
                rng.uniform(0.05, 0.14) * width,
                height * rng.uniform(0.25 + 0.25 * depth, 0.6 + 0.2 * depth),
            )
            value = (0.28 if night else 0.65) - 0.22 * depth
            draw.rectangle([left, roof, left + wide, height], fill=rgb(hue, 0.35, value))
            for wx in np.arange(left + 3, left + wide - 4, 7).tolist():
                for wy in np.arange(roof + 5, height, 11).tolist():
                    if rng.random() < (0.45 if night else 0.3) * depth:
                        draw.rectangle([wx, wy, wx + 3, wy + 5], fill=rgb(0.13, 0.5, 0.95 if night else 0.4))
            left += wide + rng.uniform(0, 0.02) * width
    return image


def bouquet(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    image = _gradient(width, height, rgb(rng.random(), 0.15, 0.9), rgb(rng.random(), 0.25, 0.7))
    draw = ImageDraw.Draw(image)
    draw.rectangle([0, height * 0.82, width, height], fill=rgb(0.08, 0.5, 0.45))
    base = (width / 2, height * 0.66)
    heads = [
        (width * rng.uniform(0.15, 0.85), height * rng.uniform(0.12, 0.45))
        for _ in range(int(rng.integers(4, 8)))
    ]
    for x, y in heads:
        draw.line([base, (x, y)], fill=rgb(0.33, 0.6, 0.4), width=max(2, width // 90))
        draw.polygon(
            petal(*base, height * 0.25, float(np.arctan2(y - base[1], x - base[0]) + rng.normal(0, 0.4))),
            fill=rgb(0.33, 0.6, 0.5),
        )
    for x, y in heads:
        colour, petals, size = (
            rgb(rng.random(), 0.7, 0.9),
            int(rng.integers(6, 12)),
            width * rng.uniform(0.08, 0.14),
        )
        for k in range(petals):
            draw.polygon(petal(x, y, size, 2 * np.pi * k / petals), fill=colour)
        draw.ellipse([x - size / 4, y - size / 4, x + size / 4, y + size / 4], fill=rgb(0.13, 0.8, 0.9))
    wide = width * 0.13
    draw.polygon(
        [
            (base[0] - wide, base[1]),
            (base[0] + wide, base[1]),
            (base[0] + wide * 0.7, height * 0.9),
            (base[0] - wide * 0.7, height * 0.9),
        ],
        fill=rgb(rng.random(), 0.5, 0.6),
    )
    return image


def stripes(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Rays, rings or waves."""
    y, x = np.mgrid[:height, :width]
    cx, cy = rng.uniform(0, width), rng.uniform(0, height)
    match int(rng.integers(3)):
        case 0:
            phase = np.arctan2(y - cy, x - cx) / (2 * np.pi) * int(rng.integers(8, 24))
        case 1:
            phase = np.hypot(x - cx, y - cy) / width * rng.uniform(4, 12)
        case _:
            phase = y / height * rng.uniform(5, 12) + 0.6 * np.sin(2 * np.pi * x / width * rng.uniform(1, 4))
    colours = np.array(_palette(rng, int(rng.integers(2, 5))))
    return _canvas(colours[np.floor(phase).astype(int) % len(colours)])


def _palette(rng: np.random.Generator, count: int) -> list[Colour]:
    """Colours that go together: near one hue, with one from across the wheel."""
    hue, spread = rng.random(), rng.uniform(0.03, 0.15)
    hues = [hue + spread * k + (0.5 if k == count - 1 else 0) for k in range(count)]
    return [rgb(h, rng.uniform(0.25, 0.85), rng.uniform(0.3, 0.97)) for h in hues]


ART = (landscape, shapes, mosaic, clouds, skyline, bouquet, stripes)


def art(rng: np.random.Generator, width: int, height: int, *, style: int | None = None) -> np.ndarray:
    """One of ART, any unless `style` says which; drawn at twice the size for soft edges."""
    draw = ART[int(rng.integers(len(ART))) if style is None else style % len(ART)]
    image = draw(rng, 2 * width, 2 * height)
    return np.asarray(image.resize((width, height), Image.Resampling.BOX))

"""2D drawing for packaging: text fitted to a box, small print, bar codes and icons."""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lastseen_synth.procedural.patterns import Colour, petal, rgb

SCALE = 2  # supersampling of drawn pictures
ICONS = (
    *("sun", "leaf", "fruit", "cup", "fish", "star", "peaks"),
    *("bowl", "heart", "flower", "face", "drop", "tree", "rings"),
)
Box = tuple[float, float, float, float]
Spot = tuple[float, float]


def sheet(size: tuple[int, int], colour: Colour) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (size[0] * SCALE, size[1] * SCALE), colour)
    return image, ImageDraw.Draw(image)


def reduced(image: Image.Image) -> np.ndarray:
    return np.asarray(image.reduce(SCALE))


def readable(on: Colour) -> Colour:
    """Black or white, whichever has more contrast."""
    return (20, 20, 25) if 0.3 * on[0] + 0.59 * on[1] + 0.11 * on[2] > 135 else (250, 250, 245)


def mean(a: Colour, b: Colour) -> Colour:
    return (a[0] + b[0]) // 2, (a[1] + b[1]) // 2, (a[2] + b[2]) // 2


@cache
def _font(size_px: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size_px)


def write(draw: ImageDraw.ImageDraw, text: str, box: Box, colour: Colour) -> None:
    """Text as large as fits, centred in the box."""
    wide, high = box[2] - box[0], box[3] - box[1]
    left, top, right, bottom = draw.textbbox((0, 0), text, _font(100))
    size = int(100 * min(wide / max(right - left, 1), high / max(bottom - top, 1)))
    if size < 6:
        return
    heavy = size // 28  # synthetic bold
    draw.text(
        ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2),
        text,
        fill=colour,
        font=_font(size),
        anchor="mm",
        stroke_width=heavy,
        stroke_fill=colour,
    )


def small_print(draw: ImageDraw.ImageDraw, rng: np.random.Generator, box: Box, colour: Colour) -> None:
    """Lines too small to read."""
    step = 10
    for y in np.arange(box[1], box[3] - 4, step):
        x = box[0]
        end = box[0] + (box[2] - box[0]) * (rng.uniform(0.4, 0.7) if rng.random() < 0.2 else 1.0)
        while x < end - 6:
            word = min(rng.uniform(8, 40), end - x)
            draw.rectangle([x, y, x + word, y + 4], fill=colour)
            x += word + 6


def bar_code(draw: ImageDraw.ImageDraw, rng: np.random.Generator, box: Box) -> None:
    draw.rectangle(box, fill=(250, 250, 250))
    x = box[0] + 6
    while x < box[2] - 8:
        wide = float(rng.choice([2, 2, 4, 6]))
        draw.rectangle([x, box[1] + 6, x + wide - 1, box[3] - 6], fill=(15, 15, 15))
        x += wide + float(rng.choice([2, 3, 5]))


def _circle(draw: ImageDraw.ImageDraw, x: float, y: float, radius: float, colour: Colour) -> None:
    draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour)


def star(x: float, y: float, radius: float, points: int, inner: float) -> list[Spot]:
    angles = np.arange(2 * points) * np.pi / points - np.pi / 2
    reach = np.where(np.arange(2 * points) % 2, inner, 1.0) * radius
    return list(zip((x + reach * np.cos(angles)).tolist(), (y + reach * np.sin(angles)).tolist()))


def icon(draw: ImageDraw.ImageDraw, name: str, at: Spot, r: float, main: Colour, other: Colour) -> None:
    """One of ICONS within radius r of `at`."""
    x, y = at
    green, brown, dark = rgb(0.33, 0.65, 0.55), rgb(0.08, 0.6, 0.4), mean(main, (0, 0, 0))
    match name:
        case "sun":
            draw.polygon(star(x, y, r, 12, 0.7), fill=main)
            _circle(draw, x, y, r * 0.55, other)
        case "leaf":
            for angle in (-2.2, -1.57, -0.94):
                draw.polygon(petal(x, y + r * 0.8, r * 1.6, angle), fill=green if angle > -1.6 else main)
        case "fruit":
            _circle(draw, x - r * 0.3, y + r * 0.2, r * 0.6, main)
            _circle(draw, x + r * 0.35, y + r * 0.3, r * 0.52, other)
            draw.polygon(petal(x, y - r * 0.3, r * 0.9, -0.8), fill=green)
        case "cup":
            draw.ellipse(
                [x + r * 0.2, y - r * 0.3, x + r * 0.9, y + r * 0.4],
                outline=main,
                width=max(2, int(r * 0.14)),
            )
            sides = [
                (x - r * 0.7, y - r * 0.5),
                (x + r * 0.55, y - r * 0.5),
                (x + r * 0.35, y + r * 0.7),
                (x - r * 0.5, y + r * 0.7),
            ]
            draw.polygon(sides, fill=main)
            draw.ellipse([x - r * 0.7, y - r * 0.65, x + r * 0.55, y - r * 0.35], fill=brown)
        case "fish":
            draw.ellipse([x - r * 0.9, y - r * 0.4, x + r * 0.5, y + r * 0.4], fill=main)
            draw.polygon(
                [(x + r * 0.3, y), (x + r * 0.95, y - r * 0.5), (x + r * 0.95, y + r * 0.5)], fill=other
            )
            _circle(draw, x - r * 0.55, y - r * 0.1, r * 0.09, dark)
        case "star":
            draw.polygon(star(x, y, r, 5, 0.42), fill=main)
            draw.polygon(star(x, y, r * 0.55, 5, 0.42), fill=other)
        case "peaks":
            draw.polygon(
                [(x - r, y + r * 0.6), (x - r * 0.3, y - r * 0.6), (x + r * 0.4, y + r * 0.6)], fill=main
            )
            draw.polygon(
                [(x - r * 0.2, y + r * 0.6), (x + r * 0.4, y - r * 0.2), (x + r, y + r * 0.6)], fill=other
            )
        case "bowl":
            for k in range(7):
                _circle(draw, x + r * (k - 3) * 0.22, y - r * (0.1 + 0.12 * (k % 2)), r * 0.2, other)
            draw.pieslice([x - r * 0.9, y - r * 0.9, x + r * 0.9, y + r * 0.9], 0, 180, fill=main)
        case "heart":
            _circle(draw, x - r * 0.4, y - r * 0.25, r * 0.45, main)
            _circle(draw, x + r * 0.4, y - r * 0.25, r * 0.45, main)
            draw.polygon(
                [(x - r * 0.8, y - r * 0.05), (x + r * 0.8, y - r * 0.05), (x, y + r * 0.85)], fill=main
            )
        case "flower":
            for k in range(8):
                draw.polygon(petal(x, y, r, k * np.pi / 4), fill=main)
            _circle(draw, x, y, r * 0.28, other)
        case "face":
            for side in (-1, 1):
                ear = [
                    (x + side * r * 0.75, y - r * 0.95),
                    (x + side * r * 0.75, y),
                    (x + side * r * 0.1, y - r * 0.5),
                ]
                draw.polygon(ear, fill=other)
            _circle(draw, x, y, r * 0.75, main)
            for side in (-1, 1):
                _circle(draw, x + side * r * 0.28, y - r * 0.15, r * 0.11, (20, 20, 20))
            draw.arc(
                [x - r * 0.35, y - r * 0.1, x + r * 0.35, y + r * 0.4],
                20,
                160,
                fill=(20, 20, 20),
                width=max(2, int(r * 0.08)),
            )
        case "drop":
            _circle(draw, x, y + r * 0.3, r * 0.55, main)
            draw.polygon(
                [(x - r * 0.5, y + r * 0.08), (x + r * 0.5, y + r * 0.08), (x, y - r * 0.9)], fill=main
            )
            _circle(draw, x - r * 0.18, y + r * 0.35, r * 0.16, other)
        case "tree":
            draw.rectangle([x - r * 0.12, y + r * 0.3, x + r * 0.12, y + r * 0.95], fill=brown)
            for k in range(3):
                top, wide = y - r * (0.95 - 0.4 * k), r * (0.4 + 0.18 * k)
                draw.polygon([(x, top), (x - wide, top + r * 0.6), (x + wide, top + r * 0.6)], fill=main)
        case _:
            for k, colour in enumerate((main, other, main, other)):
                _circle(draw, x, y, r * (1 - 0.25 * k), colour)

"""Procedural tiling textures, uint8 [side, side, 3] sRGB."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw

Colour = tuple[int, int, int]


def rgb(hue: float, saturation: float, value: float) -> Colour:
    """sRGB 0..255 from hue (turns), saturation and value."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, min(max(saturation, 0), 1), min(max(value, 0), 1))
    return round(red * 255), round(green * 255), round(blue * 255)


def noise(
    rng: np.random.Generator, px: int, *, fall: float = 1.0, stretch: tuple[float, float] = (1, 1)
) -> np.ndarray:
    """Periodic noise [px, px], mean 0, deviation 1. `fall`: how fast fine detail fades; `stretch`: (x, y)."""
    fy, fx = np.fft.fftfreq(px)[:, None] * px * stretch[1], np.fft.rfftfreq(px)[None] * px * stretch[0]
    frequency = np.hypot(fx, fy)
    frequency[0, 0] = 1.0
    spectrum = np.fft.rfft2(rng.standard_normal((px, px))) / np.maximum(frequency, 0.5) ** fall
    spectrum[0, 0] = 0
    field = np.fft.irfft2(spectrum, s=(px, px))
    return field / max(float(field.std()), 1e-9)


def shaded(colour: Colour, light: np.ndarray) -> np.ndarray:
    """The colour, lighter where `light` > 0 and darker where it is < 0 (1 = twice or not at all)."""
    return np.clip(np.asarray(colour) * (1 + light[..., None]), 0, 255).astype(np.uint8)


def mixed(a: Colour, b: Colour, share_of_b: np.ndarray) -> np.ndarray:
    share = np.clip(share_of_b, 0, 1)[..., None]
    return np.asarray(a) * (1 - share) + np.asarray(b) * share


def wood(rng: np.random.Generator, colour: Colour, *, px: int = 256) -> np.ndarray:
    """Grain that runs along v."""
    across = np.arange(px)[None] / px
    warp = noise(rng, px, fall=2.2, stretch=(1.0, 4.0))
    rings = np.sin(2 * np.pi * (int(rng.integers(4, 9)) * across + 0.45 * warp))
    fibres = noise(rng, px, fall=0.9, stretch=(0.5, 14.0))
    pores = noise(rng, px, fall=0.2, stretch=(0.3, 8.0)) < -2.0
    return shaded(colour, rng.uniform(0.02, 0.07) * rings + 0.055 * fibres + 0.04 * warp - 0.16 * pores)


def planks(rng: np.random.Generator, colour: Colour, *, px: int = 512, rows: int = 8) -> np.ndarray:
    """A wooden floor; boards run along u."""
    light = np.zeros((px, px))
    grain = np.stack([noise(rng, px, fall=1.0, stretch=(10.0, 0.6)) for _ in range(2)])
    slow = noise(rng, px, fall=2.0, stretch=(4.0, 1.0))
    edges = np.linspace(0, px, rows + 1).astype(int)
    for k, (top, bottom) in enumerate(pairwise(edges.tolist())):
        start = int(rng.integers(px))
        cuts = sorted({start, (start + int(px * rng.uniform(0.35, 0.65))) % px})
        board = np.zeros((bottom - top, px))
        for first, last in zip(cuts, [*cuts[1:], cuts[0] + px]):
            columns = np.arange(first, last) % px
            shift = int(rng.integers(px))
            own = np.roll(grain[k % 2], shift, 1)[top:bottom][:, columns] * 0.055
            board[:, columns] = (
                own + np.roll(slow, shift, 0)[top:bottom][:, columns] * 0.05 + rng.normal(0, 0.09)
            )
            board[:, columns[:2]] -= 0.28
        board[:2] -= 0.28
        light[top:bottom] = board
    return shaded(colour, light)


def tiles(
    rng: np.random.Generator,
    colour: Colour,
    grout: Colour,
    *,
    px: int = 256,
    count: int = 4,
    brick: bool = False,
) -> np.ndarray:
    """A grid of tiles, or of bricks twice as long as high."""
    rows = count * 2 if brick else count
    y, x = np.mgrid[:px, :px] / px
    row = np.floor(y * rows).astype(int)
    offset = np.where(row % 2 == 1, 0.5, 0.0) if brick else np.zeros_like(x)
    column = np.floor(x * count + offset).astype(int) % count
    own = rng.normal(0, 0.08 if brick else 0.035, (rows, count))
    along, down = (x * count + offset) % 1 / count, (y * rows) % 1 / rows  # from the tile's corner
    gap = 0.010
    near = np.minimum(np.minimum(along, 1 / count - along), np.minimum(down, 1 / rows - down))
    light = (
        own[row, column] + 0.02 * noise(rng, px, fall=1.2) + (0.06 * noise(rng, px, fall=0.6) if brick else 0)
    )
    face, joint = shaded(colour, light), shaded(grout, 0.05 * noise(rng, px, fall=0.5))
    share = np.clip((near - gap / 2) / (gap / 2), 0, 1)[..., None]
    return (joint * (1 - share) + face * share).astype(np.uint8)


def plaster(rng: np.random.Generator, colour: Colour, *, px: int = 256) -> np.ndarray:
    return shaded(colour, 0.012 * noise(rng, px, fall=1.6) + 0.010 * noise(rng, px, fall=0.3))


def concrete(rng: np.random.Generator, colour: Colour, *, px: int = 256) -> np.ndarray:
    pits = noise(rng, px, fall=0.4) < -2.3
    return shaded(colour, 0.06 * noise(rng, px, fall=1.5) + 0.03 * noise(rng, px, fall=0.3) - 0.2 * pits)


def carpet(rng: np.random.Generator, colour: Colour, *, px: int = 256) -> np.ndarray:
    return shaded(colour, 0.16 * noise(rng, px, fall=0.25) + 0.06 * noise(rng, px, fall=1.3))


def weave(rng: np.random.Generator, colour: Colour, *, px: int = 256, threads: int = 48) -> np.ndarray:
    y, x = np.mgrid[:px, :px] / px
    over = (np.floor(x * threads) + np.floor(y * threads)) % 2
    thread = np.where(over == 1, np.sin(np.pi * (x * threads % 1)), np.sin(np.pi * (y * threads % 1)))
    streaks = noise(rng, px, fall=0.6, stretch=(12, 0.5)) + noise(rng, px, fall=0.6, stretch=(0.5, 12))
    return shaded(colour, 0.14 * (thread - 0.6) + 0.03 * streaks + 0.02 * noise(rng, px, fall=1.2))


def marble(rng: np.random.Generator, colour: Colour, vein: Colour, *, px: int = 256) -> np.ndarray:
    ridges = np.abs(noise(rng, px, fall=1.7) + 0.25 * noise(rng, px, fall=1.0))
    veins = np.exp(-ridges * rng.uniform(5, 14))
    return np.clip(mixed(colour, vein, veins * 0.8) * (1 + 0.03 * noise(rng, px)[..., None]), 0, 255).astype(
        np.uint8
    )


def granite(rng: np.random.Generator, colour: Colour, speck: Colour, *, px: int = 256) -> np.ndarray:
    specks = noise(rng, px, fall=0.5)
    pattern = mixed(colour, speck, (specks > 0.7) * 0.8) * (1 + 0.12 * noise(rng, px, fall=0.3)[..., None])
    return np.clip(pattern, 0, 255).astype(np.uint8)


def brushed(rng: np.random.Generator, colour: Colour, *, px: int = 256) -> np.ndarray:
    return shaded(
        colour, 0.05 * noise(rng, px, fall=0.4, stretch=(20, 0.5)) + 0.03 * noise(rng, px, fall=1.5)
    )


def wallpaper(rng: np.random.Generator, paper: Colour, ink: Colour, *, px: int = 256) -> np.ndarray:
    """Stripes, dots, diamonds, leaves, flowers or circles, a few to the tile."""
    motif = str(rng.choice(["stripes", "dots", "diamonds", "leaves", "flowers", "circles", "zigzag"]))
    count, size = int(rng.integers(2, 5)), 2 * px
    image = Image.new("RGB", (size, size), paper)
    draw = ImageDraw.Draw(image)
    pitch = size / count
    if motif == "stripes":
        widths = rng.uniform(0.1, 0.45, 2)
        for k in range(count):
            for start, width in ((0.0, widths[0]), (0.55, widths[1] / 3)):
                left = (k + start) * pitch
                draw.rectangle([left, 0, left + width * pitch, size], fill=ink)
    elif motif == "zigzag":
        for k in range(-1, 2 * count + 1):
            points = [(i * pitch / 2, (k + i % 2) * pitch / 2) for i in range(2 * count + 1)]
            draw.line(points, fill=ink, width=round(pitch * 0.09))
    else:
        turn, petals = rng.uniform(0, np.pi), int(rng.integers(5, 8))
        for row in range(-1, 2 * count + 1):
            for column in range(-1, count + 1):
                centre = ((column + row % 2 / 2) * pitch, row * pitch / 2)
                _motif(draw, motif, centre, pitch * 0.2, ink, turn, petals)
    reduced = np.asarray(image.resize((px, px), Image.Resampling.BOX)).astype(float)
    return np.clip(reduced * (1 + 0.012 * noise(rng, px, fall=0.4)[..., None]), 0, 255).astype(np.uint8)


def _motif(
    draw: ImageDraw.ImageDraw,
    motif: str,
    centre: tuple[float, float],
    radius: float,
    ink: Colour,
    turn: float,
    petals: int,
) -> None:
    x, y = centre
    if motif == "dots":
        draw.ellipse([x - radius / 2, y - radius / 2, x + radius / 2, y + radius / 2], fill=ink)
    elif motif == "circles":
        draw.ellipse(
            [x - radius, y - radius, x + radius, y + radius], outline=ink, width=max(2, round(radius / 7))
        )
    elif motif == "diamonds":
        draw.polygon(
            [(x - radius, y), (x, y - radius * 1.6), (x + radius, y), (x, y + radius * 1.6)], fill=ink
        )
    else:
        spread = 2 * np.pi / petals if motif == "flowers" else 0.9
        for k in range(petals if motif == "flowers" else 3):
            angle = turn + k * spread
            draw.polygon(petal(x, y, radius * 1.2, angle), fill=ink)


def petal(x: float, y: float, length: float, angle: float) -> Sequence[tuple[float, float]]:
    """A pointed leaf from (x, y)."""
    along = np.linspace(0, 1, 9)
    width = 0.22 * np.sin(np.pi * along)
    forth = np.concatenate([along, along[::-1]]) * length
    side = np.concatenate([width, -width[::-1]]) * length
    cos, sin = np.cos(angle), np.sin(angle)
    return [(x + f * cos - s * sin, y + f * sin + s * cos) for f, s in zip(forth.tolist(), side.tolist())]


WOODS = (
    (0.09, 0.45, 0.72),
    (0.08, 0.55, 0.55),
    (0.07, 0.6, 0.38),
    (0.1, 0.3, 0.82),
    (0.04, 0.6, 0.42),
    (0.09, 0.12, 0.85),
)


def wood_colour(rng: np.random.Generator) -> Colour:
    hue, saturation, value = WOODS[int(rng.integers(len(WOODS)))]
    return rgb(hue + rng.normal(0, 0.008), saturation + rng.normal(0, 0.05), value + rng.normal(0, 0.05))


def fabric_colour(rng: np.random.Generator) -> Colour:
    return rgb(rng.random(), rng.choice([0.06, 0.2, 0.38]) + rng.normal(0, 0.04), rng.uniform(0.25, 0.75))


def wall_colour(rng: np.random.Generator) -> Colour:
    return rgb(rng.random(), rng.choice([0.03, 0.1, 0.22]), rng.uniform(0.78, 0.95))


Drawing = Callable[[np.random.Generator], np.ndarray]


def _floor_planks(rng: np.random.Generator) -> np.ndarray:
    return planks(rng, wood_colour(rng), rows=int(rng.integers(6, 12)))


def _tiles(rng: np.random.Generator, *, brick: bool, pale: bool) -> np.ndarray:
    if brick:
        face = rgb(rng.uniform(0.01, 0.06), rng.uniform(0.1, 0.6), rng.uniform(0.5, 0.8))
    else:
        face = rgb(
            rng.random(),
            rng.choice([0.03, 0.08, 0.2]),
            rng.uniform(0.75, 0.95) if pale else rng.uniform(0.35, 0.8),
        )
    return tiles(
        rng, face, rgb(0.1, 0.05, rng.uniform(0.45, 0.8)), count=int(rng.integers(2, 6)), brick=brick
    )


def _wallpaper(rng: np.random.Generator) -> np.ndarray:
    paper = wall_colour(rng)
    ink = rgb(rng.random(), rng.uniform(0.1, 0.45), rng.uniform(0.5, 0.9))
    return wallpaper(rng, paper, ink)


def _stone(rng: np.random.Generator) -> np.ndarray:
    base = rgb(rng.random(), 0.06, rng.choice([0.25, 0.6, 0.9]))
    other = rgb(rng.random(), 0.15, rng.choice([0.2, 0.5, 0.95]))
    return marble(rng, base, other) if rng.random() < 0.5 else granite(rng, base, other)


# name -> use, metres that one tile covers, how it is drawn, how many of them
SURFACES: dict[str, tuple[str, float, Drawing, int]] = {
    "planks": ("floor", 1.2, _floor_planks, 7),
    "floortiles": ("floor", 1.2, partial(_tiles, brick=False, pale=False), 4),
    "carpet": ("floor", 0.8, lambda rng: carpet(rng, fabric_colour(rng)), 4),
    "concrete": ("floor", 1.5, lambda rng: concrete(rng, rgb(0.1, 0.05, rng.uniform(0.5, 0.75))), 2),
    "paint": ("wall", 1.5, lambda rng: plaster(rng, wall_colour(rng)), 10),
    "wallpaper": ("wall", 0.8, _wallpaper, 10),
    "walltiles": ("wall", 0.8, partial(_tiles, brick=False, pale=True), 3),
    "bricks": ("wall", 1.0, partial(_tiles, brick=True, pale=False), 3),
    "wood": ("wood", 0.6, lambda rng: wood(rng, wood_colour(rng)), 10),
    "weave": ("fabric", 0.4, lambda rng: weave(rng, fabric_colour(rng)), 10),
    "stone": ("counter", 0.8, _stone, 6),
    "brushed": ("metal", 0.5, lambda rng: brushed(rng, rgb(0.6, 0.05, rng.uniform(0.55, 0.8))), 4),
}

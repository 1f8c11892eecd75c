"""Procedural packaging: invented brands with names, pictures, small print and bar codes.

A Brand is drawn on every face of its box, around its can, or on its book. Brands of one family share the
style and differ in colours, name and picture: alike enough to be taken for each other, never the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from lastseen_synth.procedural.drawing import (
    ICONS,
    SCALE,
    Box,
    bar_code,
    icon,
    mean,
    readable,
    reduced,
    sheet,
    small_print,
    star,
    write,
)
from lastseen_synth.procedural.patterns import Colour, rgb
from lastseen_synth.procedural.pictures import art

STARTS, ENDS, PRODUCTS, TITLES = (
    words.split()
    for words in (
        "Bra No Vel Kri Ta Mo Sun Fi Or La Ze Pan Gro Hel Iv Ju Lum Ned Pri Quo Ri So Tul Wy Al Ber Do",
        "vola mio ana kis tto rex lia bo dine nor sy vita mel pa zo ra stol wick den co lo gan tea fresh by",
        "CRUNCH FLAKES OATS HOOPS SOUP BEANS CORN TEA COCOA CREAM CARE CLEAN PLUS SODA JUICE SALSA RICE",
        "Night Garden River Map Salt Winter House Glass City Lost Letters Blue Hour Paper Boats North Iron",
    )
)
BACKGROUNDS = ("plain", "split", "rays", "dots", "stripes", "wave", "frame", "checks")

Size = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Palette:
    paper: Colour
    accent: Colour
    ink: Colour
    pop: Colour

    @property
    def icon(self) -> tuple[Colour, Colour]:
        return self.accent, self.pop

    @classmethod
    def draw(cls, rng: np.random.Generator, hue: float, *, white: bool) -> Palette:
        dark = rng.random() < 0.5
        paper = rgb(hue, rng.uniform(0.4, 0.9), rng.uniform(0.25, 0.55) if dark else rng.uniform(0.75, 0.98))
        if white:
            paper = rgb(hue, 0.06, 0.95)
        accent = rgb(
            hue + rng.choice([0.08, 0.33, 0.5, 0.58]), rng.uniform(0.35, 0.85), rng.uniform(0.4, 0.95)
        )
        light_paper = sum(paper) > 420
        ink = rgb(hue, 0.7, 0.2) if light_paper else (250, 248, 240)
        return cls(paper=paper, accent=accent, ink=ink, pop=rgb(hue + 0.5, rng.uniform(0.5, 0.85), 0.92))


@dataclass(frozen=True, kw_only=True)
class Style:
    """Properties shared by a family."""

    background: str
    banner: str  # none, bar, oval, ribbon
    name_at: float  # height of the name's middle, 0 = top
    icon_at: float
    icon_size: float
    plate: str  # behind the picture: none, pale, dark, photo
    badge: bool

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Style:
        name_first = bool(rng.random() < 0.7)
        return cls(
            background=str(rng.choice(BACKGROUNDS)),
            banner=str(rng.choice(["none", "bar", "oval", "ribbon"])),
            name_at=rng.uniform(0.13, 0.18) if name_first else rng.uniform(0.66, 0.7),
            icon_at=rng.uniform(0.62, 0.66) if name_first else rng.uniform(0.28, 0.32),
            icon_size=rng.uniform(0.19, 0.25),
            plate=str(rng.choice(["none", "pale", "dark", "photo"])),
            badge=bool(rng.random() < 0.5),
        )


@dataclass(frozen=True, kw_only=True)
class Brand:
    name: str
    product: str
    icon: str
    palette: Palette
    style: Style
    seed: int  # of small print and bar code

    @classmethod
    def line(cls, rng: np.random.Generator, count: int) -> list[Brand]:
        """A family: one style, `count` colours; half of the families share a name or a picture too."""
        style, hue = Style.draw(rng), rng.random()
        shared_name, shared_icon = invented_name(rng), str(rng.choice(ICONS))
        same_name, same_icon = rng.random() < 0.5, rng.random() < 0.5
        products = rng.permutation(PRODUCTS)
        white = int(
            rng.integers(2 * count)
        )  # much packaging is white, but two of a family would look the same
        return [
            cls(
                name=shared_name if same_name else invented_name(rng),
                product=str(products[k % len(products)]),
                icon=shared_icon if same_icon else str(rng.choice(ICONS)),
                palette=Palette.draw(rng, hue + k / count + rng.uniform(-0.04, 0.04), white=k == white),
                style=style,
                seed=int(rng.integers(2**31)),
            )
            for k in range(count)
        ]


def invented_name(rng: np.random.Generator) -> str:
    return str(rng.choice(STARTS)) + str(rng.choice(ENDS))


def front(brand: Brand, size: Size) -> np.ndarray:
    """The side that faces the buyer."""
    image, draw = sheet(size, brand.palette.paper)
    _background(draw, brand, *image.size)
    _front_at(image, brand, (0, 0, *image.size))
    return reduced(image)


def back(brand: Brand, size: Size) -> np.ndarray:
    image, draw = sheet(size, brand.palette.paper)
    width, height = image.size
    rng = np.random.default_rng([brand.seed, 1])
    write(draw, brand.name, (width * 0.1, height * 0.04, width * 0.9, height * 0.16), brand.palette.ink)
    icon(draw, brand.icon, (width * 0.3, height * 0.3), width * 0.17, *brand.palette.icon)
    small_print(draw, rng, (width * 0.55, height * 0.2, width * 0.93, height * 0.42), brand.palette.ink)
    small_print(draw, rng, (width * 0.07, height * 0.48, width * 0.93, height * 0.72), brand.palette.ink)
    bar_code(draw, rng, (width * 0.55, height * 0.77, width * 0.93, height * 0.95))
    return reduced(image)


def side(brand: Brand, size: Size, *, table: bool) -> np.ndarray:
    """A narrow side: a table of contents, or the name written upwards."""
    image, draw = sheet(size, brand.palette.paper)
    width, height = image.size
    rng = np.random.default_rng([brand.seed, 2])
    if table:
        box = (width * 0.1, height * 0.1, width * 0.9, height * 0.62)
        draw.rectangle(box, fill=(245, 245, 240), outline=(30, 30, 30), width=2)
        for k in range(9):
            y = box[1] + (box[3] - box[1]) * (k + 0.5) / 9
            draw.line([(box[0], y), (box[2], y)], fill=(120, 120, 120), width=1)
            draw.line(
                [(box[0] + 4, y - 5), (box[0] + width * rng.uniform(0.2, 0.45), y - 5)],
                fill=(30, 30, 30),
                width=3,
            )
            draw.line([(box[2] - width * 0.15, y - 5), (box[2] - 4, y - 5)], fill=(30, 30, 30), width=3)
        small_print(draw, rng, (width * 0.1, height * 0.68, width * 0.9, height * 0.93), brand.palette.ink)
    else:
        upright = Image.new("RGB", (height, width), brand.palette.paper)
        sideways = ImageDraw.Draw(upright)
        write(
            sideways,
            brand.name,
            (height * 0.08, width * 0.15, height * 0.65, width * 0.85),
            brand.palette.ink,
        )
        icon(sideways, brand.icon, (height * 0.8, width / 2), width * 0.33, *brand.palette.icon)
        image = upright.transpose(Image.Transpose.ROTATE_90)
    return reduced(image)


def top(brand: Brand, size: Size) -> np.ndarray:
    image, draw = sheet(size, brand.palette.paper)
    width, height = image.size
    draw.line([(0, height / 2), (width, height / 2)], fill=brand.palette.accent, width=3)
    write(draw, brand.name, (width * 0.2, height * 0.1, width * 0.8, height * 0.48), brand.palette.ink)
    return reduced(image)


def band(brand: Brand, size: Size) -> np.ndarray:
    """Around a can or a bottle: the front in the middle, the small print behind."""
    image, draw = sheet(size, brand.palette.paper)
    _background(draw, brand, *image.size)
    width, height = image.size
    rng = np.random.default_rng([brand.seed, 3])
    wide = min(height * 0.95, width * 0.42)
    for middle in (0.5, 0.0, 1.0):  # the second picture is cut by the seam
        _front_at(image, brand, (width * middle - wide / 2, 0, width * middle + wide / 2, height))
    small_print(draw, rng, (width * 0.24, height * 0.2, width * 0.31, height * 0.8), brand.palette.ink)
    bar_code(draw, rng, (width * 0.7, height * 0.35, width * 0.76, height * 0.7))
    return reduced(image)


def lid(brand: Brand, size: Size) -> np.ndarray:
    """Round, seen from above."""
    image, draw = sheet(size, brand.palette.accent)
    width, height = image.size
    for radius, colour in ((0.46, brand.palette.paper), (0.43, brand.palette.accent)):
        draw.ellipse(
            [
                width * (0.5 - radius),
                height * (0.5 - radius),
                width * (0.5 + radius),
                height * (0.5 + radius),
            ],
            fill=colour,
        )
    write(
        draw,
        brand.name,
        (width * 0.18, height * 0.38, width * 0.82, height * 0.62),
        readable(brand.palette.accent),
    )
    return reduced(image)


def book(brand: Brand, size: Size, *, style: int) -> np.ndarray:
    """A front cover: art, a title and an author."""
    rng = np.random.default_rng([brand.seed, 4])
    width, height = size[0] * SCALE, size[1] * SCALE
    image = Image.new("RGB", (width, height), brand.palette.paper)
    box = [
        (0, 0, width, height),
        (0, height // 3, width, height),
        (width // 8, height // 3, width * 7 // 8, height * 5 // 6),
    ][style % 3]
    picture = art(rng, (box[2] - box[0]) // 2, (box[3] - box[1]) // 2, style=style)
    image.paste(Image.fromarray(picture).resize((box[2] - box[0], box[3] - box[1])), box[:2])
    draw = ImageDraw.Draw(image)
    first, second = title(brand).split(" ", 1)
    if style % 3 == 0:
        draw.rectangle([0, height * 0.1, width, height * 0.36], fill=brand.palette.paper)
    write(draw, first.upper(), (width * 0.08, height * 0.11, width * 0.92, height * 0.22), brand.palette.ink)
    write(draw, second.upper(), (width * 0.08, height * 0.23, width * 0.92, height * 0.33), brand.palette.ink)
    draw.rectangle([0, height * 0.9, width, height], fill=brand.palette.accent)
    write(
        draw,
        author(brand),
        (width * 0.2, height * 0.915, width * 0.8, height * 0.985),
        readable(brand.palette.accent),
    )
    return reduced(image)


def spine(brand: Brand, size: Size) -> np.ndarray:
    """Text that runs down, as on most books in English."""
    width, height = size[0] * SCALE, size[1] * SCALE
    image = Image.new("RGB", (height, width), brand.palette.paper)
    draw = ImageDraw.Draw(image)
    draw.rectangle([0, 0, height * 0.06, width], fill=brand.palette.accent)
    draw.rectangle([height * 0.94, 0, height, width], fill=brand.palette.accent)
    write(draw, title(brand), (height * 0.09, width * 0.15, height * 0.62, width * 0.85), brand.palette.ink)
    write(draw, author(brand), (height * 0.66, width * 0.25, height * 0.91, width * 0.75), brand.palette.ink)
    return reduced(image.transpose(Image.Transpose.ROTATE_270))


def title(brand: Brand) -> str:
    rng = np.random.default_rng([brand.seed, 5])
    return " ".join(str(word) for word in rng.choice(TITLES, int(rng.integers(2, 4)), replace=False))


def author(brand: Brand) -> str:
    rng = np.random.default_rng([brand.seed, 6])
    return f"{'ABCDEFGHJKLMNPRST'[int(rng.integers(17))]}. {invented_name(rng)}"


def _background(draw: ImageDraw.ImageDraw, brand: Brand, width: int, height: int) -> None:
    paper, accent = brand.palette.paper, brand.palette.accent
    soft = mean(paper, mean(paper, accent))
    unit = height / 10
    match brand.style.background:
        case "split":
            draw.polygon(
                [(0, height * 0.55), (width, height * 0.4), (width, height), (0, height)], fill=accent
            )
        case "rays":
            for k in range(0, 24, 2):
                a, b = 2 * np.pi * k / 24, 2 * np.pi * (k + 1) / 24
                reach = width + height
                points = [(width / 2 + reach * np.cos(t), height * 0.6 + reach * np.sin(t)) for t in (a, b)]
                draw.polygon([(width / 2, height * 0.6), *points], fill=soft)
        case "dots":
            for row in range(11):
                for column in range(int(width / unit) + 1):
                    x, y, r = (column + row % 2 / 2) * unit, row * unit, unit * 0.22
                    draw.ellipse([x - r, y - r, x + r, y + r], fill=soft)
        case "stripes":
            for k in range(int(width / unit) + 1):
                draw.rectangle([k * unit, 0, k * unit + unit * 0.45, height], fill=soft)
        case "wave":
            across = np.linspace(0, width, 40)
            crest = height * (0.5 + 0.06 * np.sin(2 * np.pi * across / max(height, 1) * 1.5))
            draw.polygon([(0, height), *zip(across.tolist(), crest.tolist()), (width, height)], fill=accent)
        case "frame":
            draw.rectangle(
                [unit / 3, unit / 3, width - unit / 3, height - unit / 3],
                outline=accent,
                width=round(unit / 4),
            )
        case "checks":
            for row in range(8, 10):
                for column in range(int(width / unit) + 1):
                    if (row + column) % 2:
                        draw.rectangle(
                            [column * unit, row * unit, (column + 1) * unit, (row + 1) * unit], fill=accent
                        )


def _front_at(image: Image.Image, brand: Brand, box: Box) -> None:
    """Name on its banner, product under it, and the picture in the rest of the box."""
    draw = ImageDraw.Draw(image)
    left, top_, right, bottom = box
    width, height = right - left, bottom - top_
    style, palette = brand.style, brand.palette
    x, y, half = left + width / 2, top_ + height * style.name_at, min(height * 0.1, width * 0.3)
    on = _banner(draw, brand, (left, y - half, right, y + half))
    ink = palette.ink if on == palette.paper else readable(on)
    write(draw, brand.name, (left + width * 0.08, y - half * 0.8, right - width * 0.08, y + half * 0.8), ink)
    y += half * 1.75
    write(
        draw,
        brand.product,
        (left + width * 0.25, y - half * 0.4, right - width * 0.25, y + half * 0.4),
        palette.ink,
    )
    size, y = min(width * 0.44, height * style.icon_size), top_ + height * style.icon_at
    if style.plate == "photo":
        wide = round(min(width * 0.46, size * 1.4))
        photo = art(np.random.default_rng([brand.seed, 7]), wide, round(size), style=brand.seed)
        image.paste(
            Image.fromarray(photo).resize((2 * wide, 2 * round(size))), (round(x) - wide, round(y - size))
        )
    else:
        if style.plate != "none":
            plate = mean(palette.paper, (255, 255, 255) if style.plate == "pale" else (0, 0, 0))
            draw.ellipse([x - size, y - size, x + size, y + size], fill=plate)
        icon(draw, brand.icon, (x, y), size * 0.85, *palette.icon)
    if style.badge:
        r = min(width * 0.13, height * 0.08)
        bx, by = right - r * 1.3, (bottom - r * 1.3 if style.name_at < 0.5 else top_ + r * 1.3)
        draw.polygon(star(bx, by, r, 12, 0.8), fill=palette.pop)
        write(draw, "NEW", (bx - r * 0.7, by - r * 0.4, bx + r * 0.7, by + r * 0.4), readable(palette.pop))
    weight = (left + width * 0.06, top_ + height * 0.92, left + width * 0.3, top_ + height * 0.97)
    write(draw, f"{50 + brand.seed % 19 * 50} g", weight, palette.ink)


def _banner(draw: ImageDraw.ImageDraw, brand: Brand, box: Box) -> Colour:
    """Behind the name; returns the colour that the name is written on."""
    left, upper, right, lower = box
    extra, palette = (lower - upper) * 0.15, brand.palette
    match brand.style.banner:
        case "bar":
            draw.rectangle(box, fill=palette.accent)
            return palette.accent
        case "oval":
            draw.ellipse(
                [left + extra / 2, upper - extra, right - extra / 2, lower + extra], fill=palette.pop
            )
            return palette.pop
        case "ribbon":
            slope = [
                (left, upper + extra),
                (right, upper - extra),
                (right, lower - extra),
                (left, lower + extra),
            ]
            draw.polygon(slope, fill=palette.pop)
            return palette.pop
        case _:
            return palette.paper

"""Renders the bundled demo: a walk through a cluttered room, a picture of a tin, and where the tin was.

    python examples/make_demo.py            # writes lastseen/assets/demo{.mp4,_query.jpg,_truth.json}

Nothing is downloaded: all is drawn here from a fixed seed. The room is made of rectangles and upright
cylinders; light, soft shadows and ambient occlusion are baked into their pictures, then a head camera
walks through it. The tin's boxes are its projected outline, so they are true by construction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from numpy.random import Generator, default_rng
from PIL import Image, ImageDraw, ImageFont
from scipy.interpolate import PchipInterpolator
from scipy.ndimage import gaussian_filter, zoom

from lastseen.box import Box
from lastseen.track import ResponseTrack

ASSETS = Path(__file__).parents[1] / "lastseen" / "assets"
SEED, WIDTH, HEIGHT, FPS, TRUTH_FPS, FOCAL_PX = 7, 640, 360, 20, 5, 400
MOVED_S, END_S = 20.0, 48.0  # the tin goes from its first place to its second, unseen; the video ends
ROOM, UP = np.array([5.0, 2.5, 4.0]), np.array([0.0, 1.0, 0.0])  # metres
SYLLABLES = ["ba", "co", "di", "fen", "gor", "hal", "im", "jo", "ka", "lu", "mir", "ost", "pel", "tum", "zan"]
Colour = tuple[int, ...]

# Pictures: drawn in print colours, used as [h, w, 3 or 4] of linear light.


def cloud(rng: Generator, h: int, w: int, rows: int, columns: int, octaves: int = 4) -> np.ndarray:
    """Smooth noise around 0: `rows` x `columns` lumps and ever finer ones."""
    total = np.zeros((h, w), np.float32)
    for k in range(octaves):
        grid = rng.normal(size=(rows * 2**k + 1, columns * 2**k + 1)).astype(np.float32)
        total += np.asarray(Image.fromarray(grid).resize((w, h), Image.Resampling.BICUBIC)) / 2**k
    return total


def worn(rng: Generator, drawing: Image.Image, amount: float = 0.06) -> np.ndarray:
    picture = np.asarray(drawing, np.float32) / 255
    picture[..., :3] = picture[..., :3] ** 2.2 * (1 + amount * cloud(rng, *picture.shape[:2], 5, 5))[..., None]
    return picture.clip(0, 1)


def plain(rng: Generator, colour: Colour, h: int = 48, w: int = 48) -> np.ndarray:
    return worn(rng, Image.new("RGB", (w, h), colour))


def wood(rng: Generator, colour: Colour, h: int = 150, w: int = 400) -> np.ndarray:
    grain = 0.12 * np.sin(12 * cloud(rng, h, w, 5, 1, 2)) + 0.08 * cloud(rng, h, w, max(4, h // 6), 2, 2)
    joints = 0.7 + 0.3 * (np.arange(h) % 50 > 1)[:, None]
    return (plain(rng, colour, h, w) * ((1 + grain) * joints)[..., None]).clip(0, 1)


def inks(rng: Generator) -> list[Colour]:
    """Print colours: a light one, a dark one and four strong ones."""
    hue = rng.random()
    hsv = [(hue, 0.15, 0.95), (hue + 0.1, 0.7, 0.25)]
    hsv += [(hue + k * 0.31, rng.uniform(0.5, 0.95), rng.uniform(0.45, 0.9)) for k in range(4)]
    bytes_ = np.array([[(255 * (h % 1), 255 * s, 255 * v) for h, s, v in hsv]], np.uint8)
    return [tuple(map(int, c)) for c in np.asarray(Image.fromarray(bytes_, "HSV").convert("RGB"))[0]]


def write(draw: ImageDraw.ImageDraw, x: float, y: float, size: float, colour: Any, text: str) -> None:
    draw.text((x, y), text, colour, ImageFont.load_default(max(6, size)), anchor="mm")


def name(rng: Generator) -> str:
    return "".join(rng.choice(SYLLABLES, 2)).upper()


def poster(rng: Generator, w: int, h: int) -> Image.Image:
    """Hills under a sun, or discs."""
    light, dark, *strong = inks(rng)
    drawing = Image.new("RGB", (w, h), light)
    draw = ImageDraw.Draw(drawing)
    if rng.random() < 0.5:
        draw.ellipse((w * 0.55, h * 0.12, w * 0.55 + h * 0.25, h * 0.37), strong[0])
        for k, ink in enumerate([*strong[1:], dark]):
            ridge = h * (0.42 + 0.14 * k) + h * 0.06 * cloud(rng, 1, w, 1, 3)[0]
            draw.polygon([(0, h), *enumerate(ridge.tolist()), (w, h)], ink)
    else:
        for _ in range(14):
            x, y, r = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(0.05, 0.3) * h
            draw.ellipse((x - r, y - r, x + r, y + r), strong[rng.integers(4)], dark, 3)
    draw.rectangle((0, h * 0.86, w, h), light)
    write(draw, w / 2, h * 0.93, h * 0.09, dark, name(rng))
    draw.rectangle((0, 0, w - 1, h - 1), outline=(40, 32, 28), width=max(3, h // 40))
    return drawing


def spine(rng: Generator, w: int, h: int) -> Image.Image:
    light, dark, strong, *_ = inks(rng)
    ground, ink = [(strong, light), (dark, light), (light, dark), (strong, dark)][rng.integers(4)]
    drawing = Image.new("RGB", (h, w), ground)  # lying, for the title runs along it
    draw = ImageDraw.Draw(drawing)
    for x in (0.06, 0.1, 0.9, 0.94):
        draw.line((x * h, 0, x * h, w), ink, 2)
    write(draw, h / 2, w / 2, w * 0.55, ink, f"{name(rng)} {name(rng)}"[: rng.integers(6, 14)])
    return drawing.rotate(-90, expand=True)


def package(rng: Generator, w: int, h: int, times: int = 1) -> Image.Image:
    """The front of a carton or, several times around, the label of a jar."""
    light, dark, first, second, *_ = inks(rng)
    drawing, step, slope = Image.new("RGB", (w, h), first), w / times, rng.uniform(0.4, 0.8)
    draw = ImageDraw.Draw(drawing)
    for x in (step * k for k in range(times)):
        draw.polygon([(x, h * 0.6), (x + step, h * slope), (x + step, h), (x, h)], second)
        draw.ellipse((x + step * 0.25, h * 0.45, x + step * 0.75, h * 0.45 + step * 0.5), light, dark, 2)
        draw.rectangle((x, h * 0.1, x + step, h * 0.36), light)
        write(draw, x + step / 2, h * 0.23, step * 0.2, dark, name(rng))
    return drawing


def tin_label(kind: str, w: int = 720, h: int = 300) -> Image.Image:
    """A face on a disc, three times around; FOX is the tin asked for, the others are like it."""
    ground, disc, fur, zigzag = {
        "FOX": ((18, 92, 108), (250, 236, 205), (226, 96, 24), (246, 190, 40)),
        "OWL": ((96, 40, 110), (226, 214, 240), (120, 84, 60), (120, 200, 120)),
        "PIG": ((150, 34, 40), (250, 240, 230), (240, 150, 160), (250, 250, 250)),
    }[kind]
    drawing, black = Image.new("RGB", (w, h), ground), (20, 16, 16)
    draw = ImageDraw.Draw(drawing)
    for x in range(0, w, 24):
        draw.polygon([(x, 0), (x + 12, 34), (x + 24, 0)], zigzag)
        draw.polygon([(x, h), (x + 12, h - 34), (x + 24, h)], zigzag)
    for x in (w // 6, w // 2, w * 5 // 6):
        draw.circle((x, 130), 88, disc)
        if kind != "FOX":
            draw.ellipse((x - 58, 80, x + 58, 188), fur)
        for side in (-1, 1):
            draw.polygon([(x + side * 60, 62), (x + side * 10, 96), (x + side * 60, 122)], fur)
            if kind == "FOX":
                draw.polygon([(x + side * 64, 112), (x, 84), (x, 192)], fur)
                draw.polygon([(x + side * 64, 112), (x + side * 14, 146), (x, 192)], (255, 250, 240))
            else:
                draw.circle((x + side * 25, 118), 20 if kind == "OWL" else 11, "white")
            draw.circle((x + side * 25, 118), 8, black)
        draw.circle((x, 186 if kind == "FOX" else 150), 10 if kind != "PIG" else 19, black if kind != "PIG" else disc)
        write(draw, x, 242, 54, disc, kind)
    return drawing


def leaves(rng: Generator, size: int = 300) -> Image.Image:
    drawing = Image.new("RGBA", (size, size))
    draw = ImageDraw.Draw(drawing)
    for _ in range(46):
        angle, reach = rng.uniform(-1.5, 1.5), rng.uniform(0.3, 0.95) * size
        x, y = size / 2 + reach * 0.5 * math.sin(angle), size - reach * math.cos(angle * 0.7)
        dx, dy = 0.05 * size * math.cos(angle), 0.05 * size * math.sin(angle)
        blade = [(size / 2, size), (x / 2 + size / 4 - dx, y / 2 + size / 2 - dy), (x, y)]
        green = (int(rng.uniform(20, 90)), int(rng.uniform(80, 150)), int(rng.uniform(20, 60)), 255)
        draw.polygon([*blade, (x / 2 + size / 4 + dx, y / 2 + size / 2 + dy)], green)
    return drawing


# The room: rectangles, cylinders, and boxes that stand for them when it comes to shadows.


class Place(NamedTuple):
    """A wall's own axes: x to the right along it, y up, z out of it into the room."""

    origin: np.ndarray
    out: np.ndarray

    def at(self, x: float, y: float, z: float) -> np.ndarray:
        return self.origin + x * np.cross(UP, self.out) + y * UP + z * self.out


WEST, EAST = Place(ROOM * [0, 0, 1], np.array([1.0, 0, 0])), Place(ROOM * [1, 0, 0], np.array([-1.0, 0, 0]))
NORTH, SOUTH = Place(ROOM * 0, np.array([0, 0, 1.0])), Place(ROOM * [1, 0, 1], np.array([0, 0, -1.0]))


@dataclass
class Surface:
    """A rectangle or, with a radius, the cylinder that it touches in front and is as wide as."""

    origin: np.ndarray  # its corner at the top left, seen from where it faces
    across: np.ndarray
    down: np.ndarray
    picture: np.ndarray
    radius: float = 0.0
    glows: bool = False

    def __post_init__(self) -> None:
        self.width, self.height = float(np.linalg.norm(self.across)), float(np.linalg.norm(self.down))
        self.side, self.normal = self.across / self.width, np.cross(self.down, self.across)
        self.normal /= self.width * self.height
        self.foot = self.origin + self.across / 2 + self.down - self.normal * self.radius
        corners = [self.origin + a * self.across + b * self.down for a in (0, 1) for b in (0, 1)]
        self.corners = np.array(corners + [c - 2 * self.radius * self.normal for c in corners])
        self.levels = [self.picture]  # the lit picture, ever coarser

    def grid(self, per_m: float) -> tuple[np.ndarray, np.ndarray]:
        """Points on it and the normals there: both [rows, columns, 3]."""
        b, a = ((np.arange(n) + 0.5) / n for n in (max(4, math.ceil(s * per_m)) for s in (self.height, self.width)))
        a, b = a[None, :, None], b[:, None, None]
        if not self.radius:
            return self.origin + a * self.across + b * self.down, self.normal + 0 * (a + b)
        normals = np.cos(math.tau * (a - 0.5)) * self.normal + np.sin(math.tau * (a - 0.5)) * self.side + 0 * b
        return self.foot - self.down * (1 - b) + self.radius * normals, normals


class Scene:
    def __init__(self, seed: int) -> None:
        self.rng, self.surfaces, self.solids = default_rng(seed), list[Surface](), list[np.ndarray]()

    def box(self, place: Place, x: float, y: float, z: float, w: float, h: float, d: float,
            front: np.ndarray, sides: np.ndarray | None = None) -> None:  # fmt: skip
        """A box from its left bottom back corner, in the axes of a wall."""
        right, out, sides = np.cross(UP, place.out), place.out, front if sides is None else sides
        self.surfaces += [
            Surface(place.at(x, y + h, z + d), w * right, -h * UP, front),
            Surface(place.at(x, y + h, z), d * out, -h * UP, sides),
            Surface(place.at(x + w, y + h, z + d), -d * out, -h * UP, sides),
            Surface(place.at(x, y + h, z), w * right, d * out, sides),
            Surface(place.at(x, y, z + d), w * right, -d * out, sides),
        ]
        self.solids.append(np.sort([place.at(x, y, z), place.at(x + w, y + h, z + d)], 0))

    def tube(self, place: Place, x: float, y: float, z: float, r: float, h: float, around: np.ndarray,
             top: np.ndarray, glows: bool = False) -> Surface:  # fmt: skip
        """An upright cylinder from the middle of its foot; returns its side."""
        right, out = np.cross(UP, place.out), place.out
        side = Surface(place.at(x - r, y + h, z + r), 2 * r * right, -h * UP, around, r, glows)
        disc = np.hypot(*np.mgrid[-1:1:64j, -1:1:64j])[..., None]
        lid = np.dstack([zoom(top, (64 / top.shape[0], 64 / top.shape[1], 1), order=1) * (1 - 0.3 * (disc > 0.85)), disc < 1])
        self.surfaces += [side, Surface(place.at(x - r, y + h, z - r), 2 * r * right, 2 * r * out, lid)]
        self.solids.append(np.sort([place.at(x - r * 0.9, y, z - r * 0.9), place.at(x + r * 0.9, y + h, z + r * 0.9)], 0))
        return side

    def tin(self, place: Place, x: float, y: float, z: float, kind: str, turn: float = 0.0) -> Surface:
        label = np.roll(worn(self.rng, tin_label(kind), 0.03), round(turn * 720), 1)
        metal = plain(self.rng, (190, 170, 120))
        self.tube(place, x, y + 0.19, z, 0.077, 0.015, metal, metal)
        return self.tube(place, x, y, z, 0.075, 0.19, label, metal)

    def row(self, place: Place, x: float, end: float, y: float, z: float, tallest: float, gap: tuple) -> None:
        """Things side by side, but for a gap from one x to another."""
        rng = self.rng
        while x < end:
            kind, h = rng.random(), tallest * rng.uniform(0.55, 0.95)
            w = rng.uniform(0.02, 0.05) if kind < 0.5 else rng.uniform(0.08, 0.16)
            count = rng.integers(3, 8) if kind < 0.5 else 1
            if x < gap[1] and x + w * count > gap[0]:
                x = gap[1]
                gap = (9, 9)
                continue
            if x + w * count > end:
                break
            size = round(w * 600), round(h * 600)
            for _ in range(count):
                if kind < 0.5:
                    tall = h * rng.uniform(0.85, 1)
                    self.box(place, x, y, z, w - 0.002, tall, 0.16, worn(rng, spine(rng, *size)), plain(rng, (225, 215, 190)))
                elif kind < 0.7:
                    self.box(place, x, y, z + rng.uniform(0, 0.04), w, h, w * 0.7, worn(rng, package(rng, *size)), plain(rng, inks(rng)[2]))
                elif kind < 0.95:
                    h = min(h, 0.2)
                    around = worn(rng, package(rng, round(w * 1900), round(h * 600), 3))
                    self.tube(place, x + w / 2, y, z + 0.09, w / 2, h, around, plain(rng, inks(rng)[2]))
                else:
                    self.box(place, x, y, z, w, h, 0.02, worn(rng, poster(rng, *size)))
                x += w
            x += rng.uniform(0.005, 0.05)

    def walls(self) -> None:
        rng = self.rng
        for place, width in ((NORTH, 5), (SOUTH, 5), (WEST, 4), (EAST, 4)):
            paper = Image.new("RGB", (width * 250, 625), (196, 186, 160))
            draw = ImageDraw.Draw(paper)
            for i in range(width * 250 // 25):
                for j in range(25):
                    x, y = 25 * i + 12, 25 * j + 12 * (i % 2)
                    draw.regular_polygon((x, y, 4), 4, fill=(172, 150, 122) if (i + j) % 3 else (120, 140, 140))
            draw.rectangle((0, 590, paper.width, 625), (235, 230, 220))
            picture = worn(rng, paper, 0.03)
            self.surfaces.append(Surface(place.at(0, 2.5, 0), width * np.cross(UP, place.out), -2.5 * UP, picture))
        floor = wood(rng, (150, 104, 66), 800, 1000)
        self.surfaces.append(Surface(NORTH.at(0, 0, 0), 5 * NORTH.at(1, 0, 0), 4 * NORTH.at(0, 0, 1), floor))
        self.surfaces.append(Surface(NORTH.at(0, 2.5, 4), 5 * NORTH.at(1, 0, 0), -4 * NORTH.at(0, 0, 1), plain(rng, (230, 228, 220), 400, 500)))

    def furnish(self) -> None:
        rng = self.rng
        self.walls()
        pine, oak, white = wood(rng, (190, 140, 84)), wood(rng, (122, 80, 48)), plain(rng, (222, 218, 208))
        dark = plain(rng, (36, 36, 40))
        # North: a bookcase, posters, an armchair.
        for y in (0.06, 0.46, 0.86, 1.24, 1.62, 2.0):
            self.box(NORTH, 0.6, y, 0.01, 2.0, 0.025, 0.3, pine)
            if y < 2:
                self.row(NORTH, 0.65, 2.55, y + 0.025, 0.06, 0.32, (1.5, 1.85) if y == 1.24 else (9, 9))
        for x in (0.58, 2.58):
            self.box(NORTH, x, 0, 0.01, 0.025, 2.05, 0.3, pine)
        self.box(NORTH, 3.2, 0.0, 0.1, 0.9, 0.42, 0.8, worn(rng, Image.new("RGB", (200, 100), (70, 96, 88))))
        self.box(NORTH, 3.2, 0.42, 0.1, 0.9, 0.5, 0.2, worn(rng, Image.new("RGB", (200, 100), (70, 96, 88))))
        self.box(NORTH, 3.4, 0.42, 0.32, 0.45, 0.35, 0.12, worn(rng, poster(rng, 270, 210)))
        # West: a sideboard under a shelf.
        self.box(WEST, 0.5, 0.0, 0.0, 3.0, 0.86, 0.5, oak)
        self.box(WEST, 0.45, 0.86, 0.0, 3.1, 0.03, 0.53, pine)
        for k in range(5):
            self.box(WEST, 0.54 + 0.6 * k, 0.1, 0.5, 0.55, 0.7, 0.012, white, white)
            self.box(WEST, 0.78 + 0.6 * k, 0.66, 0.512, 0.1, 0.02, 0.02, dark)
        self.row(WEST, 0.6, 3.4, 0.89, 0.06, 0.26, (1.05, 1.5))
        self.box(WEST, 0.7, 1.5, 0.0, 2.4, 0.025, 0.25, pine)
        self.row(WEST, 0.72, 3.05, 1.525, 0.04, 0.28, (9, 9))
        self.tin(WEST, 2.3, 0.89, 0.35, "OWL", 0.05)
        # East: a desk by the window.
        self.box(EAST, 0.7, 0.72, 0.05, 2.2, 0.035, 0.7, pine)
        for x in (0.72, 2.42):
            self.box(EAST, x, 0.0, 0.1, 0.45, 0.72, 0.6, white)
        screen = Image.new("RGB", (330, 200), (24, 28, 36))
        draw = ImageDraw.Draw(screen)
        for k in range(14):
            write(draw, 90 + 14 * (k % 4), 14 + 13 * k, 11, inks(rng)[0], f"{name(rng)} = {name(rng)}".lower())
        self.box(EAST, 1.5, 0.86, 0.2, 0.6, 0.36, 0.03, worn(rng, screen), dark)
        self.box(EAST, 1.75, 0.755, 0.18, 0.1, 0.12, 0.05, dark)
        self.box(EAST, 1.6, 0.755, 0.5, 0.42, 0.02, 0.14, dark, worn(rng, package(rng, 300, 100, 6)))
        self.row(EAST, 0.75, 1.4, 0.755, 0.1, 0.24, (9, 9))
        self.row(EAST, 2.2, 2.75, 0.755, 0.1, 0.24, (9, 9))
        self.tube(EAST, 2.6, 0.755, 0.5, 0.08, 0.02, dark, dark)
        self.tube(EAST, 2.6, 0.77, 0.5, 0.012, 0.36, dark, dark)
        self.tube(EAST, 2.6, 1.1, 0.5, 0.11, 0.16, np.full((8, 8, 3), [2.6, 2.0, 1.2]), white, glows=True)
        sky = np.broadcast_to(np.linspace([2.0, 2.6, 3.4], [2.6, 2.8, 2.9], 100)[:, None], (100, 140, 3)).copy()
        sky[70:] *= [0.2, 0.28, 0.1]
        sky[:, 68:72] = sky[33:36] = sky[:4] = sky[-5:] = sky[:, :4] = sky[:, -4:] = 0.8
        self.surfaces.append(Surface(EAST.at(1.0, 2.2, 0.01), EAST.at(1.4, 0, 0) - EAST.origin, -0.9 * UP, sky, glows=True))
        # South: a chest, a plant, a door.
        self.box(SOUTH, 0.8, 0.0, 0.0, 1.6, 0.8, 0.45, oak, pine)
        for k in range(3):
            self.box(SOUTH, 0.84, 0.05 + 0.25 * k, 0.45, 1.52, 0.22, 0.012, pine)
        self.row(SOUTH, 0.85, 2.35, 0.8, 0.08, 0.3, (9, 9))
        self.tin(SOUTH, 1.5, 0.8, 0.34, "PIG", 0.1)
        self.tube(SOUTH, 3.0, 0.0, 0.4, 0.16, 0.3, worn(rng, package(rng, 400, 120, 5)), dark)
        plant = worn(rng, leaves(rng))
        for across in (EAST.out, NORTH.out):
            self.surfaces.append(Surface(SOUTH.at(3.0, 1.2, 0.4) - across * 0.45, across * 0.9, -0.9 * UP, plant))
            self.surfaces.append(Surface(SOUTH.at(3.0, 1.2, 0.4) + across * 0.45, -across * 0.9, -0.9 * UP, plant))
        self.box(SOUTH, 3.8, 0.0, 0.0, 0.9, 2.05, 0.03, wood(rng, (200, 190, 170), 300, 150))
        for place, x, y, w, h in ((NORTH, 2.9, 1.3, 0.6, 0.8), (NORTH, 3.7, 1.2, 0.9, 0.65), (SOUTH, 0.9, 1.4, 0.5, 0.7),
                                  (SOUTH, 1.6, 1.5, 0.7, 0.5), (EAST, 2.7, 1.3, 0.5, 0.7), (EAST, 0.25, 1.3, 0.45, 0.65),
                                  (SOUTH, 2.5, 1.3, 0.6, 0.8), (WEST, 3.3, 1.4, 0.5, 0.7), (WEST, 0.1, 1.4, 0.45, 0.6)):
            self.box(place, x, y, 0, w, h, 0.015, worn(rng, poster(rng, round(w * 400), round(h * 400))), dark)
        self.box(NORTH, 1.7, 0.0, 1.5, 1.9, 0.006, 1.2, white, worn(rng, package(rng, 600, 400, 6)))


# Light: baked once, with soft shadows and ambient occlusion.


def blocked(start: np.ndarray, path: np.ndarray, solids: list[np.ndarray]) -> np.ndarray:
    """[n, 3] starts and ways -> whether a solid is on the way."""
    hit = np.zeros(len(start), bool)
    inverse = 1 / np.where(np.abs(path) < 1e-6, 1e-6, path)
    for low, high in solids:
        one, other = (low - start) * inverse, (high - start) * inverse
        enters, leaves_ = np.minimum(one, other).max(1), np.maximum(one, other).min(1)
        hit |= (enters < leaves_) & (enters < 1) & (leaves_ > 1e-3)
    return hit


def bake(scene: Scene, lamps: list[tuple[Any, float, Any]], ambient: Any) -> None:
    rng = default_rng(SEED)
    for surface in scene.surfaces:
        light = np.ones((1, 1, 3))
        if not surface.glows:
            points, normals = surface.grid(20 if surface.width * surface.height > 4 else 40)
            shape, rays = points.shape[:2], 12
            start = np.repeat((points + 0.004 * normals).reshape(-1, 3), rays, 0).astype(np.float32)
            facing = np.repeat(normals.reshape(-1, 3), rays, 0).astype(np.float32)
            solids = scene.solids
            if surface.radius:  # a cylinder is inside its own box
                solids = [s for s in solids if not ((s[0] < surface.foot + 0.01 * UP) & (surface.foot + 0.01 * UP < s[1])).all()]
            way = facing + rng.normal(size=start.shape)/ 1.8
            way *= 0.7 * rng.random((len(start), 1)) ** 0.5 / np.linalg.norm(way, axis=1, keepdims=True)
            end = start + way
            shut = blocked(start, way, solids) | ((end < 0) | (end > ROOM)).any(1)
            total = np.asarray(ambient) * (1 - shut)[:, None]
            for where, spread, strength in lamps:
                way = np.asarray(where) + rng.normal(size=start.shape) * spread - start
                distance = np.linalg.norm(way, axis=1)
                lambert = ((way * facing).sum(1) / distance).clip(0) / (0.3 + distance**2)
                lambert[lambert > 0] *= ~blocked(start[lambert > 0], way[lambert > 0] * 0.97, solids)
                total = total + lambert[:, None] * np.asarray(strength)
            light = total.reshape(*shape, rays, 3).mean(2)
            light = np.stack([gaussian_filter(light[..., c], 0.7, mode="nearest") for c in range(3)], -1)
            h, w = surface.picture.shape[:2]
            light = np.stack([np.asarray(Image.fromarray(light[..., c].astype(np.float32)).resize((w, h), Image.Resampling.BILINEAR)) for c in range(3)], -1)
        lit = surface.picture.astype(np.float32)
        lit = np.dstack([lit[..., :3] * light, lit[..., 3:]])
        surface.levels = [lit]
        while min(surface.levels[-1].shape[:2]) >= 8 and len(surface.levels) < 4:
            p = surface.levels[-1]
            p = p[: p.shape[0] // 2 * 2, : p.shape[1] // 2 * 2]
            surface.levels.append((p[::2, ::2] + p[1::2, ::2] + p[::2, 1::2] + p[1::2, 1::2]) / 4)
        surface.levels = [p.astype(np.float32) for p in surface.levels]


# The camera.


class Pose(NamedTuple):
    eye: np.ndarray
    axes: np.ndarray  # rows: right, down, forward

    @classmethod
    def looking(cls, eye: Any, yaw: float, pitch: float, roll: float = 0.0) -> Pose:
        forward = np.array([math.sin(yaw) * math.cos(pitch), math.sin(pitch), -math.cos(yaw) * math.cos(pitch)])
        right = np.cross(forward, UP)
        right /= np.linalg.norm(right)
        down = np.cross(forward, right)
        c, s = math.cos(roll), math.sin(roll)
        return cls(np.asarray(eye, float), np.stack([c * right + s * down, c * down - s * right, forward]))


def seen(scene: Scene, pose: Pose, shift: np.ndarray, w: int = WIDTH, h: int = HEIGHT, focal: float = FOCAL_PX) -> np.ndarray:
    """[h, w, 3] linear light along one ray a pixel."""
    eye, axes = pose
    xs = ((np.arange(w) + 0.5 + shift[0] - w / 2) / focal).astype(np.float32)[None]
    ys = ((np.arange(h) + 0.5 + shift[1] - h / 2) / focal).astype(np.float32)[:, None]
    image, nearness = np.zeros((h, w, 3), np.float32), np.full((h, w), 1e-3, np.float32)
    corners = (np.stack([s.corners for s in scene.surfaces]) - eye) @ axes.T
    faces = np.array([s.radius > 0 or s.normal @ (eye - s.origin) > 0 for s in scene.surfaces])
    depth = corners[..., 2]
    flat = corners[..., :2] / depth.clip(0.05)[..., None] * focal + [w / 2, h / 2]
    low, high = np.floor(flat.min(1) - 2), np.ceil(flat.max(1) + 2)
    beside = (depth < 0.05).any(1)
    low[beside], high[beside] = 0, (w, h)
    low, high = low.clip(0, (w, h)).astype(int), high.clip(0, (w, h)).astype(int)
    wanted = faces & (depth.max(1) > 0.05) & (high > low).all(1)
    for k in sorted(np.flatnonzero(wanted), key=lambda k: depth[k].mean()):
        s, part = scene.surfaces[k], (slice(low[k, 1], high[k, 1]), slice(low[k, 0], high[k, 0]))
        x, y = xs[:, part[1]], ys[part[0]]
        with np.errstate(all="ignore"):
            if s.radius:
                d = [axes[0, i] * x + axes[1, i] * y + axes[2, i] for i in range(3)]
                e = eye - s.foot
                a, b = d[0] ** 2 + d[2] ** 2, e[0] * d[0] + e[2] * d[2]
                t = (-b - np.sqrt(b**2 - a * (e[0] ** 2 + e[2] ** 2 - s.radius**2))) / a
                p, q = e[0] + t * d[0], e[2] + t * d[2]
                u = 0.5 + np.arctan2(p * s.side[0] + q * s.side[2], p * s.normal[0] + q * s.normal[2]) / math.tau
                v = 1 - (e[1] + t * d[1]) / s.height
                near = 1 / t
            else:
                o, across, down = axes @ (s.origin - eye), axes @ s.across, axes @ s.down
                n = np.cross(across, down)
                near = (n[0] * x + n[1] * y + n[2]) / (n @ o)
                u = ((across[0] * x + across[1] * y + across[2]) / near - across @ o) / s.width**2
                v = ((down[0] * x + down[1] * y + down[2]) / near - down @ o) / s.height**2
            won = (near > nearness[part]) & (u >= 0) & (u < 1) & (v >= 0) & (v < 1)
        if not won.any():
            continue
        per_px = s.levels[0].shape[0] / s.height / (np.median(near[won]) * focal)
        level = s.levels[min(len(s.levels) - 1, max(0, round(math.log2(per_px))))]
        found = level[(v[won] * level.shape[0]).astype(int), (u[won] * level.shape[1]).astype(int)]
        if level.shape[2] == 4:
            solid = found[:, 3] > 0.5
            won[won] = solid
            found = found[solid]
        nearness[part][won] = near[won]
        image[part][won] = found[:, :3]
    return image

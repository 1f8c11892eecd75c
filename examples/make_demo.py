"""Renders the bundled demo: a walk through a cluttered room, a picture of a tin, and where the tin was.

    python examples/make_demo.py     # writes lastseen/assets/demo{.mp4,_query.jpg,_truth.json} in minutes

Nothing is downloaded: all is drawn here from a fixed seed. The room is made of rectangles; light, soft
shadows and ambient occlusion are baked into their pictures, then a head camera walks through it.
The tin's boxes are its projected outline, so they are true by construction.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from numpy.random import Generator, default_rng
from PIL import Image, ImageDraw, ImageFont
from scipy.interpolate import PchipInterpolator
from scipy.spatial.transform import Rotation

from lastseen.box import Box
from lastseen.track import ResponseTrack

ASSETS = Path(__file__).parents[1] / "lastseen" / "assets"
SEED, WIDTH, HEIGHT, FPS, TRUTH_FPS, FOCAL_PX = 7, 640, 360, 20, 5, 400.0
END_S, MOVED_S = 48.0, 20.0  # at MOVED_S the tin goes from its first place to its second, unseen
ROOM, UP = np.array([5.0, 2.5, 4.0]), np.array([0.0, 1.0, 0.0])  # metres
WINDOW, CEILING = ((4.7, 1.7, 1.7), 0.3, (6.0, 6.6, 7.4)), ((2.5, 2.4, 2.0), 0.15, (3.4, 2.8, 2.1))
DESK_LAMP = ((4.4, 1.25, 2.6), 0.05, (0.5, 0.38, 0.2))  # where, how wide, how bright
SYLLABLES = ["ba", "co", "di", "fen", "gor", "hal", "im", "jo", "ka", "lu", "mir", "ost", "pel", "tum", "zan"]
Vector = Any  # what NumPy takes for [3]

# Pictures: drawn in print colours, used as [h, w, 3] of linear light; NaN is a hole.


def resized(values: np.ndarray, h: int, w: int) -> np.ndarray:
    return np.dstack([Image.fromarray(c.astype(np.float32)).resize((w, h), 3) for c in values.transpose(2, 0, 1)])


def cloud(rng: Generator, h: int, w: int, rows: int, columns: int, octaves: int = 4) -> np.ndarray:
    """Smooth noise around 0: `rows` x `columns` lumps and ever finer ones."""
    grids = [rng.normal(size=(rows * 2**k + 1, columns * 2**k + 1, 1)) / 2**k for k in range(octaves)]
    return sum(resized(grid, h, w) for grid in grids)


def worn(rng: Generator, drawing: Image.Image, amount: float = 0.06) -> np.ndarray:
    stains = 1 + amount * cloud(rng, drawing.height, drawing.width, 5, 5)
    return ((np.asarray(drawing) / 255) ** 2.2 * stains).clip(0, 1)


def plain(rng: Generator, colour: Any, h: int = 48, w: int = 48) -> np.ndarray:
    return worn(rng, Image.new("RGB", (w, h), colour))


def wood(rng: Generator, colour: Any, h: int = 150, w: int = 400) -> np.ndarray:
    grain = 0.12 * np.sin(12 * cloud(rng, h, w, 5, 1, 2)) + 0.08 * cloud(rng, h, w, max(4, h // 6), 2, 2)
    joints = 0.7 + 0.3 * (np.arange(h) % 50 > 1)[:, None, None]
    return (plain(rng, colour, h, w) * (1 + grain) * joints).clip(0, 1)


def inks(rng: Generator) -> list[str]:
    """Print colours: a light one, a dark one and four strong ones."""
    hue = rng.uniform(0, 360)
    strong = [(hue + k * 110, rng.uniform(30, 85), rng.uniform(35, 80)) for k in range(4)]
    return [f"hsv({h % 360:.0f},{s:.0f}%,{v:.0f}%)" for h, s, v in [(hue, 12, 90), (hue + 36, 60, 22), *strong]]


def write(draw: ImageDraw.ImageDraw, x: float, y: float, size: float, ink: Any, text: str) -> None:
    draw.text((x, y), text, ink, ImageFont.load_default(max(6, size)), anchor="mm")


def name(rng: Generator) -> str:
    return "".join(rng.choice(SYLLABLES, 2)).upper()


def poster(rng: Generator, w: int, h: int) -> Image.Image:
    """Hills under a sun."""
    light, dark, *strong = inks(rng)
    drawing = Image.new("RGB", (w, h), light)
    draw = ImageDraw.Draw(drawing)
    draw.circle((w * rng.uniform(0.2, 0.8), h * 0.25), h * 0.13, strong[0])
    for k, ink in enumerate([*strong[1:], dark]):
        ridge = h * (0.42 + 0.14 * k) + h * 0.06 * cloud(rng, 1, w, 1, 3)[0, :, 0]
        draw.polygon([(0, h), *enumerate(ridge.tolist()), (w, h)], ink)
    draw.rectangle((0, h * 0.86, w, h), light)
    write(draw, w / 2, h * 0.93, h * 0.09, dark, name(rng))
    draw.rectangle((0, 0, w - 1, h - 1), outline=(40, 32, 28), width=max(3, h // 40))
    return drawing


def package(rng: Generator, w: float, h: float, times: int = 1) -> Image.Image:
    """The front of a carton; several times around, the label of a jar; lying, the spine of a book."""
    light, dark, first, second, *_ = inks(rng)
    drawing = Image.new("RGB", (round(w * times), round(h)), first)
    draw = ImageDraw.Draw(drawing)
    if w > 2 * h:
        write(draw, w / 2, h / 2, h * 0.6, light, f"{name(rng)} {name(rng)}")
        draw.line((0, 0, w, 0, w, h, 0, h), dark, 6)
        return drawing
    slope = rng.uniform(0.4, 0.8)
    for x in (w * k for k in range(times)):
        draw.polygon([(x, h * 0.6), (x + w, h * slope), (x + w, h), (x, h)], second)
        draw.circle((x + w / 2, h * 0.62), min(w, h) * 0.22, light, dark, 2)
        draw.rectangle((x, h * 0.1, x + w, h * 0.36), light)
        write(draw, x + w / 2, h * 0.23, w * 0.2, dark, name(rng))
    return drawing


def tin_label(kind: str, w: int = 720, h: int = 300) -> Image.Image:
    """A face on a disc, three times around; FOX is the tin asked for, the others are like it."""
    ground, disc, fur, zigzag, eye = {
        "FOX": ((18, 92, 108), (250, 236, 205), (226, 96, 24), (246, 190, 40), 8),
        "OWL": ((96, 40, 110), (226, 214, 240), (120, 84, 60), (120, 200, 120), 20),
        "PIG": ((150, 34, 40), (250, 240, 230), (240, 150, 160), (250, 250, 250), 11),
    }[kind]
    drawing = Image.new("RGB", (w, h), ground)
    draw = ImageDraw.Draw(drawing)
    for x in range(0, w, 24):
        draw.polygon([(x, 0), (x + 12, 34), (x + 24, 0)], zigzag)
        draw.polygon([(x, h), (x + 12, h - 34), (x + 24, h)], zigzag)
    for x in (w // 6, w // 2, w * 5 // 6):
        draw.circle((x, 130), 88, disc)
        draw.ellipse((x - 58, 80, x + 58, 188), disc if kind == "FOX" else fur)
        for side in (-1, 1):
            draw.polygon([(x + side * 60, 62), (x + side * 10, 96), (x + side * 60, 122)], fur)
            if kind == "FOX":
                draw.polygon([(x + side * 64, 112), (x, 84), (x, 192)], fur)
                draw.polygon([(x + side * 64, 112), (x + side * 14, 146), (x, 192)], (255, 250, 240))
            draw.circle((x + side * 25, 118), eye, "white")
            draw.circle((x + side * 25, 118), 8, "black")
        draw.circle((x, 186 if kind == "FOX" else 150), 18 if kind == "PIG" else 10, "black")
        write(draw, x, 242, 54, disc, kind)
    return drawing


# The room: rectangles, and the boxes that cast shadows for them.


class Place(NamedTuple):
    """A wall's own axes: x to the right along it, y up, z out of it into the room."""

    origin: np.ndarray
    right: np.ndarray
    out: np.ndarray

    def at(self, x: float, y: float, z: float) -> np.ndarray:
        return self.origin + x * self.right + y * UP + z * self.out


X, Z = np.array([1.0, 0, 0]), np.array([0, 0, 1.0])
NORTH, SOUTH, WEST, EAST = Place(ROOM * 0, X, Z), Place(ROOM * (X + Z), -X, -Z), Place(ROOM * Z, -Z, X), Place(ROOM * X, Z, -X)


class Surface:
    """A rectangle from its top left corner, seen from the front."""

    def __init__(self, origin: Vector, across: Vector, down: Vector, picture: np.ndarray) -> None:
        self.origin, self.across, self.down, self.picture = origin, across, down, picture
        self.width, self.height = float(np.linalg.norm(across)), float(np.linalg.norm(down))
        self.normal = np.cross(down, across) / (self.width * self.height)
        self.levels = [picture]  # lit, and ever coarser

    def points(self, per_m: float) -> np.ndarray:
        """A grid on it: [rows, columns, 3]."""
        rows, columns = (max(2, math.ceil(side * per_m)) for side in (self.height, self.width))
        b, a = np.mgrid[0.5:rows, 0.5:columns][..., None]
        return self.origin + a / columns * self.across + b / rows * self.down


class Scene:
    def __init__(self, seed: int) -> None:
        self.rng, self.surfaces, self.solids = default_rng(seed), list[Surface](), list[np.ndarray]()

    def box(self, place: Place, x: float, y: float, z: float, w: float, h: float, d: float,
            front: np.ndarray, sides: np.ndarray | None = None) -> None:  # fmt: skip
        """A box from its left bottom back corner, in the axes of a wall."""
        corner, across, up, out = place.at(x, y, z), w * place.right, h * UP, d * place.out
        sides = front if sides is None else sides
        self.surfaces += [
            Surface(corner + up + out, across, -up, front),
            Surface(corner + up, out, -up, sides),
            Surface(corner + up + out + across, -out, -up, sides),
            Surface(corner + up, across, out, sides),
            Surface(corner + out, across, -out, sides),
        ]
        self.solids.append(np.sort([corner, corner + across + up + out], 0))

    def tube(self, place: Place, x: float, y: float, z: float, r: float, h: float, around: np.ndarray,
             top: Any, sides: int = 18) -> np.ndarray:  # fmt: skip
        """An upright cylinder from the middle of its foot; returns its corners."""
        angles = math.tau * ((np.arange(sides + 1) - 0.5) / sides - 0.5)[:, None]
        rim = place.at(x, y + h, z) + r * (np.sin(angles) * place.right + np.cos(angles) * place.out)
        cuts = np.linspace(0, around.shape[1], sides + 1).astype(int)
        for k in range(sides):
            self.surfaces.append(Surface(rim[k], rim[k + 1] - rim[k], -h * UP, around[:, cuts[k] : cuts[k + 1]]))
        beyond = np.hypot(*np.mgrid[-1:1:64j, -1:1:64j])[..., None]
        lid = np.where(beyond < 1, plain(self.rng, top, 64, 64) * (1 - 0.4 * (beyond > 0.85)), np.nan)
        self.surfaces.append(Surface(place.at(x - r, y + h, z - r), 2 * r * place.right, 2 * r * place.out, lid))
        inner = 0.7 * r  # the largest box inside: the shadow starts under the tube, not around it
        self.solids.append(np.sort([place.at(x - inner, y, z - inner), place.at(x + inner, y + h, z + inner)], 0))
        return np.concatenate([rim, rim - h * UP])

    def tin(self, place: Place, x: float, y: float, z: float, kind: str, turn: float = 0.0) -> np.ndarray:
        label, metal = np.roll(worn(self.rng, tin_label(kind), 0.03), round(turn * 720), 1), (190, 170, 120)
        lid = self.tube(place, x, y + 0.18, z, 0.077, 0.015, plain(self.rng, metal, 20, 90), metal, 45)
        return np.concatenate([lid, self.tube(place, x, y, z, 0.075, 0.18, label, metal, 45)])

    def row(self, place: Place, x: float, end: float, y: float, z: float, tallest: float) -> None:
        """Books, cartons and jars side by side."""
        rng = self.rng
        while x < end - 0.16:
            kind, w, h = rng.random(), rng.uniform(0.08, 0.15), tallest * rng.uniform(0.6, 1)
            front = worn(rng, package(rng, w * 600, h * 600, 1 if kind < 0.75 else 3))
            if kind < 0.5:
                for thick in rng.uniform(0.02, 0.05, min(7, int((end - x) / 0.05))):
                    h = tallest * rng.uniform(0.7, 1)
                    back = worn(rng, package(rng, h * 600, thick * 600).rotate(-90, expand=True))
                    self.box(place, x, y, z, thick - 0.002, h, 0.16, back, plain(rng, (225, 215, 190)))
                    x += thick
            elif kind < 0.75:
                self.box(place, x, y, z, w, h, rng.uniform(0.05, 0.16), front, plain(rng, inks(rng)[2]))
            else:
                self.tube(place, x + w / 2, y, z + 0.09, w / 2, min(h, 0.22), front, inks(rng)[2])
            x += rng.uniform(0.005, 0.05) + (w if kind >= 0.5 else 0)

    def room(self) -> None:
        rng = self.rng
        for place, wide in ((NORTH, 5), (SOUTH, 5), (WEST, 4), (EAST, 4)):
            paper = Image.new("RGB", (wide * 250, 625), (196, 186, 160))
            draw = ImageDraw.Draw(paper)
            for k in range(wide * 250):
                x, y = 25 * (k // 25) + 12, 25 * (k % 25) + 12 * (k // 25 % 2)
                draw.regular_polygon((x, y, 4), 4, fill=(172, 150, 122) if k % 3 else (120, 140, 140))
            draw.rectangle((0, 590, wide * 250, 625), (235, 230, 220))
            self.surfaces.append(Surface(place.at(0, 2.5, 0), wide * place.right, -2.5 * UP, worn(rng, paper, 0.03)))
        self.surfaces.append(Surface(NORTH.origin, 5 * X, 4 * Z, wood(rng, (150, 104, 66), 800, 1000)))
        self.surfaces.append(Surface(NORTH.at(0, 2.5, 4), 5 * X, -4 * Z, plain(rng, (230, 228, 220))))
        sky = np.full((100, 140, 3), [4.4, 5.2, 6.4]) + 0.6 * cloud(rng, 100, 140, 2, 3)  # over 1: it glows
        sky[70:] *= [0.2, 0.28, 0.1]
        sky[:, 68:72] = sky[33:36] = sky[:4] = sky[-5:] = sky[:, :4] = sky[:, -4:] = 1.2
        self.surfaces.append(Surface(EAST.at(1.0, 2.2, 0.01), 1.4 * Z, -0.9 * UP, sky))

    def furniture(self) -> None:
        rng = self.rng
        pine, oak, white = wood(rng, (190, 140, 84)), wood(rng, (122, 80, 48)), plain(rng, (222, 218, 208))
        dark, cloth = plain(rng, (36, 36, 40)), plain(rng, (70, 96, 88), 100, 100)
        screen = worn(rng, poster(rng, 360, 216))
        for *where, front, sides in (
            (NORTH, 0.58, 0, 0.01, 0.025, 2.05, 0.3, pine, pine), (NORTH, 2.58, 0, 0.01, 0.025, 2.05, 0.3, pine, pine),
            (NORTH, 3.2, 0, 0.1, 0.9, 0.42, 0.8, cloth, cloth), (NORTH, 3.2, 0.42, 0.1, 0.9, 0.5, 0.2, cloth, cloth),
            (WEST, 0.5, 0, 0, 3.0, 0.86, 0.5, oak, oak), (WEST, 0.45, 0.86, 0, 3.1, 0.03, 0.53, pine, pine),
            (WEST, 0.7, 1.5, 0, 2.4, 0.025, 0.25, pine, pine), (EAST, 0.7, 0.72, 0.05, 2.2, 0.035, 0.7, pine, pine),
            (EAST, 0.72, 0, 0.1, 0.45, 0.72, 0.6, white, white), (EAST, 2.42, 0, 0.1, 0.45, 0.72, 0.6, white, white),
            (EAST, 1.5, 0.86, 0.2, 0.6, 0.36, 0.03, screen, dark), (EAST, 1.75, 0.755, 0.18, 0.1, 0.12, 0.05, dark, dark),
            (EAST, 1.6, 0.755, 0.5, 0.42, 0.02, 0.14, dark, dark), (SOUTH, 0.8, 0, 0, 1.6, 0.8, 0.45, oak, pine),
            (SOUTH, 3.8, 0, 0, 0.9, 2.05, 0.03, wood(rng, (200, 190, 170), 300, 150), pine),
            *((WEST, 0.54 + 0.6 * k, 0.1, 0.5, 0.55, 0.7, 0.012, white, white) for k in range(5)),
            *((WEST, 0.78 + 0.6 * k, 0.66, 0.512, 0.1, 0.02, 0.02, dark, dark) for k in range(5)),
            *((SOUTH, 0.84, 0.05 + 0.25 * k, 0.45, 1.52, 0.22, 0.012, pine, pine) for k in range(3)),
            *((NORTH, 0.6, 0.06 + 0.39 * k, 0.01, 2.0, 0.025, 0.3, pine, pine) for k in range(6)),
        ):  # fmt: skip
            self.box(*where, front, sides)
        for place, x, y, w, h in (
            (NORTH, 2.9, 1.3, 0.6, 0.8), (NORTH, 3.7, 1.2, 0.9, 0.65), (SOUTH, 0.9, 1.4, 0.5, 0.7),
            (SOUTH, 1.6, 1.5, 0.7, 0.5), (SOUTH, 2.5, 1.3, 0.6, 0.8), (WEST, 0.1, 1.4, 0.45, 0.6),
            (WEST, 3.3, 1.4, 0.5, 0.7), (EAST, 2.7, 1.3, 0.5, 0.7), (EAST, 0.25, 1.3, 0.45, 0.65),
        ):  # fmt: skip
            self.box(place, x, y, 0, w, h, 0.015, worn(rng, poster(rng, round(w * 400), round(h * 400))), dark)

    def clutter(self) -> None:
        for k in range(5):
            self.row(NORTH, 0.62, 1.5 if k == 3 else 2.55, 0.085 + 0.39 * k, 0.06, 0.33)
        for place, x, end, y, z, tallest in (
            (NORTH, 1.86, 2.55, 1.255, 0.06, 0.33), (WEST, 0.6, 1.08, 0.89, 0.06, 0.26),
            (WEST, 1.5, 3.4, 0.89, 0.06, 0.26), (WEST, 0.72, 3.05, 1.525, 0.04, 0.28),
            (EAST, 0.75, 1.4, 0.755, 0.1, 0.24), (EAST, 2.2, 2.75, 0.755, 0.1, 0.24), (SOUTH, 0.85, 2.35, 0.8, 0.08, 0.3),
        ):  # fmt: skip
            self.row(place, x, end, y, z, tallest)
        self.tin(WEST, 2.3, 0.89, 0.37, "OWL", 0.05)
        self.tin(SOUTH, 1.5, 0.8, 0.36, "PIG", 0.1)
        for y, r, h in ((0.755, 0.08, 0.02), (0.77, 0.012, 0.36), (1.1, 0.11, 0.16)):  # a lamp
            around = np.full((8, 90, 3), [2.6, 2.0, 1.2] if r == 0.11 else 0.03)
            self.tube(EAST, 2.6, y, 0.5, r, h, around, "ivory")


# Light: baked once. Whatever is brighter than white glows and takes none.


def blocked(start: np.ndarray, way: np.ndarray, solids: np.ndarray) -> np.ndarray:
    """[n, 3] points and ways from there -> [n]: does a solid stand in the way?"""
    low, high = np.minimum(start, start + way).min(0), np.maximum(start, start + way).max(0)
    hit, inverse = np.zeros(len(start), bool), 1 / np.where(np.abs(way) < 1e-6, 1e-6, way)
    for solid in solids[((solids[:, 0] < high) & (solids[:, 1] > low)).all(1)]:
        one, other = (solid[0] - start) * inverse, (solid[1] - start) * inverse
        enters, leaves = np.minimum(one, other).max(1), np.maximum(one, other).min(1)
        hit |= (enters < leaves) & (enters < 1) & (leaves > 1e-3)
    return hit


def bake(scene: Scene, lamps: list[tuple[Vector, float, Vector]], ambient: Vector, rays: int = 24) -> None:
    solids, scatter = np.array(scene.solids, np.float32), default_rng(SEED).normal(size=(rays, 3))
    for surface in scene.surfaces:
        if np.nanmax(surface.picture) <= 1:
            points = surface.points(20 if surface.width * surface.height > 4 else 40).astype(np.float32)
            start = np.repeat((points + 0.004 * surface.normal).reshape(-1, 3), rays, 0).astype(np.float32)
            # The same rays from all points: bands are less of an eyesore than speckles.
            way = surface.normal + scatter / np.linalg.norm(scatter, axis=1, keepdims=True)  # cosine-weighted
            way *= np.linspace(0.05, 0.7, rays)[:, None]  # what is further away shuts out no light
            way = np.tile(way.astype(np.float32), (len(start) // rays, 1))
            shut = blocked(start, way, solids) | ((start + way < 0) | (start + way > ROOM)).any(1)
            light = ~shut[:, None] * np.array(ambient)
            for where, spread, strength in lamps:
                way = np.float32(np.tile(where + scatter * spread, (len(start) // rays, 1))) - start
                distance = np.linalg.norm(way, axis=1)
                falling = (way @ surface.normal / distance).clip(0) / (0.3 + distance**2)
                if falling.any():
                    light += (falling * ~blocked(start, way * 0.97, solids))[:, None] * strength
            light = light.reshape(*points.shape[:2], rays, 3).mean(2)
            surface.picture = surface.picture * resized(light, *surface.picture.shape[:2]).clip(0)
        surface.levels = [surface.picture.astype(np.float32)]
        while min(surface.levels[-1].shape[:2]) >= 8 and len(surface.levels) < 4:
            p = surface.levels[-1][: surface.levels[-1].shape[0] // 2 * 2, : surface.levels[-1].shape[1] // 2 * 2]
            surface.levels.append((p[::2, ::2] + p[1::2, ::2] + p[::2, 1::2] + p[1::2, 1::2]) / 4)


# The camera.


class Pose(NamedTuple):
    eye: np.ndarray
    axes: np.ndarray  # rows: right, down, forward

    def project(self, points: np.ndarray, w: int = WIDTH, h: int = HEIGHT, focal: float = FOCAL_PX) -> np.ndarray:
        """[..., 3] in the room -> x, y in pixels and depth in metres."""
        x, y, depth = np.moveaxis((points - self.eye) @ self.axes.T, -1, 0)
        return np.stack([x / depth.clip(0.05) * focal + w / 2, y / depth.clip(0.05) * focal + h / 2, depth], -1)


def seen(scene: Scene, pose: Pose, shift: np.ndarray, w: int = WIDTH, h: int = HEIGHT, focal: float = FOCAL_PX) -> np.ndarray:
    """[h, w, 3] linear light along one ray a pixel."""
    x_all = ((np.arange(w) + 0.5 + shift[0] - w / 2) / focal).astype(np.float32)[None]
    y_all = ((np.arange(h) + 0.5 + shift[1] - h / 2) / focal).astype(np.float32)[:, None]
    image, nearness = np.zeros((h, w, 3), np.float32), np.full((h, w), 1e-3, np.float32)
    faces = np.array([(s.origin, s.across, s.down, s.normal) for s in scene.surfaces])
    corners = pose.project(faces[:, :1] + [[0, 0], [0, 1], [1, 0], [1, 1]] @ faces[:, 1:3], w, h, focal)
    low, high = np.floor(corners.min(1)[:, :2]) - 2, np.ceil(corners.max(1)[:, :2]) + 2
    low[corners[..., 2].min(1) < 0.05], high[corners[..., 2].min(1) < 0.05] = 0, (w, h)  # reaches behind the eye
    low, high = low.clip(0, (w, h)).astype(int), high.clip(0, (w, h)).astype(int)
    faced = ((pose.eye - faces[:, 0]) * faces[:, 3]).sum(1) > 0
    for k in np.flatnonzero(faced & (corners[..., 2].max(1) > 0.05) & (high > low).all(1)):
        part = (slice(low[k, 1], high[k, 1]), slice(low[k, 0], high[k, 0]))
        x, y, surface = x_all[:, part[1]], y_all[part[0]], scene.surfaces[k]
        o, across, down = (faces[k, :3] - [pose.eye, [0, 0, 0], [0, 0, 0]]) @ pose.axes.T
        n = np.cross(across, down)
        with np.errstate(all="ignore"):
            near = (n[0] * x + n[1] * y + n[2]) / (n @ o)
            u = ((across[0] * x + across[1] * y + across[2]) / near - across @ o) / surface.width**2
            v = ((down[0] * x + down[1] * y + down[2]) / near - down @ o) / surface.height**2
        won = (near > nearness[part]) & (u >= 0) & (u < 1) & (v >= 0) & (v < 1)
        if won.any():
            texels_per_px = surface.levels[0].shape[0] / surface.height / (np.median(near[won]) * focal)
            level = surface.levels[int(np.clip(round(math.log2(texels_per_px)), 0, len(surface.levels) - 1))]
            colours = level[(v[won] * level.shape[0]).astype(int), (u[won] * level.shape[1]).astype(int)]
            won[won] = solid = ~np.isnan(colours[:, 0])
            image[part][won], nearness[part][won] = colours[solid], near[won]
    return image


# One row a fixation: from when, until when [s]; where one stands (x, z) and looks (x, y, z) [m].
FIXATIONS = np.array([
    (0.0, 1.2, 3.0, 2.6, 4.7, 1.0, 1.8), (2.0, 3.0, 3.7, 1.9, 4.8, 0.9, 1.1), (3.7, 4.6, 3.8, 2.2, 4.5, 1.0, 2.6),
    (5.4, 6.4, 3.1, 2.5, 3.5, 0.9, 3.7), (7.1, 7.5, 2.2, 2.6, 2.2, 1.5, 4.0), (8.6, 10.2, 1.2, 2.6, 0.3, 1.0, 2.6),
    (10.7, 12.0, 1.05, 2.7, 0.3, 0.95, 2.8), (13.0, 14.2, 1.1, 1.6, 0.2, 1.0, 1.2), (14.8, 15.6, 1.3, 1.4, 0.1, 1.6, 1.3),
    (16.6, 18.2, 1.5, 1.2, 1.4, 1.2, 0.1), (19.2, 20.4, 2.6, 1.6, 3.6, 1.0, 0.2), (21.6, 22.6, 3.4, 2.0, 4.9, 1.6, 1.8),
    (23.6, 24.8, 3.2, 2.3, 3.6, 1.0, 3.8), (26.6, 27.2, 3.3, 1.5, 3.8, 1.5, 0.0), (28.3, 29.9, 1.9, 1.1, 1.8, 1.25, 0.1),
    (30.4, 32.2, 1.65, 1.0, 1.6, 1.3, 0.1), (33.4, 34.2, 2.6, 1.4, 3.7, 1.0, 0.2), (35.4, 36.6, 3.7, 1.7, 4.8, 0.9, 1.2),
    (37.4, 38.4, 3.8, 2.2, 4.6, 0.9, 2.4), (39.4, 41.0, 3.2, 2.5, 3.4, 0.9, 3.7), (42.0, 42.6, 2.4, 2.5, 2.0, 1.5, 4.0),
    (43.6, 45.4, 1.3, 2.6, 0.3, 0.95, 2.7), (46.4, 48.0, 1.2, 1.9, 0.3, 1.0, 1.7),
])  # fmt: skip


def walk(time_s: float) -> Pose:
    """Where the head is: it strolls from fixation to fixation, turns quickly, bobs and trembles."""
    start, end, x, z = FIXATIONS[:, :4].T
    stroll = PchipInterpolator((start + end) / 2, np.stack([x, 0 * x + 1.5, z], 1))
    at = FIXATIONS[:, :2].ravel()
    gaze = np.repeat(FIXATIONS[:, 4:], 2, 0) - stroll(at.clip(start[0] + 0.6, END_S - 0.8))
    yaw = np.unwrap(np.arctan2(gaze[:, 0], -gaze[:, 2]))
    pitch = np.arctan2(gaze[:, 1], np.hypot(gaze[:, 0], gaze[:, 2]))
    turn = PchipInterpolator(at, np.stack([-yaw, pitch, 0 * yaw], 1))(time_s)
    now = min(max(time_s, 0.6), END_S - 0.8)
    step = math.tau * 1.8 * time_s
    pace = min(1.0, float(np.linalg.norm(stroll(now, 1)))) + 0.15
    tremor = [math.sin(2.1 * time_s + 3 * k) + math.sin(3.7 * time_s + k) + 0.4 * math.sin(9.1 * time_s) for k in range(3)]
    turn += 0.006 * np.array(tremor) + pace * np.array([0.008, 0.006, 0.02]) * np.sin(step / np.array([2, 1, 2]))
    eye = stroll(now) + 0.02 * pace * math.sin(step) * UP
    return Pose(eye, (Rotation.from_euler("YXZ", turn).as_matrix() * [1, -1, -1]).T)


def developed(light: np.ndarray, exposure: float, rng: Generator) -> np.ndarray:
    """Linear light as a cheap camera stores it: [h, w, 3] uint8."""
    h, w = light.shape[:2]
    y, x = np.mgrid[-1 : 1 : h * 1j, -1 : 1 : w * 1j]
    corners_darker = 1 / (1 + 0.25 * (x**2 + y**2))[..., None]
    image = (1 - np.exp(-light * exposure * corners_darker)) ** (1 / 2.2)
    return ((image + rng.normal(0, 0.008, (h, w, 1))) * 255).clip(0, 255).astype(np.uint8)


def frame_light(scene: Scene, time_s: float, rng: Generator) -> np.ndarray:
    """What falls on the sensor while the shutter is open, half the time: the faster, the more blurred."""
    first, last = walk(time_s - 0.25 / FPS), walk(time_s + 0.25 / FPS)
    moved_px = FOCAL_PX * float(np.linalg.norm(first.axes[2] - last.axes[2]))
    times = time_s + (np.linspace(-0.25, 0.25, int(np.clip(moved_px / 3, 4, 12)))) / FPS
    return np.mean([seen(scene, walk(t), rng.uniform(-0.5, 0.5, 2)) for t in times], 0)


def film(scenes: tuple[Scene, Scene], path: Path) -> None:
    rng, brightness = default_rng(SEED), 0.5
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "29", "preset": "slower"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.codec_context.colorspace = stream.codec_context.color_range = 1  # BT.709, limited
        for k in range(round(END_S * FPS)):
            light = frame_light(scenes[k / FPS >= MOVED_S], k / FPS, rng)
            brightness += 0.1 * (float(light.mean()) - brightness)  # the exposure lags behind
            image = av.VideoFrame.from_ndarray(developed(light, 0.55 / brightness**0.8, rng))
            container.mux(stream.encode(image.reformat(format="yuv420p", dst_colorspace="ITU709")))
        container.mux(stream.encode(None))


def portrait(thing: Callable[[Scene], np.ndarray], size: int = 320) -> Image.Image:
    """A picture of a thing elsewhere: on another table, in evening light, close up."""
    scene = Scene(SEED + 1)
    scene.box(NORTH, 1, 0.9, 0.8, 3, 0.04, 1, wood(scene.rng, (96, 58, 40), 300, 900))
    scene.surfaces.append(Surface(NORTH.at(0, 2.5, 0.6), 5 * X, -2.5 * UP, plain(scene.rng, (110, 130, 150), 500, 900)))
    outline = thing(scene)
    bake(scene, [((3.4, 2.0, 2.2), 0.1, (4.0, 2.9, 1.8))], (0.4, 0.36, 0.34))
    turn = Rotation.from_euler("YX", (0.12, -0.3)).as_matrix() * [1, -1, -1]
    middle = (outline.min(0) + outline.max(0)) / 2
    pose, rng = Pose(middle - 0.7 * turn[:, 2], turn.T), default_rng(SEED)
    corners = pose.project(outline, size, size, 1)[:, :2]
    focal = 0.86 * size / float(np.ptp(corners, 0).max())
    light = np.mean([seen(scene, pose, rng.uniform(-0.5, 0.5, 2), size, size, focal) for _ in range(16)], 0)
    return Image.fromarray(developed(light, 1.6, rng))


def truth(outlines: tuple[np.ndarray, np.ndarray]) -> ResponseTrack:
    """The tin's last run of frames with at least half of it in the picture."""
    boxes: dict[int, Box] = {}
    for k in range(round(END_S * TRUTH_FPS)):
        corners = walk(k / TRUTH_FPS).project(outlines[k / TRUTH_FPS >= MOVED_S])
        box = Box(*corners[:, :2].min(0).tolist(), *corners[:, :2].max(0).tolist())
        inside = box.clipped(WIDTH, HEIGHT)
        if corners[:, 2].min() > 0.1 and inside.area >= 0.5 * box.area:
            boxes[k] = inside
    first = max(k for k in boxes if k - 1 not in boxes)
    last = tuple(box for k, box in boxes.items() if k >= first)
    return ResponseTrack(first_frame=first, fps=TRUTH_FPS, boxes=last, score=1.0)


def main() -> None:
    scenes, outlines = [], []
    for place, x, y, z, turn in ((WEST, 1.28, 0.89, 0.3, 0.03), (NORTH, 1.68, 1.255, 0.17, -0.04)):
        scene = Scene(SEED)
        scene.room()
        scene.furniture()
        scene.clutter()
        outlines.append(scene.tin(place, x, y, z, "FOX", turn))
        bake(scene, [WINDOW, CEILING, DESK_LAMP], (0.3, 0.3, 0.31))
        scenes.append(scene)
    portrait(lambda scene: scene.tin(NORTH, 2.5, 0.94, 1.2, "FOX", 0.05)).save(ASSETS / "demo_query.jpg", quality=90)
    (ASSETS / "demo_truth.json").write_text(truth(tuple(outlines)).to_json() + "\n")
    film(tuple(scenes), ASSETS / "demo.mp4")


if __name__ == "__main__":
    main()

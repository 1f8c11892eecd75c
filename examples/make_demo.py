"""Renders the bundled demo: a walk through a cluttered room, a picture of a tin, and where the tin was.

    python examples/make_demo.py  # a quarter of an hour: lastseen/assets/demo{.mp4,_query.jpg,_truth.json}

Nothing is downloaded: all is drawn here from a fixed seed. The room is made of rectangles; light, soft
shadows and ambient occlusion are baked into their pictures, then a head camera walks through it.
The tin's boxes are its projected outline, so they are true by construction.
"""

import math
from collections.abc import Callable, Sequence
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
ROOM, X, UP, Z = np.array([5.0, 2.5, 4.0]), *np.eye(3)  # metres
# Where, how wide, how bright: the window, the ceiling.
LAMPS = ((4.7, 1.7, 1.7), 0.3, (6.0, 6.6, 7.4)), ((2.5, 2.4, 2.0), 0.15, (3.4, 2.8, 2.1))
SYLLABLES = ["ba", "co", "di", "fen", "gor", "hal", "im", "jo", "ka", "lu", "mir", "ost", "pel", "tum", "zan"]

# Pictures: drawn in print colours, used as [h, w, 3] of linear light; NaN is a hole.


def resized(values: np.ndarray, h: int, w: int) -> np.ndarray:
    channels = values.astype(np.float32).transpose(2, 0, 1)
    return np.dstack([Image.fromarray(channel).resize((w, h), 3) for channel in channels])


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
    hsv = [(hue + k * 110, rng.uniform(30, 85), rng.uniform(35, 80)) for k in range(4)]
    return [f"hsv({h % 360:.0f},{s:.0f}%,{v:.0f}%)" for h, s, v in [(hue, 12, 90), (hue, 60, 22), *hsv]]


def sheet(w: float, h: float, colour: Any) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    drawing = Image.new("RGB", (round(w), round(h)), colour)
    return drawing, ImageDraw.Draw(drawing)


def write(draw: ImageDraw.ImageDraw, x: float, y: float, size: float, ink: Any, text: Any) -> None:
    """A text or, given a random generator, some word."""
    text = text if isinstance(text, str) else "".join(text.choice(SYLLABLES, 2)).upper()
    draw.text((x, y), text, ink, ImageFont.load_default(max(6, size)), anchor="mm")


def poster(rng: Generator, w: int, h: int) -> Image.Image:
    """Hills under a sun."""
    light, dark, *strong = inks(rng)
    drawing, draw = sheet(w, h, light)
    draw.circle((w * rng.uniform(0.2, 0.8), h * 0.25), h * 0.13, strong[0])
    for k, ink in enumerate([*strong[1:], dark]):
        ridge = h * (0.42 + 0.14 * k) + h * 0.06 * cloud(rng, 1, w, 1, 3)[0, :, 0]
        draw.polygon([(0, h), *enumerate(ridge.tolist()), (w, h)], ink)
    draw.rectangle((0, h * 0.86, w, h), light)
    write(draw, w / 2, h * 0.93, h * 0.09, dark, rng)
    draw.rectangle((0, 0, w - 1, h - 1), outline=(40, 32, 28), width=max(3, h // 40))
    return drawing


def package(rng: Generator, w: float, h: float, times: int = 1) -> Image.Image:
    """The front of a carton; several times around, the label of a jar; lying, the spine of a book."""
    light, dark, first, second, *_ = inks(rng)
    drawing, draw = sheet(w * times, h, first)
    if w > 2 * h:
        write(draw, w / 2, h / 2, h * 0.6, light, rng)
        draw.line((0, 0, w, 0, w, h, 0, h), dark, 6)
        return drawing
    slope = rng.uniform(0.4, 0.8)
    for x in (w * k for k in range(times)):
        draw.polygon([(x, h * 0.6), (x + w, h * slope), (x + w, h), (x, h)], second)
        draw.circle((x + w / 2, h * 0.62), min(w, h) * 0.22, light, dark, 2)
        draw.rectangle((x, h * 0.1, x + w, h * 0.36), light)
        write(draw, x + w / 2, h * 0.23, w * 0.2, dark, rng)
    return drawing


def tin_label(kind: str, w: int = 720, h: int = 300) -> Image.Image:
    """A mark on a disc, three times around; FOX is the tin asked for, the others are like it."""
    ground, disc, mark, zigzag = {
        "FOX": ((18, 92, 108), (250, 236, 205), (226, 96, 24), (246, 190, 40)),
        "SUN": ((150, 34, 40), (240, 200, 190), (120, 60, 70), (230, 220, 220)),
        "TEA": ((96, 40, 110), (206, 200, 220), (60, 90, 60), (120, 200, 120)),
    }[kind]
    drawing, draw = sheet(w, h, ground)
    for x in range(0, w, 24):
        draw.polygon([(x, 0), (x + 12, 34), (x + 24, 0)], zigzag)
        draw.polygon([(x, h), (x + 12, h - 34), (x + 24, h)], zigzag)
    for x in (w // 6, w // 2, w * 5 // 6):
        draw.circle((x, 130), 88, disc)
        if kind != "FOX":
            draw.regular_polygon((x, 130, 66), {"SUN": 8, "TEA": 3}[kind], fill=mark)
        for side in (-1, 1) if kind == "FOX" else ():
            draw.polygon([(x + side * 60, 62), (x + side * 10, 96), (x + side * 60, 122)], mark)
            draw.polygon([(x + side * 64, 112), (x, 84), (x, 192)], mark)
            draw.polygon([(x + side * 64, 112), (x + side * 14, 146), (x, 192)], "white")
            draw.circle((x + side * 25, 118), 8, "black")
            draw.circle((x, 186), 10, "black")
        write(draw, x, 242, 54, disc, kind)
    return drawing


# The room: rectangles, and the boxes that cast shadows for them.


class Wall(NamedTuple):
    """Its own axes: x to the right along it, y up, z out of it into the room."""

    origin: np.ndarray
    right: np.ndarray
    out: np.ndarray

    def at(self, x: float, y: float, z: float) -> np.ndarray:
        return self.origin + x * self.right + y * UP + z * self.out


NORTH, SOUTH = Wall(ROOM * 0, X, Z), Wall(ROOM * (X + Z), -X, -Z)
WEST, EAST = Wall(ROOM * Z, -Z, X), Wall(ROOM * X, Z, -X)


class Scene:
    def __init__(self, seed: int) -> None:
        self.rng = default_rng(seed)
        self.faces: list[list[np.ndarray]] = []  # of rectangles: top left corner, way across, way down
        self.pictures: list[np.ndarray] = []  # on them
        self.solids: list[np.ndarray] = []

    def face(self, corner: np.ndarray, across: np.ndarray, down: np.ndarray, picture: np.ndarray) -> None:
        self.faces.append([corner, across, down])
        self.pictures.append(picture)

    def box(self, wall: Wall, x: float, y: float, z: float, w: float, h: float, d: float,
            front: np.ndarray, sides: np.ndarray) -> None:  # fmt: skip
        """A box from its left bottom back corner, in the axes of a wall."""
        corner, across, up, out = wall.at(x, y, z), w * wall.right, h * UP, d * wall.out
        self.face(corner + up + out, across, -up, front)
        self.face(corner + up, out, -up, sides)
        self.face(corner + up + out + across, -out, -up, sides)
        self.face(corner + up, across, out, sides)
        self.face(corner + out, across, -out, sides)
        self.solids.append(np.sort([corner, corner + across + up + out], 0))

    def tube(self, wall: Wall, x: float, y: float, z: float, r: float, h: float, around: np.ndarray,
             top: Any, sides: int = 18) -> np.ndarray:  # fmt: skip
        """An upright cylinder from the middle of its foot; returns its corners."""
        angles = math.tau * ((np.arange(sides + 1) - 0.5) / sides - 0.5)[:, None]
        rim = wall.at(x, y + h, z) + r * (np.sin(angles) * wall.right + np.cos(angles) * wall.out)
        cuts = np.linspace(0, around.shape[1], sides + 1).astype(int)
        for k in range(sides):
            self.face(rim[k], rim[k + 1] - rim[k], -h * UP, around[:, cuts[k] : cuts[k + 1]])
        beyond = np.hypot(*np.mgrid[-1:1:64j, -1:1:64j])[..., None]
        lid = np.where(beyond < 1, plain(self.rng, top, 64, 64) * (1 - 0.4 * (beyond > 0.85)), np.nan)
        self.face(wall.at(x - r, y + h, z - r), 2 * r * wall.right, 2 * r * wall.out, lid)
        s = 0.7 * r  # a box inside: its shadow starts under the tube, not around it
        self.solids.append(np.sort([wall.at(x - s, y, z - s), wall.at(x + s, y + h, z + s)], 0))
        return np.concatenate([rim, rim - h * UP])

    def tin(self, wall: Wall, x: float, y: float, z: float, kind: str, turn: float = 0.0) -> np.ndarray:
        label, metal = np.roll(worn(self.rng, tin_label(kind), 0.03), round(turn * 720), 1), (190, 170, 120)
        lid = self.tube(wall, x, y + 0.18, z, 0.077, 0.015, plain(self.rng, metal, 20, 90), metal, 45)
        return np.concatenate([lid, self.tube(wall, x, y, z, 0.075, 0.18, label, metal, 45)])

    def row(self, wall: Wall, x: float, end: float, y: float, z: float, tallest: float) -> None:
        """Books, cartons and jars side by side."""
        rng = self.rng
        while x < end - 0.16:
            kind, w, h = rng.random(), rng.uniform(0.08, 0.15), tallest * rng.uniform(0.6, 1)
            front = worn(rng, package(rng, w * 600, h * 600, 1 if kind < 0.7 else 3))
            if kind < 0.4:
                w = 0
                for thick in rng.uniform(0.02, 0.05, min(7, int((end - x) / 0.05))):
                    h = tallest * rng.uniform(0.7, 1)
                    spine = worn(rng, package(rng, h * 600, thick * 600).rotate(-90, expand=True))
                    self.box(wall, x + w, y, z, thick - 0.002, h, 0.16, spine, plain(rng, (225, 215, 190)))
                    w += thick
            elif kind < 0.7:
                self.box(wall, x, y, z, w, h, rng.uniform(0.05, 0.16), front, plain(rng, inks(rng)[2]))
            else:
                self.tube(wall, x + w / 2, y, z + 0.09, w / 2, min(h, 0.22), front, inks(rng)[2])
            x += w + rng.uniform(0.005, 0.05)

    def room(self) -> None:
        for wall, wide in ((NORTH, 5), (SOUTH, 5), (WEST, 4), (EAST, 4)):
            paper, draw = sheet(wide * 250, 625, (196, 186, 160))
            for k in range(wide * 250):
                x, y = 25 * (k // 25) + 12, 25 * (k % 25) + 12 * (k // 25 % 2)
                draw.regular_polygon((x, y, 4), 4, fill=(172, 150, 122) if k % 3 else (120, 140, 140))
            draw.rectangle((0, 590, wide * 250, 625), (235, 230, 220))
            self.face(wall.at(0, 2.5, 0), wide * wall.right, -2.5 * UP, worn(self.rng, paper, 0.03))
        self.face(NORTH.origin, 5 * X, 4 * Z, wood(self.rng, (150, 104, 66), 800, 1000))
        self.face(NORTH.at(0, 2.5, 4), 5 * X, -4 * Z, plain(self.rng, (230, 228, 220)))
        sky = np.full((100, 140, 3), [4.4, 5.2, 6.4]) + 0.6 * cloud(self.rng, 100, 140, 2, 3)
        sky[70:] *= [0.2, 0.28, 0.1]
        sky[:, 68:72] = sky[33:36] = sky[:4] = sky[-5:] = sky[:, :4] = sky[:, -4:] = 1.2
        self.face(EAST.at(1.0, 2.2, 0.01), 1.4 * Z, -0.9 * UP, sky)

    def furniture(self) -> None:
        rng = self.rng
        pine, oak, white = wood(rng, (190, 140, 84)), wood(rng, (122, 80, 48)), plain(rng, (222, 218, 208))
        dark, cloth = plain(rng, (36, 36, 40)), plain(rng, (70, 96, 88), 100, 100)
        door = wood(rng, (200, 190, 170), 300, 150)
        for wall, x, y, z, w, h, d, front, sides in (  # cm; None: a picture
            (NORTH, 58, 0, 1, 2, 205, 30, pine, pine), (NORTH, 259, 0, 1, 2, 205, 30, pine, pine),
            (NORTH, 320, 0, 10, 90, 42, 80, cloth, cloth), (NORTH, 320, 42, 10, 90, 50, 20, cloth, cloth),
            (WEST, 50, 0, 0, 300, 86, 50, oak, oak), (WEST, 45, 86, 0, 310, 3, 53, pine, pine),
            (WEST, 70, 150, 0, 240, 3, 25, pine, pine), (EAST, 70, 72, 5, 220, 4, 70, pine, pine),
            (EAST, 72, 0, 10, 45, 72, 60, white, white), (EAST, 242, 0, 10, 45, 72, 60, white, white),
            (EAST, 175, 76, 18, 10, 12, 5, dark, dark), (EAST, 160, 76, 50, 42, 2, 14, dark, dark),
            (SOUTH, 80, 0, 0, 160, 80, 45, oak, pine), (SOUTH, 380, 0, 0, 90, 205, 3, door, pine),
            *((WEST, 54 + 60 * k, 10, 50, 55, 70, 1, white, white) for k in range(5)),
            *((WEST, 78 + 60 * k, 66, 51, 10, 2, 2, dark, dark) for k in range(5)),
            *((SOUTH, 84, 5 + 25 * k, 45, 152, 22, 1, pine, pine) for k in range(3)),
            (NORTH, 290, 130, 0, 60, 80, 2, None, dark), (NORTH, 370, 120, 0, 90, 65, 2, None, dark),
            (SOUTH, 90, 140, 0, 50, 70, 2, None, dark), (SOUTH, 160, 150, 0, 70, 50, 2, None, dark),
            (SOUTH, 250, 130, 0, 60, 80, 2, None, dark), (WEST, 10, 140, 0, 45, 60, 2, None, dark),
            (WEST, 330, 140, 0, 50, 70, 2, None, dark), (EAST, 270, 130, 0, 50, 70, 2, None, dark),
            (EAST, 25, 130, 0, 45, 65, 2, None, dark), (EAST, 150, 86, 20, 60, 36, 3, None, dark),
            *((NORTH, 60, 6 + 39 * k, 1, 200, 3, 30, pine, pine) for k in range(6)),
        ):  # fmt: skip
            front = worn(rng, poster(rng, w * 4, h * 4)) if front is None else front
            self.box(wall, *np.array([x, y, z, w, h, d]) / 100, front, sides)

    def clutter(self) -> None:
        for wall, x, end, y, z, tallest in (
            (NORTH, 0.62, 1.5, 1.26, 0.06, 0.33), (NORTH, 1.86, 2.55, 1.26, 0.06, 0.33),
            (WEST, 0.6, 1.08, 0.89, 0.06, 0.26), (WEST, 1.5, 3.4, 0.89, 0.06, 0.26),
            (WEST, 0.72, 3.05, 1.53, 0.04, 0.28), (EAST, 0.75, 1.4, 0.76, 0.1, 0.24),
            (EAST, 2.2, 2.75, 0.76, 0.1, 0.24), (SOUTH, 0.85, 2.35, 0.8, 0.08, 0.3),
            *((NORTH, 0.62, 2.55, 0.09 + 0.39 * k, 0.06, 0.33) for k in (0, 1, 2, 4)),
        ):  # fmt: skip
            self.row(wall, x, end, y, z, tallest)
        self.tin(WEST, 2.3, 0.89, 0.37, "TEA", 0.05)
        self.tin(SOUTH, 1.5, 0.8, 0.36, "SUN", 0.1)
        for y, r, h, glow in ((0.76, 0.08, 0.02, 0.02), (0.78, 0.012, 0.36, 0.02), (1.1, 0.11, 0.16, 2)):
            self.tube(EAST, 2.6, y, 0.5, r, h, np.full((8, 90, 3), [1.3, 1, 0.6]) * glow, "ivory")  # a lamp


# Light: baked once. What is brighter than white glows and takes none.


class Lit(NamedTuple):
    faces: np.ndarray  # [n, 3, 3]
    pictures: list[list[np.ndarray]]  # as seen from near, and ever coarser


def blocked(start: np.ndarray, way: np.ndarray, solids: np.ndarray) -> np.ndarray:
    """[n, 3] points and ways from there -> [n]: does a solid stand in the way?"""
    low, high = np.minimum(start, start + way).min(0), np.maximum(start, start + way).max(0)
    hit, inverse = np.zeros(len(start), bool), 1 / np.where(np.abs(way) < 1e-6, 1e-6, way)
    for solid in solids[((solids[:, 0] < high) & (solids[:, 1] > low)).all(1)]:
        one, other = (solid[0] - start) * inverse, (solid[1] - start) * inverse
        enters, leaves = np.minimum(one, other).max(1), np.maximum(one, other).min(1)
        hit |= (enters < leaves) & (enters < 1) & (leaves > 1e-3)
    return hit


def bake(scene: Scene, lamps: Sequence[tuple], ambient: tuple[float, ...], rays: int = 16) -> Lit:
    solids, scatter = np.array(scene.solids, np.float32), default_rng(SEED).normal(size=(rays, 3))
    lit = []
    for (corner, across, down), picture in zip(scene.faces, scene.pictures):
        if np.nanmax(picture) <= 1:
            w, h = np.linalg.norm(across), np.linalg.norm(down)
            normal, per_m = np.cross(down, across) / (w * h), 20 if w * h > 4 else 40
            rows, columns = max(2, math.ceil(h * per_m)), max(2, math.ceil(w * per_m))
            b, a = np.mgrid[0.5:rows, 0.5:columns].reshape(2, -1, 1)
            start = corner + a / columns * across + b / rows * down + 0.004 * normal
            start = np.repeat(start, rays, 0).astype(np.float32)
            # The same rays from all points: bands are less of an eyesore than speckles.
            way = normal + scatter / np.linalg.norm(scatter, axis=1, keepdims=True)  # cosine-weighted
            way *= np.linspace(0.05, 0.7, rays)[:, None]  # what is further away shuts out no light
            way = np.tile(way.astype(np.float32), (rows * columns, 1))
            shut = blocked(start, way, solids) | ((start + way < 0) | (start + way > ROOM)).any(1)
            light = ~shut[:, None] * np.array(ambient)
            for where, spread, strength in lamps:
                way = np.float32(np.tile(where + scatter * spread, (rows * columns, 1))) - start
                distance = np.linalg.norm(way, axis=1)
                falling = (way @ normal / distance).clip(0) / (0.3 + distance**2)
                if falling.any():
                    light += (falling * ~blocked(start, way * 0.97, solids))[:, None] * strength
            light = light.reshape(rows, columns, rays, 3).mean(2)
            picture = picture * resized(light, *picture.shape[:2]).clip(0)
        levels = [picture.astype(np.float32)]
        while min(levels[-1].shape[:2]) >= 8 and len(levels) < 4:
            fine = levels[-1][: levels[-1].shape[0] // 2 * 2, : levels[-1].shape[1] // 2 * 2]
            levels.append((fine[::2, ::2] + fine[1::2, ::2] + fine[::2, 1::2] + fine[1::2, 1::2]) / 4)
        lit.append(levels)
    return Lit(np.array(scene.faces), lit)


# The camera.


class Camera(NamedTuple):
    eye: np.ndarray
    axes: np.ndarray  # rows: right, down, forward
    focal_px: float = FOCAL_PX
    size: tuple[int, int] = (WIDTH, HEIGHT)

    def project(self, points: np.ndarray) -> np.ndarray:
        """[..., 3] in the room -> x, y in pixels and depth in metres."""
        x, y, depth = np.moveaxis((points - self.eye) @ self.axes.T, -1, 0)
        scale = self.focal_px / depth.clip(0.05)
        return np.stack([x * scale + self.size[0] / 2, y * scale + self.size[1] / 2, depth], -1)

    def light(self, scene: Lit, shift: np.ndarray) -> np.ndarray:
        """[h, w, 3] linear light along one ray a pixel, `shift` from its middle."""
        w, h = self.size
        all_x = np.float32((np.arange(w) + 0.5 + shift[0] - w / 2) / self.focal_px)[None]
        all_y = np.float32((np.arange(h) + 0.5 + shift[1] - h / 2) / self.focal_px)[:, None]
        image, nearness = np.zeros((h, w, 3), np.float32), np.full((h, w), 1e-3, np.float32)
        spots = self.project(scene.faces[:, :1] + [[0, 0], [0, 1], [1, 0], [1, 1]] @ scene.faces[:, 1:])
        behind, depth = spots[..., 2].min(1) < 0.05, spots[..., 2].max(1)
        low = np.where(behind[:, None], 0, spots[..., :2].min(1) - 2).clip(0, self.size).astype(int)
        high = np.where(behind[:, None], self.size, spots[..., :2].max(1) + 2).clip(0, self.size).astype(int)
        own = scene.faces @ self.axes.T
        own[:, 0] -= self.axes @ self.eye
        normal = np.cross(own[:, 1], own[:, 2])
        facing = (normal * own[:, 0]).sum(1)
        for k in np.flatnonzero((facing > 0) & (depth > 0.05) & (high > low).all(1)):
            part = (slice(low[k, 1], high[k, 1]), slice(low[k, 0], high[k, 0]))
            rays = (all_x[:, part[1]], all_y[part[0]], 1)
            # Nearness (1 / depth) and u, v / depth are linear in x and y.
            near, u, v = (sum(a * ray for a, ray in zip(axis, rays)) for axis in (normal[k], *own[k, 1:]))
            near /= facing[k]
            with np.errstate(all="ignore"):
                u, v = ((t / near - own[k, 0] @ axis) / (axis @ axis) for t, axis in zip((u, v), own[k, 1:]))
            won = (near > nearness[part]) & (u >= 0) & (u < 1) & (v >= 0) & (v < 1)
            if won.any():
                texels = scene.pictures[k][0].shape[0] / np.linalg.norm(own[k, 2])  # a metre
                coarse = round(math.log2(texels / (np.median(near[won]) * self.focal_px)))
                level = scene.pictures[k][min(max(coarse, 0), len(scene.pictures[k]) - 1)]
                colours = level[(v[won] * level.shape[0]).astype(int), (u[won] * level.shape[1]).astype(int)]
                won[won] = solid = ~np.isnan(colours[:, 0])
                image[part][won], nearness[part][won] = colours[solid], near[won]
        return image


# One row a fixation: from when, until when [1/10 s]; where one stands (x, z) and looks (x, y, z) [cm].
FIXATIONS = np.array([
    (0, 12, 300, 260, 470, 100, 180), (20, 30, 370, 190, 480, 90, 110), (37, 46, 380, 220, 450, 100, 260),
    (54, 64, 310, 250, 350, 90, 370), (71, 75, 220, 260, 220, 150, 400), (86, 102, 120, 260, 30, 100, 260),
    (107, 120, 105, 270, 30, 95, 280), (130, 142, 110, 160, 20, 100, 120), (148, 156, 130, 140, 10, 160, 130),
    (166, 182, 150, 120, 140, 120, 10), (192, 204, 260, 160, 360, 100, 20),
    (216, 226, 340, 200, 490, 160, 180), (236, 248, 320, 230, 360, 100, 380),
    (266, 272, 330, 150, 380, 150, 0), (283, 299, 190, 110, 180, 125, 10), (304, 322, 165, 100, 160, 130, 10),
    (334, 342, 260, 140, 370, 100, 20), (354, 366, 370, 170, 480, 90, 120),
    (374, 384, 380, 220, 460, 90, 240), (394, 410, 320, 250, 340, 90, 370),
    (420, 426, 240, 250, 200, 150, 400), (436, 454, 130, 260, 30, 95, 270),
    (464, 480, 120, 190, 30, 100, 170),
])  # fmt: skip


def walk(time_s: float) -> Camera:
    """Where the head is: it strolls from fixation to fixation, turns quickly, bobs and trembles."""
    held, (x, z) = FIXATIONS[:, :2] / 10, FIXATIONS[:, 2:4].T / 100
    stroll = PchipInterpolator(held.mean(1), np.stack([x, np.full_like(x, 1.5), z], 1))
    first, last = held.mean(1)[[0, -1]]
    gaze = np.repeat(FIXATIONS[:, 4:] / 100, 2, 0) - stroll(held.ravel().clip(first, last))
    yaw, level = np.unwrap(np.arctan2(gaze[:, 0], -gaze[:, 2])), np.hypot(gaze[:, 0], gaze[:, 2])
    turns = np.stack([-yaw, np.arctan2(gaze[:, 1], level), 0 * yaw], 1)
    turn = PchipInterpolator(held.ravel(), turns)(time_s)
    now, step = min(max(time_s, first), last), math.tau * 1.8 * time_s
    pace = 0.15 + min(1.0, float(np.linalg.norm(stroll(now, 1))))
    turn += 0.006 * np.sin(np.outer((2.1, 3.7, 9.1), [time_s + 3, time_s + 5, time_s])).sum(0)
    turn += pace * np.array([0.008, 0.006, 0.02]) * np.sin(step / np.array([2, 1, 2]))
    axes = Rotation.from_euler("YXZ", turn).as_matrix() * [1, -1, -1]
    return Camera(stroll(now) + 0.02 * pace * math.sin(step) * UP, axes.T)


def developed(light: np.ndarray, exposure: float, rng: Generator) -> np.ndarray:
    """Linear light as a cheap camera keeps it, dark in the corners and noisy: [h, w, 3] uint8."""
    from_middle = np.hypot(*np.mgrid[-1 : 1 : light.shape[0] * 1j, -1 : 1 : light.shape[1] * 1j])[..., None]
    image = (1 - np.exp(-light * exposure / (1 + 0.25 * from_middle**2))) ** (1 / 2.2)
    return ((image + rng.normal(0, 0.008, from_middle.shape)) * 255).clip(0, 255).astype(np.uint8)


def film(scenes: Sequence[Lit], path: Path) -> None:
    rng, brightness, part = default_rng(SEED), 0.5, path.with_suffix(".part")
    with av.open(str(part), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "29", "preset": "slower"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.codec_context.colorspace = stream.codec_context.color_range = 1  # BT.709, limited
        for now in np.arange(END_S * FPS) / FPS:
            # The shutter is open half of the time: the faster the head, the more moments blur.
            turned = FOCAL_PX * np.linalg.norm(walk(now + 0.25 / FPS).axes - walk(now - 0.25 / FPS).axes)
            moments = now + np.linspace(-0.25, 0.25, int(np.clip(turned / 4, 4, 16))) / FPS
            scene = scenes[int(now >= MOVED_S)]
            light = np.mean([walk(t).light(scene, rng.uniform(-0.5, 0.5, 2)) for t in moments], 0)
            brightness += 0.1 * (float(light.mean()) - brightness)  # the exposure lags behind
            image = av.VideoFrame.from_ndarray(developed(light, 0.55 / brightness**0.8, rng))
            container.mux(stream.encode(image.reformat(format="yuv420p", dst_colorspace="ITU709")))
        container.mux(stream.encode(None))
    part.replace(path)


def portrait(thing: Callable[[Scene], np.ndarray], size: tuple[int, int] = (250, 320)) -> Image.Image:
    """A picture of a thing elsewhere: on another table, in evening light, close up."""
    scene, rng = Scene(SEED), default_rng(SEED)
    table = wood(rng, (96, 58, 40), 300, 900)
    scene.box(NORTH, 1, 0.9, 0.8, 3, 0.04, 1, table, table)
    scene.face(NORTH.at(0, 2.5, 0.6), 5 * X, -2.5 * UP, plain(rng, (110, 130, 150), 500, 900))
    outline = thing(scene)
    lit = bake(scene, [((3.4, 2.0, 2.2), 0.1, (4.0, 2.9, 1.8))], (0.4, 0.36, 0.34))
    axes = (Rotation.from_euler("YX", (0.12, -0.3)).as_matrix() * [1, -1, -1]).T
    camera = Camera((outline.min(0) + outline.max(0)) / 2 - 0.7 * axes[2], axes, 1.0, size)
    spread = np.ptp(camera.project(outline), 0)[:2]
    camera = camera._replace(focal_px=0.88 * (size / spread).min())
    light = np.mean([camera.light(lit, rng.uniform(-0.5, 0.5, 2)) for _ in range(16)], 0)
    return Image.fromarray(developed(light, 1.6, rng))


def truth(outlines: Sequence[np.ndarray]) -> ResponseTrack:
    """The tin's last run of frames with at least half of it in the picture."""
    boxes: dict[int, Box] = {}
    for k in range(round(END_S * TRUTH_FPS)):
        corners = walk(k / TRUTH_FPS).project(outlines[k / TRUTH_FPS >= MOVED_S])
        whole = Box(*corners.min(0)[:2].tolist(), *corners.max(0)[:2].tolist())
        inside = whole.clipped(WIDTH, HEIGHT)
        if corners[:, 2].min() > 0.1 and inside.area >= 0.5 * whole.area:
            boxes[k] = inside
    first = max(k for k in boxes if k - 1 not in boxes)
    last = tuple(box for k, box in boxes.items() if k >= first)
    return ResponseTrack(first_frame=first, fps=TRUTH_FPS, boxes=last, score=1.0)


def main() -> None:
    scenes, outlines = [], []
    for wall, x, y, z, turn in ((WEST, 1.28, 0.89, 0.3, 0.03), (NORTH, 1.68, 1.26, 0.17, -0.04)):
        scene = Scene(SEED)
        scene.room()
        scene.furniture()
        scene.clutter()
        outlines.append(scene.tin(wall, x, y, z, "FOX", turn))
        scenes.append(bake(scene, LAMPS, (0.3, 0.3, 0.31)))
    picture = portrait(lambda scene: scene.tin(NORTH, 2.5, 0.94, 1.2, "FOX", 0.05))
    picture.save(ASSETS / "demo_query.jpg", quality=90)
    (ASSETS / "demo_truth.json").write_text(truth(outlines).to_json() + "\n")
    film(scenes, ASSETS / "demo.mp4")


if __name__ == "__main__":
    main()

"""The room itself: floors, walls with holes, ceilings, windows, doors, pictures on the walls, rugs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from lastseen.synth.assets import Asset, Library, Picture, Surface
from lastseen.synth.layout import WALL_THICKNESS_M, Footprint, Hole, Plan, Wall, pose
from lastseen.synth.meshes import Material, Mesh
from lastseen.synth.texture import Texture, colour_texture, picture_texture

T = TypeVar("T")
REVEAL_M = 0.2  # how deep windows and doors sit in their walls
SKIRTING_M = 0.012
SKY_LIGHT = 2.2  # emission of a sunny window's picture; a plain white surface in the room's light is about 0.5
POSTERS = ("wallpaper", "generated", "caltech101", "grocery")


@dataclass(frozen=True, kw_only=True, eq=False)
class Solid:
    """Something in the room, where it is. Its place in the list of solids is its instance number."""

    mesh: Mesh
    materials: tuple[Material, ...]
    transform: Tensor
    asset: Asset | None = None
    casts_shadow: bool = True


class MeshMaker:
    """Quads and boxes in a frame of their own (columns: x, y, z axes and origin), made into one mesh."""

    def __init__(self) -> None:
        self._corners: list[np.ndarray] = []
        self._uv: list[np.ndarray] = []
        self._materials: list[int] = []

    def quad(
        self,
        origin: Sequence[float],
        along: Sequence[float],
        across: Sequence[float],
        material: int = 0,
        *,
        tile_m: float | None = None,
        frame: np.ndarray | None = None,
    ) -> None:
        """Seen from where along, across and the normal are right-handed. Without `tile_m`: the picture once."""
        o, a, b = (np.asarray(v, float) for v in (origin, along, across))
        corners = np.stack([o, o + a, o + a + b, o + b])
        size = np.array([np.linalg.norm(a), np.linalg.norm(b)])
        uv = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], float)
        if tile_m is not None:
            start = np.array([o @ a, o @ b]) / np.maximum(size, 1e-9)  # neighbours on one plane tile on
            uv = (uv * size + start) / tile_m
        if frame is not None:
            corners = corners @ frame[:, :3].T + frame[:, 3]
        self._corners.append(corners)
        self._uv.append(uv)
        self._materials.append(material)

    def box(
        self,
        low: Sequence[float],
        high: Sequence[float],
        material: int = 0,
        *,
        tile_m: float | None = None,
        frame: np.ndarray | None = None,
        front: int | None = None,
    ) -> None:
        """`front`: another material for the side that looks to -y."""
        (x0, y0, z0), (x1, y1, z1) = low, high
        dx, dy, dz = (x1 - x0, 0, 0), (0, y1 - y0, 0), (0, 0, z1 - z0)
        back_to_front = material if front is None else front
        for origin, along, across, side in (
            ((x0, y0, z0), dx, dz, back_to_front),
            ((x1, y1, z0), (x0 - x1, 0, 0), dz, material),
            ((x0, y1, z0), (0, y0 - y1, 0), dz, material),
            ((x1, y0, z0), dy, dz, material),
            ((x0, y0, z1), dx, dy, material),
            ((x0, y1, z0), dx, (0, y0 - y1, 0), material),
        ):
            once = front is not None and side == front
            self.quad(origin, along, across, side, tile_m=None if once else tile_m, frame=frame)

    def mesh(self) -> Mesh:
        corners = np.stack(self._corners)
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 3] - corners[:, 0])
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
        first = 4 * np.arange(len(corners))[:, None]
        triangles = np.concatenate([first + [0, 1, 2], first + [0, 2, 3]], 1).reshape(-1, 3)
        return Mesh(
            positions_m=torch.from_numpy(corners.reshape(-1, 3)),
            normals=torch.from_numpy(normals.repeat(4, 0)),
            uv=torch.from_numpy(np.concatenate(self._uv)),
            triangles=torch.from_numpy(triangles),
            material=torch.tensor(self._materials).repeat_interleave(2),
        )

    def solid(self, *materials: Material, casts_shadow: bool = True) -> Solid:
        return Solid(
            mesh=self.mesh(), materials=materials, transform=pose(0, 0), casts_shadow=casts_shadow
        )


def frame_of(wall: Wall) -> np.ndarray:
    """[3, 4]: x along the wall, y out of it into the room, z up."""
    (dx, dy), (nx, ny), (x, y) = wall.direction, wall.normal, wall.start
    return np.array([[dx, nx, 0, x], [dy, ny, 0, y], [0, 0, 1, 0]])


def mean_colour(texture: Texture) -> np.ndarray:
    """[3] linear: its smallest mip level is one texel."""
    return texture.texels[:, -1].float().numpy()


def plain(srgb: Sequence[int], **more: float) -> Material:
    return Material(texture=colour_texture(srgb), **more)  # type: ignore[arg-type]


def painted(surface: Surface | None, albedo: Sequence[float]) -> Material:
    """The grain of a surface in another colour."""
    if surface is None:
        return Material(texture=colour_texture((255, 255, 255)), tint=_triple(np.asarray(albedo)))
    texture = surface.texture()
    tint = np.asarray(albedo) / np.maximum(mean_colour(texture), 0.02)
    return Material(texture=texture, tint=_triple(tint))


def _triple(values: np.ndarray) -> tuple[float, float, float]:
    red, green, blue = (float(v) for v in values)
    return red, green, blue


@dataclass(frozen=True, kw_only=True, eq=False)
class Decor:
    """What a room is covered with. Walls are numbered as in the plan; zones have floors of their own."""

    walls: tuple[Material, ...]
    wall_tiles_m: tuple[float, ...]
    floors: tuple[Material, ...]
    floor_tiles_m: tuple[float, ...]
    ceiling: Material
    trim: Material
    reflectance: float  # mean over what the room's light falls on


def draw_decor(library: Library, plan: Plan, rng: np.random.Generator, *, tiled_walls: bool) -> Decor:
    """Mostly painted plaster, sometimes another surface on one wall or on all; wood or tiles on the floor."""
    of_use = {use: [s for s in library.surfaces if s.use == use] for use in ("wall", "floor", "wood")}
    calm = [s for s in of_use["wall"] if _contrast(s.texture()) < 0.12]
    floor_choices = of_use["floor"] + [s for s in of_use["wood"] if s.metres >= 0.6]
    walls: list[tuple[Material, float]] = []
    floors: list[tuple[Material, float]] = []
    for number in range(len(plan.zones)):
        paint = _pale_colour(rng)
        grain = one_of(calm, rng)
        base = (painted(grain, paint), grain.metres if grain else 1.0)
        rough = one_of(of_use["wall"], rng)
        accent = base
        if rough is not None and (tiled_walls or rng.random() < 0.25):
            accent = (Material(texture=rough.texture(), tint=_lift(rough.texture())), rough.metres)
        elif rng.random() < 0.3:
            accent = (painted(grain, _strong_colour(rng)), base[1])
        own = [base] * 4
        if tiled_walls or rng.random() < 0.1:
            own = [accent] * 4
        else:
            own[int(rng.integers(4))] = accent
        walls += own
        choice = one_of(floor_choices, rng) if number == 0 or rng.random() < 0.6 else None
        if choice is not None:
            shine = float(rng.choice([0.0, 0.03, 0.08]))
            material = Material(
                texture=choice.texture(), tint=_lift(choice.texture()), specular=shine, shininess=24.0
            )
            floors.append((material, choice.metres * rng.uniform(0.9, 1.3)))
        else:
            floors.append(floors[0] if floors else (plain((120, 96, 72)), 1.0))
    white = rng.uniform(0.62, 0.82)
    ceiling = painted(one_of(calm, rng), np.array([1.0, 0.985, 0.96]) * white)
    trim = (0.75, 0.74, 0.72) if rng.random() < 0.7 else tuple(rng.uniform(0.05, 0.4) * np.array([1, 0.7, 0.5]))
    albedos = [mean_colour(m.texture) * m.tint for m, _ in (*walls, *floors)]
    return Decor(
        walls=tuple(m for m, _ in walls),
        wall_tiles_m=tuple(t for _, t in walls),
        floors=tuple(m for m, _ in floors),
        floor_tiles_m=tuple(t for _, t in floors),
        ceiling=ceiling,
        trim=Material(texture=colour_texture((255, 255, 255)), tint=_triple(np.asarray(trim)), specular=0.03),
        reflectance=float(np.mean(albedos)),
    )


def _contrast(texture: Texture) -> float:
    """Spread over mean of brightness, looked at in 16 by 16 or so: plaster is calm, brick is not."""
    before = 0
    for height, width in texture.sizes:
        stop = before + (height + 2) * (width + 2)
        if max(height, width) <= 16:
            grey = texture.texels[:, before:stop].float().mean(0)
            return float(grey.std() / grey.mean().clamp(min=1e-3)) if len(grey) > 9 else 0.0
        before = stop
    return 0.0


def _lift(texture: Texture) -> tuple[float, float, float]:
    """Very dark pictures are lightened: most of them were made to be lit from all sides."""
    return _triple(np.full(3, max(1.0, 0.14 / max(float(mean_colour(texture).mean()), 0.01))))


def _pale_colour(rng: np.random.Generator) -> np.ndarray:
    hue, strength = rng.uniform(0, 2 * np.pi), rng.choice([0.02, 0.05, 0.12], p=[0.4, 0.4, 0.2])
    tilt = np.cos(hue - np.array([0.0, 2.1, 4.2])) * strength
    return np.clip(rng.uniform(0.42, 0.75) * (1 + np.array([0.03, 0.0, -0.05]) + tilt), 0.1, 0.85)


def _strong_colour(rng: np.random.Generator) -> np.ndarray:
    return np.clip(rng.uniform(0.12, 0.45) * (1 + rng.uniform(-0.5, 0.5, 3)), 0.04, 0.7)


def one_of(items: Sequence[T], rng: np.random.Generator) -> T | None:
    return items[int(rng.integers(len(items)))] if items else None


def shell(plan: Plan, decor: Decor) -> list[Solid]:
    """Floors, ceilings and walls as one solid each, and what trims them."""
    floor, ceiling, walls, trim = (MeshMaker() for _ in range(4))
    height = plan.height_m
    for number, zone in enumerate(plan.zones):
        wide, deep = zone.x1_m - zone.x0_m, zone.y1_m - zone.y0_m
        tile = decor.floor_tiles_m[number]
        floor.quad((zone.x0_m, zone.y0_m, 0), (wide, 0, 0), (0, deep, 0), number, tile_m=tile)
        ceiling.quad((zone.x0_m, zone.y1_m, height), (wide, 0, 0), (0, -deep, 0), tile_m=1.2)
    for number, wall in enumerate(plan.walls):
        frame, tile = frame_of(wall), decor.wall_tiles_m[number]
        for x0, x1, z0, z1 in _around_holes(wall, height):
            walls.quad((x1, 0, z0), (x0 - x1, 0, 0), (0, 0, z1 - z0), number, tile_m=tile, frame=frame)
        for hole in wall.holes:
            depth = -WALL_THICKNESS_M / 2 if hole.kind == "passage" else -REVEAL_M
            _line_hole(trim, hole, depth, frame)
            if hole.kind == "passage" and wall.zone == 0:
                origin = (hole.from_m, -WALL_THICKNESS_M, 0)
                size = (hole.to_m - hole.from_m, 0, 0), (0, WALL_THICKNESS_M, 0)
                floor.quad(origin, *size, 0, tile_m=decor.floor_tiles_m[0], frame=frame)
        for x0, x1 in _without_doors(wall):
            trim.box((x0, 0, 0), (x1, SKIRTING_M, 0.08), frame=frame)
    return [
        floor.solid(*decor.floors),
        ceiling.solid(decor.ceiling),
        walls.solid(*decor.walls),
        trim.solid(decor.trim),
    ]


def _around_holes(wall: Wall, height_m: float) -> list[tuple[float, float, float, float]]:
    """The wall without its holes, as rectangles (x0, x1, z0, z1)."""
    pieces, start = [], 0.0
    for hole in sorted(wall.holes, key=lambda h: h.from_m):
        pieces.append((start, hole.from_m, 0.0, height_m))
        pieces.append((hole.from_m, hole.to_m, 0.0, hole.low_m))
        pieces.append((hole.from_m, hole.to_m, hole.high_m, height_m))
        start = hole.to_m
    pieces.append((start, wall.length_m, 0.0, height_m))
    return [p for p in pieces if p[1] - p[0] > 1e-6 and p[3] - p[2] > 1e-6]


def _without_doors(wall: Wall) -> list[tuple[float, float]]:
    pieces, start = [], 0.0
    for hole in sorted(wall.holes, key=lambda h: h.from_m):
        if hole.low_m < 0.1:
            pieces.append((start, hole.from_m))
            start = hole.to_m
    return [p for p in (*pieces, (start, wall.length_m)) if p[1] - p[0] > 0.02]


def _line_hole(trim: MeshMaker, hole: Hole, depth_m: float, frame: np.ndarray) -> None:
    """The inner faces of a hole, as deep as the wall."""
    x0, x1, z0, z1 = hole.from_m, hole.to_m, hole.low_m, hole.high_m
    up, back = (0, 0, z1 - z0), (0, depth_m, 0)
    trim.quad((x0, 0, z0), back, up, frame=frame)
    trim.quad((x1, depth_m, z0), (0, -depth_m, 0), up, frame=frame)
    trim.quad((x0, depth_m, z1), (0, -depth_m, 0), (x1 - x0, 0, 0), frame=frame)
    if z0 > 0:
        trim.quad((x0, 0, z0), (x1 - x0, 0, 0), back, frame=frame)


def window(wall: Wall, hole: Hole, sky: Material, trim: Material, rng: np.random.Generator) -> list[Solid]:
    """Frame, bars and sill, and the sky's picture where the wall ends: light of its own, no shadow."""
    frame, parts, picture = frame_of(wall), MeshMaker(), MeshMaker()
    x0, x1, z0, z1 = hole.from_m, hole.to_m, hole.low_m, hole.high_m
    y0, y1, wide = -0.14, -0.08, float(rng.uniform(0.04, 0.07))
    for low, high in (
        ((x0, y0, z0), (x0 + wide, y1, z1)),
        ((x1 - wide, y0, z0), (x1, y1, z1)),
        ((x0 + wide, y0, z0), (x1 - wide, y1, z0 + wide)),
        ((x0 + wide, y0, z1 - wide), (x1 - wide, y1, z1)),
    ):
        parts.box(low, high, frame=frame)
    panes = max(1, round((x1 - x0) / rng.uniform(0.5, 1.1)))
    for k in range(1, panes):
        x = x0 + (x1 - x0) * k / panes
        parts.box((x - 0.03, y0, z0 + wide), (x + 0.03, y1, z1 - wide), frame=frame)
    if rng.random() < 0.4:
        z = z0 + (z1 - z0) * rng.uniform(0.55, 0.72)
        parts.box((x0 + wide, y0 + 0.01, z - 0.02), (x1 - wide, y1 - 0.01, z + 0.02), frame=frame)
    if z0 > 0.3:
        parts.box((x0 - 0.04, -0.08, z0 - 0.025), (x1 + 0.04, 0.03, z0), frame=frame)
    picture.quad((x1, -REVEAL_M, z0), (x0 - x1, 0, 0), (0, 0, z1 - z0), frame=frame)
    return [parts.solid(trim), picture.solid(sky, casts_shadow=False)]


def curtains(wall: Wall, hole: Hole, cloth: Material, rng: np.random.Generator) -> Solid:
    """Two lengths of wavy cloth beside a window."""
    maker, frame = MeshMaker(), frame_of(wall)
    top, low = hole.high_m + 0.12, 0.03 if rng.random() < 0.6 else max(0.03, hole.low_m - 0.15)
    drawn = rng.uniform(0.12, 0.3) * (hole.to_m - hole.from_m)
    for start, end in ((hole.from_m - 0.15, hole.from_m + drawn), (hole.to_m - drawn, hole.to_m + 0.15)):
        x = np.linspace(max(start, 0.02), min(end, wall.length_m - 0.02), 17)
        y = 0.055 + 0.03 * np.sin(np.linspace(0, rng.uniform(3, 5) * 2 * np.pi, 17) + rng.uniform(0, 6))
        for xa, xb, ya, yb in zip(x, x[1:], y, y[1:]):
            maker.quad((xb, yb, low), (xa - xb, ya - yb, 0), (0, 0, top - low), tile_m=0.6, frame=frame)
    maker.box((hole.from_m - 0.2, 0.045, top), (hole.to_m + 0.2, 0.065, top + 0.02), 1, frame=frame)
    return maker.solid(cloth, plain((90, 85, 80)))


def door(wall: Wall, hole: Hole, leaf: Material, trim: Material) -> list[Solid]:
    """A closed door with its frame and handle."""
    maker, frame = MeshMaker(), frame_of(wall)
    x0, x1, z1 = hole.from_m, hole.to_m, hole.high_m
    maker.box((x0, -0.07, 0), (x1, -0.03, z1), 0, tile_m=1.1, frame=frame)
    for side, (a, b) in enumerate(((x0 - 0.07, x0 + 0.01), (x1 - 0.01, x1 + 0.07))):
        maker.box((a, -0.03, 0), (b, 0.015, z1 + 0.07 * (side == 0) + 0.07 * (side == 1)), 1, frame=frame)
    maker.box((x0 + 0.01, -0.03, z1 - 0.01), (x1 - 0.01, 0.015, z1 + 0.07), 1, frame=frame)
    maker.box((x0 + 0.06, -0.03, 1.02), (x0 + 0.18, 0.03, 1.045), 2, frame=frame)
    maker.box((x0 + 0.06, -0.03, 0.92), (x0 + 0.09, -0.02, 1.1), 2, frame=frame)
    return [maker.solid(leaf, trim, plain((170, 168, 160), specular=0.4, shininess=40.0))]


def hung_picture(
    wall: Wall, along_m: float, z_m: float, size_m: tuple[float, float], picture: Material, edge: Material
) -> Solid:
    """A poster (no thicker than paper) or a framed picture; `edge` colours its frame."""
    maker, frame = MeshMaker(), frame_of(wall)
    half, up = size_m[0] / 2, size_m[1] / 2
    flip = frame @ np.diag([-1.0, -1.0, 1.0, 1.0])  # boxes show their front to -y: into the room
    flip[:, 3] = frame[:, 3]
    maker.box((-along_m - half, -0.02, z_m - up), (-along_m + half, 0, z_m + up), 1, frame=flip)
    rim = min(0.03, half / 6)
    maker.quad(
        (-along_m - half + rim, -0.021, z_m - up + rim),
        (2 * half - 2 * rim, 0, 0),
        (0, 0, 2 * up - 2 * rim),
        0,
        frame=flip,
    )
    return maker.solid(picture, edge)


def rug(place: Footprint, cloth: Material, tile_m: float | None) -> Solid:
    maker = MeshMaker()
    x, y = place.half_x_m, place.half_y_m
    maker.box((-x, -y, 0.0), (x, y, 0.006), 0, tile_m=tile_m or 0.5)
    if tile_m is None:
        maker.quad((-x, -y, 0.007), (2 * x, 0, 0), (0, 2 * y, 0))
    return replace(maker.solid(cloth), transform=pose(place.x_m, place.y_m, 0.0, place.yaw_rad))


def poster_material(picture: Picture, *, emission: float = 0.0, specular: float = 0.0) -> Material:
    texture = picture_texture(picture.image(), wrap=False, max_side_px=384)
    return Material(texture=texture, emission=emission, specular=specular, shininess=60.0)


def sky_picture(rng: np.random.Generator, *, night: bool) -> np.ndarray:
    """uint8 [48, 64, 3]: what is outside, out of focus. Sky above; hedges, houses or streets below."""
    rows = np.linspace(1, 0, 48)[:, None, None]
    horizon = rng.uniform(0.15, 0.55)
    clear = rng.random()
    zenith = np.array([0.35, 0.55, 0.95]) * clear + np.array([0.8, 0.83, 0.88]) * (1 - clear)
    sky = np.array([0.95, 0.95, 0.95]) + (zenith - 0.95) * np.clip(rows - horizon, 0, 1)
    clouds = rng.normal(0, 0.05, (6, 8, 1)).repeat(8, 0).repeat(8, 1)
    ground_hue = np.array([0.25, 0.36, 0.16]) if rng.random() < 0.6 else np.array([0.42, 0.38, 0.34])
    grain = 0.5 + rng.random((12, 16, 1)).repeat(4, 0).repeat(4, 1)
    outline = horizon + rng.normal(0, 0.08, (1, 16, 1)).repeat(4, 1)
    picture = np.where(rows > outline, sky + clouds, ground_hue * grain)
    if night:
        picture = picture * np.array([0.05, 0.06, 0.1]) + (rng.random((48, 64, 1)) > 0.995) * 0.7
    return (np.clip(picture, 0, 1) * 255).astype(np.uint8)

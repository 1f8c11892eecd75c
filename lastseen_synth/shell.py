"""The room shell: materials and meshes of floors, ceilings and walls with holes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from lastseen_synth.assets import Asset, AssetLibrary, Surface
from lastseen_synth.floor_plan import WALL_THICKNESS_M, FloorPlan, Hole, Wall, pose
from lastseen_synth.meshes import Material, Mesh
from lastseen_synth.texture import Texture, colour_texture

T = TypeVar("T")
REVEAL_M = 0.2  # depth of windows and doors in their walls
SKIRTING_M = 0.012
OUTDOORS = ("roughcast", "stone2", "stoneWall", "paving", "pebbles", "dirt", "little_stones")


@dataclass(frozen=True, kw_only=True, eq=False)
class Solid:
    """A mesh placed in the room. Its index in the list of solids is its instance number."""

    mesh: Mesh
    materials: tuple[Material, ...]
    transform: Tensor
    asset: Asset | None = None
    casts_shadow: bool = True


class QuadMeshBuilder:
    """Builds one mesh of quads and boxes, each in a frame (columns: x, y, z axes and origin)."""

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
        """Seen from the front, `along` goes right and `across` up. Without `tile_m` the texture fills it
        once."""
        o, a, b = (np.asarray(v, float) for v in (origin, along, across))
        corners = np.stack([o, o + a, o + a + b, o + b])
        size = np.array([np.linalg.norm(a), np.linalg.norm(b)])
        uv = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], float)
        if tile_m is not None:
            start = np.array([o @ a, o @ b]) / np.maximum(size, 1e-9)  # continuous across coplanar neighbours
            uv = (uv * size + start) / tile_m
        if frame is not None:
            corners = corners @ frame[:, :3].T + frame[:, 3]
        self.face(corners, uv, material)

    def face(self, corners: np.ndarray, uv: np.ndarray, material: int = 0) -> None:
        """Any four corners [4, 3] in order."""
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
    ) -> None:
        (x0, y0, z0), (x1, y1, z1) = low, high
        dx, dy, dz = (x1 - x0, 0, 0), (0, y1 - y0, 0), (0, 0, z1 - z0)
        for origin, along, across in (
            ((x0, y0, z0), dx, dz),
            ((x1, y1, z0), (x0 - x1, 0, 0), dz),
            ((x0, y1, z0), (0, y0 - y1, 0), dz),
            ((x1, y0, z0), dy, dz),
            ((x0, y0, z1), dx, dy),
            ((x0, y1, z0), dx, (0, y0 - y1, 0)),
        ):
            self.quad(origin, along, across, material, tile_m=tile_m, frame=frame)

    def mesh(self) -> Mesh:
        corners = np.stack(self._corners)
        normals = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
        halves = np.array([[0, 1, 2], [0, 2, 3]])
        triangles = (4 * np.arange(len(corners))[:, None, None] + halves).reshape(-1, 3)
        return Mesh(
            positions_m=torch.from_numpy(corners.reshape(-1, 3)),
            normals=torch.from_numpy(normals.repeat(4, 0)),
            uv=torch.from_numpy(np.concatenate(self._uv)),
            triangles=torch.from_numpy(triangles),
            material=torch.tensor(self._materials).repeat_interleave(2),
        )

    def solid(self, *materials: Material, casts_shadow: bool = True) -> Solid:
        return Solid(mesh=self.mesh(), materials=materials, transform=pose(0, 0), casts_shadow=casts_shadow)


def frame_of(wall: Wall) -> np.ndarray:
    """[3, 4]: x along the wall, y out of it into the room, z up."""
    (dx, dy), (nx, ny), (x, y) = wall.direction, wall.normal, wall.start
    return np.array([[dx, nx, 0, x], [dy, ny, 0, y], [0, 0, 1, 0]])


def mean_colour(texture: Texture) -> np.ndarray:
    """[3] linear: its smallest mip level is one texel."""
    return texture.texels[:, -1].float().numpy()


def plain(srgb: Sequence[int], **more: float) -> Material:
    return Material(texture=colour_texture(srgb), **more)  # type: ignore[arg-type]


def painted(surface: Surface | None, albedo: np.ndarray) -> Material:
    """The texture of a surface with another mean colour."""
    if surface is None:
        return Material(texture=colour_texture((255, 255, 255)), tint=_triple(albedo))
    texture = surface.texture()
    tint = albedo / np.maximum(mean_colour(texture), 0.02)
    return Material(texture=texture, tint=_triple(tint))


def _triple(values: np.ndarray) -> tuple[float, float, float]:
    red, green, blue = (float(v) for v in values)
    return red, green, blue


@dataclass(frozen=True, kw_only=True, eq=False)
class Decor:
    """Materials of a room. Walls are numbered as in the plan; each zone has its own floor."""

    walls: tuple[Material, ...]
    wall_tiles_m: tuple[float, ...]
    floors: tuple[Material, ...]
    floor_tiles_m: tuple[float, ...]
    ceiling: Material
    trim: Material
    reflectance: float  # mean over what the room's light falls on


def draw_decor(
    library: AssetLibrary, plan: FloorPlan, rng: np.random.Generator, *, tiled_walls: bool
) -> Decor:
    """Mostly painted plaster, sometimes an accent on one wall or on all; wood or tiles on the floor."""
    indoors = [s for s in library.surfaces if not any(word in s.name for word in OUTDOORS)]
    of_use = {use: [s for s in indoors if s.use == use] for use in ("wall", "floor", "wood")}
    calm = [s for s in of_use["wall"] if _contrast(s.texture()) < 0.045]
    walls: list[tuple[Material, float]] = []
    floors: list[tuple[Material, float]] = []
    for _ in plan.zones:
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
        choice = one_of(of_use["floor"] or of_use["wood"], rng)
        if floors and rng.random() < 0.4:
            choice = None  # as in the other room
        if choice is not None:
            shine = float(rng.choice([0.0, 0.03, 0.08]))
            material = Material(
                texture=choice.texture(), tint=_lift(choice.texture()), specular=shine, shininess=24.0
            )
            floors.append((material, choice.metres * rng.uniform(0.6, 1.05)))
        else:
            floors.append(floors[0] if floors else (plain((120, 96, 72)), 1.0))
    white = rng.uniform(0.62, 0.82)
    ceiling = painted(None, np.array([1.0, 0.985, 0.96]) * white)
    trim = np.array([0.75, 0.74, 0.72])
    if rng.random() < 0.3:
        trim = rng.uniform(0.05, 0.4) * np.array([1.0, 0.7, 0.5])
    wall_albedo, floor_albedo = (
        float(np.mean([mean_colour(m.texture) * m.tint for m, _ in side])) for side in (walls, floors)
    )
    return Decor(
        walls=tuple(m for m, _ in walls),
        wall_tiles_m=tuple(t for _, t in walls),
        floors=tuple(m for m, _ in floors),
        floor_tiles_m=tuple(t for _, t in floors),
        ceiling=ceiling,
        trim=Material(texture=colour_texture((255, 255, 255)), tint=_triple(trim), specular=0.03),
        # Weights: typical image shares of walls, floor, ceiling and furniture.
        reflectance=0.42 * wall_albedo + 0.2 * floor_albedo + 0.1 * white + 0.28 * 0.22,
    )


def _contrast(texture: Texture) -> float:
    """Standard deviation over mean of brightness at a mip level of 64 px or less: low for plaster."""
    before = 0
    for height, width in texture.sizes:
        stop = before + (height + 2) * (width + 2)
        if max(height, width) <= 64:
            grey = texture.texels[:, before:stop].float().mean(0)
            return float(grey.std() / grey.mean().clamp(min=1e-3))
        before = stop
    return 0.0


def _lift(texture: Texture) -> tuple[float, float, float]:
    """Tint that brightens very dark textures."""
    return _triple(np.full(3, max(1.0, 0.14 / max(float(mean_colour(texture).mean()), 0.01))))


def _pale_colour(rng: np.random.Generator) -> np.ndarray:
    hue, strength = rng.uniform(0, 2 * np.pi), rng.choice([0.02, 0.05, 0.12], p=[0.4, 0.4, 0.2])
    tilt = np.cos(hue - np.array([0.0, 2.1, 4.2])) * strength
    return np.clip(rng.uniform(0.42, 0.75) * (1 + np.array([0.03, 0.0, -0.05]) + tilt), 0.1, 0.85)


def _strong_colour(rng: np.random.Generator) -> np.ndarray:
    return np.clip(rng.uniform(0.12, 0.45) * (1 + rng.uniform(-0.5, 0.5, 3)), 0.04, 0.7)


def one_of(items: Sequence[T], rng: np.random.Generator) -> T | None:
    return items[int(rng.integers(len(items)))] if items else None


def shell(plan: FloorPlan, decor: Decor) -> list[Solid]:
    """Floors, ceilings, walls and trim, as one solid each."""
    floor, ceiling, walls, trim = (QuadMeshBuilder() for _ in range(4))
    height = plan.height_m
    for number, zone in enumerate(plan.zones):
        wide, deep = zone.x1_m - zone.x0_m, zone.y1_m - zone.y0_m
        tile = decor.floor_tiles_m[number]
        floor.quad((zone.x0_m, zone.y0_m, 0), (wide, 0, 0), (0, deep, 0), number, tile_m=tile)
        ceiling.quad((zone.x0_m, zone.y1_m, height), (wide, 0, 0), (0, -deep, 0), tile_m=1.2)
        edge = WALL_THICKNESS_M / 2
        roof = (zone.x0_m - edge, zone.y0_m - edge, height + 0.1)
        ceiling.quad(roof, (wide + 2 * edge, 0, 0), (0, deep + 2 * edge, 0), tile_m=1.2)
    for number, wall in enumerate(plan.walls):
        frame, tile = frame_of(wall), decor.wall_tiles_m[number]
        outer = WALL_THICKNESS_M / 2
        for x0, x1, z0, z1 in _around_holes(wall, height):
            walls.quad((x1, 0, z0), (x0 - x1, 0, 0), (0, 0, z1 - z0), number, tile_m=tile, frame=frame)
            # The outer faces overlap at corners, against light leaks.
            x0, x1 = x0 - outer * (x0 == 0), x1 + outer * (x1 == wall.length_m)
            z0, z1 = z0 - 0.1 * (z0 == 0), z1 + 0.1 * (z1 == height)
            walls.quad((x0, -outer, z0), (x1 - x0, 0, 0), (0, 0, z1 - z0), number, tile_m=tile, frame=frame)
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


def _line_hole(trim: QuadMeshBuilder, hole: Hole, depth_m: float, frame: np.ndarray) -> None:
    """The inner faces of a hole."""
    x0, x1, z0, z1 = hole.from_m, hole.to_m, hole.low_m, hole.high_m
    up, back = (0, 0, z1 - z0), (0, depth_m, 0)
    trim.quad((x0, 0, z0), back, up, frame=frame)
    trim.quad((x1, depth_m, z0), (0, -depth_m, 0), up, frame=frame)
    trim.quad((x0, depth_m, z1), (0, -depth_m, 0), (x1 - x0, 0, 0), frame=frame)
    if z0 > 0:
        trim.quad((x0, 0, z0), (x1 - x0, 0, 0), back, frame=frame)

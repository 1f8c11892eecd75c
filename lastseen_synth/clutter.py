"""Placing small objects in a room: the queried things, clutter, and free spots for later."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from lastseen_synth.assets import Asset, AssetLibrary
from lastseen_synth.floor_plan import FreeSpace
from lastseen_synth.line_of_sight import LineOfSight
from lastseen_synth.meshes import Mesh
from lastseen_synth.shell import Solid
from lastseen_synth.simplify import simplified
from lastseen_synth.support_grid import CELL_M, Placement, SupportGrid, top_grid

EYE_HEIGHT_M = 1.6
FLAT_THINGS_M = 1.25  # flat objects above this height would be seen edge-on
FLAT_SIDE_M = 0.003
CLUTTER_TRIANGLES = 450  # of an object that is only background
# Per use of a surface: minimum and maximum fill, and the share of objects aligned with it.
USES: dict[str, tuple[float, float, float]] = {
    "shelf": (0.5, 0.98, 0.8),
    "table": (0.1, 0.6, 0.45),
    "counter": (0.15, 0.65, 0.7),
    "top": (0.15, 0.7, 0.6),
    "seat": (0.0, 0.12, 0.2),
    "bed": (0.0, 0.1, 0.2),
    "floor": (0.02, 0.12, 0.5),
    "stack": (0.2, 0.9, 0.7),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Spot:
    """A free place on a surface where an object can be put later.

    | position_m  | [3] on the surface                                       |
    | facing_rad  | horizontal direction from there to a viewpoint           |
    | radius_m    | distance to the nearest other object, at least           |
    | clearance_m | free height                                              |
    """

    position_m: np.ndarray
    facing_rad: float
    radius_m: float
    clearance_m: float


@lru_cache(maxsize=4096)
def stable_orientations(asset: Asset) -> tuple[np.ndarray, ...]:
    """Rotations [3, 3] in which it can rest: upright, and on any side if it is box-shaped."""
    mesh = asset.load()[0]
    corners = mesh.positions_m.double().numpy()[mesh.triangles.numpy()]
    low, high = np.asarray(asset.lo_m), np.asarray(asset.hi_m)
    areas = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1) / 2
    flat = []
    for axis in range(3):
        side = np.prod(np.delete(high - low, axis))
        for level in (low[axis], high[axis]):
            on_side = (np.abs(corners[:, :, axis] - level) < FLAT_SIDE_M).all(1)
            flat.append(areas[on_side].sum() > 0.6 * side)
    if not all(flat):
        return (np.eye(3),)
    x_up = np.array([[0.0, 0, -1], [0, 1, 0], [1, 0, 0]])
    y_up = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
    return np.eye(3), x_up, y_up


@dataclass(frozen=True, kw_only=True, eq=False)
class OrientedAsset:
    """An asset in one of its stable orientations: half its footprint, its height, and the transform `turn`
    [4, 4] that puts it on z = 0, centred over the origin."""

    asset: Asset
    half_m: tuple[float, float]
    height_m: float
    turn: np.ndarray


def oriented(asset: Asset, rotation: np.ndarray) -> OrientedAsset:
    low, high = np.asarray(asset.lo_m), np.asarray(asset.hi_m)
    corners = np.stack([low, high]) @ rotation.T
    low, high = corners.min(0), corners.max(0)
    turn = np.eye(4)
    turn[:3, :3] = rotation
    turn[:3, 3] = -(low[0] + high[0]) / 2, -(low[1] + high[1]) / 2, -low[2]
    half = (float(high[0] - low[0]) / 2, float(high[1] - low[1]) / 2)
    return OrientedAsset(asset=asset, half_m=half, height_m=float(high[2] - low[2]), turn=turn)


@dataclass(kw_only=True, eq=False)
class RoomBuilder:
    """A room under construction: its solids, support grids and lines of sight."""

    solids: list[Solid]
    grids: list[SupportGrid]
    line_of_sight: LineOfSight
    free: FreeSpace
    rng: np.random.Generator
    triangles_left: int
    max_stacks: int = 6
    used_twins: set[int] = field(default_factory=set)
    used_names: set[str] = field(default_factory=set)
    things: dict[int, tuple[SupportGrid, Placement, OrientedAsset]] = field(default_factory=dict)

    def put(
        self,
        item: OrientedAsset,
        grid: SupportGrid,
        placement: Placement,
        *,
        max_triangles: int | None = None,
    ) -> int:
        grid.take(placement)
        transform = torch.from_numpy(grid.matrix(placement) @ item.turn)
        return self.add(solid_of(item.asset, transform, max_triangles))

    def add(self, solid: Solid) -> int:
        self.solids.append(solid)
        mesh = solid.mesh
        self.line_of_sight.add(mesh.positions_m.numpy(), mesh.triangles.numpy(), solid.transform.numpy())
        self.triangles_left -= len(mesh.triangles)
        if solid.asset is not None:
            self.used_names.add(solid.asset.name)
            if solid.asset.twin is not None:
                self.used_twins.add(solid.asset.twin)
        return len(self.solids) - 1

    def seen_from(self, points_m: np.ndarray, ignore: Sequence[int] = (), views: int = 8) -> float | None:
        """Direction to a standing viewpoint that sees most of the points [N, 3], or None. The smaller the
        object, the closer the viewpoint must be."""
        middle = points_m.mean(0)
        reach = min(2.3, 1.0 + 4 * float(np.ptp(points_m, 0).max()))
        cells = self.free.cells_m()
        distance = np.hypot(*(cells - middle[:2]).T)
        near = np.flatnonzero((distance > 0.5) & (distance < reach))
        if not len(near):
            return None
        chosen = cells[self.rng.choice(near, min(views, len(near)), replace=False)]
        eyes = np.column_stack([chosen, np.full(len(chosen), EYE_HEIGHT_M)])
        count = len(points_m)
        hidden = self.line_of_sight.blocked(eyes.repeat(count, 0), np.tile(points_m, (len(eyes), 1)), ignore)
        seen = 1 - hidden.reshape(len(eyes), count).mean(1)
        best = int(seen.argmax())
        if seen[best] < 0.6:
            return None
        dx, dy = chosen[best] - middle[:2]
        return math.atan2(dy, dx)


def solid_of(asset: Asset, transform: Tensor, max_triangles: int | None = None) -> Solid:
    mesh = asset.load()[0] if max_triangles is None else simplified_mesh(asset, max_triangles)
    return Solid(mesh=mesh, materials=asset.load()[1], transform=transform, asset=asset)


@lru_cache(maxsize=2048)
def simplified_mesh(asset: Asset, max_triangles: int) -> Mesh:
    return simplified(asset.load()[0], max_triangles)


def sample_points(matrix: np.ndarray, half_m: tuple[float, float], height_m: float) -> np.ndarray:
    """Five points inside a box that stands on z = 0, for visibility tests: [5, 3] in room coordinates."""
    x, y = 0.6 * half_m[0], 0.6 * half_m[1]
    local = np.array([[0, 0, 0.6], [-x, -y, 0.5], [x, -y, 0.5], [x, y, 0.5], [-x, y, 0.8]])
    local[:, 2] *= height_m
    return local @ matrix[:3, :3].T + matrix[:3, 3]


def put_thing(room: RoomBuilder, asset: Asset, *, near: SupportGrid | None = None) -> int | None:
    """Puts the asset on a surface of convenient height where a person standing nearby can see it."""
    for _ in range(40):
        item = _random_orientation(room, asset)
        grid = near if near is not None and room.rng.random() < 0.7 else _handy_grid(room)
        if grid is None:
            return None
        if item.height_m < 0.05 and grid.height_m > FLAT_THINGS_M:
            continue
        placement = grid.find(
            item.half_m, item.height_m, _yaw(room.rng, 0.2), room.rng, front=grid.use == "shelf"
        )
        if placement is None:
            continue
        matrix = grid.matrix(placement)
        if room.seen_from(sample_points(matrix, item.half_m, item.height_m)) is None:
            continue
        number = room.put(item, grid, placement)
        room.things[number] = (grid, placement, item)
        return number
    return None


def put_screens(room: RoomBuilder, library: AssetLibrary) -> None:
    """Puts televisions and monitors on low furniture and desks, at the back and facing the front."""
    screens = [a for a in library.assets if a.type == "screen" and a.kind == "furniture"]
    for grid in [r for r in room.grids if r.use in ("top", "table") and 0.3 < r.height_m < 1.0]:
        if screens and room.rng.random() < 0.3:
            item = oriented(screens[int(room.rng.integers(len(screens)))], np.eye(3))
            middle = grid.origin_m[0] + grid.size_m[0] / 2, grid.origin_m[1] + 0.75 * grid.size_m[1]
            placement = grid.find(
                item.half_m, item.height_m, room.rng.normal(0, 0.05), room.rng, near_m=middle
            )
            if placement is not None:
                room.put(item, grid, placement, max_triangles=2 * CLUTTER_TRIANGLES)


def _handy_grid(room: RoomBuilder) -> SupportGrid | None:
    """A random surface between knee and eye height; seats and beds rarely, tables and shelves mostly."""
    weights = np.array(
        [
            (0.2 < r.height_m < 1.6) * {"seat": 0.3, "bed": 0.3, "stack": 0.0}.get(r.use, 1.0)
            * min(1.0, r.size_m[0] * r.size_m[1] / 0.3)
            for r in room.grids
        ]
    )  # fmt: skip
    if weights.sum() <= 0:
        return None
    return room.grids[int(room.rng.choice(len(weights), p=weights / weights.sum()))]


def find_spots(room: RoomBuilder, count: int, sizes_m: Sequence[tuple[float, float, float]]) -> list[Spot]:
    """Reserves free places, each large enough for one of these sizes, or for a cup where that fails."""
    spots: list[Spot] = []
    for attempt in range(8 * count):
        if len(spots) == count:
            break
        radius, height = 0.08, float(room.rng.uniform(0.12, 0.25))
        if sizes_m and attempt < 5 * count and room.rng.random() < 0.8:
            wide, deep, high = sizes_m[int(room.rng.integers(len(sizes_m)))]
            radius, height = math.hypot(wide, deep) / 2 + 0.002, high + 0.02
        grid = _handy_grid(room)
        if grid is None:
            break
        placement = grid.find((radius, radius), height, 0.0, room.rng, front=grid.use == "shelf")
        if placement is None:
            continue
        matrix = grid.matrix(placement)
        facing = room.seen_from(sample_points(matrix, (0.5 * radius, 0.5 * radius), height))
        if facing is None:
            continue
        spots.append(
            Spot(
                position_m=matrix[:3, 3].copy(),
                facing_rad=facing,
                radius_m=radius,
                clearance_m=float(grid.clear[placement.cells].min()) - 0.005,
            )
        )
        grid.take(placement)
    return spots


class Stock:
    """Small objects of a library and their sizes, as candidates for clutter."""

    def __init__(self, library: AssetLibrary, avoid: Iterable[Asset]) -> None:
        avoid = list(avoid)
        names, twins = {a.name for a in avoid}, {a.twin for a in avoid if a.twin is not None}
        self.assets = [
            a
            for a in library.assets
            if _is_clutter(a) and a.name not in names and (a.twin is None or a.twin not in twins)
        ]
        sizes = np.array([a.size_m for a in self.assets]).reshape(-1, 3)
        self.narrow_m, self.wide_m = (
            np.minimum(sizes[:, 0], sizes[:, 1]),
            np.maximum(sizes[:, 0], sizes[:, 1]),
        )
        self.high_m = sizes[:, 2]
        self.is_object = np.array([a.kind == "object" for a in self.assets], bool)
        self.is_shoe = np.array([a.is_shoe for a in self.assets], bool)

    def pick(self, room: RoomBuilder, grid: SupportGrid) -> Asset | None:
        """A random asset that fits on the grid and is not in the room yet."""
        width, depth = max(grid.size_m), min(grid.size_m)
        fits = (self.high_m < grid.clear.max()) & (self.narrow_m < depth) & (self.wide_m < width)
        weight = np.where(self.is_object, 1.5, 0.6) * fits
        if grid.use == "floor":
            weight = weight * np.where(self.is_shoe | (self.wide_m > 0.2), 1.0, 0.05)
        else:
            weight = weight * np.where(self.is_shoe, 0.35, 1.0) * np.where(self.wide_m > 0.45, 0.3, 1.0)
        if not weight.any():
            return None
        cumulative = np.cumsum(weight)
        for _ in range(6):
            number = int(np.searchsorted(cumulative, room.rng.random() * cumulative[-1], side="right"))
            asset = self.assets[min(number, len(self.assets) - 1)]
            if asset.name not in room.used_names and asset.twin not in room.used_twins:
                return asset
        return None

    def look_alikes(self, thing: Asset) -> list[Asset]:
        """Assets of its family, or other shoes for a shoe; the stock holds no twins of any thing."""
        kin = [a for a in self.assets if a.family == thing.family]
        return kin or [a for a in self.assets if thing.is_shoe and a.is_shoe]


def _is_clutter(asset: Asset) -> bool:
    if asset.kind == "object":
        return True
    return (
        asset.kind == "small"
        and asset.type not in ("rug", "curtain", "wall", "inset", "ceiling", "bath", "sink")
        and max(asset.size_m) < 0.6
        and not (asset.type in ("table", "cabinet", "chair") and min(asset.size_m) > 0.38)
    )


def scatter(room: RoomBuilder, stock: Stock, count: int, fullness: float) -> None:
    """Puts up to `count` objects on the grids, each filled up to a random level."""
    targets = {
        id(grid): USES[grid.use][0]
        + (USES[grid.use][1] - USES[grid.use][0]) * fullness * room.rng.uniform(0.3, 1)
        for grid in room.grids
    }
    put, misses = 0, 0
    while put < count and misses < 60 and room.triangles_left > CLUTTER_TRIANGLES:
        open_grids = [r for r in room.grids if r.filled < targets.get(id(r), 0.3)]
        if not open_grids:
            break
        need = np.array([math.sqrt(r.size_m[0] * r.size_m[1]) for r in open_grids])
        grid = open_grids[int(room.rng.choice(len(need), p=need / need.sum()))]
        run = _put_run(room, stock, grid, limit=min(count - put, int(room.rng.choice([1, 2, 3, 6]))))
        misses = 0 if run else misses + 1
        put += run


def _put_run(room: RoomBuilder, stock: Stock, grid: SupportGrid, limit: int) -> int:
    """Puts up to `limit` objects side by side; returns how many."""
    aligned = room.rng.random() < USES[grid.use][2]
    yaw = room.rng.integers(4) * math.pi / 2 if aligned else _yaw(room.rng, 1.0)
    near: tuple[float, float] | None = None
    put = 0
    for _ in range(limit):
        asset = stock.pick(room, grid) if room.triangles_left >= CLUTTER_TRIANGLES else None
        if asset is None:
            break
        item = _random_orientation(room, asset)
        turn = yaw + room.rng.normal(0, 0.06) if aligned else _yaw(room.rng, 1.0)
        placement = grid.find(item.half_m, item.height_m, turn, room.rng, near_m=near)
        if placement is None:
            continue
        number = room.put(item, grid, placement, max_triangles=CLUTTER_TRIANGLES)
        near = (placement.x_m + item.half_m[0], placement.y_m)
        put += 1
        if room.max_stacks and room.rng.random() < 0.3:
            _add_stack(room, number, item, grid)
    return put


def _add_stack(room: RoomBuilder, number: int, item: OrientedAsset, grid: SupportGrid) -> None:
    """Makes the flat top of a box a support grid of its own."""
    as_it_came = np.array_equal(item.turn[:3, :3], np.eye(3))
    if grid.use in ("stack", "shelf") or len(stable_orientations(item.asset)) == 1 or not as_it_came:
        return
    top = top_grid(item.asset, room.solids[number].mesh, number, room.solids[number].transform)
    if top.usable_cells * CELL_M**2 > 0.008 and grid.height_m + item.height_m < 1.9:
        room.grids.append(top)
        room.max_stacks -= 1


def _random_orientation(room: RoomBuilder, asset: Asset) -> OrientedAsset:
    choices = stable_orientations(asset)
    pick = int(room.rng.integers(len(choices))) if len(choices) > 1 and room.rng.random() < 0.35 else 0
    return oriented(asset, choices[pick])


def _yaw(rng: np.random.Generator, freedom: float) -> float:
    """0: parallel to the support's edges; 1: any direction."""
    if rng.random() < freedom:
        return float(rng.uniform(0, 2 * math.pi))
    return float(rng.integers(4) * math.pi / 2 + rng.normal(0, 0.15))


def moved_into_view(room: RoomBuilder, number: int, spots: list[Spot]) -> Tensor | None:
    """If clutter hides a thing, its transform at one of the spots, which is then used up; else None."""
    grid, placement, item = room.things[number]
    points = sample_points(grid.matrix(placement), item.half_m, item.height_m)
    if room.seen_from(points, ignore=[number], views=16) is not None:
        return None
    reach = math.hypot(*item.half_m)
    for spot in sorted(spots, key=lambda s: s.radius_m):
        if spot.radius_m < reach or spot.clearance_m < item.height_m + 0.005:
            continue
        matrix = np.eye(4)
        matrix[:3, 3] = spot.position_m
        if room.seen_from(sample_points(matrix, item.half_m, item.height_m), ignore=[number]) is not None:
            spots.remove(spot)
            return torch.from_numpy(matrix @ item.turn)
    return None

"""Small things: which of them lie where, and the places where the things of an episode can be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from lastseen_synth.assets import Asset, Library
from lastseen_synth.coarse import coarse
from lastseen_synth.layout import FreeSpace
from lastseen_synth.meshes import Mesh
from lastseen_synth.resting import CELL_M, Rest, Seat, Sight, top_rest
from lastseen_synth.shell import Solid

EYE_HEIGHT_M = 1.6
FLAT_THINGS_M = 1.25  # what is flat and lies higher is seen edge-on
FLAT_SIDE_M = 0.003
CLUTTER_TRIANGLES = 450  # of a thing that is only background
# How full, and how neatly in line with it, each kind of place gets: (least, most, share aligned).
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
    """A free place where a thing can be put down.

    | position_m  | [3] on the surface                                                          |
    | facing_rad  | direction, on the floor, from there to where it is seen from                |
    | radius_m    | nothing else is closer than this                                            |
    | clearance_m | free height                                                                 |
    | support     | instance number of what the surface belongs to                              |
    """

    position_m: np.ndarray
    facing_rad: float
    radius_m: float
    clearance_m: float
    support: int


@lru_cache(maxsize=4096)
def postures(asset: Asset) -> tuple[np.ndarray, ...]:
    """Rotations [3, 3] in which it can rest: as it came, and on any flat side if it is a box."""
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
class Posed:
    """An asset in one of its postures: half its footprint, its height, and the turn [4, 4] that puts it on
    z = 0 with its middle over the origin."""

    asset: Asset
    half_m: tuple[float, float]
    height_m: float
    turn: np.ndarray


def posed(asset: Asset, rotation: np.ndarray) -> Posed:
    low, high = np.asarray(asset.lo_m), np.asarray(asset.hi_m)
    corners = np.stack([low, high]) @ rotation.T
    low, high = corners.min(0), corners.max(0)
    turn = np.eye(4)
    turn[:3, :3] = rotation
    turn[:3, 3] = -(low[0] + high[0]) / 2, -(low[1] + high[1]) / 2, -low[2]
    half = (float(high[0] - low[0]) / 2, float(high[1] - low[1]) / 2)
    return Posed(asset=asset, half_m=half, height_m=float(high[2] - low[2]), turn=turn)


@dataclass(kw_only=True, eq=False)
class Interior:
    """The room while it is being filled: solids so far, places to put things, and lines of sight."""

    solids: list[Solid]
    rests: list[Rest]
    sight: Sight
    free: FreeSpace
    rng: np.random.Generator
    triangles_left: int
    max_stacks: int = 6
    used_twins: set[int] = field(default_factory=set)
    used_names: set[str] = field(default_factory=set)
    things: dict[int, tuple[Rest, Seat, Posed]] = field(default_factory=dict)

    def put(self, item: Posed, rest: Rest, seat: Seat, *, max_triangles: int | None = None) -> int:
        rest.take(seat)
        transform = torch.from_numpy(rest.matrix(seat) @ item.turn)
        return self.add(solid_of(item.asset, transform, max_triangles))

    def add(self, solid: Solid) -> int:
        self.solids.append(solid)
        mesh = solid.mesh
        self.sight.add(mesh.positions_m.numpy(), mesh.triangles.numpy(), solid.transform.numpy())
        self.triangles_left -= len(mesh.triangles)
        if solid.asset is not None:
            self.used_names.add(solid.asset.name)
            if solid.asset.twin is not None:
                self.used_twins.add(solid.asset.twin)
        return len(self.solids) - 1

    def seen_from(self, points_m: np.ndarray, ignore: Sequence[int] = (), views: int = 8) -> float | None:
        """Direction to a place from which most of the points [N, 3] are in sight, or None. What is small has
        to be seen from close by."""
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
        hidden = self.sight.blocked(eyes.repeat(count, 0), np.tile(points_m, (len(eyes), 1)), ignore)
        seen = 1 - hidden.reshape(len(eyes), count).mean(1)
        best = int(seen.argmax())
        if seen[best] < 0.6:
            return None
        dx, dy = chosen[best] - middle[:2]
        return math.atan2(dy, dx)


def solid_of(asset: Asset, transform: Tensor, max_triangles: int | None = None) -> Solid:
    mesh = asset.load()[0] if max_triangles is None else lighter(asset, max_triangles)
    return Solid(mesh=mesh, materials=asset.load()[1], transform=transform, asset=asset)


@lru_cache(maxsize=2048)
def lighter(asset: Asset, max_triangles: int) -> Mesh:
    return coarse(asset.load()[0], max_triangles)


def points_of(matrix: np.ndarray, half_m: tuple[float, float], height_m: float) -> np.ndarray:
    """Five points of a box that stands on z = 0: [5, 3] in the room."""
    x, y = 0.6 * half_m[0], 0.6 * half_m[1]
    local = np.array([[0, 0, 0.6], [-x, -y, 0.5], [x, -y, 0.5], [x, y, 0.5], [-x, y, 0.8]])
    local[:, 2] *= height_m
    return local @ matrix[:3, :3].T + matrix[:3, 3]


def put_thing(inside: Interior, asset: Asset, *, near: Rest | None = None) -> int | None:
    """On a surface of convenient height, not deep inside, in sight of somebody who stands nearby."""
    for _ in range(40):
        item = _any_posture(inside, asset)
        rest = near if near is not None and inside.rng.random() < 0.7 else _handy_rest(inside)
        if rest is None:
            return None
        if item.height_m < 0.05 and rest.height_m > FLAT_THINGS_M:
            continue
        seat = rest.find(
            item.half_m, item.height_m, _yaw(inside.rng, 0.2), inside.rng, front=rest.use == "shelf"
        )
        if seat is None:
            continue
        matrix = rest.matrix(seat)
        if inside.seen_from(points_of(matrix, item.half_m, item.height_m)) is None:
            continue
        number = inside.put(item, rest, seat)
        inside.things[number] = (rest, seat, item)
        return number
    return None


def put_screens(inside: Interior, library: Library) -> None:
    """Television sets and monitors on low furniture and desks, at the back and looking to the front."""
    screens = [a for a in library.assets if a.type == "screen" and a.kind == "furniture"]
    for rest in [r for r in inside.rests if r.use in ("top", "table") and 0.3 < r.height_m < 1.0]:
        if screens and inside.rng.random() < 0.3:
            item = posed(screens[int(inside.rng.integers(len(screens)))], np.eye(3))
            middle = rest.origin_m[0] + rest.size_m[0] / 2, rest.origin_m[1] + 0.75 * rest.size_m[1]
            seat = rest.find(
                item.half_m, item.height_m, inside.rng.normal(0, 0.05), inside.rng, near_m=middle
            )
            if seat is not None:
                inside.put(item, rest, seat, max_triangles=2 * CLUTTER_TRIANGLES)


def _handy_rest(inside: Interior) -> Rest | None:
    """Between knee and eye; seats and beds seldom, tables and shelves mostly."""
    weights = np.array(
        [
            (0.2 < r.height_m < 1.6) * {"seat": 0.3, "bed": 0.3, "stack": 0.0}.get(r.use, 1.0)
            * min(1.0, r.size_m[0] * r.size_m[1] / 0.3)
            for r in inside.rests
        ]
    )  # fmt: skip
    if weights.sum() <= 0:
        return None
    return inside.rests[int(inside.rng.choice(len(weights), p=weights / weights.sum()))]


def find_spots(inside: Interior, count: int, sizes_m: Sequence[tuple[float, float, float]]) -> list[Spot]:
    """Places kept free for later, each large enough for one of these sizes, or for a cup where that fails."""
    spots: list[Spot] = []
    for attempt in range(8 * count):
        if len(spots) == count:
            break
        radius, height = 0.08, float(inside.rng.uniform(0.12, 0.25))
        if sizes_m and attempt < 5 * count and inside.rng.random() < 0.8:
            wide, deep, high = sizes_m[int(inside.rng.integers(len(sizes_m)))]
            radius, height = math.hypot(wide, deep) / 2 + 0.002, high + 0.02
        rest = _handy_rest(inside)
        if rest is None:
            break
        seat = rest.find((radius, radius), height, 0.0, inside.rng, front=rest.use == "shelf")
        if seat is None:
            continue
        matrix = rest.matrix(seat)
        facing = inside.seen_from(points_of(matrix, (0.5 * radius, 0.5 * radius), height))
        if facing is None:
            continue
        spots.append(
            Spot(
                position_m=matrix[:3, 3].copy(),
                facing_rad=facing,
                radius_m=radius,
                clearance_m=float(rest.clear[seat.cells].min()) - 0.005,
                support=rest.owner,
            )
        )
        rest.take(seat)
    return spots


class Stock:
    """Small things of a library, with their sizes at hand."""

    def __init__(self, library: Library, avoid: Iterable[Asset]) -> None:
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

    def pick(self, inside: Interior, rest: Rest) -> Asset | None:
        """One that fits and is not here yet."""
        width, depth = max(rest.size_m), min(rest.size_m)
        fits = (self.high_m < rest.clear.max()) & (self.narrow_m < depth) & (self.wide_m < width)
        weight = np.where(self.is_object, 1.5, 0.6) * fits
        if rest.use == "floor":
            weight = weight * np.where(self.is_shoe | (self.wide_m > 0.2), 1.0, 0.05)
        else:
            weight = weight * np.where(self.is_shoe, 0.35, 1.0) * np.where(self.wide_m > 0.45, 0.3, 1.0)
        if not weight.any():
            return None
        cumulative = np.cumsum(weight)
        for _ in range(6):
            number = int(np.searchsorted(cumulative, inside.rng.random() * cumulative[-1], side="right"))
            asset = self.assets[min(number, len(self.assets) - 1)]
            if asset.name not in inside.used_names and asset.twin not in inside.used_twins:
                return asset
        return None

    def look_alikes(self, thing: Asset) -> list[Asset]:
        """Of its family, or shoes if it is one; the stock has no twins of any thing."""
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


def scatter(inside: Interior, stock: Stock, count: int, fullness: float) -> int:
    """Fill the rests, each up to its own measure; returns how many things were put."""
    targets = {
        id(rest): USES[rest.use][0]
        + (USES[rest.use][1] - USES[rest.use][0]) * fullness * inside.rng.uniform(0.3, 1)
        for rest in inside.rests
    }
    put, misses = 0, 0
    while put < count and misses < 60 and inside.triangles_left > CLUTTER_TRIANGLES:
        open_rests = [r for r in inside.rests if r.filled < targets.get(id(r), 0.3)]
        if not open_rests:
            break
        need = np.array([math.sqrt(r.size_m[0] * r.size_m[1]) for r in open_rests])
        rest = open_rests[int(inside.rng.choice(len(need), p=need / need.sum()))]
        run = _put_run(inside, stock, rest, limit=min(count - put, int(inside.rng.choice([1, 2, 3, 6]))))
        misses = 0 if run else misses + 1
        put += run
    return put


def _put_run(inside: Interior, stock: Stock, rest: Rest, limit: int) -> int:
    """Some things side by side, or one alone."""
    aligned = inside.rng.random() < USES[rest.use][2]
    yaw = inside.rng.integers(4) * math.pi / 2 if aligned else _yaw(inside.rng, 1.0)
    near: tuple[float, float] | None = None
    put = 0
    for _ in range(limit):
        asset = stock.pick(inside, rest) if inside.triangles_left >= CLUTTER_TRIANGLES else None
        if asset is None:
            break
        item = _any_posture(inside, asset)
        turn = yaw + inside.rng.normal(0, 0.06) if aligned else _yaw(inside.rng, 1.0)
        seat = rest.find(item.half_m, item.height_m, turn, inside.rng, near_m=near)
        if seat is None:
            continue
        number = inside.put(item, rest, seat, max_triangles=CLUTTER_TRIANGLES)
        near = (seat.x_m + item.half_m[0], seat.y_m)
        put += 1
        if inside.max_stacks and inside.rng.random() < 0.3:
            _add_stack(inside, number, item, rest)
    return put


def _add_stack(inside: Interior, number: int, item: Posed, rest: Rest) -> None:
    """The flat top of a box is one more place to put things."""
    as_it_came = np.array_equal(item.turn[:3, :3], np.eye(3))
    if rest.use in ("stack", "shelf") or len(postures(item.asset)) == 1 or not as_it_came:
        return
    top = top_rest(item.asset, inside.solids[number].mesh, number, inside.solids[number].transform)
    if top.usable_cells * CELL_M**2 > 0.008 and rest.height_m + item.height_m < 1.9:
        inside.rests.append(top)
        inside.max_stacks -= 1


def _any_posture(inside: Interior, asset: Asset) -> Posed:
    choices = postures(asset)
    pick = int(inside.rng.integers(len(choices))) if len(choices) > 1 and inside.rng.random() < 0.35 else 0
    return posed(asset, choices[pick])


def _yaw(rng: np.random.Generator, freedom: float) -> float:
    """0: square to the support; 1: any direction."""
    if rng.random() < freedom:
        return float(rng.uniform(0, 2 * math.pi))
    return float(rng.integers(4) * math.pi / 2 + rng.normal(0, 0.15))


def moved_to_light(inside: Interior, number: int, spots: list[Spot]) -> Tensor | None:
    """If clutter has hidden a thing, another place for it: one of the spots, which is then gone."""
    rest, seat, item = inside.things[number]
    points = points_of(rest.matrix(seat), item.half_m, item.height_m)
    if inside.seen_from(points, ignore=[number], views=16) is not None:
        return None
    reach = math.hypot(*item.half_m)
    for spot in sorted(spots, key=lambda s: s.radius_m):
        if spot.radius_m < reach or spot.clearance_m < item.height_m + 0.005:
            continue
        matrix = np.eye(4)
        matrix[:3, 3] = spot.position_m
        if inside.seen_from(points_of(matrix, item.half_m, item.height_m), ignore=[number]) is not None:
            spots.remove(spot)
            return torch.from_numpy(matrix @ item.turn)
    return None

"""Floor plans: zones, walls and their holes; footprints of furniture; free floor to walk on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from lastseen_synth.assets import Asset

WALL_THICKNESS_M = 0.14
PERSON_RADIUS_M = 0.25


def pose(x_m: float, y_m: float, z_m: float = 0.0, yaw_rad: float = 0.0) -> Tensor:
    """[4, 4] float64: turned about z, then shifted."""
    matrix = torch.eye(4, dtype=torch.float64)
    cos, sin = math.cos(yaw_rad), math.sin(yaw_rad)
    matrix[0, 0], matrix[0, 1], matrix[1, 0], matrix[1, 1] = cos, -sin, sin, cos
    matrix[0, 3], matrix[1, 3], matrix[2, 3] = x_m, y_m, z_m
    return matrix


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """An oriented rectangle on the floor: centre, half sides and yaw."""

    x_m: float
    y_m: float
    half_x_m: float
    half_y_m: float
    yaw_rad: float = 0.0

    def grown(self, margin_m: float) -> Footprint:
        return replace(self, half_x_m=self.half_x_m + margin_m, half_y_m=self.half_y_m + margin_m)

    def point(self, x_m: float, y_m: float) -> tuple[float, float]:
        """From its own coordinates to the floor's."""
        cos, sin = math.cos(self.yaw_rad), math.sin(self.yaw_rad)
        return self.x_m + x_m * cos - y_m * sin, self.y_m + x_m * sin + y_m * cos

    def corners(self) -> list[tuple[float, float]]:
        x, y = self.half_x_m, self.half_y_m
        return [self.point(*corner) for corner in ((-x, -y), (x, -y), (x, y), (-x, y))]

    def overlaps(self, other: Footprint) -> bool:
        """Separating-axis test of two oriented rectangles."""
        dx, dy = other.x_m - self.x_m, other.y_m - self.y_m
        reach = math.hypot(self.half_x_m, self.half_y_m) + math.hypot(other.half_x_m, other.half_y_m)
        if dx * dx + dy * dy >= reach * reach:
            return False
        turn = other.yaw_rad - self.yaw_rad
        cos, sin = abs(math.cos(turn)), abs(math.sin(turn))
        for a, b in ((self, other), (other, self)):
            ax, ay = math.cos(a.yaw_rad), math.sin(a.yaw_rad)
            along, across = abs(dx * ax + dy * ay), abs(dy * ax - dx * ay)
            if along >= a.half_x_m + b.half_x_m * cos + b.half_y_m * sin:
                return False
            if across >= a.half_y_m + b.half_x_m * sin + b.half_y_m * cos:
                return False
        return True

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        """From points [..., 2] to the rectangle, 0 inside."""
        cos, sin = math.cos(self.yaw_rad), math.sin(self.yaw_rad)
        x, y = points_m[..., 0] - self.x_m, points_m[..., 1] - self.y_m
        over_x = np.maximum(np.abs(x * cos + y * sin) - self.half_x_m, 0)
        over_y = np.maximum(np.abs(y * cos - x * sin) - self.half_y_m, 0)
        return np.hypot(over_x, over_y)


def footprint_of(
    low_m: Sequence[float], high_m: Sequence[float], x_m: float, y_m: float, yaw_rad: float
) -> Footprint:
    """Footprint of an asset with these bounds whose origin is put at (x, y)."""
    at = Footprint(x_m=x_m, y_m=y_m, half_x_m=0.0, half_y_m=0.0, yaw_rad=yaw_rad)
    middle = at.point((low_m[0] + high_m[0]) / 2, (low_m[1] + high_m[1]) / 2)
    half_x, half_y = (high_m[0] - low_m[0]) / 2, (high_m[1] - low_m[1]) / 2
    return Footprint(x_m=middle[0], y_m=middle[1], half_x_m=half_x, half_y_m=half_y, yaw_rad=yaw_rad)


@dataclass(frozen=True, kw_only=True)
class Zone:
    """A rectangular room, or part of one."""

    x0_m: float
    y0_m: float
    x1_m: float
    y1_m: float

    @property
    def area_m2(self) -> float:
        return (self.x1_m - self.x0_m) * (self.y1_m - self.y0_m)

    def holds(self, points: Iterable[tuple[float, float]], margin_m: float = 0.0) -> bool:
        return all(
            self.x0_m + margin_m <= x <= self.x1_m - margin_m
            and self.y0_m + margin_m <= y <= self.y1_m - margin_m
            for x, y in points
        )


@dataclass(frozen=True, kw_only=True)
class Hole:
    """A rectangular hole in a wall, in metres along it and above the floor; `filling`: the asset in it."""

    kind: Literal["door", "window", "passage"]
    from_m: float
    to_m: float
    low_m: float
    high_m: float
    filling: Asset | None = None


@dataclass(frozen=True, kw_only=True)
class Wall:
    """From `start` to `end` with its zone on the left."""

    zone: int
    start: tuple[float, float]
    end: tuple[float, float]
    holes: tuple[Hole, ...] = ()

    @property
    def length_m(self) -> float:
        return math.dist(self.start, self.end)

    @property
    def direction(self) -> tuple[float, float]:
        return (self.end[0] - self.start[0]) / self.length_m, (self.end[1] - self.start[1]) / self.length_m

    @property
    def normal(self) -> tuple[float, float]:
        """Into the room."""
        x, y = self.direction
        return -y, x

    @property
    def yaw_rad(self) -> float:
        """Yaw of furniture with its back (+y) to the wall."""
        return math.atan2(self.normal[0], -self.normal[1])

    def point(self, along_m: float, out_m: float) -> tuple[float, float]:
        (dx, dy), (nx, ny) = self.direction, self.normal
        return self.start[0] + along_m * dx + out_m * nx, self.start[1] + along_m * dy + out_m * ny

    def patch(self, from_m: float, to_m: float, near_m: float, far_m: float) -> Footprint:
        """The rectangle of floor in front of (or behind) a section of it."""
        x, y = self.point((from_m + to_m) / 2, (near_m + far_m) / 2)
        return Footprint(
            x_m=x,
            y_m=y,
            half_x_m=(to_m - from_m) / 2,
            half_y_m=(far_m - near_m) / 2,
            yaw_rad=math.atan2(self.direction[1], self.direction[0]),
        )


@dataclass(frozen=True, kw_only=True)
class FloorPlan:
    zones: tuple[Zone, ...]
    walls: tuple[Wall, ...]
    height_m: float

    def holes(self, *kinds: str) -> Iterator[tuple[Wall, Hole]]:
        for wall in self.walls:
            for hole in wall.holes:
                if hole.kind in kinds:
                    yield wall, hole

    def ways(self, reach_m: float) -> list[Footprint]:
        """Floor that must stay free in front of doors and passages."""
        return [w.patch(h.from_m, h.to_m, 0.0, reach_m) for w, h in self.holes("door", "passage")]


def draw_floor_plan(
    rng: np.random.Generator, openings: Sequence[Asset] = (), *, largest_m: tuple[float, float] = (7.0, 6.0)
) -> FloorPlan:
    """One room, or two joined by a passage (an L shape if it is as wide as the room). Some holes are sized
    for one of the `openings`: door and window assets."""
    width, depth = (3.0 + (most - 3.0) * rng.beta(1.5, 2.2) for most in largest_m)  # few are very large
    height = rng.uniform(2.4, 3.0)
    zones = [Zone(x0_m=0.0, y0_m=0.0, x1_m=width, y1_m=depth)]
    passage = None
    if rng.random() < 0.35:
        second_width, second_depth = rng.uniform(2.2, 4.0), rng.uniform(2.4, 4.0)
        shift = rng.uniform(-0.3 * second_depth, depth - 0.7 * second_depth)
        x0 = width + WALL_THICKNESS_M
        zones.append(Zone(x0_m=x0, y0_m=shift, x1_m=x0 + second_width, y1_m=shift + second_depth))
        low, high = max(0.0, shift) + 0.12, min(depth, shift + second_depth) - 0.12
        if rng.random() < 0.35:
            passage = (low, high, min(height - 0.15, rng.uniform(2.2, 2.6)))
        else:
            wide = min(rng.uniform(0.85, 1.5), high - low)
            start = rng.uniform(low, high - wide)
            passage = (start, start + wide, rng.uniform(2.02, 2.2))
    walls = [wall for number, zone in enumerate(zones) for wall in _walls_of(number, zone)]
    if passage is not None:
        walls = [_with_passage(wall, zones, passage) for wall in walls]
    for number, zone in enumerate(zones):
        doors = 1 if number == 0 else int(rng.random() < 0.4)
        windows = int(rng.choice([0, 1, 2, 3], p=[0.12, 0.43, 0.33, 0.12])) if zone.area_m2 > 9 else 1
        for _ in range(doors):
            walls = _with_hole(walls, number, "door", height, openings, rng)
        for _ in range(windows):
            walls = _with_hole(walls, number, "window", height, openings, rng)
    return FloorPlan(zones=tuple(zones), walls=tuple(walls), height_m=height)


def _walls_of(number: int, zone: Zone) -> list[Wall]:
    corners = [(zone.x0_m, zone.y0_m), (zone.x1_m, zone.y0_m), (zone.x1_m, zone.y1_m), (zone.x0_m, zone.y1_m)]
    return [Wall(zone=number, start=a, end=b) for a, b in zip(corners, corners[1:] + corners[:1])]


def _with_passage(wall: Wall, zones: Sequence[Zone], passage: tuple[float, float, float]) -> Wall:
    y0, y1, high = passage
    x = wall.start[0]
    if x != wall.end[0] or x not in (zones[0].x1_m, zones[1].x0_m):
        return wall
    near, far = sorted((abs(y0 - wall.start[1]), abs(y1 - wall.start[1])))
    return replace(wall, holes=(Hole(kind="passage", from_m=near, to_m=far, low_m=0.0, high_m=high),))


def _with_hole(
    walls: list[Wall],
    zone: int,
    kind: Literal["door", "window"],
    height_m: float,
    openings: Sequence[Asset],
    rng: np.random.Generator,
) -> list[Wall]:
    """Adds a door or window to a random wall of the zone that has space; unchanged if none has."""
    for _ in range(12):
        number = int(rng.choice([i for i, wall in enumerate(walls) if wall.zone == zone]))
        wall = walls[number]
        faces_the_other_room = any(hole.kind == "passage" for hole in wall.holes)
        size, low, high, filling = _hole_size(kind, height_m, openings, rng)
        if filling is None and kind == "window":
            size = min(size, wall.length_m - 0.6)
        if wall.length_m < size + 0.5 or high > height_m - 0.1 or (kind == "window" and faces_the_other_room):
            continue
        start = rng.uniform(0.2, wall.length_m - size - 0.2)
        if kind == "door" and rng.random() < 0.7:  # doors are mostly near a corner
            start = 0.2 if rng.random() < 0.5 else wall.length_m - size - 0.2
        if all(start > hole.to_m + 0.3 or start + size < hole.from_m - 0.3 for hole in wall.holes):
            hole = Hole(kind=kind, from_m=start, to_m=start + size, low_m=low, high_m=high, filling=filling)
            walls = walls.copy()
            walls[number] = replace(wall, holes=(*wall.holes, hole))
            return walls
    return walls


def _hole_size(
    kind: Literal["door", "window"], height_m: float, openings: Sequence[Asset], rng: np.random.Generator
) -> tuple[float, float, float, Asset | None]:
    """Width, lower and upper edge, and the asset that fills it, if any."""
    fillings = [
        a
        for a in openings
        if kind in f"{a.type} {a.name}" and "exterior" not in a.name and a.size_m[2] < height_m - 0.1
    ]
    if fillings and rng.random() < 0.5:
        filling = fillings[int(rng.integers(len(fillings)))]
        wide, high = filling.size_m[0] - 0.02, filling.size_m[2] - 0.01
        low = 0.0
        if kind == "window":
            low = rng.uniform(0.75, 1.05) if high < 1.6 else 0.05
            low = min(low, height_m - 0.15 - high)
        return wide, low, low + high, filling
    if kind == "door":
        return rng.uniform(0.8, 1.0), 0.0, rng.uniform(2.0, 2.1), None
    low = 0.05 if rng.random() < 0.12 else rng.uniform(0.75, 1.1)
    return rng.uniform(0.7, 2.0), low, min(rng.uniform(1.95, 2.3), height_m - 0.2), None


@dataclass(frozen=True, kw_only=True, eq=False)
class FreeSpace:
    """Free floor for a standing person: one connected area on a grid.

    | origin_m | (x, y) of the outer corner of cell [0, 0]       |
    | open     | bool [rows (y), columns (x)] of cells `cell_m` wide |
    """

    origin_m: tuple[float, float]
    cell_m: float
    open: np.ndarray

    def cells_m(self) -> np.ndarray:
        """[K, 2]: the middles of all open cells."""
        rows, columns = np.nonzero(self.open)
        return np.stack([columns + 0.5, rows + 0.5], 1) * self.cell_m + self.origin_m

    def holds(self, points_m: np.ndarray) -> np.ndarray:
        """bool [...] for points [..., 2]."""
        cells = np.floor((points_m - np.array(self.origin_m)) / self.cell_m).astype(int)
        inside = ((cells >= 0) & (cells < self.open.shape[::-1])).all(-1)
        column, row = np.where(inside[..., None], cells, 0).T
        return inside & self.open[row, column].T

    @property
    def area_m2(self) -> float:
        return float(self.open.sum()) * self.cell_m**2


def free_space(plan: FloorPlan, obstacles: Iterable[Footprint], *, cell_m: float = 0.1) -> FreeSpace:
    """The largest connected area where a person of radius PERSON_RADIUS_M touches nothing."""
    x0, y0 = min(z.x0_m for z in plan.zones), min(z.y0_m for z in plan.zones)
    x1, y1 = max(z.x1_m for z in plan.zones), max(z.y1_m for z in plan.zones)
    columns, rows = math.ceil((x1 - x0) / cell_m), math.ceil((y1 - y0) / cell_m)
    x, y = (np.arange(columns) + 0.5) * cell_m + x0, (np.arange(rows) + 0.5) * cell_m + y0
    centres = np.stack(np.meshgrid(x, y), 2)
    reach = PERSON_RADIUS_M
    standing = np.zeros((rows, columns), bool)
    for zone in plan.zones:
        clear_x = (x >= zone.x0_m + reach) & (x <= zone.x1_m - reach)
        clear_y = (y >= zone.y0_m + reach) & (y <= zone.y1_m - reach)
        standing |= clear_y[:, None] & clear_x
    for wall, hole in plan.holes("passage"):
        through = wall.patch(hole.from_m + reach, hole.to_m - reach, -WALL_THICKNESS_M - reach, reach)
        standing |= through.distance_m(centres) <= 0
    for obstacle in obstacles:
        standing &= obstacle.distance_m(centres) >= reach
    parts, count = ndimage.label(standing)
    if count:
        standing = parts == 1 + np.bincount(parts.ravel())[1:].argmax()
    return FreeSpace(origin_m=(x0, y0), cell_m=cell_m, open=standing)

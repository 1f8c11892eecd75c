"""Support grids: free height above every support surface, computed from the meshes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import Tensor

from lastseen_synth.assets import Asset, Support
from lastseen_synth.floor_plan import FloorPlan, Footprint, FreeSpace, Zone
from lastseen_synth.meshes import Mesh

CELL_M = 0.01
FLOOR_CELL_M = 0.02
FLAT_M = 0.0015  # height tolerance of a support surface
MAX_HEIGHT_M = 0.7  # of objects on a surface; free height is capped here


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """A free place found on a SupportGrid, in its coordinates."""

    x_m: float
    y_m: float
    z_m: float
    yaw_rad: float
    cells: tuple[np.ndarray, np.ndarray]


class SupportGrid:
    """A flat surface in the room and the free height above each of its cells (0: not usable).

    | owner | number of the solid it belongs to                                               |
    | frame | [4, 4] from its coordinates to the room's                                       |
    | clear | float32 [ny, nx]; cell [0, 0] begins at `origin_m` in its coordinates            |
    | level | float32 [ny, nx] height of the surface in its coordinates                       |
    """

    def __init__(
        self,
        *,
        owner: int,
        frame: Tensor,
        origin_m: tuple[float, float],
        clear: np.ndarray,
        level: np.ndarray,
        cell_m: float,
        use: str,
    ) -> None:
        self.owner, self.frame, self.origin_m, self.cell_m, self.use = owner, frame, origin_m, cell_m, use
        self.clear, self.level = clear, level
        self.usable_cells = int((clear > 0.03).sum())

    @property
    def size_m(self) -> tuple[float, float]:
        return self.clear.shape[1] * self.cell_m, self.clear.shape[0] * self.cell_m

    @property
    def height_m(self) -> float:
        """Height of the surface above the floor."""
        return float(self.frame[2, 3]) + float(self.level.max(initial=0.0))

    @property
    def filled(self) -> float:
        return 1 - int((self.clear > 0.03).sum()) / max(self.usable_cells, 1)

    def find(
        self,
        half_m: tuple[float, float],
        height_m: float,
        yaw_rad: float,
        rng: np.random.Generator,
        *,
        near_m: tuple[float, float] | None = None,
        front: bool = False,
        tries: int = 60,
    ) -> Placement | None:
        """A place for a box of this footprint: near a point, near the front edge, or anywhere."""
        rows, columns = np.nonzero(self.clear >= height_m + 0.005)
        if not len(rows):
            return None
        if near_m is not None:
            x, y = self._middle(rows, columns)
            order = np.argsort(np.hypot(x - near_m[0], y - near_m[1]))[: 12 * tries : 3]
        elif front:
            # Near the front edge but anywhere along it; half a footprint is lost to either side.
            some = rng.permutation(len(rows))[: 8 * tries]
            order = some[np.argsort(rows[some] + rng.uniform(0, 6, len(some)))]
        else:
            order = rng.permutation(len(rows))[:tries]
        down, right = self._cells_under(half_m, yaw_rad)
        row, column = rows[order][:, None] + down, columns[order][:, None] + right
        inside = (row >= 0) & (row < self.clear.shape[0]) & (column >= 0) & (column < self.clear.shape[1])
        free = self.clear[np.where(inside, row, 0), np.where(inside, column, 0)] >= height_m + 0.005
        good = np.flatnonzero((inside & free).all(1))
        if not len(good):
            return None
        best = good[0]
        cells = (row[best], column[best])
        x, y = self._middle(rows[order[best]], columns[order[best]])
        z = float(self.level[cells].max())
        return Placement(x_m=float(x), y_m=float(y), z_m=z, yaw_rad=yaw_rad, cells=cells)

    def limit_height(self, place: Footprint, low_m: float) -> None:
        """Limits the free height below an object that hangs at this height above the floor."""
        y, x = ((np.arange(n) + 0.5) * self.cell_m + o for n, o in zip(self.clear.shape, self.origin_m[::-1]))
        local = np.stack(np.meshgrid(x, y), 2)
        frame = self.frame.numpy()
        beneath = place.grown(self.cell_m).distance_m(local @ frame[:2, :2].T + frame[:2, 3]) <= 0
        free = np.maximum(low_m - float(frame[2, 3]) - self.level, 0)
        self.clear[beneath] = np.minimum(self.clear, free)[beneath]

    def take(self, placement: Placement) -> None:
        self.clear[placement.cells] = 0.0

    def matrix(self, placement: Placement) -> np.ndarray:
        """[4, 4]: from coordinates of an object that stands on z = 0 at its origin to the room."""
        cos, sin = math.cos(placement.yaw_rad), math.sin(placement.yaw_rad)
        local = np.array(
            [
                [cos, -sin, 0, placement.x_m],
                [sin, cos, 0, placement.y_m],
                [0, 0, 1, placement.z_m],
                [0, 0, 0, 1],
            ]
        )
        return self.frame.numpy() @ local

    def _middle(self, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (columns + 0.5) * self.cell_m + self.origin_m[0], (rows + 0.5) * self.cell_m + self.origin_m[1]

    def _cells_under(self, half_m: tuple[float, float], yaw_rad: float) -> tuple[np.ndarray, np.ndarray]:
        """Every cell that a footprint around the middle of cell (0, 0) touches."""
        reach = math.ceil(math.hypot(*half_m) / self.cell_m) + 1
        row, column = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)
        cos, sin = math.cos(yaw_rad), math.sin(yaw_rad)
        x, y = (column * cos + row * sin) * self.cell_m, (row * cos - column * sin) * self.cell_m
        corner = self.cell_m * (abs(cos) + abs(sin)) / 2
        touched = (np.abs(x) <= half_m[0] + corner) & (np.abs(y) <= half_m[1] + corner)
        return row[touched], column[touched]


def support_grids(asset: Asset, mesh: Mesh, owner: int, transform: Tensor, use: str) -> list[SupportGrid]:
    """One grid for each usable support of an asset rendered with this mesh."""
    grids = []
    for support in asset.supports:
        clear, level = _free_height(mesh, support)
        if (clear > 0.03).sum() * CELL_M**2 > 0.01:
            grids.append(_support_grid(support, clear, level, owner, transform, use))
    return grids


def top_grid(asset: Asset, mesh: Mesh, owner: int, transform: Tensor) -> SupportGrid:
    """The top of a box-shaped object, for stacking."""
    (x0, y0, _), (x1, y1, z1) = asset.lo_m, asset.hi_m
    support = Support(z_m=z1, x0_m=x0, y0_m=y0, x1_m=x1, y1_m=y1, clearance_m=0.25)
    return _support_grid(support, *_free_height(mesh, support), owner, transform, "stack")


def _support_grid(
    support: Support, clear: np.ndarray, level: np.ndarray, owner: int, transform: Tensor, use: str
) -> SupportGrid:
    origin = (support.x0_m, support.y0_m)
    return SupportGrid(
        owner=owner, frame=transform, origin_m=origin, clear=clear.copy(), level=level, cell_m=CELL_M, use=use
    )


@lru_cache(maxsize=2048)
def _free_height(mesh: Mesh, support: Support) -> tuple[np.ndarray, np.ndarray]:
    return free_height(mesh.positions_m.double().numpy(), mesh.triangles.numpy(), support)


def free_height(
    positions_m: np.ndarray, triangles: np.ndarray, support: Support
) -> tuple[np.ndarray, np.ndarray]:
    """Free height and surface level per cell: a cell is usable if the surface is there, level, and not at its
    edge; triangles above limit the height."""
    nx = int((support.x1_m - support.x0_m) / CELL_M + 1e-6)
    ny = int((support.y1_m - support.y0_m) / CELL_M + 1e-6)
    ceiling = min(support.clearance_m, MAX_HEIGHT_M)
    corners = positions_m[triangles]
    low, high = corners.min(1), corners.max(1)
    over = (
        (high[:, 2] > support.z_m - FLAT_M)
        & (low[:, 2] < support.z_m + ceiling)
        & (high[:, 0] > support.x0_m) & (low[:, 0] < support.x1_m)
        & (high[:, 1] > support.y0_m) & (low[:, 1] < support.y1_m)
    )  # fmt: skip
    points = surface_points(corners[over], 0.6 * CELL_M)
    column = np.floor((points[:, 0] - support.x0_m) / CELL_M).astype(int)
    row = np.floor((points[:, 1] - support.y0_m) / CELL_M).astype(int)
    inside = (column >= 0) & (column < nx) & (row >= 0) & (row < ny)
    row, column, z = row[inside], column[inside], points[inside, 2]
    at_level = np.abs(z - support.z_m) <= FLAT_M
    level = np.full((ny, nx), -np.inf)
    np.maximum.at(level, (row[at_level], column[at_level]), z[at_level])
    clear = np.full((ny, nx), ceiling)
    above = (z > support.z_m + FLAT_M) & (z < support.z_m + ceiling)
    np.minimum.at(clear, (row[above], column[above]), z[above] - support.z_m - 0.002)
    clear[~np.isfinite(level)] = 0.0
    padded = np.pad(clear, 1)
    sides = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    clear = np.minimum(clear, np.minimum.reduce(sides))
    return clear.astype(np.float32), np.where(np.isfinite(level), level, support.z_m).astype(np.float32)


def surface_points(corners_m: np.ndarray, spacing_m: float) -> np.ndarray:
    """Points [N, 3] on triangles [F, 3, 3], at most about `spacing_m` apart."""
    if not len(corners_m):
        return np.zeros((0, 3))
    edges = np.linalg.norm(np.roll(corners_m, -1, 1) - corners_m, axis=2)
    longest = edges.argmax(1)
    a, b, c = (np.take_along_axis(corners_m, ((longest + k) % 3)[:, None, None], 1)[:, 0] for k in range(3))
    length = edges.max(1)
    area2 = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    # Rows parallel to the longest side; counts are powers of two, so that few groups are needed.
    along, up = (
        np.exp2(np.ceil(np.log2(np.clip(size / spacing_m, 1, 512)))).astype(int)
        for size in (length, area2 / np.maximum(length, 1e-9))
    )
    points = []
    for n, m in np.unique(np.stack([along, up], 1), axis=0):
        these = (along == n) & (up == m)
        s, t = (g.reshape(-1, 1) for g in np.meshgrid(np.linspace(0, 1, n + 1), np.linspace(0, 1, m + 1)))
        base = a[these, None] + s * (b - a)[these, None]
        points.append((base + t * (c[these, None] - base)).reshape(-1, 3))
    return np.concatenate(points)


def floor_grid(
    plan: FloorPlan, zone: Zone, owner: int, free: FreeSpace, obstacles: Iterable[Footprint], frame: Tensor
) -> SupportGrid:
    """The floor of a zone outside the walkable area: along walls and beside furniture."""
    nx, ny = (int(side / FLOOR_CELL_M) for side in (zone.x1_m - zone.x0_m, zone.y1_m - zone.y0_m))
    x = (np.arange(nx) + 0.5) * FLOOR_CELL_M + zone.x0_m
    y = (np.arange(ny) + 0.5) * FLOOR_CELL_M + zone.y0_m
    centres = np.stack(np.meshgrid(x, y), 2)
    walked = free.holds(centres)
    closed = np.zeros((ny, nx), bool)
    closed[:2], closed[-2:], closed[:, :2], closed[:, -2:] = True, True, True, True  # skirting
    for obstacle in obstacles:
        closed |= obstacle.distance_m(centres) < 0.02
    for way in plan.ways(0.6):
        closed |= way.distance_m(centres) <= 0
    clear = np.where(walked | closed, 0.0, MAX_HEIGHT_M).astype(np.float32)
    return SupportGrid(
        owner=owner,
        frame=frame,
        origin_m=(zone.x0_m, zone.y0_m),
        clear=clear,
        level=np.zeros((ny, nx), np.float32),
        cell_m=FLOOR_CELL_M,
        use="floor",
    )

"""Ways across the floor: shortest over the free cells, then pulled smooth without leaving them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy import ndimage, sparse
from scipy.sparse import csgraph

from lastseen.errors import SynthError

COMFORT_M = 0.2  # people keep about this much further from things than they must
STEP_M = 0.03  # between the points of a path


class Free(Protocol):
    """Where a standing person may be: `open` bool [rows (y), columns (x)]; `origin_m`: its corner."""

    @property
    def origin_m(self) -> tuple[float, float]: ...
    @property
    def cell_m(self) -> float: ...
    @property
    def open(self) -> np.ndarray: ...


class Floor:
    """The largest connected part of the free cells; cells are numbered 0, 1, ...

    | centres_m   | [cells, 2] world x, y            |
    | clearance_m | [cells] to the nearest closed one |
    """

    def __init__(self, free: Free) -> None:
        labels, parts = ndimage.label(free.open)
        if not parts:
            raise SynthError("nobody can stand in this room: take furniture out, or make it larger")
        open_cells = labels == 1 + np.argmax(np.bincount(labels.ravel())[1:])
        rows, columns = np.nonzero(open_cells)
        self.origin_m, self.cell_m = np.asarray(free.origin_m, np.float64)[:2], float(free.cell_m)
        self.centres_m = self.origin_m + (np.stack([columns, rows], 1) + 0.5) * self.cell_m
        # One closed cell all around: what is off the grid is no floor.
        self._open = np.pad(open_cells, 1)
        self._clearance_m = ndimage.distance_transform_edt(self._open) * self.cell_m
        self.clearance_m = self._clearance_m[rows + 1, columns + 1] - self.cell_m / 2
        self._graph = self._neighbours(rows + 1, columns + 1)

    def _neighbours(self, rows: np.ndarray, columns: np.ndarray) -> sparse.csr_array:
        number = np.full(self._open.shape, -1)
        number[rows, columns] = np.arange(len(rows))
        crowding = 1 + np.exp(-self.clearance_m / COMFORT_M)
        starts, ends, costs = [], [], []
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            there = number[rows + down, columns + right]
            # Diagonally only where no corner is cut.
            passable = self._open[rows + down, columns] & self._open[rows, columns + right] & (there >= 0)
            here, there = np.nonzero(passable)[0], there[passable]
            starts.append(here)
            ends.append(there)
            costs.append(np.hypot(down, right) * self.cell_m * (crowding[here] + crowding[there]) / 2)
        edges = (np.concatenate(costs), (np.concatenate(starts), np.concatenate(ends)))
        return sparse.coo_array(edges, shape=(len(rows), len(rows))).tocsr()

    def nearest(self, point_m: np.ndarray) -> int:
        return int(np.square(self.centres_m - point_m[:2]).sum(1).argmin())

    def is_open(self, points_m: np.ndarray) -> np.ndarray:
        """bool [N] for points [N, 2]."""
        column, row = np.floor((points_m - self.origin_m) / self.cell_m).astype(int).T + 1
        inside = (row >= 0) & (row < self._open.shape[0]) & (column >= 0) & (column < self._open.shape[1])
        return inside & self._open[row * inside, column * inside]

    def clearance_at_m(self, points_m: np.ndarray) -> np.ndarray:
        """[N], smooth between cells; 0 outside."""
        cell = (points_m - self.origin_m) / self.cell_m + 0.5
        return ndimage.map_coordinates(self._clearance_m, cell.T[::-1], order=1, mode="nearest")

    def reach(self, cell: int) -> Reach:
        costs, before = csgraph.dijkstra(self._graph, directed=False, indices=cell, return_predecessors=True)
        return Reach(self, cell, costs, before)


class Reach:
    """What can be walked to from one cell; `costs_m` [cells]: how far it is, crowded places counting more."""

    def __init__(self, floor: Floor, start: int, costs_m: np.ndarray, before: np.ndarray) -> None:
        self.floor, self.start, self.costs_m, self._before = floor, start, costs_m, before

    def path_m(self, goal: int) -> np.ndarray:
        """Points [N, 2] about STEP_M apart, from centre of cell to centre of cell; all in open cells."""
        cells = [goal]
        while cells[-1] != self.start:
            cells.append(int(self._before[cells[-1]]))
        points = resampled(self.floor.centres_m[cells[::-1]])
        if len(points) < 3:
            return points
        # An elastic band: every point goes towards the middle of its neighbours unless that takes it out of
        # the open, or nearer to things than is comfortable and nearer than it was.
        floor = self.floor
        for reach in (8, 4, 2, 1):
            for _ in range(40):
                wide = np.pad(points, ((reach, reach), (0, 0)), mode="edge")
                moved = points / 2 + (wide[: -2 * reach] + wide[2 * reach :]) / 4
                moved[[0, -1]] = points[[0, -1]]
                needed = np.minimum(floor.clearance_at_m(points), COMFORT_M)
                good = (floor.clearance_at_m(moved) >= needed - 1e-9) & floor.is_open(moved)
                points = np.where(good[:, None], moved, points)
        return resampled(points)


def resampled(points_m: np.ndarray, step_m: float = STEP_M) -> np.ndarray:
    """The same line with points at equal distances of about `step_m`."""
    lengths = np.hypot(*np.diff(points_m, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(lengths)])
    count = max(1, round(along[-1] / step_m))
    places = np.linspace(0, along[-1], count + 1)
    return np.stack([np.interp(places, along, column) for column in points_m.T], 1)

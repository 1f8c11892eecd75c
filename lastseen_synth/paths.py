"""Shortest paths over the free cells of a floor, smoothed without leaving them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy import ndimage, sparse
from scipy.sparse import csgraph

from lastseen.errors import SynthError

COMFORT_M = 0.2  # extra distance that people keep from obstacles
STEP_M = 0.03  # between the points of a path


class Free(Protocol):
    """A grid of free floor: `open` bool [rows (y), columns (x)]; `origin_m`: its corner."""

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
        # One closed cell all around, so that the outside of the grid is not floor.
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
            # Diagonal steps must not cut corners.
            passable = self._open[rows + down, columns] & self._open[rows, columns + right] & (there >= 0)
            here, there = np.nonzero(passable)[0], there[passable]
            starts.append(here)
            ends.append(there)
            costs.append(np.hypot(down, right) * self.cell_m * (crowding[here] + crowding[there]) / 2)
        edges = (np.concatenate(costs), (np.concatenate(starts), np.concatenate(ends)))
        return sparse.coo_array(edges, shape=(len(rows), len(rows))).tocsr()

    def is_open(self, points_m: np.ndarray) -> np.ndarray:
        """bool [N] for points [N, 2]."""
        column, row = np.floor((points_m - self.origin_m) / self.cell_m).astype(int).T + 1
        inside = (row >= 0) & (row < self._open.shape[0]) & (column >= 0) & (column < self._open.shape[1])
        return inside & self._open[row * inside, column * inside]

    def clearance_at_m(self, points_m: np.ndarray) -> np.ndarray:
        """[N], smooth between cells; 0 outside."""
        cell = (points_m - self.origin_m) / self.cell_m + 0.5
        return ndimage.map_coordinates(self._clearance_m, cell.T[::-1], order=1, mode="nearest")

    def shortest_paths(self, cell: int) -> ShortestPaths:
        costs, before = csgraph.dijkstra(self._graph, directed=False, indices=cell, return_predecessors=True)
        return ShortestPaths(self, cell, costs, before)


class ShortestPaths:
    """Shortest paths from one cell to all others; `costs_m` [cells]: length, weighted near obstacles."""

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
        # Elastic band: points move towards the mean of their neighbours unless that takes them out of the
        # free cells or, within the comfort distance, closer to obstacles.
        floor = self.floor
        for span in (8, 4, 2, 1):
            for _ in range(40):
                wide = np.pad(points, ((span, span), (0, 0)), mode="edge")
                moved = points / 2 + (wide[: -2 * span] + wide[2 * span :]) / 4
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

"""Support surfaces found in furniture meshes: level, with free height above, and open to the front (-y)."""

from __future__ import annotations

import numpy as np

from lastseen_synth.assets import Support

CELL_M = 0.02
LEVEL = 0.97  # |normal z| of a face that counts as horizontal
MIN_WIDTH_M, MIN_DEPTH_M, MIN_CLEARANCE_M = 0.16, 0.12, 0.10
MAX_BLOCKED = 0.1  # share of the front opening that may be closed, by a rim or a strut


def shelf_boards(positions: np.ndarray, triangles: np.ndarray) -> list[Support]:
    """Boards of a shelf, highest first, from vertices [V, 3] and faces [F, 3] of any winding."""
    points, level = _samples(positions, triangles)
    low = positions.min(0)
    cells = np.floor((points - low) / CELL_M + 1e-6).astype(int)
    shape = tuple(int(n) for n in cells.max(0) + 1)
    lowest = np.full(shape, np.inf)  # z of the lowest point in each cell
    downwards = np.argsort(-points[:, 2])
    lowest[tuple(cells[downwards].T)] = points[downwards, 2]  # the last one written stays
    solid = np.isfinite(lowest)
    boards: list[Support] = []
    level_z, level_cells = points[level, 2], cells[level, :2]
    for z in _heights(level_z):
        floor = np.zeros(shape[:2], bool)
        floor[tuple(level_cells[np.abs(level_z - z) < CELL_M / 2].T)] = True
        first = int((z - low[2]) / CELL_M + 1e-6) + 1  # the layer above the board's own
        free = _free_layers(solid, first)
        usable = floor & (free * CELL_M >= MIN_CLEARANCE_M)
        while (found := _largest_rectangle(usable)) is not None:
            x0, y0, x1, y1 = found
            usable[x0:x1, y0:y1] = False
            layers = int(free[x0:x1, y0:y1].min())
            opening = solid[x0:x1, :y0, first : first + layers].any(1)
            if opening.size and opening.mean() > MAX_BLOCKED:
                continue
            # The cells at the rim are only partly covered.
            edges = low[:2] + np.array([[x0 + 0.5, y0 + 0.5], [x1 - 0.5, y1 - 0.5]]) * CELL_M
            (ax, ay), (bx, by) = edges.tolist()
            clearance = float(lowest[x0:x1, y0:y1, first:].min(initial=np.inf)) - z
            boards.append(Support(z_m=z, x0_m=ax, y0_m=ay, x1_m=bx, y1_m=by, clearance_m=clearance))
    return boards


def covered_share(place: Support, positions: np.ndarray, triangles: np.ndarray, *, within_m: float) -> float:
    """Share of a support with geometry less than `within_m` above it: a cushion, most often."""
    low = np.array([place.x0_m, place.y0_m, place.z_m + CELL_M])
    high = np.array([place.x1_m, place.y1_m, place.z_m + within_m])
    corners = positions[triangles]
    over = ((corners.max(1) > low) & (corners.min(1) < high)).all(1)
    if not over.any():
        return 0.0
    points, _ = _samples(positions, triangles[over])
    points = points[((points > low) & (points < high)).all(1)]
    cells = np.maximum(1, ((high - low)[:2] / (2 * CELL_M)).astype(int))
    covered = np.zeros(cells, bool)
    at = ((points - low)[:, :2] / (high - low)[:2] * cells).astype(int)
    covered[tuple(np.minimum(at, cells - 1).T)] = True  # rounding may reach the far edge
    return float(covered.mean())


def _samples(positions: np.ndarray, triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points less than a cell apart all over the faces, and whether each lies on a level face."""
    corners = positions[triangles]
    edges = np.linalg.norm(corners - np.roll(corners, 1, 1), axis=2).max(1)
    steps = np.maximum(1, np.ceil(edges / (0.8 * CELL_M))).astype(int)
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    is_level = np.abs(normals[:, 2]) > LEVEL * np.maximum(np.linalg.norm(normals, axis=1), 1e-12)
    points, level = [], []
    for n in np.unique(steps):
        i, j = np.mgrid[: n + 1, : n + 1].reshape(2, -1)
        inside = i + j <= n
        weights = np.stack([i, j, n - i - j], 1)[inside] / n
        these = steps == n
        points.append((weights @ corners[these]).reshape(-1, 3))
        level.append(np.repeat(is_level[these], len(weights)))
    return np.concatenate(points), np.concatenate(level)


def _heights(z: np.ndarray) -> list[float]:
    """Heights of level faces, highest first; of a board's two sides only the upper one."""
    enough = MIN_WIDTH_M * MIN_DEPTH_M / CELL_M**2
    counts: dict[float, int] = {}
    for height, count in zip(*np.unique(np.round(z, 3), return_counts=True)):
        counts[float(height)] = int(count)
    heights: list[float] = []
    for height in sorted(counts, reverse=True):
        if counts[height] >= enough and (not heights or heights[-1] - height > 0.05):
            heights.append(height)
    return heights


def _free_layers(solid: np.ndarray, first: int) -> np.ndarray:
    """Per column: how many empty cells follow from layer `first` upwards."""
    above = solid[:, :, first:]
    if above.shape[2] == 0:
        return np.full(solid.shape[:2], solid.shape[2])
    return np.where(above.any(2), above.argmax(2), above.shape[2])


def _largest_rectangle(usable: np.ndarray) -> tuple[int, int, int, int] | None:
    """x0, y0, x1, y1 (exclusive) of the largest all-true rectangle of at least the minimum size."""
    runs = np.zeros_like(usable, dtype=int)  # length of the run of true cells that ends at this x
    for x in range(len(usable)):
        runs[x] = np.where(usable[x], (runs[x - 1] if x else 0) + 1, 0)
    best, best_area = None, 0
    widths = runs
    for deep in range(1, usable.shape[1] + 1):
        if deep > 1:
            widths = np.minimum(widths[:, :-1], runs[:, deep - 1 :])  # of rectangles y0 .. y0 + deep
        x1, y0 = (int(n) for n in np.unravel_index(int(widths.argmax()), widths.shape))
        wide = int(widths[x1, y0])
        if wide * CELL_M < MIN_WIDTH_M:
            break
        if deep * CELL_M >= MIN_DEPTH_M and wide * deep > best_area:
            best, best_area = (x1 + 1 - wide, y0, x1 + 1, y0 + deep), wide * deep
    return best

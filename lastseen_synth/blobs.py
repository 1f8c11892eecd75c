"""Soft bodies: balls and rounded bars that flow into each other, as one smooth skin.

Hands, people and toys are lists of Bars. The skin is where their joint distance is zero, found on a grid by
surface nets: one vertex in every cell that the skin crosses, one face for every grid edge that it cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lastseen_synth.shapes import Part, smooth_normals

Point = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A rounded bar that may taper; `flat` squeezes it along x, y and z about its first end."""

    start: Point
    end: Point
    start_radius: float
    end_radius: float
    flat: Point = (1.0, 1.0, 1.0)

    def mirrored(self) -> Bar:
        (ax, ay, az), (bx, by, bz) = self.start, self.end
        return replace(self, start=(-ax, ay, az), end=(-bx, by, bz))


def ball(centre: Point, radius: float, flat: Point = (1.0, 1.0, 1.0)) -> Bar:
    return Bar(start=centre, end=centre, start_radius=radius, end_radius=radius, flat=flat)


def bar(start: Point, end: Point, start_radius: float, end_radius: float | None = None) -> Bar:
    return Bar(
        start=start,
        end=end,
        start_radius=start_radius,
        end_radius=start_radius if end_radius is None else end_radius,
    )


def bounds(bars: Sequence[Bar]) -> tuple[np.ndarray, np.ndarray]:
    """Of all bars together, without what blending adds."""
    ends = np.array([[b.start, b.end] for b in bars])
    radii = np.array([[b.start_radius, b.end_radius] for b in bars])
    reach = radii[:, :, None] * np.array([b.flat for b in bars])[:, None]
    return (ends - reach).min((0, 1)), (ends + reach).max((0, 1))


def skin(bars: Sequence[Bar], *, cell_m: float, blend_m: float, material: int = 0) -> Part:
    """One closed surface around all bars; seams narrower than `blend_m` are filled. uv: see Part.tiled."""
    low, high = bounds(bars)
    margin = blend_m + 2 * cell_m
    low, high = low - margin, high + margin
    axes = [np.arange(a, b + cell_m, cell_m) for a, b in zip(low, high)]
    distance = _distance(np.stack(np.meshgrid(*axes, indexing="ij"), -1), bars, blend_m)
    positions, triangles = surface_net(distance)
    positions = low + positions * cell_m
    return Part(
        positions=positions,
        normals=smooth_normals(positions, triangles),
        uv=np.zeros((len(positions), 2)),
        triangles=triangles,
        material=material,
    )


def _distance(points: np.ndarray, bars: Sequence[Bar], blend_m: float) -> np.ndarray:
    """Smooth minimum of the distances to all bars; negative inside."""
    total = np.zeros(points.shape[:-1])
    for b in bars:
        start, along = np.asarray(b.start), np.asarray(b.end) - np.asarray(b.start)
        from_start = (points - start) / np.asarray(b.flat)
        along = along / np.asarray(b.flat)
        share = np.clip(from_start @ along / max(float(along @ along), 1e-12), 0, 1)
        gap = np.linalg.norm(from_start - share[..., None] * along, axis=-1)
        gap -= b.start_radius + share * (b.end_radius - b.start_radius)
        # A squeezed bar's distances are too large by up to its squeeze; near the skin that is small.
        total += np.exp(-np.clip(gap * min(b.flat) / blend_m, -50, 50))
    return -blend_m * np.log(np.maximum(total, 1e-30))


def surface_net(distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where `distance` [X, Y, Z] is zero, outside being more: positions [V, 3] in cells, faces [F, 3]."""
    cells = tuple(n - 1 for n in distance.shape)
    sums, counts = np.zeros((*cells, 3)), np.zeros(cells)
    crossings = []
    for axis in range(3):
        near, far = (np.moveaxis(distance, axis, 0)[part] for part in (slice(None, -1), slice(1, None)))
        cut = (near < 0) != (far < 0)
        index = np.argwhere(np.moveaxis(cut, 0, axis))
        a = distance[tuple(index.T)]
        ahead = index.copy()
        ahead[:, axis] += 1
        b = distance[tuple(ahead.T)]
        point = index.astype(float)
        point[:, axis] += a / (a - b)
        u, v = (axis + 1) % 3, (axis + 2) % 3
        # The four cells around the edge, counter-clockwise as seen from the tip of the axis.
        around = []
        for du, dv in ((-1, -1), (0, -1), (0, 0), (-1, 0)):
            cell = index.copy()
            cell[:, u] += du
            cell[:, v] += dv
            around.append(cell)
            np.add.at(sums, tuple(cell.T), point)
            np.add.at(counts, tuple(cell.T), 1)
        crossings.append((np.stack(around, 1), a < 0))
    number = np.full(cells, -1)
    used = counts > 0
    number[used] = np.arange(used.sum())
    triangles = []
    for cells_around, leaves in crossings:
        quad = number[tuple(np.moveaxis(cells_around, -1, 0))]
        quad = np.where(leaves[:, None], quad, quad[:, ::-1])
        triangles += [quad[:, [0, 1, 2]], quad[:, [0, 2, 3]]]
    return sums[used] / counts[used][:, None], np.concatenate(triangles)

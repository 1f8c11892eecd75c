"""Smooth unions of capsules, meshed with surface nets.

Hands, people and toys are lists of capsules. The surface is the zero level of their smooth-minimum distance
on a grid: one vertex in every cell that the surface crosses, one quad for every grid edge that it cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lastseen_synth.shapes import Part, smooth_normals

Point = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Capsule:
    """A capsule with a radius at either end; `flat` scales it along x, y and z about its start."""

    start: Point
    end: Point
    start_radius: float
    end_radius: float
    flat: Point = (1.0, 1.0, 1.0)

    def mirrored(self) -> Capsule:
        (ax, ay, az), (bx, by, bz) = self.start, self.end
        return replace(self, start=(-ax, ay, az), end=(-bx, by, bz))


def ball(centre: Point, radius: float, flat: Point = (1.0, 1.0, 1.0)) -> Capsule:
    return Capsule(start=centre, end=centre, start_radius=radius, end_radius=radius, flat=flat)


def capsule(start: Point, end: Point, start_radius: float, end_radius: float | None = None) -> Capsule:
    return Capsule(
        start=start,
        end=end,
        start_radius=start_radius,
        end_radius=start_radius if end_radius is None else end_radius,
    )


def bounds(capsules: Sequence[Capsule]) -> tuple[np.ndarray, np.ndarray]:
    """Bounding box of all capsules, without what blending adds."""
    ends = np.array([[b.start, b.end] for b in capsules])
    radii = np.array([[b.start_radius, b.end_radius] for b in capsules])
    reach = radii[:, :, None] * np.array([b.flat for b in capsules])[:, None]
    return (ends - reach).min((0, 1)), (ends + reach).max((0, 1))


def blended_surface(capsules: Sequence[Capsule], *, cell_m: float, blend_m: float, material: int = 0) -> Part:
    """One closed surface around all capsules, blended over `blend_m`. For uv see Part.tiled."""
    low, high = bounds(capsules)
    margin = blend_m + 2 * cell_m
    low, high = low - margin, high + margin
    axes = [np.arange(a, b + cell_m, cell_m) for a, b in zip(low, high)]
    distance = _distance(np.stack(np.meshgrid(*axes, indexing="ij"), -1), capsules, blend_m)
    positions, triangles = surface_net(distance)
    positions = low + positions * cell_m
    return Part(
        positions=positions,
        normals=smooth_normals(positions, triangles),
        uv=np.zeros((len(positions), 2)),
        triangles=triangles,
        material=material,
    )


def _distance(points: np.ndarray, capsules: Sequence[Capsule], blend_m: float) -> np.ndarray:
    """Smooth minimum of the distances to all capsules; negative inside."""
    total = np.zeros(points.shape[:-1])
    for b in capsules:
        start, along = np.asarray(b.start), np.asarray(b.end) - np.asarray(b.start)
        from_start = (points - start) / np.asarray(b.flat)
        along = along / np.asarray(b.flat)
        share = np.clip(from_start @ along / max(float(along @ along), 1e-12), 0, 1)
        gap = np.linalg.norm(from_start - share[..., None] * along, axis=-1)
        gap -= b.start_radius + share * (b.end_radius - b.start_radius)
        # Distances to a scaled capsule are inexact by up to its scale; near the surface the error is small.
        total += np.exp(-np.clip(gap * min(b.flat) / blend_m, -50, 50))
    return -blend_m * np.log(np.maximum(total, 1e-30))


def surface_net(distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zero level of `distance` [X, Y, Z], positive outside: positions [V, 3] in cells, triangles [F, 3]."""
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

"""Primitive shapes: boxes with rounded edges, surfaces of revolution and swept tubes.

Faces are counter-clockwise seen from outside, normals are smooth and of unit length, and textures are
upright: u runs to the right as seen from outside, v upwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from lastseen_synth.meshes import Mesh

Vector = Sequence[float] | np.ndarray
# Outward direction, then where u and v run on that face.
FACES = (
    ((0, -1, 0), (1, 0, 0), (0, 0, 1)),  # front
    ((0, 1, 0), (-1, 0, 0), (0, 0, 1)),  # back
    ((-1, 0, 0), (0, -1, 0), (0, 0, 1)),  # left
    ((1, 0, 0), (0, 1, 0), (0, 0, 1)),  # right
    ((0, 0, 1), (1, 0, 0), (0, 1, 0)),  # top
    ((0, 0, -1), (1, 0, 0), (0, -1, 0)),  # bottom
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A piece of a mesh in one material: positions and normals [V, 3], uv [V, 2], triangles [F, 3]."""

    positions: np.ndarray
    normals: np.ndarray
    uv: np.ndarray
    triangles: np.ndarray
    material: int = 0

    def moved(self, shift: Vector = (0, 0, 0), *, turn: np.ndarray | None = None) -> Part:
        """Turned about the origin, then shifted."""
        turn = np.eye(3) if turn is None else turn
        return replace(
            self, positions=self.positions @ turn.T + np.asarray(shift), normals=self.normals @ turn.T
        )

    def stretched(self, scale: Vector) -> Part:
        factors = np.asarray(scale, float)
        normals = self.normals / factors
        return replace(
            self,
            positions=self.positions * factors,
            normals=normals / np.linalg.norm(normals, axis=1, keepdims=True),
        )

    def mirrored(self) -> Part:
        """x -> -x, and still facing outwards."""
        flip = np.array([-1.0, 1.0, 1.0])
        return replace(
            self,
            positions=self.positions * flip,
            normals=self.normals * flip,
            triangles=self.triangles[:, ::-1],
        )

    def tiled(self, metres: float, *, swap_uv: bool = False) -> Part:
        """uv in tiles of `metres`, projected along the dominant axis of each face's normal."""
        corners = self.positions[self.triangles]
        across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        axis = np.abs(across).argmax(1)
        keys = self.triangles * 3 + axis[:, None]
        used, triangles = np.unique(keys, return_inverse=True)
        vertex, axis = used // 3, used % 3
        positions = self.positions[vertex]
        u_axis, v_axis = np.array([1, 0, 0])[axis], np.array([2, 2, 1])[axis]
        rows = np.arange(len(positions))
        uv = np.stack([positions[rows, u_axis], positions[rows, v_axis]], 1) / metres
        return replace(
            self,
            positions=positions,
            normals=self.normals[vertex],
            uv=uv[:, ::-1] if swap_uv else uv,
            triangles=triangles.reshape(-1, 3),
        )


def merged(parts: Iterable[Part]) -> Mesh:
    parts = list(parts)
    starts = np.cumsum([0] + [len(p.positions) for p in parts])
    stacked = {k: np.concatenate([getattr(p, k) for p in parts]) for k in ("positions", "normals", "uv")}
    triangles = np.concatenate([p.triangles + start for p, start in zip(parts, starts)])
    material = np.concatenate([np.full(len(p.triangles), p.material) for p in parts])
    return Mesh(
        positions_m=torch.from_numpy(stacked["positions"].astype(np.float32)),
        normals=torch.from_numpy(stacked["normals"].astype(np.float32)),
        uv=torch.from_numpy(stacked["uv"].astype(np.float32)),
        triangles=torch.from_numpy(triangles.astype(np.int64)),
        material=torch.from_numpy(material.astype(np.int64)),
    )


def smooth_normals(positions: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Area-weighted mean of the face normals per vertex, of unit length."""
    a, b, c = (positions[triangles[:, k]] for k in range(3))
    across = np.cross(b - a, c - a)
    sums = np.stack(
        [
            np.bincount(triangles.ravel(), np.repeat(across[:, k], 3), minlength=len(positions))
            for k in range(3)
        ],
        1,
    )
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.where(length > 1e-15, sums / np.maximum(length, 1e-15), [0.0, 0.0, 1.0])


def rotation(axis: str, degrees: float) -> np.ndarray:
    """Counter-clockwise as seen from the tip of the axis."""
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    matrix = np.eye(3)
    matrix[first, first] = matrix[second, second] = cos
    matrix[first, second], matrix[second, first] = -sin, sin
    return matrix


def _grid(columns: int, rows: int) -> np.ndarray:
    """Triangles of a grid of vertices numbered row after row; counter-clockwise if rows go up."""
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    right, above = corner + 1, corner + columns
    return np.concatenate([np.stack([corner, right, above + 1], 1), np.stack([corner, above + 1, above], 1)])


def box(
    low: Vector, high: Vector, *, edge_m: float = 0.0, steps: int = 1, materials: int | Sequence[int] = 0
) -> list[Part]:
    """Six faces (front, back, left, right, top, bottom), each with the whole picture of its material.

    `edge_m` rounds the edges, in `steps` facets to either side.
    """
    low, high = np.asarray(low, float), np.asarray(high, float)
    edge = min(edge_m, float((high - low).min()) * 0.499)
    # Slopes of the rounded edges at the lower and at the upper end of a face.
    arc = np.tan(np.linspace(0, np.pi / 4, steps + 1)) if edge > 0 else np.zeros(1)
    slopes = np.concatenate([-arc[::-1], arc])
    is_upper = np.arange(len(slopes)) >= len(arc)
    numbers = [materials] * 6 if isinstance(materials, int) else materials
    parts = []
    for (outward, u_way, v_way), material in zip(np.array(FACES, float), numbers):
        su, sv = np.tile(slopes, len(slopes)), np.repeat(slopes, len(slopes))
        right, above = np.tile(is_upper, len(slopes)), np.repeat(is_upper, len(slopes))
        normals = outward + su[:, None] * u_way + sv[:, None] * v_way
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        side = outward + np.where(right, 1, -1)[:, None] * u_way + np.where(above, 1, -1)[:, None] * v_way
        corner = np.where(side > 0, high - edge, low + edge)
        positions = corner + edge * normals
        uv = [
            (positions @ way - min(low @ way, high @ way)) / np.abs((high - low) @ way)
            for way in (u_way, v_way)
        ]
        triangles = _grid(len(slopes), len(slopes))
        parts.append(
            Part(
                positions=positions,
                normals=normals,
                uv=np.stack(uv, 1),
                triangles=triangles,
                material=material,
            )
        )
    return parts


def revolved(
    profile: Sequence[tuple[float, float]], *, segments: int = 28, crease_deg: float = 40.0, material: int = 0
) -> Part:
    """A surface of revolution about z from (radius, z) points, bottom to top along the outside.

    u = 0.5 is the front (-y); v runs from 0 to 1 along the profile. Corners above `crease_deg` stay sharp.
    """
    points = np.array(profile, float)
    along = np.diff(points, axis=0)
    length = np.linalg.norm(along, axis=1)
    out = np.stack([along[:, 1], -along[:, 0]], 1) / length[:, None]  # (radial, z)
    travelled = np.concatenate([[0], np.cumsum(length)]) / length.sum()
    rows: list[tuple[float, ...]] = []  # radius, z, normal (radial, z), v
    bands: list[int] = []  # rows at which a band of faces starts
    for k in range(len(along)):
        smooth_before = k > 0 and out[k - 1] @ out[k] > np.cos(np.deg2rad(crease_deg))
        smooth_after = k + 1 < len(along) and out[k + 1] @ out[k] > np.cos(np.deg2rad(crease_deg))
        before = out[k - 1] + out[k] if smooth_before else out[k]
        after = out[k] + out[k + 1] if smooth_after else out[k]
        bands.append(len(rows))
        for point, normal, v in ((points[k], before, travelled[k]), (points[k + 1], after, travelled[k + 1])):
            rows.append((*point, *(normal / np.linalg.norm(normal)), v))
    table = np.array(rows)
    u = np.linspace(0, 1, segments + 1)
    angle = 2 * np.pi * (u - 0.5)
    around = np.stack([np.sin(angle), -np.cos(angle)], 1)
    shape = (len(table), segments + 1)
    height, normal_z = (np.broadcast_to(table[:, k, None], shape) for k in (1, 3))
    triangles = []
    for start in bands:
        band = _grid(segments + 1, 2) + start * (segments + 1)
        # At a pole, half the triangles are degenerate.
        bottom, top = table[start, 0] < 1e-9, table[start + 1, 0] < 1e-9
        lower, upper = np.split(band, 2)
        triangles += [lower] * (not bottom) + [upper] * (not top)
    return Part(
        positions=np.dstack([table[:, 0, None, None] * around, height]).reshape(-1, 3),
        normals=np.dstack([table[:, 2, None, None] * around, normal_z]).reshape(-1, 3),
        uv=np.dstack(np.broadcast_arrays(u[None, :], table[:, 4, None])).reshape(-1, 2),
        triangles=np.concatenate(triangles),
        material=material,
    )


def disc(radius: float, z: float, *, up: bool = True, segments: int = 28, material: int = 0) -> Part:
    """A flat lid with the picture drawn across it."""
    angle = 2 * np.pi * np.arange(segments) / segments
    plane = np.concatenate([np.zeros((1, 2)), np.stack([np.cos(angle), np.sin(angle)], 1)])
    way = 1.0 if up else -1.0
    k = np.arange(segments)
    return Part(
        positions=np.column_stack([plane * [radius, way * radius], np.full(len(plane), z)]),
        normals=np.tile([0.0, 0.0, way], (len(plane), 1)),
        uv=0.5 + plane / 2,
        triangles=np.stack([np.zeros_like(k), 1 + k, 1 + (k + 1) % segments], 1),
        material=material,
    )


def tube(
    path: Sequence[Vector] | np.ndarray,
    radius: float | Sequence[float],
    *,
    sides: int = 10,
    flat: float = 1.0,
    capped: bool = True,
    material: int = 0,
) -> Part:
    """A round bar along a path; `flat` below 1 squeezes it in its first sideways direction."""
    points = np.asarray(path, float)
    radii = np.broadcast_to(np.asarray(radius, float), len(points))
    if capped:  # a short cone to a point at either end, smooth enough when small
        ends = [points[:1], points, points[-1:]]
        points, radii = np.concatenate(ends), np.concatenate([[1e-6], radii, [1e-6]])
    step = np.gradient(points, axis=0)
    step /= np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-12)
    if capped:
        step[0], step[-1] = step[1], step[-2]
    side = np.zeros_like(points)
    helper = np.eye(3)[np.abs(step[0]).argmin()]
    for k, ahead in enumerate(step):  # parallel transport: no twist
        helper = helper - (helper @ ahead) * ahead
        helper /= np.linalg.norm(helper)
        side[k] = helper
    other = np.cross(step, side)
    u = np.linspace(0, 1, sides + 1)
    cos, sin = np.cos(2 * np.pi * u), np.sin(2 * np.pi * u)
    ring = flat * cos[None, :, None] * side[:, None] + sin[None, :, None] * other[:, None]
    positions = (points[:, None] + radii[:, None, None] * ring).reshape(-1, 3)
    travelled = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    v = travelled / max(travelled[-1], 1e-9)
    columns = sides + 1
    triangles = _grid(columns, len(points))
    # The two columns at the seam coincide: they share normals.
    joined = np.arange(len(positions)).reshape(-1, columns)
    joined[:, -1] = joined[:, 0]
    normals = smooth_normals(positions, joined.ravel()[triangles])[joined.ravel()]
    return Part(
        positions=positions,
        normals=normals,
        uv=np.dstack(np.broadcast_arrays(u[None, :], v[:, None])).reshape(-1, 2),
        triangles=triangles,
        material=material,
    )

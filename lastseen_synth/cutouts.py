"""Objects cut out of photographs, as slightly curved textured cards.

If the border of a photograph has a uniform colour, the object is segmented by its difference from it;
otherwise a random outline around the centre of the picture is cut out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import ndimage

from lastseen_synth.meshes import Mesh

OUTLINE_CELLS, MATTE_CELLS = 16, 44  # cells of the contouring grid along the longer side
BORDER_DISTANCE = 30.0  # of colours 0..255: pixels nearer to the border's colour are background
BORDER_SHARE = 0.82  # of the border's pixels that must have its colour
EDGE_PX = 2.0  # by which the matte is eroded
MATTE_SHARES = (0.06, 0.85)  # of the picture: a smaller or larger matte is taken for a failed one
POLYGON_SHARE = 0.3
PLAIN_TRIES = 16  # pixels that a plain region is grown from
PLAIN_SHARES = (0.02, 0.4)  # of the picture that a plain region covers
PLAIN_BORDER = 0.06  # largest share of the picture's border that it touches
PLAIN_FILLED = 0.45  # least share of its bounding box


@dataclass(frozen=True, kw_only=True)
class Outline:
    """A random smooth outline; lengths in the unit square of the picture.

    | centre, radii | (x, y)                                                                            |
    | power         | of a superellipse: 2 an ellipse, large a rounded box                               |
    | normals       | outward angles of a polygon's sides instead of it; empty: a superellipse           |
    | wobble        | amplitude, number and phase of the waves on its edge                              |
    """

    centre: tuple[float, float]
    radii: tuple[float, float]
    power: float
    turn_rad: float
    normals: tuple[float, ...]
    wobble: tuple[float, int, float]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Outline:
        x, y = 0.5 + rng.uniform(-0.07, 0.07, 2)
        radius_x, radius_y = rng.uniform(0.27, 0.42, 2)
        sides = int(rng.integers(5, 10)) if rng.random() < POLYGON_SHARE else 0
        angles = (np.arange(sides) + rng.uniform(-0.3, 0.3, sides)) * 2 * np.pi / max(sides, 1)
        return cls(
            centre=(float(x), float(y)),
            radii=(float(radius_x), float(radius_y)),
            power=float(np.exp(rng.uniform(np.log(1.6), np.log(9)))),
            turn_rad=float(rng.normal(0, 0.25)),
            normals=tuple(angles.tolist()),
            wobble=(float(rng.uniform(0, 0.06)), int(rng.integers(2, 6)), float(rng.uniform(0, 2 * np.pi))),
        )

    def varied(self, rng: np.random.Generator) -> Outline:
        """Nearly the same region with another outline: a model must not recognise the outline."""
        other = Outline.draw(rng)
        x, y = np.asarray(self.centre) + rng.uniform(-0.03, 0.03, 2)
        radius_x, radius_y = np.asarray(self.radii) * rng.uniform(0.88, 1.1, 2)
        return replace(other, centre=(float(x), float(y)), radii=(float(radius_x), float(radius_y)))

    def inside(self, rows: int, columns: int) -> np.ndarray:
        """[rows + 1, columns + 1]: positive inside, at the corners of a grid over the picture."""
        y, x = np.mgrid[: rows + 1, : columns + 1] / np.array([rows, columns]).reshape(2, 1, 1)
        dx, dy = x - self.centre[0], y - self.centre[1]
        cosine, sine = np.cos(self.turn_rad), np.sin(self.turn_rad)
        u, v = (dx * cosine + dy * sine) / self.radii[0], (dy * cosine - dx * sine) / self.radii[1]
        if self.normals:
            reach = np.max([u * np.cos(a) + v * np.sin(a) for a in self.normals], 0)
        else:
            reach = (np.abs(u) ** self.power + np.abs(v) ** self.power) ** (1 / self.power)
        height, waves, phase = self.wobble
        inside = 1 - reach + height * np.sin(waves * np.arctan2(v, u) + phase)
        # Clipped by the edge of the picture.
        return np.minimum(inside, np.minimum(np.minimum(x, 1 - x), np.minimum(y, 1 - y)) * 8 - 0.04)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cutout:
    """A region of a photograph, where `inside` [rows + 1, columns + 1] is positive (a matte: no outline)."""

    inside: np.ndarray
    outline: Outline | None
    picture: np.ndarray

    @classmethod
    def draw(cls, picture: np.ndarray, rng: np.random.Generator) -> Cutout:
        matte = matte_inside(picture)
        if matte is not None:
            return cls(inside=matte, outline=None, picture=picture)
        outline = Outline.draw(rng)
        return cls(inside=outline.inside(*_cells(picture, OUTLINE_CELLS)), outline=outline, picture=picture)

    @classmethod
    def draw_plain(cls, picture: np.ndarray, seed: int) -> Cutout | None:
        """The matte or, of several regions grown from random pixels, the one with the least texture; None if
        all are specks or, like walls and the sky, reach far along the border of the picture.

        One seed gives one region, and it keeps its outline: there is little else to recognise it by.
        """
        matte = matte_inside(picture)
        if matte is not None:
            return cls(inside=matte, outline=None, picture=picture)
        rng = np.random.default_rng(seed)
        height, width = picture.shape[:2]
        smooth = ndimage.gaussian_filter(picture.astype(np.float32), (1.5, 1.5, 0))
        frame = np.ones((height, width), bool)
        frame[2:-2, 2:-2] = False
        found = []
        for y, x in (rng.uniform(0.15, 0.85, (PLAIN_TRIES, 2)) * (height, width)).astype(int).tolist():
            near = np.linalg.norm(smooth - smooth[y, x], axis=2) < BORDER_DISTANCE
            labels, _ = ndimage.label(ndimage.binary_opening(near, iterations=3))
            if not labels[y, x]:
                continue
            region = ndimage.binary_fill_holes(labels == labels[y, x])
            rows, columns = (np.ptp(np.flatnonzero(region.any(axis))) + 1 for axis in (1, 0))
            inside_share, border_share = region.mean(), (region & frame).sum() / frame.sum()
            if (
                PLAIN_SHARES[0] < inside_share < PLAIN_SHARES[1]
                and border_share < PLAIN_BORDER
                and region.sum() > PLAIN_FILLED * rows * columns
            ):
                found.append((float(picture[region].mean(1).std()), y, x, region))
        if not found:
            return None
        inside = _signed_distance(min(found, key=lambda one: one[:3])[3])
        return cls(inside=inside, outline=None, picture=picture) if (inside > 0).any() else None

    def varied(self, rng: np.random.Generator) -> Cutout:
        if self.outline is None:
            return self
        outline = self.outline.varied(rng)
        return replace(self, inside=outline.inside(*_cells(self.picture, OUTLINE_CELLS)), outline=outline)

    @property
    def contrast(self) -> float:
        """Standard deviation of the brightness (0..255) inside; a uniform cut-out cannot be recognised."""
        height, width = self.picture.shape[:2]
        rows, columns = np.nonzero(self.inside > 0)
        y = rows * (height - 1) // (self.inside.shape[0] - 1)
        x = columns * (width - 1) // (self.inside.shape[1] - 1)
        return float(self.picture[y, x].mean(1).std())

    def card(self, longer_side_m: float, bend: float) -> Mesh:
        """Upright, facing -y, its lowest point at z = 0 in the middle of x; the sides bend back by `bend` of
        its width, as a bottle's do."""
        unit, triangles = trace(self.inside)
        if not len(triangles):
            raise ValueError("an empty outline: nothing was cut out")
        height, width = self.picture.shape[:2]
        x, z = unit[:, 0] * width, (1 - unit[:, 1]) * height
        scale = longer_side_m / max(np.ptp(x), np.ptp(z))
        x, z = (x - (x.max() + x.min()) / 2) * scale, (z - z.min()) * scale
        half = max(x.max(), 1e-9)
        y = bend * half * ((x / half) ** 2 - 0.5)
        slope = 2 * bend * x / half
        normals = np.stack([slope, -np.ones_like(x), np.zeros_like(x)], 1)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        return Mesh(
            positions_m=torch.from_numpy(np.stack([x, y, z], 1)),
            normals=torch.from_numpy(normals),
            uv=torch.from_numpy(np.stack([unit[:, 0], 1 - unit[:, 1]], 1)),
            triangles=torch.from_numpy(triangles),
        )


def matte_inside(picture: np.ndarray) -> np.ndarray | None:
    """Segmentation against a uniform border, as `Cutout.inside`; None if the border is not uniform."""
    height, width = picture.shape[:2]
    ring = max(2, round(0.02 * max(height, width)))
    border = np.ones((height, width), bool)
    border[ring:-ring, ring:-ring] = False
    colours = picture.astype(np.float32)
    colour = np.median(colours[border], 0)
    distance = np.linalg.norm(colours - colour, axis=2)
    if (distance[border] < BORDER_DISTANCE).mean() < BORDER_SHARE:
        return None
    different = ndimage.binary_opening(ndimage.gaussian_filter(distance, 0.6) > BORDER_DISTANCE)
    labels, found = ndimage.label(ndimage.binary_closing(different, iterations=2))
    if not found:
        return None
    largest = labels == 1 + int(np.argmax(np.bincount(labels.ravel())[1:]))
    whole = ndimage.binary_fill_holes(largest)
    if not MATTE_SHARES[0] < whole.mean() < MATTE_SHARES[1]:
        return None
    inside = _signed_distance(whole)
    return inside if (inside > 0).any() else None


def _signed_distance(whole: np.ndarray) -> np.ndarray:
    """bool [height, width] -> distance from the edge in pixels, as `Cutout.inside`."""
    height, width = whole.shape
    rows, columns = _cells(whole, MATTE_CELLS)
    # Signed distance is nearly linear between grid corners, so that its zero contour follows the edge; eroded
    # a little, because pixels at the edge mix with the border.
    signed = ndimage.distance_transform_edt(whole) - ndimage.distance_transform_edt(~whole) - EDGE_PX
    y, x = np.meshgrid(
        np.linspace(-0.5, height - 0.5, rows + 1), np.linspace(-0.5, width - 0.5, columns + 1), indexing="ij"
    )
    return ndimage.map_coordinates(signed, [y, x], order=1, mode="nearest")


def _cells(picture: np.ndarray, longer: int) -> tuple[int, int]:
    height, width = picture.shape[:2]
    cell = max(height, width) / longer
    return max(4, round(height / cell)), max(4, round(width / cell))


def trace(inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Marching triangles: the region where `inside` [R + 1, C + 1] > 0, cut at its zero contour: vertices
    float64 [V, 2] (x right, y down, in the unit square) and triangles int64 [F, 3], counter-clockwise with y
    up."""
    rows, columns = inside.shape[0] - 1, inside.shape[1] - 1
    y, x = np.mgrid[: rows + 1, : columns + 1]
    points = np.stack([x / columns, y / rows], -1).reshape(-1, 2)
    value = inside.reshape(-1).astype(np.float64)
    corner = (np.arange(rows)[:, None] * (columns + 1) + np.arange(columns)).reshape(-1)
    right, below, across = corner + 1, corner + columns + 1, corner + columns + 2
    cells = np.concatenate([np.stack([corner, below, right], 1), np.stack([right, below, across], 1)])
    within = value[cells] > 0
    count = within.sum(1)

    def turned(chosen: np.ndarray, first_is_inside: bool) -> np.ndarray:
        """These triangles, rotated to begin with the corner that is alone on its side of the contour."""
        start = np.argmax(within[chosen] == first_is_inside, 1)
        return np.take_along_axis(cells[chosen], (start[:, None] + np.arange(3)) % 3, 1)

    whole, one, two = cells[count == 3], turned(count == 1, True), turned(count == 2, False)
    crossings = np.concatenate([one[:, [0, 1]], one[:, [0, 2]], two[:, [0, 1]], two[:, [0, 2]]])
    # Neighbours share the vertex at a crossing, which avoids cracks.
    pairs, number = np.unique(np.sort(crossings, 1), axis=0, return_inverse=True)
    a, b = value[pairs].T
    share = (a / (a - b))[:, None]
    points = np.concatenate([points, points[pairs[:, 0]] * (1 - share) + points[pairs[:, 1]] * share])
    new = number.reshape(-1) + len(value)
    ab, ac, pb, pc = np.split(new, np.cumsum([len(one), len(one), len(two)]))
    triangles = np.concatenate(
        [
            whole,
            np.stack([one[:, 0], ab, ac], 1),
            np.stack([pb, two[:, 1], two[:, 2]], 1),
            np.stack([pb, two[:, 2], pc], 1),
        ]
    )
    used, compact = np.unique(triangles, return_inverse=True)
    return points[used], compact.reshape(-1, 3).astype(np.int64)

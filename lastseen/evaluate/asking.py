"""Three ways of asking the same question, and what makes one hard: a plain or a small thing.

| way    | the query's picture                                       |
|--------|-----------------------------------------------------------|
| photo  | the whole picture, with the thing's box in it             |
| margin | the box and MARGIN of its longer side around it           |
| crop   | the tight crop: the whole picture is the thing            |
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lastseen.evaluate.metrics import SIZE_CLASSES
from lastseen.query import Query, View, cut_around
from lastseen.track import ResponseTrack

WAYS = ("photo", "margin", "crop")
MARGIN = 0.4  # of the box's longer side, on every side
TEXTURE_SIDE_PX = 64  # longer side of the crop whose texture is measured
# A third of the questions of real_pan and photo_pan (docs/evaluation.md) have less texture than this.
PLAIN_TEXTURE = 11.7
LUMINANCE = (0.299, 0.587, 0.114)  # of sRGB values (Rec. 601)


def asked_as(query: Query, way: str) -> Query:
    """The same question with its pictures cut as `way` says."""
    if way not in WAYS:
        raise ValueError(f"expected a way of asking out of {', '.join(WAYS)}, got {way!r}")
    if way == "photo":
        return query
    margin = MARGIN if way == "margin" else 0.0
    views = (View(*cut_around(view.picture, view.box, margin)) for view in query.views)
    return replace(query, views=tuple(views))


def texture(view: View) -> float:
    """Mean gradient magnitude of luminance (0..255 per pixel) inside the box.

    The crop is resized to TEXTURE_SIDE_PX first, so that the picture's resolution hardly matters.
    """
    luminance = _resized(view.crop @ np.array(LUMINANCE), TEXTURE_SIDE_PX)
    if min(luminance.shape) < 2:
        return 0.0
    down, right = np.gradient(luminance)
    return float(np.hypot(down, right).mean())


def is_plain(view: View) -> bool:
    return texture(view) < PLAIN_TEXTURE


def is_small(truth: ResponseTrack) -> bool:
    """By the largest box of the true track, as the metrics count it."""
    low, high = SIZE_CLASSES["small"]
    return low <= max(box.area for box in truth.boxes) < high


def _resized(plane: np.ndarray, longer_px: int) -> np.ndarray:
    """[h, w] averaged over areas so that its longer side is `longer_px`."""
    scale = longer_px / max(plane.shape)
    for axis, side in enumerate(plane.shape):
        plane = _averaged(plane, max(1, round(side * scale)), axis)
    return plane


def _averaged(plane: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Means over `size` equal intervals of the axis, pixels weighted by how much of them is inside."""
    ends = np.linspace(0, plane.shape[axis], size + 1)
    total = np.concatenate([np.zeros_like(plane.take([0], axis)), plane.cumsum(axis)], axis)
    below = np.floor(ends).astype(int)
    above = np.minimum(below + 1, plane.shape[axis])
    part = np.expand_dims(ends - below, 1 - axis)
    integral = total.take(below, axis) * (1 - part) + total.take(above, axis) * part
    return np.diff(integral, axis=axis) * size / plane.shape[axis]

"""Line-of-sight queries against triangle meshes: bounding boxes first, then Möller-Trumbore."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class LineOfSight:
    """Occlusion tests between points of a room."""

    def __init__(self) -> None:
        self._low = np.zeros((0, 3))
        self._high = np.zeros((0, 3))
        self._corners: list[np.ndarray] = []

    def add(self, positions_m: np.ndarray, triangles: np.ndarray, transform: np.ndarray) -> None:
        """Adds an occluder; occluders are numbered in order."""
        world = positions_m @ transform[:3, :3].T + transform[:3, 3]
        self._low = np.concatenate([self._low, world.min(0, keepdims=True)])
        self._high = np.concatenate([self._high, world.max(0, keepdims=True)])
        self._corners.append(world[triangles].astype(np.float32))

    def blocked(self, eyes_m: np.ndarray, targets_m: np.ndarray, ignore: Sequence[int] = ()) -> np.ndarray:
        """bool [K] for lines between eyes [K, 3] and targets [K, 3]."""
        ray = targets_m - eyes_m
        with np.errstate(divide="ignore", invalid="ignore"):
            a = (self._low - eyes_m[:, None]) / ray[:, None]
            b = (self._high - eyes_m[:, None]) / ray[:, None]
        enters = np.fmax(np.fmin(a, b).max(2), 0.0)
        leaves = np.fmin(np.fmax(a, b).min(2), 1.0)
        near = enters <= leaves
        near[:, list(ignore)] = False
        found = np.zeros(len(eyes_m), bool)
        for solid in np.flatnonzero(near.any(0)):
            lines = np.flatnonzero(near[:, solid] & ~found)
            if len(lines):
                found[lines] = _hits(self._corners[solid], eyes_m[lines], ray[lines])
        return found


def _hits(corners: np.ndarray, eyes: np.ndarray, rays: np.ndarray) -> np.ndarray:
    """Möller-Trumbore test of all lines with all triangles, as matrix products: bool [K]."""
    p0, side1, side2 = corners[:, 0], corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    eyes, rays = eyes.T.astype(np.float32), rays.T.astype(np.float32)
    normal = np.cross(side1, side2)
    moment = np.cross(eyes, rays, axis=0)
    det = -(normal @ rays)
    u = side2 @ moment - np.cross(side2, p0) @ rays
    v = np.cross(side1, p0) @ rays - side1 @ moment
    t = normal @ eyes - (normal * p0).sum(1, keepdims=True)
    sign = np.sign(det)
    u, v, t, det = u * sign, v * sign, t * sign, np.abs(det)
    hit = (u >= 0) & (v >= 0) & (u + v <= det) & (t > 0.001 * det) & (t < 0.999 * det) & (det > 0)
    return hit.any(0)

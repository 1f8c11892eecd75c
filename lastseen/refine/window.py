"""Square windows of the original frames that follow the thing over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """Squares of `side` pixels in frames [start, start + n), upper left corners at `corners` [n, 2]."""

    start: int
    corners: np.ndarray
    side: int

    @property
    def stop(self) -> int:
        return self.start + len(self.corners)

    @property
    def key(self) -> tuple[int, int, bytes]:
        """Hashable key, equal for equal windows."""
        return self.start, self.side, self.corners.tobytes()

    def crops(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Crops, black outside the picture. They are copies, so that whole frames can be freed."""
        for frame, (x, y) in zip(frames, self.corners):
            yield crop(frame, int(x), int(y), self.side)

    def shortened(self, frames: int) -> Window:
        return replace(self, corners=self.corners[:frames])

    def to_px(self, boxes_unit: np.ndarray) -> np.ndarray:
        """Boxes in the unit square of the window -> pixels of the frame"""
        return boxes_unit * self.side + np.tile(self.corners, 2)


def window_corner(middle: float, side: int, size: int) -> int:
    """Corner coordinate: the window stays inside the picture if it fits, else it is centred on it."""
    return min(max(round(middle - side / 2), 0), size - side) if side <= size else (size - side) // 2


def crop(frame: np.ndarray, x: int, y: int, side: int) -> np.ndarray:
    """A square of a picture, black outside it; a copy."""
    height, width = frame.shape[:2]
    inside = frame[max(0, y) : min(height, y + side), max(0, x) : min(width, x + side)]
    if inside.shape[:2] == (side, side):
        return inside.copy()
    window = np.zeros((side, side, 3), frame.dtype)
    top, left = max(0, -y), max(0, -x)
    window[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    return window

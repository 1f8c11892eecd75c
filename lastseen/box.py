"""Box, and Letterbox, the only conversion between coordinate systems.

Outside the model a box is in pixels of the original frame; inside it is in the unit square of the
padded input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lastseen.errors import QueryError


@dataclass(frozen=True, slots=True)
class Box:
    """x1 y1 x2 y2 in pixels of the original frame; x2 and y2 are edges, so width = x2 - x1."""

    x1: float
    y1: float
    x2: float
    y2: float

    @classmethod
    def from_xywh(cls, x: float, y: float, width: float, height: float) -> Box:
        return cls(x, y, x + width, y + height)

    @classmethod
    def of(cls, sides: BoxLike) -> Box:
        """A Box as it is, or one of four numbers x1, y1, x2, y2: (120, 80, 240, 200)."""
        if isinstance(sides, Box):
            return sides
        try:
            x1, y1, x2, y2 = (float(side) for side in sides)
        except (TypeError, ValueError):
            raise QueryError(f"a box is four numbers x1, y1, x2, y2 in pixels, got {sides!r:.80}") from None
        return cls(x1, y1, x2, y2)

    @property
    def width(self) -> float:
        return self.x2 - self.x1

    @property
    def height(self) -> float:
        return self.y2 - self.y1

    @property
    def area(self) -> float:
        return self.width * self.height

    @property
    def xyxy(self) -> tuple[float, float, float, float]:
        return self.x1, self.y1, self.x2, self.y2

    def scaled(self, x_factor: float, y_factor: float) -> Box:
        return Box(self.x1 * x_factor, self.y1 * y_factor, self.x2 * x_factor, self.y2 * y_factor)

    def shifted(self, dx: float, dy: float) -> Box:
        return Box(self.x1 + dx, self.y1 + dy, self.x2 + dx, self.y2 + dy)

    def clipped(self, width: float, height: float) -> Box:
        """The part of the box inside a width x height picture (area 0 if there is none)."""
        return Box(
            min(max(self.x1, 0.0), width),
            min(max(self.y1, 0.0), height),
            min(max(self.x2, 0.0), width),
            min(max(self.y2, 0.0), height),
        )

    def expanded(self, factor: float) -> Box:
        """The same centre with both sides multiplied by `factor`."""
        dx, dy = self.width * (factor - 1) / 2, self.height * (factor - 1) / 2
        return Box(self.x1 - dx, self.y1 - dy, self.x2 + dx, self.y2 + dy)

    def squared(self, width: float, height: float) -> Box:
        """The paper's query crop: the longer side around the centre, cut off at the border.

        The border is the last pixel's index (width - 1), not the picture's edge, as in the training of the
        published models.
        """
        half = max(self.width, self.height) / 2
        x, y = (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2
        return Box(
            max(x - half, 0.0),
            max(y - half, 0.0),
            min(x + half, width - 1.0),
            min(y + half, height - 1.0),
        )

    def iou(self, other: Box) -> float:
        overlap = max(0.0, min(self.x2, other.x2) - max(self.x1, other.x1))
        overlap *= max(0.0, min(self.y2, other.y2) - max(self.y1, other.y1))
        union = self.area + other.area - overlap
        return overlap / union if union > 0 else 0.0


BoxLike = Box | Sequence[float] | np.ndarray  # what a user may give as a box


@dataclass(frozen=True)
class Letterbox:
    """A frame scaled into a canvas with its aspect kept and the rest padded, centred.

    The content has a whole number of pixels, so boxes map exactly to the resized picture.
    """

    frame_width: int
    frame_height: int
    canvas_width: int
    canvas_height: int

    @classmethod
    def square(cls, frame_width: int, frame_height: int, size: int) -> Letterbox:
        """The paper's input: the longer edge scaled to `size`, the shorter one padded."""
        return cls(frame_width, frame_height, size, size)

    @classmethod
    def snug(cls, frame_width: int, frame_height: int, longer_edge: int, multiple: int) -> Letterbox:
        """The smallest canvas in whole patches that holds the frame: least padding."""
        scale = longer_edge / max(frame_width, frame_height)
        width, height = (
            max(1, -(-round(side * scale) // multiple)) * multiple for side in (frame_width, frame_height)
        )
        return cls(frame_width, frame_height, width, height)

    @cached_property
    def content_width(self) -> int:
        return max(1, round(self.frame_width * self._scale))

    @cached_property
    def content_height(self) -> int:
        return max(1, round(self.frame_height * self._scale))

    @cached_property
    def left(self) -> int:
        return (self.canvas_width - self.content_width) // 2

    @cached_property
    def top(self) -> int:
        return (self.canvas_height - self.content_height) // 2

    @cached_property
    def _scale(self) -> float:
        return min(self.canvas_width / self.frame_width, self.canvas_height / self.frame_height)

    def to_px(self, boxes_unit: np.ndarray) -> np.ndarray:
        """[..., 4] x1 y1 x2 y2 in the unit square of the canvas -> pixels of the frame, clipped."""
        canvas = np.asarray(boxes_unit, np.float64) * self._canvas_sides
        return np.clip((canvas - self._offsets) / self._factors, 0.0, self._frame_sides)

    def to_unit(self, boxes_px: np.ndarray) -> np.ndarray:
        """[..., 4] x1 y1 x2 y2 in pixels of the frame -> the unit square of the canvas."""
        return (np.asarray(boxes_px, np.float64) * self._factors + self._offsets) / self._canvas_sides

    @cached_property
    def _factors(self) -> np.ndarray:
        return np.array([self.content_width / self.frame_width, self.content_height / self.frame_height] * 2)

    @cached_property
    def _offsets(self) -> np.ndarray:
        return np.array([self.left, self.top] * 2, float)

    @cached_property
    def _canvas_sides(self) -> np.ndarray:
        return np.array([self.canvas_width, self.canvas_height] * 2, float)

    @cached_property
    def _frame_sides(self) -> np.ndarray:
        return np.array([self.frame_width, self.frame_height] * 2, float)

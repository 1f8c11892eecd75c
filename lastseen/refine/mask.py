"""Mask: replace the boxes of the answer by the bounds of masks, and know the thing in its picture by one.

The model says when a thing is in view more exactly than where its edges are. A segmenter, prompted with the
model's box in a window around it, finds the edges. Only the sighting that is going to be the answer is
segmented; if a mask does not fit its box, the box stays. In the picture of the question, what is in the
box but not in the mask is background.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

import numpy as np

from lastseen.box import Box
from lastseen.masks.segmenter import BoxMask
from lastseen.progress import MEASURING, SEGMENTED, Work
from lastseen.query import View
from lastseen.refine.step import FrameAccess, Scale
from lastseen.refine.window import crop, window_corner
from lastseen.sighting import Evidence, Extract, Sighting

Segment = Callable[[Sequence[np.ndarray], Sequence[Box]], list[BoxMask]]
MAX_PICTURE_SHARE = 0.8  # of a question's picture that the box may take, for a mask of the thing in it


@dataclass(frozen=True, kw_only=True)
class Mask:
    name: ClassVar[str] = "mask"
    phase: ClassVar[str] = MEASURING

    max_frames: int = 60  # most frames segmented, the last ones of the sighting
    window_ratio: float = 2.0  # side of the window that is segmented / longer side of the box
    min_window_px: int = 64  # side of the smallest window
    prompt_ratio: float = 1.1  # sides of the prompt / sides of the box
    min_predicted_iou: float = 0.7  # of the mask with the true one, by the segmenter's own estimate
    min_box_iou: float = 0.3  # of the mask's bounds with the box
    max_area_ratio: float = 2.0  # of the mask's bounds to the box
    batch_frames: int = 16  # frames held at a time

    def __post_init__(self) -> None:
        if type(self.max_frames) is not int or self.max_frames < 1:
            raise ValueError(f"mask.max_frames must be a whole number, 1 or more, got {self.max_frames}")
        for name in ("min_predicted_iou", "min_box_iou"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 <= value <= 1):
                raise ValueError(f"mask.{name} must be a number from 0 to 1, got {value!r}")

    def __call__(self, evidence: Evidence, extract: Extract, video: FrameAccess) -> Evidence:
        sightings = extract(evidence)
        if not sightings:
            return evidence
        answer = the_answer(sightings)
        start, stop = max(answer.first, answer.last + 1 - self.max_frames), answer.last + 1
        boxes_px = evidence.boxes_px.copy()
        pictures = video.pictures(start, stop)
        while batch := list(islice(pictures, self.batch_frames)):
            end = start + len(batch)
            boxes_px[start:end] = self._refined(boxes_px[start:end], batch, video)
            start = end
        return replace(evidence, boxes_px=boxes_px)

    def work(self, evidence: Evidence | None, extract: Extract, scale: Scale) -> Work:
        """The frames of the answer; before the first pass: half a clip."""
        length = scale.clip_length // 2
        if evidence is not None:
            sightings = extract(evidence)
            answer = the_answer(sightings) if sightings else None
            length = answer.last + 1 - answer.first if answer else 0
        return Work({SEGMENTED: min(scale.frames, length, self.max_frames)})

    def _refined(
        self, boxes_px: np.ndarray, pictures: Sequence[np.ndarray], video: FrameAccess
    ) -> np.ndarray:
        """Boxes [n, 4] of some pictures, replaced where a mask fits."""
        boxes = [Box(*map(float, box)) for box in boxes_px]
        places = [self.window(box, picture) for box, picture in zip(boxes, pictures)]
        windows = [crop(picture, x, y, side) for picture, (x, y, side) in zip(pictures, places)]
        prompts = [box.expanded(self.prompt_ratio).shifted(-x, -y) for box, (x, y, _) in zip(boxes, places)]
        found = video.segment(windows, prompts)
        bounds = [mask.bounds and mask.bounds.shifted(x, y) for mask, (x, y, _) in zip(found, places)]
        kept = [
            self.chosen(box, of_mask, mask.predicted_iou) for box, of_mask, mask in zip(boxes, bounds, found)
        ]
        height, width = pictures[0].shape[:2]
        return np.array([box.clipped(width, height).xyxy for box in kept])

    def of_view(self, view: View, segment: Segment) -> np.ndarray | None:
        """[h, w] bool: which pixels of the question's picture show the thing. None if the segmenter is not
        sure, or if there is nothing around the box that the thing could be told from."""
        height, width = view.picture.shape[:2]
        if view.box.area > MAX_PICTURE_SHARE * width * height:
            return None
        x, y, side = self.window(view.box, view.picture)
        (found,) = segment([crop(view.picture, x, y, side)], [view.box.shifted(-x, -y)])
        if found.bounds is None or found.predicted_iou < self.min_predicted_iou:
            return None
        columns, rows = (
            np.clip((np.arange(count) - start + 0.5) * cells / side, 0, cells - 1).astype(int)
            for count, start, cells in zip((width, height), (x, y), found.mask.shape[::-1])
        )
        mask = np.zeros((height, width), bool)
        inside = np.s_[max(0, y) : y + side, max(0, x) : x + side]
        mask[inside] = found.mask[np.ix_(rows, columns)][inside]
        return mask

    def window(self, box: Box, picture: np.ndarray) -> tuple[int, int, int]:
        """x, y and side of the square around a box; inside the picture where it fits."""
        height, width = picture.shape[:2]
        side = max(round(self.window_ratio * max(box.width, box.height)), self.min_window_px)
        side = min(side, max(width, height))
        x, y = (box.x1 + box.x2) / 2, (box.y1 + box.y2) / 2
        return window_corner(x, side, width), window_corner(y, side, height), side

    def chosen(self, box: Box, bounds: Box | None, predicted_iou: float) -> Box:
        """The bounds of a mask (None: it is empty) if they fit the box, else the box."""
        if bounds is None or predicted_iou < self.min_predicted_iou:
            return box
        fits = bounds.iou(box) >= self.min_box_iou and bounds.area <= self.max_area_ratio * box.area
        return bounds if fits else box


def the_answer(sightings: Sequence[Sighting]) -> Sighting:
    """The last sighting that counts as seen, or else the best guess."""
    return next((sighting for sighting in reversed(sightings) if sighting.is_seen), sightings[-1])

"""A second look: the likeliest sightings again, enlarged.

A whole frame is searched at the model's own size, where something small is two or three patches. Around the
best peaks of that first look a window that follows the thing is cut out of the original frames and searched
by the same model with the same pictures. What it says there takes the place of what was said at first.

    FramePredictions --likeliest--> Sightings --windows--> pictures --model--> FramePredictions
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import median_filter, uniform_filter1d

from lastseen.track import FramePredictions, TrackRule, all_tracks

PEAKS = 0.4  # of the best: a lower peak is not worth a second look
ZOOM = 3.0  # a window's side, in sides of the thing: what surrounds it must show, too
LEAST_PX = 112  # of a window's side: more than fourfold enlargement shows nothing new
STEP_PX = 16  # windows have few sizes: what resizes them is prepared for each
RIM = 3  # frames before and after a sighting

Pictures = Sequence[np.ndarray]  # [h, w, 3] uint8


@dataclass(frozen=True)
class Sighting:
    """Frames [start, stop), and the corner and side of the square window in each: [n, 2] and one for all."""

    start: int
    stop: int
    corners: np.ndarray
    side: int

    def cut(self, frames: Pictures) -> list[np.ndarray]:
        """The windows; black where they reach beyond the picture."""
        return [_cut(frame, int(x), int(y), self.side) for frame, (x, y) in zip(frames, self.corners)]

    def to_px(self, boxes_unit: np.ndarray) -> np.ndarray:
        return boxes_unit * self.side + np.tile(self.corners, 2)


def likeliest(
    predictions: FramePredictions, rule: TrackRule, width: int, height: int, most_frames: int
) -> list[Sighting]:
    """The `rule.looks` best of a first look; the middle of those that last longer than `most_frames`."""
    found = all_tracks(predictions, replace(rule, threshold=0.0, peak_ratio=PEAKS))
    found.sort(key=lambda track: -track.score)
    sightings = []
    for track in found[: rule.looks]:
        first, last = track.first_frame, track.last_frame
        peak = first + int(np.argmax(predictions.logits[first : last + 1]))
        start = max(0, first - RIM, peak - (most_frames - 1) // 2)
        stop = min(len(predictions), last + RIM + 1, peak + most_frames // 2 + 1)
        boxes = median_filter(
            np.asarray(predictions.boxes_px[first : last + 1], np.float64), (5, 1), mode="nearest"
        )
        longer = (boxes[:, 2:] - boxes[:, :2]).max(1)[max(0, peak - first - 4) : peak - first + 5]
        side = STEP_PX * round(ZOOM * float(np.median(longer)) / STEP_PX)
        side = min(max(side, LEAST_PX), max(width, height))
        # Before and after, the window stays where the thing came from and went to.
        shown = boxes[np.clip(np.arange(start, stop), first, last) - first]
        middles = uniform_filter1d((shown[:, :2] + shown[:, 2:]) / 2, 3, axis=0, mode="nearest")
        corners = [[_corner(x, side, width), _corner(y, side, height)] for x, y in middles]
        sightings.append(Sighting(start, stop, np.array(corners), side))
    return sightings


def replaced(
    predictions: FramePredictions, seen: Sequence[tuple[Sighting, np.ndarray, np.ndarray]]
) -> FramePredictions:
    """Each sighting's boxes (pixels) and logits in place of the first ones; where two meet, the surer."""
    boxes, logits = predictions.boxes_px.copy(), predictions.logits.copy()
    surest = np.full(len(logits), -np.inf)
    for sighting, boxes_px, its_logits in seen:
        span = slice(sighting.start, sighting.stop)
        better = its_logits > surest[span]
        surest[span][better] = its_logits[better]
        boxes[span][better], logits[span][better] = boxes_px[better], its_logits[better]
    return replace(predictions, boxes_px=boxes, logits=logits)


def _corner(middle: float, side: int, size: int) -> int:
    """Inside the picture if the window fits, else as much beyond it on either side."""
    return min(max(round(middle - side / 2), 0), size - side) if side <= size else (size - side) // 2


def _cut(frame: np.ndarray, x: int, y: int, side: int) -> np.ndarray:
    height, width = frame.shape[:2]
    inside = frame[max(0, y) : min(height, y + side), max(0, x) : min(width, x + side)]
    if inside.shape[:2] == (side, side):
        return np.ascontiguousarray(inside)
    window = np.zeros((side, side, 3), frame.dtype)
    top, left = max(0, -y), max(0, -x)
    window[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    return window

"""A second look: the likeliest sightings again, enlarged.

A whole frame is searched at the model's own size, where something small is two or three patches. Around the
best peaks of that first look a window that follows the thing is cut out of the original frames and searched
by the same model with the same pictures. Its boxes take the place of the first ones, its scores are averaged
with them: a look that sees more, but less of what is around.

    FramePredictions --likeliest--> Sightings --windows--> pictures --model--> FramePredictions
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import median_filter, uniform_filter1d

from lastseen.track import FramePredictions, TrackRule, all_tracks

PEAKS = 0.4  # of the best: a lower peak is not worth a second look
ZOOM = 3.0  # a window's side, in sides of the thing: what surrounds it must show, too
LEAST_PX = 112  # of a window's side: more than fourfold enlargement shows nothing new
STEP_PX = 16  # windows have few sizes: what resizes them is prepared for each
RIM = 3  # frames before and after a sighting
SHARE = 0.5  # of the second look in a score


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """What the first look saw from frame `first` to `last`, and where the second looks.

    In the frames [start, start + n), at squares of `side` pixels with their upper left at `corners` [n, 2].
    """

    first: int
    last: int
    start: int
    corners: np.ndarray
    side: int

    @property
    def stop(self) -> int:
        return self.start + len(self.corners)

    @property
    def key(self) -> tuple[int, int, bytes]:
        """Equal for equal looks."""
        return self.start, self.side, self.corners.tobytes()

    def cut(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The windows; black where they reach beyond the picture. Copies: no frame is kept by its part."""
        for frame, (x, y) in zip(frames, self.corners):
            yield _cut(frame, int(x), int(y), self.side)

    def shortened(self, frames: int) -> Sighting:
        return replace(self, corners=self.corners[:frames])

    def to_px(self, boxes_unit: np.ndarray) -> np.ndarray:
        return boxes_unit * self.side + np.tile(self.corners, 2)


Look = tuple[np.ndarray, np.ndarray]  # boxes in pixels [n, 4], logits [n]
Looks = dict[tuple[int, int, bytes], Look]  # by a sighting's key


def likeliest(
    predictions: FramePredictions, rule: TrackRule, width: int, height: int, most_frames: int
) -> list[Sighting]:
    """The `rule.looks` best of a first look, around their peaks if they last longer than `most_frames`; not
    those that fill the picture, where a window would show nothing larger."""
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
        corners = np.array([[_corner(x, side, width), _corner(y, side, height)] for x, y in middles])
        if side < max(width, height):
            sightings.append(Sighting(first=first, last=last, start=start, corners=corners, side=side))
    return sightings


def replaced(predictions: FramePredictions, seen: Sequence[tuple[Sighting, Look]]) -> FramePredictions:
    """Each sighting's boxes in place of the first, and the mean of both logits; where two meet, the surer.

    The rest of a sighting that was too long is as much surer, or less sure, as what was looked at.
    """
    first = predictions.logits
    boxes, logits = predictions.boxes_px.copy(), first.copy()
    surest = np.full(len(logits), -np.inf)
    for sighting, (_, its_logits) in seen:
        before = first[sighting.start : sighting.stop]
        known = np.isfinite(before)  # an index may not have looked at all frames
        change = SHARE * np.median(its_logits[known] - before[known]) if known.any() else 0.0
        for rest in (
            slice(sighting.first, min(sighting.start, sighting.last + 1)),
            slice(max(sighting.stop, sighting.first), sighting.last + 1),
        ):
            logits[rest] = first[rest] + change
    for sighting, (boxes_px, its_logits) in seen:
        span = slice(sighting.start, sighting.stop)
        both = (1 - SHARE) * first[span] + SHARE * its_logits
        better = both > surest[span]
        surest[span][better] = logits[span][better] = both[better]
        boxes[span][better] = boxes_px[better]
    return replace(predictions, boxes_px=boxes, logits=logits)


def _corner(middle: float, side: int, size: int) -> int:
    """Inside the picture if the window fits, else as much beyond it on either side."""
    return min(max(round(middle - side / 2), 0), size - side) if side <= size else (size - side) // 2


def _cut(frame: np.ndarray, x: int, y: int, side: int) -> np.ndarray:
    height, width = frame.shape[:2]
    inside = frame[max(0, y) : min(height, y + side), max(0, x) : min(width, x + side)]
    if inside.shape[:2] == (side, side):
        return inside.copy()
    window = np.zeros((side, side, 3), frame.dtype)
    top, left = max(0, -y), max(0, -x)
    window[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    return window

"""Zoom: run the model again on enlarged windows around the most confident sightings.

Whole frames are searched at the model's input size, where a small thing covers two or three patches. A window
that follows the thing is cut out of the original frames and searched by the same model with the same query.
Its boxes replace the first ones; logits are averaged, since a window shows more of the thing but less of
its surroundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.ndimage import median_filter, uniform_filter1d

from lastseen.progress import ENCODED, LOCALIZED, LOOKING_CLOSER, Work
from lastseen.refine.step import FrameAccess, Scale
from lastseen.refine.window import Window, window_corner
from lastseen.sighting import Evidence, Extract, Sighting

Zoomed = tuple[Sighting, Window, np.ndarray, np.ndarray]  # boxes in pixels [n, 4], logits [n]


@dataclass(frozen=True, kw_only=True)
class Zoom:
    name: ClassVar[str] = "zoom"
    phase: ClassVar[str] = LOOKING_CLOSER

    sightings: int = 2  # number of sightings zoomed in on, most confident first
    peak_ratio: float = 0.4  # of the highest peak: sightings with lower ones are left out
    window_ratio: float = 3.0  # side of a window / longer side of the thing
    min_window_px: int = 112  # enlarging more than fourfold adds no detail
    window_step_px: int = 16  # window sizes are multiples of this: resizing weights are cached by size
    margin_frames: int = 3  # before and after a sighting
    logit_weight: float = 0.5  # of the window's logit in the average
    box_median_frames: int = 5  # smoothing of the boxes that windows follow
    size_frames: int = 4  # before and after the peak: their boxes set the window's size
    center_mean_frames: int = 3  # smoothing of a window's path

    def __post_init__(self) -> None:
        if type(self.sightings) is not int or self.sightings < 1:
            raise ValueError(f"zoom.sightings must be a whole number, 1 or more, got {self.sightings}")

    def __call__(self, evidence: Evidence, extract: Extract, video: FrameAccess) -> Evidence:
        zoomed: list[Zoomed] = []
        for sighting, window in self.windows(extract(evidence, self.peak_ratio), video):
            boxes_px, logits = video.localize(window)
            if len(logits):
                zoomed.append((sighting, window.shortened(len(logits)), boxes_px, logits))
        return self.merged(evidence, zoomed)

    def work(self, evidence: Evidence | None, extract: Extract, scale: Scale) -> Work:
        """Before the first pass: sightings of half a clip's length."""
        if evidence is None:
            lengths = [scale.clip_length // 2] * self.sightings
        else:
            sightings = sorted(extract(evidence, self.peak_ratio), key=lambda sighting: -sighting.confidence)
            lengths = [sighting.last + 1 - sighting.first for sighting in sightings[: self.sightings]]
        frames = sum(min(scale.clip_length, length + 2 * self.margin_frames) for length in lengths)
        frames = min(frames, scale.frames)
        return Work({ENCODED: frames, LOCALIZED: frames})

    def windows(self, sightings: Sequence[Sighting], video: FrameAccess) -> list[tuple[Sighting, Window]]:
        """Windows for the most confident sightings, except where the thing already fills the picture."""
        found = []
        by_confidence = sorted(sightings, key=lambda sighting: -sighting.confidence)
        for sighting in by_confidence[: self.sightings]:
            window = self._window(sighting, video)
            if window.side < max(video.letterbox.frame_width, video.letterbox.frame_height):
                found.append((sighting, window))
        return found

    def _window(self, sighting: Sighting, video: FrameAccess) -> Window:
        """A window of at most a clip's length around the peak."""
        width, height = video.letterbox.frame_width, video.letterbox.frame_height
        first, last, peak = sighting.first, sighting.last, sighting.peak
        start = max(0, first - self.margin_frames, peak - (video.clip_length - 1) // 2)
        stop = min(len(sighting.evidence), last + self.margin_frames + 1, peak + video.clip_length // 2 + 1)
        boxes = median_filter(
            np.asarray(sighting.boxes_px, np.float64), (self.box_median_frames, 1), mode="nearest"
        )
        at = peak - first
        longer = (boxes[:, 2:] - boxes[:, :2]).max(1)[
            max(0, at - self.size_frames) : at + self.size_frames + 1
        ]
        step = self.window_step_px
        side = step * round(self.window_ratio * float(np.median(longer)) / step)
        side = min(max(side, self.min_window_px), max(width, height))
        # In the margins the window stays where the sighting begins and ends.
        shown = boxes[np.clip(np.arange(start, stop), first, last) - first]
        middles = (shown[:, :2] + shown[:, 2:]) / 2
        middles = uniform_filter1d(middles, self.center_mean_frames, axis=0, mode="nearest")
        corners = [[window_corner(x, side, width), window_corner(y, side, height)] for x, y in middles]
        return Window(start=start, corners=np.array(corners), side=side)

    def merged(self, evidence: Evidence, zoomed: Sequence[Zoomed]) -> Evidence:
        """Evidence with the windows' boxes and averaged logits; where windows overlap, the higher logit wins.
        In frames of a sighting outside its window, logits change by the median change inside it."""
        first = evidence.logits
        boxes_px, logits = evidence.boxes_px.copy(), first.copy()
        highest = np.full(len(logits), -np.inf)
        for sighting, window, _, its_logits in zoomed:
            before = first[window.start : window.stop]
            known = np.isfinite(before)
            change = self.logit_weight * np.median(its_logits[known] - before[known]) if known.any() else 0.0
            for rest in (
                slice(sighting.first, min(window.start, sighting.last + 1)),
                slice(max(window.stop, sighting.first), sighting.last + 1),
            ):
                logits[rest] = first[rest] + change
        for _, window, its_boxes_px, its_logits in zoomed:
            span = slice(window.start, window.stop)
            both = (1 - self.logit_weight) * first[span] + self.logit_weight * its_logits
            better = both > highest[span]
            highest[span][better] = logits[span][better] = both[better]
            boxes_px[span][better] = its_boxes_px[better]
        return replace(evidence, boxes_px=boxes_px, logits=logits)

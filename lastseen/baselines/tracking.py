"""After the peak: an answer is followed from its start box in both directions, until it is lost.

Track   by a tracker, as the originals do       Ends    by the detector's own scores and our span rule
Both are refinement steps: their evidence has one extent, the answer's first and last frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from scipy.special import expit

from lastseen.baselines.peaks import PeakRule
from lastseen.box import Box
from lastseen.refine import FrameAccess
from lastseen.sighting import Evidence, Extract, Extraction

DECODED_AT_ONCE = 32  # frames, going backward


class Pictures(Protocol):
    """What following reads of a video; frames are numbered as in the evidence."""

    def pictures(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Frames [start, stop) in their original size."""


class Target(Protocol):
    """What is being followed."""

    def follow(self, picture: np.ndarray) -> tuple[Box, float]:
        """The box in the next picture [h, w, 3] uint8, and how sure that is, in [0, 1]."""


class Tracker(Protocol):
    """A frozen dataclass whose fields are its settings."""

    @property
    def name(self) -> str: ...
    @property
    def stop(self) -> float:
        """The target is lost where the confidence is below this."""

    @property
    def keeps_lost_frame(self) -> bool:
        """Whether the frame in which it is lost belongs to the track."""

    def start(self, picture: np.ndarray, box: Box) -> Target: ...


@dataclass(frozen=True)
class Track:
    """From the last peak backward to the first frame, then forward to the last one."""

    name: ClassVar[str] = "track"

    peaks: PeakRule
    tracker: Tracker

    def __call__(self, evidence: Evidence, extract: Extract, video: FrameAccess) -> Evidence:
        return self.followed(evidence, video)

    def followed(self, evidence: Evidence, video: Pictures) -> Evidence:
        peak = peak_of(evidence, self.peaks)
        if peak is None:
            return unseen(evidence)
        boxes = evidence.boxes_px.copy()
        boxes[peak] = np.trunc(boxes[peak])
        start = Box(*map(float, boxes[peak]))
        if min(start.width, start.height) < 1:
            return replace(evidence, boxes_px=boxes, extents=((peak, peak),))
        picture = next(iter(video.pictures(peak, peak + 1)))
        backward = followed(self.tracker, picture, start, backward_pictures(video, peak))
        forward = followed(self.tracker, picture, start, video.pictures(peak + 1, len(evidence)))
        for number, box in enumerate(backward, 1):
            boxes[peak - number] = np.trunc(box.xyxy)
        for number, box in enumerate(forward, 1):
            boxes[peak + number] = np.trunc(box.xyxy)
        return replace(evidence, boxes_px=boxes, extents=((peak - len(backward), peak + len(forward)),))


@dataclass(frozen=True)
class Ends:
    """The frames around the last peak whose smoothed score is above a share of the peak's, each with the
    detector's best box: tells detection from tracking apart."""

    name: ClassVar[str] = "ends"

    peaks: PeakRule
    extent_ratio: float = Extraction.extent_ratio

    def __call__(self, evidence: Evidence, extract: Extract, video: FrameAccess) -> Evidence:
        return self.followed(evidence, video)

    def followed(self, evidence: Evidence, video: Pictures) -> Evidence:
        peak = peak_of(evidence, self.peaks)
        if peak is None:
            return unseen(evidence)
        smoothed = self.peaks.smoothed(expit(evidence.logits))
        out = np.flatnonzero(smoothed < self.extent_ratio * smoothed[peak])
        first = int(out[out < peak][-1]) + 1 if (out < peak).any() else 0
        last = int(out[out > peak][0]) - 1 if (out > peak).any() else len(evidence) - 1
        return replace(evidence, boxes_px=np.trunc(evidence.boxes_px), extents=((first, last),))


def peak_of(evidence: Evidence, rule: PeakRule) -> int | None:
    return rule.last(rule.smoothed(expit(np.asarray(evidence.logits, np.float64))))


def unseen(evidence: Evidence) -> Evidence:
    """Without a peak the originals answer with the best box of the last frame."""
    last = len(evidence) - 1
    return replace(evidence, boxes_px=np.trunc(evidence.boxes_px), extents=((last, last),))


def followed(tracker: Tracker, picture: np.ndarray, start: Box, pictures: Iterator[np.ndarray]) -> list[Box]:
    """The boxes in pictures one after the other, until the target is lost."""
    target, boxes = tracker.start(picture, start), []
    for following in pictures:
        box, confidence = target.follow(following)
        lost = confidence < tracker.stop
        if not lost or tracker.keeps_lost_frame:
            boxes.append(box)
        if lost:
            break
    return boxes


def backward_pictures(video: Pictures, before: int) -> Iterator[np.ndarray]:
    """Frames before - 1, before - 2, .., 0; decoded forward, a few at a time."""
    stop = before
    while stop > 0:
        start = max(0, stop - DECODED_AT_ONCE)
        yield from reversed(list(video.pictures(start, stop)))
        stop = start

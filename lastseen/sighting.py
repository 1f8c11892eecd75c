"""From a box and a logit for every frame to sightings: runs of frames in which the thing may be.

FramePredictions --Evidence.of--> Evidence --Extraction.sightings--> Sightings
Confidence: the score of a sighting's peak -> the probability that it is correct
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.ndimage import median_filter
from scipy.signal import find_peaks
from scipy.special import expit, logit

from lastseen.track import FramePredictions


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """A box and a logit for every frame after refinement. Made from predictions, which are not changed."""

    fps: float
    boxes_px: np.ndarray  # [T, 4] x1 y1 x2 y2
    logits: np.ndarray  # [T]; -inf where the model did not run
    # First and last frame of extended sightings: a sighting whose peak is in between has this extent.
    extents: tuple[tuple[int, int], ...] = ()
    # Sightings that failed verification: first frame, last frame, logit subtracted there.
    penalties: tuple[tuple[int, int, float], ...] = ()

    @classmethod
    def of(cls, predictions: FramePredictions) -> Evidence:
        return cls(fps=predictions.fps, boxes_px=predictions.boxes_px, logits=predictions.logits)

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def searched_s(self) -> float:
        return len(self) / self.fps

    def delayed(self, frames: int) -> Evidence:
        """The evidence with `frames` frames inserted at the beginning, on which the model did not run."""
        if not frames:
            return self
        return replace(
            self,
            boxes_px=np.concatenate([np.zeros((frames, 4), self.boxes_px.dtype), self.boxes_px]),
            logits=np.concatenate([np.full(frames, -np.inf, self.logits.dtype), self.logits]),
            extents=tuple((first + frames, last + frames) for first, last in self.extents),
            penalties=tuple((first + frames, last + frames, loss) for first, last, loss in self.penalties),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Sighting:
    """A run of frames in which the thing may be, with a confidence."""

    evidence: Evidence
    first: int  # frame
    last: int  # frame
    peak_score: float  # smoothed score, in [0, 1]
    confidence: float = 0.0  # probability that it is correct
    is_seen: bool = False  # confidence is at least the threshold

    @cached_property
    def peak(self) -> int:
        """The frame with the highest logit."""
        return self.first + int(np.argmax(self.evidence.logits[self.first : self.last + 1]))

    @property
    def boxes_px(self) -> np.ndarray:
        """[last - first + 1, 4]"""
        return self.evidence.boxes_px[self.first : self.last + 1]


class Extract(Protocol):
    """Sightings of the evidence in time order, with confidences; `peak_ratio` overrides the rule's."""

    def __call__(self, evidence: Evidence, peak_ratio: float | None = None) -> list[Sighting]: ...


def answerable(sightings: Sequence[Sighting]) -> list[Sighting]:
    """Sightings with `is_seen`, and the last one, which is the best guess if there are none."""
    return [s for s in sightings[:-1] if s.is_seen] + list(sightings[-1:])


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """Peaks of the smoothed score and the frames around them. The ratios are the paper's.

    Unlike in the paper, the first and the last frame of the video can be a peak.
    """

    gain: float = 1.0  # a frame's score is sigmoid(gain * logit + shift)
    shift: float = 0.0
    median_frames: int = 5  # length of the median filter over scores
    peak_ratio: float = 0.8  # of the highest peak: lower peaks are dropped
    extent_ratio: float = 0.7  # of its peak: a sighting extends while the score stays above this
    # .. and the logit within this of its peak's, if not None: a ratio of saturated scores ends no sighting.
    extent_drop: float | None = None
    box_median_frames: int = 3  # length of the median filter over boxes

    def __post_init__(self) -> None:
        for name in ("median_frames", "box_median_frames"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number, 1 or more, got {value}")
        drop = self.extent_drop
        if not (drop is None or (isinstance(drop, (int, float)) and 0 < drop < np.inf)):
            raise ValueError(f"extent_drop must be a number above 0, or null, got {drop!r}")

    def scores(self, evidence: Evidence) -> np.ndarray:
        """[T] in [0, 1]"""
        return expit(self._logits(evidence))

    def _logits(self, evidence: Evidence) -> np.ndarray:
        logits = np.array(evidence.logits, np.float64)
        for first, last, loss in evidence.penalties:
            logits[first : last + 1] -= loss
        return self.gain * logits + self.shift

    def smooth(self, scores: np.ndarray) -> np.ndarray:
        return median_filter(scores, self.median_frames, mode="nearest")

    def sightings(self, evidence: Evidence) -> list[Sighting]:
        """Sightings in time order; those that overlap or touch are merged."""
        if not len(evidence):
            return []
        logits = self.smooth(self._logits(evidence))
        scores = expit(logits)  # smoothing commutes with it
        # Padding with -1 lets a maximum at the first or last frame be a peak.
        peaks = find_peaks(np.pad(scores, 1, constant_values=-1.0))[0] - 1
        spans: list[tuple[int, int, float]] = []  # first frame, last frame, score of the peak
        for peak in peaks[scores[peaks] >= self.peak_ratio * scores.max()]:
            within = scores >= self.extent_ratio * scores[peak]
            if self.extent_drop is not None:
                within &= logits >= logits[peak] - self.gain * self.extent_drop
            first, last = _extent(within, peak)
            for start, end in evidence.extents:
                if start <= peak <= end:
                    first, last = min(first, start), max(last, end)
            score = float(scores[peak])
            while spans and first <= spans[-1][1] + 1:
                earlier = spans.pop()
                first, last, score = min(first, earlier[0]), max(last, earlier[1]), max(score, earlier[2])
            spans.append((first, last, score))
        return [
            Sighting(evidence=evidence, first=first, last=last, peak_score=score)
            for first, last, score in spans
        ]

    def smooth_boxes(self, boxes_px: np.ndarray) -> np.ndarray:
        """Median filter: removes single-frame jumps and preserves steady motion."""
        return median_filter(np.asarray(boxes_px, np.float64), (self.box_median_frames, 1), mode="nearest")


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """Platt scaling of a sighting's peak: the probability that it is correct.

    Longer searches meet more similar-looking things, so `search_length_penalty` is subtracted from a peak's
    logit per e-fold of minutes searched. Search lengths are clamped to the range that rules are fitted on.
    """

    slope: float = 1.0
    offset: float = 0.0
    search_length_penalty: float = 0.0  # logits per e-fold of minutes
    min_search_s: float = 30.0
    max_search_s: float = 300.0
    threshold: float = 0.5  # sightings with a lower confidence do not count as seen

    def __post_init__(self) -> None:
        penalty = self.search_length_penalty
        if not (isinstance(penalty, (int, float)) and 0 <= penalty < np.inf):
            raise ValueError(f"search_length_penalty must be a number, 0 or more, got {penalty!r}")
        if not 0 < self.min_search_s <= self.max_search_s:
            between = f"{self.min_search_s} and {self.max_search_s}"
            raise ValueError(f"min_search_s must be above 0, and max_search_s no less, got {between}")

    def of(self, peak_score: float, searched_s: float) -> float:
        peak = logit(np.clip(peak_score, 1e-9, 1 - 1e-9))
        minutes = np.clip(searched_s, self.min_search_s, self.max_search_s) / 60
        return float(expit(self.slope * (peak - self.search_length_penalty * np.log(minutes)) + self.offset))


def _extent(within: np.ndarray, peak: int) -> tuple[int, int]:
    """The run of frames around a peak that are `within` [T] its extent."""
    out = np.flatnonzero(~within)
    before, after = out[out < peak], out[out > peak]
    return (
        int(before[-1]) + 1 if len(before) else 0,
        int(after[0]) - 1 if len(after) else len(within) - 1,
    )

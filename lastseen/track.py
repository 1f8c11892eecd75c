"""From a box and a score on every frame to the answer: when the thing was (last) in view.

FramePredictions --last_track--> ResponseTrack | None       ours: reaches both ends, can say no
                 --all_tracks--> every occurrence, in time order
                 --paper_track-> the paper's post-processing, defects included, for parity
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import median_filter
from scipy.signal import find_peaks, medfilt
from scipy.special import expit, logit

from lastseen.box import Box
from lastseen.errors import TrackError

SCHEMA = "lastseen/track@1"
SHORTEST_S, LONGEST_S = 30.0, 300.0  # nearly all searches that rules are fitted on: others count as these


@dataclass(frozen=True, kw_only=True)
class FramePredictions:
    """The best box and the model's score on every sampled frame; frame i is at i / fps seconds."""

    fps: float
    boxes_px: np.ndarray  # [T, 4] x1 y1 x2 y2
    logits: np.ndarray  # [T]
    # First and last frames between which a thing stays like itself: a track that peaks there reaches so far.
    spans: tuple[tuple[int, int], ...] = ()
    # First and last frames of sightings that are unlike the surest one, and by how much their logits fall.
    doubts: tuple[tuple[int, int, float], ...] = ()

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def scores(self) -> np.ndarray:
        return expit(np.asarray(self.logits, np.float64))


@dataclass(frozen=True, kw_only=True)
class ResponseTrack:
    """One unbroken run of boxes: the thing is in view from `start` to `end` (seconds, both shown)."""

    first_frame: int
    fps: float
    boxes: tuple[Box, ...]
    score: float

    def __post_init__(self) -> None:
        if not self.boxes:
            raise TrackError("a ResponseTrack needs at least one box; use None for 'not seen'")

    @property
    def last_frame(self) -> int:
        return self.first_frame + len(self.boxes) - 1

    @property
    def start(self) -> float:
        return self.first_frame / self.fps

    @property
    def end(self) -> float:
        return self.last_frame / self.fps

    @property
    def duration_s(self) -> float:
        """How long it is in view; a single sampled frame counts as one frame's time."""
        return len(self.boxes) / self.fps

    @property
    def last_box(self) -> Box:
        return self.boxes[-1]

    def box_at(self, time_s: float) -> Box | None:
        """The box at any moment of the track, interpolated between sampled frames."""
        position = time_s * self.fps - self.first_frame
        if not -0.5 <= position < len(self.boxes) - 0.5:
            return None
        position = min(max(position, 0.0), len(self.boxes) - 1.0)
        low = int(position)
        high, t = min(low + 1, len(self.boxes) - 1), position - low
        mixed = [(1 - t) * a + t * b for a, b in zip(self.boxes[low].xyxy, self.boxes[high].xyxy)]
        return Box(*mixed)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "start": round(self.start, 6),
            "end": round(self.end, 6),
            "score": self.score,
            "fps": self.fps,
            "boxes": [
                {
                    "frame": frame,
                    "time": round(frame / self.fps, 6),
                    **{k: round(v, 3) for k, v in zip(("x1", "y1", "x2", "y2"), box.xyxy)},
                }
                for frame, box in enumerate(self.boxes, self.first_frame)
            ],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: Any) -> ResponseTrack:
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise TrackError(f'not a track: expected an object with "schema": "{SCHEMA}"')
        try:
            frames = [int(b["frame"]) for b in data["boxes"]]
            boxes = tuple(Box(*(float(b[k]) for k in ("x1", "y1", "x2", "y2"))) for b in data["boxes"])
            fps, score = float(data["fps"]), float(data["score"])
        except (KeyError, TypeError, ValueError) as error:
            raise TrackError(f"malformed track: {type(error).__name__}: {error}") from None
        if not fps > 0:
            raise TrackError(f"malformed track: fps must be positive, got {fps}")
        if not frames or frames != list(range(frames[0], frames[0] + len(frames))):
            raise TrackError("malformed track: box frames must be consecutive and at least one")
        return cls(first_frame=frames[0], fps=fps, boxes=boxes, score=score)

    @classmethod
    def from_json(cls, text: str) -> ResponseTrack:
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise TrackError(f"not JSON: {error}") from None


@dataclass(frozen=True, kw_only=True)
class TrackRule:
    """How scores become tracks. The ratios are the paper's; `threshold` is what "not seen" means."""

    # A frame's score is its logit, times gain, plus shift, as a probability.
    gain: float = 1.0
    shift: float = 0.0
    median: int = 5  # frames
    peak_ratio: float = 0.8  # of the best peak: others at least this high are occurrences too
    extent_ratio: float = 0.7  # of its own peak: a track reaches as far as the score stays above
    box_median: int = 3  # frames; outliers of the box are removed over this many
    # A track's score is its peak's logit, times slope, plus offset, as a probability: fitted so that it
    # tells how often such an answer is right. Where more is searched, more can be mistaken for the thing:
    # `length_cost` is what a peak's logit loses if a video is e minutes long, twice that if e^2, and what it
    # gains if a part of one.
    slope: float = 1.0
    offset: float = 0.0
    length_cost: float = 0.0
    threshold: float = 0.5  # a track with a lower score is not an answer
    looks: int = 0  # sightings that are looked at again, enlarged; the other numbers are fitted with it
    # How like itself at the peak (a cosine) a thing must be for its track to go on beyond `extent_ratio`.
    like_itself: float | None = None
    # How like the surest sighting (a cosine) another must be; what is less so loses of its logit.
    like_surest: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("looks", 0), ("median", 1), ("box_median", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} must be a whole number, {least} or more, got {value}")
        cost = self.length_cost
        if not (isinstance(cost, (int, float)) and 0 <= cost < np.inf):
            raise ValueError(f"length_cost must be a number, 0 or more, got {cost!r}")
        for name in ("like_itself", "like_surest"):
            alike = getattr(self, name)
            if alike is not None and not (isinstance(alike, (int, float)) and 0 <= alike <= 1):
                raise ValueError(f"{name} must be a number from 0 to 1, or null, got {alike!r}")

    def scores(self, predictions: FramePredictions) -> np.ndarray:
        logits = np.array(predictions.logits, np.float64)
        for first, last, loss in predictions.doubts:
            logits[first : last + 1] -= loss
        return expit(self.gain * logits + self.shift)

    def confidence(self, peak_score: float, searched_s: float) -> float:
        """The chance that a track is right, of such a peak in so many seconds of video."""
        peak = logit(np.clip(peak_score, 1e-9, 1 - 1e-9))
        minutes = np.clip(searched_s, SHORTEST_S, LONGEST_S) / 60
        return float(expit(self.slope * (peak - self.length_cost * np.log(minutes)) + self.offset))


def all_tracks(predictions: FramePredictions, rule: TrackRule = TrackRule()) -> list[ResponseTrack]:
    """Every occurrence, in time order. Unlike the paper's rule, both ends of the video count."""
    if not len(predictions):
        return []
    scores = median_filter(rule.scores(predictions), rule.median, mode="nearest")
    # A rim of -1 makes a maximum at the first or last frame a peak like any other.
    peaks = find_peaks(np.pad(scores, 1, constant_values=-1.0))[0] - 1
    spans: list[tuple[int, int, float]] = []  # tracks only in the end: of a long one, peaks are thousands
    for peak in peaks[scores[peaks] >= rule.peak_ratio * scores.max()]:
        first, last = _extent(scores, peak, rule.extent_ratio * scores[peak])
        for start, end in predictions.spans:
            if start <= peak <= end:
                first, last = min(first, start), max(last, end)
        score = rule.confidence(scores[peak], len(predictions) / predictions.fps)
        while spans and first <= spans[-1][1] + 1:
            earlier = spans.pop()
            first, last, score = min(first, earlier[0]), max(last, earlier[1]), max(score, earlier[2])
        spans.append((first, last, score))
    return [_track(predictions, *span, rule.box_median) for span in spans if span[2] >= rule.threshold]


def last_track(predictions: FramePredictions, rule: TrackRule = TrackRule()) -> ResponseTrack | None:
    """The answer to "where did I last see this?", or None if it was not seen."""
    tracks = all_tracks(predictions, rule)
    return tracks[-1] if tracks else None


def paper_track(predictions: FramePredictions, query_frame: int) -> ResponseTrack:
    """The published post-processing, exactly: always answers, score 1, cannot extend to frame 0."""
    scores = medfilt(1 / (1 + np.exp(-np.asarray(predictions.logits, np.float32))), 5)
    peaks, _ = find_peaks(scores)
    if len(peaks):
        peak = int(peaks[scores[peaks] > 0.8 * scores[peaks].max()][-1])
    else:
        peak = 0 if scores[0] > scores[-1] else len(scores) - 1
    first = last = peak
    while first > 1 and scores[first - 1] >= 0.7 * scores[peak]:
        first -= 1
    while last + 1 < min(query_frame - 1, len(scores)) and scores[last + 1] >= 0.7 * scores[peak]:
        last += 1
    boxes = tuple(Box(*map(float, box)) for box in predictions.boxes_px[first : last + 1])
    return ResponseTrack(first_frame=first, fps=predictions.fps, boxes=boxes, score=1.0)


def _extent(scores: np.ndarray, peak: int, least: float) -> tuple[int, int]:
    below = np.flatnonzero(scores < least)
    before, after = below[below < peak], below[below > peak]
    return (
        int(before[-1]) + 1 if len(before) else 0,
        int(after[0]) - 1 if len(after) else len(scores) - 1,
    )


def _track(predictions: FramePredictions, first: int, last: int, score: float, median: int) -> ResponseTrack:
    boxes_px = np.asarray(predictions.boxes_px[first : last + 1], np.float64)
    # A median leaves steady motion alone (a mean would lag behind it) and drops single-frame jumps.
    boxes_px = median_filter(boxes_px, (median, 1), mode="nearest")
    boxes = tuple(Box(*map(float, box)) for box in boxes_px)
    return ResponseTrack(first_frame=first, fps=predictions.fps, boxes=boxes, score=score)

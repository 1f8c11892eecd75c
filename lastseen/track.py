"""What the model says of every frame, and what an answer is made of: unbroken runs of boxes."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from lastseen.box import Box
from lastseen.errors import TrackError

SCHEMA = "lastseen/track@1"
# What a file may claim; between two boxes of a track there are at most so many frames of its video.
LEAST_FPS, MOST_FPS, MOST_FRAMES = 0.01, 100_000.0, 2**40
MOST_PX = 1e6


@dataclass(frozen=True, kw_only=True)
class FramePredictions:
    """The best box and the model's logit on every sampled frame; frame i is at i / fps seconds.

    What the model said, and nothing else: refinement makes `Evidence` of it.
    """

    fps: float
    boxes_px: np.ndarray  # [T, 4] x1 y1 x2 y2
    logits: np.ndarray  # [T]; -inf where a search in an index did not run the model

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

    def delayed(self, frames: int) -> ResponseTrack:
        """The same in a video that has `frames` more at its beginning."""
        return replace(self, first_frame=self.first_frame + frames)

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
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise TrackError(f"malformed track: {shown_error(error)}") from None
        if not LEAST_FPS <= fps <= MOST_FPS:
            raise TrackError(f"malformed track: fps must be {LEAST_FPS:g} to {MOST_FPS:g}, got {fps:g}")
        if not all(abs(value) <= MOST_PX for box in boxes for value in box.xyxy) or not math.isfinite(score):
            raise TrackError(f"malformed track: boxes and score must be numbers, of boxes up to {MOST_PX:g}")
        if frames and not 0 <= frames[0] < MOST_FRAMES:
            raise TrackError("malformed track: a box is on no frame of a video")
        if not frames or frames != list(range(frames[0], frames[0] + len(frames))):
            raise TrackError("malformed track: box frames must be consecutive and at least one")
        return cls(first_frame=frames[0], fps=fps, boxes=boxes, score=score)

    @classmethod
    def from_json(cls, text: str) -> ResponseTrack:
        return cls.from_dict(parsed(text))


def parsed(text: str) -> Any:
    """JSON of an answer or a track; TrackError if it is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TrackError(f"not JSON: {error}") from None
    except RecursionError:
        raise TrackError("not an answer: lists within lists without end") from None
    except ValueError as error:  # a number of thousands of digits
        raise TrackError(f"not an answer: {shown_error(error)}") from None


def shown_error(error: Exception) -> str:
    """Kind and beginning of an error whose message may repeat all of a file."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 160 else f"{text[:160]}..."

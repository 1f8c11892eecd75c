"""How a video is cut into clips and predictions become an answer: our procedure, or the paper's.

Standard     overlapping clips; a rule decides; the answer can be "not seen"
Published    the paper's procedure with its defects, for parity: adjacent clips; always one track
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from scipy.signal import find_peaks, medfilt
from torch import Tensor

from lastseen.box import Box
from lastseen.refine import BeforeStep, FrameAccess
from lastseen.rule import Rule
from lastseen.sighting import Confidence, Evidence
from lastseen.track import FramePredictions, ResponseTrack


class Procedure(Protocol):
    @property
    def rule(self) -> Rule: ...
    @property
    def feature_dtype(self) -> torch.dtype:
        """Features are rounded to this type before use."""

    @property
    def reads_every_frame(self) -> bool:
        """Whether an index must run the model on every frame."""

    def context(self, model_context: int) -> int:
        """Frames at a clip's border whose predictions are taken from the neighbouring clip."""

    def clip(self, features: Tensor, clip_length: int) -> Tensor:
        """Prepare a clip, which may be shorter than `clip_length`, for the model."""

    def refine(
        self,
        predictions: FramePredictions | Evidence,
        video: FrameAccess,
        skip: Collection[str] = (),
        before_step: BeforeStep | None = None,
    ) -> Evidence:
        """`before_step` is called with each step before it runs, and with the evidence so far."""

    def tracks(self, evidence: Evidence) -> tuple[list[ResponseTrack], ResponseTrack | None]:
        """Tracks of the sightings in time order, and the best guess (None if there are no frames)."""


@dataclass(frozen=True)
class Standard:
    rule: Rule = Rule()
    # An index stores float16; fresh features are rounded the same, so that both give the same answers.
    feature_dtype = torch.float16
    reads_every_frame = False

    def context(self, model_context: int) -> int:
        return model_context

    def clip(self, features: Tensor, clip_length: int) -> Tensor:
        return features

    def refine(
        self,
        predictions: FramePredictions | Evidence,
        video: FrameAccess,
        skip: Collection[str] = (),
        before_step: BeforeStep | None = None,
    ) -> Evidence:
        return self.rule.refine(predictions, video, skip, before_step)

    def tracks(self, evidence: Evidence) -> tuple[list[ResponseTrack], ResponseTrack | None]:
        return self.rule.tracks(evidence)


@dataclass(frozen=True)
class Published:
    """As the published code, except that frames are resized with anti-aliasing."""

    rule = Rule(confidence=Confidence(threshold=0.0))  # always seen
    feature_dtype = torch.float32
    reads_every_frame = True

    def context(self, model_context: int) -> int:
        return 0

    def clip(self, features: Tensor, clip_length: int) -> Tensor:
        """Pads the last clip by repeating its last frame."""
        missing = clip_length - len(features)
        if missing <= 0:
            return features
        return torch.cat([features, features[-1:].expand(missing, *features.shape[1:])])

    def refine(
        self,
        predictions: FramePredictions | Evidence,
        video: FrameAccess,
        skip: Collection[str] = (),
        before_step: BeforeStep | None = None,
    ) -> Evidence:
        return predictions if isinstance(predictions, Evidence) else Evidence.of(predictions)

    def tracks(self, evidence: Evidence) -> tuple[list[ResponseTrack], ResponseTrack | None]:
        track = paper_track(evidence, query_frame=len(evidence))
        return [track], track


def paper_track(evidence: FramePredictions | Evidence, query_frame: int) -> ResponseTrack:
    """Exactly the published post-processing: always a track, with score 1; cannot extend to frame 0."""
    scores = medfilt(1 / (1 + np.exp(-np.asarray(evidence.logits, np.float32))), 5)
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
    boxes = tuple(Box(*map(float, box)) for box in evidence.boxes_px[first : last + 1])
    return ResponseTrack(first_frame=first, fps=evidence.fps, boxes=boxes, score=1.0)

"""How a rival's predictions become an answer, as a procedure of the Localizer.

RivalProcedure   the detectors: peak rule, then a tracker or our ends StarkProcedure   STARK: exactly VQLoC's
rule Both answer always. As published every answer has score 1; otherwise it has that of its own peak, so that
ranking is not mistaken for method.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from lastseen.baselines.tracking import Ends, Track, peak_of
from lastseen.box import Box
from lastseen.procedure import Published
from lastseen.refine import BeforeStep, FrameAccess
from lastseen.rule import Rule
from lastseen.sighting import Confidence, Evidence
from lastseen.track import FramePredictions, ResponseTrack


@dataclass(frozen=True)
class RivalProcedure:
    after_peak: Track | Ends
    constant_score: bool = False  # as published

    # Boxes are packed so that half precision holds them.
    feature_dtype = torch.float16
    reads_every_frame = True

    @property
    def rule(self) -> Rule:
        return Rule(confidence=Confidence(threshold=0.0), refinement=(self.after_peak,))

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
        if not len(evidence):
            return [], None
        smoothed = self.after_peak.peaks.smoothed(expit(np.asarray(evidence.logits, np.float64)))
        peak = peak_of(evidence, self.after_peak.peaks)
        if peak is None:
            peak = len(evidence) - 1
        # Before refinement the answer is the peak's frame alone.
        first, last = evidence.extents[0] if evidence.extents else (peak, peak)
        track = ResponseTrack(
            first_frame=first,
            fps=evidence.fps,
            boxes=tuple(Box(*map(float, box)) for box in evidence.boxes_px[first : last + 1]),
            score=1.0 if self.constant_score else float(smoothed[peak]),
        )
        return [track], track


@dataclass(frozen=True)
class StarkProcedure(Published):
    constant_score: bool = False  # as published

    def tracks(self, evidence: Evidence) -> tuple[list[ResponseTrack], ResponseTrack | None]:
        tracks, guess = super().tracks(evidence)
        if self.constant_score or guess is None:
            return tracks, guess
        scores = expit(np.asarray(evidence.logits, np.float64))
        ranked = replace(guess, score=float(scores[guess.first_frame : guess.last_frame + 1].max()))
        return [ranked], ranked

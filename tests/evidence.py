"""Evidence made by hand, and features of a video that need no video."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from lastseen.answer import Answer, ScoreCurve
from lastseen.box import Box, Letterbox
from lastseen.masks import BoxMask
from lastseen.query import Query
from lastseen.rule import Rule
from lastseen.sighting import Confidence, Evidence, Extraction
from lastseen.track import FramePredictions, ResponseTrack

FRAMES, SIDE = 100, 8
BOX = (40.0, 40.0, 80.0, 80.0)  # patches 2 and 3 of 8 in either direction
SQUARE = Letterbox.square(160, 160, 8 * 14)


@dataclass
class Features:
    """A FrameAccess of features alone."""

    features: torch.Tensor
    letterbox: Letterbox = SQUARE
    clip_length: int = 30
    frames_read: int = 0

    def vectors(self, start: int, stop: int) -> torch.Tensor:
        self.frames_read += stop - start
        return F.normalize(self.features[start:stop].float(), dim=1)

    def localize(self, window: Any) -> Any:
        raise AssertionError

    def pictures(self, start: int, stop: int) -> Any:
        raise AssertionError

    def segment(self, pictures: Any, boxes: Any) -> Any:
        raise AssertionError


def box_mask(picture: np.ndarray, bounds: Box | None, predicted_iou: float = 0.95) -> BoxMask:
    """As a segmenter says it: a mask that fills its bounds in a picture."""
    mask = np.zeros(picture.shape[:2], bool)
    if bounds is not None:
        x1, y1, x2, y2 = (max(0, round(side)) for side in bounds.xyxy)
        mask[y1:y2, x1:x2] = True
    return BoxMask(mask=mask, bounds=bounds, predicted_iou=predicted_iou)


def world(shown: range | set[int], *, cosine: float = 1.0) -> torch.Tensor:
    """Features in which the thing's patches, of two kinds, are in the box of some frames."""
    features = torch.zeros(FRAMES, 4, SIDE, SIDE)
    features[:, 3] = 1.0
    for frame in shown:
        features[frame, :, 2:4, 2:4] = torch.tensor([0, 0, np.sqrt(1 - cosine**2), 0])[:, None, None]
        features[frame, 0, 2:4, 2] = features[frame, 1, 2:4, 3] = cosine
    return features


def seen(first: int, last: int) -> Evidence:
    """One sighting."""
    logits = np.full(FRAMES, -5.0)
    logits[first : last + 1] = 2.0
    return Evidence(fps=5.0, boxes_px=np.tile(np.array(BOX), (FRAMES, 1)), logits=logits)


def rule(**fields: Any) -> Rule:
    """By the names of fields of the extraction and the confidence."""
    extraction = {k: v for k, v in fields.items() if k in Extraction.__dataclass_fields__}
    confidence = {k: v for k, v in fields.items() if k in Confidence.__dataclass_fields__}
    assert len(extraction) + len(confidence) == len(fields)
    return Rule(extraction=Extraction(**extraction), confidence=Confidence(**confidence))


def spans(evidence: Evidence, **fields: Any) -> list[tuple[int, int]]:
    tracks, _ = rule(**fields).tracks(evidence)
    return [(track.first_frame, track.last_frame) for track in tracks]


def answer_of(
    video: Any,
    tracks: Any,
    picture: np.ndarray | None = None,
    predictions: FramePredictions | None = None,
    *,
    guess: ResponseTrack | None = None,
    model: str = "",
) -> Answer:
    """An answer out of its parts; `predictions` for the score over time."""
    curve = None
    if predictions is not None:
        extraction = Extraction()
        scores = extraction.scores(Evidence.of(predictions))
        searched = np.isfinite(predictions.logits)
        curve = ScoreCurve(
            fps=predictions.fps,
            boxes_px=predictions.boxes_px,
            scores=scores,
            smooth=extraction.smooth(scores),
            searched=searched,
        )
    return Answer(
        video=video,
        sightings=tuple(tracks),
        best_guess=guess,
        query=None if picture is None else Query.from_array(picture),
        curve=curve,
        model=model,
    )

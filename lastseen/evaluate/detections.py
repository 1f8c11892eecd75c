"""Published detections, one file a question, through the rivals' peak rule and a tracker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import logit

from lastseen.baselines.procedure import RivalProcedure
from lastseen.baselines.published import detections_file, read_detections
from lastseen.baselines.stored import AfterPeak, after_peak_of
from lastseen.datasets import AbsentQuestion, Annotations, ClipAnnotation, Question, VideoSection
from lastseen.evaluate.benchmark import open_section, run_answers, to_annotated_px
from lastseen.progress import Tell
from lastseen.sighting import Evidence
from lastseen.track import ResponseTrack
from lastseen.video import Video
from lastseen.weights import bundled_model, load_model


@dataclass(frozen=True)
class VideoPictures:
    video: Video
    fps: float

    def pictures(self, start: int, stop: int) -> Iterator[np.ndarray]:
        with closing(self.video.frames(self.fps, start / self.fps, stop / self.fps)) as frames:
            for frame in frames:
                yield frame.image


def detections_procedure(
    least_score: float, tracker: str | None, tracker_weights: Path | None, device: torch.device
) -> RivalProcedure:
    """As published, every answer with score 1. The particle filter looks with the bundled model's
    backbone."""
    backbone = load_model(bundled_model()).backbone.to(device) if tracker in (None, "particles") else None
    after = AfterPeak(least_score=least_score)
    return RivalProcedure(
        after_peak_of(after, tracker, tracker_weights, backbone, device), constant_score=True
    )


def run_detections(
    folder: Path,
    procedure: RivalProcedure,
    annotations: Annotations,
    videos: str | Path,
    out: str | Path,
    *,
    progress: Tell | None = None,
) -> dict[str, Any]:
    """Answer every question from its file of detections, write the challenge file `out` and return its
    content. It can be interrupted and resumed."""
    for question in annotations.questions:  # before long work
        detections_file(folder, *question.key)
    made_by = hashlib.sha256(repr((str(folder), procedure)).encode()).hexdigest()
    answer = partial(_answer_clip, folder, procedure)
    return run_answers(answer, made_by, annotations, videos, out, progress=progress)


def _answer_clip(
    folder: Path,
    procedure: RivalProcedure,
    clip: ClipAnnotation,
    section: VideoSection,
    questions: Sequence[Question | AbsentQuestion],
) -> list[ResponseTrack]:
    video = open_section(section)
    return [
        answered(folder, procedure, question, video, clip.fps)
        for question in questions
        if isinstance(question, Question)
    ]


def answered(
    folder: Path, procedure: RivalProcedure, question: Question, video: Video, fps: float
) -> ResponseTrack:
    """The answer to one question, in pixels of the annotated frame size."""
    found = read_detections(detections_file(folder, *question.key))
    end = max(1, min(question.query_frame, len(found.scores), video.frame_count(fps)))
    scale = to_annotated_px(question, video)
    evidence = Evidence(
        fps=fps,
        boxes_px=found.boxes_px[:end] / np.array(scale * 2),
        logits=logit(found.scores[:end].clip(1e-9, 1 - 1e-9)),
    )
    evidence = procedure.after_peak.followed(evidence, VideoPictures(video, fps))
    _, track = procedure.tracks(evidence)
    assert track is not None
    return replace(track, boxes=tuple(box.scaled(*scale) for box in track.boxes))

"""EgoTracks annotation files: the VQ2D tree in which a query set may carry every occurrence.

`lt_track` holds all boxes of the thing in the clip, also after the question; it becomes
`Question.occurrences`, one ResponseTrack for each unbroken run. Not every query set has one.
`visual_clip` (more boxes around the visual crop) is not read: nothing here asks for it.
"""

from __future__ import annotations

from pathlib import Path

from lastseen.datasets import Annotations, Question
from lastseen.datasets.vq2d import load_vq2d
from lastseen.errors import AnnotationError
from lastseen.track import ResponseTrack


def load_egotracks(path: str | Path) -> Annotations:
    """Read an EgoTracks file; one without any occurrence is something else."""
    annotations = load_vq2d(path)
    if not any(question.occurrences for question in annotations.questions):
        raise AnnotationError(
            f'{path}: no valid query set has an "lt_track", so this is not an EgoTracks file; '
            "load it as a VQ2D file"
        )
    return annotations


def known_occurrences(question: Question) -> tuple[ResponseTrack, ...]:
    """Where the thing is known to be in view: every occurrence, or else the one true answer."""
    if question.occurrences:
        return question.occurrences
    return (question.truth,) if question.truth else ()

"""EgoTracks annotation files: the VQ2D schema, in which a query set may have every occurrence of the thing.

`lt_track` holds all boxes of the thing in the clip, also those after the question. It becomes
`Question.occurrences`, one ResponseTrack per contiguous run of frames. Not every query set has one.
`load_vq2d` reads it, too: if such a query set has no `response_track`, its true answer is the last
occurrence before `query_frame` or, without a `query_frame`, before the end of the clip.
`visual_clip` (more boxes around the visual crop) is not used.
"""

from __future__ import annotations

from pathlib import Path

from lastseen.datasets import Annotations, Question
from lastseen.datasets.vq2d import load_vq2d
from lastseen.errors import AnnotationError
from lastseen.track import ResponseTrack


def load_egotracks(path: str | Path) -> Annotations:
    """Read an EgoTracks file; raises an AnnotationError if no query set has an `lt_track`."""
    annotations = load_vq2d(path)
    if not any(question.occurrences for question in annotations.questions):
        raise AnnotationError(
            f'{path}: no valid query set has an "lt_track", so this is not an EgoTracks file; '
            "load it as a VQ2D file"
        )
    return annotations


def known_occurrences(question: Question) -> tuple[ResponseTrack, ...]:
    """The tracks in which the thing is known to be in view: every occurrence, or else the true answer."""
    if question.occurrences:
        return question.occurrences
    return (question.truth,) if question.truth else ()

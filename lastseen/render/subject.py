"""What a rendered answer shows: the video, one track, and the query."""

from __future__ import annotations

import numpy as np

from lastseen.answer import Answer
from lastseen.track import ResponseTrack
from lastseen.video import Video


def video_of(answer: Answer) -> Video:
    if not isinstance(answer.video, Video):
        raise TypeError(
            f"pictures need the video itself: replace(answer, video=Video({str(answer.video.path)!r}))"
        )
    return answer.video


def track_of(answer: Answer) -> ResponseTrack:
    """The last sighting, or else the best guess."""
    if not answer.shown:
        raise ValueError("the answer has no sighting and no guess to draw")
    return answer.shown[-1]


def thing_of(answer: Answer) -> np.ndarray | None:
    """The crop of the query's thing, [h, w, 3]; None if there is no query."""
    return answer.query.views[0].crop if answer.query else None

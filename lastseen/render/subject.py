"""What a rendered answer shows: the video, one track, and the query."""

from __future__ import annotations

import numpy as np

from lastseen.answer import Answer
from lastseen.errors import OutputError, VideoError
from lastseen.track import ResponseTrack
from lastseen.video import Video


def video_of(answer: Answer) -> Video:
    """The video itself, to draw on; if the answer has only facts about it, the file that they are about."""
    known = answer.video
    if isinstance(known, Video):
        return known
    try:
        video = Video(known.path, allow_truncated=True)
    except VideoError as error:
        raise OutputError(f"{error}; there is nothing to draw the answer on") from None
    if (video.width, video.height) != (known.width, known.height) or known.duration_s > video.duration_s + 1:
        raise OutputError(f"{known.path} is not the video of this answer any more; nothing to draw on")
    return video


def track_of(answer: Answer) -> ResponseTrack:
    """The last sighting, or else the best guess."""
    if not answer.shown:
        raise OutputError("the thing was not seen, and there is not even a guess to draw")
    return answer.shown[-1]


def thing_of(answer: Answer) -> np.ndarray | None:
    """The crop of the query's thing, [h, w, 3]; None if there is no query."""
    return answer.query.views[0].crop if answer.query else None

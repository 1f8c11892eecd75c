"""Videos of an answer: the track with or without its boxes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from lastseen.answer import Answer
from lastseen.files import check_apart
from lastseen.render.still import draw_answer
from lastseen.render.subject import thing_of, track_of, video_of
from lastseen.track import ResponseTrack
from lastseen.video import Video, VideoWriter
from lastseen.words import clock

MARGIN_S = 2.0  # shown before and after the track
FASTEST = 30.0  # frames per second, at most


def write_video(path: str | os.PathLike[str], answer: Answer, margin_s: float = MARGIN_S) -> None:
    """The track with its boxes and a margin before and after, at the video's frame rate."""
    check_apart([("", path)], [answer.video.path])
    _write(path, video_of(answer), track_of(answer), margin_s, boxes=True, thing=thing_of(answer))


def write_cutout(
    path: str | os.PathLike[str], answer: Answer, margin_s: float = MARGIN_S, *, boxes: bool = False
) -> None:
    """The track and a margin before and after, without boxes unless `boxes`, and without sound."""
    check_apart([("", path)], [answer.video.path])
    _write(path, video_of(answer), track_of(answer), margin_s, boxes=boxes, thing=None)


def _write(
    path: str | os.PathLike[str],
    video: Video,
    track: ResponseTrack,
    margin_s: float,
    *,
    boxes: bool,
    thing: np.ndarray | None,
) -> None:
    fps = min(video.fps, FASTEST)
    start, end = max(0.0, track.start - margin_s), min(video.duration_s, track.end + 1 / track.fps + margin_s)
    with VideoWriter(Path(path), video.width, video.height, fps) as writer:
        for frame in video.frames(fps, start_s=start, end_s=end):
            image = frame.image
            if boxes:
                image = draw_answer(image, track.box_at(frame.time_s), clock(frame.time_s), thing)
            writer.write(image)

"""Index a camera or a stream while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from lastseen.errors import IndexStoreError, VideoError
from lastseen.index.entry import COMPACT, LIVE
from lastseen.index.folder import IndexFolder
from lastseen.index.record import ADDED, Recording
from lastseen.index.recorder import COMMIT_S, Recorder, checked_keep, drop_older
from lastseen.localizer import Localizer
from lastseen.progress import READING, Progress, Tell
from lastseen.video import Frame
from lastseen.video.dates import SAID
from lastseen.video.sources import LiveVideo, stream_key

NOT_COMPACT = "a stream cannot be decoded again, so all its tokens are kept: leave out --keep compact"


def record_live(
    index: IndexFolder,
    localizer: Localizer,
    address: str,
    *,
    keep: str | None = None,
    name: str | None = None,
    keep_hours: float | None = None,
    minutes: float | None = None,
    timeout_s: float = 10.0,
    commit_s: float = COMMIT_S,
    progress: Tell | None = None,
) -> Recording:
    """Index a camera or a stream until it ends, `minutes` have passed or Ctrl-C is pressed.

    Each run is a separate video. With `keep_hours`, older frames are dropped, also those of earlier runs. If
    the stream fails, the frames so far are kept and `Recording.broke_off` gives the reason.
    """
    index.bind(localizer)
    keep = checked_keep(localizer, keep)
    if keep == COMPACT:
        raise IndexStoreError(NOT_COMPACT)
    until = None if minutes is None else time.monotonic() + 60 * minutes
    with LiveVideo(address, localizer.fps, timeout_s=timeout_s) as live:
        frames = live.frames()
        first = next(frames, None)
        if first is None:
            raise VideoError(f"{live.address}: ended before the first picture came")
        began = time.time()
        height, width = first.image.shape[:2]
        date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began))
        video = index.catalogue.add(
            f"{name or live.address} {date}",
            source=live.address,  # secrets removed
            kind=LIVE,
            identity=f"{LIVE}:{stream_key(address)}:{time.time_ns()}",
            width=width,
            height=height,
            fps=localizer.fps,
            duration_s=0.0,
            recorded_at=began,
            dated_by=SAID,
            keep=keep,
        )
        with index.writing(video):
            recorder = Recorder(index, localizer, video, commit_s=commit_s)
            skipped, broke_off = 0, None
            try:
                for features, lost in _live_features(localizer, first, frames):
                    recorder.append(features)
                    skipped += lost
                    drop_older(recorder, keep_hours)
                    if progress:
                        progress(Progress(READING, recorder.end, recorder.end))
                    if until is not None and time.monotonic() > until:
                        break
            except KeyboardInterrupt:
                pass  # Ctrl-C ends a recording
            except VideoError as error:
                broke_off = str(error)
            finally:
                recorder.commit(complete=1, duration_s=recorder.end / localizer.fps)
    return Recording(recorder.video, ADDED, skipped, broke_off)


def _live_features(
    localizer: Localizer, first: Frame, frames: Iterator[Frame]
) -> Iterator[tuple[Tensor, int]]:
    """Features of consecutive samples, and how many of them were lost: a lost sample repeats the features of
    the one before it."""
    batch: list[Frame] = []
    last: Tensor | None = None
    reached = -1
    failure: VideoError | None = None
    pictures = chain([first], frames)
    while failure is None:
        try:
            frame = next(pictures, None)
        except VideoError as error:
            frame, failure = None, error  # raised after the frames before it are encoded
        if frame is not None:
            batch.append(frame)
        if batch and (frame is None or len(batch) == localizer.batch):
            rows, last = _filled(localizer, batch, last, reached)
            yield rows, len(rows) - len(batch)
            reached, batch = batch[-1].index, []
        if frame is None:
            break
    if failure is not None:
        raise failure


def _filled(
    localizer: Localizer, batch: Sequence[Frame], last: Tensor | None, reached: int
) -> tuple[Tensor, Tensor]:
    features = localizer.encode_pictures([frame.image for frame in batch])
    held = torch.cat([features[:1] if last is None else last, features])
    order: list[int] = []
    for number, frame in enumerate(batch, 1):
        order += [number - 1] * (frame.index - reached - 1) + [number]
        reached = frame.index
    return held[order], features[-1:]

"""Read video files as frames sampled at a constant rate, and write images as video files.

    Video(path).frames(fps=5)  ->  Frame, Frame, ...     sample n: the frame displayed at n / fps seconds
    VideoWriter(path, ...)     <-  image, image, ...     an mp4 that is complete or not there

Only this package imports a decoder (PyAV), and only when a video is opened. Times are the file's own
timestamps, counted from its first frame: frame number / average rate can be a second off at variable frame
rates.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lastseen.errors import VideoError
from lastseen.video.ahead import done_ahead
from lastseen.video.decoding import opened
from lastseen.video.losses import Timed
from lastseen.video.writer import VideoWriter as VideoWriter

if TYPE_CHECKING:
    from _typeshed import StrPath
    from av import VideoFrame

ROUNDING_S = 0.001 + 1e-9  # some containers round timestamps to a millisecond (and we add floats)
TRUNCATED_S = 1.0  # frames may end this much before the header says so; more is damage
SEEK_BACK_S = (0.0, 1.0, 4.0, 16.0, 64.0)  # tried in turn until a seek lands before the wanted frame
# A frame stays on display for so long at most. A longer pause is a damaged timestamp, since cameras that take
# a picture now and then do so more often; a damaged one can mean years of samples.
LONGEST_PAUSE_S = 3600.0
# A file with fewer bytes a second (a video call of stamp size has five times as many) is looked through for
# such pauses before it is read.
SPARSE_BYTES = 1000


@dataclass(frozen=True, eq=False)
class Frame:
    """One sampled picture; times count from the start of its Video."""

    index: int  # sample number: time_s is index / fps
    time_s: float
    image: np.ndarray  # [H, W, 3] uint8 RGB, upright
    readable: bool = True  # False: what was on display then cannot be decoded; the image is an earlier one
    lost_before: int = 0  # samples left out since the frame before (`every`) that cannot be decoded


class Video:
    """A video file, or the section [start_s, end_s) of one; times inside count from `start_s`.

    The file is checked here but not kept open: a Video can be pickled, and read several times at once.
    `width` and `height` are of the upright picture, with pixels as stored (a sample aspect ratio is not
    applied). `fps` is nominal: sampling goes by timestamps. `duration_s` is measured, not the header's.
    """

    def __init__(
        self, path: StrPath, *, start_s: float = 0, end_s: float | None = None, allow_truncated: bool = False
    ) -> None:
        self.path, self.start_s, self.allow_truncated = Path(path), float(start_s), allow_truncated
        if not 0 <= start_s < math.inf:
            raise VideoError(f"{path}: cannot start at {start_s} s; choose a start_s of 0 or more")
        if end_s is not None and not end_s > start_s:
            raise VideoError(f"{path}: ends at {end_s} s but starts at {start_s} s; choose a later end_s")
        self._file = file = _inspect(self.path)
        until_s = math.inf if end_s is None else end_s
        if min(until_s, file.promised_s) > file.end_s + TRUNCATED_S and not allow_truncated:
            raise _truncated(self.path, file.end_s, file.promised_s)
        if start_s >= file.end_s:
            raise VideoError(f"{path}: ends at {file.end_s:.3f} s, before start_s ({start_s}); lower start_s")
        self.duration_s = min(until_s, file.end_s) - self.start_s
        self.width, self.height = (file.width, file.height)[:: -1 if file.quarter_turns % 2 else 1]
        self.fps = file.fps

    def frame_count(self, fps: float = 5.0) -> int:
        """How many frames `frames(fps)` yields (fewer only if the end is damaged and that is allowed)."""
        if not 0 < fps < math.inf:
            raise VideoError(f"{self.path}: cannot sample at {fps} frames per second; choose a positive rate")
        return max(1, _samples_before(self.duration_s, fps))

    def frames(
        self,
        fps: float = 5.0,
        start_s: float = 0.0,
        end_s: float | None = None,
        *,
        ahead: int = 0,
        every: int = 1,
    ) -> Generator[Frame, None, None]:
        """The samples n with start_s <= n / fps < end_s, decoded one at a time.

        Numbers do not depend on `start_s`: parts read one by one join to the whole. A frame is repeated
        if the video is slower than `fps` or pauses. Up to `ahead` frames are decoded, by other threads,
        before they are asked for. With `every`, of each so many samples only the first is returned, and the
        last of all; the others are decoded, but not converted.
        """
        stop = self.frame_count(fps)
        if end_s is not None and end_s < self.duration_s:
            stop = _samples_before(end_s, fps)
        numbers = range(_samples_before(min(start_s, self.duration_s), fps), stop)
        return self._frames(numbers, fps, ahead) if every == 1 else self._some(numbers, fps, ahead, every)

    def frame_at(self, time_s: float) -> Frame:
        """The frame on display at one moment, found by seeking; its index is 0."""
        if not 0 <= time_s <= self.duration_s:
            raise VideoError(f"{self.path}: no frame at {time_s} s; choose 0 to {self.duration_s:.3f} s")
        for image, readable in self._images([time_s]):
            return Frame(0, time_s, image, readable)
        raise VideoError(f"{self.path}: damaged at {time_s} s; choose an earlier moment")

    def _frames(self, numbers: range, fps: float, ahead: int) -> Generator[Frame, None, None]:
        with closing(self._images((n / fps for n in numbers), ahead)) as images:
            for n, (image, readable) in zip(numbers, images):
                yield Frame(n, n / fps, image, readable)

    def _some(self, numbers: range, fps: float, ahead: int, every: int) -> Generator[Frame, None, None]:
        def chosen() -> Generator[tuple[VideoFrame, int, bool, int], None, None]:
            left, lost = iter(numbers), 0
            with closing(self._shown(n / fps for n in numbers)) as shown:
                for frame, times, readable in shown:
                    for n in islice(left, times):
                        if n % every == 0 or n == numbers[-1]:
                            yield frame, n, readable, lost
                            lost = 0
                        else:
                            lost += not readable

        def converted(item: tuple[VideoFrame, int, bool, int]) -> Frame:
            frame, n, readable, lost = item
            return Frame(n, n / fps, self._file.upright(frame), readable, lost)

        # One worker: a frame that is on display for long may be converted several times.
        yield from done_ahead(chosen(), converted, depth=max(1, ahead), workers=1)

    def _images(
        self, times_s: Iterable[float], ahead: int = 0
    ) -> Generator[tuple[np.ndarray, bool], None, None]:
        """The image displayed at each of the times, which must ascend, and whether it could be decoded."""
        shown = self._shown(times_s)
        pictures: Iterator[tuple[np.ndarray, int, bool]] = map(self._picture, shown)
        if ahead:
            # The decoder has its own threads; the conversion to RGB would stall it, so others do that.
            pictures = done_ahead(shown, self._picture, depth=ahead, workers=min(4, os.cpu_count() or 1))
        for image, times, readable in pictures:
            yield image, readable
            for _ in range(times - 1):
                yield image.copy(), readable  # a repeated frame is never shared

    def _picture(self, shown: tuple[VideoFrame, int, bool]) -> tuple[np.ndarray, int, bool]:
        return self._file.upright(shown[0]), *shown[1:]

    def _shown(self, times_s: Iterable[float]) -> Generator[tuple[VideoFrame, int, bool], None, None]:
        """Frames displayed at one or more of the times, each with the number of those times, and whether it
        is what should have been displayed."""
        wanted = (self.start_s + time_s + ROUNDING_S for time_s in times_s)
        next_s, until_s = next(wanted, None), 0.0
        if next_s is None:
            return
        with _frames_from(self.path, self._file.origin_s, next_s) as frames:
            for frame, until_s, readable in _displayed(self.path, self._file, frames):
                times = 0
                while next_s is not None and next_s < until_s:
                    next_s, times = next(wanted, None), times + 1
                if times:  # only what was asked for is converted
                    yield frame, times, readable
                if next_s is None:
                    return
        if not self.allow_truncated:
            raise _truncated(self.path, until_s, self._file.end_s)


@dataclass(frozen=True)
class _File:
    """Properties of a file; seconds count from the first frame."""

    width: int  # as stored
    height: int
    quarter_turns: int  # counterclockwise, as np.rot90 counts, from stored to upright
    fps: float
    origin_s: float  # the first frame's own timestamp
    last_s: float  # when the last frame starts
    end_s: float  # when it ends
    promised_s: float  # when it ends according to the header

    def upright(self, frame: VideoFrame) -> np.ndarray:
        # A fixed size keeps one coordinate system if the stream changes its size midway.
        stored = frame.to_ndarray(format="rgb24", width=self.width, height=self.height, threads=1)
        return np.ascontiguousarray(np.rot90(stored, self.quarter_turns))


def _inspect(path: Path) -> _File:
    with opened(path) as source:
        frame, first_s, origin_s = None, 0.0, math.inf
        for first_s, frame, _ in source.frames():
            origin_s = min(origin_s, first_s)
            if frame is not None:
                break
        if frame is None:
            raise VideoError(f"{path}: none of its {source.codec} frames can be decoded; copy it again")
        if source.header_guesses:  # recordings of broadcasts begin in the middle: that is no damage
            origin_s = first_s
        # In AVI, frames lag behind their packets by a constant.
        start_s = source.header_start_s if source.is_avi else origin_s
    # The last seconds are enough to find the end of an intact file; a damaged one is read through.
    for skip_to_s in (source.header_end_s - 2, -math.inf):
        with opened(path) as source:
            last_s, end_s, reached_s = source.extent(skip_to_s)
        if math.isfinite(end_s):
            break
    if not end_s > start_s:
        raise _backwards(path)
    if end_s - last_s > LONGEST_PAUSE_S:
        raise _jump(path, last_s - start_s, end_s - last_s)
    if path.stat().st_size < SPARSE_BYTES * (end_s - start_s - LONGEST_PAUSE_S):
        with opened(path) as source:
            pause_s, at_s = source.gap()
        if pause_s > LONGEST_PAUSE_S:
            raise _jump(path, at_s - start_s, pause_s)
    is_cut = reached_s < source.header_end_s - TRUNCATED_S and not source.header_guesses
    promised_s = source.header_end_s if is_cut else end_s
    turns, times_s = round(frame.rotation / 90) % 4, (last_s - start_s, end_s - start_s, promised_s - start_s)
    return _File(frame.width, frame.height, turns, source.fps, origin_s, *times_s)


def _displayed(path: Path, file: _File, frames: Iterator[Timed]) -> Iterator[tuple[VideoFrame, float, bool]]:
    """Each frame, when the next one replaces it, and whether it could be decoded, from the first frame on.

    Where a frame could not be decoded, the one before it stays; before the first one, the first is shown.
    """
    shown, shown_s, readable = None, -math.inf, True
    for stamp_s, frame, is_whole in frames:
        start_s = stamp_s - file.origin_s
        if start_s < shown_s - TRUNCATED_S:
            raise _backwards(path)
        if start_s <= shown_s or (shown is None and frame is None):
            continue
        if start_s - shown_s > LONGEST_PAUSE_S and shown is not None:
            raise _jump(path, shown_s, start_s - shown_s)
        if shown is not None:
            yield shown, start_s, readable
        elif frame is not None and start_s > ROUNDING_S:
            yield frame, start_s, False
        shown, shown_s, readable = (shown if frame is None else frame), start_s, is_whole
    if shown is not None:
        until_s = math.inf if shown_s > file.last_s - TRUNCATED_S else shown_s + 1 / file.fps
        yield shown, until_s, readable


@contextmanager
def _frames_from(path: Path, origin_s: float, time_s: float) -> Iterator[Iterator[Timed]]:
    """Frames from a keyframe at or before time_s, or at worst from the beginning."""
    backs_s = [back_s for back_s in SEEK_BACK_S if back_s < time_s - ROUNDING_S]
    with opened(path) as source:
        if not (backs_s and source.can_seek):
            yield source.frames()
            return
        for back_s in backs_s:
            source.seek(origin_s + time_s - back_s)
            frames = source.frames(from_keyframe=True)
            first = next((timed for timed in frames if timed.frame is not None), None)
            if first is not None and first.stamp_s <= origin_s + time_s:
                yield chain((first,), frames)
                return
    with opened(path) as source:
        yield source.frames()


def _samples_before(time_s: float, fps: float) -> int:
    """How many n >= 0 have n / fps < time_s; the slack is for times that were rounded up."""
    return max(0, math.ceil(time_s * fps - min(ROUNDING_S * fps, 0.5)))


def _backwards(path: Path) -> VideoError:
    return VideoError(f"{path}: its timestamps run backwards; repair it with: ffmpeg -i IN -c copy OUT.mp4")


def _jump(path: Path, at_s: float, pause_s: float) -> VideoError:
    return VideoError(
        f"{path}: at {at_s:.1f} s its timestamps jump by {pause_s:.0f} s; "
        "give its frames new ones: ffmpeg -i IN -vf setpts=N/25/TB -r 25 OUT.mp4 (25: its frames a second)"
    )


def _truncated(path: Path, readable_s: float, promised_s: float) -> VideoError:
    extent = f"readable up to {readable_s:.1f} s of {promised_s:.1f} s"
    remedy = "pass allow_truncated=True (--allow-truncated) to search the readable part"
    return VideoError(f"{path}: cut off or damaged, {extent}; copy it again, or {remedy}")

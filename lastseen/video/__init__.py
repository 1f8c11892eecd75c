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
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from lastseen.errors import VideoError
from lastseen.video.ahead import done_ahead
from lastseen.video.writer import VideoWriter as VideoWriter

if TYPE_CHECKING:
    from _typeshed import StrPath
    from av import Packet, VideoFrame, VideoStream
    from av.container import InputContainer

    TimedFrames = Iterator[tuple[float, VideoFrame]]  # each with its timestamp in the file, in seconds

ROUNDING_S = 0.001 + 1e-9  # some containers round timestamps to a millisecond (and we add floats)
TRUNCATED_S = 1.0  # frames may end this much before the header says so; more is damage
SEEK_BACK_S = (0.0, 1.0, 4.0, 16.0, 64.0)  # tried in turn until a seek lands before the wanted frame
_NO_TIMESTAMPS, _TS_DISCONT = 0x80, 0x200  # libavformat's AVFMT_ flags; PyAV's enum is not an int


@dataclass(frozen=True, eq=False)
class Frame:
    """One sampled picture; times count from the start of its Video."""

    index: int  # sample number: time_s is index / fps
    time_s: float
    image: np.ndarray  # [H, W, 3] uint8 RGB, upright


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
        self, fps: float = 5.0, start_s: float = 0.0, end_s: float | None = None, *, ahead: int = 0
    ) -> Generator[Frame, None, None]:
        """The samples n with start_s <= n / fps < end_s, decoded one at a time.

        Numbers do not depend on `start_s`: parts read one by one join to the whole. A frame is repeated
        if the video is slower than `fps` or pauses. Up to `ahead` frames are decoded, by other threads,
        before they are asked for.
        """
        stop = self.frame_count(fps)
        if end_s is not None and end_s < self.duration_s:
            stop = _samples_before(end_s, fps)
        numbers = range(_samples_before(min(start_s, self.duration_s), fps), stop)
        return self._frames(numbers, fps, ahead)

    def frame_at(self, time_s: float) -> Frame:
        """The frame on display at one moment, found by seeking; its index is 0."""
        if not 0 <= time_s <= self.duration_s:
            raise VideoError(f"{self.path}: no frame at {time_s} s; choose 0 to {self.duration_s:.3f} s")
        for image in self._images([time_s]):
            return Frame(0, time_s, image)
        raise VideoError(f"{self.path}: damaged at {time_s} s; choose an earlier moment")

    def _frames(self, numbers: range, fps: float, ahead: int) -> Generator[Frame, None, None]:
        with closing(self._images((n / fps for n in numbers), ahead)) as images:
            for n, image in zip(numbers, images):
                yield Frame(n, n / fps, image)

    def _images(self, times_s: Iterable[float], ahead: int = 0) -> Generator[np.ndarray, None, None]:
        """The image displayed at each of the times, which must ascend."""
        shown = self._shown(times_s)
        pictures: Iterator[tuple[np.ndarray, int]] = map(self._picture, shown)
        if ahead:
            # The decoder has its own threads; the conversion to RGB would stall it, so others do that.
            pictures = done_ahead(shown, self._picture, depth=ahead, workers=min(4, os.cpu_count() or 1))
        for image, times in pictures:
            yield image
            for _ in range(times - 1):
                yield image.copy()  # a repeated frame is never shared

    def _picture(self, shown: tuple[VideoFrame, int]) -> tuple[np.ndarray, int]:
        return self._file.upright(shown[0]), shown[1]

    def _shown(self, times_s: Iterable[float]) -> Generator[tuple[VideoFrame, int], None, None]:
        """Frames displayed at one or more of the times, each with the number of those times."""
        wanted = (self.start_s + time_s + ROUNDING_S for time_s in times_s)
        next_s, until_s = next(wanted, None), 0.0
        if next_s is None:
            return
        with _frames_from(self.path, self._file.origin_s, next_s) as frames:
            for frame, until_s in _displayed(self.path, self._file, frames):
                times = 0
                while next_s is not None and next_s < until_s:
                    next_s, times = next(wanted, None), times + 1
                if times:  # only what was asked for is converted
                    yield frame, times
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
    with _opened(path) as source:
        origin_s, frame = next(source.frames(), (0.0, None))
        if frame is None:
            raise VideoError(f"{path}: none of its {source.codec} frames can be decoded; copy it again")
        # In AVI, frames lag behind their packets by a constant.
        start_s = source.header_start_s if source.is_avi else origin_s
    # The last seconds are enough to find the end of an intact file; a damaged one is read through.
    for skip_to_s in (source.header_end_s - 2, -math.inf):
        with _opened(path) as source:
            last_s, end_s, reached_s = source.extent(skip_to_s)
        if math.isfinite(end_s):
            break
    if not end_s > start_s:
        raise _backwards(path)
    is_cut = reached_s < source.header_end_s - TRUNCATED_S and not source.header_guesses
    promised_s = source.header_end_s if is_cut else end_s
    turns, times_s = round(frame.rotation / 90) % 4, (last_s - start_s, end_s - start_s, promised_s - start_s)
    return _File(frame.width, frame.height, turns, source.fps, origin_s, *times_s)


def _displayed(path: Path, file: _File, frames: TimedFrames) -> Iterator[tuple[VideoFrame, float]]:
    """Each frame and when the next one replaces it, from the first frame on."""
    shown, shown_s = None, -math.inf
    for stamp_s, frame in frames:
        start_s = stamp_s - file.origin_s
        if start_s < shown_s - TRUNCATED_S:
            raise _backwards(path)
        if start_s > shown_s:
            if shown is not None:
                yield shown, start_s
            shown, shown_s = frame, start_s
    if shown is not None:
        yield shown, math.inf if shown_s > file.last_s - TRUNCATED_S else shown_s + 1 / file.fps


@contextmanager
def _frames_from(path: Path, origin_s: float, time_s: float) -> Iterator[TimedFrames]:
    """Frames from a keyframe at or before time_s, or at worst from the beginning."""
    backs_s = [back_s for back_s in SEEK_BACK_S if back_s < time_s - ROUNDING_S]
    with _opened(path) as source:
        if not (backs_s and source.can_seek):
            yield source.frames()
            return
        for back_s in backs_s:
            source.seek(origin_s + time_s - back_s)
            frames = source.frames(from_keyframe=True)
            first = next(frames, None)
            if first is not None and first[0] <= origin_s + time_s:
                yield chain((first,), frames)
                return
    with _opened(path) as source:
        yield source.frames()


class _Source:
    """An open file and its main video stream; times are the file's own timestamps, in seconds."""

    def __init__(self, path: Path | str, container: InputContainer, av: ModuleType) -> None:
        self._av, self.container = av, container
        self.stream = stream = _main_stream(path, container)
        stream.thread_type, self.codec = "AUTO", stream.codec_context.name
        self.fps = float(stream.average_rate or stream.guessed_rate or 25)
        self.time_base = float(stream.time_base or 1)
        self.header_start_s = (stream.start_time or 0) * self.time_base
        self.header_end_s = -math.inf if container.duration is None else container.duration / 1e6
        if stream.duration is not None:  # else it is the end of the longest stream
            self.header_end_s = self.header_start_s + stream.duration * self.time_base
        # A raw stream has no timestamps: frames are counted. AVI has none for presentation, and those
        # made up for its B-frames are out of order; its decode-order stamps advance steadily.
        self.is_raw = bool(container.format.flags & _NO_TIMESTAMPS)
        self.is_avi = container.format.name == "avi"
        # MPEG program streams stamp few of their frames, and the rest is guessed anew after a seek.
        self.can_seek = not self.is_raw and container.format.name != "mpeg"
        self.header_guesses = bool(container.format.flags & (_NO_TIMESTAMPS | _TS_DISCONT))

    def seek(self, stamp_s: float) -> None:
        """Go to a keyframe before stamp_s; formats without an index may land after it."""
        with suppress(self._av.FFmpegError):  # then reading continues where it was
            self.container.seek(int(stamp_s / self.time_base), stream=self.stream)

    def packets(self, *streams: VideoStream) -> Iterator[Packet[Any]]:
        """Packets up to the last readable one."""
        for _ in range(1000):  # read on after damaged parts
            try:
                for packet in self.container.demux(*streams):
                    # Empty packets (PyAV's last, or AVI's "same picture again") would end decoding.
                    if packet.size:
                        yield packet
                return
            except (self._av.error.InvalidDataError, self._av.error.BlockingIOError):
                continue
            except IndexError:
                return  # PyAV at the end of a file in which another stream turned up late

    def frames(self, from_keyframe: bool = False) -> TimedFrames:
        """Decoded frames with their times, in display order."""
        stamp_s = -1 / self.fps
        for packet in chain(self.packets(self.stream), (None,)):
            # After a seek into the middle of a group, frames before the next keyframe are corrupt.
            if from_keyframe and packet is not None and not packet.is_keyframe:
                continue
            from_keyframe = False
            try:
                decoded = self.stream.codec_context.decode(packet)
            except self._av.FFmpegError:
                continue  # a damaged packet: the picture before it stays on display
            for frame in decoded:
                stamp_s = self._stamp_s(frame, stamp_s + 1 / self.fps)
                yield stamp_s, frame

    def extent(self, skip_to_s: float) -> tuple[float, float, float]:
        """Start and end of the last frame, and the end according to the header; nothing is decoded."""
        if self.can_seek and skip_to_s > self.header_start_s:
            self.seek(skip_to_s)
        last_s = end_s = other_s = stamp_s = -math.inf
        for packet in self.packets():
            if packet.stream_index == self.stream.index and not packet.is_discard:
                stamp_s = self._stamp_s(packet, max(0.0, stamp_s + 1 / self.fps))
                last_s = max(last_s, stamp_s)
                end_s = max(end_s, stamp_s + ((packet.duration or 0) * self.time_base or 1 / self.fps))
            elif packet.pts is not None and self.stream.duration is None:
                other_s = max(other_s, float(packet.pts * packet.time_base))
        return last_s, end_s, max(other_s, end_s)

    def _stamp_s(self, item: Packet[Any] | VideoFrame, otherwise_s: float) -> float:
        ticks = item.dts if self.is_avi or item.pts is None else item.pts
        return otherwise_s if self.is_raw or ticks is None else ticks * self.time_base


@contextmanager
def _opened(path: Path) -> Iterator[_Source]:
    try:
        import av
    except ImportError:
        raise VideoError(f"{path}: reading video needs PyAV; run: pip install av") from None
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise VideoError(f"{path}: {str(error.strerror).lower()}; give a video file you may read") from None
    if not head:
        raise VideoError(f"{path}: is empty (0 bytes); copy or download it again")
    try:
        # With "file:" a name like "a:b.mp4" is not taken for a URL.
        # PyAV before 19 must be told to accept titles that are not UTF-8; later ones cannot be told.
        old = int(av.__version__.split(".")[0]) < 19
        forgiving: dict[str, Any] = {"metadata_errors": "replace"} if old else {}
        container = av.open(f"file:{path.absolute()}", **forgiving)
    except av.FFmpegError:
        if head[4:8] == b"ftyp":
            reason = "cut off or still being recorded (no moov atom); finish recording or copy it again"
        else:
            reason = "not a video, or damaged beyond recognition; check that it plays, or copy it again"
        raise VideoError(f"{path}: {reason}") from None
    with container:
        try:
            yield _Source(path, container, av)
        except av.FFmpegError as error:
            raise VideoError(f"{path}: reading failed ({error.strerror}); copy it again") from None


def _main_stream(path: Path | str, container: InputContainer) -> VideoStream:
    """The largest video stream that is not cover art."""
    from av.stream import Disposition

    art = Disposition.attached_pic.value | Disposition.timed_thumbnails.value
    streams = [s for s in container.streams.video if not int(s.disposition) & art]
    decodable = [s for s in streams if s.codec_context is not None]
    name, brand = container.format.name, container.metadata.get("major_brand")
    if name == "image2" or name.endswith("_pipe") or brand in ("avif", "heic", "heix", "mif1"):
        raise VideoError(f"{path}: is a picture, not a video; give a video to search")
    if name == "tty":
        raise VideoError(f"{path}: is a text file; give a video file")
    if not streams:
        raise VideoError(f"{path}: has no video in it, only sound or data; give a video file")
    if not decodable:
        raise VideoError(f"{path}: this PyAV has no decoder for it; convert it: ffmpeg -i IN OUT.mp4")
    return max(decodable, key=lambda s: s.codec_context.width * s.codec_context.height)


def _samples_before(time_s: float, fps: float) -> int:
    """How many n >= 0 have n / fps < time_s; the slack is for times that were rounded up."""
    return max(0, math.ceil(time_s * fps - min(ROUNDING_S * fps, 0.5)))


def _backwards(path: Path) -> VideoError:
    return VideoError(f"{path}: its timestamps run backwards; repair it with: ffmpeg -i IN -c copy OUT.mp4")


def _truncated(path: Path, readable_s: float, promised_s: float) -> VideoError:
    extent = f"readable up to {readable_s:.1f} s of {promised_s:.1f} s"
    remedy = "pass allow_truncated=True (--allow-truncated) to search the readable part"
    return VideoError(f"{path}: cut off or damaged, {extent}; copy it again, or {remedy}")

"""An open video file: packets, decoded frames with their times, and where damage left none."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lastseen.errors import VideoError
from lastseen.video.containers import SELF_CONTAINED, head_of, is_list, refused_because
from lastseen.video.losses import Timed, losses

if TYPE_CHECKING:
    from av import Packet, VideoFrame, VideoStream
    from av.container import InputContainer

MOST_PIXELS = 2**26  # of a frame, 8192 x 8192: a dozen of them are held at once, 200 MB each
AVI_HEADER_BYTES = 8  # of a packet, which the index counts and its position does not
_FRAME_THREADS = 1 << 12  # libavcodec's AV_CODEC_CAP_FRAME_THREADS
_NO_TIMESTAMPS, _TS_DISCONT = 0x80, 0x200  # libavformat's AVFMT_ flags; PyAV's enum is not an int


class Source:
    """An open file and its main video stream; times are the file's own timestamps, in seconds."""

    def __init__(self, path: Path | str, container: InputContainer, av: ModuleType) -> None:
        self._av, self.container = av, container
        self.stream = stream = _main_stream(path, container)
        width, height = stream.codec_context.width, stream.codec_context.height
        if width * height > MOST_PIXELS:
            raise VideoError(
                f"{path}: its frames of {width} x {height} pixels are too large to be held in memory; "
                "make them smaller: ffmpeg -i IN -vf scale=3840:-2 OUT.mp4"
            )
        stream.thread_type, self.codec = "AUTO", stream.codec_context.name
        # A raw stream has no timestamps: frames are counted, at the rate that the codec's header states (the
        # average is the demuxer's assumption).
        self.is_raw = bool(container.format.flags & _NO_TIMESTAMPS)
        rates = (stream.guessed_rate, stream.average_rate)
        self.fps = float(next(filter(None, rates if self.is_raw else reversed(rates)), 25))
        self.time_base = float(stream.time_base or 1)
        self.header_start_s = (stream.start_time or 0) * self.time_base
        self.header_end_s = -math.inf if container.duration is None else container.duration / 1e6
        if stream.duration is not None:  # else it is the end of the longest stream
            self.header_end_s = self.header_start_s + stream.duration * self.time_base
        # AVI has no timestamps for presentation, and those made up for its B-frames are out of order; its
        # decode-order stamps advance steadily.
        self.is_avi = container.format.name == "avi"
        # MPEG program streams stamp few of their frames, and the rest is guessed anew after a seek.
        self.can_seek = not self.is_raw and container.format.name != "mpeg"
        self.header_guesses = bool(container.format.flags & (_NO_TIMESTAMPS | _TS_DISCONT))

    @property
    def _delay(self) -> int:
        """How many packets later than its own an error is reported: threads decode a frame each."""
        context = self.stream.codec_context
        return context.thread_count - 1 if int(context.codec.capabilities) & _FRAME_THREADS else 0

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

    def frames(self, from_keyframe: bool = False) -> Iterator[Timed]:
        """Decoded frames with their times, in display order; None where damage left no picture."""
        stamp_s, lost = -1 / self.fps, losses(self.container.format.name, self.fps)
        for packet in chain(self.packets(), (None,)):
            if packet is not None:
                lost.read(packet)
                if packet.stream_index != self.stream.index:
                    continue
                if self.is_avi:
                    self._stamp_by_index(packet)
            # After a seek into the middle of a group, frames before the next keyframe are corrupt.
            if from_keyframe and packet is not None and not packet.is_keyframe:
                continue
            from_keyframe = False
            if packet is not None and not self.is_raw:
                lost.sent(self._stamp_s(packet, stamp_s), packet)
            try:
                decoded = self.stream.codec_context.decode(packet)
            except self._av.FFmpegError:
                lost.failed(stamp_s, self._delay)  # the picture before a damaged packet stays on display
                if self.is_raw:
                    stamp_s += 1 / self.fps
                    yield Timed(stamp_s, None, False)
                continue
            for frame in decoded:
                stamp_s = self._stamp_s(frame, stamp_s + 1 / self.fps)
                yield from lost.until(stamp_s, frame)

    def _stamp_by_index(self, packet: Packet[Any]) -> None:
        """The demuxer counts packets, also past a hole; the file's index knows better."""
        entries, place = self.stream.index_entries, (packet.pos or 0) - AVI_HEADER_BYTES
        at = bisect_left(entries, place, key=lambda entry: entry.pos)
        if at < len(entries) and entries[at].pos == place:
            packet.dts = entries[at].timestamp

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

    def gap(self) -> tuple[float, float]:
        """The longest time between two frames, and when it begins; nothing is decoded."""
        stamps = [self._stamp_s(packet, 0.0) for packet in self.packets(self.stream) if not packet.is_discard]
        return max(((b - a, a) for a, b in pairwise(sorted(stamps))), default=(0.0, 0.0))

    def _stamp_s(self, item: Packet[Any] | VideoFrame, otherwise_s: float) -> float:
        ticks = item.dts if self.is_avi or item.pts is None else item.pts
        return otherwise_s if self.is_raw or ticks is None else ticks * self.time_base


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    try:
        import av
    except ImportError:
        raise VideoError(f"{path}: reading video needs PyAV; run: pip install av") from None
    head = head_of(path)
    if not head:
        raise VideoError(f"{path}: is empty (0 bytes); copy or download it again")
    try:
        # With "file:" a name like "a:b.mp4" is not taken for a URL.
        # PyAV before 19 must be told to accept titles that are not UTF-8; later ones cannot be told.
        old = int(av.__version__.split(".")[0]) < 19
        forgiving: dict[str, Any] = {"metadata_errors": "replace"} if old else {}
        only = {"format_whitelist": SELF_CONTAINED, "protocol_whitelist": "file"}
        container = av.open(f"file:{path.absolute()}", options=only, **forgiving)
    except av.FFmpegError as error:
        if is_list(head) or isinstance(error, av.error.ArgumentError):  # a format that is not on the list
            reason = refused_because(head)
        elif head[4:8] == b"ftyp":
            reason = "cut off or still being recorded (no moov atom); finish recording or copy it again"
        else:
            reason = "not a video, or damaged beyond recognition; check that it plays, or copy it again"
        raise VideoError(f"{path}: {reason}") from None
    with container:
        try:
            yield Source(path, container, av)
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

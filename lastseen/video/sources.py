"""Read frames from cameras and network streams, and the recording time of a file."""

from __future__ import annotations

import hashlib
import queue
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lastseen.errors import VideoError
from lastseen.video import ROUNDING_S, Frame
from lastseen.video.containers import is_file
from lastseen.video.dates import believable
from lastseen.video.decoding import Source, opened

if TYPE_CHECKING:
    from typing import Self

    from av import FFmpegError, Packet, VideoFrame, VideoStream

CAMERAS = {"linux": ("v4l2", "/dev/video{}"), "darwin": ("avfoundation", "{}"), "win32": ("dshow", "{}")}
TIMEOUT_S = 10.0  # a stream without a frame for this long has ended
JUMP_S = 10.0  # a larger step between two timestamps means that the clock was reset
WAITING = 32  # sampled frames buffered for a busy consumer; later ones are dropped
# In a path: values given by name, words for secrets with what follows them, and long words with letters and
# digits in them.
_NAMED = r"pass|pwd|secret|token|auth|key"
_SECRET = re.compile(
    rf"=|@|:|%3a|%3d|%40|{_NAMED}|(?=[\w.~-]*\d)(?=[\w.~-]*[A-Za-z])[\w.~-]{{16,}}", re.IGNORECASE
)
_NAME = re.compile(rf"([a-z]*[_-])?({_NAMED}|password|pw|user|username)", re.IGNORECASE)
DATES = ("com.apple.quicktime.creationdate", "creation_time", "date")


def is_live(source: str) -> bool:
    """Whether it names a camera or a stream, not a file: camera, camera:1, /dev/video0, rtsp://..."""
    if is_file(Path(source)):  # whatever it is called
        return False
    return "://" in source or source == "camera" or source.startswith(("camera:", "/dev/video"))


def without_password(address: str) -> str:
    """rtsp://me:secret@hall/live?token=1 -> rtsp://hall/live?…, for everything that is stored or printed.

    Left out, and an ellipsis put there: what follows a question mark, and parts of the path that look like a
    key. Two streams may look the same without it: `stream_key` tells them apart.
    """
    if "://" not in address:
        return address
    scheme, _, rest = address.partition("://")
    place, mark, _ = re.sub("[?#;]", "?", rest, count=1).partition("?")
    host, *path = re.sub(r"^[^/]*@", "", place).split("/")
    is_secret = [_SECRET.search(part) or _NAME.fullmatch(before) for before, part in zip(["", *path], path)]
    shown = "/".join([host, *("…" if hidden else part for hidden, part in zip(is_secret, path))])
    return f"{scheme}://{shown}{'?…' if mark else ''}"


def stream_key(address: str) -> str:
    """By which a stream is known again: a slow hash, from which what is secret in it cannot well be read."""
    named = re.sub(r"(?<=://)[^/]*@", "", address)
    return hashlib.pbkdf2_hmac("sha256", named.encode(), b"lastseen stream", 100_000).hex()[:32]


def recorded_at(path: Path) -> float | None:
    """The recording time in the file's metadata, in seconds since 1970; None if there is none that can be
    believed."""
    return next(filter(believable, dates_in(path)), None)


def dates_in(path: Path) -> list[float]:
    """All recording times in the file's metadata, the best source first, in seconds since 1970."""
    with opened(path) as source:
        written = {key.lower(): str(value) for key, value in source.container.metadata.items()}
    found = []
    for key in DATES:
        with suppress(ValueError, OverflowError):
            date = datetime.fromisoformat(written.get(key, ""))
            found.append((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp())
    return found


class LiveVideo:
    """A camera or a stream, sampled at `fps` while it runs; sample n is on display at n / fps seconds.

    Nothing waits for the consumer: a sample that finds WAITING others before it is lost, and the numbers
    of those that come show the gap.
    """

    def __init__(self, address: str, fps: float, *, timeout_s: float = TIMEOUT_S) -> None:
        self._whole_address, self.fps, self._timeout_s = address, fps, timeout_s
        self.address = without_password(address)
        self._samples: queue.Queue[Frame | VideoError | None] = queue.Queue()
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        self._container = _open_live(self._whole_address, self._timeout_s)
        # A daemon: a camera that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(self._timeout_s)

    def frames(self) -> Iterator[Frame]:
        """Samples as they come, until the stream ends."""
        while True:
            try:
                sample = self._samples.get(timeout=2 * self._timeout_s)
            except queue.Empty:
                raise VideoError(f"{self.address}: no picture for {2 * self._timeout_s:g} s") from None
            if isinstance(sample, VideoError):
                raise sample
            if sample is None:
                return
            yield sample

    def _read(self) -> None:
        import av

        failure: FFmpegError | None = None
        try:
            with self._container as container:
                source = _LiveSource(self.address, container, av)
                self._sample(source)
                failure = source.failure
        except VideoError as error:
            self._samples.put(error)
            return
        except av.FFmpegError as error:
            failure = error
        if failure is None:
            self._samples.put(None)
        elif isinstance(failure, av.error.ExitError):  # how libavformat says that time is up
            self._samples.put(VideoError(f"{self.address}: nothing came for {self._timeout_s:g} s"))
        else:
            self._samples.put(VideoError(f"{self.address}: broke off ({failure.strerror})"))

    def _sample(self, source: Source) -> None:
        shown: VideoFrame | None = None
        origin_s = last_s = size = None
        number = 0
        for stamp_s, frame, _ in source.frames():
            if self._stop.is_set():
                return
            if frame is None:
                continue  # damaged on its way: the picture before it stays
            if origin_s is None or last_s is None:
                origin_s, size = stamp_s, (frame.width, frame.height)
            elif not 0 <= stamp_s - last_s < JUMP_S:
                origin_s += stamp_s - last_s - 1 / source.fps
            last_s = stamp_s
            while shown is not None and number / self.fps + ROUNDING_S < stamp_s - origin_s:
                if self._samples.qsize() < WAITING:
                    self._samples.put(Frame(number, number / self.fps, _upright(shown, size)))
                number += 1
            shown = frame
        if shown is not None:  # the last frame is never dropped: it carries the count of dropped ones
            self._samples.put(Frame(number, number / self.fps, _upright(shown, size)))


class _LiveSource(Source):
    """Packets until the stream ends or breaks off; both flush the frames that the decoder still holds."""

    failure: FFmpegError | None = None

    def packets(self, *streams: VideoStream) -> Iterator[Packet[Any]]:
        try:
            yield from super().packets(*streams)
        except self._av.FFmpegError as error:
            self.failure = error


def _upright(frame: VideoFrame, size: tuple[int, int] | None) -> np.ndarray:
    width, height = size or (frame.width, frame.height)
    stored = frame.to_ndarray(format="rgb24", width=width, height=height)
    return np.ascontiguousarray(np.rot90(stored, round(frame.rotation / 90) % 4))


def _open_live(address: str, timeout_s: float) -> Any:
    try:
        import av
    except ImportError:
        raise VideoError(f"{address}: reading video needs PyAV; run: pip install av") from None
    name, form = address, None
    if "://" not in address:
        form, pattern = CAMERAS.get(sys.platform, CAMERAS["linux"])
        number = address.removeprefix("camera").removeprefix(":") or "0"
        name = address if address.startswith("/dev/") else pattern.format(number)
    options = {"rtsp_transport": "tcp"} if address.startswith("rtsp") else {}
    try:
        return av.open(name, format=form, options=options, timeout=(timeout_s, timeout_s))
    except (av.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        shown = without_password(address)
        raise VideoError(f"{shown}: cannot be opened ({reason}); check the address or the camera") from None

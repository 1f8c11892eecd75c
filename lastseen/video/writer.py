"""Write images as a video file, atomically: the file is complete or not there."""

from __future__ import annotations

import math
import uuid
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from lastseen.errors import OutputError
from lastseen.files import MOST_STEM, check_writable, sync

if TYPE_CHECKING:
    from typing import Self

    from _typeshed import StrPath
    from av import VideoFrame, VideoStream

ENCODERS = ("libx264", "libopenh264", "mpeg4")  # the first that this PyAV has


class VideoWriter:
    """Write RGB images as an H.264 mp4, which is renamed into place when the `with` block succeeds.

    H.264 wants even sizes: odd ones gain a row or column that repeats the last one. `crf` is x264's
    quality, lower is better; 20 is hard to tell from the original.
    """

    def __init__(self, path: StrPath, width: int, height: int, fps: float, *, crf: int = 20) -> None:
        import av

        if not (width > 0 and height > 0 and 0 < fps < math.inf):
            raise ValueError(f"expected a positive size and rate, got {width} x {height} at {fps} fps")
        self._av, self.path, self.width, self.height = av, Path(path), width, height
        check_writable(path)
        encoder = next((name for name in ENCODERS if name in av.codecs_available), None)
        if encoder is None:
            raise OutputError(f"{path}: this PyAV has no video encoder; reinstall it (pip install av)")
        self._rate, self._count = Fraction(fps).limit_denominator(1001), 0
        self._part = self.path.with_name(f".{self.path.stem[:MOST_STEM]}.{uuid.uuid4().hex[:8]}.part")
        url, options = f"file:{self._part.absolute()}", {"movflags": "+faststart"}
        self._container = av.open(url, "w", format="mp4", options=options)  # makes the file when first needed
        self._stream = stream = cast("VideoStream", self._container.add_stream(encoder, rate=self._rate))
        stream.width, stream.height = width + width % 2, height + height % 2
        stream.options = {"crf": str(crf), "preset": "veryfast"} if encoder == "libx264" else {"b": "8000000"}
        # Players guess the colour matrix by size unless the file names it; 1 is BT.709, limited range.
        codec = stream.codec_context
        codec.colorspace = codec.color_primaries = codec.color_trc = codec.color_range = 1

    def __enter__(self) -> Self:
        return self

    def write(self, image: np.ndarray) -> None:
        """Append one [height, width, 3] uint8 RGB image."""
        expected = (self.height, self.width, 3)
        if image.shape != expected or image.dtype != np.uint8:
            raise ValueError(f"expected a uint8 image of shape {expected}, got {image.dtype} {image.shape}")
        even = np.pad(image, ((0, self.height % 2), (0, self.width % 2), (0, 0)), mode="edge")
        frame = self._av.VideoFrame.from_ndarray(even).reformat(format="yuv420p", dst_colorspace="ITU709")
        frame.pts, frame.time_base = self._count, 1 / self._rate
        self._count += 1
        self._encode(frame)

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if failure is None and not self._count:
                raise OutputError(f"{self.path}: not written, for want of frames; write at least one")
            if failure is None:
                self._encode(None)
        finally:
            with suppress(self._av.FFmpegError):  # report the original failure
                self._container.close()
            self._part.unlink(missing_ok=True)

    def _encode(self, frame: VideoFrame | None) -> None:
        try:
            self._container.mux(self._stream.encode(frame))
            if frame is None:
                self._container.close()
                sync(self._part)
                self._check()
                self._part.replace(self.path)
        except (self._av.FFmpegError, OSError) as error:
            raise OutputError(
                f"{self.path}: {error.strerror or error}; check the disk and who may write there"
            ) from None

    def _check(self) -> None:
        """Whether all frames are in the file, as a reader sees it."""
        with self._av.open(f"file:{self._part.absolute()}", format="mp4") as written:
            found = sum(1 for packet in written.demux(video=0) if packet.size)
        if found != self._count:
            raise OSError(f"only {found} of {self._count} frames could be written")

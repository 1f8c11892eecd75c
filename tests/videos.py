"""Little videos made with PyAV, painted so that tests can read back which frame they got."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition

from lastseen.video import Video

COLUMNS, ROWS = 4, 3  # one black or white block per binary digit: numbers up to 4095
CLOCK = Fraction(1, 90_000)  # seconds per tick of given times
SPEED = {"libx264": {"preset": "veryfast"}, "libvpx": {"deadline": "realtime", "cpu-used": "8"}}


def numbered(number: int, width: int = 64, height: int = 48) -> np.ndarray:
    """A picture that shows `number` in blocks large enough to survive lossy coding."""
    image = np.zeros((height, width, 3), np.uint8)
    for bit in range(COLUMNS * ROWS):
        if number >> bit & 1:
            image[_block(bit, width, height)] = 255
    return image


def pictures(count: int, width: int = 64, height: int = 48) -> Iterator[np.ndarray]:
    """One picture for each number from 0."""
    return (numbered(i, width, height) for i in range(count))


def number_in(image: np.ndarray) -> int:
    height, width = image.shape[:2]
    bits = [image[_block(bit, width, height)].mean() > 127 for bit in range(COLUMNS * ROWS)]
    return sum(1 << bit for bit, white in enumerate(bits) if white)


def numbers(video: Video, fps: float = 5.0, **section: float) -> list[int]:
    return [number_in(frame.image) for frame in video.frames(fps, **section)]


def assert_helpful(error: Exception, path: Path, *words: str) -> None:
    message = str(error)
    assert message.startswith(f"{path}: ") and "\n" not in message
    assert len(message.removeprefix(str(path))) < 180
    for word in words:
        assert word in message


def corners(width: int = 64, height: int = 48) -> np.ndarray:
    """Red top left, green top right, blue bottom left, white bottom right."""
    image = np.empty((height, width, 3), np.uint8)
    image[: height // 2, : width // 2] = 230, 20, 20
    image[: height // 2, width // 2 :] = 20, 200, 20
    image[height // 2 :, : width // 2] = 20, 20, 230
    image[height // 2 :, width // 2 :] = 250, 250, 250
    return image


def corner_names(image: np.ndarray) -> str:
    """Colours at top left, top right, bottom left, bottom right: RGBW if `corners` is upright."""
    height, width = image.shape[:2]
    names = ""
    for y in (height // 4, 3 * height // 4):
        for x in (width // 4, 3 * width // 4):
            red, green, blue = image[y - 2 : y + 3, x - 2 : x + 3].mean((0, 1))
            names += "W" if min(red, green, blue) > 200 else "RGB"[int(np.argmax([red, green, blue]))]
    return names


def write_video(
    path: Path,
    images: Iterable[np.ndarray],
    times_s: Sequence[float] | None = None,
    *,
    fps: float = 25.0,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    gop: int = 12,
    options: dict[str, str] | None = None,
    muxer: dict[str, str] | None = None,
) -> Path:
    """One video stream: frame i at times_s[i], or else at i / fps."""
    images = list(images)
    rate = Fraction(fps).limit_denominator(1001)
    with av.open(str(path), "w", options=muxer or {}) as container:
        stream = _add_video(container, images[0], rate, codec, pix_fmt)
        stream.codec_context.gop_size = gop
        stream.options = {**SPEED.get(codec, {}), **(options or {})}
        if times_s is not None:
            stream.codec_context.time_base = stream.time_base = CLOCK
        for i, image in enumerate(images):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            if times_s is None:
                frame.pts, frame.time_base = i, 1 / rate
            else:
                frame.pts, frame.time_base = round(times_s[i] / CLOCK), CLOCK
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_streams(
    path: Path, *videos: Iterable[np.ndarray], sound_s: float = 0.0, cover: np.ndarray | None = None
) -> Path:
    """Several video streams at 25 fps, silence, and cover art, in one file."""
    rate, codec = Fraction(25), "libmp3lame" if path.suffix == ".mp3" else "aac"
    tracks = [list(images) for images in videos]
    with av.open(str(path), "w") as container:
        streams = [_add_video(container, images[0], rate) for images in tracks]
        if sound_s:
            sound: Any = container.add_stream(codec, rate=16000, layout="mono")
        if cover is not None:
            streams.append(_add_video(container, cover, Fraction(1), "mjpeg", "yuvj420p"))
            streams[-1].disposition = Disposition.attached_pic
            tracks.append([cover])
        for stream, images in reversed(list(zip(streams, tracks))):  # mp3 wants its cover first
            for image in images:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
            container.mux(stream.encode(None))
        for start in range(0, int(16000 * sound_s), 1024):
            silence = av.AudioFrame.from_ndarray(
                np.zeros((1, 1024), np.float32), format="fltp", layout="mono"
            )
            silence.sample_rate, silence.pts = 16000, start
            container.mux(sound.encode(silence))
        if sound_s:
            container.mux(sound.encode(None))
    return path


def turn_clockwise(path: Path, degrees: int) -> Path:
    """Let the file say that players should turn it, by the matrix in the track header of an mp4."""
    one = 1 << 16
    a, b = {90: (0, one), 180: (-one, 0), 270: (0, -one)}[degrees]
    data = bytearray(path.read_bytes())
    # ISO 14496-12: a pixel (x, y) is shown at (a x + c y, b x + d y), and y points down.
    data[(at := data.index(b"tkhd") + 44) : at + 20] = struct.pack(">5i", a, b, 0, -b, a)
    path.write_bytes(data)
    return path


def overwrite_packets(path: Path, first: int, last: int, byte: bytes) -> None:
    """Damage some packets, in decoding order, of a file that stays intact around them."""
    with av.open(str(path)) as container:
        places = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    for position, size in places[first:last]:
        assert position is not None
        data[position : position + size] = byte * size
    path.write_bytes(data)


def _add_video(
    container: Any, image: np.ndarray, rate: Fraction, codec: str = "libx264", pix_fmt: str = "yuv420p"
) -> Any:
    stream = container.add_stream(codec, rate=rate)
    stream.height, stream.width = image.shape[:2]
    stream.pix_fmt = pix_fmt
    stream.codec_context.thread_count = 1
    return stream


def _block(bit: int, width: int, height: int) -> tuple[slice, slice]:
    row, column = divmod(bit, COLUMNS)
    y, x = row * height // ROWS, column * width // COLUMNS
    return slice(y, (row + 1) * height // ROWS), slice(x, (column + 1) * width // COLUMNS)

"""Sound files that are then damaged: little videos, a tiny model, pictures of blocks."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

WIDTH, HEIGHT = 64, 48
CLOCK = Fraction(1, 90_000)


def blocks(seed: int, width: int = WIDTH, height: int = HEIGHT, grain: int = 8) -> np.ndarray:
    """[height, width, 3] uint8: blocks of random colours."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 255, (-(-height // grain), -(-width // grain), 3), np.uint8)
    return np.ascontiguousarray(cells.repeat(grain, 0).repeat(grain, 1)[:height, :width])


def moving(
    seconds: float, fps: int, *, seed: int = 0, width: int = WIDTH, height: int = HEIGHT
) -> list[np.ndarray]:
    """Pictures that move over a world of blocks."""
    world = blocks(seed, width * 4, height)
    steps = (number * 3 % (world.shape[1] - width) for number in range(round(seconds * fps)))
    return [np.ascontiguousarray(world[:, x : x + width]) for x in steps]


def write_video(
    path: Path,
    pictures: Sequence[np.ndarray],
    codec: str,
    *,
    fps: int = 15,
    times_s: Sequence[float] | None = None,
    sound: bool = False,
    muxer: dict[str, str] | None = None,
) -> Path:
    with av.open(str(path), "w", options=muxer or {}) as container:
        stream: Any = container.add_stream(codec, rate=fps)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        stream.codec_context.gop_size = 10
        if codec.startswith("libvpx"):
            stream.options = {"deadline": "realtime", "cpu-used": "8"}
        if times_s is not None:
            stream.codec_context.time_base = stream.time_base = CLOCK
        heard: Any = container.add_stream("aac", rate=16000, layout="mono") if sound else None
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            if times_s is None:
                frame.pts, frame.time_base = number, Fraction(1, fps)
            else:
                frame.pts, frame.time_base = round(times_s[number] / CLOCK), CLOCK
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if sound:
            for start in range(0, int(16000 * len(pictures) / fps), 1024):
                tone = np.sin(np.arange(start, start + 1024) / 20, dtype=np.float32)[None]
                samples = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
                samples.sample_rate, samples.pts = 16000, start
                container.mux(heard.encode(samples))
            container.mux(heard.encode(None))
    return path


def turned(path: Path) -> Path:
    """Let an mp4 or mov say that players should turn it by a quarter, by the matrix in its track header."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 44
    data[at : at + 20] = struct.pack(">5i", 0, 1 << 16, 0, -(1 << 16), 0)  # ISO 14496-12
    path.write_bytes(data)
    return path


def write_videos(folder: Path) -> list[Path]:
    """A video of each kind, one to two seconds long."""
    short = moving(1.6, 15)
    uneven_s = [0.0, 0.03, 0.3, 0.34, 0.8, 0.81, 0.82, 1.4, 1.6, 1.9]
    return [
        write_video(folder / "h264.mp4", short, "libx264", muxer={"movflags": "faststart"}),
        write_video(folder / "sound.mp4", short, "mpeg4", sound=True),
        write_video(folder / "h264.mkv", short, "libx264"),
        write_video(folder / "vp9.webm", short, "libvpx-vp9"),
        write_video(folder / "mpeg4.avi", short, "mpeg4"),
        write_video(folder / "h264.ts", short, "libx264", sound=True),
        turned(write_video(folder / "turned.mov", short, "libx264")),
        write_video(folder / "uneven.mp4", short[:10], "libx264", times_s=uneven_s),
        write_video(folder / "raw.h264", short, "libx264"),
        write_video(
            folder / "fragments.mp4", short, "libx264", muxer={"movflags": "frag_keyframe+empty_moov"}
        ),
        write_video(folder / "mpeg2.mpg", moving(1.6, 25), "mpeg2video", fps=25),
    ]


def save_tiny_model(folder: Path) -> Path:
    """A model of the bundled one's kind with random weights: any answer, but in milliseconds a frame."""
    import torch

    from lastseen.model import BackboneConfig, SimilarityConfig, SimilarityModel
    from lastseen.rule import Rule
    from lastseen.sighting import Confidence
    from lastseen.weights import save_model, save_rule

    config = SimilarityConfig(
        backbone=BackboneConfig(dim=32, depth=2, heads=2),
        image_size=112,
        dim=32,
        query_size=56,
        query_scales=(1.0, 0.5),
        background_cosine=0.5,
        skip_connection=False,
    )
    model = SimilarityModel.from_config(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1:  # lively: heads begin near zero, and all frames would look the same
                value.copy_(torch.randn(value.shape, generator=generator) * 1.5 / value[0].numel() ** 0.5)
    save_model(model.eval(), folder)
    rule = Rule(confidence=Confidence(threshold=0.0))  # anything is seen
    save_rule(rule.with_step("verify", min_cosine=0.9).with_step("extend", min_cosine=0.5), folder)
    return folder

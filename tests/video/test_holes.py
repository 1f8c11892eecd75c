"""Holes that demuxers pass over without an error: the packets in them are missed by their place and time."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from videos import number_in, numbered, pictures, write_video

from lastseen.box import Box
from lastseen.errors import QueryError, VideoError
from lastseen.query import Query
from lastseen.video import Frame, Video

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from index_kill import tiny_localizer

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS = {
    "v.mkv": "libx264",
    "v.webm": "libvpx",
    "v.ts": "libx264",
    "m.ts": "mpeg2video",
    "v.flv": "libx264",
    "s.flv": "flv",
    "v.wmv": "wmv2",
    "v.mpg": "mpeg2video",
    "v.avi": "mpeg4",
}
SHORT_CLUSTERS = {"cluster_time_limit": "1000"}


def busy_video(path: Path, frames: int = 250) -> Path:
    """Of a size that a hole can be in: noise that moves behind the numbers."""
    noise = np.random.default_rng(0).integers(0, 80, (6, 8, 3), np.uint8).repeat(10, 0).repeat(10, 1)
    images = [np.maximum(numbered(i, 80, 60), np.roll(noise, i, 1)) for i in range(frames)]
    muxer = SHORT_CLUSTERS if path.suffix in (".mkv", ".webm") else None
    return write_video(path, images, codec=KINDS[path.name], gop=25, muxer=muxer)


def with_hole(path: Path, start: float, end: float, how: str) -> Path:
    """A share of the file's bytes zeroed, replaced by noise, or left out."""
    data = bytearray(path.read_bytes())
    first, last = int(start * len(data)), int(end * len(data))
    noise = np.random.default_rng(0).integers(0, 256, last - first, np.uint8).tobytes()
    data[first:last] = {"zeros": bytes(last - first), "noise": noise, "cut": b""}[how]
    path.write_bytes(data)
    return path


def wrong_and_unreadable(path: Path) -> tuple[set[int], set[int]]:
    frames: list[Frame] = list(Video(path).frames(5))
    assert len(frames) == 50
    wrong = {frame.index for frame in frames if abs(number_in(frame.image) - 5 * frame.index) > 1}
    return wrong, {frame.index for frame in frames if not frame.readable}


@pytest.mark.parametrize("how", ["zeros", "noise"])
@pytest.mark.parametrize("name", KINDS)
def test_a_hole_is_known_though_no_packet_fails(tmp_path: Path, name: str, how: str) -> None:
    wrong, unreadable = wrong_and_unreadable(with_hole(busy_video(tmp_path / name), 0.4, 0.7, how))
    assert len(wrong) >= 10 and len(wrong - unreadable) <= 1
    assert len(unreadable - wrong) <= 2, "what is whole is not given up"


@pytest.mark.parametrize("name", ["v.mkv", "v.webm", "v.ts", "v.flv", "v.wmv"])
def test_bytes_that_were_left_out_are_a_hole_too(tmp_path: Path, name: str) -> None:
    wrong, unreadable = wrong_and_unreadable(with_hole(busy_video(tmp_path / name), 0.4, 0.7, "cut"))
    assert len(wrong) >= 10 and len(wrong - unreadable) <= 1


@pytest.mark.parametrize("name", ["p.mkv", "p.webm", "p.flv", "p.mp4"])
def test_a_pause_that_a_container_can_hold_is_no_hole(tmp_path: Path, name: str) -> None:
    times = [start + i / 25 for start in (0, 10, 40) for i in range(50)]
    codec = "libvpx" if name == "p.webm" else "libx264"
    path = write_video(tmp_path / name, pictures(150), times, codec=codec, gop=25)
    assert all(frame.readable for frame in Video(path).frames(5))


@pytest.mark.parametrize("name", ["i.ts", "i.wmv"])
def test_a_video_that_pauses_again_and_again_has_no_holes(tmp_path: Path, name: str) -> None:
    times = np.cumsum(np.random.default_rng(0).choice([0.04, 0.2, 1.5], 60)).tolist()
    path = write_video(tmp_path / name, pictures(60), times, codec="wmv2" if name == "i.wmv" else "libx264")
    frames = list(Video(path, allow_truncated=True).frames(5))
    assert sum(not frame.readable for frame in frames) < 0.1 * len(frames)


def test_an_answer_and_a_question_know_of_a_hole(tmp_path: Path) -> None:
    video = Video(with_hole(busy_video(tmp_path / "v.webm"), 0.3, 0.6, "zeros"))
    answer = tiny_localizer().ask(video, Query.from_array(np.zeros((48, 64, 3), np.uint8)))
    assert 2.0 < answer.unreadable_s < 5.0
    with pytest.raises(QueryError, match="cannot be decoded"):
        Query.from_video(video, 4.6, Box(0, 0, 30, 30))


def test_a_hole_of_more_than_half_is_refused_unless_that_is_allowed(tmp_path: Path) -> None:
    path = with_hole(busy_video(tmp_path / "v.mkv"), 0.2, 0.9, "zeros")
    query = Query.from_array(np.zeros((48, 64, 3), np.uint8))
    with pytest.raises(VideoError, match="more than half of it cannot be decoded"):
        tiny_localizer().ask(Video(path), query)
    assert tiny_localizer().ask(Video(path, allow_truncated=True), query).unreadable_s > 5

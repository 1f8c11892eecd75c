"""Which frames a video gives, and what they look like."""

from __future__ import annotations

import math
import pickle
import struct
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from videos import (
    corner_names,
    corners,
    number_in,
    numbers,
    pictures,
    turn_clockwise,
    write_streams,
    write_video,
)

from lastseen.errors import VideoError
from lastseen.video import ROUNDING_S, Video
from lastseen.video.decoding import Source, Timed

FASTSTART = {"movflags": "faststart"}


# --- which frame is sampled


@pytest.mark.parametrize("fps", [25.0, 30.0, 30000 / 1001, 29.97, 12.5])
@pytest.mark.parametrize("name", ["v.mp4", "v.mkv"])
def test_sample_n_is_the_frame_on_display_at_n_over_fps(tmp_path: Path, name: str, fps: float) -> None:
    rate = Fraction(fps).limit_denominator(1001)
    video = Video(write_video(tmp_path / name, pictures(80), fps=fps))
    stamps = [i / rate if name == "v.mp4" else Fraction(round(1000 * i / rate), 1000) for i in range(80)]
    latest = [n / Fraction(5) + Fraction(1, 1000) for n in range(math.ceil(80 / rate * 5))]
    assert numbers(video) == [bisect_right(stamps, time) - 1 for time in latest]
    assert video.duration_s == pytest.approx(80 / rate, abs=0.001)
    assert video.fps == pytest.approx(fps, rel=0.001)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    gaps=st.lists(st.integers(1, 80), min_size=8, max_size=30),
    fps=st.sampled_from([2.0, 5.0, 10.0, 40.0]),
    suffix=st.sampled_from(["mp4", "mkv", "ts"]),
    start=st.sampled_from([0.0, 7.0]),
)
def test_irregular_timestamps_decide_and_not_the_average_rate(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], fps: float, suffix: str, start: float
) -> None:
    times = np.concatenate([[0], np.cumsum(gaps)]) * 0.005
    path = tmp_path_factory.mktemp("vfr") / f"v.{suffix}"
    video = Video(write_video(path, pictures(len(times)), list(times + start)))
    frames = list(video.frames(fps))
    expected = [bisect_right(list(times), frame.time_s + 0.001) - 1 for frame in frames]
    assert [number_in(frame.image) for frame in frames] == expected
    assert len(frames) == video.frame_count(fps) and video.duration_s > times[-1]
    for frame in frames[::7]:
        assert np.array_equal(video.frame_at(frame.time_s).image, frame.image)


def test_frames_repeat_where_the_video_is_slower_than_the_sampling(tmp_path: Path) -> None:
    video = Video(write_video(tmp_path / "v.mp4", pictures(4), fps=5))
    frames = list(video.frames(20))
    assert [number_in(frame.image) for frame in frames] == sorted([0, 1, 2, 3] * 4)
    assert [(frame.index, frame.time_s) for frame in frames] == [(n, n / 20) for n in range(16)]
    frames[0].image[:] = 7
    assert number_in(frames[1].image) == 0, "repeated frames do not share memory"


FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "long groups and B-frames": ("v.mp4", {"gop": 250, "options": {"bf": "3"}}),
    "open groups": ("v.mp4", {"options": {"x264-params": "open-gop=1:keyint=12:scenecut=0:bframes=3"}}),
    "transport stream": ("v.ts", {"gop": 40}),
    "fragments": ("v.mp4", {"muxer": {"movflags": "frag_keyframe+empty_moov"}}),
    "live, without duration or index": ("v.webm", {"codec": "libvpx", "muxer": {"live": "1"}}),
    "AVI with B-frames": ("v.avi", {"options": {"bf": "2"}}),
    "raw H.264 without timestamps": ("v.h264", {}),
    "flash": ("v.flv", {}),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_container_gives_the_same_frames_in_sequence_and_one_by_one(tmp_path: Path, kind: str) -> None:
    name, options = FORMATS[kind]
    video = Video(write_video(tmp_path / name, pictures(150), **options))
    assert video.duration_s == pytest.approx(6.0, abs=0.002)
    assert numbers(video) == list(range(0, 150, 5))
    assert numbers(video, start_s=3.1, end_s=4.0) == [80, 85, 90, 95]
    for number in (0, 1, 39, 74, 101, 149):
        assert number_in(video.frame_at(number / 25 + 0.01).image) == number


# --- sections


def test_a_section_counts_its_time_from_its_own_start(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mp4", pictures(100))
    section = Video(path, start_s=1.0, end_s=3.0)
    assert section.duration_s == 2.0 and section.frame_count(5) == 10
    assert numbers(section) == list(range(25, 75, 5))
    assert number_in(section.frame_at(0.4).image) == 35
    assert [frame.time_s for frame in section.frames(5)][:2] == [0.0, 0.2]
    with pytest.raises(VideoError, match="choose 0 to 2"):
        section.frame_at(2.5)
    assert numbers(Video(path, start_s=3.0, end_s=60.0)) == [75, 80, 85, 90, 95], "it ends with the file"


def test_what_an_edit_list_cuts_off_is_not_part_of_the_video(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mp4", pictures(100), gop=50)
    data = bytearray(path.read_bytes())
    at = data.index(b"elst") + 12
    _, delay = struct.unpack_from(">2i", data, at)
    struct.pack_into(">2i", data, at, 2000, delay + 12800)  # 2 s, beginning 1 s into the media at 1/12800
    path.write_bytes(data)
    assert Video(path).duration_s == pytest.approx(2.0)
    assert numbers(Video(path)) == list(range(25, 75, 5))


def test_parts_join_to_the_whole(tmp_path: Path) -> None:
    video = Video(write_video(tmp_path / "v.mp4", pictures(100)))
    cuts = [0.0, 0.7, 0.8, 2.25, math.inf]
    parts = [frame for a, b in pairwise(cuts) for frame in video.frames(5, a, b)]
    assert [frame.index for frame in parts] == list(range(20))
    assert [number_in(frame.image) for frame in parts] == numbers(video)
    assert not list(video.frames(5, start_s=99.0))


@pytest.mark.parametrize("name", ["v.mp4", "v.ts"])
def test_a_far_section_is_not_decoded_from_the_start(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[float] = []
    honest = Source.frames

    def counted(self: Source, from_keyframe: bool = False) -> Iterator[Timed]:
        for timed in honest(self, from_keyframe):
            decoded.append(timed.stamp_s)
            yield timed

    section = Video(
        write_video(tmp_path / name, pictures(1500), options={"x264-params": "keyint=25"}), start_s=50
    )
    monkeypatch.setattr(Source, "frames", counted)
    assert numbers(section, end_s=1.0) == [1250, 1255, 1260, 1265, 1270]
    assert min(decoded) > 45 and len(decoded) < 100


def test_a_video_can_be_pickled_and_read_twice_at_once(tmp_path: Path) -> None:
    video = Video(write_video(tmp_path / "v.mp4", pictures(50)))
    twin = pickle.loads(pickle.dumps(video))
    pairs = list(zip(video.frames(5), twin.frames(5), strict=True))
    assert len(pairs) == 10
    assert all(np.array_equal(a.image, b.image) for a, b in pairs)


@pytest.mark.parametrize("fps", [24.0, 25.0, 30.0, 30000 / 1001])
@pytest.mark.parametrize(("form", "codec"), [("h264", "libx264"), ("hevc", "libx265"), ("m4v", "mpeg4")])
def test_a_raw_stream_runs_at_the_rate_in_its_own_header(
    tmp_path: Path, fps: float, form: str, codec: str
) -> None:
    rate = Fraction(fps).limit_denominator(1001)
    path = tmp_path / f"v.{form}"
    with av.open(str(path), "w", format=form) as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
        for image in pictures(150):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    video = Video(path)
    assert video.fps == pytest.approx(fps)
    assert video.duration_s == pytest.approx(150 / fps, abs=0.01)
    assert numbers(video) == [math.floor((n / 5 + ROUNDING_S) * fps) for n in range(len(numbers(video)))]


# --- picture


@pytest.mark.parametrize(("degrees", "upright"), [(90, "BRWG"), (180, "WBGR"), (270, "GWRB")])
def test_rotation_metadata_is_applied(tmp_path: Path, degrees: int, upright: str) -> None:
    path = write_video(tmp_path / "v.mp4", [corners(96, 48)] * 5)
    assert corner_names(Video(path).frame_at(0).image) == "RGBW"
    video = Video(turn_clockwise(path, degrees))
    image = video.frame_at(0).image
    assert corner_names(image) == upright
    assert (video.width, video.height) == ((96, 48) if degrees == 180 else (48, 96))
    assert image.shape == (video.height, video.width, 3) and image.flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt"),
    [
        ("v.mp4", "libx264", "yuv444p"),
        ("v.webm", "libvpx", "yuv420p"),
        ("v.mp4", "mpeg4", "yuv420p"),
        ("v.mkv", "mjpeg", "yuvj420p"),
    ],
)
def test_odd_sizes_keep_their_pixels_and_colours(tmp_path: Path, name: str, codec: str, pix_fmt: str) -> None:
    picture = corners(641, 359)
    path = write_video(tmp_path / name, [picture] * 3, codec=codec, pix_fmt=pix_fmt, options={"b": "4M"})
    video = Video(path)
    assert (video.width, video.height) == (641, 359)
    image = video.frame_at(0).image
    assert image.shape == picture.shape
    for corner in (np.s_[:150, :300], np.s_[:150, 340:], np.s_[200:, :300], np.s_[200:, 340:]):
        assert np.abs(image[corner].astype(int) - picture[corner]).mean() < 6


def test_the_largest_stream_that_is_not_cover_art_is_the_video(tmp_path: Path) -> None:
    art = np.full((240, 320, 3), 90, np.uint8)
    path = write_streams(tmp_path / "v.mp4", pictures(25, 32, 24), pictures(25), sound_s=1.0, cover=art)
    video = Video(path)
    assert (video.width, video.height) == (64, 48)
    assert numbers(video) == [0, 5, 10, 15, 20]


def test_sound_that_lasts_longer_than_the_pictures_is_no_damage(tmp_path: Path) -> None:
    path = write_streams(tmp_path / "v.mkv", pictures(25), sound_s=5.0)
    assert Video(path).duration_s == pytest.approx(1.0)
    assert numbers(Video(path)) == [0, 5, 10, 15, 20]


def test_of_several_samples_one_is_converted_and_the_last_of_all(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mp4", pictures(100))
    every = list(Video(path).frames(5))
    some = list(Video(path).frames(5, every=3))
    assert [frame.index for frame in some] == [0, 3, 6, 9, 12, 15, 18, 19]
    for frame in some:
        assert frame.time_s == every[frame.index].time_s and frame.readable and not frame.lost_before
        np.testing.assert_array_equal(frame.image, every[frame.index].image)
    slow = write_video(tmp_path / "slow.mp4", pictures(4), fps=1)
    assert [number_in(frame.image) for frame in Video(slow).frames(5, every=4)] == [0, 0, 1, 2, 3, 3]

from __future__ import annotations

import math
import pickle
import struct
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from videos import (
    corner_names,
    corners,
    number_in,
    numbered,
    overwrite_packets,
    pictures,
    turn_clockwise,
    write_streams,
    write_video,
)

from lastseen import video as video_module
from lastseen.errors import OutputError, VideoError
from lastseen.video import Video, VideoWriter
from lastseen.video import writer as writer_module

FASTSTART = {"movflags": "faststart"}


def numbers(video: Video, fps: float = 5.0, **section: float) -> list[int]:
    return [number_in(frame.image) for frame in video.frames(fps, **section)]


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
    honest = video_module._Source.frames

    def counted(
        self: video_module._Source, from_keyframe: bool = False
    ) -> Iterator[tuple[float, av.VideoFrame]]:
        for stamp_s, frame in honest(self, from_keyframe):
            decoded.append(stamp_s)
            yield stamp_s, frame

    section = Video(
        write_video(tmp_path / name, pictures(1500), options={"x264-params": "keyint=25"}), start_s=50
    )
    monkeypatch.setattr(video_module._Source, "frames", counted)
    assert numbers(section, end_s=1.0) == [1250, 1255, 1260, 1265, 1270]
    assert min(decoded) > 45 and len(decoded) < 100


def test_a_video_can_be_pickled_and_read_twice_at_once(tmp_path: Path) -> None:
    video = Video(write_video(tmp_path / "v.mp4", pictures(50)))
    twin = pickle.loads(pickle.dumps(video))
    pairs = list(zip(video.frames(5), twin.frames(5), strict=True))
    assert len(pairs) == 10
    assert all(np.array_equal(a.image, b.image) for a, b in pairs)


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


# --- damage


@pytest.mark.parametrize("name", ["v.mp4", "v.mkv"])
@pytest.mark.parametrize("keep", [0.3, 0.6])
def test_a_file_that_ends_early_says_how_far_it_goes(tmp_path: Path, name: str, keep: float) -> None:
    path = write_video(tmp_path / name, pictures(250), muxer=FASTSTART if name == "v.mp4" else None)
    data = path.read_bytes()
    start = data.index(b"mdat") if name == "v.mp4" else 0
    path.write_bytes(data[: start + int(keep * (len(data) - start))])
    with pytest.raises(VideoError) as caught:
        Video(path)
    assert_helpful(caught.value, path, "readable up to", "of 10.0 s", "allow_truncated=True")
    video = Video(path, allow_truncated=True)
    assert 1 < video.duration_s < 9
    assert f"up to {video.duration_s:.1f} s" in str(caught.value)
    assert numbers(video)[:-1] == list(range(0, 5 * video.frame_count(5), 5))[:-1]
    inside = Video(path, start_s=0.2, end_s=1.0)
    assert numbers(inside) == [5, 10, 15, 20], "a section before the damage needs no permission"


def test_damage_in_the_middle_is_passed_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_video(tmp_path / "v.mp4", pictures(100), gop=10, options={"bf": "0"})
    overwrite_packets(path, 30, 40, b"\xff")
    got = numbers(Video(path))
    assert got[:6] == [0, 5, 10, 15, 20, 25] and got[8:] == list(range(40, 100, 5))
    assert len(got) == 20 and set(got[6:8]) == {29}, "the last good frame stays"
    assert capfd.readouterr() == ("", "")


def test_an_end_that_cannot_be_decoded_is_reported_when_it_is_reached(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mp4", pictures(100), gop=10, options={"bf": "0"})
    overwrite_packets(path, 50, 100, b"\x00")
    frames = Video(path).frames(5)
    assert [number_in(next(frames).image) for _ in range(10)] == list(range(0, 50, 5))
    with pytest.raises(VideoError, match=r"readable up to 2\.0 s of 4\.0 s"):
        next(frames)
    allowed = Video(path, allow_truncated=True)
    assert numbers(allowed) == list(range(0, 50, 5))
    with pytest.raises(VideoError, match="damaged at 3"):
        allowed.frame_at(3.0)


def test_timestamps_that_run_backwards_are_an_error(tmp_path: Path) -> None:
    parts = [write_video(tmp_path / f"{n}.ts", pictures(n)) for n in (50, 100)]
    joined = tmp_path / "joined.ts"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    with pytest.raises(VideoError, match=r"backwards; repair it with: ffmpeg"):
        list(Video(joined).frames(5))


# --- wrong input


def assert_helpful(error: Exception, path: Path, *words: str) -> None:
    message = str(error)
    assert message.startswith(f"{path}: ") and "\n" not in message
    assert len(message.removeprefix(str(path))) < 180
    for word in words:
        assert word in message


def text_file(path: Path) -> None:
    path.write_text("not a video\n" * 50)


def picture_file(path: Path) -> None:
    Image.fromarray(numbered(5)).save(path, format="JPEG" if path.suffix == ".mp4" else None)


def sound_file(path: Path) -> None:
    write_streams(path, sound_s=1.0, cover=numbered(1) if path.suffix == ".mp3" else None)


def no_index(path: Path) -> None:
    data = write_video(path, pictures(50)).read_bytes()
    path.write_bytes(data[: data.index(b"moov") - 100])


def no_frame(path: Path) -> None:
    overwrite_packets(write_video(path, pictures(5)), 0, 5, b"\x00")


WRONG: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "missing": ("v.mp4", lambda path: None, "no such file"),
    "folder": ("v.mp4", Path.mkdir, "is a directory"),
    "empty": ("v.mp4", Path.touch, "is empty (0 bytes)"),
    "text": ("v.mp4", text_file, "not a video"),
    "plain text": ("v.txt", text_file, "is a text file"),
    "jpg": ("v.jpg", picture_file, "is a picture"),
    "png": ("v.png", picture_file, "is a picture"),
    "avif": ("v.avif", picture_file, "is a picture"),
    "picture under a video's name": ("v.mp4", picture_file, "is a picture"),
    "sound": ("v.m4a", sound_file, "no video in it, only sound"),
    "sound with cover art": ("v.mp3", sound_file, "no video in it, only sound"),
    "no moov atom": ("v.mp4", no_index, "cut off or still being recorded"),
    "no frame": ("v.mp4", no_frame, "none of its h264 frames"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_file_that_is_no_video_gets_one_line_that_says_so(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    name, make, words = WRONG[kind]
    path = tmp_path / name
    make(path)
    with pytest.raises(VideoError) as caught:
        Video(path)
    assert_helpful(caught.value, path, words, "; ")
    assert caught.value.__cause__ is None and capfd.readouterr().err == ""


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)  # since root may read everything
    with pytest.raises(VideoError) as caught:
        Video(tmp_path / "v.mp4")
    assert_helpful(caught.value, tmp_path / "v.mp4", "permission denied", "you may read")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"start_s": 9.0}, "ends at 2.000 s, before start_s (9.0)"),
        ({"start_s": -1.0}, "choose a start_s of 0 or more"),
        ({"start_s": math.nan}, "choose a start_s of 0 or more"),
        ({"start_s": 1.0, "end_s": 1.0}, "choose a later end_s"),
        ({"end_s": math.nan}, "choose a later end_s"),
    ],
)
def test_an_impossible_section_is_refused(tmp_path: Path, section: dict[str, Any], words: str) -> None:
    path = write_video(tmp_path / "v.mp4", pictures(50))
    with pytest.raises(VideoError) as caught:
        Video(path, **section)
    assert_helpful(caught.value, path, words)


@pytest.mark.parametrize("fps", [0.0, -5.0, math.nan, math.inf])
def test_an_impossible_rate_is_refused_before_anything_is_decoded(tmp_path: Path, fps: float) -> None:
    video = Video(write_video(tmp_path / "v.mp4", pictures(5)))
    with pytest.raises(VideoError, match="choose a positive rate"):
        video.frames(fps)


def test_neither_an_odd_name_nor_odd_metadata_stops_reading(tmp_path: Path) -> None:
    path = tmp_path / "http:%03d.mp4"
    data = write_video(tmp_path / "v.mp4", pictures(5)).read_bytes()
    path.write_bytes(data.replace(b"VideoHandler", b"Cam\xe9ra video"))  # Latin-1 where UTF-8 should be
    assert numbers(Video(path)) == [0]


def test_the_module_loads_without_a_decoder_and_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['av'] = None\n"
        "from lastseen.video import Video\n"
        f"try: Video({str(tmp_path)!r})\n"
        "except Exception as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install av" in run.stdout and not run.stderr


# --- writing


@pytest.mark.parametrize("encoder", ["libx264", "mpeg4"])
def test_what_is_written_can_be_read_back(
    tmp_path: Path, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "ENCODERS", ("nonesuch", encoder))
    path = tmp_path / "out.mp4"
    with VideoWriter(path, 64, 48, fps=12.5) as writer:
        for image in pictures(25):
            writer.write(image)
        assert not path.exists(), "an unfinished file has no name"
    video = Video(path)
    assert (video.width, video.height, video.fps) == (64, 48, 12.5)
    assert video.duration_s == pytest.approx(2.0)
    assert numbers(video, fps=12.5) == list(range(25))
    assert path.read_bytes().index(b"moov") < path.read_bytes().index(b"mdat")
    assert list(tmp_path.iterdir()) == [path]


def test_odd_sizes_are_padded_and_colours_kept(tmp_path: Path) -> None:
    picture = corners(161, 119)
    with VideoWriter(tmp_path / "out.mp4", 161, 119, fps=5) as writer:
        writer.write(picture)
    image = Video(tmp_path / "out.mp4").frame_at(0).image
    assert image.shape == (120, 162, 3)
    for corner in (np.s_[8:50, 8:70], np.s_[8:50, 90:150], np.s_[70:110, 8:70], np.s_[70:119, 90:161]):
        assert np.abs(image[corner].astype(int) - picture[corner]).mean() < 6


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), VideoWriter(path, 64, 48, fps=5) as writer:
        for image in pictures(100):
            writer.write(image)
        raise KeyboardInterrupt
    with pytest.raises(OutputError, match="write at least one"), VideoWriter(path, 64, 48, fps=5):
        pass
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_an_image_of_another_size_or_type_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match=r"shape \(48, 64, 3\)"),
        VideoWriter(tmp_path / "o.mp4", 64, 48, 5) as writer,
    ):
        writer.write(np.zeros((48, 64, 3), np.float32))
    with pytest.raises(ValueError, match="positive"):
        VideoWriter(tmp_path / "out.mp4", 0, 48, fps=5)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path, tmp_path / "missing" / "out.mp4"):
        with pytest.raises(OutputError) as caught:
            VideoWriter(path, 64, 48, fps=5)
        assert_helpful(caught.value, path, "a folder that exists")
    folder = tmp_path / "gone"
    folder.mkdir()
    with pytest.raises(OutputError) as caught, VideoWriter(folder / "out.mp4", 64, 48, fps=5) as writer:
        writer.write(numbered(1))
        folder.rmdir()
    assert_helpful(caught.value, folder / "out.mp4", "No such file", "check the disk")
    monkeypatch.setattr(writer_module, "ENCODERS", ("nonesuch",))
    with pytest.raises(OutputError, match="no video encoder; reinstall it"):
        VideoWriter(tmp_path / "out.mp4", 64, 48, fps=5)

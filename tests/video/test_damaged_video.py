"""Damaged files and wrong input: what can be read is read, and the rest is one clear line."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from videos import (
    assert_helpful,
    number_in,
    numbered,
    numbers,
    overwrite_packets,
    pictures,
    write_streams,
    write_video,
)

from lastseen.errors import VideoError
from lastseen.video import Video

FASTSTART = {"movflags": "faststart"}


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

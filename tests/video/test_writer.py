"""What VideoWriter writes can be read back, and a failure leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from videos import (
    assert_helpful,
    corners,
    numbered,
    numbers,
    pictures,
)

from lastseen.errors import OutputError
from lastseen.video import Video, VideoWriter
from lastseen.video import writer as writer_module

FASTSTART = {"movflags": "faststart"}


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
    os.mkfifo(pipe := tmp_path / "pipe.mp4")
    wrong = [(tmp_path, "is a folder"), (tmp_path / "missing" / "out.mp4", "create it"), (pipe, "is a pipe")]
    for path, words in wrong:
        with pytest.raises(OutputError, match=words):
            VideoWriter(path, 64, 48, fps=5)
    folder = tmp_path / "gone"
    folder.mkdir()
    with pytest.raises(OutputError) as caught, VideoWriter(folder / "out.mp4", 64, 48, fps=5) as writer:
        writer.write(numbered(1))
        folder.rmdir()
    assert_helpful(caught.value, folder / "out.mp4", "No such file", "check the disk")
    monkeypatch.setattr(writer_module, "ENCODERS", ("nonesuch",))
    with pytest.raises(OutputError, match="no video encoder; reinstall it"):
        VideoWriter(tmp_path / "out.mp4", 64, 48, fps=5)

"""Damaged videos, bad names and small disks: what an index takes, refuses and says."""

from __future__ import annotations

import os
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from videos import overwrite_packets, pictures, write_video

from lastseen.errors import IndexStoreError, VideoError
from lastseen.index import Index
from lastseen.index import recorder as recorder_module
from lastseen.index.answers import answers_dict, answers_text, list_dict, list_text
from lastseen.index.record import ADDED, add_file
from lastseen.index.search import search
from lastseen.progress import Progress
from lastseen.query import Query
from lastseen.video import Video

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from index_kill import make_video, tiny_localizer

pytestmark = pytest.mark.usefixtures("one_thread")
QUERY = Query.from_array(np.zeros((48, 64, 3), np.uint8))
Usage = namedtuple("Usage", "total used free")


def damaged(path: Path, first: int, last: int, frames: int = 150) -> Path:
    """25 frames a second, a keyframe each second."""
    keys = {"x264-params": "keyint=25:min-keyint=25:scenecut=0:bframes=0"}
    write_video(path, pictures(frames), gop=25, options=keys)
    overwrite_packets(path, first, last, b"\0")
    return path


@pytest.mark.parametrize("keep", ["full", "compact"])
def test_the_index_remembers_how_much_could_not_be_decoded(tmp_path: Path, keep: str) -> None:
    localizer, path = tiny_localizer(), damaged(tmp_path / "v.mp4", 25, 75)
    with Index(tmp_path / "index", create=True) as index:
        video = add_file(index, localizer, path, keep=keep, commit_s=0).video
        assert (video.frames, video.unreadable, video.complete) == (30, 10, True)
        assert list_dict(index, [video])["videos"][0]["unreadable_frames"] == 10
        assert ", 2.0 s unreadable" in list_text(index, [video])
        found = search(index, localizer, {"it": QUERY}, exhaustive=True)
        note = "2.0 s of v.mp4 could not be decoded; what was in view then is not known"
        assert note in answers_text(found, every=False)
        (said,) = answers_dict(None, "", found, every=False)["things"][0]["answers"]
        assert said["unreadable"] == 2.0
        sound = add_file(index, localizer, make_video(tmp_path / "sound.mp4", 3.0, 1)).video
        assert sound.unreadable == 0 and "unreadable" not in list_text(index, [sound])


def test_a_run_that_was_interrupted_goes_on_counting(tmp_path: Path) -> None:
    localizer, path = tiny_localizer(), damaged(tmp_path / "v.mp4", 25, 75)

    class Stopped(Exception):
        pass

    def stop(told: Progress) -> None:
        if told.done >= 8:
            raise Stopped

    with Index(tmp_path / "index", create=True) as index:
        with pytest.raises(Stopped):
            add_file(index, localizer, path, commit_s=0, progress=stop)
        (video,) = index.videos()
        assert (video.frames, video.unreadable, video.complete) == (8, 3, False)
        assert add_file(index, localizer, path).video.unreadable == 10


def test_a_video_that_is_mostly_unreadable_is_not_taken_unless_that_is_allowed(tmp_path: Path) -> None:
    localizer, path = tiny_localizer(), damaged(tmp_path / "v.mp4", 25, 125)
    with Index(tmp_path / "index", create=True) as index:
        with pytest.raises(VideoError, match="more than half of it cannot be decoded"):
            add_file(index, localizer, path, commit_s=0)
        assert index.videos() == [] and not list((tmp_path / "index" / "videos").iterdir())
        video = add_file(index, localizer, path, allow_truncated=True).video
        assert (video.frames, video.unreadable, video.complete) == (30, 20, True)


def test_the_missing_end_of_a_damaged_video_counts(tmp_path: Path) -> None:
    with Index(tmp_path / "index", create=True) as index:
        path = damaged(tmp_path / "v.mp4", 100, 150)
        video = add_file(index, tiny_localizer(), path, allow_truncated=True).video
        assert (video.frames, video.unreadable, video.complete) == (20, 10, True)


@pytest.mark.parametrize("keep", ["full", "compact"])
def test_features_that_will_not_fit_on_the_disk_are_refused_before_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    localizer, path = tiny_localizer(), make_video(tmp_path / "v.mp4", 8.0, 0)
    with Index(tmp_path / "index", create=True) as index:
        with monkeypatch.context() as patched:
            usage = Usage(10**6, 10**6 - 20_000, 20_000)
            patched.setattr(recorder_module.shutil, "disk_usage", lambda _: usage)
            with pytest.raises(IndexStoreError) as caught:
                add_file(index, localizer, path, keep=keep)
        message = str(caught.value)
        assert message.startswith("v.mp4: its features need ") and "\n" not in message
        assert "2e-05 GB are free" in message and "another --index" in message
        assert ("--keep compact needs" in message) == (keep == "full")
        assert index.videos() == [] and not list((tmp_path / "index" / "videos").iterdir())
        video = add_file(index, localizer, path, keep=keep).video
        row = (video.fine_bytes or 0) + (video.compact_bytes or 0)
        assert video.complete and float(message.split(" need ")[1].split()[0]) == pytest.approx(
            40 * row / 1e9, rel=0.01
        )


def test_a_run_that_goes_on_asks_for_room_for_the_rest_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    localizer, path = tiny_localizer(), make_video(tmp_path / "v.mp4", 8.0, 0)

    def stop(told: Progress) -> None:
        if told.done >= 20:
            raise KeyboardInterrupt

    with Index(tmp_path / "index", create=True) as index:
        with pytest.raises(KeyboardInterrupt):
            add_file(index, localizer, path, commit_s=0, progress=stop)
        (video,) = index.videos()
        rest = (40 - video.frames) * (video.fine_bytes + video.compact_bytes)
        for free, fits in ((rest - 1, False), (rest, True)):
            monkeypatch.setattr(recorder_module.shutil, "disk_usage", lambda _, free=free: Usage(0, 0, free))
            if fits:
                assert add_file(index, localizer, path).outcome == ADDED
            else:
                with pytest.raises(IndexStoreError, match="are free at"):
                    add_file(index, localizer, path)
                assert index.videos()[0].frames == video.frames, "what is there stays"


def test_a_long_pause_can_be_cancelled_batch_by_batch(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mp4", pictures(3), [0.0, 0.2, 3000.0])
    calls = 0

    class Cancelled(Exception):
        pass

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Cancelled

    localizer = tiny_localizer().with_callback(check)
    pieces = localizer.encoded(Video(path), 0, 15_000)
    with pytest.raises(Cancelled):
        for _ in pieces:
            pass
    assert calls == 5


def test_timestamps_that_jump_leave_nothing_in_the_index(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mkv", pictures(4), [0.0, 0.2, 20_000.0, 20_000.2])
    with Index(tmp_path / "index", create=True) as index:
        with pytest.raises(VideoError, match=r"at 0\.2 s its timestamps jump by 20000 s"):
            add_file(index, tiny_localizer(), path)
        assert index.videos() == []


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs pipes")
    from lastseen.index.record import follow_file

    os.mkfifo(tmp_path / "v.mp4")
    with Index(tmp_path / "index", create=True) as index:
        for add in (add_file, follow_file):
            with pytest.raises(VideoError, match="is a pipe, not a file"):
                add(index, tiny_localizer(), tmp_path / "v.mp4")
        shutil.copy(make_video(tmp_path / "w.mp4", 1.0, 0), tmp_path / "x.mp4")
        assert add_file(index, tiny_localizer(), tmp_path / "x.mp4").outcome == ADDED

"""Questions that an index keeps: whole or not at all, so many, and none about what was forgotten."""

import os
import random
import signal
import stat
import sys
import time
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from disks import fill, mounted, only_readable
from questions import IDS, files_of, keep, question, sound

from lastseen.answer import Answer, ScoreCurve, VideoFacts
from lastseen.box import Box
from lastseen.errors import IndexStoreError
from lastseen.index import Index
from lastseen.index.kept_answer import packed, unpacked
from lastseen.index.questions import (
    FILE,
    THING,
    THUMBNAIL,
    Look,
    Questions,
    answer_file,
    picture_file,
)
from lastseen.index.record import add_file
from lastseen.track import ResponseTrack

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from index_kill import make_video, tiny_localizer


def test_what_is_kept_is_read_as_it_was_and_is_private(tmp_path):
    store = Questions(tmp_path)
    asked = keep(store, question())
    assert sound(store) == [asked] and store.find(asked.id) == asked and store.read()[1] == {}
    for name, content in files_of(asked).items():
        assert store.file(asked, name) == content
    assert store.file(asked, "../../other") is None
    for path in [tmp_path / "questions", *(tmp_path / "questions").rglob("*")]:
        assert os.name != "posix" or stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


@pytest.mark.parametrize("id", ["", ".", "..", "../questions", "0" * 11, "0" * 13, "G" * 12, "0" * 11 + "\n"])
def test_an_id_that_is_none_reaches_nothing(tmp_path, id):
    store = Questions(tmp_path)
    keep(store, question())
    assert store.find(id) is None and store.remove(id) is False
    assert len(sound(store)) == 1


def test_the_oldest_go_when_there_are_too_many_or_too_large_ones(tmp_path):
    store = Questions(tmp_path)
    for n in range(5):
        keep(store, question(IDS[n], asked_at=float(n)), most=3)
    assert [asked.id for asked in sound(store)] == [IDS[4], IDS[3], IDS[2]]
    keep(store, question(IDS[5], asked_at=5.0), size=20_000, most_bytes=300_000)
    assert [asked.id for asked in sound(store)] == [IDS[5], IDS[4], IDS[3], IDS[2]]
    keep(store, question(IDS[6], asked_at=6.0), size=20_000, most_bytes=300_000)
    assert [asked.id for asked in sound(store)] == [IDS[6]]
    with pytest.raises(IndexStoreError, match="more than may be kept"):
        keep(store, question(IDS[7]), size=20_000, most_bytes=30_000)
    assert [asked.id for asked in sound(store)] == [IDS[6]]


def test_of_a_removed_video_no_answer_note_picture_or_number_stays(tmp_path):
    store = Questions(tmp_path)
    frame = Look(number=1, width=60, height=40, video=1, source="/videos/one.mp4", time_s=2.0)
    photo = question().looks[0]
    keep(store, question(IDS[1], looks=(photo, frame)))
    keep(store, question(IDS[2], looks=(frame,)))
    keep(store, question(IDS[3], (1,)))
    other = keep(store, question(IDS[4], (2,), notes=()))
    by_path = replace(frame, number=0, video=None)
    keep(store, question(IDS[5], (2,), looks=(by_path,)))
    assert store.forget(1, "/videos/one.mp4") == ""
    left = {asked.id: asked for asked in sound(store)}
    assert left.keys() == {IDS[1], IDS[4]} and left[IDS[4]] == other
    assert left[IDS[1]].looks == (photo,) and left[IDS[1]].videos == (2,) and left[IDS[1]].notes == ()
    assert left[IDS[1]].thumbnail is None
    there = {path.name for path in (tmp_path / "questions" / IDS[1]).iterdir()}
    assert there == {FILE, answer_file(2), picture_file(0), THING}
    store.forget(2)
    assert list((tmp_path / "questions").iterdir()) == []


def test_sightings_and_pictures_of_dropped_frames_are_forgotten(tmp_path):
    """A recording that keeps its last hours (`--keep-hours`) drops what is older."""
    store = Questions(tmp_path)
    old, new = (Look(number=n, width=9, height=9, video=2, time_s=10.0 * n) for n in (0, 1))
    keep(store, question(IDS[1]))
    keep(store, question(IDS[2], looks=(old, new)))
    store.forget_before(2, 7.0)
    first, second = sorted(sound(store), key=lambda asked: asked.id)
    assert len(first.lines) == 2 and second.looks == (new,)
    assert THING not in second.checksums and THING in first.checksums
    store.forget_before(2, 9.0)
    assert [[line.video for line in asked.lines] for asked in sound(store)] == [[1], [1]]
    store.forget_before(1, 9.0)
    assert sound(store) == []


def test_no_answer_comes_back_about_a_video_that_was_removed_meanwhile(tmp_path):
    store = Questions(tmp_path)
    with pytest.raises(IndexStoreError, match="removed meanwhile"):
        store.keep(question(), {}, lambda: {1})
    assert sound(store) == []


@pytest.mark.parametrize("name", [FILE, answer_file(1), picture_file(0), THUMBNAIL, None])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_question_hides_no_other_and_is_told(tmp_path, name, damage):
    with Index(tmp_path / "index", create=True) as index:
        store = index.questions
        whole, asked = keep(store, question(IDS[1])), keep(store, question(IDS[2]))
        path = store.folder / asked.id / (name or FILE)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(content if damage == "flip" else content[:-3])
        assert whole in sound(store)
        if path.name == FILE:
            assert list(store.read()[1]) == [asked.id] and sound(store) == [whole]
            with pytest.raises(IndexStoreError, match=r"question\.json"):
                store.find(asked.id)
        else:
            with pytest.raises(IndexStoreError, match=rf"{path.name} is"):
                store.file(asked, path.name)
        (problem,) = index.problems()
        assert problem.startswith("a kept question is damaged") and problem.endswith(f"delete {path.parent}")
        store.forget(2)  # a question that cannot be read may be about it
        assert [q.id for q in sound(store)] == ([IDS[1]] if path.name == FILE else [IDS[2], IDS[1]][::-1])
        store.remove(asked.id)
        assert index.problems() == []


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'{"looks": 3}', b"[" * 100_000, b"\xff"])
def test_a_question_of_another_version_is_left_out(tmp_path, body):
    store = Questions(tmp_path)
    asked = keep(store, question())
    (store.folder / asked.id / FILE).write_bytes(b"lastseen/question@1 %d\n" % zlib.crc32(body) + body)
    assert sound(store) == [] and store.read()[1] == {
        asked.id: "question.json is of another version of lastseen"
    }


def test_an_answer_is_read_back_to_the_bit():
    rng, video = (
        np.random.default_rng(0),
        VideoFacts(path=Path("a"), width=9, height=9, fps=5.0, duration_s=8),
    )
    boxes = tuple(Box(*map(float, row)) for row in rng.uniform(0, 9, (7, 4)))
    track = ResponseTrack(first_frame=3, fps=5.0, boxes=boxes, score=np.float32(0.3))
    curve = ScoreCurve(
        fps=5.0,
        boxes_px=rng.uniform(0, 9, (40, 4)).astype(np.float32),
        scores=rng.uniform(0, 1, 40),
        smooth=rng.uniform(0, 1, 40),
        searched=rng.uniform(0, 1, 40) > 0.5,
    )
    answer = Answer(
        video=video,
        sightings=(track,),
        best_guess=None,
        curve=curve,
        model="m",
        threshold=0.3,
        steps=("zoom",),
        unreadable_s=0.4,
        searched_to_s=7.5,
        video_missing=True,
    )
    read = unpacked(packed(answer), video)
    for name in ("sightings", "best_guess", "model", "threshold", "steps", "unreadable_s", "video_missing"):
        assert getattr(read, name) == getattr(answer, name), name
    assert (read.searched_to_s, read.label, read.curve.fps) == (7.5, "thing", 5.0)
    for name in ("boxes_px", "scores", "smooth", "searched"):
        kept = getattr(read.curve, name)
        assert kept.dtype == getattr(curve, name).dtype
        np.testing.assert_array_equal(kept, getattr(curve, name))
    guess = unpacked(packed(Answer(video=video, sightings=(), best_guess=track)), video)
    assert guess.best_guess == track and guess.curve is None
    with pytest.raises(IndexStoreError, match="another version"):
        unpacked(b"no answer", video)


# --- misfortune ---


def keep_for_ever(place: Path) -> None:
    store = Questions(place)
    for n, id in enumerate(IDS):
        keep(store, question(id, (1, 2 + n % 2), asked_at=float(n)), size=200_000, most=4)
        if n % 7 == 6:
            store.forget(2)


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_a_killed_process_leaves_whole_questions_or_none(tmp_path):
    """Keeping, dropping the oldest and forgetting, killed at any moment."""
    rng, at_work = random.Random(0), 0
    for round in range(12):
        place = tmp_path / str(round)
        place.mkdir()
        if (child := os.fork()) == 0:
            with suppress(BaseException):
                keep_for_ever(place)
            os._exit(1)
        time.sleep(rng.uniform(0.05, 0.2))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        store = Questions(place)
        at_work += len(list(store.folder.glob(".*")))
        assert store.read()[1] == {}
        for asked in sound(store):
            held = {path.name for path in (store.folder / asked.id).iterdir()} - {f".{FILE}.part"}
            assert held <= {FILE, *files_of(asked)}
            for name in held - {FILE}:  # a file may be gone already if its video is being forgotten
                assert name not in asked.checksums or store.file(asked, name)
        store.sweep()
        assert list(store.folder.glob(".*")) == []
        store.forget(2)
        assert store.problems() == []
    assert at_work > 0, "no kill came while it was writing"


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Path:
    return make_video(tmp_path_factory.mktemp("video") / "walk.mp4", 4, 1)


@pytest.mark.skipif(os.name != "posix", reason="mounts are those of POSIX")
def test_on_a_full_disk_nothing_is_kept_by_half_and_forgetting_works(tmp_path, video):
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=4m", "tmpfs") as disk:
        with Index(disk / "index", create=True) as index:
            add_file(index, tiny_localizer(), video)
            both = keep(index.questions, question(IDS[1]))
            keep(index.questions, question(IDS[2], (1,), notes=()))
            fill(disk)
            with pytest.raises(OSError, match="No space left"):
                keep(index.questions, question(IDS[3]))
            assert {asked.id for asked in sound(index.questions)} == {IDS[1], IDS[2]}
            assert index.problems() == []
        with Index(disk / "index") as index:
            index.remove(index.videos()[0])
            for asked in sound(index.questions):  # rewritten, or forgotten if there was no room for that
                assert asked.id == both.id and [line.video for line in asked.lines] == [2]
            assert not (index.questions.folder / IDS[2]).exists()
            assert list(index.questions.folder.glob(".*")) == [] and index.problems() == []


@pytest.mark.skipif(os.name != "posix", reason="mounts and modes are those of POSIX")
def test_in_an_index_that_can_only_be_read_questions_are_read(tmp_path, video):
    with Index(tmp_path / "index", create=True) as index:
        asked = keep(index.questions, question())
    with only_readable(tmp_path / "index"), Index(tmp_path / "index") as index:
        assert sound(index.questions) == [asked]
        with pytest.raises(OSError, match=r"Read-only|Permission"):
            keep(index.questions, question(IDS[1]))
        with pytest.raises(IndexStoreError, match="files of it stay"):
            index.questions.remove(asked.id)
        assert sound(index.questions) == [asked]

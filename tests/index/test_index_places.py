"""An index on a full disk, where only reading is allowed, and out of others' sight; what removing leaves."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from disks import fill, is_root, mount, mounted, only_readable

from lastseen.errors import IndexStoreError
from lastseen.index import Index
from lastseen.index.entry import LIVE
from lastseen.index.record import KNOWN, add_file
from lastseen.index.search import search
from lastseen.query import Query
from lastseen.video.sources import stream_key, without_password

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from index_kill import make_video, tiny_localizer

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(os.name != "posix", reason="mounts and modes are those of POSIX"),
]
QUERY = {"it": Query.from_array(np.random.default_rng(0).integers(0, 255, (48, 48, 3), np.uint8))}


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> list[Path]:
    root = tmp_path_factory.mktemp("videos")
    return [make_video(root / f"{name}.mp4", 8, number) for number, name in enumerate(("walk", "hall"))]


@pytest.fixture
def place(videos, tmp_path) -> Path:
    folder = tmp_path / "index"
    with Index(folder, create=True) as index:
        for video in videos:
            add_file(index, tiny_localizer(), video)
    return folder


# --- a full disk ---


def test_on_a_full_disk_an_index_can_be_listed_asked_and_freed(videos, tmp_path):
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=4m", "tmpfs") as disk:
        with Index(disk / "index", create=True) as index:
            for video in videos:
                add_file(index, tiny_localizer(), video)
        fill(disk)
        assert shutil.disk_usage(disk).free == 0
        with Index(disk / "index") as index:
            first, second = index.videos()
            assert search(index, tiny_localizer(), QUERY)["it"]
            with pytest.raises(IndexStoreError, match=r"disk of .* is full"):
                index.catalogue.update(1, name="other")
            assert index.remove(first) > 0
            assert index.videos() == [second] and index.verify(second) == [] and index.problems() == []
        assert shutil.disk_usage(disk).free > 0


def test_a_removal_that_was_interrupted_is_completed(place, videos, monkeypatch):
    with Index(place) as index:
        first, second = index.videos()

        def killed(_: int) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(index.catalogue, "remove", killed)
            index.remove(first)
        assert len(index.catalogue.videos()) == 2, "the catalogue still has it"
    with Index(place) as index:
        assert index.videos() == [second], "and yet it is not asked any more"
        assert all(answer.damage == () for answer in search(index, tiny_localizer(), QUERY)["it"])
        index.sweep()
        assert index.catalogue.videos() == [second] and index.problems() == []


# --- removing ---


def test_what_could_not_be_removed_is_said(place, run):
    with Index(place) as index:
        video = index.videos()[0]
        kept = index.place(video) / "kept"
    kept.mkdir()
    (kept / "file").touch()
    with ExitStack() as stack:
        if is_root():
            mount("--bind", str(kept), str(kept))
            # Its folder is renamed when it is removed, and the mount with it.
            for there in (kept, kept.parent.with_suffix(".removed") / "kept"):
                unmount = ["umount", "--lazy", str(there)]
                stack.callback(subprocess.run, unmount, capture_output=True, check=False)
        else:
            kept.chmod(0o500)
        status, out, err = run("index", "remove", "walk.mp4", "--index", place)
    assert (status, out) == (2, "")
    assert err.startswith("lastseen: walk.mp4 is forgotten, but files of it stay: ") and err.count("\n") == 1
    assert "kept (" in err and "delete them" in err
    with Index(place) as index:
        assert [video.name for video in index.videos()] == ["hall.mp4"]


def test_a_name_that_was_forgotten_is_in_no_byte_of_the_catalogue(place, videos, tmp_path):
    names = [f"my secret {number} {'clinic' * 20}" for number in range(40)]
    with Index(place) as index, Index(place) as other:
        for number, name in enumerate(names):
            index.catalogue.add(
                name, **{**facts(index), "identity": f"id {name}", "source": f"/{name}", "size": number}
            )
        assert other.videos()
        for name in names[::2] + names[1::2]:
            index.remove(index.named(name))
        held = b"".join(path.read_bytes() for path in place.glob("catalogue.sqlite*"))
        assert b"walk.mp4" in held
        assert b"secret" not in held and b"clinicclinic" not in held


def facts(index: Index) -> dict:
    known = vars(index.videos()[0])
    columns = ("kind", "width", "height", "fps", "duration_s", "recorded_at", "keep")
    return {column: known[column] for column in columns}


# --- reading only ---


def test_an_index_that_can_only_be_read_is_listed_verified_and_asked(place, videos, run):
    before = sorted(path.name for path in place.rglob("*"))
    with Index(place) as index:
        usual = search(index, tiny_localizer(), QUERY)["it"][0]
    with only_readable(place):
        for create in (False, True):  # Python's default is to make it if it is not there
            with Index(place, create=create) as index:
                found = search(index, tiny_localizer(), QUERY)["it"][0]
                assert np.array_equal(found.curve.scores, usual.curve.scores)
                index.sweep()
                assert add_file(index, tiny_localizer(), videos[0]).outcome == KNOWN
                with pytest.raises(IndexStoreError, match="can only be read, not changed"):
                    add_file(index, tiny_localizer(), make_video(place.parent / "new.mp4", 2, 7))
        for command in (["list"], ["info"], ["verify"]):
            status, out, err = run("index", *command, "--index", place)
            assert ((status, err) == (0, "") and "walk.mp4" in out) or command == ["verify"]
        status, _, err = run("index", "remove", "walk.mp4", "--index", place)
        assert status == 2 and "can only be read, not changed" in err and err.count("\n") == 1
        assert sorted(path.name for path in place.rglob("*")) == before
    with Index(place) as index:
        assert len(index.videos()) == 2


def test_a_touched_file_is_recognised_where_nothing_can_be_noted(place, videos):
    os.utime(videos[0], (1_500_000_000,) * 2)
    with only_readable(place), Index(place) as index:
        assert add_file(index, tiny_localizer(), videos[0]).outcome == KNOWN


# --- out of others' sight ---


def readable_by_others(folder: Path) -> list[str]:
    paths = [folder, *folder.rglob("*")]
    return [path.name for path in paths if path.stat().st_mode & 0o077 and not path.is_symlink()]


def test_an_empty_folder_that_was_there_is_made_private(videos, tmp_path):
    place = tmp_path / "there"
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    old = os.umask(0o022)
    try:
        with Index(place, create=True) as index:
            add_file(index, tiny_localizer(), videos[0])
    finally:
        os.umask(old)
    assert readable_by_others(place) == []
    place.chmod(0o755)
    (place / "catalogue.sqlite").chmod(0o644)
    Index(place, create=True).close()
    assert readable_by_others(place) == [], "also one of before"


def test_in_a_folder_with_other_files_only_what_is_the_indexs_is_private(videos, tmp_path):
    place = tmp_path / "holiday"
    place.mkdir()
    (place / "notes.txt").touch()
    for path, mode in ((place, 0o755), (place / "notes.txt", 0o644)):
        path.chmod(mode)
    old = os.umask(0o022)
    try:
        with Index(place, create=True) as index:
            add_file(index, tiny_localizer(), videos[0])
            open_now = readable_by_others(place)
    finally:
        os.umask(old)
    assert sorted(open_now) == ["holiday", "notes.txt"]
    assert sorted(readable_by_others(place)) == ["holiday", "notes.txt"]


# --- streams ---


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("rtsp://cam/live?user=a&password=b", "rtsp://cam/live?…"),
        ("rtsp://me:secret@cam:554/live", "rtsp://cam:554/live"),
        ("rtsp://cam/user=admin_password=b_channel=1.sdp", "rtsp://cam/…"),
        ("http://h/4f9d1c2b7a8e6f50aa/stream.m3u8", "http://h/…/stream.m3u8"),
        ("http://h/stream#key=1", "http://h/stream?…"),
        ("http://h/user/me/password/hunter2/7.ts", "http://h/user/…/…/…/7.ts"),
        ("rtsp://h/admin:hunter2/live", "rtsp://h/…/live"),
        ("rtsp://192.168.1.7/Streaming/Channels/101", "rtsp://192.168.1.7/Streaming/Channels/101"),
        ("camera:1", "camera:1"),
    ],
)
def test_secrets_in_addresses_are_left_out(address, shown):
    assert without_password(address) == shown


def test_streams_that_look_alike_are_told_apart(place):
    from lastseen.index.recorder import Recorder, drop_older

    localizer = tiny_localizer()
    addresses = ["rtsp://cam/live?channel=1", "rtsp://a:b@cam/live?channel=1", "rtsp://cam/live?channel=2"]
    assert stream_key(addresses[0]) == stream_key(addresses[1]) != stream_key(addresses[2])
    with Index(place) as index:
        for number, address in enumerate(addresses):
            video = index.catalogue.add(
                f"run {number}",
                **{
                    **facts(index),
                    "kind": LIVE,
                    "source": without_password(address),
                    "identity": f"{LIVE}:{stream_key(address)}:{number}",
                    "recorded_at": 1e9 + 86_400 * number,
                },
            )
        drop_older(Recorder(index, localizer, video), keep_hours=1.0)
        assert {"run 0", "run 1", "run 2"} <= {video.name for video in index.videos()}
        second = index.named("run 1")
        drop_older(Recorder(index, localizer, second), keep_hours=1.0)
        assert {video.name for video in index.videos() if video.kind == LIVE} == {"run 1", "run 2"}


# --- races ---


@pytest.mark.parametrize(("exhaustive", "leaving", "rest"), [(False, "walk", "hall"), (True, "hall", "walk")])
def test_a_question_answers_from_the_rest_if_a_video_is_removed_meanwhile(place, exhaustive, leaving, rest):
    localizer = tiny_localizer()
    with Index(place) as index, Index(place) as other:
        removed = []

        def after_removing(honest):
            def work(features, *options):
                if not removed and options:  # without, `clips` only counts
                    removed.append(other.remove(other.named(leaving)))
                return honest(features, *options)

            return work

        localizer.localize_clip = after_removing(localizer.localize_clip)  # quick search
        localizer.clips = after_removing(localizer.clips)  # exhaustive search, whose latest video is first
        answers = search(index, localizer, QUERY, every=True, exhaustive=exhaustive)["it"]
        assert removed
        assert [(answer.video.name, answer.damage) for answer in answers] == [(f"{rest}.mp4", ())]


def test_a_question_to_a_video_that_is_gone_is_one_line(place):
    with Index(place) as index:
        first = index.videos()[0]
        index.remove(first)
        with pytest.raises(IndexStoreError, match="was removed from the index meanwhile; ask again"):
            search(index, tiny_localizer(), QUERY, videos=[first])


def test_an_index_that_keeps_changing_does_not_keep_a_question_forever(place):
    localizer = tiny_localizer()
    with Index(place) as index:
        attempts = []

        def changing(features, queries):
            attempts.append(index.catalogue.update(1, first=len(attempts) + 1))
            raise IndexStoreError("frames were dropped meanwhile; ask again")

        localizer.localize_clip = changing
        with pytest.raises(IndexStoreError, match="meanwhile; ask again"):
            search(index, localizer, QUERY, videos=[index.videos()[0]])
        assert 1 < len(attempts) < 40


def test_a_catalogue_of_before_gets_the_columns_it_lacks(place):
    with sqlite3.connect(place / "catalogue.sqlite") as base:
        base.execute("ALTER TABLE videos DROP COLUMN unreadable")
    base.close()
    with only_readable(place), Index(place) as index:
        assert [video.unreadable for video in index.videos()] == [0, 0]
    with sqlite3.connect(place / "catalogue.sqlite") as base:
        assert "unreadable" not in {row[1] for row in base.execute("PRAGMA table_info(videos)")}
    base.close()
    with Index(place) as index:
        assert [video.unreadable for video in index.videos()] == [0, 0]
        assert index.catalogue.update(1, unreadable=3).unreadable == 3
    with Index(place) as index:
        assert [video.unreadable for video in index.videos()] == [3, 0]

"""Files that are no videos, bad names and damaged videos, as a user types them: one line each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from videos import overwrite_packets, pictures, write_video

from lastseen.localizer import Localizer

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from index_kill import make_video, tiny_localizer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: tiny_localizer())
    monkeypatch.setenv("LASTSEEN_INDEX", str(tmp_path / "index"))
    folder = tmp_path / "work"
    folder.mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(
        folder / "keys.png"
    )
    monkeypatch.chdir(folder)
    return folder


def one_line(text: str) -> bool:
    return text.startswith("lastseen: ") and text.count("\n") == 1 and "internal error" not in text


def damaged(path: Path, first: int, last: int) -> None:
    keys = {"x264-params": "keyint=25:min-keyint=25:scenecut=0:bframes=0"}
    write_video(path, pictures(150), gop=25, options=keys)
    overwrite_packets(path, first, last, b"\0")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("command", [("find", "keys.png"), ("index",)])
@pytest.mark.parametrize("name", ["pipe.mp4", "/dev/zero"])
def test_a_pipe_or_a_device_is_one_line_at_once(place, command, name):
    os.mkfifo("pipe.mp4")
    code = "from lastseen.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command, name, "-q"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert one_line(done.stderr) and f"{name}: is a " in done.stderr


@pytest.mark.parametrize(
    "command", [("find", "keys.png"), ("find", "--at", "1", "--box", "0,0,9,9"), ("serve",), ("index",)]
)
def test_the_password_in_a_streams_address_is_not_repeated(run, place, command):
    status, out, err = run(*command, "rtsp://me:hunter2@127.0.0.1:9/x?key=hunter3")
    assert (status, out) == (2, "") and one_line(err) and "hunter" not in err


def test_an_empty_name_is_not_the_current_folder(run, place):
    make_video(Path("walk.mp4"), 1.0, 0)
    status, out, err = run("index", "", "-q")
    assert (status, out) == (2, "") and one_line(err) and "an empty name is no video" in err
    status, out, err = run("index", "walk.mp4", "", "-q")
    assert (status, out) == (2, "") and one_line(err)
    assert run("index", "list")[0] == 2, "nothing was made"


@pytest.mark.parametrize(
    "words",
    [
        ["index", "walk.mp4", "--index", ""],
        ["index", "walk.mp4", "--index="],
        ["index", "list", "--index", ""],
        ["serve", "--videos", ""],
        ["find", "", "walk.mp4"],
        ["find", "keys.png", ""],
        ["find", "keys.png", "walk.mp4", "--weights", ""],
        ["train", "toy", ""],
        ["synth", ""],
    ],
)
def test_no_empty_name_is_the_current_folder(run, place, words):
    make_video(Path("walk.mp4"), 1.0, 0)
    before = sorted(place.iterdir())
    status, out, err = run(*words)
    assert (status, out) == (2, "") and one_line(err) and "an empty name is no video" in err
    assert sorted(place.iterdir()) == before


def test_bad_names_in_a_folder_are_one_line_each_and_the_others_go_on(run, place):
    make_video(Path("a.mp4"), 1.0, 0)
    make_video(Path("z.mp4"), 1.0, 1)
    Path("broken.mp4").symlink_to("nowhere.mp4")
    Path("loop.mp4").symlink_to("loop.mp4")
    Path("folder.mp4").mkdir()
    bad = 2
    if sys.platform == "linux":
        Path(os.fsdecode(b"caf\xe9.mp4")).write_bytes(Path("a.mp4").read_bytes() + b"0")
        os.mkfifo("pipe.mp4")
        bad += 2
    status, out, err = run("index", ".", "-q")
    assert status == 2
    assert [line.split(":")[0] for line in out.splitlines()] == ["a.mp4", "z.mp4"]
    assert len(err.splitlines()) == bad and all(one_line(f"{line}\n") for line in err.splitlines())
    status, out, err = run("index", ".", "-q", "--json")
    assert status == 2 and len(json.loads(out)["failed"]) == bad


@pytest.mark.parametrize("name", ["x" * 300 + ".mp4", "caf\udce9.mp4"])
def test_a_name_that_cannot_be_is_one_line(run, place, name):
    for words in (("index", name), ("find", "keys.png", name), ("index", name, "--follow", "--settle", "0")):
        status, out, err = run(*words, "-q")
        assert (status, out) == (2, "") and one_line(err), words


def test_a_playlist_is_refused_by_find_and_by_index(run, place):
    write_video(Path("part.ts"), pictures(50))
    Path("list.m3u8").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2.0,\npart.ts\n#EXT-X-ENDLIST\n")
    for words in (("index", "list.m3u8"), ("find", "keys.png", "list.m3u8")):
        status, out, err = run(*words, "-q")
        assert (status, out) == (2, "") and one_line(err) and "is a list that names other files" in err


def test_find_says_what_could_not_be_decoded(run, place):
    damaged(Path("walk.mp4"), 25, 75)
    note = "note: 2.0 s of the video could not be decoded; what was in view then is not known"
    status, out, err = run("find", "keys.png", "walk.mp4", "-q")
    assert status in (0, 1) and out.splitlines()[-1] == note and err == ""
    status, out, err = run("find", "keys.png", "walk.mp4", "--json")
    assert json.loads(out)["unreadable"] == 2.0 and note in err


def test_a_mostly_unreadable_video_needs_permission(run, place):
    damaged(Path("walk.mp4"), 25, 125)
    for words in (("find", "keys.png", "walk.mp4"), ("index", "walk.mp4")):
        status, out, err = run(*words, "-q")
        assert (status, out) == (2, "") and one_line(err) and "--allow-truncated" in err
    status, out, _ = run("find", "keys.png", "walk.mp4", "-q", "--allow-truncated")
    assert status in (0, 1) and "note: 4.0 s of the video could not be decoded" in out
    status, out, err = run("index", "walk.mp4", "--allow-truncated")
    assert status == 0 and "note: 20 of 30 frames of walk.mp4 could not be decoded" in err
    assert ", 4.0 s unreadable" in run("index", "list")[1]
    assert "unreadable_frames: 20" in run("index", "info")[1]
    assert "4.0 s of walk.mp4 could not be decoded" in run("find", "keys.png", "-q")[1]

"""Pipes, devices and names that are too long, as inputs and outputs: one line at once, nothing replaced."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from scenes import thing, write_scene

from lastseen.errors import OutputError
from lastseen.files import check_writable, write_whole
from lastseen.localizer import Localizer
from lastseen.stored_config import json_in
from lastseen.video import VideoWriter

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
LONG = "x" * 300
LONGEST = "y" * 251  # with .jpg as long as a name can be


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    def from_pretrained(*_, **__):
        raise AssertionError("the model was loaded before the outputs were checked")

    monkeypatch.setattr(Localizer, "from_pretrained", from_pretrained)
    monkeypatch.chdir(tmp_path)
    Image.fromarray(thing()).save("thing.png")
    write_scene(tmp_path / "walk.mp4", [(100, 50)] * 3)
    annotations = {"version": "1.0.5", "videos": []}
    Path("annotations.json").write_text(json.dumps(annotations))
    box = {"frame": 0, "x1": 0, "y1": 0, "x2": 9, "y2": 9}
    track = {"schema": "lastseen/track@1", "fps": 5.0, "score": 0.5, "boxes": [box]}
    answer = {"video": LONG, "width": 64, "height": 48, "found": True, "tracks": [track]}
    Path("answer.json").write_text(json.dumps({"schema": "lastseen/answer@1", **answer}))
    return tmp_path


def one_line(text: str) -> bool:
    return text.startswith("lastseen: ") and text.count("\n") == 1 and "internal error" not in text


READERS = [
    ("export", "INPUT", "out.csv"),
    ("validate", "--annotations", "INPUT", "--predictions", "p.json"),
    ("validate", "--annotations", "annotations.json", "--predictions", "INPUT"),
    ("evaluate", "--annotations", "annotations.json", "--predictions", "p.json", "--absent", "INPUT"),
]


def test_json_is_not_read_from_a_pipe_or_a_device(folder):
    """In a process of its own, which can be ended."""
    os.mkfifo("pipe.json")
    code = (
        "import sys; from lastseen.cli import main\n"
        "for words in eval(sys.argv[1]):\n"
        "    sys.argv = ['lastseen', *words]\n"
        "    try: main()\n"
        "    except SystemExit as ended: print(ended.code)\n"
    )
    names = ("pipe.json", "/dev/zero")
    commands = [
        tuple(name if word == "INPUT" else word for word in words) for name in names for words in READERS
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, repr(commands)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["2"] * len(commands)
    lines = done.stderr.splitlines(keepends=True)
    assert len(lines) == len(commands) and all(map(one_line, lines))
    for line, name in zip(lines, ["pipe.json"] * len(READERS) + ["/dev/zero"] * len(READERS)):
        assert f"{name}: is a pipe or a device, not a file; " in line


def test_a_stream_without_end_is_not_kept_for_ever(run, monkeypatch):
    monkeypatch.setattr(sys.modules["lastseen.cli.export"], "MOST_BYTES", 1000)
    monkeypatch.setattr("sys.stdin", io.StringIO("[" * 2000))
    status, _, err = run("export", "-", "out.csv")
    assert status == 2 and one_line(err) and "-: does not end; " in err


def test_a_file_that_is_far_too_large_is_not_read(run, folder):
    with Path("huge.json").open("wb") as file:
        file.truncate(2**40)  # sparse
    for words in READERS:
        status, _, err = run(*("huge.json" if word == "INPUT" else word for word in words))
        assert status == 2 and one_line(err) and "huge.json: is larger than " in err


def test_a_models_config_is_not_read_from_a_pipe(folder):
    os.mkfifo("config.json")
    with pytest.raises(ValueError, match="cannot be read: is a pipe or a device"):
        json_in(folder / "config.json")


@pytest.mark.parametrize(
    "words",
    [
        ("find", "thing.png", "walk.mp4", "--picture", "OUT.jpg"),
        ("find", "thing.png", "walk.mp4", "--report", "OUT.html"),
        ("find", "thing.png", "walk.mp4", "--cutout", "OUT.mp4"),
        ("find", "thing.png", "walk.mp4", "--save", "OUT.csv"),
        ("affinity", "thing.png", "walk.mp4", "--at", "0", "--out", "OUT.png"),
        ("export", "answer.json", "OUT.csv"),
        ("synth", "OUT.mp4", "--preview"),
    ],
    ids=" ".join,
)
def test_an_output_that_is_a_pipe_or_too_long_a_name_is_refused_before_the_work(run, folder, words):
    pipe = next(word for word in words if "OUT." in word).replace("OUT", "pipe")
    os.mkfifo(pipe)
    status, _, err = run(*(word.replace("OUT", "pipe") for word in words))
    assert status == 2 and one_line(err) and f"{pipe} is a pipe or a device, not a file; " in err
    assert stat.S_ISFIFO(Path(pipe).stat().st_mode), "it was not replaced"
    status, _, err = run(*(word.replace("OUT", LONG) for word in words))
    assert status == 2 and one_line(err) and "file name too long" in err


def test_a_device_is_never_replaced(folder):
    with pytest.raises(OutputError, match="/dev/null is a pipe or a device"):
        check_writable("/dev/null")


def test_the_longest_names_can_be_written(folder):
    """Temporary files have longer names than theirs."""
    write_whole(f"{LONGEST}.jpg", b"content")
    with VideoWriter(f"{LONGEST}.mp4", 64, 48, fps=5) as writer:
        writer.write(thing()[:48, :64])
    written = {path.name for path in folder.iterdir() if path.name.startswith("y")}
    assert written == {f"{LONGEST}.jpg", f"{LONGEST}.mp4"}


@pytest.mark.parametrize(
    "words",
    [
        ("find", "thing.png", "--index", LONG),
        ("index", "list", "--index", LONG),
        ("index", "walk.mp4", "--index", LONG),
        ("serve", LONG),
        ("serve", "--videos", LONG),
        ("convert", LONG, "model"),
        ("models", "add", "mobile-sam", "--from", LONG),
        ("synth", LONG, "--episodes", "1"),
        ("train", LONG, "--recipe", "tiny"),
        ("export", "answer.json", "out.csv"),
    ],
    ids=lambda words: words[0],
)
def test_every_name_that_is_too_long_is_one_line(run, words):
    status, _, err = run(*words)
    assert status == 2 and one_line(err) and "file name too long" in err.lower()


@pytest.mark.parametrize("value", [float("nan"), -1.0, 1e300])
def test_an_answer_with_impossible_unreadable_seconds_is_malformed(run, value):
    answer = json.loads(Path("answer.json").read_text())
    facts = {"video": "walk.mp4", "fps": 5.0, "duration": 1.0, "unreadable": value}
    Path("answer.json").write_text(json.dumps({**answer, **facts}))
    status, _, err = run("export", "answer.json", "out.json")
    assert status == 2 and one_line(err) and "malformed answer: unreadable must be 0 to " in err


def test_weights_of_too_long_a_name_are_one_line(run, monkeypatch):
    monkeypatch.undo()
    status, _, err = run("find", "thing.png", "walk.mp4", "--weights", LONG)
    assert status == 2 and one_line(err)

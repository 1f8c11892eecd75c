"""Names of files reach the terminal as text: they neither control it nor end the program."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from evidence import answer_of
from scenes import box_at, quick_localizer, write_scene

from lastseen.files import one_line, printable
from lastseen.formats import FORMATS, format_answer, write_answer
from lastseen.localizer import Localizer
from lastseen.render import report_html, write_figure
from lastseen.track import ResponseTrack
from lastseen.video import Video

PLACE = (100, 50)
EVIL = "e\x1b]0;title\x07\x1b[2J\x9b31m\r\u202ev\x08.mp4"
SHOWN = r"e\x1b]0;title\x07\x1b[2J\x9b31m\r" + "\\u202ev\\x08.mp4"
NOT_TEXT = os.fsdecode(b"a\xff\xfe.mp4")  # bytes that are no UTF-8
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


def test_only_what_a_terminal_would_obey_is_changed():
    for text in ("plain", "Schlüssel 鍵 🔑 \u200d\u0301", "a\tb\n", "one\r\ntwo\r\n", r"C:\x1b"):
        assert printable(text) == text
    assert printable(EVIL) == SHOWN
    assert printable("a\r") == r"a\r"
    assert one_line("a\nlastseen: forged\r\n") == r"a\nlastseen: forged\r\n"


@pytest.mark.parametrize("name", [EVIL, NOT_TEXT, "two\nlines.mp4"])
@pytest.mark.parametrize(
    "words",
    [
        ["find", "thing.png", "NAME"],
        ["find", "NAME.png", "NAME"],
        ["find", "--thing", "NAME=NAME.png", "NAME"],
        ["find", "thing.png", "walk.mp4", "--picture", "NAME/o.jpg"],
        ["find", "thing.png", "walk.mp4", "--box", "NAME"],
        ["find", "thing.png", "walk.mp4", "--weights", "NAME"],
        ["find", "thing.png", "--index", "NAME"],
        ["index", "NAME"],
        ["export", "NAME", "o.csv"],
        ["evaluate", "--annotations", "NAME", "--predictions", "NAME"],
        ["validate", "--annotations", "NAME", "--predictions", "NAME"],
        ["convert", "NAME", "out"],
        ["models", "add", "mobile-sam", "--from", "NAME"],
        ["serve", "NAME"],
        ["synth", "out", "--assets", "NAME"],
        ["train", "out", "--recipe", "NAME"],
        ["NAME"],
        ["find", "--NAME"],
    ],
)
def test_an_error_about_any_name_is_one_line_of_text(run, tmp_path, monkeypatch, words, name):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(*[word.replace("NAME", name) for word in words])
    assert (status, out) == (2, "")
    assert err.startswith("lastseen: ") and err.count("\n") == 1 and "internal error" not in err
    assert not CONTROL.search(err)


@pytest.fixture(scope="module")
def localizer() -> Localizer:
    return quick_localizer()


@pytest.mark.usefixtures("one_thread", "remembered")
@pytest.mark.parametrize("name", [EVIL, "two\nlines.mp4"])
def test_a_video_of_any_name_is_remembered_and_found(run, tmp_path, monkeypatch, localizer, name):
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
    monkeypatch.chdir(tmp_path)
    write_scene(Path("plain.mp4"), [None] * 3 + [PLACE] * 5)
    try:
        Path("plain.mp4").rename(name)
    except OSError:
        pytest.skip("no file can have this name here")
    where, box = ("--index", "index"), ("--at", "1.0", "--box", "100,50,164,114")
    for words in (
        ["index", name, *where],
        ["index", "list", *where],
        ["index", "info", *where],
        ["index", "verify", *where],
        ["find", name, *box, *where, "--in", name, "-v"],
        ["find", name, *box, "--save", "o.csv", "--report", "o.html", "--figure", "o.png", "--json"],
        ["index", "remove", name, *where],
    ):
        status, out, err = run(*words)
        assert status == 0, (words, err)
        assert not CONTROL.search(out) and not CONTROL.search(err), words
        if words[:2] in (["index", name], ["index", "list"], ["index", "remove"]):
            assert one_line(name) in out, words
        if "--json" in words:
            assert json.loads(out)["video"].endswith(name)


@pytest.mark.usefixtures("one_thread", "remembered")
def test_a_video_whose_name_is_no_text_is_searched_but_not_remembered(run, tmp_path, monkeypatch, localizer):
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
    monkeypatch.chdir(tmp_path)
    write_scene(Path("plain.mp4"), [None] * 3 + [PLACE] * 5)
    try:
        Path("plain.mp4").rename(NOT_TEXT)
    except OSError:
        pytest.skip("no file can have this name here")
    asked = ("find", NOT_TEXT, "--at", "1.0", "--box", "100,50,164,114", "-v")
    status, out, err = run(*asked, "--save", "o.csv", "--report", "o.html", "--figure", "o.png")
    assert status == 0 and out.startswith("Last seen") and not CONTROL.search(out + err)
    assert json.loads(run(*asked, "--json")[1])["video"] == NOT_TEXT
    for words in (["index", NOT_TEXT, "--index", "i", "-q"], ["index", "remove", NOT_TEXT, "--index", "i"]):
        status, out, err = run(*words)
        assert (status, out) == (2, "") and err.count("\n") == 1 and "internal error" not in err
        assert one_line(NOT_TEXT) in err and not CONTROL.search(err)


def test_files_for_other_programs_hold_any_name(tmp_path):
    write_scene(tmp_path / "plain.mp4", [PLACE] * 5)
    track = ResponseTrack(first_frame=0, fps=5.0, boxes=(box_at(PLACE),) * 5, score=0.9)
    for name in (EVIL, NOT_TEXT):
        (tmp_path / "plain.mp4").rename(tmp_path / name)
        answer = answer_of(Video(tmp_path / name), [track])
        write_figure(tmp_path / "o.png", answer)
        for known in FORMATS:
            write_answer(tmp_path / "o", answer, known)
            text = (tmp_path / "o").read_bytes().decode()
            assert not CONTROL.search(text.replace("\r\n", "\n")), known
        assert one_line(name) in format_answer(answer, "csv")
        assert not CONTROL.search(report_html(answer))
        (tmp_path / name).rename(tmp_path / "plain.mp4")


IN_A_TERMINAL = """
import sys
from lastseen.cli.bar import progress_bar
from lastseen.cli.terminal import printable_streams
from lastseen.progress import Progress

name = sys.argv[1]
with printable_streams():
    for _ in range(3):
        with progress_bar(name + "[red]", False) as progress:
            progress(Progress("reading", 1, 2))
            print("said: " + name, flush=True)
            print("told: " + name, file=sys.stderr)
            progress(Progress("reading", 2, 2))
    print("after: " + name)
assert "Printable" not in type(sys.stdout).__name__
"""


def test_the_progress_bar_moves_and_names_do_not(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", IN_A_TERMINAL, EVIL]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert process.wait(timeout=60) == 0, shown
    text = shown.decode()
    assert "\x1b[" in text  # the bar itself
    assert "\x1b]" not in text and "\x07" not in text and "\x1b[2J" not in text and "\x9b" not in text
    assert "\u202e" not in text and "\x08" not in text
    for before in ("said: ", "told: ", "after: "):
        assert text.count(before) == (1 if before == "after: " else 3)
    assert r"\x1b]0;title\x07" in text and "[red]" in text


FOUND_IN_A_TERMINAL = """
import sys
from dataclasses import replace

sys.path.insert(0, sys.argv.pop(1))
from web import tiny
from lastseen.cli import main
from lastseen.localizer import Localizer
from lastseen.refine import Extend, Verify, Zoom

localizer = tiny()
localizer = localizer.with_rule(replace(localizer.rule, refinement=(Zoom(), Verify(), Extend())))
Localizer.from_pretrained = lambda *_, **__: localizer
words = sys.argv[1:]
for option in ([], ["-q"], ["--json"]):
    sys.argv[1:] = [*words, *option]
    try:
        main()
    except SystemExit as ended:
        print("status", ended.code)
"""


def shown_in_a_terminal(*words: str) -> tuple[int, str]:
    """Status and what a terminal is sent."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", FOUND_IN_A_TERMINAL, str(Path(__file__).parents[1]), *words]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass  # the other end is closed
    return process.wait(timeout=60), shown.decode()


def screen(shown: str) -> list[str]:
    """The rows of a terminal after it was sent this: lines, cursor up, erase line, colours."""
    rows, row = [""], 0
    for part in re.findall("\x1b\\[[0-9?;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", shown):
        if part == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif part.endswith("A") and part.startswith("\x1b["):
            row = max(0, row - int(part[2:-1] or 1))
        elif part == "\x1b[2K":
            rows[row] = ""
        elif not part.startswith("\x1b"):
            rows[row] += part
    return rows


def test_the_answer_so_far_is_one_line_that_the_answer_replaces(tmp_path):
    video = str(write_scene(tmp_path / "walk.mp4", [None] * 3 + [PLACE] * 5))
    status, shown = shown_in_a_terminal("find", video, video, "--at", "1.0", "--box", "100,50,164,114")
    assert status == 0 and shown.count("status 0") == 3, shown
    plain, quiet, as_json = shown.split("status 0")[:3]
    so_far = re.search(r"So far: last seen from 0:\d\d\.\d to 0:\d\d\.\d; looking closer \.\.\.", plain)
    assert so_far and plain.index("searching") < so_far.start() < plain.index("Last seen from")
    rows = [row for row in screen(plain) if row.strip()]  # what there is to see in the end
    assert [row.split()[0] for row in rows[:3]] == ["searching", "looking", "Last"]
    assert "So far" not in "".join(rows)
    assert "So far" not in quiet and "looking closer" not in quiet
    assert "So far" not in as_json and "looking closer" in as_json


def test_help_and_completion_are_as_before():
    done = subprocess.run(
        [sys.executable, "-m", "lastseen", "find", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: lastseen find [OPTIONS]") or "Usage: lastseen find" in done.stdout
    environment = {
        **os.environ,
        "_LASTSEEN_COMPLETE": "complete_bash",
        "COMP_WORDS": "lastseen fi",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "lastseen"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.split() == ["find"]

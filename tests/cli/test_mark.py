"""--mark: a box dragged in a window, or typed in a terminal."""

import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scenes import texture

from lastseen.cli.mark import box_between, preview
from lastseen.errors import QueryError

MARK = "import sys; from lastseen.cli.mark import mark; from lastseen.picture import read_picture\n"
DRAG = """
import tkinter
from lastseen.cli import mark as marking
def drag(window):
    canvas, scale = window.canvas, window.scale
    at = lambda x, y: {"x": round(x * scale), "y": round(y * scale)}
    for first, last in (((0, 0), (20, 20)), ((200, 150), (40, 30))):  # the second one counts
        canvas.event_generate("<ButtonPress-1>", **at(*first))
        canvas.event_generate("<B1-Motion>", **at(*last))
        canvas.event_generate("<ButtonRelease-1>", **at(*last))
    window.root.event_generate(sys.argv[2])
original = marking.MarkWindow.wait
def wait(window):
    window.root.after(200, lambda: drag(window))
    return original(window)
marking.MarkWindow.wait = wait
"""


@pytest.fixture
def photo(tmp_path):
    Image.fromarray(texture(3, 320, 240, 20)).save(tmp_path / "desk.png")
    return tmp_path / "desk.png"


def environment(**more):
    without = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    return {**without, "PYTHONPATH": str(Path(__file__).parents[2]), **more}


def test_corners_may_be_dragged_in_any_order_and_past_the_edge():
    for start, end in (((20, 40), (60, 80)), ((60, 80), (20, 40)), ((60, 40), (20, 80))):
        assert box_between(start, end, 2.0, 100, 100).xyxy == (10, 20, 30, 40)
    assert box_between((-9, 50), (500, 90), 1.0, 100, 60).xyxy == (0, 50, 100, 60)


@pytest.fixture(scope="module")
def display():
    if shutil.which("Xvfb") is None:
        pytest.skip("no Xvfb")
    pytest.importorskip("tkinter")
    reading, writing = os.pipe()
    words = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "800x600x24", "-nolisten", "tcp"]
    with subprocess.Popen(words, pass_fds=[writing], stderr=subprocess.DEVNULL) as server:
        os.close(writing)
        with os.fdopen(reading) as told:
            number = told.readline().strip()
        yield f":{number}"
        server.terminate()


@pytest.mark.parametrize(
    ("key", "says"), [("<Return>", "(40.0, 30.0, 200.0, 150.0)"), ("<Escape>", "nothing was")]
)
def test_a_box_is_dragged_in_a_window(photo, display, key, says):
    code = MARK + DRAG + "print(tuple(map(float, mark(read_picture(sys.argv[1]), 'desk.png').xyxy)))"
    done = subprocess.run(
        [sys.executable, "-c", code, photo, key],
        env=environment(DISPLAY=display),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert says in done.stdout + done.stderr
    assert (done.returncode == 0) is (key == "<Return>")


def in_terminal(photo: Path, typed: str) -> str:
    """What a terminal shows while a box is asked for."""
    code = MARK + "print('box', mark(read_picture(sys.argv[1]), 'desk.png').xyxy)"
    keyboard, screen = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code, photo], env=environment(), stdin=screen, stdout=screen, stderr=screen
    ) as process:
        os.close(screen)
        os.write(keyboard, typed.encode())
        shown = b""
        while True:
            try:
                shown += os.read(keyboard, 65536)
            except OSError:  # the other end was closed
                break
            time.sleep(0.01)
    os.close(keyboard)
    assert process.returncode is not None
    return shown.decode()


def test_without_a_display_the_box_is_typed(photo):
    shown = in_terminal(photo, "a\n10,10,900,20\n40 30 200 150\n")
    assert "desk.png is 320x240 pixels" in shown and "\u2580" in shown
    assert "expected X1,Y1,X2,Y2" in shown and "reaches outside the 320x240 picture" in shown
    assert "box (40.0, 30.0, 200.0, 150.0)" in shown
    assert "nothing was marked" in in_terminal(photo, "\n")


def test_the_preview_has_the_colours_and_the_pixels_of_the_picture():
    picture = np.zeros((100, 200, 3), np.uint8)
    picture[:, 100:] = 255, 0, 0
    lines = preview(picture, 46)
    assert len(lines) == 1 + 10 and all(len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= 46 for line in lines)
    assert lines[0].split() == ["0", "49", "98", "146"]
    assert "255;0;0" in lines[1] and lines[1].index("0;0;0") < lines[1].index("255;0;0")


def test_nowhere_to_ask_is_one_line(monkeypatch):
    from lastseen.cli.mark import mark

    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(QueryError, match="give --box X1,Y1,X2,Y2 in pixels of the 200x100 picture"):
        mark(np.zeros((100, 200, 3), np.uint8), "desk.jpg")

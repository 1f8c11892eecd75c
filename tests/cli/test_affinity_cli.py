"""lastseen affinity: the figure, and one line for every mistake."""

import re

import numpy as np
import pytest
from PIL import Image
from scenes import SIDE, frames, thing, write_scene

from lastseen.render.canvas import BLUE

PLACE = (210, 90)
pytestmark = pytest.mark.usefixtures("remembered")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("affinity")
    write_scene(root / "walk.mp4", [None] * 3 + [PLACE] * 5)
    Image.fromarray(thing()).save(root / "thing.png")
    Image.fromarray(frames([(40, 60)])[0]).save(root / "room.png")
    return root


@pytest.mark.parametrize(
    ("picture", "options", "on_thing"),
    [
        ("thing.png", (), (32, 32)),  # the middle, if nothing is said
        ("room.png", ("--box", "40,60,104,124", "--point", "72,92"), (32, 32)),
        ("thing.png", ("--point", "12,20"), (12, 20)),
    ],
)
def test_the_figure_shows_the_point_and_finds_the_thing(run, folder, tmp_path, picture, options, on_thing):
    out = tmp_path / "affinity.png"
    files = (folder / picture, folder / "walk.mp4", "--at", "1.2", "--out", out)
    status, said, err = run("affinity", *files, *options, "--weights", "training-free", "--device", "cpu")
    assert (status, err) == (0, "")
    x, y, width, height = map(int, re.search(r"at x (\d+), y (\d+) of the (\d+)x(\d+) frame", said).groups())
    assert (width, height) == (320, 180)
    expected = np.add(PLACE, on_thing)
    assert np.hypot(*(expected - (x, y))) < SIDE / 3, (expected, x, y)
    with Image.open(out) as image:
        pixels = np.array(image.convert("RGB")).reshape(-1, 3)
    assert (np.abs(pixels.astype(int) - BLUE).max(1) < 8).sum() > 50  # the point
    assert [path.name for path in tmp_path.iterdir()] == ["affinity.png"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"--at": "100"}, "no frame at 100 s; the video lasts 1.60 s"),
        ({"--at": "-1"}, "invalid value for '--at'"),
        ({"--point": "a,b"}, "expected X,Y in pixels, like 30,42"),
        ({"--point": "1,2,3"}, "expected X,Y in pixels"),
        ({"--point": "70,10"}, "--point 70,10 is outside the thing's box 0,0,64,64"),
        ({"--box": "1,2"}, "expected X1,Y1,X2,Y2"),
        ({"--box": "0,0,100,100"}, "reaches outside the 64x64 picture"),
        ({"--out": "figure.txt"}, "ends in .jpg"),
        ({"--out": "no/folder/figure.png"}, "does not exist"),
        ({"--weights": "nowhere"}, "config.json is missing"),
    ],
)
def test_a_mistake_is_one_clear_line(run, folder, monkeypatch, changed, says):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    options = {"--at": "1.2", "--out": "figure.png", **changed}
    status, out, err = run(
        "affinity", "thing.png", "walk.mp4", *(word for pair in options.items() for word in pair)
    )
    assert (status, out) == (2, "")
    assert err.startswith("lastseen: ") and err.count("\n") == 1
    assert says in err
    assert sorted(folder.iterdir()) == before

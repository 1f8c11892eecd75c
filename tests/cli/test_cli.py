"""The commands as a user types them: output, exit status, and one line for every mistake."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from models import GOLDEN, drawn
from PIL import Image
from scenes import box_at, texture, thing, write_scene
from videos import write_streams

from lastseen.track import ResponseTrack
from lastseen.video import Video

PLACE = (100, 50)
pytestmark = pytest.mark.usefixtures("remembered")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("cli")
    write_scene(root / "walk.mp4", [None] * 3 + [PLACE] * 5 + [None] * 3)
    Image.fromarray(thing()).save(root / "thing.png")
    Image.fromarray(texture(99, 64, 64, 4)).save(root / "other.png")
    return root


def one_line(text: str) -> bool:
    return text.startswith("lastseen: ") and text.count("\n") == 1 and "Traceback" not in text


def test_find_says_when_and_where_and_writes_the_pictures(run, folder, tmp_path):
    picture, video = tmp_path / "out.jpg", tmp_path / "out.mp4"
    status, out, err = run(
        "find", folder / "thing.png", folder / "walk.mp4", "--picture", picture, "--video", video
    )
    assert status == 0
    assert out.startswith("Last seen from 0:00.")
    assert "of the 320x180 frame" in out
    assert "Traceback" not in err and f"Wrote {picture}, {video}.\n" in err
    with Image.open(picture) as image:
        assert image.size == (320, 180)
    assert Video(video).duration_s == pytest.approx(2.2, abs=0.25)  # the track and what is around it
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jpg", "out.mp4"]


def test_find_without_training_says_so_when_asked(run, folder):
    found = run("find", folder / "thing.png", folder / "walk.mp4", "--weights", "training-free", "-v")
    assert found[0] == 0 and "training-free patch matching (ViT-S/14" in found[2]


def test_find_json_is_the_answer_and_nothing_else(run, folder):
    status, out, err = run("find", folder / "thing.png", folder / "walk.mp4", "--json", "--quiet")
    answer = json.loads(out)
    assert status == 0
    assert err == ""
    assert answer["schema"] == "lastseen/answer@1"
    assert answer["found"] is True
    track = ResponseTrack.from_dict(answer["tracks"][-1])
    assert track.boxes[2].iou(box_at(PLACE)) > 0.4


def test_find_says_not_seen_with_status_1(run, folder, tmp_path):
    picture = tmp_path / "out.jpg"
    status, out, err = run("find", folder / "other.png", folder / "walk.mp4", "-q", "--picture", picture)
    assert status == 1
    assert out.startswith("Not seen.\nThe best guess is ")
    assert err == "" and picture.exists()  # quiet; the guess is labelled as one in the picture
    film = tmp_path / "out.mp4"
    status, out, err = run(
        "find", folder / "other.png", folder / "walk.mp4", "--picture", picture, "--video", film
    )
    assert f"Wrote {picture}.\n{film} was not written: the thing was not seen.\n" in err and not film.exists()
    assert err.count("Is it there all the same?") == 1 and "--threshold" in err and "--threshold" not in out
    assert "note: the whole picture" not in err  # the tips say it


def test_the_picture_can_be_a_moment_of_the_video(run, folder):
    box = ",".join(map(str, (100, 50, 164, 114)))
    status, out, _ = run("find", folder / "walk.mp4", "--at", "1.0", "--box", box, "-q", "--json")
    assert status == 0
    assert json.loads(out)["tracks"][-1]["start"] < 1.2


def test_a_picture_without_a_box_is_answered_with_one_hint(run, folder):
    """After the answer, on stderr; what has a box, asks for JSON or for quiet gets none."""
    files = (folder / "thing.png", folder / "walk.mp4")
    status, out, err = run("find", *files)
    assert status == 0
    assert err.count("--box X1,Y1,X2,Y2") == 1 and "--box" not in out
    assert [line[:6] for line in err.splitlines() if "--box" in line] == ["note: "]
    for words in (
        ["--box", "2,2,62,62"],
        ["--quiet"],
        ["--json"],
    ):
        status, _, err = run("find", *files, *words)
        assert status == 0 and "note:" not in err, words
    several = (files[0], *files)  # a box goes with one picture
    assert "note:" not in run("find", *several)[2]


def test_picture_and_video_the_other_way_round_are_understood(run, folder):
    right = run("find", folder / "thing.png", folder / "walk.mp4", "--json")
    swapped = run("find", folder / "walk.mp4", folder / "thing.png", "--json")
    assert swapped[:2] == right[:2]
    assert "was taken as the video (the order is PICTURE... VIDEO)" in swapped[2]


@pytest.fixture(scope="module")
def bad(folder):
    (folder / "empty.mp4").write_bytes(b"")
    (folder / "text.mp4").write_text("this is not a video\n" * 50)
    (folder / "cut.mp4").write_bytes((folder / "walk.mp4").read_bytes()[:2000])
    write_streams(folder / "sound.mp4", sound_s=1.0)
    Image.fromarray(np.zeros((1, 1, 3), np.uint8)).save(folder / "dot.png")
    return folder


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["thing.png", "missing.mp4"], "missing.mp4"),
        (["thing.png", "empty.mp4"], "empty.mp4"),
        (["thing.png", "text.mp4"], "text.mp4"),
        (["thing.png", "cut.mp4"], "cut.mp4"),
        (["thing.png", "sound.mp4"], "sound.mp4"),
        (["thing.png", "thing.png"], "thing.png"),
        (["missing.png", "walk.mp4"], "no such picture"),
        (["text.mp4", "walk.mp4"], "not a picture"),
        (["dot.png", "walk.mp4"], "1x1 pixels"),
        ([], "what to find, and in which video? lastseen find desk.jpg walk.mp4 --mark"),
        (["walk.mp4"], "what to find in"),
        (["thing.png", "walk.mp4", "--box", "0,0,100,100"], "reaches outside the 64x64 picture"),
        (["thing.png", "walk.mp4", "--box", "a,b"], "expected X1,Y1,X2,Y2"),
        (["thing.png", "walk.mp4", "--before", "-1"], "starts at 0 s"),
        (["thing.png", "walk.mp4", "--before", "60"], "past the end"),
        (
            ["walk.mp4", "walk.mp4"],
            "walk.mp4 is a video, not a picture of the thing: the order is PICTURE...",
        ),
        (["walk.mp4", "cut.mp4", "thing.png"], "the order is PICTURE... VIDEO, with one video"),
        (["thing.png", "walk.mp4", "--mark"], "needs a window or a terminal"),
        (["thing.png", "walk.mp4", "--mark", "--box", "1,1,9,9"], "give one of them"),
        (["walk.mp4", "--at", "1"], "--at needs --box"),
        (["walk.mp4", "--at", "100", "--box", "0,0,10,10"], "no frame at 100 s"),
        (["thing.png", "walk.mp4", "--weights", "nowhere"], "config.json is missing"),
        (["thing.png", "walk.mp4", "--device", "toaster"], "try cpu"),
        (["thing.png", "walk.mp4", "--picture", "no/such/folder/out.jpg"], "does not exist"),
        (["thing.png", "walk.mp4", "--picture", "out.txt"], "ends in .jpg"),
        (["thing.png", "walk.mp4", "--video", "out.avi"], "ends in .mp4"),
    ],
)
def test_a_mistake_is_one_clear_line_and_status_2(run, bad, monkeypatch, arguments, says):
    monkeypatch.chdir(bad)
    monkeypatch.delenv("DISPLAY", raising=False)
    before = sorted(bad.iterdir())
    status, out, err = run("find", *arguments, "--quiet")
    assert status == 2
    assert out == ""
    assert one_line(err)
    assert says in err
    assert sorted(bad.iterdir()) == before


def test_convert_makes_a_model_that_find_takes(run, folder, tmp_path):
    recipe = json.loads(str(np.load(GOLDEN / "model_tiny.npz")["recipe"]))
    torch.save({"state_dict": {k: drawn(k, s) for k, s in recipe["keys"].items()}}, tmp_path / "tiny.pt")
    status, out, _ = run("convert", tmp_path / "tiny.pt", tmp_path / "model")
    assert status == 0
    assert "query_down_heads.0.0.weight" in out
    files = (folder / "thing.png", folder / "walk.mp4")
    status, out, _ = run("find", *files, "--weights", tmp_path / "model", "--paper", "--json", "-q")
    assert status == 0
    answer = json.loads(out)
    assert "VQLoC" in answer["model"]
    assert answer["tracks"][0]["score"] == 1.0
    status, _, err = run("convert", tmp_path / "tiny.pt", tmp_path / "model")
    assert status == 2
    assert "not empty" in err


QUICK = ("--recipe", "tiny", "--set", "batch=2", "--set", "steps=2", "--device", "cpu")


def test_train_makes_a_model_that_find_takes_and_goes_on_where_it_was(run, folder, tmp_path):
    out = tmp_path / "run"
    status, said, err = run("train", out, *QUICK, "--minutes", "0")
    assert (status, said) == (0, f"{out}/model: the model after 1 steps of 2; the same command goes on\n")
    status, said, err = run("train", out, *QUICK)
    assert (status, said) == (0, f"{out}/model: the model after 2 steps\n")
    assert "going on after step 1" in err
    assert "step 2/2" in err
    files = (folder / "thing.png", folder / "walk.mp4")
    status, said, _ = run("find", *files, "--weights", out / "model", "--paper", "--json", "-q")
    assert status == 0
    assert "VQLoC" in json.loads(said)["model"]


def test_train_names_its_recipes_and_opens_its_help_with_an_example(run):
    status, out, _ = run("train", "--list-recipes")
    assert status == 0
    assert {line.split()[0] for line in out.splitlines()} >= {"synth_small", "vqloc_base", "tiny"}
    status, out, _ = run("train", "--help")
    assert status == 0
    assert "Example: lastseen train" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give a folder"),
        (["out", "--recipe", "huge"], "choose one of backbone_small"),
        (["out", "--recipe", "tiny", "--set", "optimizer.lr=1"], "did you mean optimiser.lr"),
        (["out", "--recipe", "tiny", "--set", "steps=soon"], "expected a whole number"),
        (["out", "--recipe", "tiny", "--set", "batch=3"], "multiple of 2"),
        (["out", "--recipe", "tiny", "--set", "backbone=nowhere.pth"], "nowhere.pth: no such weights file"),
        (["out", "--recipe", "vqloc_small"], "give --annotations FILE and --videos FOLDER"),
        (["out", "--recipe", "vqloc_small", "--annotations", "no.json", "--videos", "."], "no.json: no such"),
        (["out", "--recipe", "vqloc_base"], "the model wants 768"),
        (["other", "--recipe", "tiny"], "not a training run"),
        (["out", "--recipe", "tiny", "--device", "toaster"], "try cpu"),
    ],
)
def test_a_mistake_in_training_is_one_clear_line(run, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    status, out, err = run("train", *arguments)
    assert (status, out) == (2, "")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    assert one_line(err)
    assert says in err


def test_help_opens_with_an_example_and_does_not_wait_for_torch():
    code = (
        "import sys; sys.argv = ['lastseen', '--help']\n"
        "from lastseen.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'av', 'scipy', 'PIL', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Example: lastseen find desk.jpg walk.mp4 --box 120,80,240,200" in done.stdout


def test_malformed_weights_are_one_line_in_every_command(run, folder, tmp_path):
    """What can be wrong with such files is in tests/test_weights.py; here: every door that leads there."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model": "vqloc", "backbone": {"dim": "wide"}}')
    (model / "model.safetensors").write_bytes(b"\x00" * 20)
    (tmp_path / "tiny.pt").write_bytes(b"PK\x03\x04")
    files, set_ = (folder / "thing.png", folder / "walk.mp4"), ("--annotations", "no.json", "--videos", ".")
    for words in (
        ("find", *files, "--weights", model),
        ("index", files[1], "--index", tmp_path / "index", "--weights", model),
        ("affinity", *files, "--at", "1", "--out", tmp_path / "o.png", "--weights", model),
        ("calibrate", model, *set_),
        ("convert", tmp_path / "tiny.pt", tmp_path / "out"),
        ("models", "add", "mobile-sam", "--from", tmp_path / "tiny.pt"),
        ("train", tmp_path / "run", "--recipe", "tiny", "--set", f"backbone={tmp_path / 'tiny.pt'}"),
    ):
        status, out, err = run(*words)
        assert (status, out) == (2, "") and one_line(err) and "internal error" not in err, (words, err)
        assert str(model) in err or "tiny.pt" in err, words

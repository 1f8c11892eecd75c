"""lastseen export, and the files that `find` can be asked for, as a user types them."""

import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evidence import answer_of
from PIL import Image
from scenes import box_at, quick_localizer, thing, write_scene

from lastseen.cli.outputs import Outputs
from lastseen.errors import OutputError
from lastseen.formats import FORMATS, write_answer
from lastseen.localizer import Localizer
from lastseen.track import FramePredictions, ResponseTrack
from lastseen.video import Video

PLACE = (100, 50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("export")
    video = Video(write_scene(root / "walk.mp4", [PLACE] * 5 + [None] * 5))
    track = ResponseTrack(first_frame=0, fps=5.0, boxes=(box_at(PLACE),) * 5, score=0.9)
    write_answer(root / "answer.json", answer_of(video, [track], model="a model"))
    write_answer(root / "nothing.json", answer_of(video, [], model="a model", guess=track))
    (root / "track.json").write_text(track.to_json())
    old = json.loads((root / "answer.json").read_text())
    del old["fps"], old["duration"]
    (root / "old.json").write_text(json.dumps(old))
    (root / "gone.json").write_text(json.dumps({**old, "video": "gone.mp4"}))
    (root / "empty.json").write_text('{"schema": "lastseen/answers@1", "things": []}')
    (root / "odd.json").write_text('{"schema": "lastseen/answers@1", "things": [7]}')
    (root / "text.json").write_text("{ not json")
    (root / "bytes.json").write_bytes(b"\xff\xfe\x00")
    return root


@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_goes_to_every_format(run, folder, tmp_path, name):
    status, out, err = run("export", folder / "answer.json", tmp_path / "out", "--to", name)
    assert (status, out, err) == (0, "", f"Wrote {tmp_path / 'out'}.\n")
    assert (tmp_path / "out").stat().st_size > 60


def test_the_ending_chooses_and_the_label_names(run, folder, tmp_path):
    status, _, _ = run("export", folder / "answer.json", tmp_path / "walk.xml", "--label", "keys")
    assert status == 0
    root = ET.parse(tmp_path / "walk.xml").getroot()
    assert root.find("track").get("label") == "keys"
    assert [box.get("frame") for box in root.iter("box")] == ["0", "1", "2", "3", "4", "5"]


def test_it_reads_stdin_and_writes_stdout(run, folder, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO((folder / "answer.json").read_text()))
    status, out, _ = run("export", "-", "-", "--to", "mot")
    assert status == 0
    assert out.startswith("1,1,101.00,51.00,64.00,64.00,0.9000,-1,-1,-1\n")
    monkeypatch.setattr("sys.stdin", io.StringIO((folder / "answer.json").read_text()))
    assert json.loads(run("export", "-", "-")[1]) == json.loads((folder / "answer.json").read_text())


def test_nothing_found_is_an_empty_file_and_a_note(run, folder):
    status, out, err = run("export", folder / "nothing.json", "-", "--to", "coco-results")
    assert (status, out) == (0, "[]\n")
    assert err == "note: nothing was found, so the file has no boxes\n"


def test_a_lone_track_or_an_old_answer_takes_its_facts_from_the_video(run, folder):
    _, expected, _ = run("export", folder / "answer.json", "-", "--to", "cvat")
    for name, more in (("track.json", ("--video", folder / "walk.mp4")), ("old.json", ())):
        status, out, _ = run("export", folder / name, "-", "--to", "cvat", *more)
        assert (status, out) == (0, expected)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["answer.json", "out.doc"], "its ending names no format"),
        (["answer.json", "out.xml", "--to", "yolo"], "unknown format 'yolo'; choose one of json, csv"),
        (["missing.json", "out.xml"], "missing.json: no such file"),
        (["text.json", "out.xml"], "text.json: not JSON"),
        (["bytes.json", "out.xml"], "bytes.json: not text"),
        (["track.json", "out.xml"], "--video FILE"),
        (["answers.json", "out.xml"], "answers about keys, mug; choose one with --thing NAME"),
        (["answers.json", "out.xml", "--thing", "cup"], "no such answer; there are keys, mug"),
        (
            ["keys.json", "out.xml", "--in", "x"],
            "--in x: there is no such answer; there are tuesday.mp4, ../",
        ),
        (["keys.json", "-", "--each"], "--each writes several files"),
        (["empty.json", "out.xml"], "there is no answer in it"),
        (["odd.json", "out.xml"], "malformed answers"),
        (["gone.json", "out.xml"], "gone.mp4 is gone; give --video FILE"),
        (["answer.json", "no/such/out.xml"], "does not exist"),
        (["answer.json", "."], "names no format"),
        (["answer.json", "out.xml", "--video", "text.json"], "text.json"),
    ],
)
@pytest.mark.usefixtures("answers")
def test_a_mistake_is_one_clear_line(run, folder, monkeypatch, arguments, says):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    status, out, err = run("export", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("lastseen: ")
    assert err.count("\n") == 1
    assert says in err
    assert sorted(folder.iterdir()) == before


# --- answers about several things, and in several videos ---


@pytest.fixture(scope="module")
def answers(folder):
    """As `find --json` prints them of an index."""
    said = json.loads((folder / "answer.json").read_text())
    days = [{**said, "name": f"{day}.mp4", "seen_at": None} for day in ("tuesday", "../monday")]
    things = [
        {"thing": "keys", "found": True, "answers": days},
        {"thing": "mug", "found": True, "answers": [{**days[0], "tracks": [], "found": False}]},
    ]
    path = folder / "answers.json"
    path.write_text(json.dumps({"schema": "lastseen/answers@1", "index": "index", "things": things}))
    (folder / "keys.json").write_text(json.dumps({"schema": "lastseen/answers@1", "things": things[:1]}))
    return path


def test_of_answers_in_several_videos_the_latest_is_taken_and_others_can_be(run, folder, answers):
    status, out, err = run("export", folder / "keys.json", "-", "--to", "cvat")
    assert status == 0 and ET.fromstring(out).find("track").get("label") == "keys"
    assert "of 2 answers the latest was taken, in tuesday.mp4" in err and err.count("\n") == 1
    status, out, err = run("export", folder / "keys.json", "-", "--in", "../monday.mp4")
    assert (status, err) == (0, "") and json.loads(out)["found"]
    status, out, err = run("export", answers, "-", "--thing", "mug", "--to", "coco-results")
    assert (status, out) == (0, "[]\n")


def test_each_answer_can_have_a_file_of_its_own(run, answers, tmp_path):
    status, _, err = run("export", answers, tmp_path / "all.coco.json", "--each")
    names = ["all-keys-monday.coco.json", "all-keys-tuesday.coco.json", "all-mug-tuesday.coco.json"]
    assert status == 0 and sorted(path.name for path in tmp_path.iterdir()) == names
    assert all(f"{tmp_path / name}" in err for name in names)
    assert f"nothing was found, so {tmp_path / names[2]} has no boxes" in err
    assert not list(tmp_path.parent.glob("monday*"))


@pytest.mark.usefixtures("one_thread", "remembered")
def test_what_is_asked_of_an_index_can_be_exported(run, folder, tmp_path, monkeypatch):
    """The JSON as it is printed, not as a test thinks that it is."""
    localizer = quick_localizer()
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
    picture, index = tmp_path / "thing.png", tmp_path / "index"
    Image.fromarray(thing()).save(picture)
    assert run("index", folder / "walk.mp4", "--index", index, "-q")[0] == 0
    for words in ([picture], ["--thing", f"keys={picture}"], [picture, folder / "walk.mp4"]):
        where = () if folder / "walk.mp4" in words else ("--index", index)
        status, out, _ = run("find", *words, *where, "--json", "-q")
        (tmp_path / "said.json").write_text(out)
        assert status == 0
        status, out, err = run("export", tmp_path / "said.json", "-", "--to", "csv")
        assert (status, err) == (0, "") and "walk.mp4" in out and out.count("\n") > 3, words


# --- what find writes ---


@pytest.fixture(scope="module")
def answer(folder):
    video = Video(folder / "walk.mp4")
    track = ResponseTrack(first_frame=0, fps=5.0, boxes=(box_at(PLACE),) * 5, score=0.9)
    predictions = FramePredictions(fps=5.0, boxes_px=np.zeros((10, 4)), logits=np.linspace(3, -3, 10))
    return answer_of(video, [track], thing(), predictions, model="a model")


def all_outputs(root):
    return Outputs(
        figure=root / "figure.png",
        filmstrip=root / "strip.jpg",
        cutout=root / "cut.mp4",
        report=root / "report.html",
        save=[root / "a.csv", root / "a.vtt"],
    )


def test_all_outputs_are_written(answer, tmp_path):
    outputs = all_outputs(tmp_path)
    outputs.check()
    assert not list(tmp_path.iterdir())
    outputs.write(answer)
    names = ["a.csv", "a.vtt", "cut.mp4", "figure.png", "report.html", "strip.jpg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    with Image.open(tmp_path / "figure.png") as image:
        assert image.width == 1600


def test_not_seen_gives_no_film_of_it(answer, tmp_path):
    all_outputs(tmp_path).write(replace(answer, sightings=(), best_guess=answer.last))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.vtt", "figure.png", "report.html"]


@pytest.mark.parametrize(
    "outputs",
    [
        Outputs(figure=Path("a.txt")),
        Outputs(filmstrip=Path("a.mp4")),
        Outputs(cutout=Path("a.png")),
        Outputs(report=Path("a.pdf")),
        Outputs(save=[Path("a.doc")]),
        Outputs(save=[Path("no/such/a.csv")]),
    ],
)
def test_outputs_that_cannot_be_are_refused_before_the_search(outputs):
    with pytest.raises(OutputError):
        outputs.check()

"""lastseen evaluate and validate: challenge files, annotated videos of both formats, the committed script."""

import json
import re
import shlex
from pathlib import Path

import pytest
from models import GOLDEN
from scenes import HEIGHT, HERE, PLACES, SIDE, THERE, WIDTH, quick_localizer, write_scene
from typer.main import get_command

from lastseen.cli import app
from lastseen.localizer import TRAINING_FREE, Localizer

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("remembered")


def one_line(text: str) -> bool:
    return text.startswith("lastseen: ") and text.count("\n") == 1 and "Traceback" not in text


@pytest.fixture(scope="module")
def challenge(tmp_path_factory):
    cases = json.loads((GOLDEN / "metrics.json").read_text())
    root = tmp_path_factory.mktemp("challenge")
    for case in cases["file_cases"][:1]:
        (root / "annotations.json").write_text(json.dumps(case["annotations"]))
        (root / "predictions.json").write_text(json.dumps(case["predictions"]))
    broken = json.loads((root / "predictions.json").read_text())
    broken["challenge"] = "something else"
    (root / "broken.json").write_text(json.dumps(broken))
    (root / "text.json").write_text("{ not json")
    return root


def test_evaluate_scores_an_existing_file(run, challenge):
    files = ("--annotations", challenge / "annotations.json", "--predictions", challenge / "predictions.json")
    status, out, _ = run("evaluate", *files, "--json")
    assert status == 0
    assert json.loads(out)["groups"]["all"]["tap25"]["value"] == pytest.approx(0.37296037296)
    status, out, _ = run("evaluate", *files)
    assert status == 0
    assert "0.373" in out


def test_validate_says_what_is_wrong_with_status_1(run, challenge):
    annotations = ("--annotations", challenge / "annotations.json")
    status, out, _ = run("validate", *annotations, "--predictions", challenge / "predictions.json")
    assert status == 0
    assert out.endswith("valid\n")
    status, out, _ = run("validate", *annotations, "--predictions", challenge / "broken.json")
    assert status == 1
    assert "something else" in out
    status, out, _ = run("validate", *annotations, "--predictions", challenge / "broken.json", "--json")
    assert json.loads(out)["valid"] is False


@pytest.mark.parametrize("command", ["evaluate", "validate"])
@pytest.mark.parametrize("broken", ["annotations", "predictions"])
@pytest.mark.parametrize("name", ["text.json", "missing.json"])
def test_a_file_that_is_not_json_is_one_clear_line(run, challenge, command, broken, name):
    files = {key: challenge / f"{key}.json" for key in ("annotations", "predictions")}
    files[broken] = challenge / name
    status, out, err = run(
        command, "--annotations", files["annotations"], "--predictions", files["predictions"]
    )
    assert status == 2
    assert out == ""
    assert one_line(err)
    assert name in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give --videos and --out"),
        (["--videos", "."], "--out FILE.json"),
        (["--videos", ".", "--out", "p.json", "--method", "training-free"], "no such option: --method"),
        (["--videos", ".", "--out", "p.json", "--weights", "nowhere"], "config.json is missing"),
        (["--videos", "nowhere", "--out", "p.json"], "no such folder"),
    ],
)
def test_evaluate_says_what_it_needs(run, challenge, monkeypatch, arguments, says):
    monkeypatch.chdir(challenge)
    status, _, err = run("evaluate", "--annotations", "annotations.json", *arguments, "-q")
    assert status == 2
    assert one_line(err)
    assert says in err


def test_validate_refuses_a_version_that_no_official_script_accepts(run, challenge, tmp_path):
    content = json.loads((challenge / "predictions.json").read_text())
    (tmp_path / "nine.json").write_text(json.dumps({**content, "version": "9"}))
    annotations = ("--annotations", challenge / "annotations.json")
    status, out, _ = run("validate", *annotations, "--predictions", tmp_path / "nine.json")
    assert status == 1
    assert out.splitlines()[0] == 'version: expected "1.0.5", as in the annotations, got "9"'
    assert out.endswith("1 problems\n")


def script_commands(path: Path) -> list[list[str]]:
    """The words after `lastseen` of every such command in a shell script."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("lastseen ")]


def test_the_training_free_script_asks_for_the_training_free_weights():
    ((name, *words),) = script_commands(ROOT / "runs" / "training_free.sh")
    command = get_command(app).commands[name]
    assert name == "evaluate"
    options = command.make_context(name, words).params  # an error if an option is unknown
    assert str(options["weights"]) == TRAINING_FREE
    assert str(options["videos"]).endswith("/videos") and str(options["absent"]).endswith("/absent.json")


# --- EgoTracks ---


def tracked(frame: int, place: tuple[int, int]) -> dict[str, object]:
    size = {"original_width": WIDTH, "original_height": HEIGHT}
    return {"frame_number": frame, "x": place[0], "y": place[1], "width": SIDE, "height": SIDE, **size}


@pytest.fixture(scope="module")
def egotracks(tmp_path_factory):
    """A clip in which the thing is seen twice, and an EgoTracks file that has both occurrences."""
    root = tmp_path_factory.mktemp("egotracks")
    (root / "clips" / "part1").mkdir(parents=True)
    write_scene(root / "clips" / "part1" / "c.mp4", PLACES)
    track = [tracked(frame, place) for frame, place in enumerate(PLACES) if place]
    one = {"is_valid": True, "object_title": "thing", "visual_crop": tracked(5, HERE), "lt_track": track}
    sets = {"1": one, "2": {**one, "query_frame": 12}}  # at the end of the clip; before the second occurrence
    clip = {
        "clip_uid": "c",
        "video_start_sec": 0.0,
        "video_end_sec": len(PLACES) / 5,
        "annotations": [{"annotation_uid": "a", "query_sets": sets}],
    }
    data = {"version": "1.0", "videos": [{"video_uid": "v", "clips": [clip]}]}
    (root / "egotracks.json").write_text(json.dumps(data))
    return root


def test_evaluate_scores_the_last_occurrence_of_an_egotracks_file(run, egotracks, tmp_path, monkeypatch):
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: quick_localizer())
    out = tmp_path / "predictions.json"
    annotations = ("--annotations", egotracks / "egotracks.json")
    status, said, err = run(
        "evaluate", *annotations, "--videos", egotracks / "clips", "--out", out, "--json", "-q"
    )
    assert (status, err) == (0, "")
    scores = {
        name: value["value"]
        for name, value in json.loads(said)["groups"]["all"].items()
        if name != "questions"
    }
    assert scores["success"] == 100 and scores["hit_st25"] == 1
    content = json.loads(out.read_text())
    answers = content["results"]["videos"][0]["clips"][0]["predictions"][0]["query_sets"]
    for name, place, end in (("1", THERE, len(PLACES)), ("2", HERE, 12)):
        boxes = answers[name]["bboxes"]
        assert max(box["fno"] for box in boxes) < end
        middle = boxes[len(boxes) // 2]
        centre = (middle["x1"] + middle["x2"]) / 2, (middle["y1"] + middle["y2"]) / 2
        assert centre == pytest.approx((place[0] + SIDE / 2, place[1] + SIDE / 2), abs=SIDE / 3)
    status, said, _ = run("validate", *annotations, "--predictions", out)
    assert (status, said) == (0, f"{out}: valid\n")
    answers["1"]["bboxes"] = "none"
    out.write_text(json.dumps(content))
    status, said, _ = run("validate", *annotations, "--predictions", out)
    assert status == 1 and re.search(r"bboxes: expected a list", said)

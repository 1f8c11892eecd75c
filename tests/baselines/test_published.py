"""Detections that others published: read without running code, answered by the rivals' rule."""

import gzip
import json
import pickle
import sys
import types

import numpy as np
import pytest
import torch
from models import Evil
from scenes import PLACES, SIDE, THERE, scene_annotations, write_scene

from lastseen.baselines.published import read_detections
from lastseen.errors import PredictionsError

FRAMES = 30


@pytest.fixture
def box_class(monkeypatch):
    """What the authors' code calls its boxes; gone again before anything is read."""
    structures = types.ModuleType("vq2d.structures")

    class BBox:
        def __init__(self, fno, x1, y1, x2, y2):
            self.fno, self.x1, self.y1, self.x2, self.y2 = fno, x1, y1, x2, y2

    BBox.__module__, BBox.__qualname__ = "vq2d.structures", "BBox"
    structures.BBox = BBox
    for name, module in (("vq2d", types.ModuleType("vq2d")), ("vq2d.structures", structures)):
        monkeypatch.setitem(sys.modules, name, module)
    return BBox


def detections(box_class, seen=range(16, 22)):
    """Two boxes a frame, the second one better; none in the first frame."""
    x, y = THERE
    boxes, scores = [[]], [np.zeros(0)]
    for frame in range(1, FRAMES):
        good = 0.9 if frame in seen else 0.1
        boxes.append([box_class(frame, 0, 0, 20, 20), box_class(frame, x, y, x + SIDE, y + SIDE)])
        scores.append(np.array([0.05, good]))
    return {"ret_bboxes": boxes, "ret_scores": scores}


def written(path, data, how):
    if how == "torch":
        torch.save(data, path)
    else:
        content = pickle.dumps(data)
        path.write_bytes(gzip.compress(content) if how == "gzip" else content)
    return path


@pytest.mark.parametrize("how", ["torch", "pickle", "gzip"])
def test_detections_are_read_in_the_forms_that_there_are(tmp_path, box_class, monkeypatch, how):
    path = written(tmp_path / "a_1.pt", detections(box_class), how)
    for name in ("vq2d", "vq2d.structures"):
        monkeypatch.delitem(sys.modules, name)
    found = read_detections(path)
    assert found.scores.tolist() == [0.0] + [0.9 if n in range(16, 22) else 0.1 for n in range(1, FRAMES)]
    assert found.boxes_px[20].tolist() == [*THERE, THERE[0] + SIDE, THERE[1] + SIDE]


@pytest.mark.parametrize("how", ["torch", "pickle", "gzip"])
def test_a_pickle_that_would_run_code_is_refused(tmp_path, how, capsys):
    path = written(tmp_path / "a_1.pt", {"ret_bboxes": [[Evil()]], "ret_scores": [[0.5]]}, how)
    with pytest.raises(PredictionsError) as error:
        read_detections(path)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)
    assert "never run" not in capsys.readouterr().out


def test_what_holds_no_detections_is_told_in_one_line(tmp_path, box_class):
    wrong = detections(box_class)
    wrong["ret_scores"][3] = np.array([0.5])
    for number, content in enumerate(
        ([1, 2], {"ret_bboxes": []}, wrong, {"ret_bboxes": [[1]], "ret_scores": [[0.5]]})
    ):
        path = written(tmp_path / f"{number}.pt", content, "pickle")
        with pytest.raises(PredictionsError) as error:
            read_detections(path)
        assert "ret_bboxes" in str(error.value) and "\n" not in str(error.value)
    (tmp_path / "cut.pt").write_bytes(pickle.dumps(detections(box_class))[:200])
    with pytest.raises(PredictionsError):
        read_detections(tmp_path / "cut.pt")


def test_published_detections_are_evaluated_with_peak_rule_and_our_ends(tmp_path, box_class, run):
    truth = range(16, 22)
    (tmp_path / "videos").mkdir()
    write_scene(tmp_path / "videos" / "clip.mp4", PLACES)
    (tmp_path / "val.json").write_text(json.dumps(scene_annotations(truth)))
    data = detections(box_class)
    for frame in data["ret_bboxes"]:
        for box in frame:  # in pixels of the annotated size
            box.x1, box.y1, box.x2, box.y2 = 2 * box.x1, 2 * box.y1, 2 * box.x2, 2 * box.y2
    folder = tmp_path / "detections"
    folder.mkdir()
    command = ["evaluate", "--annotations", tmp_path / "val.json", "--videos", tmp_path / "videos"]
    command += ["--detections", folder, "--out", tmp_path / "out.json", "--quiet", "--json"]
    status, _, error = run(*command, "--tracker", "ends")
    assert status == 2 and "a_1.pt" in error
    written(folder / "a_1.pt", data, "torch")
    status, printed, _ = run(*command, "--tracker", "ends")
    assert status == 0
    report = json.loads(printed)["groups"]["all"]
    assert report["stap25"]["value"] == report["success"]["value"] / 100 == 1.0
    assert report["recovery"]["value"] > 60
    (bboxes,) = [
        answer["bboxes"]
        for answer in json.loads((tmp_path / "out.json").read_text())["results"]["videos"][0]["clips"][0][
            "predictions"
        ][0]["query_sets"].values()
    ]
    assert {box["fno"] for box in bboxes} <= set(range(15, 23))
    assert all(float(box["x1"]).is_integer() for box in bboxes)
    status, _, error = run(*command, "--weights", "training-free")
    assert status == 2 and "--detections" in error

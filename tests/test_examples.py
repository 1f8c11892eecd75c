"""The examples, run as their pages say, on real files."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from PIL import Image
from scenes import HERE, box_at, quick_localizer, thing, write_scene

from lastseen import Index, LastSeenError, Localizer, Query, Video

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = pytest.mark.usefixtures("one_thread", "remembered")


@pytest.fixture(scope="module")
def watch_folder():
    spec = importlib.util.spec_from_file_location("watch_folder", EXAMPLES / "watch_folder.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def questions(tmp_path):
    Image.fromarray(thing()).save(tmp_path / "keys.jpg", quality=95)
    file = tmp_path / "questions.json"
    file.write_text(json.dumps({"keys": {"picture": "keys.jpg", "box": [0, 0, 64, 64]}}))
    return file


def test_a_recording_is_indexed_when_it_is_complete_and_the_questions_are_asked(
    watch_folder, questions, tmp_path, capsys
):
    whole = write_scene(tmp_path / "walk.mp4", [None] * 3 + [HERE] * 5 + [None] * 3).read_bytes()
    recordings = tmp_path / "recordings" / "2026-11-15"
    recordings.mkdir(parents=True)
    file = recordings / "walk.mp4"
    (recordings / "notes.txt").write_text("no video")
    folder = watch_folder.Folder(recordings.parent, settle_s=10)
    asked = watch_folder.read_questions(questions)
    with Index(tmp_path / "index", localizer=quick_localizer()) as index:

        def look(now_s):
            return watch_folder.step(index, folder, asked, now_s)

        file.write_bytes(whole[: len(whole) // 2])
        assert look(0) == {}
        assert look(9) == {}  # it may still be growing
        assert (
            look(10) == {} and "left out" in capsys.readouterr().err
        )  # it has stopped, but its end is missing
        assert look(20) == {} and capsys.readouterr().err == ""  # said once
        file.write_bytes(whole)
        assert look(21) == {}
        answers = look(31)
        assert [video.name for video in index.videos()] == ["walk.mp4"]
        assert answers["keys"].found
        assert watch_folder.told("keys", answers["keys"]).startswith("keys: last seen 20")
        watch_folder.write_pictures(tmp_path / "pictures", answers)
        assert (tmp_path / "pictures" / "keys.jpg").is_file()
        assert look(41) == {}  # nothing new
        (recordings / "copy.mp4").write_bytes(whole)
        os.utime(recordings / "copy.mp4", (1, 1))
        look(42)
        assert look(52) == {} and "copy.mp4: known" in capsys.readouterr().out


def test_questions_that_cannot_be_read_are_one_line(watch_folder, tmp_path):
    for text in ("{", '["keys"]', '{"keys": {"photo": "keys.jpg"}}', '{"keys": {"picture": "missing.jpg"}}'):
        (tmp_path / "questions.json").write_text(text)
        with pytest.raises(LastSeenError) as error:
            watch_folder.read_questions(tmp_path / "questions.json")
        assert "\n" not in str(error.value)


def test_the_notebook_exports_boxes_that_supervision_reads(tmp_path, monkeypatch):
    pytest.importorskip("supervision")
    pytest.importorskip("IPython")
    notebook = json.loads((EXAMPLES / "coco_supervision.ipynb").read_text())
    video = Video(write_scene(tmp_path / "walk.mp4", [None] * 3 + [HERE] * 5 + [None] * 3))
    localizer = quick_localizer()
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
    query = Query.from_video(video, time_s=1.0, box=box_at(HERE))
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
        if "parameters" in cell["metadata"].get("tags", []):
            names.update(video=video, query=query, out=tmp_path / "coco")
    assert names["answer"].found
    assert len(names["dataset"]) == len(names["coco"]["images"]) > 0
    for number, (_, _, detections) in enumerate(names["dataset"]):
        x, y, width, height = names["coco"]["annotations"][number]["bbox"]
        assert detections.xyxy[0].tolist() == pytest.approx([x, y, x + width, y + height], abs=0.01)


def test_the_notebook_was_run_and_is_small():
    text = (EXAMPLES / "coco_supervision.ipynb").read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
    assert len(text) < 150_000
    for cell in cells:
        compile("".join(cell["source"]), "coco_supervision.ipynb", "exec")

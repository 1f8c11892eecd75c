"""Answers as files, held against the rules of the formats themselves."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from evidence import answer_of
from videos import number_in, pictures, write_video

from lastseen.box import Box
from lastseen.errors import OutputError, TrackError
from lastseen.formats import FORMATS, find_format, format_answer, write_answer
from lastseen.formats.answer_json import (
    VideoFacts,
    answer_schema,
    filled,
    frame_after,
    parse_answer,
    placed,
    source_frame,
)
from lastseen.formats.arrays import to_arrays
from lastseen.formats.chapters import timestamp
from lastseen.formats.label_studio import INTERFACE
from lastseen.track import ResponseTrack
from lastseen.video import Video

DOCS = Path(__file__).parents[2] / "docs" / "formats.md"


def video(fps: float = 30.0, duration_s: float = 60.0) -> VideoFacts:
    return VideoFacts(path=Path("some/walk <1>.mp4"), width=640, height=360, fps=fps, duration_s=duration_s)


def track(first_frame: int, count: int, score: float = 0.9, fps: float = 5.0) -> ResponseTrack:
    boxes = tuple(Box(10.0 + 6 * i, 20, 70 + 6 * i, 120.5) for i in range(count))
    return ResponseTrack(first_frame=first_frame, fps=fps, boxes=boxes, score=score)


TWO = (track(5, 3, 0.75), track(100, 4, 0.875))


def text(name: str, tracks=TWO, of: VideoFacts | None = None, label: str = "thing") -> str:
    return format_answer(replace(answer_of(of or video(), tracks, model="a model"), label=label), name)


# --- frames ---


@pytest.mark.parametrize("fps", [30.0, 30000 / 1001, 24.0, 7.0])
def test_a_sample_is_the_frame_on_display(tmp_path, fps):
    file = Video(write_video(tmp_path / "walk.mp4", pictures(60), fps=fps))
    for sample in file.frames(5.0):
        assert number_in(sample.image) == source_frame(file, sample.time_s)


def test_a_slow_video_shows_one_frame_for_several_samples():
    assert [box.frame for box in placed(video(fps=2.0), track(5, 5))] == [2, 3]


def test_boxes_stay_inside_the_picture():
    beyond = ResponseTrack(first_frame=0, fps=5.0, boxes=(Box(-5, -5, 900, 900),), score=1.0)
    box = placed(video(), beyond)[0]
    assert (box.x, box.y, box.width, box.height) == (0, 0, 640, 360)


def test_between_samples_boxes_move_steadily():
    every = filled(video(), track(5, 3))
    assert [box.frame for box in every] == list(range(30, 43))
    np.testing.assert_allclose([box.x for box in every], np.arange(10, 23))


def test_a_track_at_the_end_of_the_video_has_no_frame_after_it():
    assert frame_after(video(), track(5, 3)) == 48
    assert frame_after(video(duration_s=60.0), track(297, 3)) is None


# --- JSON ---


def test_json_keeps_its_schema_and_comes_back_as_it_was():
    content = json.loads(text("json"))
    jsonschema.Draft202012Validator.check_schema(answer_schema())
    jsonschema.validate(content, answer_schema())
    back = parse_answer(json.dumps(content))
    assert back.sightings == TWO
    assert back.video == video()
    assert back.model == "a model"


def test_an_answer_of_nothing_keeps_the_schema_too():
    content = json.loads(format_answer(answer_of(video(), (), guess=TWO[0], model="a model"), "json"))
    jsonschema.validate(content, answer_schema())
    assert parse_answer(json.dumps(content)).best_guess == TWO[0]


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "lastseen/answer@2"},
        {"found": False},
        {"tracks": []},
        {"width": 0},
        {"tracks": [{"schema": "lastseen/track@1"}]},
    ],
)
def test_the_schema_refuses_what_is_no_answer(change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(text("json")), **change}, answer_schema())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not an answer"),
        ('{"schema": "lastseen/answer@1"}', "malformed answer"),
        (json.dumps(TWO[0].to_dict()), "give it too"),
    ],
)
def test_what_is_no_answer_is_said_so(content, says):
    with pytest.raises(TrackError, match=says):
        parse_answer(content)


def test_an_old_answer_without_a_frame_rate_asks_for_its_video():
    old = {key: value for key, value in json.loads(text("json")).items() if key not in ("fps", "duration")}
    jsonschema.validate(old, answer_schema())
    with pytest.raises(TrackError, match="--video"):
        parse_answer(json.dumps(old))


# --- the others ---


def test_csv_has_a_line_a_box():
    rows = list(csv.DictReader(io.StringIO(text("csv"), newline="")))
    assert len(rows) == 7
    assert rows[0]["video"] == "walk <1>.mp4"
    assert [row["track"] for row in rows] == ["1"] * 3 + ["2"] * 4
    assert [int(row["frame"]) for row in rows[:3]] == [30, 36, 42]
    assert [float(rows[1][key]) for key in ("time", "x1", "y1", "x2", "y2")] == [1.2, 16, 20, 76, 120.5]


def test_coco_boxes_are_x_y_width_height_and_ids_fit_together():
    content = json.loads(text("coco", label="keys"))
    images = {image["id"]: image for image in content["images"]}
    assert len(images) == len(content["images"]) == 7
    assert {image["file_name"] for image in images.values()} >= {"walk <1>/000030.jpg"}
    assert content["categories"] == [{"id": 1, "name": "keys", "supercategory": ""}]
    assert [a["id"] for a in content["annotations"]] == list(range(1, 8))
    for annotation in content["annotations"]:
        x, y, width, height = annotation["bbox"]
        image = images[annotation["image_id"]]
        assert 0 <= x < x + width <= image["width"]
        assert 0 <= y < y + height <= image["height"]
        assert annotation["area"] == pytest.approx(width * height)
        assert annotation["category_id"] == 1
        assert annotation["iscrowd"] == 0
    assert content["annotations"][0]["bbox"] == [10, 20, 60, 100.5]
    assert [a["instance_id"] for a in content["annotations"]] == [1] * 3 + [2] * 4


def test_coco_results_refer_to_the_images_of_coco():
    results, content = json.loads(text("coco-results")), json.loads(text("coco"))
    assert {result["image_id"] for result in results} == {image["id"] for image in content["images"]}
    assert [result["bbox"] for result in results] == [a["bbox"] for a in content["annotations"]]
    assert set(results[0]) == {"image_id", "category_id", "bbox", "score"}


def test_mot_counts_from_1_and_answers_on_every_frame():
    rows = np.loadtxt(io.StringIO(text("mot")), delimiter=",")
    assert rows.shape == (13 + 19, 10)
    np.testing.assert_allclose(rows[0], [31, 1, 11, 21, 60, 100.5, 0.75, -1, -1, -1])
    for number, count in ((1, 13), (2, 19)):
        frames = rows[rows[:, 1] == number, 0]
        np.testing.assert_array_equal(np.diff(frames), 1)
        assert len(frames) == count


def test_vtt_cues_have_full_timestamps_in_order():
    content = text("vtt", label="a & b --> c")
    blocks = content.strip().split("\n\n")
    assert content.startswith("WEBVTT\n")
    assert blocks[1].startswith("NOTE ")
    assert "-->" not in blocks[1]
    stamp = r"(\d\d):([0-5]\d):([0-5]\d)\.(\d{3})"
    ends = 0.0
    for block in blocks[2:]:
        _, times, title = block.split("\n")
        found = re.fullmatch(f"{stamp} --> {stamp}", times)
        assert found, times
        h, m, s, ms, *end = map(int, found.groups())
        start_s, end_s = (
            3600 * h + 60 * m + s + ms / 1000,
            3600 * end[0] + 60 * end[1] + end[2] + end[3] / 1000,
        )
        assert ends <= start_s < end_s
        ends = end_s
        assert "-->" not in title
        assert "&amp;" in title
    assert "00:00:20.000 --> 00:00:20.800" in content
    assert "Last seen" in blocks[-1]
    assert timestamp(3_723_004) == "01:02:03.004"


def test_a_vtt_cue_is_never_empty():
    content = text("vtt", (track(5, 1),), video(duration_s=1.0))
    assert "00:00:01.000 --> 00:00:01.001" in content


def test_cvat_counts_the_videos_frames_and_ends_each_track_outside():
    root = ET.fromstring(text("cvat", label="<keys>"))
    assert root.find("version").text == "1.1"
    assert root.find("meta/task/size").text == "1800"
    assert root.find("meta/task/mode").text == "interpolation"
    assert root.find("meta/task/original_size/width").text == "640"
    assert root.find("meta/task/labels/label/name").text == "<keys>"
    tracks = root.findall("track")
    assert [t.get("id") for t in tracks] == ["0", "1"]
    for element, frames in zip(tracks, ([30, 36, 42, 48], [600, 606, 612, 618, 624])):
        boxes = element.findall("box")
        assert [int(box.get("frame")) for box in boxes] == frames
        assert [box.get("outside") for box in boxes] == ["0"] * (len(boxes) - 1) + ["1"]
        assert all(float(box.get("xtl")) < float(box.get("xbr")) <= 640 for box in boxes)
        assert {box.get("keyframe") for box in boxes} == {"1"}
    assert {name: tracks[0][0].get(name) for name in ("xtl", "ytl", "xbr", "ybr")} == {
        "xtl": "10.00",
        "ytl": "20.00",
        "xbr": "70.00",
        "ybr": "120.50",
    }


def test_a_cvat_track_may_run_to_the_videos_end():
    root = ET.fromstring(text("cvat", (track(297, 3),)))
    assert [box.get("outside") for box in root.iter("box")] == ["0"] * 3


def test_label_studio_counts_from_1_in_percent_and_ends_disabled():
    (task,) = json.loads(text("label-studio"))
    assert task["data"] == {"video": "some/walk <1>.mp4", "fps": 30.0}
    (prediction,) = task["predictions"]
    assert prediction["score"] == 0.875
    result = prediction["result"][0]
    assert (result["type"], result["from_name"], result["to_name"]) == ("videorectangle", "box", "video")
    value = result["value"]
    assert value["framesCount"] == 1800
    assert [key["frame"] for key in value["sequence"]] == [31, 37, 43]
    assert [key["enabled"] for key in value["sequence"]] == [True, True, False]
    first = value["sequence"][0]
    assert first["x"] == pytest.approx(100 * 10 / 640, abs=1e-3)
    assert first["height"] == pytest.approx(100 * 100.5 / 360, abs=1e-3)
    assert first["time"] == pytest.approx(31 / 30, abs=1e-5)
    names = set(ET.fromstring(INTERFACE).iter())
    assert {e.get("name") for e in names} >= {result["from_name"], result["to_name"]}
    assert INTERFACE in DOCS.read_text()


# --- choosing and writing ---


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_say_nothing_and_is_documented(name):
    assert isinstance(text(name, ()), str)
    assert f"| `{name}` |" in DOCS.read_text()
    for ending in FORMATS[name].endings:
        assert find_format(None, f"some/File{ending.upper()}").name == name


def test_write_answer_chooses_by_ending_or_name_and_leaves_nothing_behind(tmp_path):
    both = answer_of(video(), TWO)
    write_answer(tmp_path / "a.xml", both)
    write_answer(tmp_path / "a.csv", both)
    write_answer(tmp_path / "b.json", replace(both, label="keys"), "coco")
    assert (tmp_path / "a.xml").read_text().startswith("<?xml")
    assert (tmp_path / "a.csv").read_bytes().count(b"\r\n") == 8
    assert json.loads((tmp_path / "b.json").read_text())["categories"][0]["name"] == "keys"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.xml", "b.json"]


def test_an_unknown_format_is_one_clear_line(tmp_path):
    both = answer_of(video(), TWO)
    with pytest.raises(OutputError, match="unknown format 'yolo'; choose one of json, csv"):
        write_answer(tmp_path / "a.json", both, "yolo")
    with pytest.raises(OutputError, match=r"a\.doc: its ending names no format; choose one of \.json"):
        write_answer(tmp_path / "a.doc", both)
    with pytest.raises(OutputError, match="cannot be written"):
        write_answer(tmp_path / "no" / "a.csv", both)
    assert not list(tmp_path.iterdir())


# --- arrays ---


def test_arrays_are_what_detection_libraries_take():
    arrays = to_arrays(TWO, video())
    assert arrays.xyxy.shape == (7, 4)
    assert (arrays.xyxy.dtype, arrays.confidence.dtype) == (np.float32, np.float32)
    assert arrays.confidence.shape == arrays.track.shape == arrays.frame.shape == (7,)
    np.testing.assert_array_equal(arrays.frame[:3], [30, 36, 42])
    np.testing.assert_array_equal(arrays.track, [1, 1, 1, 2, 2, 2, 2])
    here = arrays.at(36)
    np.testing.assert_allclose(here.xyxy, [[16, 20, 76, 120.5]])
    assert len(here) == 1
    assert list(to_arrays(TWO).frame[:3]) == [5, 6, 7]


def test_no_tracks_are_empty_arrays_of_the_same_shape():
    arrays = to_arrays(())
    assert arrays.xyxy.shape == (0, 4)
    assert len(arrays.at(0)) == len(arrays) == 0

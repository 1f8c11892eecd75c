"""Running over annotated videos: real files, real resumption."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scenes import SIDE, quick_localizer, thing, write_scene

from lastseen.datasets.vq2d import find_videos, load_absent, load_vq2d
from lastseen.errors import AnnotationError, OutputError
from lastseen.evaluate import benchmark
from lastseen.evaluate.benchmark import answer_clip, run_benchmark
from lastseen.evaluate.challenge import check_predictions, read_predictions, score_file
from lastseen.localizer import Localizer

PLACE = (40, 60)
SHOWN = range(6, 13)
pytestmark = pytest.mark.usefixtures("one_thread", "remembered")


@pytest.fixture(scope="module")
def localizer() -> Localizer:
    return quick_localizer()


def box(frame: int | None, x: float, y: float, side: float) -> dict[str, object]:
    """A box on a 640x360 frame: the videos have half that size, so scaling is tested too."""
    place = {"x": 2 * x, "y": 2 * y, "width": 2 * side, "height": 2 * side}
    return {"frame_number": frame, **place, "original_width": 640, "original_height": 360}


def question(crop: dict[str, object], query_frame: int) -> dict[str, object]:
    track = [box(i, *PLACE, SIDE) for i in SHOWN]
    return {
        "is_valid": True,
        "query_frame": query_frame,
        "object_title": "thing",
        "visual_crop": crop,
        "response_track": track,
    }


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    """Two clips with a file each, one clip inside a longer source video, and an absent question."""
    root = tmp_path_factory.mktemp("dataset")
    (root / "videos").mkdir()
    places = [None] * SHOWN.start + [PLACE] * len(SHOWN) + [None] * 5
    write_scene(root / "videos" / "clip0.mp4", places)
    write_scene(root / "videos" / "clip1.mp4", places)
    write_scene(root / "videos" / "source.mp4", [None] * 10 + places + [None] * 5)
    Image.fromarray(thing()).save(root / "thing.png")
    Image.fromarray(np.random.default_rng(3).integers(0, 255, (40, 40, 3), np.uint8)).save(root / "noise.png")

    def image_crop(name: str, side: int) -> dict[str, object]:
        return {**box(None, 0, 0, side), "image": name, "image_box": [0, 0, side, side]}

    in_frame = question(box(8, *PLACE, SIDE), 18)  # the picture is a frame of the clip itself
    in_file = question(image_crop("thing.png", SIDE), 19)  # and a question asked past the last frame
    clips = [("video0", "clip0", 0.0, 3.6), ("video1", "clip1", 0.0, 3.6), ("source", None, 2.0, 5.6)]
    videos = [
        {
            "video_uid": video,
            "clips": [
                {
                    "clip_uid": clip,
                    "video_start_sec": start,
                    "video_end_sec": end,
                    "clip_fps": 5.0,
                    "annotations": [{"annotation_uid": f"a{i}", "query_sets": {"1": in_frame, "2": in_file}}],
                }
            ],
        }
        for i, (video, clip, start, end) in enumerate(clips)
    ]
    (root / "annotations.json").write_text(json.dumps({"version": "1.0", "videos": videos}))
    absent = {
        "query_uid": "x",
        "clip_uid": "clip0",
        "query_frame": 18,
        "visual_crop": image_crop("noise.png", 40),
    }
    (root / "absent.json").write_text(json.dumps({"queries": [absent]}))
    return root


def run(localizer: Localizer, root: Path, out: Path, **kwargs: object) -> dict[str, object]:
    annotations = load_vq2d(root / "annotations.json")
    absent = load_absent(root / "absent.json")
    return run_benchmark(localizer, annotations, root / "videos", out, absent=absent, **kwargs)


@pytest.fixture(scope="module")
def finished(localizer, dataset, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("out") / "predictions.json"
    run(localizer, dataset, out)
    return out


def test_answers_are_right_in_clips_and_in_sections_of_source_videos(dataset, finished):
    annotations = load_vq2d(dataset / "annotations.json")
    predictions = read_predictions(finished)
    assert check_predictions(annotations, predictions) == []
    report = score_file(annotations, predictions, load_absent(dataset / "absent.json"))
    assert report.value("success") == 100
    assert report.value("hit_st25") == 1
    assert report.auroc.value == 1
    assert not finished.with_name("predictions.json.partial").exists()


def test_a_run_that_was_killed_goes_on_where_it_was(localizer, dataset, finished, tmp_path, monkeypatch):
    out, journal = tmp_path / "predictions.json", tmp_path / "predictions.json.partial"
    code = (
        f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1])!r}]\n"
        "from pathlib import Path\n"
        "from test_benchmark import quick_localizer, run\n"
        f"run(quick_localizer(), Path({str(dataset)!r}), Path({str(out)!r}))\n"
    )
    running = subprocess.Popen([sys.executable, "-c", code])
    while not (journal.exists() and len(journal.read_bytes().splitlines()) > 1):  # until a clip is done
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    running.kill()
    running.wait()
    assert not out.exists()
    with journal.open("a") as file:
        file.write('{"clip": 2, "answ')  # as if killed in the middle of a line

    answered = []
    real = benchmark.answer_clip

    def counts(localizer, clip, *rest):
        answered.append(clip.video_uid)
        return real(localizer, clip, *rest)

    monkeypatch.setattr(benchmark, "answer_clip", counts)
    run(localizer, dataset, out)
    assert answered in (["video1", "source"], ["source"])  # not the first clip again
    assert out.read_text() == finished.read_text()
    assert not journal.exists()


def test_a_journal_of_another_run_is_not_mixed_in(localizer, dataset, tmp_path):
    (tmp_path / "predictions.json.partial").write_text('{"fingerprint": "other"}\n')
    with pytest.raises(OutputError, match="another run"):
        run(localizer, dataset, tmp_path / "predictions.json")


def test_finished_answers_are_never_overwritten(localizer, dataset, finished):
    before = finished.read_text()
    with pytest.raises(OutputError, match="exists"):
        run(localizer, dataset, finished)
    assert finished.read_text() == before


def test_missing_videos_are_named_before_anything_runs(localizer, dataset, tmp_path):
    (tmp_path / "videos").mkdir()
    annotations = load_vq2d(dataset / "annotations.json")
    with pytest.raises(AnnotationError, match=r"3 of 3 clips have no video.*clip0\.mp4"):
        run_benchmark(localizer, annotations, tmp_path / "videos", tmp_path / "p.json")
    assert list(tmp_path.glob("p.json*")) == []


def test_boxes_for_an_absent_thing_stay_in_the_video(localizer, dataset):
    """Its picture has a size of its own, which is not the size that boxes in the video are annotated in."""
    (clip, section), *_ = find_videos(load_vq2d(dataset / "annotations.json"), dataset / "videos")
    (aside,) = load_absent(dataset / "absent.json")
    larger = replace(aside, crop=replace(aside.crop, original_width=4000, original_height=3000))
    plain, scaled = answer_clip(localizer, clip, section, [aside, larger])
    assert plain.boxes == scaled.boxes
    assert max(box.x2 for box in scaled.boxes) <= 320

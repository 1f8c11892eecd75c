"""Datasets on disk: read like Ego4D, resumable, and the same however many processes write them."""

import json
from functools import partial

import numpy as np
import pytest

from lastseen.datasets.vq2d import find_videos, load_absent, load_vq2d
from lastseen.errors import OutputError, SynthError
from lastseen.video import Video, VideoWriter
from lastseen_synth.dataset_writer import settings_from, write_dataset
from lastseen_synth.episode import EpisodeSettings
from lastseen_synth.library import open_library

pytestmark = pytest.mark.usefixtures("one_thread")

VAL = partial(open_library, "val")
SMALL = EpisodeSettings(
    width_px=96,
    height_px=72,
    fps=10.0,
    duration_s=(10.0, 10.0),
    things=(2, 3),
    antialias=False,
    max_triangles=15_000,
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Two episodes, written at once by two processes: the folder, and what `progress` was told."""
    root, told = tmp_path_factory.mktemp("at-once"), []
    write_dataset(
        root,
        VAL,
        split="val",
        episodes=2,
        seed=3,
        settings=SMALL,
        workers=2,
        progress=lambda *n: told.append(n),
    )
    return root, told


@pytest.fixture(scope="module")
def resumed(tmp_path_factory, val_library):
    """The same by one process, stopped after the first episode: the folder, the first video's time of writing
    before and after, and the frames of the first episode as they were rendered."""
    root, frames = tmp_path_factory.mktemp("resumed"), []

    class Recorder(VideoWriter):
        def write(self, image):
            frames.append(image.copy())
            super().write(image)

    video = root / "videos" / "val-3-0000.mp4"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lastseen_synth.dataset_writer.VideoWriter", Recorder)
        write_dataset(root, lambda: val_library, split="val", episodes=1, seed=3, settings=SMALL)
    before = video.stat().st_mtime_ns
    write_dataset(root, lambda: val_library, split="val", episodes=2, seed=3, settings=SMALL)
    return root, (before, video.stat().st_mtime_ns), np.stack(frames)


def test_a_written_dataset_is_read_like_ego4d(dataset):
    root, _ = dataset
    annotations = load_vq2d(root / "annotations.json")
    sections = find_videos(annotations, root / "videos")
    assert len(annotations.clips) == 2
    assert annotations.questions
    for clip, section in sections:
        video = Video(section.path)
        assert (video.width, video.height, video.fps) == (96, 72, 10.0)
        assert video.duration_s == pytest.approx(10.0)
        for question in clip.questions:
            assert question.truth is not None
            assert question.truth.last_frame < question.query_frame <= 50
            assert len(question.truth.boxes) >= 3
            later = [
                t
                for t in question.occurrences
                if question.truth.last_frame < t.first_frame < question.query_frame
            ]
            assert later == []  # the answer is the last time before the question
            if question.crop.image:
                assert question.crop.image.is_file()
    assert len(load_absent(root / "absent.json")) == 4


def test_an_annotated_frame_number_is_that_frame_of_the_mp4(resumed):
    """What was rendered is compared with what a decoder gives at frame_number / 5 seconds."""
    root, _, frames = resumed
    assert len(frames) == 100
    pictures = frames.astype(int)
    video = Video(root / "videos" / "val-3-0000.mp4")
    moving = 0
    for number in range(0, 50, 3):
        decoded = video.frame_at(number / 5).image.astype(int)
        errors = [
            np.abs(decoded - pictures[n]).mean()
            for n in (2 * number - 1, 2 * number, 2 * number + 1)
            if 0 <= n < 100
        ]
        own = np.abs(decoded - pictures[2 * number]).mean()
        if max(errors) > 2 * own:  # something moved
            moving += 1
            assert own == min(errors)
    assert moving >= 3


def test_a_stopped_dataset_goes_on_and_is_the_same(dataset, resumed):
    (root, _), (stopped, (before, after), _) = dataset, resumed
    assert before == after  # the first episode was not written again
    assert (stopped / "annotations.json").read_text() == (root / "annotations.json").read_text()


def test_a_folder_holds_one_dataset(resumed):
    with pytest.raises(OutputError, match="holds another dataset"):
        write_dataset(resumed[0], VAL, split="val", episodes=1, seed=4, settings=SMALL)


def test_two_processes_write_what_one_writes(dataset, resumed):
    (root, told), (stopped, _, _) = dataset, resumed
    assert told == [(1, 2), (2, 2)]
    for path in ("annotations.json", "absent.json", "ATTRIBUTION.md"):
        assert (root / path).read_text() == (stopped / path).read_text()


def test_attribution_is_written_with_the_dataset(dataset):
    root, _ = dataset
    assert (root / "ATTRIBUTION.md").read_text().strip()
    assert json.loads((root / "settings.json").read_text())["seed"] == 3


@pytest.mark.parametrize(
    ("size", "fps", "seconds", "message"),
    [
        ("640", 10, "30-60", "like 640x480"),
        ("641x480", 10, "30-60", "even sides"),
        ("640x480", 7, "30-60", "multiple of 5"),
        ("640x480", 10, "60-30", "5 seconds or more"),
        ("640x480", 10, "soon", "seconds like 30-300"),
    ],
)
def test_bad_settings_are_one_clear_line(size, fps, seconds, message):
    with pytest.raises(SynthError, match=message):
        settings_from(size, fps, seconds)


def test_an_unknown_split_or_an_empty_folder_is_one_clear_line(tmp_path):
    with pytest.raises(SynthError, match="choose train or val"):
        open_library("test")
    with pytest.raises(SynthError):
        open_library("val", tmp_path)

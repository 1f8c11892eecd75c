"""Episodes, datasets and streams, made of what is drawn at run time."""

import json
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image

from lastseen.datasets.vq2d import find_videos, load_absent, load_vq2d
from lastseen.errors import OutputError, SynthError
from lastseen.video import Video
from lastseen_synth import episode as episode_module
from lastseen_synth.episode import EpisodePlan, EpisodeSettings, plan_episode, render_episode
from lastseen_synth.library import open_library
from lastseen_synth.preview import COLOURS, write_preview
from lastseen_synth.sightings import draw_question, runs_of, sightings
from lastseen_synth.timeline import Look, draw_looks, unseen_moment
from lastseen_synth.write import settings_from, write_dataset

pytestmark = pytest.mark.usefixtures("one_thread")

VAL = partial(open_library, "val")
SMALL = EpisodeSettings(
    width_px=160,
    height_px=120,
    fps=10.0,
    duration_s=(10.0, 10.0),
    things=(2, 3),
    antialias=False,
    max_triangles=15_000,
)


@pytest.fixture(scope="module")
def library():
    return open_library("val")


@pytest.fixture(scope="module")
def dataset(library, tmp_path_factory):
    root = tmp_path_factory.mktemp("synth")
    write_dataset(root, VAL, split="val", episodes=2, seed=3, settings=SMALL)
    return root


def plan_of(library, seed: int, settings: EpisodeSettings = SMALL) -> EpisodePlan:
    return plan_episode(library, np.random.default_rng([seed, 0, 0]), settings)


def test_a_written_dataset_is_read_like_ego4d(dataset):
    annotations = load_vq2d(dataset / "annotations.json")
    sections = find_videos(annotations, dataset / "videos")
    assert len(annotations.clips) == 2
    assert annotations.questions
    for clip, section in sections:
        video = Video(section.path)
        assert (video.width, video.height, video.fps) == (160, 120, 10.0)
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
    assert len(load_absent(dataset / "absent.json")) == 4


def test_an_annotated_frame_number_is_that_frame_of_the_mp4(dataset, library):
    """The frames are rendered again and compared with what a decoder gives at frame_number / 5 seconds."""
    plan = plan_episode(library, np.random.default_rng([3, 0, 0]), SMALL)
    pictures = torch.cat([part.images for part in render_episode(plan)]).numpy().astype(int)
    video = Video(dataset / "videos" / "val-3-0000.mp4")
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


def test_a_stopped_dataset_goes_on_and_is_the_same(dataset, library, tmp_path):
    write_dataset(tmp_path, VAL, split="val", episodes=1, seed=3, settings=SMALL)
    first = (tmp_path / "videos" / "val-3-0000.mp4").stat().st_mtime_ns
    write_dataset(tmp_path, VAL, split="val", episodes=2, seed=3, settings=SMALL)
    assert (tmp_path / "videos" / "val-3-0000.mp4").stat().st_mtime_ns == first
    assert (tmp_path / "annotations.json").read_text() == (dataset / "annotations.json").read_text()
    with pytest.raises(OutputError, match="holds another dataset"):
        write_dataset(tmp_path, VAL, split="val", episodes=1, seed=4, settings=SMALL)


def test_two_processes_write_what_one_writes(dataset, tmp_path):
    seen = []
    write_dataset(
        tmp_path,
        VAL,
        split="val",
        episodes=2,
        seed=3,
        settings=SMALL,
        workers=2,
        progress=lambda *n: seen.append(n),
    )
    assert seen == [(1, 2), (2, 2)]
    for path in ("annotations.json", "absent.json", "ATTRIBUTION.md"):
        assert (tmp_path / path).read_text() == (dataset / path).read_text()


def test_absent_things_and_their_twins_are_not_in_the_room(library):
    plan = plan_of(library, 3)
    names = {placed.asset.name for placed in plan.room.placed}
    assert not names & {thing.name for thing in plan.absent}
    assert names >= {thing.name for thing in plan.things}


def test_a_carried_thing_is_in_the_hand_and_then_at_its_goal(library, monkeypatch):
    looks = [
        Look(thing=0, start_s=1.0, end_s=2.0, free_s=0.0, moved=False, carried=False),
        Look(thing=0, start_s=6.0, end_s=7.5, free_s=3.0, moved=True, carried=True),
    ]
    monkeypatch.setattr(episode_module, "draw_looks", lambda *_, **__: looks)
    plan = plan_of(library, 5)
    (move,) = plan.moves
    assert move.carried
    share = np.concatenate([part.share for part in render_episode(plan)])[:, 0]
    in_hand = share[round(3.4 * 5) : round(5.6 * 5)]
    assert (in_hand > 0.2).mean() > 0.6  # looked down at, in front of the wearer
    after = list(render_episode(replace(plan, moves=(replace(move, start_s=0.0, end_s=0.0, carried=False),))))
    rest = np.concatenate([part.boxes_px for part in after])[:, 0]
    carried = np.concatenate([part.boxes_px for part in render_episode(plan)])[:, 0]
    late = slice(round(6.2 * 5), 50)
    np.testing.assert_array_equal(rest[late], carried[late])  # however it came there


def test_what_is_not_carried_changes_place_unseen(library):
    plan = plan_of(library, 3, replace(SMALL, duration_s=(40.0, 40.0)))
    places = torch.stack([placed.transform[:3, 3] for placed in plan.room.placed[:2]])
    moment = unseen_moment(plan.walk, places, 5.0, 35.0)
    camera = plan.walk.at([moment])[0]
    seen = places @ camera[:3, :3].T + camera[:3, 3]
    angles = torch.atan2(seen[:, :2].norm(dim=1), seen[:, 2])
    assert angles.min() > 0.6


def test_looks_fit_into_the_episode_one_after_the_other():
    for seed in range(20):
        looks = draw_looks(5, 60.0, np.random.default_rng(seed), can_carry=True)
        assert looks[0].start_s >= 1.5
        assert looks[-1].end_s <= 60.0
        for earlier, later in pairwise(looks):
            assert earlier.end_s <= later.start_s


def test_runs_are_unbroken_stretches():
    assert runs_of(np.array([0, 1, 1, 0, 1], bool)) == [(1, 3), (4, 5)]
    assert runs_of(np.zeros(4, bool)) == []


def test_a_sighting_begins_when_enough_is_seen_and_lasts_while_a_little_less_is():
    sides = np.array([18, 25, 40, 25, 18, 25, 25, 40])  # of 640: 32 to begin, 19.2 to last
    boxes = np.stack([np.zeros(8), np.zeros(8), sides, sides], 1)[:, None].astype(np.float32)
    share = np.array([1, 1, 1, 1, 1, 1, 1, 0.2])[:, None]
    assert sightings(boxes, share, 640)[:, 0].tolist() == [False, True, True, True] + [False] * 4
    boxes[2] = np.nan
    assert not sightings(boxes, share, 640).any()


def test_any_moment_may_be_asked_about_but_none_that_has_only_a_glimpse_before_it():
    runs = [(10, 20), (30, 32), (50, 60)]  # the second is a glimpse
    side = np.full(100, 0.1)
    asked = [draw_question(runs, side, np.random.default_rng(seed)) for seed in range(300)]
    answers = {run for _, run in asked}
    assert answers == {(10, 20), (50, 60)}
    for moment, run in asked:
        low, high = (23, 30) if run == (10, 20) else (63, 100)
        assert low <= moment <= high
    assert 210 < sum(run == (50, 60) for _, run in asked) < 270  # 38 of 46 moments
    side[12] = 0.3  # nine times the area
    asked = [draw_question(runs, side, np.random.default_rng(seed)) for seed in range(300)]
    assert 70 < sum(run == (50, 60) for _, run in asked) < 130  # 38 of 38 + 9 * 8
    assert draw_question([(0, 2)], np.ones(50), np.random.default_rng(0)) is None
    assert draw_question([(40, 50)], np.ones(50), np.random.default_rng(0)) is None  # in view at the end


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


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("lastseen_synth.preview.SECONDS", 5.0)
    return replace(SMALL, fps=5.0)


def test_a_preview_is_a_sheet_or_a_video_with_the_boxes_drawn_in(library, tmp_path, short):
    credit = write_preview(tmp_path / "sheet.png", library, seed=3, settings=short)
    assert "the lastseen authors" in credit
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape == (4 * 120, 6 * 160, 3)
    assert any((sheet == colour).all(2).any() for colour in COLOURS)
    write_preview(tmp_path / "walk.mp4", library, seed=3, settings=short)
    assert Video(tmp_path / "walk.mp4").duration_s == pytest.approx(5.0)


def test_attribution_is_written_with_the_dataset(dataset):
    assert (dataset / "ATTRIBUTION.md").read_text().strip()
    assert json.loads((dataset / "settings.json").read_text())["seed"] == 3

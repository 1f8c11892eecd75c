"""Episodes: their plan, what is carried and moved in them, their annotation and their preview."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image

from lastseen.video import Video
from lastseen_synth import episode as episode_module
from lastseen_synth.annotation import annotated_visibility, draw_query, runs_of
from lastseen_synth.episode import EpisodePlan, EpisodeSettings, plan_episode, render_episode
from lastseen_synth.preview import COLOURS, write_preview
from lastseen_synth.timeline import Fixation, draw_fixations, unseen_moment

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = EpisodeSettings(
    width_px=160,
    height_px=120,
    fps=5.0,
    duration_s=(10.0, 10.0),
    things=(2, 3),
    antialias=False,
    max_triangles=15_000,
)


def plan_of(library, seed: int, settings: EpisodeSettings = SMALL) -> EpisodePlan:
    return plan_episode(library, np.random.default_rng([seed, 0, 0]), settings)


def test_absent_things_and_their_twins_are_not_in_the_room(val_library):
    plan = plan_of(val_library, 3)
    names = {placed.asset.name for placed in plan.room.placed}
    assert not names & {thing.name for thing in plan.absent}
    assert names >= {thing.name for thing in plan.things}


def test_a_carried_thing_is_in_the_hand_and_then_at_its_goal(val_library, monkeypatch):
    fixations = [
        Fixation(thing=0, start_s=1.0, end_s=2.0, free_s=0.0, moved=False, carried=False),
        Fixation(thing=0, start_s=6.0, end_s=7.5, free_s=3.0, moved=True, carried=True),
    ]
    monkeypatch.setattr(episode_module, "draw_fixations", lambda *_, **__: fixations)
    plan = plan_of(val_library, 5)
    (move,) = plan.moves
    assert move.carried
    carried = list(render_episode(plan))
    share = np.concatenate([part.share for part in carried])[:, 0]
    in_hand = share[round(3.4 * 5) : round(5.6 * 5)]
    assert (in_hand > 0.2).mean() > 0.6  # looked down at, in front of the wearer
    placed = render_episode(replace(plan, moves=(replace(move, start_s=0.0, end_s=0.0, carried=False),)))
    boxes_placed, boxes_carried = (
        np.concatenate([part.boxes_px for part in parts])[:, 0] for parts in (placed, carried)
    )
    late = slice(round(6.2 * 5), 50)
    np.testing.assert_array_equal(boxes_placed[late], boxes_carried[late])  # however it came there


def test_what_is_not_carried_changes_place_unseen(val_library):
    plan = plan_of(val_library, 3, replace(SMALL, duration_s=(40.0, 40.0)))
    places = torch.stack([placed.transform[:3, 3] for placed in plan.room.placed[:2]])
    moment = unseen_moment(plan.walk, places, 5.0, 35.0)
    camera = plan.walk.at([moment])[0]
    seen = places @ camera[:3, :3].T + camera[:3, 3]
    angles = torch.atan2(seen[:, :2].norm(dim=1), seen[:, 2])
    assert angles.min() > 0.6


def test_looks_fit_into_the_episode_one_after_the_other():
    for seed in range(20):
        fixations = draw_fixations(5, 60.0, np.random.default_rng(seed), can_carry=True)
        assert fixations[0].start_s >= 1.5
        assert fixations[-1].end_s <= 60.0
        for earlier, later in pairwise(fixations):
            assert earlier.end_s <= later.start_s


def test_runs_are_unbroken_stretches():
    assert runs_of(np.array([0, 1, 1, 0, 1], bool)) == [(1, 3), (4, 5)]
    assert runs_of(np.zeros(4, bool)) == []


def test_a_sighting_begins_when_enough_is_seen_and_lasts_while_a_little_less_is():
    sides = np.array([18, 25, 40, 25, 18, 25, 25, 40])  # of 640: 32 to begin, 19.2 to last
    boxes = np.stack([np.zeros(8), np.zeros(8), sides, sides], 1)[:, None].astype(np.float32)
    share = np.array([1, 1, 1, 1, 1, 1, 1, 0.2])[:, None]
    assert annotated_visibility(boxes, share, 640)[:, 0].tolist() == [False, True, True, True] + [False] * 4
    boxes[2] = np.nan
    assert not annotated_visibility(boxes, share, 640).any()


def test_any_moment_may_be_asked_about_but_none_that_has_only_a_glimpse_before_it():
    runs = [(10, 20), (30, 32), (50, 60)]  # the second is a glimpse
    side = np.full(100, 0.1)
    asked = [draw_query(runs, side, np.random.default_rng(seed)) for seed in range(300)]
    answers = {run for _, run in asked}
    assert answers == {(10, 20), (50, 60)}
    for moment, run in asked:
        low, high = (23, 30) if run == (10, 20) else (63, 100)
        assert low <= moment <= high
    assert 210 < sum(run == (50, 60) for _, run in asked) < 270  # 38 of 46 moments
    side[12] = 0.3  # nine times the area
    asked = [draw_query(runs, side, np.random.default_rng(seed)) for seed in range(300)]
    assert 70 < sum(run == (50, 60) for _, run in asked) < 130  # 38 of 38 + 9 * 8
    assert draw_query([(0, 2)], np.ones(50), np.random.default_rng(0)) is None
    assert draw_query([(40, 50)], np.ones(50), np.random.default_rng(0)) is None  # in view at the end


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("lastseen_synth.preview.SECONDS", 5.0)
    return replace(SMALL, fps=5.0)


def test_a_preview_is_a_sheet_or_a_video_with_the_boxes_drawn_in(val_library, tmp_path, short):
    credit = write_preview(tmp_path / "sheet.png", val_library, seed=3, settings=short)
    assert "the lastseen authors" in credit
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape == (4 * 120, 6 * 160, 3)
    assert any((sheet == colour).all(2).any() for colour in COLOURS)
    write_preview(tmp_path / "walk.mp4", val_library, seed=3, settings=short)
    assert Video(tmp_path / "walk.mp4").duration_s == pytest.approx(5.0)

"""The bundled demo is a walk of the synthetic world."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lastseen.track import ResponseTrack
from lastseen.video import Video
from lastseen_synth.episode import plan_episode
from lastseen_synth.library import open_library
from lastseen_synth.rooms import shadows_of
from lastseen_synth.shade import render
from lastseen_synth.visibility import visible_boxes

ROOT = Path(__file__).parents[1]
ASSETS = ROOT / "lastseen" / "assets"
SEED, THING = 21, 1

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_demo_is_short_and_small():
    video = Video(ASSETS / "demo.mp4")
    assert 40 <= video.duration_s <= 60
    assert (ASSETS / "demo.mp4").stat().st_size < 3_000_000


def test_the_demo_is_what_its_script_renders(monkeypatch):
    """Drawn again without a camera's noise, a moment of it looks the same and has the same true box."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    sys.modules.pop("render_demo", None)
    import render_demo

    plan = plan_episode(open_library("val"), np.random.default_rng([SEED, 0, 0]), render_demo.SETTINGS)
    truth = ResponseTrack.from_json((ASSETS / "demo_truth.json").read_text())
    frame = (truth.first_frame + truth.last_frame) // 2
    assert not plan.moves  # the room is as it was
    shots = plan.camera.shots(plan.walk.at, np.array([frame / 5]), 640, 360)
    picture = render(plan.room.scene, shots.cameras, plan.room.lights, shadows=shadows_of(plan.room))
    frames = plan.camera.develop(shots, picture.rgb, picture.instance, torch.Generator().manual_seed(0))
    box = visible_boxes(frames.instance, [plan.room.things[THING]])[0][0, 0].numpy()
    np.testing.assert_allclose(box, truth.boxes[frame - truth.first_frame].xyxy, atol=2)
    shown = Video(ASSETS / "demo.mp4").frame_at(frame / 5).image.astype(float)
    drawn = frames.images[0].numpy().astype(float)
    likeness = np.corrcoef(shown.mean(2).ravel(), drawn.mean(2).ravel())[0, 1]
    assert likeness > 0.9

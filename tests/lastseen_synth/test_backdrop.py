import numpy as np
import pytest
import torch

from lastseen_synth.backdrop import Backdrop, collage
from lastseen_synth.geometry import Cameras, look_at


def taken(image):
    return Backdrop.of(torch.from_numpy(image), eye_m=1.6, radius_m=8.0, focal_px=60.0)


def camera(target, eye=(0.0, 0.0, 1.6), side_px=65):
    pose = look_at(torch.tensor([eye], dtype=torch.float64), torch.tensor([target], dtype=torch.float64))
    return Cameras.pinhole(pose, side_px, side_px, horizontal_fov_deg=80.0)


def test_a_panorama_is_seen_in_the_direction_it_was_taken():
    image = np.zeros((64, 128, 3), np.uint8)
    image[:, 64:] = (255, 0, 0)  # right of the middle: red
    image[:16] = (0, 0, 255)  # above: blue
    backdrop = taken(image)
    ahead, left, up = (
        backdrop.sample(backdrop.hits_m(camera(point)))[0]
        for point in ((1.0, 0, 1.6), (0, 1.0, 1.6), (1.0, 0, 3.6))
    )
    assert ahead[0, 32, 40] > 0.9 and ahead[0, 32, 24] < 0.1
    assert left[0].max() < 0.1  # red is to the right, out of view for who looks to the left
    assert up[2, 32, 32] > 0.9


def test_the_view_is_whole_where_the_panorama_closes():
    image = np.zeros((64, 128, 3), np.uint8)
    image[:, 60:68] = 255
    backdrop = taken(np.roll(image, 64, 1))
    behind = backdrop.sample(backdrop.hits_m(camera((-1.0, 0, 1.6))))[0, 0, 32]
    assert torch.allclose(behind, behind.flip(0), atol=0.02) and behind[30:35].min() > 0.9


def test_the_ground_stays_where_it_is_when_the_viewer_takes_a_step():
    backdrop = taken(np.random.default_rng(0).integers(0, 255, (64, 128, 3), dtype=np.uint8))
    colours = []
    for eye in ((0.0, 0.0, 1.6), (0.4, -0.3, 1.5)):
        hits = backdrop.hits_m(camera((2.0, 1.0, 0.0), eye))
        assert hits[0, :, 32, 32].tolist() == pytest.approx([2.0, 1.0, 0.0], abs=1e-4)
        colours.append(backdrop.sample(hits)[0, :, 32, 32])
    assert torch.allclose(*colours, atol=2e-3)


def test_light_comes_from_where_the_panorama_is_bright_and_in_its_colour():
    image = np.full((64, 128, 3), (90, 80, 40), np.uint8)
    image[10:20, 28:36] = (255, 230, 130)  # up, to the left
    lights = [taken(image).lights(np.random.default_rng(seed)) for seed in range(20)]
    to_source = -torch.stack([light.sun_direction for light in lights])
    assert (to_source[:, 2] > 0).all() and to_source[:, 1].mean() > 0.15
    assert all(light.sky_colour[0] > light.sky_colour[2] for light in lights)
    dark = taken(image // 4).lights(np.random.default_rng(0))
    assert dark.sky_colour.mean() < 0.5 * lights[0].sky_colour.mean()


def test_a_collage_is_papered_all_around():
    pictures = [np.full((32, 64, 3), 60 + 15 * i, np.uint8) for i in range(9)]
    canvas = collage(pictures, 4, np.random.default_rng(0), focal_px=40.0)
    assert canvas.shape[1] == 2 * canvas.shape[0] and canvas.min() > 20
    assert len(canvas.unique()) > 5


def test_one_picture_makes_a_collage_too():
    canvas = collage([np.full((32, 64, 3), 99, np.uint8)], 4, np.random.default_rng(0), focal_px=40.0)
    assert canvas.min() > 50

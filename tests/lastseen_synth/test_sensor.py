"""Lens, shutter and sensor: from linear light to what a head camera stores."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from lastseen.errors import SynthError
from lastseen_synth.camera import HeadCamera
from lastseen_synth.lens import WORN_FOV_DEG, Lens
from lastseen_synth.sensor import Sensor, develop, follow, jpeg
from lastseen_synth.shutter import Shutter, expose, needed_moments, rotation_vectors, rotations, shots
from lastseen_synth.texture import linear_to_srgb
from lastseen_synth.visibility import visible_boxes

WIDTH, HEIGHT = 96, 64
WIDE = Lens(horizontal_fov_deg=105.0, bend=0.4, shift=(0.01, -0.008), vignetting=0.3)
MIDDLE = Sensor(key=0.18, exposure_lag_s=0.5)


def still(times: Tensor) -> Tensor:
    return torch.eye(4, dtype=torch.float64).repeat(len(times), 1, 1)


def turning(speed_rad_s: float, sideways_m_s: float = 0.0):
    """A camera that turns right and moves right."""

    def pose_at(times: Tensor) -> Tensor:
        matrices = still(times)
        angle = times * speed_rad_s
        matrices[:, 0, 0], matrices[:, 0, 2] = angle.cos(), -angle.sin()
        matrices[:, 2, 0], matrices[:, 2, 2] = angle.sin(), angle.cos()
        matrices[:, 0, 3] = -sideways_m_s * times
        return matrices

    return pose_at


def sky(cameras, inside) -> tuple[Tensor, Tensor]:
    """What cameras see of things at infinity: `inside(azimuth_rad, elevation_rad)` is white and has id 1."""
    y, x = torch.meshgrid(torch.arange(cameras.height_px), torch.arange(cameras.width_px), indexing="ij")
    pixels = torch.stack([x + 0.5, y + 0.5, torch.ones_like(x)], 2).double()
    rays = torch.einsum("bij,hwj->bhwi", cameras.rays(), pixels)
    azimuth, flat = torch.atan2(rays[..., 0], rays[..., 2]), rays[..., ::2].norm(dim=3)
    seen = inside(azimuth, torch.atan2(-rays[..., 1], flat))
    return seen.float()[:, None].repeat(1, 3, 1, 1), seen.int() - 1 + seen.int()


def taken(camera: HeadCamera, pose_at, inside, times=(0.0,), width=WIDTH, height=HEIGHT):
    what = camera.shots(pose_at, times, width, height)
    return what, *expose(what, *sky(what.cameras, inside), soften=camera.sensor.softness_px > 0)


def random_light(frames: int = 2) -> Tensor:
    return torch.rand(frames, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))


def test_a_clean_camera_stores_what_was_rendered():
    camera, light = HeadCamera(), random_light()
    ids = torch.arange(2 * HEIGHT * WIDTH).view(2, HEIGHT, WIDTH).int()
    what = camera.shots(still, [0.0, 1.0], WIDTH, HEIGHT)
    frames = camera.develop(what, light, ids, torch.Generator())
    assert (what.pinhole.width_px, what.pinhole.height_px, what.counts) == (WIDTH, HEIGHT, (1, 1))
    expected = (linear_to_srgb(light) * 255).round().permute(0, 2, 3, 1)
    assert (frames.images.float() - expected).abs().max() <= 1
    assert torch.equal(frames.instance, ids)


def test_a_straight_lens_is_a_pinhole_camera():
    lens = Lens(horizontal_fov_deg=90)
    assert lens.focal_px(200) == pytest.approx(100)
    points = torch.tensor([[0.3, -0.2, 1.0], [-2.0, 1.0, 4.0]])
    assert torch.allclose(
        lens.project(points, 200, 100), points[:, :2] / points[:, 2:] * 100 + torch.tensor([100, 50])
    )


@pytest.mark.parametrize("lens", [Lens(), WIDE, replace(WIDE, bend=0.0), Lens.draw(np.random.default_rng(1))])
def test_projecting_undoes_the_rays_of_pixels(lens):
    pixels = torch.rand(500, 2, dtype=torch.float64) * torch.tensor([WIDTH, HEIGHT])
    tangents = lens.tangents(pixels, WIDTH, HEIGHT)
    points = torch.cat([tangents, torch.ones(500, 1)], 1) * torch.rand(500, 1).add(0.1)
    assert torch.allclose(lens.project(points, WIDTH, HEIGHT), pixels, atol=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_the_rendered_pinhole_covers_the_whole_picture(seed):
    rng = np.random.default_rng(seed)
    width, height = ((640, 360), (448, 448))[seed % 2]
    lens = Lens.draw(rng, aspect=width / height)
    assert WORN_FOV_DEG[0] <= lens.horizontal_fov_deg <= WORN_FOV_DEG[1]
    pinhole = lens.pinhole(width, height)
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    places = lens.tangents(torch.stack([x, y], 2), width, height) * pinhole.focal_px
    places = places + torch.tensor(pinhole.centre_px)
    assert (places >= 0).all()
    assert (places <= torch.tensor([pinhole.width_px, pinhole.height_px])).all()
    middle = places[height // 2 - 8 : height // 2 + 8, width // 2 - 8 : width // 2 + 8]
    assert middle.diff(dim=1)[..., 0].mean() == pytest.approx(1, abs=0.02)  # sharp, and no waste
    assert pinhole.width_px * pinhole.height_px < 3.5 * width * height


def test_a_lens_too_wide_for_a_straight_picture_is_refused():
    with pytest.raises(SynthError, match="narrow the lens"):
        Lens(horizontal_fov_deg=150, bend=0.2).pinhole(448, 448)


@pytest.mark.parametrize("lens", [Lens(), WIDE, replace(WIDE, chromatic_aberration=0.002)])
@pytest.mark.parametrize("speed", [0.0, 2.0])
def test_a_square_has_the_same_box_in_ids_and_in_colours_where_points_are_projected(lens, speed):
    sides = torch.tensor([0.25, 0.5, -0.1, 0.2])  # left, right, low, high: tangents of angles

    def inside(azimuth, elevation):
        x, y = azimuth.tan(), -elevation.tan() / azimuth.cos()
        return (x > sides[0]) & (x < sides[1]) & (y > sides[2]) & (y < sides[3])

    camera = HeadCamera(lens=lens, shutter=Shutter(exposure_s=0.0, readout_s=0.02))
    _, light, ids = taken(camera, turning(speed), inside)
    ((box,),), _ = visible_boxes(ids, [1])
    ((coloured,),), _ = visible_boxes((light[:, 1] > 0.5).int(), [1])
    assert (box - coloured).abs().max() <= 1
    if not speed:
        x, y = torch.meshgrid(torch.linspace(*sides[:2], 50), torch.linspace(*sides[2:], 50), indexing="ij")
        corners = lens.project(torch.stack([x, y, torch.ones_like(x)], 2), WIDTH, HEIGHT).view(-1, 2)
        assert (box[:2] - corners.amin(0)).abs().max() <= 1
        assert (box[2:] - corners.amax(0)).abs().max() <= 1


@pytest.mark.parametrize("speed_deg_s", [60, 250])
def test_blur_is_as_long_as_turn_times_exposure_times_focal_length(speed_deg_s):
    speed = math.radians(speed_deg_s)
    camera = HeadCamera(lens=Lens(horizontal_fov_deg=60), shutter=Shutter(exposure_s=0.02))
    what, light, _ = taken(camera, turning(speed), lambda azimuth, _: azimuth > 0, width=400)
    profile = light[0, 0, HEIGHT // 2]  # 0 to 1 across the edge in the middle of the picture
    # An edge smeared over `length` has a variance of length^2 / 12 (less the pixel grid's own).
    weight, place = profile.diff(), torch.arange(399.0)
    variance = (weight * place**2).sum() - (weight * place).sum() ** 2
    length = speed * 0.02 * what.pinhole.focal_px
    assert math.sqrt(12 * variance) == pytest.approx(length, abs=1.0)


@pytest.mark.parametrize("speed_deg_s", [-120, 300])
def test_a_rolling_shutter_leans_a_pole_by_the_turn_during_readout(speed_deg_s):
    speed = math.radians(speed_deg_s)
    camera = HeadCamera(lens=Lens(horizontal_fov_deg=60), shutter=Shutter(exposure_s=0.002, readout_s=0.02))
    what, _, ids = taken(camera, turning(speed), lambda a, _: a.abs() < 0.02, width=400, height=200)
    columns = torch.arange(400.0) + 0.5
    middles = ((ids[0] == 1) * columns).sum(1) / (ids[0] == 1).sum(1)
    leaned = middles[-1] - middles[0]
    assert leaned == pytest.approx(-speed * 0.02 * what.pinhole.focal_px * 199 / 200, abs=1.0)
    assert middles[99:101].mean() == pytest.approx(200, abs=0.6)  # the frame's time is that of its middle


def test_several_rendered_moments_join_without_seams():
    """However many moments are rendered, things at infinity look the same: only turns matter to them."""
    speed = math.radians(390)
    lens = Lens(horizontal_fov_deg=60)
    shutter = Shutter(exposure_s=0.02, readout_s=0.02)
    pole = lambda azimuth, elevation: (azimuth.abs() < 0.1) & (elevation.abs() < 0.15)  # noqa: E731
    camera = HeadCamera(lens=lens, shutter=shutter)
    one, light, ids = taken(camera, turning(speed), pole, width=200, height=120)
    more, light_more, ids_more = taken(camera, turning(speed, 6.0), pole, width=200, height=120)
    assert one.counts == (1,)
    assert more.counts[0] >= 3
    assert (light - light_more).abs().mean() < 0.003
    assert (ids != ids_more).float().mean() < 0.003


def test_frames_with_different_speeds_go_together():
    def faster(times):
        return turning(0.5, 1.0)(times**2 * 20)

    camera = HeadCamera(lens=WIDE, shutter=Shutter(exposure_s=0.02, readout_s=0.01))
    pole = lambda azimuth, _: (azimuth * 8).sin() > 0  # noqa: E731
    times = torch.tensor([0.0, 0.3, 0.6, 0.9])
    what, light, ids = taken(camera, faster, pole, times=times)
    assert len({*what.counts}) > 1
    assert what.frame.tolist() == [f for f, count in enumerate(what.counts) for _ in range(count)]
    for i in range(4):
        _, alone, alone_ids = taken(camera, faster, pole, times=times[i : i + 1])
        assert torch.allclose(light[i], alone[0], atol=1e-5)
        assert torch.equal(ids[i], alone_ids[0])


def test_more_moments_are_rendered_the_faster_the_head_moves():
    shutter = Shutter(exposure_s=0.01, readout_s=0.015)
    none, walking, flying = 0.0, 1.2, 20.0
    speeds = torch.tensor([none, walking, none, flying])
    turns = torch.tensor([0.0, 0.3, 6.5, 7.0])
    assert needed_moments(speeds, turns, shutter, 350.0).tolist() == [1, 2, 2, 8]


def test_rotation_vectors_and_rotations_undo_each_other():
    vectors = torch.rand(50, 3, dtype=torch.float64) - 0.5
    turned = rotations(vectors)
    assert torch.allclose(turned @ turned.mT, torch.eye(3).double().expand(50, 3, 3), atol=1e-12)
    assert torch.allclose(rotation_vectors(turned), vectors, atol=1e-9)


def test_vignetting_darkens_the_corners_only():
    share = replace(WIDE, shift=(0.0, 0.0)).light(WIDTH, HEIGHT)
    assert share[HEIGHT // 2, WIDTH // 2] == pytest.approx(1, abs=0.01)
    assert share[0, 0] == pytest.approx(0.7, abs=0.02)


def flat(brightness, frames: int) -> Tensor:
    return torch.as_tensor(brightness).expand(frames).view(-1, 1, 1, 1).expand(frames, 3, 16, 16).float()


def mean(images: Tensor) -> Tensor:
    return images.float().mean((1, 2, 3)) / 255


def test_exposure_follows_the_light_with_a_lag_and_never_jumps():
    times = torch.arange(90) / 30
    light = flat(torch.where(times < 1, 0.18, 0.02), 90)
    images, _ = develop(light, times, MIDDLE, torch.Generator())
    seen = mean(images)
    right = float(linear_to_srgb(torch.tensor(0.18)))
    assert seen[0] == pytest.approx(right, abs=0.01)
    assert seen[30] < 0.2  # dark at first
    assert seen[-1] == pytest.approx(right, abs=0.02)
    assert (seen[30:].diff() >= 0).all()
    assert seen[31:].diff().max() < 0.03


def test_a_light_change_is_made_up_for_by_two_thirds_after_the_lag():
    times = torch.arange(301).double() / 100
    wanted = (times >= 1).double()
    value = follow(wanted, times, 0.5, None)
    assert value[99] == 0
    assert value[150] == pytest.approx(1 - math.exp(-1), abs=0.01)


def test_exposure_has_limits():
    sensor = replace(MIDDLE, gain_stops=(-1.0, 1.0))
    images, state = develop(flat(0.001, 1), torch.zeros(1), sensor, torch.Generator())
    assert state.log_gain.exp() == pytest.approx(2)
    assert mean(images)[0] == pytest.approx(float(linear_to_srgb(torch.tensor(0.002))), abs=0.01)


def test_batches_continue_where_the_one_before_ended():
    times, light = torch.arange(40) / 30, random_light(1) * torch.linspace(0.1, 2, 40)[:, None, None, None]
    sensor = replace(MIDDLE, balance=0.8, cast=(0.1, -0.1))
    whole, last = develop(light, times, sensor, torch.Generator())
    parts, state = [], None
    for start in (0, 1, 17):
        stop = {0: 1, 1: 17, 17: 40}[start]
        part, state = develop(light[start:stop], times[start:stop], sensor, torch.Generator(), state=state)
        parts.append(part)
    assert (torch.cat(parts).int() - whole.int()).abs().max() <= 1
    assert torch.allclose(state.log_gain, last.log_gain)


def test_white_balance_removes_most_of_a_tint_and_never_all():
    light = flat(0.2, 60) * torch.tensor([1.5, 1.0, 0.6])[:, None, None]
    images, _ = develop(light, torch.arange(60) / 30, replace(MIDDLE, balance=0.8), torch.Generator())
    red, green, blue = images[-1, 8, 8].float()
    plain, _ = develop(light, torch.arange(60) / 30, MIDDLE, torch.Generator())
    plain_red, plain_green, plain_blue = plain[-1, 8, 8].float()
    assert 1.01 < red / green < 0.5 + 0.5 * plain_red / plain_green
    assert 0.5 + 0.5 * plain_blue / plain_green < blue / green < 0.99


def test_noise_grows_with_the_root_of_the_light():
    sensor, deviations = Sensor(electrons_per_s=1e5), []
    for brightness in (0.1, 0.2, 0.4):
        light = torch.full((1, 3, 200, 200), brightness)
        images, _ = develop(light, torch.zeros(1), sensor, torch.Generator().manual_seed(0), exposure_s=0.01)
        linear = ((images.float() / 255 + 0.055) / 1.055) ** 2.4
        deviations.append(float(linear.std()))
        assert deviations[-1] == pytest.approx(math.sqrt(brightness / 1e3), rel=0.05)
    assert deviations[2] / deviations[0] == pytest.approx(2, rel=0.05)


def test_a_short_exposure_is_noisier():
    def deviation(exposure_s):
        light = torch.full((1, 3, 64, 64), 0.2)
        sensor = Sensor(electrons_per_s=3e5, read_noise=4.0)
        generator = torch.Generator().manual_seed(0)
        return develop(light, torch.zeros(1), sensor, generator, exposure_s=exposure_s)[0].float().std()

    assert deviation(0.002) > 2 * deviation(0.02)


def test_highlights_are_cut_to_white():
    light = torch.full((1, 3, 8, 8), 30.0) * torch.tensor([1.0, 0.8, 0.6])[:, None, None]
    images, _ = develop(light, torch.zeros(1), Sensor(shoulder=0.7), torch.Generator())
    assert (images >= 254).all()


def test_sharpening_makes_halos_and_softness_takes_detail():
    light = torch.full((1, 3, 16, 32), 0.2)
    light[..., 16:] = 0.5
    plain, sharp, soft = (
        develop(light, torch.zeros(1), sensor, torch.Generator())[0][0, 8, :, 0].int()
        for sensor in (Sensor(), Sensor(sharpening=0.8), Sensor(softness_px=1.0))
    )
    assert sharp[15] < plain[15]
    assert sharp[16] > plain[16]
    assert plain.diff().max() > 1.5 * soft.diff().max()


def test_jpeg_keeps_the_picture_but_not_its_noise():
    images = torch.randint(0, 255, (2, 32, 48, 3), generator=torch.Generator().manual_seed(0)).byte()
    stored = jpeg(images, 30)
    assert stored.shape == images.shape
    assert stored.dtype == torch.uint8
    assert not torch.equal(stored, images)
    grey = torch.full((1, 16, 16, 3), 100, dtype=torch.uint8)
    assert torch.equal(jpeg(grey, 90), grey)


@pytest.mark.parametrize("frames", [1, 3])
def test_the_same_seed_takes_the_same_pictures(frames):
    camera = HeadCamera.draw(np.random.default_rng(3), aspect=WIDTH / HEIGHT)
    assert camera == HeadCamera.draw(np.random.default_rng(3), aspect=WIDTH / HEIGHT)
    what = camera.shots(turning(2.0, 1.0), np.arange(frames) / 30, WIDTH, HEIGHT)
    rgb, ids = sky(what.cameras, lambda azimuth, elevation: (azimuth * 20).sin() * elevation > 0)

    def images(seed):
        return camera.develop(what, rgb, ids, torch.Generator().manual_seed(seed)).images

    assert images(0).shape == (frames, HEIGHT, WIDTH, 3)
    assert torch.equal(images(0), images(0))
    assert not torch.equal(images(0), images(1))


@pytest.mark.parametrize("seed", range(5))
def test_drawn_cameras_are_like_those_people_wear(seed):
    dark, bright = (
        HeadCamera.draw(np.random.default_rng(seed), light=light).shutter for light in (0.02, 1.0)
    )
    assert 0.002 <= bright.exposure_s < dark.exposure_s <= 0.025
    assert 0.008 <= dark.readout_s <= 0.025


def test_shots_of_one_moment_have_that_moment_only():
    what = shots(turning(5.0), [0.5], Lens(), Shutter(), WIDTH, HEIGHT)
    assert what.moments_s.tolist() == [0.5]
    assert torch.equal(what.cameras.world_to_camera, turning(5.0)(torch.tensor([0.5], dtype=torch.float64)))

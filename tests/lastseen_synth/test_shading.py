"""Shading: textures, lights, shadows, anti-aliasing and moving instances."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from primitives import GREY, WHITE, box, camera, daylight, f64, quad, scene_of

from lastseen_synth.geometry import Poses
from lastseen_synth.meshes import Material, SceneBuilder
from lastseen_synth.raster import Budget
from lastseen_synth.shade import render
from lastseen_synth.shadow import static_shadow_maps
from lastseen_synth.texture import colour_texture, linear_to_srgb, picture_texture, srgb_to_linear

pytestmark = pytest.mark.usefixtures("one_thread")


def test_depth_and_texture_are_those_of_the_ray_through_the_pixel():
    ramp = np.zeros((64, 64, 3), np.uint8)
    steps = (linear_to_srgb((torch.arange(64) + 0.5) / 64) * 255).round().numpy().astype(np.uint8)
    ramp[..., 0], ramp[..., 1] = steps[None, :], steps[::-1, None]  # red grows with u, green with v
    material = Material(texture=picture_texture(ramp, wrap=False))
    scene = scene_of((quad((-2, 3, -1), (4, 1, 0), (0, 2, 3)), material))
    cameras = camera((0.3, 0, 0.4), (0, 3, 0.5))
    shown = render(scene, cameras, daylight())
    y, x = np.mgrid[:48, :64] + 0.5
    rays = (cameras.rays()[0].numpy() @ np.stack([x, y, np.ones_like(x)]).reshape(3, -1)).T
    # eye + t ray = origin + u along + v across, solved for (u, v, t)
    along, across = np.array([4.0, 1, 0]), np.array([0.0, 2, 3])
    systems = np.stack([np.broadcast_to(along, rays.shape), np.broadcast_to(across, rays.shape), -rays], 2)
    u, v, t = np.linalg.solve(systems, (np.array([0.3, 0, 0.4]) - [-2, 3, -1])[None, :, None])[..., 0].T
    inside = ((u > 0.05) & (u < 0.95) & (v > 0.05) & (v < 0.95)).reshape(48, 64)
    assert inside.mean() > 0.2
    depth = t.reshape(48, 64)  # rays have length 1 along the optical axis
    np.testing.assert_allclose(shown.depth_m[0].numpy()[inside], depth[inside], rtol=1e-5)
    red, green, _ = shown.rgb[0].numpy()
    np.testing.assert_allclose(red[inside], u.reshape(48, 64)[inside], atol=0.012)
    np.testing.assert_allclose(green[inside], v.reshape(48, 64)[inside], atol=0.012)


def checkerboard(squares=16, side_px=128):
    y, x = np.mgrid[:side_px, :side_px] * squares // side_px
    return np.repeat(((x + y) % 2 * 255).astype(np.uint8)[..., None], 3, 2)


def test_a_far_checkerboard_turns_grey_and_a_near_one_does_not():
    floor = Material(texture=picture_texture(checkerboard(), wrap=True))
    scene = scene_of((quad((-200, -200, 0), (400, 0, 0), (0, 400, 0), tiles=100), floor))
    shown = render(scene, camera((0, 0, 1.0), (0, 10, 0.4), width=96, height=96), daylight())
    distance = shown.depth_m[0]
    far = shown.rgb[0, 0][(distance > 15) & (distance < 150)]
    assert len(far) > 100
    assert (far - 0.5).abs().max() < 0.1  # half of the light: grey in linear, not in sRGB, terms
    near = shown.rgb[0, 0, -20:]
    assert near.min() < 0.05
    assert near.max() > 0.95


def test_textures_tile_or_repeat_their_edge_as_asked():
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[:, :4] = 255  # left half white
    for wrap, expected in ((True, [1, 0, 1, 0, 1, 0]), (False, [1, 1, 1, 0, 0, 0])):
        material = Material(texture=picture_texture(picture, wrap=wrap))
        mesh = quad((-1.5, 1, -0.5), (3, 0, 0), (0, 0, 1))
        mesh = replace(mesh, uv=torch.tensor([[-1, 0], [2, 0], [2, 1], [-1, 1]], dtype=f64))
        shown = render(
            scene_of((mesh, material)), camera((0, 0, 0), (0, 1, 0), width=60, fov=112.62), daylight()
        )
        assert shown.rgb[0, 0, 24, 5::10].round().int().tolist() == expected


def shadow_scene(blocker_z=0.5):
    floor = quad((-2, -2, 0), (4, 0, 0), (0, 4, 0))
    blocker = quad((-0.3, -0.3, blocker_z), (0.6, 0, 0), (0, 0.6, 0))
    return scene_of((floor, WHITE), (blocker, WHITE))


def floor_points(shown, cameras):
    """Where each pixel's surface point is, x and y in metres, and whether it is on the floor."""
    y, x = torch.meshgrid(torch.arange(96) + 0.5, torch.arange(96) + 0.5, indexing="ij")
    rays = torch.einsum("ij,jhw->ihw", cameras.rays()[0], torch.stack([x, y, torch.ones_like(x)]).double())
    place = cameras.positions_m()[0][:, None, None] + rays * shown.depth_m[0].double()
    return place, shown.instance[0] == 0


@pytest.mark.parametrize("light", ["lamp", "sun"])
def test_a_blocker_darkens_the_right_pixels_and_only_those(light):
    if light == "lamp":  # 2 m up: the shadow at z = 0 is larger by 2 / 1.5
        lights = daylight(0.1, lamps_m=torch.tensor([[0.0, 0, 2]]), lamp_colours=torch.full((1, 3), 3.0))
        low, high = (-0.4, -0.4), (0.4, 0.4)
    else:
        lights = daylight(0.1, sun_direction=torch.tensor([1.0, 0, -1]), sun_colour=torch.ones(3))
        low, high = (0.2, -0.3), (0.8, 0.3)
    scene = shadow_scene()
    cameras = camera((0.5, -2.5, 1.6), (0.1, 0, 0), width=96, height=96, fov=70)
    lit = render(scene, cameras, lights)
    shadows = static_shadow_maps(scene.geometry, lights, size_px=256)
    shaded = render(scene, cameras, lights, shadows=shadows)
    place, on_floor = floor_points(shaded, cameras)
    beyond = torch.stack([place[0] - low[0], high[0] - place[0], place[1] - low[1], high[1] - place[1]]).amin(
        0
    )
    penumbra_m = 0.06
    dark, bright = on_floor & (beyond > penumbra_m), on_floor & (beyond < -penumbra_m)
    assert dark.sum() > 50
    torch.testing.assert_close(shaded.rgb[0, :, dark], torch.full((3, int(dark.sum())), 0.1))
    torch.testing.assert_close(shaded.rgb[0, :, bright], lit.rgb[0, :, bright])
    top = shaded.instance[0] == 1
    torch.testing.assert_close(shaded.rgb[0, :, top], lit.rgb[0, :, top])  # it does not shade itself


def test_a_carried_blocker_takes_its_shadow_along():
    scene = shadow_scene()
    lights = daylight(0.1, lamps_m=torch.tensor([[0.0, 0, 2]]), lamp_colours=torch.full((1, 3), 3.0))
    cameras = camera((0.5, -2.5, 1.6), (0.1, 0, 0), width=96, height=96, fov=70)
    shift = torch.eye(4, dtype=f64)
    shift[0, 3] = 0.45
    poses = Poses(instances=(1,), transforms=shift[None, None])
    without = static_shadow_maps(scene.geometry, lights, size_px=256, moving=(1,))
    carried = render(scene, cameras, lights, shadows=without, poses=poses)
    put_down = scene.moved(1, shift)
    at_rest = render(
        put_down, cameras, lights, shadows=static_shadow_maps(put_down.geometry, lights, size_px=256)
    )
    assert torch.equal(carried.instance, at_rest.instance)
    different = ((carried.rgb - at_rest.rgb).abs().amax(1) > 0.02)[0]
    place, _ = floor_points(carried, cameras)
    edge = torch.stack([place[0] - 0.2, 1.0 - place[0], place[1] + 0.4, 0.4 - place[1]]).amin(0).abs()
    assert not (different & (edge > 0.06)).any()  # two map sizes: penumbras differ, nothing else
    assert ((carried.rgb < 0.11).all(1)[0] & (edge > 0.06)).sum() > 100


CHECKS = Material(texture=picture_texture(checkerboard(4, 32), wrap=True), specular=0.2)


def blobs(rng, count=12, floor=CHECKS):
    """A small furnished corner: floor, wall and coloured boxes."""
    things = [
        (quad((-2, -2, 0), (4, 0, 0), (0, 4, 0), tiles=4), floor),
        (quad((-2, 2, 0), (4, 0, 0), (0, 0, 3)), GREY),
    ]
    for _ in range(count):
        low = rng.uniform([-1.5, -0.5, 0], [1.2, 1.6, 0.5])
        colour = Material(texture=colour_texture(rng.integers(20, 255, 3)))
        things.append((box(tuple(low), tuple(low + rng.uniform(0.1, 0.5, 3))), colour))
    return scene_of(*things)


LAMPS = daylight(
    0.2,
    lamps_m=torch.tensor([[0.5, -0.5, 2.4], [-1.0, 0.5, 2.0]]),
    lamp_colours=torch.tensor([[1.5, 1.4, 1.2], [0.5, 0.6, 0.9]]),
    sun_direction=torch.tensor([0.3, 1.0, -1.0]),
    sun_colour=torch.tensor([0.4, 0.4, 0.3]),
)


def rigid(rng):
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    rotation *= np.sign(np.linalg.det(rotation))
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation, rng.uniform(-0.3, 0.3, 3)
    return torch.tensor(matrix)


def test_a_moving_instance_looks_like_one_built_where_it_is():
    rng = np.random.default_rng(5)
    scene, transform = blobs(rng), rigid(rng)
    cameras = camera([(0, -2.5, 1.5)] * 2, [(0, 1, 0.3)] * 2)
    still = torch.eye(4, dtype=f64)
    poses = Poses(
        instances=(4, 6),
        transforms=torch.stack([torch.stack([still, still]), torch.stack([transform, still])]),
    )
    moving = render(scene, cameras, LAMPS, poses=poses)
    for frame, built in enumerate((scene, scene.moved(4, transform))):
        expected = render(built, cameras.frames(0, 1), LAMPS)
        assert torch.equal(moving.instance[frame], expected.instance[0])
        torch.testing.assert_close(moving.rgb[frame], expected.rgb[0], atol=1e-4, rtol=1e-3)
    assert not torch.equal(moving.instance[0], moving.instance[1])


def test_frames_do_not_depend_on_their_batch_the_budget_or_the_run():
    scene = blobs(np.random.default_rng(2))
    shadows = static_shadow_maps(scene.geometry, LAMPS, size_px=64)
    cameras = camera([(0, -2.5, 1.5), (1, -2, 1), (0.2, 0.3, 0.6)], [(0, 1, 0.3), (0, 1, 0.2), (1, 1, 0.1)])
    sizes = [
        Budget(frames_per_pass=3, max_fragments=1 << 20, max_samples=1 << 20),
        Budget(frames_per_pass=1, max_fragments=1 << 20, max_samples=1 << 20),
        Budget(frames_per_pass=2, max_fragments=300, max_samples=777),
    ]
    for antialias in (False, True):
        options = {"shadows": shadows, "antialias": antialias}
        first, *others = (render(scene, cameras, LAMPS, budget=budget, **options) for budget in sizes)
        again = render(scene, cameras, LAMPS, budget=sizes[0], **options)
        assert torch.equal(first.rgb, again.rgb)
        for other in others:
            assert torch.equal(first.instance, other.instance)
            assert torch.equal(first.depth_m, other.depth_m)
            torch.testing.assert_close(first.rgb, other.rgb, atol=1e-5, rtol=1e-4)


def test_antialiasing_comes_close_to_sixteen_samples_and_leaves_the_ids_alone():
    scene = blobs(np.random.default_rng(3), floor=GREY)
    where = ((0, -2.5, 1.5), (0, 1, 0.3))
    fine = render(scene, camera(*where, width=256, height=192), LAMPS).rgb
    reference = torch.nn.functional.avg_pool2d(fine, 4)
    plain = render(scene, camera(*where), LAMPS)
    smooth = render(scene, camera(*where), LAMPS, antialias=True)
    errors = [(r.rgb - reference).abs().mean() for r in (plain, smooth)]
    assert errors[1] < 0.6 * errors[0]
    assert errors[1] < 0.012
    assert torch.equal(plain.instance, smooth.instance)
    assert torch.equal(plain.depth_m, smooth.depth_m)


def test_both_sides_of_a_surface_are_lit_as_seen():
    lights = daylight(0.0, lamps_m=torch.tensor([[0.0, -1, 0]]), lamp_colours=torch.ones(1, 3))
    front, back = quad((-1, 1, -1), (2, 0, 0), (0, 0, 2)), quad((-1, 1, -1), (0, 0, 2), (2, 0, 0))
    inverted = replace(front, normals=-front.normals)
    pictures = [
        render(scene_of((m, WHITE)), camera((0, 0, 0), (0, 1, 0)), lights).rgb
        for m in (front, back, inverted)
    ]
    assert pictures[0].max() == pytest.approx(1 / (4 + 0.01), rel=1e-3)  # 2 m from the lamp, straight on
    for picture in pictures[1:]:
        torch.testing.assert_close(picture, pictures[0])
    away = camera((0, 2, 0), (0, 1, 0))  # from the far side the lamp lights nothing
    assert render(scene_of((front, WHITE)), away, lights).rgb.max() == 0


def test_light_of_its_own_and_light_that_changes_from_frame_to_frame():
    screen = Material(texture=colour_texture((255, 0, 0)), emission=2.0)
    scene = scene_of(
        (quad((-1, 1, -1), (1, 0, 0), (0, 0, 2)), screen), (quad((0, 1, -1), (1, 0, 0), (0, 0, 2)), GREY)
    )
    sky = torch.tensor([[1.0, 1, 1], [0.5, 0.25, 0]])
    shown = render(
        scene, camera([(0, 0, 0)] * 2, [(0, 1, 0)] * 2), daylight(sky_colour=sky, ground_colour=sky)
    )
    grey = float(srgb_to_linear(torch.tensor(128 / 255)))
    torch.testing.assert_close(shown.rgb[:, :, 24, 16], torch.tensor([[3.0, 0, 0], [2.5, 0, 0]]))
    expected = grey * sky
    torch.testing.assert_close(shown.rgb[:, :, 24, 48], expected, atol=1e-3, rtol=1e-3)


def test_a_scene_without_lamps_may_still_ask_for_shadows():
    scene, lights = shadow_scene(), daylight()
    poses = Poses(instances=(1,), transforms=torch.eye(4, dtype=f64)[None, None])
    shadows = static_shadow_maps(scene.geometry, lights, size_px=16, moving=(1,))
    cameras = camera((0.5, -2.5, 1.6), (0.1, 0, 0))
    shown = render(scene, cameras, lights, shadows=shadows, poses=poses)
    assert torch.equal(shown.rgb, render(scene, cameras, lights).rgb)


def test_srgb_comes_back_from_linear_light():
    values = torch.arange(256) / 255
    torch.testing.assert_close(linear_to_srgb(srgb_to_linear(values)), values, atol=1e-5, rtol=0)


def test_mistakes_are_told_with_what_was_expected():
    with pytest.raises(ValueError, match=r"uint8 \[H, W, 3\], got float64"):
        picture_texture(np.zeros((4, 4, 3)), wrap=True)
    with pytest.raises(ValueError, match=r"vertices outside 0\.\.3"):
        replace(quad((0, 0, 0), (1, 0, 0), (0, 1, 0)), triangles=torch.tensor([[0, 1, 4]]))
    with pytest.raises(ValueError, match="2 lamps need colours"):
        daylight(lamps_m=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="empty scene"):
        SceneBuilder().build()

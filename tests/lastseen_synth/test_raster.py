from dataclasses import replace

import numpy as np
import pytest
import torch

from lastseen_synth.geometry import Cameras, Geometry, Poses, look_at
from lastseen_synth.meshes import Material, Mesh, SceneBuilder
from lastseen_synth.raster import Budget, fragments, nearest, project, rows_of, triangles_in_view
from lastseen_synth.shade import render
from lastseen_synth.shadow import Lights, static_shadow_maps
from lastseen_synth.texture import colour_texture, linear_to_srgb, picture_texture, srgb_to_linear
from lastseen_synth.truth import alone_pixels, visible_boxes

pytestmark = pytest.mark.usefixtures("one_thread")

f64 = torch.float64
WHITE = Material(texture=colour_texture((255, 255, 255)))
GREY = Material(texture=colour_texture((128, 128, 128)))


def vec(*numbers):
    return torch.tensor(numbers, dtype=f64)


def quad(origin, along, across, *, tiles=1.0):
    origin, along, across = vec(*origin), vec(*along), vec(*across)
    normal = torch.nn.functional.normalize(torch.linalg.cross(along, across), dim=0)
    return Mesh(
        positions_m=torch.stack([origin, origin + along, origin + along + across, origin + across]),
        normals=normal.expand(4, 3),
        uv=torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=f64) * tiles,
        triangles=torch.tensor([[0, 1, 2], [0, 2, 3]]),
    )


def box(low, high):
    """Six sides of their own; normals outward."""
    (x0, y0, z0), (x1, y1, z1) = low, high
    dx, dy, dz = (x1 - x0, 0, 0), (0, y1 - y0, 0), (0, 0, z1 - z0)
    sides = [quad(low, dy, dx), quad(low, dx, dz), quad(low, dz, dy)]
    sides += [quad((x0, y0, z1), dx, dy), quad((x0, y1, z0), dz, dx), quad((x1, y0, z0), dy, dz)]
    return Mesh(
        positions_m=torch.cat([s.positions_m for s in sides]),
        normals=torch.cat([s.normals for s in sides]),
        uv=torch.cat([s.uv for s in sides]),
        triangles=torch.cat([s.triangles + 4 * n for n, s in enumerate(sides)]),
    )


def scene_of(*things):
    builder = SceneBuilder()
    for mesh, material in things:
        builder.add(mesh, [material])
    return builder.build()


def camera(eye, target, width=64, height=48, fov=80.0, near=0.05):
    eyes, targets = torch.tensor(eye, dtype=f64).view(-1, 3), torch.tensor(target, dtype=f64).view(-1, 3)
    return Cameras.pinhole(look_at(eyes, targets), width, height, horizontal_fov_deg=fov, near_m=near)


def daylight(ambient=1.0, **more):
    """Flat light unless told otherwise."""
    sky = torch.full((3,), ambient)
    return Lights(**{"lamps_m": torch.zeros(0, 3), "lamp_colours": torch.zeros(0, 3), "sky_colour": sky,
                     "ground_colour": sky, **more})  # fmt: skip


def soup(rng, count):
    """Triangles of every awkward kind around a camera at the origin; one instance each."""
    corners = []
    for k in range(count):
        middle = rng.uniform([-3, -3, -3], [3, 3, 3])
        size = [0.02, 0.3, 1.0, 8.0][k % 4]  # tiny to huge; many behind or across the near plane
        triangle = middle + rng.normal(0, size, (3, 3))
        if k % 5 == 0:  # a sliver
            triangle[2] = triangle[0] + 0.7 * (triangle[1] - triangle[0]) + rng.normal(0, 1e-3, 3)
        corners.append(triangle)
    return Geometry(
        positions_m=torch.tensor(np.concatenate(corners).T.copy()),
        faces=torch.arange(3 * count).view(count, 3).T.contiguous(),
        face_instance=torch.arange(count),
        vertex_start=tuple(range(0, 3 * count + 1, 3)),
        face_start=tuple(range(count + 1)),
    )


def slow_ids(geometry, cameras, frame):
    """Ray against every triangle, in float64. Also where the answer hangs on a rounding error: centres within
    1e-4 px of an edge (or of the near plane's) or two surfaces at the same depth."""
    fx, fy = cameras.focal_px[frame].tolist()
    cx, cy = cameras.centre_px[frame].tolist()
    pose = cameras.world_to_camera[frame].numpy()
    y, x = np.mgrid[: cameras.height_px, : cameras.width_px] + 0.5
    rays = np.stack([(x - cx) / fx, (y - cy) / fy, np.ones_like(x)])
    best, second = np.full(x.shape, np.inf), np.full(x.shape, np.inf)
    ids, unsure = np.full(x.shape, -1), np.zeros(x.shape, bool)
    points = pose[:3, :3] @ geometry.positions_m.numpy() + pose[:3, 3:]
    for k, face in enumerate(geometry.faces.T.tolist()):
        p, q, r = points[:, face].T
        volume = p @ np.cross(q, r)
        forms = np.stack([np.cross(q, r), np.cross(r, p), np.cross(p, q)]) / volume
        inverse = forms.sum(0)
        values = np.tensordot(forms, rays, 1)
        depth = 1 / np.tensordot(inverse, rays, 1)
        inside = (values * np.sign(depth) >= 0).all(0) & (depth >= cameras.near_m)
        edges = np.concatenate([values, (1 / depth - 1 / cameras.near_m)[None]])
        gradient = np.hypot(*(np.vstack([forms, inverse])[:, :2] / [fx, fy]).T)
        unsure |= (np.abs(edges) < 1e-4 * gradient[:, None, None]).any(0) & (depth > 0)
        depth = np.where(inside, depth, np.inf)
        ids = np.where(depth < best, k, ids)
        best, second = np.minimum(best, depth), np.minimum(second, np.maximum(best, depth))
    unsure |= second < best * (1 + 1e-6)
    return ids, best, unsure


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_pixel_shows_the_triangle_that_a_slow_reference_finds(seed):
    rng = np.random.default_rng(seed)
    geometry = soup(rng, 160)
    cameras = camera(np.zeros((3, 3)), rng.normal(0, 1, (3, 3)), fov=100.0)
    triangles = triangles_in_view(geometry, project(geometry, cameras), cameras)
    seen = nearest(rows_of(triangles, cameras), 3, 48, 64)
    drawn = torch.where(seen.triangle >= 0, triangles.face[seen.triangle.clamp(min=0).long()], -1)
    behind = (project(geometry, cameras).outside & 1).view(3, 160, 3).sum(2)
    assert [(behind == n).sum() > 20 for n in range(4)] == [True] * 4  # in front, across (both ways), behind
    truth, unsure, depth = [], [], []
    for frame in range(3):
        ids, distance, doubtful = slow_ids(geometry, cameras, frame)
        truth.append(ids)
        depth.append(distance)
        unsure.append(doubtful)
    truth, unsure, depth = np.stack(truth), np.stack(unsure), np.stack(depth)
    wrong = drawn.numpy() != truth
    assert not (wrong & ~unsure).any()
    assert wrong.sum() <= 3  # of 9,216: the doubtful ones that fell the other way
    assert (truth >= 0).mean() > 0.5
    sure = ~unsure & (truth >= 0)
    np.testing.assert_allclose(1 / seen.inverse_depth.numpy()[sure], depth[sure], rtol=2e-5)
    if not wrong.any():
        instances = list(range(160))
        boxes, pixels = visible_boxes(drawn.int(), instances)
        for frame in range(3):
            for i in instances:
                rows, columns = np.nonzero(truth[frame] == i)
                assert pixels[frame, i] == len(rows)
                if len(rows):
                    expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
                    assert boxes[frame, i].tolist() == expected
                else:
                    assert boxes[frame, i].isnan().all()


@pytest.mark.parametrize("eye", [(0.1, -0.2, 1.0), (0.3, 0.1, 0.4), (2.0, 0.0, 2.0)])
def test_a_tessellated_plane_has_neither_holes_nor_overlaps(eye):
    cells = 24
    rng = np.random.default_rng(1)
    v, u = np.mgrid[: cells + 1, : cells + 1] / cells
    inner = (u > 0) & (u < 1) & (v > 0) & (v < 1)
    jitter = rng.uniform(-0.4, 0.4, (2, cells + 1, cells + 1)) / cells * inner
    flat = np.stack([u + jitter[0] - 0.5, v + jitter[1] - 0.5, 0 * u], -1).reshape(-1, 3) * 6
    corner = (np.arange(cells)[:, None] * (cells + 1) + np.arange(cells)).ravel()
    a, b, c, d = corner, corner + 1, corner + cells + 2, corner + cells + 1
    faces = np.concatenate([[a, b, c], [a, c, d]], 1)
    once = Geometry(
        positions_m=torch.tensor(flat.T.copy()),
        faces=torch.tensor(faces),
        face_instance=torch.zeros(faces.shape[1]).long(),
        vertex_start=(0, len(flat)),
        face_start=(0, faces.shape[1]),
    )
    # A picture whose pixel centres lie on the plane's own lines, too: looking straight down from 1 m.
    cameras = camera([eye, (0, 0, 1)], [(0.2, 0.1, 0), (0, 0, 0)], width=48, height=48)
    triangles = triangles_in_view(once, project(once, cameras), cameras)
    hits = torch.zeros(2 * 48 * 48, dtype=torch.int64)
    for _, pixel, _ in fragments(rows_of(triangles, cameras)):
        hits += torch.bincount(pixel, minlength=len(hits))
    outline = once.positions_m[:, [0, cells, -1, -1 - cells]]
    two = replace(once, positions_m=outline, faces=torch.tensor([[0, 0], [1, 2], [2, 3]]))
    covered = nearest(rows_of(triangles_in_view(two, project(two, cameras), cameras), cameras), 2, 48, 48)
    assert hits.tolist() == (covered.triangle >= 0).long().flatten().tolist()
    assert hits.sum() > 2000


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


@pytest.mark.parametrize("eye", [(0.0, 0.0, 0.0), (0.98, 0.2, -0.9), (-0.97, -0.98, 0.96)])
def test_a_camera_inside_a_closed_box_sees_a_wall_at_the_right_depth_in_every_pixel(eye):
    scene = scene_of((box((-1, -1, -1), (1, 1, 1)), WHITE))
    targets = [(5, 1, 1), (-5, 2, -1), (0.1, 0.2, -5), (1, -5, 0.1)]
    cameras = camera([eye] * 4, targets, fov=120.0, near=0.005)
    shown = render(scene, cameras, daylight())
    y, x = torch.meshgrid(torch.arange(48) + 0.5, torch.arange(64) + 0.5, indexing="ij")
    rays = torch.einsum("bij,jhw->bihw", cameras.rays(), torch.stack([x, y, torch.ones_like(x)]).double())
    away = torch.where(rays > 0, 1.0, -1.0) - vec(*eye)[None, :, None, None]
    expected = (away / rays).amin(1)
    assert (shown.instance == 0).all()
    torch.testing.assert_close(shown.depth_m.double(), expected, rtol=2e-5, atol=1e-6)


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


def test_pixel_counts_tell_occlusion_and_truncation():
    # 1 m away, 1 m is 32 px: a 20 x 20 px square half behind a nearer one, and one half out of the frame.
    square = quad((-0.3125, 1, -0.3125), (0.625, 0, 0), (0, 0, 0.625))
    cover = quad((0, 0.5, -0.5), (0.5, 0, 0), (0, 0, 1))
    cut = quad((-1.3125, 1, 0.4), (0.625, 0, 0), (0, 0, 0.3125))
    scene = scene_of((square, WHITE), (cover, WHITE), (cut, WHITE))
    cameras = camera((0, 0, 0), (0, 1, 0), fov=90)
    ids = render(scene, cameras, daylight()).instance
    boxes, visible = visible_boxes(ids, [2, 0])
    alone = alone_pixels(scene.geometry, cameras, [2, 0])
    assert visible.tolist() == [[100, 200]]
    assert alone.in_frame.tolist() == [[100, 400]]
    assert alone.in_all.tolist() == [[200, 400]]
    assert boxes[0].tolist() == [[0, 1, 10, 11], [22, 14, 32, 34]]
    moved = torch.eye(4, dtype=f64)
    moved[0, 3] = 0.3125
    poses = Poses(instances=(1, 2), transforms=torch.stack([moved, moved])[None])
    assert alone_pixels(scene.geometry, cameras, [2, 0], poses=poses).in_frame.tolist() == [[200, 400]]


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


def test_a_frame_that_looks_at_nothing_is_background():
    scene = scene_of((quad((-1, 1, -1), (2, 0, 0), (0, 0, 2)), WHITE))
    for antialias in (False, True):
        shown = render(
            scene, camera((0, 2, 0), (0, 3, 0)), daylight(), background=(0.1, 0.2, 0.3), antialias=antialias
        )
        torch.testing.assert_close(shown.rgb[0, :, 5, 5], torch.tensor([0.1, 0.2, 0.3]))
        assert (shown.instance == -1).all()
        assert shown.depth_m.isinf().all()
    assert alone_pixels(scene.geometry, camera((0, 2, 0), (0, 3, 0)), [0]).in_all.tolist() == [[0]]


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

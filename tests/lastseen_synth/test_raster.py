"""The rasteriser: coverage and depth against slow references, and pixel counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from primitives import WHITE, box, camera, daylight, f64, quad, scene_of, vec

from lastseen_synth.geometry import Geometry, Poses
from lastseen_synth.raster import depth_test, fragments, project, spans_of, triangles_in_view
from lastseen_synth.shade import render
from lastseen_synth.visibility import unoccluded_pixels, visible_boxes

pytestmark = pytest.mark.usefixtures("one_thread")


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
    seen = depth_test(spans_of(triangles, cameras), 3, 48, 64)
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
    for _, pixel, _ in fragments(spans_of(triangles, cameras)):
        hits += torch.bincount(pixel, minlength=len(hits))
    outline = once.positions_m[:, [0, cells, -1, -1 - cells]]
    two = replace(once, positions_m=outline, faces=torch.tensor([[0, 0], [1, 2], [2, 3]]))
    covered = depth_test(spans_of(triangles_in_view(two, project(two, cameras), cameras), cameras), 2, 48, 48)
    assert hits.tolist() == (covered.triangle >= 0).long().flatten().tolist()
    assert hits.sum() > 2000


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


def test_pixel_counts_tell_occlusion_and_truncation():
    # 1 m away, 1 m is 32 px: a 20 x 20 px square half behind a nearer one, and one half out of the frame.
    square = quad((-0.3125, 1, -0.3125), (0.625, 0, 0), (0, 0, 0.625))
    cover = quad((0, 0.5, -0.5), (0.5, 0, 0), (0, 0, 1))
    cut = quad((-1.3125, 1, 0.4), (0.625, 0, 0), (0, 0, 0.3125))
    scene = scene_of((square, WHITE), (cover, WHITE), (cut, WHITE))
    cameras = camera((0, 0, 0), (0, 1, 0), fov=90)
    ids = render(scene, cameras, daylight()).instance
    boxes, visible = visible_boxes(ids, [2, 0])
    whole = unoccluded_pixels(scene.geometry, cameras, [2, 0])
    in_frame = unoccluded_pixels(scene.geometry, cameras, [2, 0], margin=0.0)
    assert visible.tolist() == [[100, 200]]
    assert in_frame.tolist() == [[100, 400]]
    assert whole.tolist() == [[200, 400]]
    assert boxes[0].tolist() == [[0, 1, 10, 11], [22, 14, 32, 34]]
    moved = torch.eye(4, dtype=f64)
    moved[0, 3] = 0.3125
    poses = Poses(instances=(1, 2), transforms=torch.stack([moved, moved])[None])
    assert unoccluded_pixels(scene.geometry, cameras, [2, 0], poses=poses, margin=0.0).tolist() == [
        [200, 400]
    ]


def test_a_frame_that_looks_at_nothing_is_background():
    scene = scene_of((quad((-1, 1, -1), (2, 0, 0), (0, 0, 2)), WHITE))
    for antialias in (False, True):
        shown = render(
            scene, camera((0, 2, 0), (0, 3, 0)), daylight(), background=(0.1, 0.2, 0.3), antialias=antialias
        )
        torch.testing.assert_close(shown.rgb[0, :, 5, 5], torch.tensor([0.1, 0.2, 0.3]))
        assert (shown.instance == -1).all()
        assert shown.depth_m.isinf().all()
    assert unoccluded_pixels(scene.geometry, camera((0, 2, 0), (0, 3, 0)), [0]).tolist() == [[0]]

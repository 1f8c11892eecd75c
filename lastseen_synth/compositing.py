"""Compositing of rendered objects over a backdrop, with soft edges and contact shadows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from lastseen_synth.geometry import Cameras, Poses
from lastseen_synth.meshes import MeshScene
from lastseen_synth.photo_scene import PhotoScene, contact_shadow
from lastseen_synth.raster import Budget, depth_test, project, spans_of, triangles_in_view
from lastseen_synth.shade import four_samples, instances, shade, surface_planes
from lastseen_synth.visibility import unoccluded_pixels

SHADE_STRIDE_PX = 2  # contact shadows are soft: computed at half resolution


@dataclass(frozen=True, kw_only=True)
class Composite:
    """
    | rgb   | float32 [S, 3, H, W] linear light                                             |
    | thing | float32 [S, H, W] alpha of the visible part of the queried object, 0 without  |
    """

    rgb: Tensor
    thing: Tensor


def composite(
    photo_scene: PhotoScene,
    scene: MeshScene,
    cameras: Cameras,
    *,
    softness_px: float,
    poses: Poses | None = None,
) -> Composite:
    step = Budget.of(scene.surface.device).frames_per_pass
    parts = []
    for start in range(0, len(cameras), step):
        part = poses.frames(start, start + step) if poses is not None else None
        parts.append(
            _composite_pass(photo_scene, scene, cameras.frames(start, start + step), softness_px, part)
        )
    return Composite(rgb=torch.cat([p.rgb for p in parts]), thing=torch.cat([p.thing for p in parts]))


def _composite_pass(
    photo_scene: PhotoScene, scene: MeshScene, cameras: Cameras, softness_px: float, poses: Poses | None
) -> Composite:
    """As `shade.render` with antialiasing, but the alpha of the object is the share of its four sub-pixel
    ids."""
    budget = Budget.of(scene.surface.device)
    frames, height, width = len(cameras), cameras.height_px, cameras.width_px
    projection = project(scene.geometry, cameras, poses)
    triangles = triangles_in_view(scene.geometry, projection, cameras)
    seen = depth_test(spans_of(triangles, cameras, samples=2), frames, 2 * height, 2 * width, budget)
    ids = instances(scene.geometry, triangles, seen)
    black = torch.zeros(3, device=ids.device)
    planes, samples = surface_planes(scene, projection, triangles, cameras), four_samples(seen)
    rgb = shade(
        scene, cameras, photo_scene.lights, triangles, planes, samples, None, None, poses, black, budget
    )
    thing = ids == (-2 if photo_scene.thing is None else photo_scene.thing)
    alphas = F.avg_pool2d(torch.stack([ids >= 0, thing], 1).float(), 2)
    layers = softened(torch.cat([rgb, alphas], 1), softness_px)
    behind = photo_scene.backdrop.sample(photo_scene.backdrop.hits_m(cameras))
    rgb = torch.addcmul(layers[:, :3], behind, 1 - layers[:, 3:4])
    if photo_scene.contacts:
        points = _points_m(photo_scene, cameras, seen.inverse_depth)
        light = contact_shadow(photo_scene.contacts, points)
        rgb = rgb * F.interpolate(light, rgb.shape[2:], mode="bilinear")
    return Composite(rgb=rgb, thing=layers[:, 4])


def _points_m(photo_scene: PhotoScene, cameras: Cameras, inverse_depth: Tensor) -> Tensor:
    """[S, 3, h, w]: surface points at every SHADE_STRIDE_PX-th pixel. Depth has twice the resolution."""
    stride = SHADE_STRIDE_PX
    points = photo_scene.backdrop.hits_m(cameras, stride)
    height, width = points.shape[2:]
    # The sub-pixel right of and below the centre of each block; padded where there is none.
    inverse = inverse_depth[:, stride :: 2 * stride, stride :: 2 * stride]
    inverse = F.pad(inverse, (0, width - inverse.shape[2], 0, height - inverse.shape[1]))[:, None]
    rays, start = cameras.rays().float(), cameras.positions_m().float()[:, :, None, None]
    x = (torch.arange(width, device=points.device) + 0.5) * stride + 0.25
    y = (torch.arange(height, device=points.device)[:, None] + 0.5) * stride + 0.25
    ray = rays[:, :, :1, None] * x + rays[:, :, 1:2, None] * y + rays[:, :, 2:, None]
    return torch.where(inverse > 0, start + ray / inverse.clamp(min=1e-6), points)


def softened(layers: Tensor, sigma_px: float) -> Tensor:
    """[S, C, H, W] blurred by up to 0.7 px."""
    side = min(sigma_px, 0.7) ** 2 / 2
    for dim in (3, 2):
        last = layers.shape[dim] - 1
        before = torch.cat([layers.narrow(dim, 0, 1), layers.narrow(dim, 0, last)], dim)
        after = torch.cat([layers.narrow(dim, 1, last), layers.narrow(dim, last, 1)], dim)
        layers = torch.add(layers * (1 - 2 * side), before.add_(after), alpha=side)
    return layers


def full_extent_pixels(scene: MeshScene, cameras: Cameras, thing: int, poses: Poses | None = None) -> Tensor:
    """int64 [S]: pixels that the object would cover on an unbounded picture with nothing in front of it."""
    alone = scene.geometry.only([thing])
    moved = None
    if poses is not None and thing in poses.instances:
        slot = poses.instances.index(thing)
        moved = Poses(instances=(0,), transforms=poses.transforms[:, slot : slot + 1])
    projection = project(alone, cameras, moved)
    corner = torch.stack([projection.x_px.amin(1), projection.y_px.amin(1)], 1).floor()
    end = torch.stack([projection.x_px.amax(1), projection.y_px.amax(1)], 1).ceil()
    # The same image plane cropped around the object by whole pixels, so that pixel centres stay the same.
    width, height = (min(int(v), 4096) + 1 for v in (end - corner).amax(0).tolist())
    aimed = replace(cameras, centre_px=cameras.centre_px - corner, width_px=width, height_px=height)
    return unoccluded_pixels(alone, aimed, [0], poses=moved, margin=0.0)[:, 0]

"""Frames of a photo scene through a head camera, with the annotation of its object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lastseen_synth.camera import HeadCamera
from lastseen_synth.compositing import composite, full_extent_pixels
from lastseen_synth.meshes import MeshScene
from lastseen_synth.photo_scene import PhotoScene
from lastseen_synth.sensor import jpeg
from lastseen_synth.shutter import Shots
from lastseen_synth.visibility import visible_boxes

FRAMES_AT_ONCE = 10  # bounds memory


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledFrames:
    """T frames and the boxes of the queried object in them.

    | images   | uint8 [T, H, W, 3]                                                    |
    | boxes_px | float32 [T, 4] bounds of its visible pixels, nan if there are none    |
    | pixels   | int64 [T] number of visible pixels                                    |
    | share    | float32 [T] visible share of it; less than 1 if occluded or truncated |
    """

    images: Tensor
    boxes_px: Tensor
    pixels: Tensor
    share: Tensor


def render_frames(
    photo_scene: PhotoScene,
    camera: HeadCamera,
    pose_at: Callable[[Tensor], Tensor],
    times_s: np.ndarray,
    size: tuple[int, int],
    generator: torch.Generator,
) -> LabelledFrames:
    """Renders the scene at these times on the generator's device."""
    device = generator.device
    width, height = size
    scene = photo_scene.scene(device)
    softness = float(np.clip(0.45 * camera.lens.focal_px(width) / photo_scene.backdrop.px_per_rad, 0.35, 0.7))
    state, parts = None, []
    for start in range(0, len(times_s), FRAMES_AT_ONCE):
        moments = times_s[start : start + FRAMES_AT_ONCE]
        shots = camera.shots(pose_at, moments, width, height, device=device)
        poses = photo_scene.poses(shots.cameras.world_to_camera, shots.moments_s)
        composed = composite(photo_scene, scene, shots.cameras, softness_px=softness, poses=poses)
        thing = composed.thing > 0.5
        frames = camera.develop(shots, composed.rgb, thing.int() - 1, generator, state=state)
        state = frames.state
        boxes, pixels = visible_boxes(frames.instance, [0])
        share = torch.zeros(len(moments), device=device)
        found = pixels[:, 0].nonzero()[:, 0]
        if photo_scene.thing is not None and len(found):
            share[found] = _share(photo_scene, scene, shots, thing, found)
        parts.append((frames.images, boxes[:, 0], pixels[:, 0], share))
    images, boxes, pixels, share = (torch.cat(column) for column in zip(*parts))
    if camera.sensor.jpeg_quality is not None:
        images = jpeg(images, camera.sensor.jpeg_quality).to(device)
    return LabelledFrames(images=images, boxes_px=boxes, pixels=pixels, share=share)


def _share(photo_scene: PhotoScene, scene: MeshScene, shots: Shots, thing: Tensor, frames: Tensor) -> Tensor:
    """Visible share of the object in these frames, at the moment in the middle of each exposure."""
    assert photo_scene.thing is not None
    counts = torch.tensor(shots.counts)
    middle = (counts.cumsum(0) - counts + counts // 2).to(frames.device)[frames]
    cameras = replace(
        shots.cameras,
        world_to_camera=shots.cameras.world_to_camera[middle],
        focal_px=shots.cameras.focal_px[middle],
        centre_px=shots.cameras.centre_px[middle],
    )
    poses = photo_scene.poses(cameras.world_to_camera, shots.moments_s[middle.cpu()])
    whole = full_extent_pixels(scene, cameras, photo_scene.thing, poses)
    # Counted in the pinhole renderings, before lens distortion.
    remains = (thing[middle] & _within(shots, frames.device)).sum((1, 2))
    return remains / whole.clamp(min=1)


def _within(shots: Shots, device: torch.device) -> Tensor:
    """bool [h, w]: which pixels of the pinhole renderings are inside the final frame."""
    pinhole = shots.pinhole
    x = (torch.arange(pinhole.width_px, device=device) + 0.5 - pinhole.centre_px[0]) / pinhole.focal_px
    y = (torch.arange(pinhole.height_px, device=device) + 0.5 - pinhole.centre_px[1]) / pinhole.focal_px
    y, x = torch.meshgrid(y, x, indexing="ij")
    ends = shots.lens.project(torch.stack([x, y, torch.ones_like(x)], 2), shots.width_px, shots.height_px)
    size = ends.new_tensor([shots.width_px, shots.height_px])
    return ((ends >= 0) & (ends < size)).all(2)

"""A stage filmed by a head camera, and the truth about the thing in it: through the same lens and shutter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lastseen_synth.camera import HeadCamera
from lastseen_synth.meshes import MeshScene
from lastseen_synth.paste import draw, whole_pixels
from lastseen_synth.sensor import jpeg
from lastseen_synth.shutter import Shots
from lastseen_synth.stage import Stage
from lastseen_synth.truth import visible_boxes

FRAMES_AT_ONCE = 10  # whose rendered moments are in memory


@dataclass(frozen=True, kw_only=True, eq=False)
class Film:
    """T frames and where the thing asked for is in them.

    | images   | uint8 [T, H, W, 3]                                                    |
    | boxes_px | float32 [T, 4] around its visible pixels, nan if there are none       |
    | pixels   | int64 [T] of them                                                     |
    | share    | float32 [T] of the thing that they are, with what is hidden or cut off |
    """

    images: Tensor
    boxes_px: Tensor
    pixels: Tensor
    share: Tensor


def film(
    stage: Stage,
    camera: HeadCamera,
    pose_at: Callable[[Tensor], Tensor],
    times_s: np.ndarray,
    size: tuple[int, int],
    generator: torch.Generator,
) -> Film:
    """The stage as the camera sees it at these times; on the generator's device."""
    device = generator.device
    width, height = size
    scene = stage.scene(device)
    softness = float(np.clip(0.45 * camera.lens.focal_px(width) / stage.backdrop.px_per_rad, 0.35, 0.7))
    state, parts = None, []
    for start in range(0, len(times_s), FRAMES_AT_ONCE):
        moments = times_s[start : start + FRAMES_AT_ONCE]
        shots = camera.shots(pose_at, moments, width, height, device=device)
        poses = stage.poses(shots.cameras.world_to_camera, shots.moments_s)
        drawing = draw(stage, scene, shots.cameras, softness_px=softness, poses=poses)
        thing = drawing.thing > 0.5
        frames = camera.develop(shots, drawing.rgb, thing.int() - 1, generator, state=state)
        state = frames.state
        boxes, pixels = visible_boxes(frames.instance, [0])
        share = torch.zeros(len(moments), device=device)
        found = pixels[:, 0].nonzero()[:, 0]
        if stage.thing is not None and len(found):
            share[found] = _share(stage, scene, shots, thing, found)
        parts.append((frames.images, boxes[:, 0], pixels[:, 0], share))
    images, boxes, pixels, share = (torch.cat(column) for column in zip(*parts))
    if camera.sensor.jpeg_quality is not None:
        images = jpeg(images, camera.sensor.jpeg_quality).to(device)
    return Film(images=images, boxes_px=boxes, pixels=pixels, share=share)


def _share(stage: Stage, scene: MeshScene, shots: Shots, thing: Tensor, frames: Tensor) -> Tensor:
    """How much of all of the thing is visible in these frames, at the moment in the middle of each."""
    assert stage.thing is not None
    counts = torch.tensor(shots.counts)
    middle = (counts.cumsum(0) - counts + counts // 2).to(frames.device)[frames]
    cameras = replace(
        shots.cameras,
        world_to_camera=shots.cameras.world_to_camera[middle],
        focal_px=shots.cameras.focal_px[middle],
        centre_px=shots.cameras.centre_px[middle],
    )
    poses = stage.poses(cameras.world_to_camera, shots.moments_s[middle.cpu()])
    whole = whole_pixels(scene, cameras, stage.thing, poses)
    # Counted on the straight pictures that were rendered, where the lens's picture has no border yet.
    remains = (thing[middle] & _within(shots, frames.device)).sum((1, 2))
    return remains / whole.clamp(min=1)


def _within(shots: Shots, device: torch.device) -> Tensor:
    """bool [h, w]: which pixels of the rendered pictures end up in the frame."""
    pinhole = shots.pinhole
    x = (torch.arange(pinhole.width_px, device=device) + 0.5 - pinhole.centre_px[0]) / pinhole.focal_px
    y = (torch.arange(pinhole.height_px, device=device) + 0.5 - pinhole.centre_px[1]) / pinhole.focal_px
    y, x = torch.meshgrid(y, x, indexing="ij")
    ends = shots.lens.project(torch.stack([x, y, torch.ones_like(x)], 2), shots.width_px, shots.height_px)
    size = ends.new_tensor([shots.width_px, shots.height_px])
    return ((ends >= 0) & (ends < size)).all(2)

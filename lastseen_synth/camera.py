"""A head-mounted camera: lens, shutter and sensor.

shots = camera.shots(walk.at, times_s, 640, 360)
rendering = render(scene, shots.cameras, lights, ...)            # moving instances: at shots.moments_s
frames = camera.develop(shots, rendering.rgb, rendering.instance, generator, state=state)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lastseen_synth.lens import WORN_FOV_DEG, Lens
from lastseen_synth.sensor import Sensor, SensorState, develop
from lastseen_synth.shutter import Moments, Shots, Shutter, expose, shots


@dataclass(frozen=True, kw_only=True)
class Frames:
    """| images   | uint8 [B, H, W, 3] sRGB                                                            |
    | instance | int32 [B, H, W] ids through the same lens and shutter: `visible_boxes` takes them |
    | state    | for the frames that follow                                                        |
    """

    images: Tensor
    instance: Tensor
    state: SensorState


@dataclass(frozen=True, kw_only=True)
class HeadCamera:
    """The default is a pinhole with an instantaneous shutter and an ideal sensor."""

    lens: Lens = field(default_factory=Lens)
    shutter: Shutter = field(default_factory=Shutter)
    sensor: Sensor = field(default_factory=Sensor)

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        *,
        aspect: float = 16 / 9,
        fov_deg: tuple[float, float] = WORN_FOV_DEG,
        light: float = 0.2,
    ) -> HeadCamera:
        """`aspect`: width / height of its pictures. `light`: mean linear brightness of the scene."""
        return cls(
            lens=Lens.draw(rng, aspect=aspect, fov_deg=fov_deg),
            shutter=Shutter.draw(rng, light=light),
            sensor=Sensor.draw(rng),
        )

    def shots(
        self,
        pose_at: Callable[[Tensor], Tensor],
        times_s: Moments,
        width_px: int,
        height_px: int,
        *,
        device: torch.device | str = "cpu",
        near_m: float = 0.05,
    ) -> Shots:
        """What to render for frames at these times; `pose_at` is `Walk.at` or the like."""
        return shots(
            pose_at, times_s, self.lens, self.shutter, width_px, height_px, device=device, near_m=near_m
        )

    def develop(
        self,
        shots: Shots,
        rgb: Tensor,
        instance: Tensor,
        generator: torch.Generator,
        *,
        state: SensorState | None = None,
    ) -> Frames:
        """From rgb [S, 3, h, w] (linear) and ids [S, h, w] rendered with `shots.cameras`."""
        soften = self.sensor.softness_px > 0
        light, ids = expose(shots, rgb, instance, soften=soften)
        if self.lens.vignetting:
            light = light * self.lens.light(shots.width_px, shots.height_px).to(light)
        images, state = develop(
            light, shots.times_s, self.sensor, generator, exposure_s=self.shutter.exposure_s, state=state
        )
        return Frames(images=images, instance=ids, state=state)

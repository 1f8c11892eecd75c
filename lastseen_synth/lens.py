"""Lens models from rectilinear (pinhole) to fisheye, with vignetting and chromatic aberration.

    r = f * tan(b * angle) / b        b = 1: rectilinear; 0.5: stereographic; 0: equidistant fisheye

f is the focal length, `angle` that between ray and axis, r the image distance from the axis. Projection and
its inverse have a closed form. The renderer draws pinhole pictures only: `pinhole` gives the one to render.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lastseen.errors import SynthError
from lastseen_synth.geometry import Cameras

WORN_FOV_DEG = (58.0, 100.0)  # of cameras in glasses, and of wide ones on helmets
WIDEST_DEG = 160.0  # corner to corner; a wider pinhole rendering would be mostly corners


@dataclass(frozen=True, kw_only=True)
class Pinhole:
    """A pinhole picture that covers the field of view of the lens, at the lens's central resolution."""

    width_px: int
    height_px: int
    focal_px: float
    centre_px: tuple[float, float]

    def cameras(self, world_to_camera: Tensor, *, near_m: float = 0.05) -> Cameras:
        world_to_camera = world_to_camera.double()
        frames = len(world_to_camera)
        return Cameras(
            world_to_camera=world_to_camera,
            focal_px=world_to_camera.new_tensor([self.focal_px] * 2).expand(frames, 2),
            centre_px=world_to_camera.new_tensor(self.centre_px).expand(frames, 2),
            width_px=self.width_px,
            height_px=self.height_px,
            near_m=near_m,
        )


@dataclass(frozen=True, kw_only=True)
class Lens:
    """The default is a pinhole.

    | horizontal_fov_deg | of the final picture, through its middle                                   |
    | bend               | b above, 1 (rectilinear) down to 0 (fisheye)                               |
    | shift              | of the axis from the middle of the picture, in picture widths, right, down |
    | vignetting         | share of the light lost in the corners                                     |
    | colour_spread      | relative magnification of red over green, and of green over blue            |
    """

    horizontal_fov_deg: float = 80.0
    bend: float = 1.0
    shift: tuple[float, float] = (0.0, 0.0)
    vignetting: float = 0.0
    chromatic_aberration: float = 0.0

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        *,
        aspect: float = 16 / 9,
        fov_deg: tuple[float, float] = WORN_FOV_DEG,
    ) -> Lens:
        """A lens like those of wearable cameras; `aspect`: width / height of the picture. The field of view
        is limited so that corners stay within 60 degrees of the axis."""
        bend = rng.uniform(0.4, 0.95)
        widest_deg = _fov_deg(np.deg2rad(60.0), bend, math.hypot(1, 1 / aspect))
        return cls(
            horizontal_fov_deg=float(rng.uniform(fov_deg[0], min(fov_deg[1], widest_deg))),
            bend=float(bend),
            shift=(float(rng.normal(0, 0.006)), float(rng.normal(0, 0.006))),
            vignetting=float(rng.uniform(0.05, 0.45)),
            chromatic_aberration=float(max(0.0, rng.normal(0.0004, 0.0005))),
        )

    def focal_px(self, width_px: int) -> float:
        return width_px / 2 / _radius(np.deg2rad(self.horizontal_fov_deg / 2), self.bend)

    def axis_px(self, width_px: int, height_px: int) -> tuple[float, float]:
        """The principal point in the final picture."""
        return width_px * (0.5 + self.shift[0]), height_px / 2 + width_px * self.shift[1]

    def tangents(self, points_px: Tensor, width_px: int, height_px: int) -> Tensor:
        """Final picture -> rays: points [..., 2] in pixels to (x / z, y / z) in the camera's coordinates."""
        axis = points_px.new_tensor(self.axis_px(width_px, height_px))
        away = (points_px - axis) / self.focal_px(width_px)
        radius = away.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        return away * ((radius * self._b).atan() / self._b).tan() / radius

    def project(self, points_m: Tensor, width_px: int, height_px: int) -> Tensor:
        """Points [..., 3] in the camera's coordinates, in front of it -> pixels [..., 2] of the picture."""
        flat = points_m[..., :2].norm(dim=-1, keepdim=True)
        angle = torch.atan2(flat, points_m[..., 2:])
        scale = self.focal_px(width_px) * (angle * self._b).tan() / self._b
        axis = points_m.new_tensor(self.axis_px(width_px, height_px))
        return axis + points_m[..., :2] / flat.clamp(min=1e-12) * scale

    def pinhole(self, width_px: int, height_px: int) -> Pinhole:
        """The pinhole picture to render for a final picture of this size."""
        focal = self.focal_px(width_px)
        x, y = torch.linspace(0, width_px, 257).double(), torch.linspace(0, height_px, 257).double()
        sides = [torch.stack([x, torch.full_like(x, edge)], 1) for edge in (0, height_px)]
        sides += [torch.stack([torch.full_like(y, edge), y], 1) for edge in (0, width_px)]
        border = torch.cat(sides)
        tangents = self.tangents(border, width_px, height_px)
        widest_deg = 2 * math.degrees(math.atan(float(tangents.norm(dim=1).max())))
        if not 0 < widest_deg < WIDEST_DEG:
            raise SynthError(
                f"a {width_px}x{height_px} picture of {self.horizontal_fov_deg:.0f} degrees sees "
                f"{widest_deg:.0f} from corner to corner, more than {WIDEST_DEG:.0f}: narrow the lens"
            )
        reach = tangents * focal * (1 + 2 * self.chromatic_aberration)
        # Rounded outwards to whole pixels; an ideal pinhole keeps its size exactly.
        left, up = (math.ceil(-float(v) - 1e-6) for v in reach.amin(0))
        right, down = (math.ceil(float(v) - 1e-6) for v in reach.amax(0))
        if self.bend == 1 and self.shift == (0.0, 0.0) and not self.chromatic_aberration:
            return Pinhole(
                width_px=width_px,
                height_px=height_px,
                focal_px=focal,
                centre_px=(width_px / 2, height_px / 2),
            )
        return Pinhole(
            width_px=left + right, height_px=up + down, focal_px=focal, centre_px=(float(left), float(up))
        )

    def light(self, width_px: int, height_px: int) -> Tensor:
        """Vignetting mask float32 [H, W]: 1 at the centre."""
        y, x = torch.meshgrid(torch.arange(height_px) + 0.5, torch.arange(width_px) + 0.5, indexing="ij")
        axis_x, axis_y = self.axis_px(width_px, height_px)
        squared = ((x - axis_x) ** 2 + (y - axis_y) ** 2) / ((width_px**2 + height_px**2) / 4)
        return 1 - self.vignetting * squared.clamp(max=1.2)

    @property
    def _b(self) -> float:
        return max(self.bend, 1e-3)  # the limit at 0, to eight digits


def _radius(angle_rad: float, bend: float) -> float:
    b = max(bend, 1e-3)
    return math.tan(angle_rad * b) / b


def _fov_deg(corner_rad: float, bend: float, diagonal: float) -> float:
    """The horizontal field of view at which corners, `diagonal` half widths out, are at `corner_rad`."""
    b = max(bend, 1e-3)
    return 2 * math.degrees(math.atan(b * _radius(corner_rad, bend) / diagonal) / b)

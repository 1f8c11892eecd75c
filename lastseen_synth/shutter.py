"""Exposure time and rolling shutter: motion blur from few renderings.

The image motion of a pure camera rotation, which causes most blur, is a known homography. So each final pixel
samples several rays at different times of its exposure, rotated into the nearest rendered moment. More
moments are rendered where the wearer translates past near objects or turns too fast for one rendering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lastseen_synth.geometry import Cameras
from lastseen_synth.lens import Lens, Pinhole

Moments = np.ndarray | Tensor | Sequence[float]
MOST_MOMENTS = 8
NEAR_M = 1.0  # typical distance of near objects
PARALLAX_PX = 8.0  # maximum shift at NEAR_M between two rendered moments
TURN_PX = 48.0  # maximum shift by rotation; missing borders are replicated


@dataclass(frozen=True, kw_only=True)
class Shutter:
    """The default is instantaneous. A frame's time is the middle of its middle row's exposure.

    | exposure_s | exposure time of each row                |
    | readout_s  | delay between the first and the last row |
    """

    exposure_s: float = 0.0
    readout_s: float = 0.0

    @classmethod
    def draw(cls, rng: np.random.Generator, *, light: float = 0.2) -> Shutter:
        """`light`: mean linear brightness of the scene; dark scenes are exposed longer."""
        exposure_s = 0.008 * (0.2 / max(light, 1e-3)) * np.exp(0.35 * rng.standard_normal())
        return cls(
            exposure_s=float(np.clip(exposure_s, 0.002, 0.025)), readout_s=float(rng.uniform(0.008, 0.025))
        )

    @property
    def span_s(self) -> float:
        """From the first row's opening to the last row's closing."""
        return self.exposure_s + self.readout_s


def needed_moments(speed_m_s: Tensor, turn_rad_s: Tensor, shutter: Shutter, focal_px: float) -> Tensor:
    """Number of moments [B] to render for frames at these speeds; mostly 1."""
    parallax = speed_m_s * shutter.span_s * focal_px / NEAR_M / PARALLAX_PX
    turns = turn_rad_s * shutter.span_s * focal_px / TURN_PX
    return torch.maximum(parallax, turns).ceil().clamp(1, MOST_MOMENTS).long()


@dataclass(frozen=True, kw_only=True)
class Shots:
    """Cameras to render for B frames, and the camera's rotation during each exposure.

    | cameras   | of the S moments to render, frame after frame                                          |
    | moments_s | [S] float64: their times, for moving instances                                         |
    | frame     | [S] int64: which frame each belongs to                                                 |
    | counts    | moments of each of the B frames                                                        |
    | times_s   | [B] float64: of the frames                                                             |
    | middle    | [B, 3, 3]: world-to-camera rotations at those times                                    |
    | turn_rad  | [B, 2, 3]: rotation vectors relative to that, half a span earlier and later            |
    """

    lens: Lens
    shutter: Shutter
    pinhole: Pinhole
    width_px: int
    height_px: int
    times_s: Tensor
    counts: tuple[int, ...]
    frame: Tensor
    moments_s: Tensor
    cameras: Cameras
    middle: Tensor
    turn_rad: Tensor

    def __len__(self) -> int:
        return len(self.counts)


def shots(
    pose_at: Callable[[Tensor], Tensor],
    times_s: Moments,
    lens: Lens,
    shutter: Shutter,
    width_px: int,
    height_px: int,
    *,
    device: torch.device | str = "cpu",
    near_m: float = 0.05,
) -> Shots:
    """`pose_at(times_s [N])` -> world-to-camera [N, 4, 4], at any times: `Walk.at`."""
    times = torch.as_tensor(times_s, dtype=torch.float64).cpu()
    half_s = shutter.span_s / 2
    steps = half_s if half_s else 1e-3  # finite difference for an instantaneous shutter
    around = times[:, None] + torch.tensor([-steps, 0.0, steps], dtype=torch.float64)
    poses = pose_at(around.flatten()).view(-1, 3, 4, 4)
    rotation = poses[..., :3, :3]
    turn = rotation_vectors(rotation[:, ::2] @ rotation[:, 1:2].mT)
    pinhole = lens.pinhole(width_px, height_px)
    eyes = -(rotation.mT @ poses[..., :3, 3:])[..., 0]
    speed = (eyes[:, 2] - eyes[:, 0]).norm(dim=1) / (2 * steps)
    turning = (turn[:, 1] - turn[:, 0]).norm(dim=1) / (2 * steps)
    counts = needed_moments(speed, turning, shutter, pinhole.focal_px)
    frame = torch.repeat_interleave(counts)
    number = torch.arange(len(frame)) - (counts.cumsum(0) - counts)[frame]
    share = (number + 0.5) / counts[frame]
    moments = times[frame] + (share - 0.5) * shutter.span_s
    cameras = pinhole.cameras(pose_at(moments).to(device), near_m=near_m)
    return Shots(
        lens=lens,
        shutter=shutter,
        pinhole=pinhole,
        width_px=width_px,
        height_px=height_px,
        times_s=times,
        counts=tuple(counts.tolist()),
        frame=frame,
        moments_s=moments,
        cameras=cameras,
        middle=rotation[:, 1].to(device),
        turn_rad=(turn * (half_s > 0)).to(device),
    )


def expose(shots: Shots, rgb: Tensor, instance: Tensor, *, soften: bool = True) -> tuple[Tensor, Tensor]:
    """Resamples renderings rgb [S, 3, h, w] and ids [S, h, w] into frames.

    Returns linear light float32 [B, 3, H, W], and ids [B, H, W] at pixel centres in the middle of each row's
    exposure. `soften`: rays are distributed over the pixel, else all go through its centre.
    """
    frames, height, width = len(shots), shots.height_px, shots.width_px
    light = rgb.new_empty(frames, 3, height, width)
    ids = instance.new_empty(frames, height, width)
    counts = torch.tensor(shots.counts)
    first = counts.cumsum(0) - counts
    rays = _rays_per_pixel(shots, soften)
    for count, many in sorted({*zip(shots.counts, rays.tolist())}):
        chosen = ((counts == count) & (rays == many)).nonzero()[:, 0]
        moments = (first[chosen, None] + torch.arange(count)).to(rgb.device)
        chosen = chosen.to(rgb.device)
        turns = _RayRotations(shots, chosen, moments)
        pictures = _stacked(rgb[moments])
        labels = _stacked(instance[moments][:, :, None])
        gathered = torch.zeros(len(chosen), 3, height, width, device=rgb.device)
        for number in range(many):
            across, down = _spread(number) if soften else (0.0, 0.0)
            x, y = turns.sample_points(across, down, (number + 0.5) / many)
            gathered += _sampled(pictures, x, y, shots)
        light[chosen] = gathered / many
        x, y = turns.sample_points(0.0, 0.0, 0.5)
        place = (y.long() * shots.pinhole.width_px + x.long()).flatten(1)
        ids[chosen] = labels.flatten(1).gather(1, place).view(-1, height, width)
    return light, ids


def _rays_per_pixel(shots: Shots, soften: bool) -> Tensor:
    """[B]: more for longer motion blur."""
    share = shots.shutter.exposure_s / max(shots.shutter.span_s, 1e-9)
    turn = (shots.turn_rad[:, 1] - shots.turn_rad[:, 0]).norm(dim=1).cpu()
    blur_px = turn * share * shots.pinhole.focal_px
    fewest = 4 if soften else 1
    rays = torch.full_like(blur_px, fewest, dtype=torch.int64)
    for longer_px, many in ((1.0, 4), (3.0, 8), (10.0, 16), (28.0, 32)):
        rays = rays.where(blur_px < longer_px, max(many, fewest))
    return rays


def _spread(number: int) -> tuple[float, float]:
    """Well-spread points in a pixel, in pixels from its centre (the R2 sequence)."""
    return (0.5 + number * 0.7548776662) % 1 - 0.5, (0.5 + number * 0.5698402910) % 1 - 0.5


def _stacked(pictures: Tensor) -> Tensor:
    """The moments [b, K, C, h, w] of every frame one below the other: [b, C, K * h, w]."""
    return pictures.transpose(1, 2).flatten(2, 3)


class _RayRotations:
    """Maps pixels of some frames at any time of their exposure to coordinates in their rendered moments."""

    def __init__(self, shots: Shots, chosen: Tensor, moments: Tensor) -> None:
        self.shots, self.count = shots, moments.shape[1]
        middle = shots.middle[chosen]
        rendered = shots.cameras.world_to_camera[moments][..., :3, :3]
        self.against_middle = (rendered @ middle[:, None].mT).float()
        earlier, later = shots.turn_rad[chosen].float().unbind(1)
        self.speed, self.change = (later - earlier) / 2, (later + earlier) / 2
        self.rows = torch.arange(shots.height_px, device=chosen.device)
        columns = torch.arange(shots.width_px, device=chosen.device)
        self.pixels = torch.stack(torch.meshgrid(columns, self.rows, indexing="xy"), 2).float() + 0.5

    def sample_points(self, across_px: float, down_px: float, share: float) -> tuple[Tensor, Tensor]:
        """x, y [b, H, W] in the stacked moments of rays at this offset from all pixel centres, after `share`
        of the exposure."""
        shots, shutter, pinhole = self.shots, self.shots.shutter, self.shots.pinhole
        late_s = ((self.rows + 0.5) / shots.height_px - 0.5) * shutter.readout_s
        when = (late_s + (share - 0.5) * shutter.exposure_s) / max(shutter.span_s / 2, 1e-9)  # -1 to 1
        moment = ((when + 1) / 2 * self.count).long().clamp(0, self.count - 1)
        turned = rotations(self.speed[:, None] * when[:, None] + self.change[:, None] * when[:, None] ** 2)
        q = (self.against_middle[:, moment] @ turned.mT)[..., None]  # [b, H, 3, 3, 1]
        offset = self.pixels.new_tensor([across_px, down_px])
        tangents = shots.lens.tangents(self.pixels + offset, shots.width_px, shots.height_px)
        x, y = tangents.unbind(2)
        ray = [
            torch.addcmul(torch.addcmul(q[:, :, i, 2], q[:, :, i, 0], x), q[:, :, i, 1], y) for i in range(3)
        ]
        scale = pinhole.focal_px / ray[2].clamp(min=0.02)
        (centre_x, centre_y), height = pinhole.centre_px, pinhole.height_px
        x_px = (ray[0] * scale + centre_x).clamp(0.5, pinhole.width_px - 0.5)
        y_px = (ray[1] * scale + centre_y).clamp(0.5, height - 0.5)
        return x_px, y_px + (moment * height)[:, None]


def _sampled(pictures: Tensor, x_px: Tensor, y_px: Tensor, shots: Shots) -> Tensor:
    """[b, 3, H, W] at places [b, H, W] in the stacked moments."""
    height, width = pictures.shape[2:]
    grid = torch.stack([x_px * (2 / width) - 1, y_px * (2 / height) - 1], 3)
    spread = shots.lens.chromatic_aberration
    if not spread:
        return F.grid_sample(pictures, grid, padding_mode="border", align_corners=False)
    (centre_x, centre_y), one = shots.pinhole.centre_px, shots.pinhole.height_px
    moment = (y_px / one).floor() * one
    colours = []
    for channel, larger in enumerate((spread, 0.0, -spread)):
        x = (x_px - centre_x) / (1 + larger) + centre_x
        y = (y_px - moment - centre_y) / (1 + larger) + centre_y
        y = y.clamp(0.5, one - 0.5) + moment
        grid = torch.stack([x * (2 / width) - 1, y * (2 / height) - 1], 3)
        part = pictures[:, channel : channel + 1]
        colours.append(F.grid_sample(part, grid, padding_mode="border", align_corners=False))
    return torch.cat(colours, 1)


def rotation_vectors(rotations: Tensor) -> Tensor:
    """Axis times angle [..., 3] of rotations [..., 3, 3] by less than a right angle."""
    r = rotations
    axis = torch.stack(
        [r[..., 2, 1] - r[..., 1, 2], r[..., 0, 2] - r[..., 2, 0], r[..., 1, 0] - r[..., 0, 1]], -1
    )
    sine = (axis.norm(dim=-1, keepdim=True) / 2).clamp(1e-12, 1)
    return axis / 2 * sine.asin() / sine


def rotations(vectors_rad: Tensor) -> Tensor:
    """[..., 3] -> [..., 3, 3], by Rodrigues."""
    angle = vectors_rad.norm(dim=-1)[..., None, None].clamp(min=1e-9)
    x, y, z = vectors_rad.unbind(-1)
    zero = torch.zeros_like(x)
    rows = [torch.stack(row, -1) for row in ([zero, -z, y], [z, zero, -x], [-y, x, zero])]
    cross = torch.stack(rows, -2)
    whole = torch.eye(3, dtype=vectors_rad.dtype, device=vectors_rad.device)
    half = (angle / 2).sin()
    return whole + cross * (angle.sin() / angle) + cross @ cross * (2 * half**2 / angle**2)

"""Photographs as a place to look around in: a panorama on a dome, or a dome papered with flat photographs.

Yaw goes from the x axis to the left; the middle column of a panorama looks along x. The dome stands on flat
ground, so that what lies on the ground stays where it is when the viewer takes a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from lastseen.synth.geometry import Cameras
from lastseen.synth.shadow import Lights
from lastseen.synth.texture import srgb_to_linear

COLLAGE_WIDTH_PX = 2048
SCENE_ALBEDO = 0.24  # what the world reflects on average: its mean brightness then tells the light
LUMINANCE = (0.2126, 0.7152, 0.0722)


@dataclass(frozen=True, kw_only=True)
class Backdrop:
    """
    | sphere   | float32 [3, H, 2 H + 2] linear, equirectangular, one wrapped column on each side |
    | eye_m    | how high above the ground it was taken                                           |
    | radius_m | of the dome                                                                      |
    """

    sphere: Tensor
    eye_m: float
    radius_m: float

    @classmethod
    def of(
        cls, srgb: np.ndarray, *, eye_m: float, radius_m: float, focal_px: float, device: torch.device | str
    ) -> Backdrop:
        """From an equirectangular picture, reduced to what cameras of this focal length can show."""
        height = min(srgb.shape[0], round(np.pi * focal_px * 1.25))
        if height < srgb.shape[0]:
            srgb = np.asarray(Image.fromarray(srgb).resize((2 * height, height), Image.Resampling.BOX))
        table = srgb_to_linear(torch.arange(256, device=device) / 255)
        sphere = table[torch.from_numpy(srgb.copy()).to(device).long()].permute(2, 0, 1)
        wrapped = torch.cat([sphere[..., -1:], sphere, sphere[..., :1]], 2)
        return cls(sphere=wrapped.contiguous(), eye_m=eye_m, radius_m=radius_m)

    @property
    def px_per_rad(self) -> float:
        return self.sphere.shape[1] / np.pi

    def hits_m(self, cameras: Cameras, stride: int = 1) -> Tensor:
        """float32 [B, 3, H, W]: where the rays through pixel centres (of every block of `stride` pixels) meet
        the ground or the dome."""
        device = self.sphere.device
        rays, start = cameras.rays().float(), cameras.positions_m().float()
        x = torch.arange(stride / 2, cameras.width_px, stride, device=device)
        y = torch.arange(stride / 2, cameras.height_px, stride, device=device)[:, None]
        ray = rays[:, :, :1, None] * x + rays[:, :, 1:2, None] * y + rays[:, :, 2:, None]
        ray = ray * ray.square().sum(1, keepdim=True).rsqrt()
        away = start - start.new_tensor([0, 0, self.eye_m])
        along = (ray * away[:, :, None, None]).sum(1)
        spare = self.radius_m**2 - away.square().sum(1)[:, None, None]
        to_dome = (along.square() + spare).sqrt() - along
        down = ray[:, 2].clamp(max=-1e-6)
        distance = torch.minimum(to_dome, start[:, 2, None, None] / -down)
        return ray * distance[:, None] + start[:, :, None, None]

    def look(self, hits_m: Tensor) -> Tensor:
        """Linear RGB [B, 3, H, W] of the points that `hits_m` found."""
        x, y, z = hits_m.unbind(1)
        z = z - self.eye_m
        turn = torch.atan2(y, x) / torch.pi
        rise = torch.atan2(z, torch.hypot(x, y)) / torch.pi
        width = self.sphere.shape[2]
        grid = torch.stack([-turn * ((width - 2) / width), -2 * rise], 3)
        pictures = self.sphere.expand(len(hits_m), -1, -1, -1)
        return F.grid_sample(pictures, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def lights(self, rng: np.random.Generator) -> Lights:
        """A guess at what lights this place, for things put into it."""
        sphere = self.sphere[..., 1:-1]
        rows = sphere.shape[1]
        rise = (0.5 - (torch.arange(rows, device=sphere.device) + 0.5) / rows) * torch.pi
        weight = rise.cos()[:, None].expand(sphere.shape[1:])
        weight = weight / weight.sum()
        upper, lower = weight * (rise > 0)[:, None] * 2, weight * (rise <= 0)[:, None] * 2
        sky, ground = ((sphere * part).sum((1, 2)).double().cpu().numpy() for part in (upper, lower))
        level = np.clip(float((sky + ground).mean()) / 2 / SCENE_ALBEDO, 0.12, 1.9) * rng.uniform(0.8, 1.25)
        tint = _muted((sky + ground) / 2, float(rng.uniform(0.2, 0.6)))
        direct = rng.uniform(0.25, 0.6)
        source, colour = self._brightest(weight)
        if rng.random() < 0.3:  # some of what lights a place is not to be seen in its picture
            source = np.array([*rng.normal(0, 0.6, 2), 1.0])
        source[2] = abs(source[2]) + 0.25
        source += rng.normal(0, 0.15, 3)
        ambient = level * (1 - 0.7 * direct)
        return Lights(
            lamps_m=torch.zeros(0, 3),
            lamp_colours=torch.zeros(0, 3),
            sky_colour=_colour(1.2 * ambient * (tint + _muted(sky, 0.4)) / 2),
            ground_colour=_colour(0.75 * ambient * (tint + _muted(ground, 0.5)) / 2),
            sun_direction=torch.from_numpy(-source / np.linalg.norm(source)).float(),
            sun_colour=_colour(1.5 * level * direct * (tint + _muted(colour, 0.5)) / 2),
        ).to(self.sphere.device)

    def _brightest(self, weight: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Direction and colour of the brightest hundredth of the view."""
        sphere = self.sphere[..., 1:-1]
        rows, columns = sphere.shape[1:]
        bright = (sphere * sphere.new_tensor(LUMINANCE)[:, None, None]).sum(0)
        share = weight * (bright >= torch.quantile(bright[::4, ::4].flatten(), 0.99))
        rise = (0.5 - (torch.arange(rows, device=sphere.device) + 0.5) / rows)[:, None] * torch.pi
        yaw = (0.5 - (torch.arange(columns, device=sphere.device) + 0.5) / columns) * 2 * torch.pi
        ahead = torch.stack([rise.cos() * yaw.cos(), rise.cos() * yaw.sin(), rise.sin().expand(rows, columns)])
        total = share.sum().clamp(min=1e-9)
        direction, colour = ((v * share).sum((1, 2)) / total for v in (ahead, sphere))
        return direction.double().cpu().numpy(), colour.double().cpu().numpy()


def _muted(colour: np.ndarray, saturation: float) -> np.ndarray:
    """The colour at brightness 1, with only part of its saturation."""
    bright = max(float(colour @ np.array(LUMINANCE)), 1e-4)
    return 1 + saturation * (np.clip(colour / bright, 0.3, 2.5) - 1)


def _colour(linear: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(linear, np.float32).clip(0.0, 4.0))


def collage(walls: Sequence[np.ndarray], tiles: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """An equirectangular picture uint8 [H, 2 H, 3] papered with photographs: `walls` side by side all around,
    mirrored above and below, and `tiles` hung over them, in rows or anyhow."""
    width, height = COLLAGE_WIDTH_PX, COLLAGE_WIDTH_PX // 2
    canvas = _papered(walls, rng, width, height)
    in_rows = rng.random() < 0.4
    if in_rows:
        places = _rows(len(tiles), rng)
    else:
        places = [
            (float(rng.uniform(-np.pi, np.pi)), float(rng.normal(-0.12, 0.35)), float(rng.uniform(0.35, 0.95)))
            for _ in tiles
        ]
    feather = float(rng.choice([0.0, 0.02, 0.08]))
    for tile, (yaw, pitch, across) in zip(tiles, places):
        roll = 0.0 if in_rows else float(rng.normal(0, 0.06))
        gain = rng.uniform(0.7, 1.15) * rng.uniform(0.93, 1.07, 3)
        _hang(canvas, tile, yaw, float(np.clip(pitch, -0.9, 0.7)), across, roll, gain, feather)
    return canvas.clip(0, 255).astype(np.uint8)


def _rows(count: int, rng: np.random.Generator) -> list[tuple[float, float, float]]:
    """Side by side in two or three rows around the viewer: yaw, pitch, width (rad)."""
    rows = int(rng.integers(2, 4))
    across = float(rng.uniform(0.5, 0.85))
    gap = across * float(rng.uniform(1.0, 1.15))
    pitches = (np.arange(rows) - rows / 2 + 0.5) * -gap - 0.1
    start = rng.uniform(-np.pi, np.pi)
    return [(float(start + (i // rows) * gap), float(pitches[i % rows]), across) for i in range(count)]


def _papered(walls: Sequence[np.ndarray], rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    canvas = np.zeros((height, width, 3), np.float32)
    cuts = (np.arange(len(walls) + 1) + np.pad(rng.uniform(-0.15, 0.15, len(walls) - 1), 1)) / len(walls) * width
    edges = cuts.round().astype(int)
    for wall, left, right in zip(walls, edges, edges[1:]):
        span = right - left
        # Its own aspect at the horizon, but never so flat that mirrors stand in front of mirrors.
        rows = max(round(span * wall.shape[0] / wall.shape[1]), round(0.3 * height))
        paper = np.asarray(Image.fromarray(wall).resize((span, rows), Image.Resampling.BICUBIC), np.float32)
        row = np.arange(height) - (height - rows) // 2
        folded = np.abs((row + rows) % (2 * rows) - rows)
        paper = paper[np.minimum(folded, rows - 1)]
        canvas[:, left:right] = paper * rng.uniform(0.75, 1.1)
    return np.roll(canvas, int(rng.integers(width)), 1)


def _hang(
    canvas: np.ndarray,
    picture: np.ndarray,
    yaw: float,
    pitch: float,
    across_rad: float,
    roll: float,
    gain: np.ndarray,
    feather: float,
) -> None:
    """Paint a flat picture, seen `across_rad` wide along its longer side, over part of the canvas."""
    height, width = canvas.shape[:2]
    half = np.tan(across_rad / 2)
    longer = max(picture.shape[:2])
    reduced = min(1.0, 1.2 * across_rad * width / (2 * np.pi) / longer)
    if reduced < 1:
        picture = np.asarray(
            Image.fromarray(picture).resize(
                (max(2, round(picture.shape[1] * reduced)), max(2, round(picture.shape[0] * reduced))),
                Image.Resampling.BOX,
            )
        )
    half_x, half_y = half * picture.shape[1] / max(picture.shape[:2]), half * picture.shape[0] / max(picture.shape[:2])
    reach = float(np.arctan(np.hypot(half_x, half_y)))
    low, high = pitch - reach, min(pitch + reach, np.pi / 2)
    first = max(0, int((0.5 - high / np.pi) * height))
    last = min(height, int((0.5 - max(low, -np.pi / 2) / np.pi) * height) + 1)
    steepest = min(max(abs(low), abs(high)), 1.5)
    span = int(min(np.pi, reach / max(np.cos(steepest), 0.1)) / (2 * np.pi) * width) + 1
    middle = int((0.5 - yaw / (2 * np.pi)) * width)
    columns = np.arange(middle - span, middle + span)[: width]
    rise = (0.5 - (np.arange(first, last) + 0.5) / height)[:, None] * np.pi
    turn = (0.5 - (columns + 0.5) / width) * 2 * np.pi - yaw
    x, y = -np.cos(rise) * np.sin(turn), np.cos(rise) * np.cos(turn)  # right and ahead, before looking up
    z = np.sin(rise) + 0 * turn
    ahead = y * np.cos(pitch) + z * np.sin(pitch)
    up = z * np.cos(pitch) - y * np.sin(pitch)
    ahead = np.where(ahead > 0.05, ahead, np.nan)
    right, up = x / ahead, up / ahead
    u = (right * np.cos(roll) + up * np.sin(roll)) / half_x
    v = (right * np.sin(roll) - up * np.cos(roll)) / half_y
    # One canvas pixel, or the feather, from nothing to everything at the edge.
    soft = max(2 * np.pi / width / min(half_x, half_y), 2 * feather)
    alpha = np.nan_to_num(np.clip((1 - np.maximum(np.abs(u), np.abs(v))) / soft, 0, 1))
    grid = torch.from_numpy(np.stack([np.nan_to_num(u), np.nan_to_num(v)], -1).astype(np.float32))[None]
    source = torch.from_numpy((picture * gain).astype(np.float32)).permute(2, 0, 1)[None]
    colour = F.grid_sample(source, grid, padding_mode="border", align_corners=False)[0].permute(1, 2, 0).numpy()
    window = np.ix_(np.arange(first, last), columns % width)
    canvas[window] += alpha[..., None] * (colour - canvas[window])

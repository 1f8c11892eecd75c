"""Photographs as an environment: a panorama, or a collage of flat photographs, on a dome over flat ground.

Yaw goes from the x axis to the left; the middle column of a panorama is the direction of x. Pixels below the
horizon are projected onto the ground plane, so that they show parallax when the viewer moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lastseen_synth.geometry import Cameras
from lastseen_synth.shadow import Lights
from lastseen_synth.texture import srgb_to_linear

WIDEST_COLLAGE_PX = 2048
SCENE_ALBEDO = 0.24  # assumed mean albedo, to estimate irradiance from mean brightness
LUMINANCE = (0.2126, 0.7152, 0.0722)


def sphere_height(focal_px: float) -> int:
    """Rows of an equirectangular picture that match the resolution of cameras of this focal length."""
    return round(np.pi * focal_px * 1.25)


@dataclass(frozen=True, kw_only=True)
class Backdrop:
    """
    | sphere   | float32 [3, H, 2 H + 2] linear, equirectangular, one wrapped column on each side |
    | eye_m    | height of the camera above the ground                                            |
    | radius_m | of the dome                                                                      |
    """

    sphere: Tensor
    eye_m: float
    radius_m: float

    @classmethod
    def of(cls, srgb: Tensor, *, eye_m: float, radius_m: float, focal_px: float) -> Backdrop:
        """From an equirectangular picture uint8 [H, 2 H, 3], reduced to what cameras of this focal length can
        show; on the picture's device."""
        table = srgb_to_linear(torch.arange(256, device=srgb.device) / 255)
        sphere = table[srgb.long()].permute(2, 0, 1)
        height = sphere_height(focal_px)
        if height < sphere.shape[1]:
            sphere = F.interpolate(sphere[None], (height, 2 * height), mode="area")[0]
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

    def sample(self, hits_m: Tensor) -> Tensor:
        """Linear RGB [B, 3, H, W] at the points that `hits_m` returned."""
        x, y, z = hits_m.unbind(1)
        z = z - self.eye_m
        turn = torch.atan2(y, x) / torch.pi
        rise = torch.atan2(z, torch.hypot(x, y)) / torch.pi
        width = self.sphere.shape[2]
        grid = torch.stack([-turn * ((width - 2) / width), -2 * rise], 3)
        pictures = self.sphere.expand(len(hits_m), -1, -1, -1)
        return F.grid_sample(pictures, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def lights(self, rng: np.random.Generator) -> Lights:
        """Lights estimated from the panorama, for objects placed in front of it."""
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
        # Some light sources are not visible in the picture.
        if rng.random() < 0.3 or np.linalg.norm(source) < 0.15:
            source = np.array([*rng.normal(0, 0.6, 2), 1.0])
        source += rng.normal(0, 0.15, 3)
        source[2] = abs(source[2]) + 0.25  # light rarely comes from below
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
        """Mean direction and colour of the brightest 0.5 % of the pixels."""
        sphere = self.sphere[..., 1:-1]
        rows, columns = sphere.shape[1:]
        bright = (sphere * sphere.new_tensor(LUMINANCE)[:, None, None]).sum(0)
        share = weight * (bright >= torch.quantile(bright[::4, ::4].flatten(), 0.995))
        rise = (0.5 - (torch.arange(rows, device=sphere.device) + 0.5) / rows)[:, None] * torch.pi
        yaw = (0.5 - (torch.arange(columns, device=sphere.device) + 0.5) / columns) * 2 * torch.pi
        level, up = rise.cos(), rise.sin().expand(rows, columns)
        ahead = torch.stack([level * yaw.cos(), level * yaw.sin(), up])
        total = share.sum().clamp(min=1e-9)
        direction, colour = ((v * share).sum((1, 2)) / total for v in (ahead, sphere))
        return direction.double().cpu().numpy(), colour.double().cpu().numpy()


def _muted(colour: np.ndarray, saturation: float) -> np.ndarray:
    """The colour at brightness 1, with only part of its saturation."""
    bright = max(float(colour @ np.array(LUMINANCE)), 1e-4)
    return 1 + saturation * (np.clip(colour / bright, 0.3, 2.5) - 1)


def _colour(linear: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(linear, np.float32).clip(0.0, 4.0))


def collage(
    pictures: Sequence[np.ndarray],
    walls: int,
    rng: np.random.Generator,
    *,
    focal_px: float,
    device: torch.device | str = "cpu",
) -> Tensor:
    """An equirectangular collage uint8 [H, 2 H, 3]: the first `walls` photographs side by side all around,
    the next two at the poles, the others pasted over them, in rows or at random."""
    height = min(sphere_height(focal_px), WIDEST_COLLAGE_PX // 2)
    planes = [torch.from_numpy(p.copy()).to(device).permute(2, 0, 1).float() for p in pictures]
    canvas = _papered(planes[:walls], rng, height)
    for pitch, picture in zip((-np.pi / 2, np.pi / 2), planes[walls:]):
        roll, across = rng.uniform([0, 2.2], [2 * np.pi, 2.5]).tolist()
        _hang(canvas, picture, _Frame(pitch=pitch, roll=roll, across=across))
    tiles = planes[walls + 2 :]
    in_rows, feather = rng.random() < 0.4, float(rng.choice([0.0, 0.02, 0.08]))
    frames = _rows(len(tiles), rng) if in_rows else [_Frame.draw(rng) for _ in tiles]
    for tile, frame in zip(tiles, frames):
        gain = tile.new_tensor(rng.uniform(0.7, 1.15) * rng.uniform(0.93, 1.07, 3))
        _hang(canvas, tile * gain[:, None, None], replace(frame, feather=feather))
    return canvas.clamp(0, 255).to(torch.uint8).permute(1, 2, 0)


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Pose of a pasted picture and the angle (rad) its longer side subtends; `feather`: width of its soft
    edge, as a share of the picture."""

    across: float
    yaw: float = 0.0
    pitch: float = 0.0
    roll: float = 0.0
    feather: float = 0.0

    @classmethod
    def draw(cls, rng: np.random.Generator) -> _Frame:
        return cls(
            yaw=float(rng.uniform(-np.pi, np.pi)),
            pitch=float(np.clip(rng.normal(-0.12, 0.35), -0.9, 0.7)),
            roll=float(rng.normal(0, 0.06)),
            across=float(rng.uniform(0.35, 0.95)),
        )


def _rows(count: int, rng: np.random.Generator) -> list[_Frame]:
    """Side by side in two or three rows around the viewer."""
    rows, across = int(rng.integers(2, 4)), float(rng.uniform(0.5, 0.85))
    gap = across * float(rng.uniform(1.0, 1.15))
    pitches = (np.arange(rows) - rows / 2 + 0.5) * -gap - 0.1
    start = float(rng.uniform(-np.pi, np.pi))
    return [
        _Frame(yaw=start + (i // rows) * gap, pitch=float(pitches[i % rows]), across=across)
        for i in range(count)
    ]


def _papered(walls: Sequence[Tensor], rng: np.random.Generator, height: int) -> Tensor:
    """[3, H, 2 H]: walls [3, h, w] side by side, each mirrored above and below."""
    shifts = np.pad(rng.uniform(-0.15, 0.15, len(walls) - 1), 1)
    edges = ((np.arange(len(walls) + 1) + shifts) / len(walls) * 2 * height).round().astype(int).tolist()
    papers = []
    for wall, left, right in zip(walls, edges, edges[1:]):
        # Its own aspect at the horizon, but tall enough to need at most one reflection above and below.
        rows = max(round((right - left) * wall.shape[1] / wall.shape[2]), round(0.3 * height))
        paper = F.interpolate(wall[None], (rows, right - left), mode="bilinear", antialias=True)[0]
        row = torch.arange(height, device=wall.device) - (height - rows) // 2
        folded = ((row + rows) % (2 * rows) - rows).abs().clamp(max=rows - 1)
        papers.append(paper[:, folded] * float(rng.uniform(0.75, 1.1)))
    return torch.cat(papers, 2).roll(int(rng.integers(2 * height)), 2)


def _hang(canvas: Tensor, picture: Tensor, frame: _Frame) -> None:
    """Paste a flat picture [3, h, w] onto the canvas in perspective, as seen from the centre of the dome."""
    height, width, device = *canvas.shape[1:], canvas.device
    longer = max(picture.shape[1:])
    half_x, half_y = (
        np.tan(frame.across / 2) * side / longer for side in (picture.shape[2], picture.shape[1])
    )
    reduced = 1.2 * 2 * max(half_x, half_y) * width / (2 * np.pi) / longer
    if reduced < 1:
        size = [max(2, round(side * reduced)) for side in picture.shape[1:]]
        picture = F.interpolate(picture[None], size, mode="area")[0]
    reach = float(np.arctan(np.hypot(half_x, half_y)))
    low, high = frame.pitch - reach, frame.pitch + reach
    first, last = (int((0.5 - angle / np.pi) * height) for angle in (high, low))
    rows = torch.arange(max(0, first), min(height, last + 1), device=device)
    steep = min(max(abs(low), abs(high)), 1.5)
    span = int(min(np.pi, reach / np.cos(steep)) / (2 * np.pi) * width)
    columns = torch.arange(-span, span, device=device) + int((0.5 - frame.yaw / (2 * np.pi)) * width)
    rise = (0.5 - (rows + 0.5) / height)[:, None] * torch.pi
    turn = (0.5 - (columns + 0.5) / width) * 2 * torch.pi - frame.yaw
    right, level, z = -rise.cos() * turn.sin(), rise.cos() * turn.cos(), rise.sin()
    cosine, sine = float(np.cos(frame.pitch)), float(np.sin(frame.pitch))
    ahead, up = level * cosine + z * sine, z * cosine - level * sine
    right, up = (torch.where(ahead > 0.05, v / ahead.clamp(min=0.05), 1e3) for v in (right, up))
    cosine, sine = float(np.cos(frame.roll)), float(np.sin(frame.roll))
    u, v = (right * cosine + up * sine) / half_x, (right * sine - up * cosine) / half_y
    # The edge is blended over two pixels of the canvas, or over the feather.
    soft = max(4 * np.pi / width / min(half_x, half_y), 2 * frame.feather)
    alpha = ((1 - torch.maximum(u.abs(), v.abs())) / soft).clamp(0, 1)
    grid = torch.stack([u, v], -1)[None]
    colour = F.grid_sample(picture[None], grid, padding_mode="border", align_corners=False)[0]
    columns = columns % width
    under = canvas[:, rows[0] : rows[-1] + 1, columns]
    canvas[:, rows[0] : rows[-1] + 1, columns] = torch.lerp(under, colour, alpha)

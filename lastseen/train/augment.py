"""Augmentation: one draw per clip, boxes that move with the pixels.

Everything is on tensors in [0, 1], before padding and normalising, and depends on the generator alone.
Colour jitter, flip and crop are the paper's; the rest makes rendered pictures look like a camera's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)
ROLL_ZOOM = 1.15  # leaves less black in the corners


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """Strengths of the paper; the chances of the rest are 0."""

    brightness: float = 0.4  # factor in [1 - x, 1 + x]
    contrast: float = 0.4
    saturation: float = 0.3
    hue: float = 0.0  # turns of the colour wheel, up to 0.5
    flip: float = 0.5  # chance
    crop_scale: float = 0.66  # least share of the area that is kept; 1: no crop
    crop_ratio: float = 0.2  # the crop's aspect is the frame's times [1 - x, 1 + x]
    roll: float = 0.0  # chance to rotate the picture, as by a tilted head
    roll_degrees: float = 35.0  # at most
    least_left: float = 0.25  # a thing of which less is left in the crop is neither visible nor absent
    grey: float = 0.0  # chances from here on
    blur: float = 0.0
    degrade: float = 0.0  # down and up again, and coarse colours, as a bad encoder does
    noise: float = 0.0
    query_jitter: bool = False  # other light on the query than on the clip

    def __post_init__(self) -> None:
        if not 0 < self.crop_scale <= 1 or not 0 <= self.crop_ratio < 1:
            raise ValueError(
                f"crop_scale must be in (0, 1] and crop_ratio in [0, 1), got {self.crop_scale} "
                f"and {self.crop_ratio}"
            )


NO_AUGMENT = AugmentConfig(brightness=0, contrast=0, saturation=0, flip=0, crop_scale=1, crop_ratio=0)


class Crop(NamedTuple):
    """A part of a picture, in whole pixels."""

    left: int
    top: int
    width: int
    height: int


class AugmentedClip(NamedTuple):
    """`augment_clip`'s output, shaped like its input."""

    frames: Tensor
    boxes_unit: Tensor
    visible: Tensor
    is_sliver: Tensor  # the crop left too little of a visible thing to call it visible, but not nothing


def augment_clip(
    frames: Tensor, boxes_unit: Tensor, visible: Tensor, config: AugmentConfig, generator: torch.Generator
) -> AugmentedClip:
    """Augment frames [t, 3, h, w] in [0, 1] with boxes [t, 4] in their unit square and visible [t]."""
    left = torch.ones_like(boxes_unit[..., 0])  # share of each box that crop and roll leave in the picture
    height, width = frames.shape[-2:]
    if config.crop_scale < 1:
        crop = draw_crop(width, height, config, generator)
        frames = cropped(frames, crop)
        boxes_unit, left = boxes_in_crop(boxes_unit, crop, width, height)
    if _chance(config.roll, generator):
        angle = math.radians(config.roll_degrees * (2 * _uniform(generator) - 1))
        frames, boxes_unit, of_rest = rolled(frames, boxes_unit, angle)
        left = left * of_rest
    is_sliver = visible & (left > 0) & (left < config.least_left)
    visible = visible & (left >= config.least_left)
    if _chance(config.flip, generator):
        frames, boxes_unit = flipped(frames, boxes_unit)
    return AugmentedClip(augment_colours(frames, config, generator), boxes_unit, visible, is_sliver)


def augment_query(crops: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Crops [scales, 3, h, w] in [0, 1] of one query; the paper does not augment queries."""
    return augment_colours(crops, config, generator) if config.query_jitter else crops


def augment_colours(frames: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """All that leaves boxes where they are."""
    frames = jittered(
        frames,
        brightness=_factor(config.brightness, generator),
        contrast=_factor(config.contrast, generator),
        saturation=_factor(config.saturation, generator),
        hue=config.hue * (2 * _uniform(generator) - 1),
    )
    if _chance(config.grey, generator):
        frames = luma(frames).expand_as(frames)
    if _chance(config.blur, generator):
        frames = blurred(frames, 0.3 + 1.7 * _uniform(generator))
    if _chance(config.degrade, generator):
        frames = degraded(frames, 0.35 + 0.45 * _uniform(generator), 24 + round(72 * _uniform(generator)))
    if _chance(config.noise, generator):
        sigma = 0.04 * _uniform(generator)
        drawn = torch.randn(frames.shape, generator=generator, device=generator.device)
        frames = (frames + sigma * drawn.to(frames.device)).clamp(0, 1)
    return frames


# --- Where things are ---------------------------------------------------------------------------


def draw_crop(width: int, height: int, config: AugmentConfig, generator: torch.Generator) -> Crop:
    """A crop of `crop_scale` to 1 of the area, its aspect within `crop_ratio` of the frame's."""
    scale = config.crop_scale + (1 - config.crop_scale) * _uniform(generator)
    low, high = math.log(1 - config.crop_ratio), math.log(1 + config.crop_ratio)
    stretch = math.exp((low + (high - low) * _uniform(generator)) / 2)
    # What sticks out of the frame is cut off, so the aspect gives way before the place does.
    wide = max(1, min(width, round(width * math.sqrt(scale) * stretch)))
    tall = max(1, min(height, round(height * math.sqrt(scale) / stretch)))
    left = int(_uniform(generator) * (width - wide + 1))
    top = int(_uniform(generator) * (height - tall + 1))
    return Crop(left, top, wide, tall)


def cropped(frames: Tensor, crop: Crop) -> Tensor:
    """The crop, enlarged to the frames' size."""
    height, width = frames.shape[-2:]
    part = frames[..., crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
    return F.interpolate(part, (height, width), mode="bilinear", antialias=True).clamp(0, 1)


def boxes_in_crop(boxes_unit: Tensor, crop: Crop, width: int, height: int) -> tuple[Tensor, Tensor]:
    """Boxes [t, 4] of the frame -> of the crop, cut off at its border; and the share [t] that is left."""
    sides = boxes_unit.new_tensor([width, height, width, height])
    origin = boxes_unit.new_tensor([crop.left, crop.top, crop.left, crop.top])
    extent = boxes_unit.new_tensor([crop.width, crop.height, crop.width, crop.height])
    moved = (boxes_unit * sides - origin) / extent
    cut = moved.clamp(0, 1)
    area, rest = ((b[..., 2:] - b[..., :2]).clamp(min=0).prod(-1) for b in (moved, cut))
    return cut, rest / area.clamp(min=1e-12)


def rolled(frames: Tensor, boxes_unit: Tensor, angle_rad: float) -> tuple[Tensor, Tensor, Tensor]:
    """Frames rotated about their middle and enlarged by ROLL_ZOOM, black where the old picture ends; the
    bounds of the ellipses in the boxes, cut off at the border, and the share of them that is left."""
    height, width = frames.shape[-2:]
    cos, sin = math.cos(angle_rad), math.sin(angle_rad)
    theta = frames.new_tensor([[cos, -sin * height / width, 0], [sin * width / height, cos, 0]]) / ROLL_ZOOM
    grid = F.affine_grid(theta.expand(len(frames), 2, 3), list(frames.shape), align_corners=False)
    turned = F.grid_sample(frames, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    sides = boxes_unit.new_tensor([width, height])
    low, high = boxes_unit[..., :2] * sides, boxes_unit[..., 2:] * sides
    (x, y), (a, b) = ((low + high - sides) / 2).unbind(-1), ((high - low) / 2).unbind(-1)
    middle = torch.stack([cos * x + sin * y, cos * y - sin * x], -1) * ROLL_ZOOM
    half = torch.stack([torch.hypot(cos * a, sin * b), torch.hypot(sin * a, cos * b)], -1) * ROLL_ZOOM
    whole = torch.cat([middle - half, middle + half], -1) / torch.cat([sides, sides]) + 0.5
    cut = whole.clamp(0, 1)
    area, rest = ((box[..., 2:] - box[..., :2]).clamp(min=0).prod(-1) for box in (whole, cut))
    return turned, cut, rest / area.clamp(min=1e-12)


def flipped(frames: Tensor, boxes_unit: Tensor) -> tuple[Tensor, Tensor]:
    x1, y1, x2, y2 = boxes_unit.unbind(-1)
    return frames.flip(-1), torch.stack([1 - x2, y1, 1 - x1, y2], -1)


# --- How things look ----------------------------------------------------------------------------


def jittered(
    frames: Tensor, *, brightness: float = 1, contrast: float = 1, saturation: float = 1, hue: float = 0
) -> Tensor:
    """Factors of 1 and a hue of 0 change nothing; one draw for all frames, as one camera has."""
    frames = (frames * brightness).clamp(0, 1)
    # The grey of the whole clip, not of each frame: otherwise a frame's light would depend on what it shows.
    mean = luma(frames).mean()
    frames = (mean + (frames - mean) * contrast).clamp(0, 1)
    grey = luma(frames)
    frames = (grey + (frames - grey) * saturation).clamp(0, 1)
    return hue_turned(frames, hue) if hue else frames


def luma(frames: Tensor) -> Tensor:
    """[.., 3, h, w] -> [.., 1, h, w]"""
    return (frames * frames.new_tensor(LUMA)[:, None, None]).sum(-3, keepdim=True)


def hue_turned(frames: Tensor, turns: float) -> Tensor:
    """Colours turned around the grey axis: no case distinctions, as conversion to HSV has."""
    cos, sin = math.cos(2 * math.pi * turns), math.sin(2 * math.pi * turns)
    a, b = (1 - cos) / 3, sin / math.sqrt(3)
    matrix = frames.new_tensor([[cos + a, a - b, a + b], [a + b, cos + a, a - b], [a - b, a + b, cos + a]])
    return torch.einsum("ij,...jhw->...ihw", matrix, frames).clamp(0, 1)


def blurred(frames: Tensor, sigma_px: float) -> Tensor:
    """Gaussian, along rows and then columns."""
    radius = max(1, math.ceil(3 * sigma_px))
    offsets = torch.arange(-radius, radius + 1, device=frames.device, dtype=frames.dtype)
    weights = torch.exp(-(offsets**2) / (2 * sigma_px**2))
    weights = (weights / weights.sum()).expand(3, 1, 1, -1)
    rows = F.conv2d(F.pad(frames, (radius, radius, 0, 0), mode="replicate"), weights, groups=3)
    return F.conv2d(
        F.pad(rows, (0, 0, radius, radius), mode="replicate"), weights.transpose(-1, -2), groups=3
    )


def degraded(frames: Tensor, scale: float, levels: int) -> Tensor:
    """Less detail than the size promises, least in colour, and few levels: much like a strong JPEG."""
    height, width = frames.shape[-2:]
    grey = luma(frames)
    detail = _resampled(grey, scale)
    colour = _resampled(frames - grey, scale / 4)
    rebuilt = (F.interpolate(part, (height, width), mode="bilinear") for part in (detail, colour))
    return (sum(rebuilt, torch.zeros_like(frames)).clamp(0, 1) * levels).round() / levels


def _resampled(frames: Tensor, scale: float) -> Tensor:
    size = [max(1, round(side * scale)) for side in frames.shape[-2:]]
    return F.interpolate(frames, size, mode="bilinear", antialias=True)


def _uniform(generator: torch.Generator) -> float:
    return float(torch.rand((), generator=generator, device=generator.device))


def _chance(chance: float, generator: torch.Generator) -> bool:
    return _uniform(generator) < chance


def _factor(strength: float, generator: torch.Generator) -> float:
    return 1 + strength * (2 * _uniform(generator) - 1)

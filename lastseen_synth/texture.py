"""Mip-mapped textures in linear light, packed into one flat buffer.

Every level has a border of one texel, wrapped or clamped as the texture asks, so that bilinear look-ups need
no special case. A plain colour is a texture of one texel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lastseen_synth.raster import take


def srgb_to_linear(srgb: Tensor) -> Tensor:
    """sRGB in [0, 1] -> linear light."""
    return torch.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def linear_to_srgb(linear: Tensor) -> Tensor:
    """Linear light -> sRGB in [0, 1], clipped."""
    linear = linear.clamp(0, 1)
    return torch.where(
        linear <= 0.0031308, linear * 12.92, 1.055 * linear.clamp(min=1e-8) ** (1 / 2.4) - 0.055
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Texture:
    """One texture with its mip levels; can be shared by many scenes.

    | texels  | float16 [3, N] linear light, all levels with their borders |
    | sizes   | (height, width) of each level, largest first               |
    | wrap    | tiles beyond 0..1 (True) or repeats its edge (False)       |
    """

    texels: Tensor
    sizes: tuple[tuple[int, int], ...]
    wrap: bool

    def to(self, device: torch.device | str) -> Texture:
        return replace(self, texels=self.texels.to(device))


def picture_texture(srgb: np.ndarray, *, wrap: bool, max_side_px: int = 512) -> Texture:
    """From uint8 [H, W, 3]; larger pictures are reduced to `max_side_px`."""
    if srgb.dtype != np.uint8 or srgb.ndim != 3 or srgb.shape[2] != 3:
        raise ValueError(f"a texture is uint8 [H, W, 3], got {srgb.dtype} {list(srgb.shape)}")
    table = srgb_to_linear(torch.arange(256) / 255)
    level = table[torch.from_numpy(srgb.astype(np.int64))].permute(2, 0, 1)[None]
    shrink = max(1.0, max(level.shape[2:]) / max_side_px)
    height, width = (max(1, round(side / shrink)) for side in level.shape[2:])
    pieces, sizes = [], []
    while True:
        if tuple(level.shape[2:]) != (height, width):
            level = F.interpolate(level, (height, width), mode="area")
        # Not F.pad: its "circular" mode refuses a single texel.
        bordered = torch.cat([level[..., -1:], level, level[..., :1]], 3) if wrap else _repeat_edge(level, 3)
        bordered = (
            torch.cat([bordered[..., -1:, :], bordered, bordered[..., :1, :]], 2)
            if wrap
            else _repeat_edge(bordered, 2)
        )
        pieces.append(bordered.reshape(3, -1).half())
        sizes.append((height, width))
        if height == width == 1:
            return Texture(texels=torch.cat(pieces, 1), sizes=tuple(sizes), wrap=wrap)
        height, width = max(1, height // 2), max(1, width // 2)


def _repeat_edge(level: Tensor, dim: int) -> Tensor:
    last = level.shape[dim] - 1
    return torch.cat([level.narrow(dim, 0, 1), level, level.narrow(dim, last, 1)], dim)


def colour_texture(srgb: Sequence[int]) -> Texture:
    """One plain colour, 0..255 each."""
    return picture_texture(np.array(srgb, np.uint8).reshape(1, 1, 3), wrap=False)


@dataclass(frozen=True, kw_only=True)
class TexturePack:
    """All textures of a scene.

    | texels | float16 [3, N]                                                             |
    | levels | int32 [3, all levels of all textures]: texel before the level, height, width |
    """

    texels: Tensor
    levels: Tensor

    def to(self, device: torch.device | str) -> TexturePack:
        return replace(self, texels=self.texels.to(device), levels=self.levels.to(device))


def pack(textures: Sequence[Texture]) -> tuple[TexturePack, list[int]]:
    """The pack, and the number of each texture's first level."""
    first_level: list[int] = []
    levels: list[tuple[int, int, int]] = []
    before = 0
    for texture in textures:
        first_level.append(len(levels))
        for height, width in texture.sizes:
            levels.append((before, height, width))
            before += (height + 2) * (width + 2)
    texels = torch.cat([texture.texels for texture in textures], 1)
    table = torch.tensor(levels, dtype=torch.int32, device=texels.device).T.contiguous()
    return TexturePack(texels=texels, levels=table), first_level


def sample(
    textures: TexturePack, first_level: Tensor, last_level: Tensor, uv: Tensor, level: Tensor
) -> Tensor:
    """Trilinear colours [3, M] at uv [2, M] (v up, already inside 0..1) and fractional mip `level` [M] >= 0.

    `first_level` and `last_level` int32 [M]: where the texture's largest and smallest level are in the pack.
    """
    upper = level.floor()
    fine = (first_level + upper.int()).minimum(last_level)
    both_levels = torch.cat([fine, (fine + 1).minimum(last_level)])
    start, height, width = take(textures.levels, both_levels).view(3, 2, -1)
    u, v = uv
    x, y = u * width + 0.5, (1 - v) * height + 0.5  # of the bordered level
    column, row = x.int(), y.int()
    right, down = (x - column).flatten(), (y - row).flatten()
    stride = width + 2
    corner = (row * stride + (start + column)).flatten()
    above = _mixed(take(textures.texels, corner), take(textures.texels, corner + 1), right)
    corner = corner + stride.flatten()
    under = _mixed(take(textures.texels, corner), take(textures.texels, corner + 1), right)
    fine_colour, coarse_colour = _mixed(above, under, down).view(3, 2, -1).unbind(1)
    return _mixed(fine_colour, coarse_colour, level - upper)


def _mixed(a: Tensor, b: Tensor, share_of_b: Tensor) -> Tensor:
    return a + (b - a) * share_of_b  # not lerp: float16 texels and float32 shares in one expression

"""A pyramid of features from the last map of a ViT (the simple feature pyramid of ViTDet)."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

STRIDES = (7, 14, 28)  # px, of a backbone with patches of 14 px


class Pyramid(NamedTuple):
    """Features [n, channels, h, w] at half, once and twice the backbone's stride."""

    fine: Tensor
    middle: Tensor
    coarse: Tensor


class SimpleFeaturePyramid(nn.Module):
    """| in  | [n, backbone channels, h, w]                                     |
    | out | Pyramid of [n, channels, 2 h, 2 w], [.., h, w], [.., h / 2, w / 2] |
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.enlarge = nn.ConvTranspose2d(in_channels, in_channels // 2, 2, stride=2)
        self.fine = _Level(in_channels // 2, channels)
        self.middle = _Level(in_channels, channels)
        self.coarse = _Level(in_channels, channels)

    def forward(self, features: Tensor) -> Pyramid:
        return Pyramid(
            self.fine(self.enlarge(features)), self.middle(features), self.coarse(F.max_pool2d(features, 2))
        )


class _Level(nn.Module):
    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.reduce_norm = ChannelNorm(channels)
        self.mix = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.mix_norm = ChannelNorm(channels)

    def forward(self, features: Tensor) -> Tensor:
        return self.mix_norm(self.mix(self.reduce_norm(self.reduce(features))))


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of [n, c, h, w]."""

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features.movedim(1, -1)).movedim(-1, 1)

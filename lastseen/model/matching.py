"""Correspondence that is told outright how like the query each patch is.

Attention says *what* of the query a patch resembles, normalised over the query: it cannot say *how much*.
Here the plain similarity of trained patch features stands beside it. Ours, not the paper's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.model.correspondence import SpatialTransformer, conv_block

SHARPNESS = 20.0  # of the soft maximum over the query's patches


class MatchingReduce(nn.Module):
    """Backbone features -> those of the paper's reduction, and beside them unit vectors to compare.

    | in  | [n, channels, h, w]    |
    | out | [n, dim + match, h, w] |
    """

    def __init__(self, channels: int, dim: int, match: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*conv_block(channels, dim), *conv_block(dim, dim))
        self.embed = nn.Conv2d(channels, match, 1, bias=False)
        nn.init.orthogonal_(self.embed.weight.view(match, channels))

    def forward(self, features: Tensor) -> Tensor:
        unit = F.normalize(self.embed(features).float(), dim=1)
        reduced = self.blocks(features)
        return torch.cat([reduced, unit.to(reduced.dtype)], 1)


class MatchingTransformer(SpatialTransformer):
    """The paper's spatial transformer, plus similarity maps added to what it gives.

    | prepare | frames [n, dim + match, h, w] -> the same shape                                  |
    | forward | prepared [b, t, dim + match, h, w], query [b, dim + match, h, w] -> [b, t, dim, h, w] |
    """

    def __init__(self, dim: int = 256, *, side: int = 32, layers: int = 1) -> None:
        super().__init__(dim, layers=layers)
        self.dim = dim
        # Which of the query's patches count: those of the thing, not of what surrounds it.
        self.weigh = _small_net(dim, 1, dim // 4)
        self.place = nn.Parameter(torch.zeros(1, 1, side, side))
        self.show = _small_net(3, dim, dim // 4)

    def prepare(self, frames: Tensor) -> Tensor:
        return torch.cat([super().prepare(frames[:, : self.dim]), frames[:, self.dim :]], 1)

    def forward(self, prepared: Tensor, query: Tensor) -> Tensor:
        tokens = super().forward(prepared[:, :, : self.dim], query[:, : self.dim])
        weights = (self.weigh(query[:, : self.dim]) + self.place).sigmoid()
        maps = similarity_maps(prepared[:, :, self.dim :], query[:, self.dim :], weights)
        shown = self.show(rearrange(maps, "b t c h w -> (b t) c h w"))
        return tokens + rearrange(shown, "(b t) c h w -> b t c h w", b=len(tokens))


def _small_net(channels_in: int, channels_out: int, hidden: int) -> nn.Sequential:
    first = nn.Conv2d(channels_in, hidden, 3, padding=1)
    return nn.Sequential(first, nn.GELU(), nn.Conv2d(hidden, channels_out, 1))


def similarity_maps(frames: Tensor, query: Tensor, weights: Tensor) -> Tensor:
    """Unit vectors [b, t, m, h, w] and [b, m, h, w] with weights [b, 1, h, w] in (0, 1) -> [b, t, 3, h, w].

    To the likest patch of the query, to the softly likest, and to the mean of all.
    """
    height = frames.shape[3]
    # A query fills its picture, so half its resolution is plenty.
    small = F.avg_pool2d(query * weights, 2)
    weight = rearrange(F.avg_pool2d(weights, 2), "b 1 h w -> b 1 (h w)").clamp(min=1e-4)
    unit = F.normalize(small.float(), dim=1).to(frames.dtype)
    tokens = rearrange(frames, "b t m h w -> b (t h w) m")
    cosine = tokens @ rearrange(unit, "b m h w -> b m (h w)")
    likest = (cosine * weight).amax(-1)
    softly = torch.logsumexp(SHARPNESS * cosine.float() + weight.float().log(), -1) / SHARPNESS
    mean = F.normalize(small.float().mean((2, 3)), dim=1).to(frames.dtype)
    typical = (tokens @ mean[..., None]).squeeze(-1)
    maps = torch.stack([likest, softly.to(likest.dtype), typical], -1)
    return rearrange(maps, "b (t h w) c -> b t c h w", t=frames.shape[1], h=height)

"""Correspondence by plain similarity: how like the query each patch of a frame is, as maps.

Ours, not the paper's. Attention says *what* of the query a patch resembles, normalised over the query: it
cannot say *how much*. And it hands the picture's own features on, so that heads learn the looks of what they
are trained on. Similarity maps look alike in any world, rendered or real.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.model.correspondence import SpatialTransformer, conv_block

SHARPNESS = 20.0  # of the soft maximum over the query's patches
PARTS = 3  # a query is also compared part by part, so that its layout shows: PARTS x PARTS of them
NEIGHBOURS = 4  # patches at the peak, whose like in the same frame is looked for
MAPS = 3 + PARTS**2 + 3
JITTER_GAIN, JITTER_SHIFT = 0.08, 0.03


class MatchingReduce(nn.Module):
    """Backbone features -> unit vectors to compare, beside (if `dim`) those of the paper's reduction.

    | in  | [n, channels, h, w]    |
    | out | [n, dim + match, h, w] |

    The vectors are a fixed projection of the features, `fit` to keep their similarities: a trained one would
    keep those of the things that it was trained on.
    """

    embed: Tensor

    def __init__(self, channels: int, dim: int, match: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*conv_block(channels, dim), *conv_block(dim, dim)) if dim else None
        self.register_buffer("embed", nn.init.orthogonal_(torch.empty(match, channels)))

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """To the directions in which features [n, channels, h, w] extend most."""
        tokens = F.normalize(rearrange(features.float(), "n c h w -> (n h w) c"), dim=1)
        _, directions = torch.linalg.eigh(tokens.T @ tokens)  # ascending
        self.embed.copy_(directions.T.flip(0)[: len(self.embed)])

    def forward(self, features: Tensor) -> Tensor:
        unit = F.normalize(
            torch.einsum("nchw,mc->nmhw", features, self.embed.to(features.dtype)).float(), dim=1
        )
        if self.blocks is None:
            return unit
        reduced = self.blocks(features)
        return torch.cat([reduced, unit.to(reduced.dtype)], 1)


class MatchingTransformer(SpatialTransformer):
    """The paper's spatial transformer, plus similarity maps added to what it gives.

    | prepare | frames [n, dim + match, h, w] -> the same shape                                       |
    | forward | prepared [b, t, dim + match, h, w], query [b, dim + match, h, w] -> [b, t, dim, h, w] |
    """

    def __init__(self, dim: int = 256, *, layers: int = 1) -> None:
        super().__init__(dim, layers=layers)
        self.dim = dim
        self.maps = MapReader(dim)

    def prepare(self, frames: Tensor) -> Tensor:
        return torch.cat([super().prepare(frames[:, : self.dim]), frames[:, self.dim :]], 1)

    def forward(self, prepared: Tensor, query: Tensor) -> Tensor:
        tokens = super().forward(prepared[:, :, : self.dim], query[:, : self.dim])
        return tokens + self.maps(prepared[:, :, self.dim :], query[:, self.dim :])


class MatchFusion(nn.Module):
    """Similarity maps alone: nothing of a frame but its likeness to the query is handed on.

    | prepare | frames [n, match, h, w], as they are                              |
    | forward | prepared [b, t, match, h, w], query [b, match, h, w] -> [b, t, dim, h, w] |
    """

    def __init__(self, dim: int = 256) -> None:
        super().__init__()
        self.maps = MapReader(dim)

    def prepare(self, frames: Tensor) -> Tensor:
        return frames

    def forward(self, prepared: Tensor, query: Tensor) -> Tensor:
        return self.maps(prepared, query)


class MapReader(nn.Module):
    """Unit vectors of frames and query -> similarity maps -> features [b, t, dim, h, w]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.read = nn.Sequential(*conv_block(MAPS, dim), *conv_block(dim, dim))

    def forward(self, frames: Tensor, query: Tensor) -> Tensor:
        maps = similarity_maps(frames, query)
        if self.training:
            maps = jittered(maps)
        maps = rearrange(maps, "b t c h w -> (b t) c h w")
        return rearrange(self.read(maps), "(b t) c h w -> b t c h w", b=len(frames))


def jittered(maps: Tensor) -> Tensor:
    """Clip by clip a little higher or lower: views of one thing are not equally alike in every world."""
    shape = (len(maps), 1, 1, 1, 1)
    gain = 1 + JITTER_GAIN * torch.randn(shape, device=maps.device, dtype=maps.dtype)
    return gain * maps + JITTER_SHIFT * torch.randn(shape, device=maps.device, dtype=maps.dtype)


def similarity_maps(frames: Tensor, query: Tensor) -> Tensor:
    """Unit vectors [b, t, m, h, w] and [b, m, h, w] (zero where the thing is not) -> [b, t, MAPS, h, w].

    To the likest patch of the query, to the softly likest, to the mean of all, and to each part's mean; how
    far below the frame's best the likest is; and how like the frame's own best patches each patch is.
    """
    height = frames.shape[3]
    # A query fills its picture, so half its resolution is plenty.
    small = F.avg_pool2d(query.float(), 2)
    there = rearrange(small, "b m h w -> b (h w) m").norm(dim=-1) > 1e-3
    unit = rearrange(F.normalize(small, dim=1), "b m h w -> b m (h w)").to(frames.dtype)
    tokens = rearrange(frames, "b t m h w -> b (t h w) m")
    cosine = (tokens @ unit).float().masked_fill(~there[:, None], -1.0)
    likest = cosine.amax(-1)
    count = there.sum(1).clamp(min=1)[:, None]
    softly = (torch.logsumexp(SHARPNESS * cosine, -1) - count.log()) / SHARPNESS
    parts = F.normalize(F.adaptive_avg_pool2d(query.float(), PARTS).flatten(2), dim=1)
    whole = F.normalize(query.float().mean((2, 3)), dim=1)[..., None]
    typical = (tokens @ torch.cat([whole, parts], 2).to(frames.dtype)).float()
    shape = {"t": frames.shape[1], "h": height}
    flat = rearrange(likest, "b (t h w) -> b t (h w)", **shape)
    best, where = flat.topk(NEIGHBOURS, -1)
    below = rearrange(flat - best[..., :1], "b t s -> b (t s)")
    patches = rearrange(tokens, "b (t s) m -> b t s m", t=shape["t"])
    peaks = patches.take_along_dim(where[..., None], 2)
    like = (patches @ peaks.transpose(-1, -2)).float()
    like = rearrange(torch.stack([like[..., 0], like.mean(-1)], -1), "b t s c -> b (t s) c")
    maps = torch.cat([likest[..., None], softly[..., None], typical, below[..., None], like], -1)
    return rearrange(maps, "b (t h w) c -> b t c h w", **shape).to(frames.dtype)

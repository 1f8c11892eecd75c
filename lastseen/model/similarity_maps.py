"""Correspondence by cosine maps: how similar each patch of a frame is to a query's patches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.model.correspondence import conv_block
from lastseen.model.encoded_query import EncodedQuery

SHARPNESS = 20.0  # of the soft maximum over the query's patches
PARTS = 3  # the thing is also compared part by part, which keeps its layout: PARTS x PARTS mean vectors
MAX_SIDE = 16  # patches along one side of a query crop that are compared; larger ones are averaged
PEAK_PATCHES = 4  # a frame's best patches, with which all of its patches are compared
COMMON_MAPS = 2 + PARTS**2 + 3  # and two for each scale of the query
JITTER_GAIN, JITTER_SHIFT = 0.08, 0.03


class SimilarityFusion(nn.Module):
    """Frames and a query -> similarity maps -> features by two convolutions.

    | frames     | unit vectors [b, t, m, h, w]               |
    | query      | a batch of queries, vectors [b, s, m, q, q] |
    | features   | [b, t, dim, h, w]                          |
    | similarity | [b, t, h, w], see `similarity_maps`        |

    `scales`: the thing's share of the side of each query crop. Patches match best at equal scales, and the
    thing's size in the video is not known.
    """

    def __init__(self, dim: int, scales: tuple[float, ...]) -> None:
        super().__init__()
        self.scales = scales
        self.read = nn.Sequential(*conv_block(COMMON_MAPS + 2 * len(scales), dim), *conv_block(dim, dim))

    def forward(self, frames: Tensor, query: EncodedQuery) -> tuple[Tensor, Tensor]:
        maps, similarity = similarity_maps(frames, query, self.scales)
        if self.training:
            both = jittered(torch.cat([maps, similarity[:, :, None]], 2))
            maps, similarity = both[:, :, :-1], both[:, :, -1]
        features = self.read(rearrange(maps, "b t c h w -> (b t) c h w"))
        return rearrange(features, "(b t) c h w -> b t c h w", b=len(frames)), similarity


def jittered(maps: Tensor) -> Tensor:
    """A random gain and shift for each clip: how similar views of one thing are differs between videos."""
    shape = (len(maps), 1, 1, 1, 1)
    gain = 1 + JITTER_GAIN * torch.randn(shape, device=maps.device, dtype=maps.dtype)
    return gain * maps + JITTER_SHIFT * torch.randn(shape, device=maps.device, dtype=maps.dtype)


def similarity_maps(
    frames: Tensor, query: EncodedQuery, scales: tuple[float, ...] = (1.0,)
) -> tuple[Tensor, Tensor]:
    """Unit vectors [b, t, m, h, w] of frames and [b, s, m, q, q] of a query, zero where not on the thing
    -> maps [b, t, COMMON_MAPS + 2 s, h, w], similarity [b, t, h, w].

    | maps       |                                                                              |
    |------------|------------------------------------------------------------------------------|
    | 1          | cosine with the thing's most similar patch                                   |
    | 1          | the same as a soft maximum                                                   |
    | s          | cosine with the mean of each crop                                            |
    | PARTS^2    | cosine with the mean of each part of the first crop                          |
    | 1          | difference of the first map to its maximum in the frame                      |
    | 2          | cosine with the frame's own best patch, and mean cosine with its PEAK_PATCHES |
    | s          | cosine with the most similar patch of each crop                              |

    `similarity` is as the first map, with background patches compared as well.
    """
    assert query.on_thing is not None and query.background is not None
    size = {"t": frames.shape[1], "h": frames.shape[3]}
    tokens = rearrange(_as_multiplied(frames), "b t m h w -> b (t h w) m")
    crops = rearrange(query.vectors.float(), "b s m h w -> s b m h w")
    in_box, foreground = (
        rearrange(mask, "b s h w -> s b 1 h w").to(crops.dtype)
        for mask in (query.on_thing, query.on_thing & ~query.background)
    )
    best, soft, best_in_box = [], [], []
    for crop, its_box, its_own, scale in zip(crops, in_box, foreground, scales):
        cosine = tokens @ F.normalize(_compared(crop, scale), dim=1).to(tokens.dtype)  # [b, n, k]
        boxed, own = (_compared(mask, scale)[:, 0] > 0 for mask in (its_box, its_own))
        best_in_box.append(cosine.masked_fill(~boxed[:, None], -1.0).amax(-1).float())
        cosine, count = cosine.masked_fill(~own[:, None], -1.0), own.sum(1).clamp(min=1)[:, None]
        best.append(cosine.amax(-1).float())
        soft.append((torch.logsumexp(SHARPNESS * cosine.float(), -1) - count.log()) / SHARPNESS)
    crops = crops * foreground
    of_each = torch.stack(best, -1)
    of_all = of_each.amax(-1)
    parts = F.normalize(F.adaptive_avg_pool2d(crops[0], PARTS).flatten(2), dim=1)
    means = F.normalize(rearrange(crops.mean((3, 4)), "s b m -> b m s"), dim=1)
    to_means = (tokens @ torch.cat([means, parts], 2).to(tokens.dtype)).float()
    below_peak, to_peak = _against_peak(tokens, rearrange(of_all, "b (t h w) -> b t (h w)", **size))
    softest = torch.stack(soft, -1).amax(-1)
    similarity = torch.stack(best_in_box, -1).amax(-1)
    maps = [of_all[..., None], softest[..., None], to_means, below_peak, to_peak, of_each]
    maps = [*maps, similarity[..., None]]
    stacked = rearrange(torch.cat(maps, -1), "b (t h w) c -> b t c h w", **size).to(frames.dtype)
    return stacked[:, :, :-1], stacked[:, :, -1]


def _against_peak(tokens: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens [b, t s, m], similarity [b, t, s] -> difference to each frame's maximum [b, t s, 1], cosine with
    its best patch and mean cosine with its best PEAK_PATCHES [b, t s, 2]"""
    best, where = similarity.topk(PEAK_PATCHES, -1)
    below = rearrange(similarity - best[..., :1], "b t s -> b (t s) 1")
    patches = rearrange(tokens, "b (t s) m -> b t s m", t=similarity.shape[1])
    cosine = (patches @ patches.take_along_dim(where[..., None], 2).transpose(-1, -2)).float()
    cosine = torch.stack([cosine[..., 0], cosine.mean(-1)], -1)
    return below, rearrange(cosine, "b t s c -> b (t s) c")


def _as_multiplied(frames: Tensor) -> Tensor:
    """In mixed precision each product would round its factors again: the largest is rounded once, here."""
    kind = frames.device.type
    return frames.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else frames


def _compared(crop: Tensor, scale: float) -> Tensor:
    """Vectors (or a mask) [b, m, q, q] of a crop -> those where the thing can be: [b, m, k]"""
    if scale == 1:  # the thing fills the crop
        while crop.shape[-1] > MAX_SIDE:
            crop = F.avg_pool2d(crop, 2)
        return crop.flatten(2)
    side = crop.shape[-1]
    first = int(side * (1 - scale) / 2)
    return crop[..., first : side - first, first : side - first].flatten(2)

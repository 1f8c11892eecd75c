"""Correspondence by cosine maps: how similar each patch of a frame is to a query's patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.model.correspondence import conv_block
from lastseen.model.coverage import coverage, window_sides
from lastseen.model.encoded_query import EncodedQuery

SHARPNESS = 20.0  # of the soft maximum over the query's patches
PARTS = 3  # the thing is also compared part by part, which keeps its layout: PARTS x PARTS mean vectors
MAX_SIDE = 16  # patches along one side of a query crop that are compared; larger ones are averaged
PEAK_PATCHES = 4  # a frame's best patches, with which all of its patches are compared
COMMON_MAPS = 2 + PARTS**2 + 3  # and two for each scale of the query, and those of coverage
COVERED_SIDE = 8  # patches along one side of a query crop whose coverage is computed; others are left out
IN_BOX_WEIGHT = 1e-3  # of background patches in coverage: they count only if there are no others
JITTER_GAIN, JITTER_SHIFT = 0.08, 0.03


class SimilarityFusion(nn.Module):
    """Frames and a query -> similarity maps -> features by two convolutions.

    | frames     | unit vectors [b, t, m, h, w]                             |
    | query      | a batch of queries, vectors [b, s, m, q, q]               |
    | features   | [b, t, dim, h, w]                                         |
    | similarity | [b, t, 1 or 2, h, w]: `SimilarityMaps.best` and `.covered` |

    `scales`: the thing's share of the side of each query crop. Patches match best at equal scales, and the
    thing's size in the video is not known. `windows`: see `similarity_maps`.
    """

    def __init__(self, dim: int, scales: tuple[float, ...], windows: tuple[float, ...] = ()) -> None:
        super().__init__()
        self.scales, self.windows = scales, windows
        maps = COMMON_MAPS + (2 + len(windows)) * len(scales) + bool(windows)
        self.read = nn.Sequential(*conv_block(maps, dim), *conv_block(dim, dim))

    def forward(self, frames: Tensor, query: EncodedQuery) -> tuple[Tensor, Tensor]:
        made = similarity_maps(frames, query, self.scales, self.windows)
        found = [made.best] if made.covered is None else [made.best, made.covered]
        maps, similarity = made.maps, torch.stack(found, 2)
        if self.training:
            both = jittered(torch.cat([maps, similarity], 2))
            maps, similarity = both[:, :, : maps.shape[2]], both[:, :, maps.shape[2] :]
        features = self.read(rearrange(maps, "b t c h w -> (b t) c h w"))
        return rearrange(features, "(b t) c h w -> b t c h w", b=len(frames)), similarity


def jittered(maps: Tensor) -> Tensor:
    """A random gain and shift for each clip: how similar views of one thing are differs between videos."""
    shape = (len(maps), 1, 1, 1, 1)
    gain = 1 + JITTER_GAIN * torch.randn(shape, device=maps.device, dtype=maps.dtype)
    return gain * maps + JITTER_SHIFT * torch.randn(shape, device=maps.device, dtype=maps.dtype)


class SimilarityMaps(NamedTuple):
    """| maps    | [b, t, maps, h, w]                                                          |
    | best    | [b, t, h, w] cosine with the most similar patch, background patches included |
    | covered | [b, t, h, w] mean coverage over all windows; None without windows            |
    """

    maps: Tensor
    best: Tensor
    covered: Tensor | None


def similarity_maps(
    frames: Tensor,
    query: EncodedQuery,
    scales: Sequence[float] = (1.0,),
    windows: Sequence[float] = (),
) -> SimilarityMaps:
    """Unit vectors [b, t, m, h, w] of frames and [b, s, m, q, q] of a query, zero where not on the thing.

    | maps       |                                                                              |
    |------------|------------------------------------------------------------------------------|
    | 1          | cosine with the thing's most similar patch                                   |
    | 1          | the same as a soft maximum                                                   |
    | s          | cosine with the mean of each crop                                            |
    | PARTS^2    | cosine with the mean of each part of the first crop                          |
    | 1          | difference of the first map to its maximum in the frame                      |
    | 2          | cosine with the frame's own best patch, and mean cosine with its PEAK_PATCHES |
    | s          | cosine with the most similar patch of each crop                              |
    | s windows  | coverage of each crop in windows of each size                                |
    | 1          | mean of these, if there are windows                                          |

    `windows`: sides of the windows of coverage, in units of the thing's longer side in the crop.
    """
    assert query.on_thing is not None and query.background is not None
    rows = frames.shape[3]
    patches = _as_multiplied(frames).flatten(3)  # [b, t, m, h w]
    crops = rearrange(query.vectors.float(), "b s m h w -> s b m h w")
    in_box, foreground = (
        rearrange(mask, "b s h w -> s b 1 h w").to(crops.dtype)
        for mask in (query.on_thing, query.on_thing & ~query.background)
    )
    best, soft, best_in_box, covered = [], [], [], []
    for crop, its_box, its_own, scale in zip(crops, in_box, foreground, scales):
        cosine = _products(patches, F.normalize(_compared(crop, scale), dim=1))  # [b, t, k, h w]
        boxed, own = (_compared(mask, scale)[:, 0] > 0 for mask in (its_box, its_own))
        if windows:
            some = _subsampled(cosine.shape[2], cosine.device)
            weights = own[:, some] + IN_BOX_WEIGHT * boxed[:, some]
            sides = window_sides(scale * crop.shape[-1], windows)
            covered.append(coverage(_as_map(cosine[:, :, some], rows), weights, sides))
        best_in_box.append(cosine.masked_fill(~boxed[:, None, :, None], -1.0).amax(2).float())
        cosine, count = cosine.masked_fill(~own[:, None, :, None], -1.0), own.sum(1).clamp(min=1)
        best.append(cosine.amax(2).float())
        soft.append((torch.logsumexp(SHARPNESS * cosine.float(), 2) - count.log()[:, None, None]) / SHARPNESS)
    crops = crops * foreground
    of_each = torch.stack(best, 2)
    of_all = of_each.amax(2)
    parts = F.normalize(F.adaptive_avg_pool2d(crops[0], PARTS).flatten(2), dim=1)
    means = F.normalize(rearrange(crops.mean((3, 4)), "s b m -> b m s"), dim=1)
    to_means = _products(patches, torch.cat([means, parts], 2)).float()
    softest = torch.stack(soft, 2).amax(2, keepdim=True)
    maps = torch.cat([of_all[:, :, None], softest, to_means, *_against_peak(patches, of_all), of_each], 2)
    maps, similarity = (_as_map(x, rows) for x in (maps, torch.stack(best_in_box, 2).amax(2)))
    coverages = torch.cat(covered, 2) if covered else None
    if coverages is None:
        return SimilarityMaps(maps.to(frames.dtype), similarity.to(frames.dtype), None)
    mean = coverages.mean(2)
    maps = torch.cat([maps, coverages, mean[:, :, None]], 2)
    return SimilarityMaps(*(x.to(frames.dtype) for x in (maps, similarity, mean)))


def _as_map(values: Tensor, rows: int) -> Tensor:
    """[.., h w] -> [.., h, w]"""
    return values.view(*values.shape[:-1], rows, -1)


def _products(patches: Tensor, vectors: Tensor) -> Tensor:
    """Patches [b, t, m, n], vectors [b, m, k] -> [b, t, k, n]"""
    return vectors.to(patches.dtype).transpose(1, 2)[:, None] @ patches


def _subsampled(patches: int, device: torch.device) -> Tensor:
    """Which patches of a square of `patches` are compared in coverage: at most COVERED_SIDE along a side."""
    side = math.isqrt(patches)
    every = -(-side // COVERED_SIDE)
    return torch.arange(patches, device=device).view(side, side)[::every, ::every].flatten()


def _against_peak(patches: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
    """Patches [b, t, m, s], similarity [b, t, s] -> difference to each frame's maximum [b, t, 1, s], cosine
    with its best patch and mean cosine with its best PEAK_PATCHES [b, t, 2, s]"""
    best, where = similarity.topk(PEAK_PATCHES, -1)
    below = (similarity - best[..., :1])[:, :, None]
    peaks = patches.take_along_dim(where[:, :, None], 3)  # [b, t, m, PEAK_PATCHES]
    cosine = (peaks.transpose(2, 3) @ patches).float()
    return below, torch.stack([cosine[:, :, 0], cosine.mean(2)], 2)


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

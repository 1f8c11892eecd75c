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
from lastseen.model.inputs import patches_inside

SHARPNESS = 20.0  # of the soft maximum over the query's patches
PARTS = 3  # a query is also compared part by part, so that its layout shows: PARTS x PARTS of them
MOST_ACROSS = 16  # patches of a query's picture that are compared, along one side
NEIGHBOURS = 4  # patches at the peak, whose like in the same frame is looked for
MAPS = 2 + PARTS**2 + 3  # and 2 for each picture of the thing
JITTER_GAIN, JITTER_SHIFT = 0.08, 0.03
LEAST_KEPT = 0.4  # of the patches in a thing's box, however like its surroundings they are
LEAST_AROUND = 4  # patches that tell what surroundings look like
BEHIND = 0.5  # length of a query's vector that is in the thing's box, but of what is behind it


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
        self.maps = MapReader(dim, (1.0,))

    def prepare(self, frames: Tensor) -> Tensor:
        return torch.cat([super().prepare(frames[:, : self.dim]), frames[:, self.dim :]], 1)

    def forward(self, prepared: Tensor, query: Tensor) -> Tensor:
        tokens = super().forward(prepared[:, :, : self.dim], query[:, : self.dim])
        return tokens + self.maps(prepared[:, :, self.dim :], query[:, self.dim :])


class MatchFusion(nn.Module):
    """Similarity maps alone: nothing of a frame but its likeness to the query is handed on.

    | prepare | frames [n, match, h, w], as they are                              |
    | forward | prepared [b, t, match, h, w], query [b, shares * match, q, q] -> [b, t, dim, h, w] |

    `shares`: the thing's part of each of its pictures. Features of like sizes match best, and its size in
    the video is not known.
    """

    def __init__(
        self, dim: int = 256, shares: tuple[float, ...] = (1.0,), knows_behind: bool = False
    ) -> None:
        super().__init__()
        self.maps = MapReader(dim, shares, knows_behind)

    def prepare(self, frames: Tensor) -> Tensor:
        return frames

    def forward(self, prepared: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Features, and the map [b, t, h, w] of the likest patches, of what is behind the thing too: it would
        blur where the thing ends, but tells that this is the place."""
        maps, likest = self.maps.draw(prepared, query)
        return self.maps.read_all(maps), likest


class Likeness(nn.Module):
    """What plain likeness says of each candidate. Heads learn what to add to it: they begin as good as it
    is, in every world.

    | in  | map [b, t, h, w], how many candidates a frame has |
    | out | logits [b, t, candidates]                         |
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(12.0))
        self.even = nn.Parameter(torch.tensor(0.65))  # as likely there as not

    def forward(self, likest: Tensor, candidates: int, grid: int) -> Tensor:
        best = F.adaptive_max_pool2d(likest.float(), grid).flatten(2)
        return (self.scale * (best - self.even)).repeat_interleave(candidates // grid**2, 2)


class MapReader(nn.Module):
    """Unit vectors of frames and query -> similarity maps -> features [b, t, dim, h, w]."""

    def __init__(self, dim: int, shares: tuple[float, ...], knows_behind: bool = False) -> None:
        super().__init__()
        self.shares, self.knows_behind = shares, knows_behind
        self.read = nn.Sequential(*conv_block(MAPS + 2 * len(shares), dim), *conv_block(dim, dim))

    def forward(self, frames: Tensor, query: Tensor) -> Tensor:
        return self.read_all(self.draw(frames, query)[0])

    def draw(self, frames: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Maps [b, t, MAPS + 2 shares, h, w], and the likest of all patches in the box [b, t, h, w]"""
        maps = similarity_maps(frames, query, self.shares, self.knows_behind)
        maps = jittered(maps) if self.training else maps
        return (maps[:, :, :-1], maps[:, :, -1]) if self.knows_behind else (maps, maps[:, :, 0])

    def read_all(self, maps: Tensor) -> Tensor:
        read = self.read(rearrange(maps, "b t c h w -> (b t) c h w"))
        return rearrange(read, "(b t) c h w -> b t c h w", b=len(maps))


def jittered(maps: Tensor) -> Tensor:
    """Clip by clip a little higher or lower: views of one thing are not equally alike in every world."""
    shape = (len(maps), 1, 1, 1, 1)
    gain = 1 + JITTER_GAIN * torch.randn(shape, device=maps.device, dtype=maps.dtype)
    return gain * maps + JITTER_SHIFT * torch.randn(shape, device=maps.device, dtype=maps.dtype)


def similarity_maps(
    frames: Tensor, query: Tensor, shares: tuple[float, ...] = (1.0,), knows_behind: bool = False
) -> Tensor:
    """Unit vectors [b, t, m, h, w] of frames and [b, shares * m, q, q] of a query's pictures, zero where the
    thing is not -> [b, t, MAPS + 2 shares, h, w].

    To the likest patch of the query, to the softly likest, to the mean of each picture, and to each part's
    mean; how far below the frame's best the likest is; how like the frame's own best patches each patch is;
    and to the likest patch of each picture. `knows_behind`: vectors as short as BEHIND are left out of these,
    and one more map is to the likest of all.
    """
    size = {"t": frames.shape[1], "h": frames.shape[3]}
    pictures = rearrange(query.float(), "b (s m) h w -> s b m h w", s=len(shares))
    tokens = rearrange(_as_multiplied(frames), "b t m h w -> b (t h w) m")
    own = (pictures.norm(dim=2, keepdim=True) > (1 + BEHIND) / 2).to(pictures.dtype)
    each, softly, of_all = [], [], []
    for picture, its_own, share in zip(pictures, own, shares):
        cosine, there = _cosines(tokens, _of_the_thing(picture, share))
        if knows_behind:
            of_all.append(cosine.amax(-1).float())
            its = _of_the_thing(its_own, share)[:, 0] > 0
            cosine, there = cosine.masked_fill(~its[:, None], -1.0), its.sum(1).clamp(min=1)[:, None]
        each.append(cosine.amax(-1).float())
        softly.append((torch.logsumexp(SHARPNESS * cosine.float(), -1) - there.log()) / SHARPNESS)
    if knows_behind:
        pictures = pictures * own
    likest = torch.stack(each, -1)
    best_of_all = likest.amax(-1)
    parts = F.normalize(F.adaptive_avg_pool2d(pictures[0], PARTS).flatten(2), dim=1)
    whole = F.normalize(rearrange(pictures.mean((3, 4)), "s b m -> b m s"), dim=1)
    typical = (tokens @ torch.cat([whole, parts], 2).to(tokens.dtype)).float()
    flat = rearrange(best_of_all, "b (t h w) -> b t (h w)", **size)
    best, where = flat.topk(NEIGHBOURS, -1)
    below = rearrange(flat - best[..., :1], "b t s -> b (t s) 1")
    patches = rearrange(tokens, "b (t s) m -> b t s m", t=size["t"])
    like = (patches @ patches.take_along_dim(where[..., None], 2).transpose(-1, -2)).float()
    like = rearrange(torch.stack([like[..., 0], like.mean(-1)], -1), "b t s c -> b (t s) c")
    soft = torch.stack(softly, -1).amax(-1)
    more = [torch.stack(of_all, -1).amax(-1, keepdim=True)] if knows_behind else []
    maps = torch.cat([best_of_all[..., None], soft[..., None], typical, below, like, likest, *more], -1)
    return rearrange(maps, "b (t h w) c -> b t c h w", **size).to(frames.dtype)


def lengths_of_patches(features: Tensor, inside: Tensor, pictures_unit: Tensor, background: float) -> Tensor:
    """Features [n, c, q, q] of a thing's pictures, the patches in its boxes [n, 1, q, q], where the pictures
    are in their squares [n, 4] -> [n, 1, q, q]: 1, or BEHIND where a box shows what is behind the thing.

    Where a question comes from the same place, that is found all around the thing, too. It is told by being
    more than `background` like a patch around the box; but the patches that are least like those are the
    thing's, however much they are.
    """
    its = inside.flatten(1) > 0
    around = ~its & (patches_inside(pictures_unit, *features.shape[2:]).flatten(1) > 0)
    unit = F.normalize(features.float().flatten(2), dim=1)
    alike = (unit.transpose(1, 2) @ unit).masked_fill(~around[:, None], -1.0).amax(2)
    alike = alike.masked_fill(around.sum(1, keepdim=True) < LEAST_AROUND, -1.0)
    least = (LEAST_KEPT * its.sum(1, keepdim=True)).ceil().long().clamp(min=1)
    always = alike.masked_fill(~its, torch.inf).sort(1).values.gather(1, least - 1)
    behind = its & (alike > always.clamp(min=background))
    return torch.where(behind, BEHIND, 1.0).view_as(inside).to(inside.dtype)


def _as_multiplied(frames: Tensor) -> Tensor:
    """In mixed precision each product would round its factors anew: the largest is rounded once, here."""
    kind = frames.device.type
    return frames.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else frames


def _of_the_thing(picture: Tensor, share: float) -> Tensor:
    """Vectors [b, m, q, q] -> those that may be the thing's, few enough to compare with all: [b, m, k]"""
    if share == 1:  # it fills its picture, so less resolution is plenty
        while picture.shape[-1] > MOST_ACROSS:
            picture = F.avg_pool2d(picture, 2)
        return picture.flatten(2)
    side = picture.shape[-1]
    first = int(side * (1 - share) / 2)
    return picture[..., first : side - first, first : side - first].flatten(2)


def _cosines(tokens: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens [b, n, m], vectors [b, m, k] of which zeros do not count -> [b, n, k], how many count [b, 1]"""
    there = vectors.norm(dim=1) > 1e-3
    cosine = tokens @ F.normalize(vectors, dim=1).to(tokens.dtype)
    return cosine.masked_fill(~there[:, None], -1.0), there.sum(1).clamp(min=1)[:, None]

"""Coverage: how much of the query is found in a window around each patch of a frame.

A single patch of a plain thing matches in many places; all of its patches close together match in one. The
coverage of a window is the mean over the query's patches of their best cosine in the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW_SIDES = (1, 3, 5, 9, 17, 33)  # patches; each is the union of two of the one before


def window_sides(thing_side: float, ratios: Sequence[float]) -> list[int]:
    """Sides of windows in patches, for a thing of `thing_side` patches: the nearest of WINDOW_SIDES"""
    return [min(WINDOW_SIDES, key=lambda side: abs(side - ratio * thing_side)) for ratio in ratios]


def coverage(cosine: Tensor, weights: Tensor, sides: Sequence[int]) -> Tensor:
    """Coverage of windows of several sizes.

    | cosine  | [b, t, k, h, w] of the query's k patches with each patch of a frame  |
    | weights | [b, k] of the query's patches, 0 or more                             |
    | sides   | patches along one side of each window, of WINDOW_SIDES, ascending    |
    | out     | float32 [b, t, sides, h, w]                                          |
    """
    share = (weights / weights.sum(1, keepdim=True).clamp(min=1e-6)).to(cosine.dtype)
    found = {
        side: torch.einsum("btkhw,bk->bthw", best, share).float()
        for side, best in _best_in_windows(cosine, max(sides))
        if side in sides
    }
    return torch.stack([found[side] for side in sides], 2)


def _best_in_windows(cosine: Tensor, largest: int) -> Iterator[tuple[int, Tensor]]:
    """Sides of windows, and the maximum of [b, t, k, h, w] in the window around each place."""
    best = cosine
    yield 1, best
    for smaller, side in pairwise(WINDOW_SIDES):
        if smaller >= largest:
            return
        reach = (side - smaller) // 2
        for along in (-1, -2):
            around = _union(best, reach, along)
            best = torch.maximum(around, best) if smaller == 1 else around
        yield side, best


def _union(best: Tensor, reach: int, along: int) -> Tensor:
    """Of each two windows `reach` before and after a place, the higher maximum.

    The window of a place beyond the border still contains places inside: it is the one at the border.
    """
    padding = (reach, reach, 0, 0) if along == -1 else (0, 0, reach, reach)
    padded = F.pad(best.flatten(0, 1), padding, mode="replicate")
    padded = padded.view(*best.shape[:2], *padded.shape[1:])
    length = best.shape[along]
    return torch.maximum(padded.narrow(along, 0, length), padded.narrow(along, 2 * reach, length))

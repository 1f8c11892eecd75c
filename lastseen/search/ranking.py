"""Which clips are promising: vectors that stand for a query, and the order in which clips are searched."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from lastseen.model import EncodedQuery, Model

QUERY_TOKENS = 64  # per view, at most; using all costs five times as much and selects nearly the same clips


@torch.inference_mode()
def query_vectors(model: Model, view: EncodedQuery) -> Tensor:
    """At most QUERY_TOKENS unit vectors [k, m] of a view"""
    return representatives(model.query_vectors(view), QUERY_TOKENS)


def representatives(vectors: Tensor, most: int) -> Tensor:
    """Greedy facility-location subset of unit vectors [k, m]: at most `most` that represent all best."""
    if len(vectors) <= most:
        return vectors
    similarity = (vectors @ vectors.T).clamp(min=0)
    covered = torch.zeros_like(similarity[0])
    chosen: list[int] = []
    for _ in range(most):
        gain = torch.maximum(similarity, covered).sum(1)
        gain[chosen] = -1
        chosen.append(int(gain.argmax()))
        covered = torch.maximum(covered, similarity[chosen[-1]])
    return vectors[chosen]


def by_rank(clips: Iterable[np.ndarray]) -> list[tuple[int, int]]:
    """(Video, clip), the highest coarse score first, from the scores of each video's clips.

    A clip next to a better one has its rank number doubled, so that a thing that is in view for minutes does
    not fill the list.
    """
    entries: list[tuple[float, int, int, bool]] = []
    for video, coarse in enumerate(clips):
        rim = np.pad(coarse, 1, constant_values=-np.inf)
        is_peak = (coarse >= rim[:-2]) & (coarse > rim[2:])
        entries += [(-score, video, clip, peak) for clip, (score, peak) in enumerate(zip(coarse, is_peak))]
    by_score = sorted(entries, key=lambda entry: entry[0])
    order = sorted(enumerate(by_score, 1), key=lambda place: place[0] * (1 if place[1][3] else 2))
    return [(video, clip) for _, (_, video, clip, _) in order]


def picture_tokens(model: Model, width: int, height: int) -> tuple[slice, slice]:
    """Rows and columns of the tokens that show the picture, not only padding."""
    box = model.letterbox(width, height)
    rows, columns = box.canvas_height // model.patch, box.canvas_width // model.patch
    top, high = extent(box.top, box.content_height, box.canvas_height, rows)
    left, wide = extent(box.left, box.content_width, box.canvas_width, columns)
    return slice(top, top + high), slice(left, left + wide)


def extent(offset_px: int, content_px: int, canvas_px: int, cells: int) -> tuple[int, int]:
    """The first cell that is not padding, and the number of such cells."""
    first = math.floor(offset_px / canvas_px * cells)
    return first, math.ceil((offset_px + content_px) / canvas_px * cells) - first

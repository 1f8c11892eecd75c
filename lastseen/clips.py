"""Hours of video in clips as the model reads them: overlapping by what a frame can see, so that none is blind
at a border."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

# Number of the first frame, its features, first and one past the last frame to keep.
Clip = tuple[int, Tensor, int, int]


def cut(features: Iterable[Tensor], length: int, context: int, at_once: int = 1) -> Iterator[Clip]:
    """Features in pieces of any length -> clips of `length` frames, of which `context` at either border see
    too little and are kept from a neighbour. `at_once` clips in a row come as one run."""
    step = length - 2 * context
    size = length + (at_once - 1) * step
    start = first = 0
    held: list[Tensor] = []
    for piece in features:
        held.append(piece)
        if sum(map(len, held)) < size:
            continue  # joined when there are enough: joining copies them
        joined = torch.cat(held)
        while len(joined) >= size:
            yield start, joined[:size], first, size - context
            start, first, joined = start + at_once * step, context, joined[at_once * step :]
        held = [joined]
    if not held:
        return
    joined = torch.cat(held)
    if len(joined) >= length:
        whole = (len(joined) - length) // step + 1
        size = length + (whole - 1) * step
        yield start, joined[:size], first, size - context
        start, first, joined = start + whole * step, context, joined[whole * step :]
    if len(joined) > first:
        yield start, joined, first, len(joined)

"""Cut a video's features into clips for the model. Clips overlap, so that every frame is kept from a clip in
which its temporal attention is not cut off at the border."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

# Number of the first frame, features, and the range [first, last) of its frames whose predictions are kept.
Clip = tuple[int, Tensor, int, int]


def cut(features: Iterable[Tensor], length: int, context: int, at_once: int = 1) -> Iterator[Clip]:
    """Features in pieces of any length -> clips of `length` frames. Predictions for the `context` frames at a
    border are taken from the neighbouring clip. `at_once` consecutive clips are returned as one run."""
    step = length - 2 * context
    size = length + (at_once - 1) * step
    start = first = 0
    held: list[Tensor] = []
    for piece in features:
        held.append(piece)
        if sum(map(len, held)) < size:
            continue  # concatenated only when there are enough, since that copies
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


class FrameBuffer:
    """Collects boxes and logits in frame order. Allocated once: many small tensors between a clip's large
    ones would fragment the heap over hours of video."""

    def __init__(self, frames: int, device: torch.device) -> None:
        self.boxes, self.logits = torch.empty(frames, 4, device=device), torch.empty(frames, device=device)
        self.count = 0

    def add(self, boxes: Tensor, logits: Tensor) -> None:
        place = slice(self.count, self.count + len(logits))
        self.boxes[place], self.logits[place] = boxes, logits
        self.count = place.stop

"""Toy data: patterned squares that move over a patchwork, to test that training works.

No files and no rendering, so it starts at once; a model trained on it is of no other use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.model import TrainedConfig
from lastseen.model.inputs import normalised
from lastseen.train.batch import Batch


@dataclass(frozen=True, kw_only=True)
class ToyData:
    absent_share: float = 0.2  # of clips in which the thing is not
    least_side: float = 0.2  # of the square, in units of the frame
    largest_side: float = 0.5


@dataclass(frozen=True)
class ToyClips:
    """A source of batches; row i of step s is the same whoever asks for it."""

    data: ToyData
    model: TrainedConfig
    size: int  # clips in a whole batch
    seed: int
    first: int = 0  # the rows made here
    last: int | None = None

    def share(self, first: int, last: int) -> ToyClips:
        return replace(self, first=first, last=last)

    def batch(self, step: int) -> Batch:
        rows = range(self.first, self.size if self.last is None else self.last)
        clips, queries, boxes, visible = zip(*(self._clip(step, row) for row in rows))
        return Batch(
            clips=torch.stack(clips),
            queries=torch.stack(queries),
            boxes_unit=torch.stack(boxes),
            visible=torch.stack(visible),
            unrelated=~torch.eye(len(rows), dtype=torch.bool),  # each row has a pattern of its own
        )

    def _clip(self, step: int, row: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rng = np.random.default_rng([self.seed, step, row])
        size, time = self.model.image_size, self.model.clip_length
        thing = _patchwork(rng, cells=3, size=size)
        shown = _shown(rng, time, absent=rng.random() < self.data.absent_share)
        side = rng.uniform(self.data.least_side, self.data.largest_side)
        start, end = rng.uniform(0, 1 - side, (2, 2))
        way = np.linspace(start, end, time)  # [t, 2] the upper left corner
        corners = torch.from_numpy(np.round(np.concatenate([way, way + side], 1) * size)).int()
        # The backdrop drifts by whole pixels: no two frames are equal, so no two scores tie.
        backdrop, drift = _patchwork(rng, cells=8, size=size) * 0.5, int(rng.integers(1, 8))
        frames = torch.stack([backdrop.roll(drift * frame, -1) for frame in range(time)])
        for frame, (x1, y1, x2, y2), here in zip(frames, corners.tolist(), shown):
            if here:
                frame[:, y1:y2, x1:x2] = F.interpolate(thing[None], (y2 - y1, x2 - x1))[0]
        query = F.interpolate(thing[None], (self.model.query_size,) * 2)
        queries = query.expand(len(self.model.query_scales), -1, -1, -1)  # the thing fills all of them
        return normalised(frames), normalised(queries), corners / size, torch.from_numpy(shown)


def _patchwork(rng: np.random.Generator, cells: int, size: int) -> Tensor:
    """[3, size, size] random colours in [0, 1]"""
    colours = torch.from_numpy(rng.random((1, 3, cells, cells), dtype=np.float32))
    return F.interpolate(colours, (size, size))[0]


def _shown(rng: np.random.Generator, time: int, absent: bool) -> np.ndarray:
    """bool [time]: one unbroken run, or nothing."""
    length = 0 if absent else int(rng.integers(1, time + 1))
    start = int(rng.integers(0, time - length + 1))
    frames = np.arange(time)
    return (frames >= start) & (frames < start + length)

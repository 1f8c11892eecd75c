"""A few quantized tokens of every frame: enough to choose the clips on which the exact model runs.

    features [n, c, rows, columns] --CompactGrid.pack--> bytes [n, row_bytes] --coarse_scores--> scores [n]

Tokens are sampled, not averaged, since averaging loses small things. The sampling grid shifts from frame to
frame, so some sample hits any thing that is in view for a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.search.ranking import extent

FRAME_BYTES = 27_000  # upper limit: an hour at 5 frames per second (18,000 frames) stays under 500 MB
SCALE_BYTES = 2  # each token has a float16 scale; value = int8 code * scale
STEPS = 0.7548776662466927, 0.5698402909980532  # shift of the sampling grid from frame to frame


class TokenGrid(Protocol):
    """CompactGrid, or SmallGrid of which all features can be unpacked."""

    @property
    def row_bytes(self) -> int: ...
    def pack(self, vectors: Tensor, first_frame: int) -> np.ndarray:
        """Unit vectors [n, channels, all rows, all columns] -> [n, row_bytes] uint8"""

    def similarity(self, packed: np.ndarray, vectors: Tensor, first_frame: int) -> Tensor:
        """[n, row_bytes] uint8, vectors [k, channels] -> cosines with tokens of each frame [n, tokens, k]"""


@dataclass(frozen=True)
class CompactGrid:
    """Which tokens of a frame are kept: `kept_rows` x `kept_columns` of those not in the padding."""

    channels: int
    top: int
    left: int
    rows: int
    columns: int
    kept_rows: int
    kept_columns: int

    @classmethod
    def fitting(cls, channels: int, rows: int, columns: int, letterbox: Letterbox) -> CompactGrid:
        """The densest grid within FRAME_BYTES; the padding around the picture is left out."""
        top, height = extent(letterbox.top, letterbox.content_height, letterbox.canvas_height, rows)
        left, width = extent(letterbox.left, letterbox.content_width, letterbox.canvas_width, columns)
        tokens = max(1, FRAME_BYTES // (channels + SCALE_BYTES))
        kept_rows = min(height, max(1, math.floor(height * math.sqrt(tokens / (height * width)))))
        return cls(channels, top, left, height, width, kept_rows, min(width, max(1, tokens // kept_rows)))

    @property
    def tokens(self) -> int:
        return self.kept_rows * self.kept_columns

    @property
    def row_bytes(self) -> int:
        return self.tokens * (self.channels + SCALE_BYTES)

    def pack(self, vectors: Tensor, first_frame: int) -> np.ndarray:
        """[n, channels, all rows, all columns] of frames from `first_frame` on -> [n, row_bytes] uint8"""
        picked = self._picked(vectors, first_frame)
        scales = (picked.abs().amax(-1) / 127).clamp(min=6e-8).half()  # positive also in float16
        codes = (picked / scales[..., None].float()).round().clamp(-127, 127).to(torch.int8)
        parts = (codes.flatten(1).cpu().numpy().view(np.uint8), scales.cpu().numpy().view(np.uint8))
        return np.concatenate(parts, 1)

    def similarity(self, packed: np.ndarray, vectors: Tensor, first_frame: int = 0) -> Tensor:
        """[n, row_bytes] uint8, vectors [k, channels] -> dot products with every token [n, tokens, k]

        Computed on the device of `vectors`."""
        split, device = self.tokens * self.channels, vectors.device
        codes = torch.from_numpy(np.array(packed[:, :split]).view(np.int8)).to(device).float()
        scales = torch.from_numpy(np.array(packed[:, split:]).view(np.float16)).to(device).float()
        codes = codes.view(-1, self.tokens, self.channels)
        return (codes @ vectors.T) * scales[..., None]  # scaled last: codes have six times as many elements

    def _picked(self, vectors: Tensor, first_frame: int) -> Tensor:
        """[n, channels, all rows, all columns] -> [n, tokens, channels]; the grid shifts with the frame."""
        frames = range(first_frame, first_frame + len(vectors))
        rows = torch.stack([_places(self.rows, self.kept_rows, n * STEPS[0] % 1.0) for n in frames])
        columns = torch.stack([_places(self.columns, self.kept_columns, n * STEPS[1] % 1.0) for n in frames])
        rows, columns = (self.top + rows).to(vectors.device), (self.left + columns).to(vectors.device)
        number = torch.arange(len(vectors), device=vectors.device)[:, None, None]
        return vectors[number, :, rows[:, :, None], columns[:, None, :]].flatten(1, 2).float()


def coarse_scores(
    grid: TokenGrid, packed: np.ndarray, first_frame: int, queries: Sequence[Tensor]
) -> np.ndarray:
    """The highest cosine between each query's vectors [k, m] and each frame's tokens: [queries, n]"""
    similarity = grid.similarity(packed, torch.cat(list(queries)).float(), first_frame)
    parts = torch.split_with_sizes(similarity, [len(query) for query in queries], 2)
    return torch.stack([part.amax((1, 2)) for part in parts]).cpu().numpy()


def _places(cells: int, kept: int, shift: float) -> Tensor:
    """Indices of `kept` of `cells` cells, evenly spaced and shifted by `shift` times the spacing."""
    return ((torch.arange(kept) + shift) * (cells / kept)).floor().long().clamp(max=cells - 1)

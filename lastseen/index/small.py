"""All tokens of every frame in a few bits: features to answer from, at a fourteenth of their size.

    features [n, c, rows, columns] --SmallGrid.pack--> bytes [n, row_bytes] --unpack--> features, nearly

Only patches that show the picture are kept. Padding is nearly the same in all frames: in its place come mean
vectors, by the distance from the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.model.token_basis import BLOCK_BYTES, SIDE, TokenBasis
from lastseen.search.ranking import extent

# Of unpacked vectors. Lost digits make products with what is alike smaller: with unit vectors the scores
# of sightings would be too low. Of 1 to 1.04 this keeps the peaks of five questions of real_dev best.
LENGTH = 1.03


@dataclass(frozen=True)
class SmallGrid:
    """`rows` x `columns` tokens from (top, left) on, of a frame's `all_rows` x `all_columns`."""

    basis: TokenBasis
    top: int
    left: int
    rows: int
    columns: int
    all_rows: int
    all_columns: int

    @classmethod
    def fitting(cls, basis: TokenBasis, rows: int, columns: int, letterbox: Letterbox) -> SmallGrid:
        top, height = extent(letterbox.top, letterbox.content_height, letterbox.canvas_height, rows)
        left, width = extent(letterbox.left, letterbox.content_width, letterbox.canvas_width, columns)
        return cls(basis, top, left, height, width, rows, columns)

    @property
    def blocks(self) -> tuple[int, int]:
        """Rows and columns of blocks; the last ones may hold patches twice."""
        return -(-self.rows // SIDE), -(-self.columns // SIDE)

    @property
    def row_bytes(self) -> int:
        down, across = self.blocks
        return down * across * BLOCK_BYTES

    def pack(self, vectors: Tensor, first_frame: int) -> np.ndarray:
        """[n, channels, all rows, all columns] -> [n, row_bytes] uint8"""
        down, across = self.blocks
        shown = vectors[:, :, self.top : self.top + self.rows, self.left : self.left + self.columns].float()
        filled = F.pad(shown, (0, SIDE * across - self.columns, 0, SIDE * down - self.rows), "replicate")
        blocks = rearrange(filled, "n c (y v) (x u) -> n y x (v u) c", v=SIDE, u=SIDE)
        return self.basis.encode(blocks).reshape(len(vectors), -1)

    def unpack(self, packed: np.ndarray) -> Tensor:
        """[n, row_bytes] uint8 -> vectors [n, channels, all rows, all columns]"""
        vectors = LENGTH * self.basis.decode(self._blocks(packed))
        filled = rearrange(vectors, "n y x (v u) c -> n c (y v) (x u)", v=SIDE, u=SIDE)
        features = self._padding.repeat(len(packed), 1, 1, 1)
        shown = features[:, :, self.top : self.top + self.rows, self.left : self.left + self.columns]
        shown.copy_(filled[:, :, : self.rows, : self.columns])
        return features

    @cached_property
    def _padding(self) -> Tensor:
        """[channels, all rows, all columns] mean vectors; those of the picture's patches mean nothing."""
        near = self.basis.padding
        rows, columns = (
            torch.tensor([_outside(place, first, first + count) for place in range(every)])
            for first, count, every in (
                (self.top, self.rows, self.all_rows),
                (self.left, self.columns, self.all_columns),
            )
        )
        beside = torch.where(rows[:, None] != 0, rows[:, None], columns[None, :])
        distance = (beside.abs() - 1).clamp(0, near.shape[1] - 1)
        return near[(beside > 0).long(), distance].permute(2, 0, 1).contiguous()

    def similarity(self, packed: np.ndarray, vectors: Tensor, first_frame: int) -> Tensor:
        """[n, row_bytes] uint8, unit vectors [k, channels] -> cosines with a quarter of the tokens [n, t, k]

        Which quarter shifts from frame to frame, so that four frames show all."""
        blocks, parts = self._blocks(packed), []
        for number, frame in enumerate(blocks, first_frame):
            parts.append(frame[number % 2 :: 2, number // 2 % 2 :: 2].reshape(-1, BLOCK_BYTES))
        longest = max(map(len, parts))  # an odd number of rows has quarters of different sizes
        some = np.stack([np.concatenate([part, part[:1].repeat(longest - len(part), 0)]) for part in parts])
        return self.basis.cosines(some, vectors).flatten(1, 2)

    def _blocks(self, packed: np.ndarray) -> np.ndarray:
        return np.array(packed).reshape(-1, *self.blocks, BLOCK_BYTES)


def _outside(place: int, first: int, end: int) -> int:
    """Signed distance from the patches [first, end); 0 inside."""
    return min(place - first, 0) + max(place - end + 1, 0)

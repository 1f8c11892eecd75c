"""All tokens of every frame in a few bits: features to answer from, at a fourteenth of their size.

    features [n, c, rows, columns] --SmallGrid.pack--> bytes [n, row_bytes] --unpack--> features, nearly

Only patches that show the picture are kept; padding is unpacked as zeros, which are like nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.model.token_basis import TOKEN_BYTES, TokenBasis
from lastseen.search.ranking import extent


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
    def row_bytes(self) -> int:
        return self.rows * self.columns * TOKEN_BYTES

    def pack(self, vectors: Tensor, first_frame: int) -> np.ndarray:
        """[n, channels, all rows, all columns] -> [n, row_bytes] uint8"""
        shown = vectors[:, :, self.top : self.top + self.rows, self.left : self.left + self.columns]
        return self.basis.encode(shown.movedim(1, -1).float()).flatten(1).cpu().numpy()

    def unpack(self, packed: np.ndarray) -> Tensor:
        """[n, row_bytes] uint8 -> unit vectors [n, channels, all rows, all columns], zeros in the padding"""
        vectors = self.basis.decode(self._codes(packed)).movedim(-1, 1)
        features = torch.zeros(len(packed), vectors.shape[1], self.all_rows, self.all_columns)
        features[:, :, self.top : self.top + self.rows, self.left : self.left + self.columns] = vectors
        return features

    def similarity(self, packed: np.ndarray, vectors: Tensor, first_frame: int) -> Tensor:
        """[n, row_bytes] uint8, unit vectors [k, channels] -> cosines with a quarter of the tokens [n, t, k]

        Which quarter shifts from frame to frame, so that four frames show all."""
        codes, parts = self._codes(packed), []
        for number, frame in enumerate(codes, first_frame):
            parts.append(frame[number % 2 :: 2, number // 2 % 2 :: 2].flatten(0, 1))
        longest = max(map(len, parts))  # an odd number of rows has quarters of different sizes
        some = torch.stack([torch.cat([part, part[:1].expand(longest - len(part), -1)]) for part in parts])
        return self.basis.cosines(some.to(vectors.device), vectors)

    def _codes(self, packed: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(packed)).view(-1, self.rows, self.columns, TOKEN_BYTES)

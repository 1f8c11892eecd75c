"""Prompt encoder of Segment Anything, for boxes: two tokens for two corners.

Kirillov et al., "Segment Anything", 2023. Parameter names are those of the published checkpoints. Points and
masks as prompts are left out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class FourierPositions(nn.Module):
    """Random Fourier features of points in the unit square."""

    positional_encoding_gaussian_matrix: Tensor  # [2, dim / 2]

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("positional_encoding_gaussian_matrix", torch.randn(2, dim // 2))

    def forward(self, points: Tensor) -> Tensor:
        """[..., 2] x and y -> [..., dim]"""
        angles = 2 * math.pi * (2 * points - 1) @ self.positional_encoding_gaussian_matrix
        return torch.cat([angles.sin(), angles.cos()], -1)

    def grid(self, rows: int, columns: int) -> Tensor:
        """Of the centres of a grid's cells: [1, dim, rows, columns]"""
        matrix = self.positional_encoding_gaussian_matrix
        down, across = ((torch.arange(n).to(matrix) + 0.5) / n for n in (rows, columns))
        points = torch.stack(torch.meshgrid(across, down, indexing="xy"), -1)
        return self(points).permute(2, 0, 1)[None]


class PromptEncoder(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.pe_layer = FourierPositions(dim)
        # Background point, foreground point, upper left corner, lower right corner; the last two are used.
        self.point_embeddings = nn.ModuleList(nn.Embedding(1, dim) for _ in range(4))
        self.no_mask_embed = nn.Embedding(1, dim)

    def forward(self, boxes_unit: Tensor) -> Tensor:
        """Boxes [n, 4] in the unit square of the canvas -> tokens [n, 2, dim]"""
        corners = self.pe_layer(boxes_unit.view(-1, 2, 2))
        which = torch.zeros(1, dtype=torch.long, device=corners.device)
        return corners + torch.cat([corner(which) for corner in self.point_embeddings[2:]])

"""Prediction heads: from propagated features to boxes and logits on every frame."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn

from lastseen.model.correspondence import conv_block
from lastseen.model.propagation import GRID

ANCHOR_SIZES_PX = (16.0, 32.0, 64.0, 128.0)
ANCHOR_RATIOS = (0.5, 1.0, 2.0)  # height / width


class Predictions(NamedTuple):
    """The model's output for each frame; n candidates a frame (one without anchors).

    | boxes  | [b, t, n, 4] | x1 y1 x2 y2 in the unit square of the padded frame |
    | logits | [b, t, n]    | higher: the query is there                         |
    """

    boxes: Tensor
    logits: Tensor

    def best(self) -> Predictions:
        """The most likely candidate of each frame: boxes [b, t, 4], logits [b, t]."""
        logits, choice = self.logits.max(-1)
        boxes = self.boxes.take_along_dim(choice[..., None, None], 2).squeeze(2)
        return Predictions(boxes, logits)


def make_anchors(grid: int, image_size: int) -> Tensor:
    """[grid * grid * 12, 4] centre row, centre column, height, width, in units of the image.

    Order: row, column, size, ratio. Not clipped at the border.
    """
    centres = (torch.arange(grid) + 0.5) / grid
    size = torch.tensor(ANCHOR_SIZES_PX)[:, None] / image_size
    ratio = torch.tensor(ANCHOR_RATIOS)
    width = (size**2 / ratio).sqrt()
    shapes = torch.stack([ratio * width, width], -1).flatten(0, 1)  # [12, 2]
    rows, columns = torch.meshgrid(centres, centres, indexing="ij")
    centre = torch.stack([rows, columns], -1).reshape(-1, 1, 2).expand(-1, len(shapes), -1)
    return torch.cat([centre, shapes.expand(len(centre), -1, -1)], -1).flatten(0, 1)


def corners(boxes_yxhw: Tensor) -> Tensor:
    """Centre row, centre column, height, width -> x1 y1 x2 y2."""
    y, x, h, w = boxes_yxhw.unbind(-1)
    return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)


class AnchorHead(nn.Module):
    """Twelve anchors on each cell of a 16 x 16 grid, refined by addition.

    | in  | [b, t, c, 8, 8], and with `skip` [b, t, c, 16, 16] |
    | out | Predictions with n = 16 * 16 * 12 = 3072          |
    """

    anchors: Tensor

    def __init__(
        self, dim: int = 256, *, grid: int = 2 * GRID, image_size: int = 448, skip: bool = False
    ) -> None:
        super().__init__()
        per_cell = len(ANCHOR_SIZES_PX) * len(ANCHOR_RATIOS)
        self.trunk = Trunk(dim, skip)
        self.box = nn.Conv2d(dim, 4 * per_cell, 3, padding=1)
        self.score = nn.Conv2d(dim, per_cell, 3, padding=1)
        self.register_buffer("anchors", make_anchors(grid, image_size), persistent=False)
        init_near_zero(self.box, self.score)

    def forward(self, *frames: Tensor) -> Predictions:
        batch = len(frames[0])
        for_box, for_score = self.trunk(*(rearrange(x, "b t c h w -> (b t) c h w") for x in frames))
        delta = rearrange(self.box(for_box), "(b t) (a four) h w -> b t (h w a) four", b=batch, four=4)
        logits = rearrange(self.score(for_score), "(b t) a h w -> b t (h w a)", b=batch)
        return Predictions(corners(self.anchors + delta), logits)


class SingleBoxHead(nn.Module):
    """The paper's ablation without anchors: one box and one score a frame, regressed directly.

    Every cell of the grid says how likely the thing is there, and its box from there; the frame's box is the
    mean, by that likelihood. A mean over the grid's features alone would not hold where the thing is.

    | in  | as of AnchorHead          |
    | out | Predictions with n = 1    |
    """

    cells: Tensor

    def __init__(self, dim: int = 256, *, grid: int = 2 * GRID, skip: bool = False) -> None:
        super().__init__()
        self.trunk = Trunk(dim, skip)
        self.box = nn.Conv2d(dim, 4, 3, padding=1)
        self.score = nn.Conv2d(dim, 1, 3, padding=1)
        middles = (torch.arange(grid) + 0.5) / grid
        rows, columns = torch.meshgrid(middles, middles, indexing="ij")
        self.register_buffer("cells", torch.stack([rows, columns], -1).flatten(0, 1), persistent=False)
        init_near_zero(self.box, self.score)

    def forward(self, *frames: Tensor) -> Predictions:
        batch = len(frames[0])
        for_box, for_score = self.trunk(*(rearrange(x, "b t c h w -> (b t) c h w") for x in frames))
        of_cells = rearrange(self.box(for_box), "(b t) four h w -> b t (h w) four", b=batch).float()
        logits = rearrange(self.score(for_score), "(b t) 1 h w -> b t (h w)", b=batch).float()
        where = logits.softmax(-1)[..., None]
        middle = (where * (self.cells.float() + of_cells[..., :2])).sum(2, keepdim=True)
        # Sigmoid: an untrained head predicts the middle of the picture at half its size.
        sides = (where * of_cells[..., 2:]).sum(2, keepdim=True).sigmoid()
        # A soft maximum, 0 where all cells say 0.
        logit = logits.logsumexp(-1, keepdim=True) - math.log(len(self.cells))
        return Predictions(corners(torch.cat([middle, sides], -1)), logit)


def make_head(dim: int, *, anchors: bool, image_size: int, skip: bool = False) -> AnchorHead | SingleBoxHead:
    if anchors:
        return AnchorHead(dim, grid=2 * GRID, image_size=image_size, skip=skip)
    return SingleBoxHead(dim, skip=skip)


class Trunk(nn.Module):
    """Twice the resolution, then one half of the channels for the box and one for the score.

    With `skip` it also takes the frames at that resolution from before propagation.
    """

    def __init__(self, dim: int, skip: bool = False) -> None:
        super().__init__()
        self.enlarge = nn.ConvTranspose2d(dim, dim, 4, stride=2, padding=1)
        if skip:
            self.lateral = nn.Conv2d(dim, dim, 1)
        self.split = conv_block(dim, 2 * dim)
        self.dropout = nn.Dropout(0.2)
        self.for_box = nn.Sequential(*(conv_block(dim, dim) for _ in range(3)))
        self.for_score = nn.Sequential(*(conv_block(dim, dim) for _ in range(3)))

    def forward(self, frames: Tensor, skipped: Tensor | None = None) -> tuple[Tensor, Tensor]:
        larger = self.enlarge(frames) if skipped is None else self.enlarge(frames) + self.lateral(skipped)
        box_half, score_half = self.split(larger).chunk(2, 1)
        return self.for_box(self.dropout(box_half)), self.for_score(self.dropout(score_half))


def init_near_zero(*layers: nn.Conv2d | nn.Linear) -> None:
    for layer in layers:
        nn.init.normal_(layer.weight, std=1e-6)
        if layer.bias is not None:
            nn.init.normal_(layer.bias, std=1e-6)

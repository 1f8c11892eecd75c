"""Boxes as tensors: overlaps, deltas to anchors, and non-maximum suppression in batches."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST_LOG_SCALE = math.log(1000 / 16)  # of a delta: keeps exp() finite


def areas(boxes: Tensor) -> Tensor:
    """[.., 4] x1 y1 x2 y2 -> [..]; 0 for inverted boxes"""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def intersections(boxes: Tensor, others: Tensor) -> Tensor:
    """[.., n, 4] and [.., m, 4] -> [.., n, m]"""
    x1, y1, x2, y2 = (boxes[..., side, None] for side in range(4))
    left, top, right, bottom = (others[..., None, :, side] for side in range(4))
    across = (torch.minimum(x2, right) - torch.maximum(x1, left)).clamp_(min=0)
    return across.mul_((torch.minimum(y2, bottom) - torch.maximum(y1, top)).clamp_(min=0))


def pairwise_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """[.., n, 4] and [.., m, 4] -> [.., n, m]"""
    common = intersections(boxes, others)
    union = areas(boxes)[..., :, None] + areas(others)[..., None, :] - common
    return common / union.clamp(min=1e-12)


def deltas_of(boxes: Tensor, anchors: Tensor) -> Tensor:
    """What moves anchors [.., 4] onto boxes [.., 4]: shift of the centre in units of the anchor's sides, and
    logarithms of the ratios of sides."""
    size, anchor_size = boxes[..., 2:] - boxes[..., :2], anchors[..., 2:] - anchors[..., :2]
    shift = (boxes[..., :2] + boxes[..., 2:] - anchors[..., :2] - anchors[..., 2:]) / 2 / anchor_size
    return torch.cat([shift, (size / anchor_size).log()], -1)


def moved(anchors: Tensor, deltas: Tensor) -> Tensor:
    """The inverse of `deltas_of`."""
    anchor_size = anchors[..., 2:] - anchors[..., :2]
    centre = (anchors[..., :2] + anchors[..., 2:]) / 2 + deltas[..., :2] * anchor_size
    half = anchor_size * deltas[..., 2:].clamp(max=LARGEST_LOG_SCALE).exp() / 2
    return torch.cat([centre - half, centre + half], -1)


def suppressed(boxes: Tensor, iou: float) -> Tensor:
    """Greedy non-maximum suppression of boxes [.., n, 4] in descending order of score -> bool [.., n] kept

    Greedy suppression is the only fixed point of "a box is kept unless a kept box before it overlaps it": the
    first k answers are right after k rounds at the latest, and mostly all of them after a few.
    """
    shape, count = boxes.shape[:-2], boxes.shape[-2]
    if not boxes.numel():
        return torch.ones(*shape, count, dtype=torch.bool, device=boxes.device)
    boxes = boxes.reshape(-1, count, 4)
    earlier = torch.ones(count, count, dtype=torch.bool, device=boxes.device).triu(1)
    covers = ((pairwise_iou(boxes, boxes) > iou) & earlier).to(boxes.dtype)
    kept = torch.ones(len(boxes), 1, count, dtype=boxes.dtype, device=boxes.device)
    for _ in range(count):
        new = (torch.bmm(kept, covers) == 0).to(kept.dtype)
        if torch.equal(new, kept):
            break
        kept = new
    return kept[:, 0].bool().reshape(*shape, count)


def nms(boxes: Tensor, scores: Tensor, iou: float) -> Tensor:
    """Boxes [n, 4] and scores [n] -> indices of those that are kept, by descending score. Of equal scores the
    first box ranks first."""
    order = scores.argsort(descending=True, stable=True)
    return order[suppressed(boxes[order].float(), iou)]

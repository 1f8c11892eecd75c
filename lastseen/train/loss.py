"""The paper's losses: assignment of candidates, box terms and score terms.

Everything is a sum divided by a count that depends on the labels alone. So the counts of a whole step
are known before it is computed, and splitting it over processes or turns changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.model.head import Predictions
from lastseen.train.batch import Batch

SCORE_LOSSES = ("hnm", "focal", "bce")
# In the IoU of the GIoU term, as in the published losses; boxes of no area then cost something finite.
LEAST_AREA = 1e-6


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """The paper's by default. The published code: score "focal", score_weight 100."""

    score: str = "hnm"  # hard negative mining; or "focal", or plain "bce"
    score_weight: float = 1.0
    giou_weight: float = 0.3
    positive_iou: float = 0.2  # an anchor with a higher IoU with the ground truth is positive
    fallback: int = 5  # positive anchors of a frame in which none has that IoU: small and huge things
    negatives_per_positive: int = 3
    least_negatives: int = 48  # for a query whose clip does not show its thing
    consistency_weight: float = 0.0  # of how far answers to two pictures of one thing differ (query swap)

    def __post_init__(self) -> None:
        if self.score not in SCORE_LOSSES:
            raise ValueError(f"score must be one of {', '.join(SCORE_LOSSES)}, got {self.score!r}")


class Targets(NamedTuple):
    """The labels of a batch, for n candidates a frame and m mined frames a query.

    | boxes_unit | [b, t, 4]                                                      |
    | positive   | bool [b, t, n] candidates that should find the thing           |
    | counted    | bool [b, t] frames whose scores count                          |
    | mined      | bool [b, m] mined frames that count; all are negative          |
    | swapped    | bool [b] rows that ask what the row before asks, or None       |

    `Chosen` is what follows from them.
    """

    boxes_unit: Tensor
    positive: Tensor
    counted: Tensor
    mined: Tensor
    swapped: Tensor | None = None


class Chosen(NamedTuple):
    """Which scores and boxes of a batch count. Their number is read from the GPU: `choose` does so before the
    forward pass, since later the read would wait for all of it.

    | positive  | three of [p] rows, frames and candidates that should find the thing                      |
    | negatives | two of [h] rows, and places among their row's hardest negatives; None without "hnm"        |
    | hardest   | how many negatives of a row are wanted at most                                           |
    """

    positive: tuple[Tensor, ...]
    negatives: tuple[Tensor, ...] | None
    hardest: int


class Losses(NamedTuple):
    """`total` is what to minimise; the rest its parts, before their weights."""

    total: Tensor
    centre: Tensor
    size: Tensor
    giou: Tensor
    score: Tensor
    consistency: Tensor


def label(batch: Batch, anchors: Tensor | None, config: LossConfig, mined: Tensor | None = None) -> Targets:
    """`anchors` [n, 4] x1 y1 x2 y2; None for a head with one box a frame, which must find the thing."""
    counted = torch.ones_like(batch.visible) if batch.known is None else batch.known
    visible = batch.visible & counted
    positive = (
        visible[..., None]
        if anchors is None
        else assign(
            batch.boxes_unit, visible, anchors, positive_iou=config.positive_iou, fallback=config.fallback
        )
    )
    if mined is None:
        mined = visible.new_zeros(len(visible), 0)
    return Targets(batch.boxes_unit, positive, counted, mined, batch.swapped)


def assign(
    boxes_unit: Tensor, visible: Tensor, anchors: Tensor, *, positive_iou: float = 0.2, fallback: int = 5
) -> Tensor:
    """Boxes [b, t, 4], visible [b, t], anchors [n, 4] -> bool [b, t, n].

    A visible frame without any anchor above `positive_iou` gets its `fallback` best: by overlap, and by the
    distance of the centres where overlaps are equal (none at all, or several anchors around a small thing).
    """
    overlap = iou(anchors, boxes_unit[..., None, :])
    positive = (overlap > positive_iou) & visible[..., None]
    without = (visible & ~positive.any(-1)).nonzero(as_tuple=True)  # as indices: one read from the GPU
    if fallback and len(without[0]):
        distance = (centres(anchors) - centres(boxes_unit[without])[:, None]).square().sum(-1)
        nearest = distance.argsort(dim=-1, stable=True)
        by_overlap = overlap[without].gather(-1, nearest).argsort(dim=-1, descending=True, stable=True)
        best = nearest.gather(-1, by_overlap[:, :fallback])
        positive[without] = torch.zeros_like(positive[without]).scatter(-1, best, True)
    return positive


def assign_published(
    boxes_unit: Tensor, visible: Tensor, anchors: Tensor, *, positive_iou: float = 0.2, fallback: int = 5
) -> Tensor:
    """The published rule: only a batch without any positive has a fallback, its best anchors of all."""
    overlap = iou(anchors, boxes_unit[..., None, :])
    positive = (overlap > positive_iou) & visible[..., None]
    if visible.any() and not positive.any():
        best = overlap.masked_fill(~visible[..., None], -1.0).flatten().topk(fallback).indices
        positive.view(-1)[best] = True
    return positive & visible[..., None]


def count(targets: Targets, config: LossConfig) -> Tensor:
    """[2] how many boxes and how many scores are averaged over; add them up over the whole step."""
    boxes = targets.positive.sum()
    if config.score == "hnm":
        scores = boxes + negatives_wanted(targets, config).sum()
    else:
        scores = targets.counted.sum() * targets.positive.shape[-1]
    return torch.stack([boxes, scores]).double()


def choose(targets: Targets, config: LossConfig) -> Chosen:
    positive = targets.positive.nonzero(as_tuple=True)
    if config.score != "hnm":
        return Chosen(positive, None, 0)
    wanted = negatives_wanted(targets, config)
    hardest = int(wanted.max())
    ranks = torch.arange(hardest, device=wanted.device)
    return Chosen(positive, (ranks < wanted[:, None]).nonzero(as_tuple=True), hardest)


def losses(
    predictions: Predictions,
    mined_logits: Tensor | None,
    targets: Targets,
    counts: Tensor,
    config: LossConfig,
    chosen: Chosen | None = None,
) -> Losses:
    """This part's share of the losses of the step that `counts` is of: shares add up.

    `mined_logits` [b, m, n] are what the model says of each query on frames of other videos; `chosen` is that
    of `choose`, if it is known already.
    """
    chosen = choose(targets, config) if chosen is None else chosen
    positive = chosen.positive
    # Nothing visible in the whole step: the box terms are zero, not a division by it.
    boxes, scores = counts.clamp(min=1.0)
    found, truth = at_least_float(predictions.boxes[positive]), targets.boxes_unit[positive[:2]]
    terms = box_terms(found, truth).sum(0) / boxes
    logits = at_least_float(predictions.logits)
    if config.score == "hnm":
        others = None if mined_logits is None else at_least_float(mined_logits)
        score = hard_negative_sum(logits, others, targets, chosen) / scores
    else:
        each = bce if config.score == "bce" else focal
        score = each(logits, targets.positive)[targets.counted].sum() / scores
    centre, size, giou_term = terms
    total = centre + size + config.giou_weight * giou_term + config.score_weight * score
    consistency = torch.zeros_like(score)
    if config.consistency_weight and targets.swapped is not None:
        consistency = disagreement(logits, targets) / scores
        total = total + config.consistency_weight * consistency
    return Losses(total, centre, size, giou_term, score, consistency)


def at_least_float(tensor: Tensor) -> Tensor:
    """Half precision is too coarse for losses; double stays double."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


# --- Boxes --------------------------------------------------------------------------------------


def box_terms(boxes: Tensor, truth: Tensor) -> Tensor:
    """[n, 4] and [n, 4] x1 y1 x2 y2 -> [n, 3]: L1 of the centre, L1 of half the sides, 1 - GIoU."""
    centre = (centres(boxes) - centres(truth)).abs().mean(-1)
    size = (sides(boxes) - sides(truth)).abs().mean(-1) / 2
    return torch.stack([centre, size, 1 - giou(boxes, truth)], -1)


def centres(boxes: Tensor) -> Tensor:
    return (boxes[..., :2] + boxes[..., 2:]) / 2


def sides(boxes: Tensor) -> Tensor:
    return boxes[..., 2:] - boxes[..., :2]


def iou(boxes: Tensor, others: Tensor) -> Tensor:
    """[.., 4] and [.., 4], broadcast -> [..]"""
    overlap, union = _overlap_and_union(boxes, others)
    return overlap / union.clamp(min=1e-12)


def giou(boxes: Tensor, others: Tensor) -> Tensor:
    # A refined anchor may have a negative side; it is the box between its corners all the same.
    first, second = boxes[..., :2], boxes[..., 2:]
    boxes = torch.cat([torch.minimum(first, second), torch.maximum(first, second)], -1)
    overlap, union = _overlap_and_union(boxes, others)
    low = torch.minimum(boxes[..., :2], others[..., :2])
    hull = (torch.maximum(boxes[..., 2:], others[..., 2:]) - low).prod(-1)
    return overlap / (union + LEAST_AREA) - (hull - union) / hull.clamp(min=1e-12)


def _overlap_and_union(boxes: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    low = torch.maximum(boxes[..., :2], others[..., :2])
    high = torch.minimum(boxes[..., 2:], others[..., 2:])
    overlap = (high - low).clamp(min=0).prod(-1)
    return overlap, sides(boxes).prod(-1) + sides(others).prod(-1) - overlap


# --- Scores -------------------------------------------------------------------------------------


def bce(logits: Tensor, positive: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, positive.to(logits.dtype), reduction="none")


def focal(logits: Tensor, positive: Tensor, *, alpha: float = 0.75, gamma: float = 2.0) -> Tensor:
    """Focal loss: less weight for easy examples; `alpha` for positives, 1 - alpha for negatives."""
    each = bce(logits, positive)
    return torch.where(positive, alpha, 1 - alpha) * (1 - torch.exp(-each)) ** gamma * each


def negatives_wanted(targets: Targets, config: LossConfig) -> Tensor:
    """[b] how many of the hardest negatives each query learns from."""
    candidates = targets.positive.shape[-1]
    positives = targets.positive.sum((1, 2))
    there = (targets.counted.sum(1) + targets.mined.sum(1)) * candidates - positives
    wanted = (config.negatives_per_positive * positives).clamp(min=config.least_negatives)
    return torch.minimum(wanted, there)


def hard_negative_sum(
    logits: Tensor, mined_logits: Tensor | None, targets: Targets, chosen: Chosen
) -> Tensor:
    """BCE summed over all positives and each query's hardest negatives, of its own and of mined frames."""
    pool = logits.masked_fill(targets.positive | ~targets.counted[..., None], -torch.inf).flatten(1)
    if mined_logits is not None:
        others = mined_logits.masked_fill(~targets.mined[..., None], -torch.inf).flatten(1)
        pool = torch.cat([pool, others], 1)
    # A negative's BCE grows with its logit, so the highest logits are the hardest.
    hardest = pool.topk(chosen.hardest, 1).values[chosen.negatives]
    return F.softplus(hardest).sum() + F.softplus(-logits[chosen.positive]).sum()


def disagreement(logits: Tensor, targets: Targets) -> Tensor:
    """Symmetric Kullback-Leibler divergence of scores, summed over rows that ask the same with two pictures.

    Candidates that both rows find impossible add nothing, however far apart their logits are.
    """
    assert targets.swapped is not None
    one, other = logits[:-1], logits[1:]
    apart = (one.sigmoid() - other.sigmoid()) * (one - other)
    counts = (targets.counted[:-1] & targets.counted[1:] & targets.swapped[1:, None])[..., None]
    return (apart * counts).sum()

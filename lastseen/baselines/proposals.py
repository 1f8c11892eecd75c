"""The region proposal network: boxes that may hold a thing, whatever it is, blind to the query.

Pyramid --RegionProposals--> objectness and deltas of anchors --propose--> the best boxes of each frame
Sizes and thresholds are those of the originals (detectron2's), in units of the picture's longer edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.baselines.boxes import areas, deltas_of, intersections, moved, pairwise_iou, suppressed
from lastseen.baselines.pyramid import Pyramid

OFFICIAL_LONGER_PX = 1333
# Anchors of each level of the pyramid; the originals have one size on each of five levels.
ANCHOR_SIZES_PX = ((32, 64), (128, 256), (512,))  # of OFFICIAL_LONGER_PX
ANCHOR_RATIOS = (0.5, 1.0, 2.0)  # height / width
BEFORE_NMS = 1000  # of each level
NMS_IOU = 0.7
LEAST_SIDE = 1e-3  # smaller boxes are no proposals

SAMPLED_ANCHORS, POSITIVE_SHARE = 256, 0.5  # of a picture, when training
POSITIVE_IOU, NEGATIVE_IOU = 0.7, 0.3
IGNORED_SHARE = 0.5  # of an anchor inside a thing that is too small or too hidden to be learned


class Proposals(NamedTuple):
    """| boxes  | [n, k, 4] in the unit square, by descending logit                         |
    | logits | [n, k] of objectness; -inf where a frame has fewer than k proposals      |
    """

    boxes: Tensor
    logits: Tensor


class AnchorScores(NamedTuple):
    """| logits  | [n, a] of all anchors, level by level |
    | deltas  | [n, a, 4]                               |
    | anchors | [a, 4] in the unit square               |
    | levels  | anchors of each level                   |
    """

    logits: Tensor
    deltas: Tensor
    anchors: Tensor
    levels: tuple[int, ...]


class RegionProposals(nn.Module):
    """One 3x3 convolution for all levels; objectness and deltas of the level's anchors."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        per_cell = [len(sizes) * len(ANCHOR_RATIOS) for sizes in ANCHOR_SIZES_PX]
        self.objectness = nn.ModuleList(nn.Conv2d(channels, count, 1) for count in per_cell)
        self.deltas = nn.ModuleList(nn.Conv2d(channels, 4 * count, 1) for count in per_cell)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, pyramid: Pyramid) -> AnchorScores:
        logits, deltas, anchors = [], [], []
        for number, features in enumerate(pyramid):
            mixed = F.relu(self.conv(features))
            logits.append(rearrange(self.objectness[number](mixed), "n a h w -> n (h w a)"))
            deltas.append(rearrange(self.deltas[number](mixed), "n (a four) h w -> n (h w a) four", four=4))
            rows, columns = features.shape[2:]
            anchors.append(anchors_of(rows, columns, ANCHOR_SIZES_PX[number]).to(features.device))
        return AnchorScores(
            torch.cat(logits, 1).float(),
            torch.cat(deltas, 1).float(),
            torch.cat(anchors),
            tuple(map(len, anchors)),
        )

    def propose(self, pyramid: Pyramid, count: int) -> Proposals:
        return best_proposals(self(pyramid), count)


def anchors_of(rows: int, columns: int, sizes_px: Sequence[int]) -> Tensor:
    """[rows * columns * sizes * ratios, 4] in the unit square, which is that of a square picture"""
    size = torch.tensor(sizes_px)[:, None] / OFFICIAL_LONGER_PX
    ratio = torch.tensor(ANCHOR_RATIOS)
    width = (size / ratio.sqrt()).flatten()
    height = (size * ratio.sqrt()).flatten()
    half = torch.stack([width, height], -1) / 2
    y, x = torch.meshgrid(
        (torch.arange(rows) + 0.5) / rows, (torch.arange(columns) + 0.5) / columns, indexing="ij"
    )
    centre = torch.stack([x, y], -1).reshape(-1, 1, 2)
    return torch.cat([centre - half, centre + half], -1).flatten(0, 1)


def best_proposals(scored: AnchorScores, count: int) -> Proposals:
    """The best anchors of each level, moved by their deltas and cut off at the border; overlapping ones of a
    level are suppressed; then the best of all levels."""
    boxes, logits = [], []
    levels = list(scored.levels)
    parts = (torch.split(part, levels, 1) for part in (scored.logits, scored.deltas))
    for of_level, deltas, anchors in zip(*parts, torch.split(scored.anchors, levels)):
        top, order = of_level.sort(dim=1, descending=True, stable=True)
        top, order = top[:, :BEFORE_NMS], order[:, :BEFORE_NMS]
        found = moved(anchors[order], deltas.gather(1, order[..., None].expand(-1, -1, 4))).clamp(0, 1)
        fits = ((found[..., 2:] - found[..., :2]) > LEAST_SIDE).all(-1)
        # A box of no area covers nothing, so it suppresses none.
        found = torch.where(fits[..., None], found, 0.0)
        kept = suppressed(found, NMS_IOU) & fits
        boxes.append(found)
        logits.append(top.masked_fill(~kept, -torch.inf))
    every, order = torch.cat(logits, 1).sort(dim=1, descending=True, stable=True)
    order = order[:, :count, None].expand(-1, -1, 4)
    return _filled(Proposals(torch.cat(boxes, 1).gather(1, order), every[:, :count]), count)


def _filled(proposals: Proposals, count: int) -> Proposals:
    """Small pictures have fewer anchors than `count`."""
    missing = count - proposals.logits.shape[1]
    if missing <= 0:
        return proposals
    return Proposals(
        F.pad(proposals.boxes, (0, 0, 0, missing)), F.pad(proposals.logits, (0, missing), value=-torch.inf)
    )


class AnchorLabels(NamedTuple):
    """| positive | bool [n, a] should find a thing        |
    | negative | bool [n, a] should find none           |
    | targets  | [n, a, 4] deltas, where positive        |
    """

    positive: Tensor
    negative: Tensor
    targets: Tensor


def label_anchors(anchors: Tensor, things: Sequence[Tensor], ignored: Sequence[Tensor]) -> AnchorLabels:
    """Anchors [a, 4]; for each picture the boxes of its things [t, 4], and of what is neither a thing to
    learn nor background [i, 4]."""
    positive, negative, targets = [], [], []
    for boxes, others in zip(things, ignored):
        if len(boxes):
            overlap = pairwise_iou(anchors, boxes)
            best, which = overlap.max(1)
            is_best = (overlap == overlap.amax(0).clamp(min=1e-6)).any(1)  # each thing has an anchor
            positive.append((best >= POSITIVE_IOU) | is_best)
            negative.append((best < NEGATIVE_IOU) & ~is_best)
            targets.append(deltas_of(boxes[which], anchors))
        else:
            positive.append(torch.zeros(len(anchors), dtype=torch.bool, device=anchors.device))
            negative.append(torch.ones_like(positive[-1]))
            targets.append(torch.zeros_like(anchors))
        if len(others):
            inside = intersections(anchors, others).amax(1) / areas(anchors)
            negative[-1] &= inside < IGNORED_SHARE
    return AnchorLabels(torch.stack(positive), torch.stack(negative), torch.stack(targets))


def proposal_loss(scored: AnchorScores, labels: AnchorLabels, generator: torch.Generator) -> Tensor:
    """BCE of objectness and L1 of deltas of a random sample of each picture's anchors."""
    most = int(SAMPLED_ANCHORS * POSITIVE_SHARE)
    positive = _sample(labels.positive, torch.full_like(labels.positive.sum(1), most), generator)
    negative = _sample(labels.negative, SAMPLED_ANCHORS - positive.sum(1), generator)
    chosen = positive | negative
    score = F.binary_cross_entropy_with_logits(
        scored.logits[chosen], positive[chosen].float(), reduction="sum"
    )
    box = (scored.deltas[positive] - labels.targets[positive]).abs().sum()
    return (score + box) / (SAMPLED_ANCHORS * len(scored.logits))


def _sample(among: Tensor, count: Tensor, generator: torch.Generator) -> Tensor:
    """Up to `count` [n] of those that are True in each row [n, a]."""
    drawn = torch.rand(among.shape, generator=generator, device=among.device).masked_fill(~among, 2.0)
    rank = drawn.argsort(1).argsort(1)
    return among & (rank < count[:, None])


def recall(found: Tensor, truth: Tensor, iou: float = 0.5) -> Tensor:
    """Proposals [k, 4] and true boxes [t, 4] -> bool [t] whether one of the proposals is right"""
    if not len(found):
        return torch.zeros(len(truth), dtype=torch.bool, device=truth.device)
    return (pairwise_iou(truth, found) >= iou).any(1)

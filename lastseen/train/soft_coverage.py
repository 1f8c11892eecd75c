"""Soft coverage in the backbone stage: a query's patches are found close together, and nowhere else."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.train.pairs import RIGHT, WRONG

SHARPNESS = 15.0  # of the soft maximum in a window
SIDES = (3, 5, 9)  # patches along one side of a window


def soft_coverage(cosine: Tensor) -> Tensor:
    """Cosines [.., k, h, w] of a query's k patches with those of a frame -> [.., h, w]

    As `lastseen.model.coverage` with windows of SIDES, averaged, and a soft maximum in each window.
    """
    sharp = torch.exp(SHARPNESS * (cosine - 1)).flatten(0, -4)
    covered = []
    for side in SIDES:
        mean = F.avg_pool2d(sharp, (1, side), 1, (0, side // 2))
        mean = F.avg_pool2d(mean, (side, 1), 1, (side // 2, 0))
        best = 1 + (mean.float() * side**2).clamp(min=1e-12).log() / SHARPNESS
        covered.append(best.mean(1))
    return torch.stack(covered).mean(0).view(*cosine.shape[:-3], *cosine.shape[-2:])


def neighbouring_frames(labels: Tensor, count: int) -> Tensor:
    """Labels [G, q, f, h, w] -> numbers [G, q, count] of frames: the one that shows the most of each query's
    thing, and those after it."""
    own = (labels == RIGHT).flatten(3).sum(3).argmax(2, keepdim=True)
    frames = labels.shape[2]
    return (own + torch.arange(min(count, frames), device=labels.device)) % frames


def coverage_loss(logits: Tensor, labels: Tensor, hardest: int) -> Tensor:
    """Logits and labels [G, q, n, h, w] -> loss of the best place on the thing and of the hardest wrong ones.

    Windows of places near the thing contain it: they are neither right nor wrong.
    """
    right = labels == RIGHT
    reach = max(SIDES)
    near = F.max_pool2d((labels != WRONG).flatten(0, 2)[:, None].float(), reach, 1, reach // 2)
    wrong = (near[:, 0] == 0).view_as(labels)
    there = right.flatten(2).any(2)
    found = F.softplus(-logits.masked_fill(~right, -torch.inf).flatten(2).amax(2))
    refused = logits.masked_fill(~wrong, -torch.inf).flatten(2).topk(hardest, -1).values
    return (torch.where(there, found, 0.0) + F.softplus(refused).mean(-1)).mean()

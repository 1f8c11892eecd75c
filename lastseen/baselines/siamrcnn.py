"""SiamRCNN, the baseline of Ego4D: each proposal is compared with the query, on its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lastseen.baselines.boxes import pairwise_iou
from lastseen.baselines.detector import DetectorConfig, RivalDetector

SAMPLED_PROPOSALS = 64  # of a picture, when training
POSITIVE_SHARE, POSITIVE_IOU = 0.1, 0.5  # most of them that are positive, and what makes one
HARD_NEGATIVES = 64  # of a query


class SiamRCNNConfig(DetectorConfig):
    kind = "siamrcnn"


class SiamRCNN(RivalDetector):
    name = "SiamRCNN"

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__(config)
        self.compare = Comparison(config.hidden)

    def head_logits(self, vectors: Tensor, there: Tensor, query: Tensor) -> Tensor:
        return self.compare(vectors, query[None])[..., 0]


class Comparison(nn.Module):
    """x W y + b for vectors x of proposals [.., hidden] and y of b queries [b, hidden] -> [.., b]"""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden, hidden).uniform_(-1, 1) / hidden**0.5)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, vectors: Tensor, queries: Tensor) -> Tensor:
        return vectors @ (queries @ self.weight.T).T + self.bias


def comparison_loss(logits: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """BCE over all positives and each query's hardest negatives.

    Logits [q, m] of all proposals of the batch for each query, and which count as what, bool [q, m]. In the
    published code the places of the hardest among the *negatives* are used as places among *all* proposals,
    so that others than the hardest are learned from. Here they are the hardest.
    """
    hardest = min(HARD_NEGATIVES, logits.shape[1])
    top = logits.float().masked_fill(~negative, -torch.inf).topk(hardest, 1).values
    hard = top[top > -torch.inf]
    right = logits.float()[positive]
    return (F.softplus(hard).sum() + F.softplus(-right).sum()) / max(1, len(hard) + len(right))


def sampled_proposals(
    boxes: Tensor, truth: Tensor | None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """SAMPLED_PROPOSALS of a picture's proposals [k, 4] -> boxes, and which of them show the thing

    The true box [4] is added to them (None: the thing is not in the picture).
    """
    if truth is None:
        overlap = torch.zeros(len(boxes), device=boxes.device)
    else:
        boxes = torch.cat([truth[None], boxes])
        overlap = pairwise_iou(boxes, truth[None])[:, 0]
    drawn = torch.rand(len(boxes), generator=generator, device=generator.device).to(boxes.device)
    is_right = overlap >= POSITIVE_IOU
    # The true box comes first, so that there is one positive in any case.
    drawn[: truth is not None] = -1.0
    most = int(SAMPLED_PROPOSALS * POSITIVE_SHARE)
    right = drawn.masked_fill(~is_right, 2.0).argsort()[: min(most, int(is_right.sum()))]
    wrong = drawn.masked_fill(is_right, 2.0).argsort()[: int((~is_right).sum())]
    chosen = torch.cat([right, wrong[: SAMPLED_PROPOSALS - len(right)]])
    return boxes[chosen], is_right[chosen]

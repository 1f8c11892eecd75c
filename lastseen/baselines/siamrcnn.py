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
    boxes: Tensor, there: Tensor, truth: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """SAMPLED_PROPOSALS of each frame: boxes [n, s, 4], which of them exist, and which show the thing

    Of proposals [n, k, 4], which exist where `there` [n, k] says so, and the true boxes [t, 4] of the first t
    frames, which are added to them; the other frames do not show the thing.
    """
    n, t = len(boxes), len(truth)
    added = torch.cat([truth, truth.new_zeros(n - t, 4)])
    is_added = (torch.arange(n, device=boxes.device) < t)[:, None]
    boxes, there = torch.cat([added[:, None], boxes], 1), torch.cat([is_added, there], 1)
    is_right = there & is_added & (pairwise_iou(boxes, added[:, None])[..., 0] >= POSITIVE_IOU)
    drawn = torch.rand(boxes.shape[:2], generator=generator, device=boxes.device)
    drawn[:, 0] = -1.0  # the true box comes first, so that there is a positive in any case
    most = int(SAMPLED_PROPOSALS * POSITIVE_SHARE)
    right_rank = drawn.masked_fill(~is_right, 2.0).argsort(1).argsort(1)
    kept = there & (~is_right | (right_rank < most))
    # Kept positives first, then random others.
    order = (drawn - 4.0 * (kept & is_right)).masked_fill(~kept, 9.0).argsort(1)[:, :SAMPLED_PROPOSALS]
    chosen = boxes.gather(1, order[..., None].expand(-1, -1, 4))
    return chosen, kept.gather(1, order), (kept & is_right).gather(1, order)

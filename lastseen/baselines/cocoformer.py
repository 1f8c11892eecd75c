"""CocoFormer (Xu et al. 2023): a frame's proposals are read as a set, together with the query.

Proposals attend to the query, which gives each a logit; the query attends to the refined proposals, which
gives the frame a logit. The score of a proposal is the mean of both scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lastseen.baselines.detector import DetectorConfig, RivalDetector
from lastseen.model.attention import MultiHead

HEADS = 4
FRAME_LOSS_WEIGHT = 0.1
REMOVED_SHARE = 0.5  # of pictures, whose positive proposals are taken out of the set when training


@dataclass(frozen=True, kw_only=True)
class CocoFormerConfig(DetectorConfig):
    kind: ClassVar[str] = "cocoformer"

    hidden: int = 512
    proposals: int = 128


class CocoFormer(RivalDetector):
    name = "CocoFormer"

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__(config)
        self.set_head = SetHead(config.hidden)

    def head_logits(self, vectors: Tensor, there: Tensor, query: Tensor) -> Tensor:
        of_proposals, of_frames = self.set_head(vectors, query.expand(len(vectors), -1), there)
        score = (of_proposals.float().sigmoid() + of_frames.float().sigmoid()[:, None]) / 2
        return torch.logit(score, eps=1e-6)


class SetHead(nn.Module):
    """Vectors [n, k, d] of a set of proposals and [n, d] of its query -> logits [n, k] and [n]

    `there` [n, k] tells which proposals exist.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.to_query = SetBlock(dim)
        self.to_proposals = SetBlock(dim)
        self.of_proposal = nn.Linear(dim, 1)
        self.of_frame = nn.Linear(dim, 1)

    def forward(self, vectors: Tensor, query: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        query = query[:, None]
        vectors = self.to_query(vectors, query)
        # A frame without proposals has one that is empty, or there would be nothing to attend to.
        seen = there | ~there.any(1, keepdim=True)
        frame = self.to_proposals(query, vectors, seen)
        return self.of_proposal(vectors)[..., 0], self.of_frame(frame)[:, 0, 0]


class SetBlock(nn.Module):
    """Post-norm: attention and residual, LayerNorm, MLP and residual, LayerNorm."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.attention = MultiHead(dim, HEADS)
        self.attention_norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, dim)
        self.down = nn.Linear(dim, dim)
        self.feed_norm = nn.LayerNorm(dim)

    def forward(self, tokens: Tensor, context: Tensor, seen: Tensor | None = None) -> Tensor:
        """tokens [n, l, d], context [n, m, d] of which `seen` [n, m] are attended to -> [n, l, d]"""
        parts = self.attention
        mask = None if seen is None else seen[:, None, None]
        mixed = parts.attend(parts.query(tokens), parts.key(context), parts.value(context), mask)
        tokens = self.attention_norm(tokens + mixed)
        return self.feed_norm(tokens + self.down(F.relu(self.up(tokens))))


def removed_positives(positive: Tensor, generator: torch.Generator) -> Tensor:
    """bool [n, k] proposals that show the thing -> which proposals stay in their sets

    Of REMOVED_SHARE of the frames all positives are taken out: the frame becomes a negative one, and the head
    cannot learn that one proposal is always right.
    """
    drawn = torch.rand(len(positive), generator=generator, device=generator.device).to(positive.device)
    return ~positive | (drawn >= REMOVED_SHARE)[:, None]


def frame_labels(positive: Tensor, kept: Tensor) -> Tensor:
    """bool [n, k] and [n, k] -> bool [n] whether a proposal of the set shows the thing"""
    return (positive & kept).any(1)


def frame_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits.float(), labels.float())

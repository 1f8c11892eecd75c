"""One training step's loss of each rival."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.baselines.cocoformer import (
    FRAME_LOSS_WEIGHT,
    CocoFormer,
    frame_labels,
    frame_loss,
    removed_positives,
)
from lastseen.baselines.detector import RivalDetector
from lastseen.baselines.nfm import NFM
from lastseen.baselines.proposals import AnchorScores, best_proposals, label_anchors, proposal_loss
from lastseen.baselines.siamrcnn import SiamRCNN, comparison_loss, sampled_proposals
from lastseen.baselines.stark import Stark
from lastseen.train.batch import Batch
from lastseen.train.loss import box_terms
from lastseen.train.rival_data import Frames, Pairs

Numbers = dict[str, Tensor]
TRAIN_PROPOSALS = 1000  # of a frame, of which 64 are learned from
STARK_GIOU_WEIGHT, STARK_SCORE_WEIGHT = 0.3, 10.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """| boxes    | [n, k, 4] of each frame                                       |
    | there    | bool [n, k] fewer than k boxes were found in some frames       |
    | positive | bool [n, k] shows the thing of the frame's own query           |
    """

    boxes: Tensor
    there: Tensor
    positive: Tensor


def proposals_loss(
    model: RivalDetector, frames: Frames, generator: torch.Generator
) -> tuple[Tensor, Numbers]:
    """The first stage: pyramid and proposals, on a backbone that stays as it is."""
    with torch.no_grad():
        maps = model.backbone(frames.pictures)
    loss = _anchors_loss(model.proposer(model.pyramid(maps)), frames, generator)
    return loss, {"loss": loss.detach()}


def pairs_loss(
    model: SiamRCNN | NFM | CocoFormer, pairs: Pairs, generator: torch.Generator
) -> tuple[Tensor, Numbers]:
    """SiamRCNN learns its head alone; NFM and CocoFormer everything, with the losses of proposals."""
    whole = not is_head_only(model)
    with nullcontext() if whole else cast(AbstractContextManager[None], torch.no_grad()):
        pyramid = model.pyramid_of(pairs.frames.pictures)
        scored = model.proposer(pyramid)
        cells_of_queries = model.pyramid_of(pairs.queries).fine
    sampled = sampled_of(scored, pairs, generator)
    vectors = model.vectors_of(pyramid, sampled.boxes)
    queries = model.projector(F.adaptive_avg_pool2d(cells_of_queries, 14))
    if isinstance(model, CocoFormer):
        loss, numbers = _set_loss(model, vectors, queries, sampled, pairs, generator)
    else:
        logits = model.compare(vectors, queries).permute(2, 0, 1)  # [b, n, k]
        positive, negative = _labels(sampled, pairs, sampled.there)
        loss = comparison_loss(logits.flatten(1), positive.flatten(1), negative.flatten(1))
        numbers = {"score": loss.detach()}
    if whole:
        known = [n for n, complete in enumerate(pairs.frames.complete) if complete]
        if known:
            of_anchors = _anchors_loss(_rows(scored, known), _frames_at(pairs.frames, known), generator)
            loss, numbers = loss + of_anchors, {**numbers, "anchors": of_anchors.detach()}
    return loss, {"loss": loss.detach(), **numbers}


def is_head_only(model: RivalDetector) -> bool:
    return type(model) is SiamRCNN


def sampled_of(scored: AnchorScores, pairs: Pairs, generator: torch.Generator) -> Sampled:
    with torch.no_grad():
        proposals = best_proposals(scored, TRAIN_PROPOSALS)
    there = proposals.logits > -torch.inf
    boxes, there, positive = sampled_proposals(proposals.boxes, there, pairs.truth, generator)
    return Sampled(boxes=boxes, there=there, positive=positive)


def _labels(sampled: Sampled, pairs: Pairs, kept: Tensor) -> tuple[Tensor, Tensor]:
    """bool [b, n, k] each: what each query should find among the proposals of all frames of the batch, and
    what not. Other frames that may show the thing count as neither."""
    b = len(pairs.unrelated)
    own = pairs.owner[None] == torch.arange(b, device=pairs.owner.device)[:, None]
    positive = own[..., None] & sampled.positive & kept
    negative = (own | pairs.unrelated)[..., None] & ~(own[..., None] & sampled.positive) & kept
    return positive, negative


def _set_loss(
    model: CocoFormer,
    vectors: Tensor,
    queries: Tensor,
    sampled: Sampled,
    pairs: Pairs,
    generator: torch.Generator,
) -> tuple[Tensor, Numbers]:
    """Every query reads the set of every frame. Positives are taken out after sampling."""
    b, n = len(queries), len(vectors)
    kept = removed_positives(sampled.positive, generator) & sampled.there
    positive, negative = _labels(sampled, pairs, kept)
    logits, of_frames = model.set_head(
        vectors.repeat(b, 1, 1), queries.repeat_interleave(n, 0), kept.repeat(b, 1)
    )
    score = comparison_loss(logits.view(b, -1), positive.flatten(1), negative.flatten(1))
    labels = frame_labels(positive.flatten(0, 1), kept.repeat(b, 1)).view(b, n)
    own = pairs.owner[None] == torch.arange(b, device=pairs.owner.device)[:, None]
    counted = own | pairs.unrelated
    frame = frame_loss(of_frames.view(b, n)[counted], labels[counted])
    return score + FRAME_LOSS_WEIGHT * frame, {"score": score.detach(), "frame": frame.detach()}


def stark_loss(model: Stark, batch: Batch) -> tuple[Tensor, Numbers]:
    """Boxes of frames with the thing; whether it is there in all frames whose truth is known."""
    features, query = model.encode_together(batch.clips.float(), batch.queries[:, 0].float())
    found = model.localize(features, query)
    known = torch.ones_like(batch.visible) if batch.known is None else batch.known
    visible = batch.visible & known
    terms = box_terms(found.boxes[:, :, 0].float()[visible], batch.boxes_unit[visible])
    centre, size, giou = terms.sum(0) / max(1, len(terms))
    logits = found.logits[:, :, 0].float()
    score = F.binary_cross_entropy_with_logits(logits[known], visible[known].float())
    loss = centre + size + STARK_GIOU_WEIGHT * giou + STARK_SCORE_WEIGHT * score
    parts = {"centre": centre, "size": size, "giou": giou, "score": score, "loss": loss}
    return loss, {name: value.detach() for name, value in parts.items()}


def _anchors_loss(scored: AnchorScores, frames: Frames, generator: torch.Generator) -> Tensor:
    return proposal_loss(scored, label_anchors(scored.anchors, frames.things, frames.ignored), generator)


def _rows(scored: AnchorScores, rows: list[int]) -> AnchorScores:
    return scored._replace(logits=scored.logits[rows], deltas=scored.deltas[rows])


def _frames_at(frames: Frames, rows: list[int]) -> Frames:
    return Frames(
        pictures=frames.pictures[rows],
        things=[frames.things[n] for n in rows],
        ignored=[frames.ignored[n] for n in rows],
        complete=[True] * len(rows),
    )

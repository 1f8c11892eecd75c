"""Dense supervision of VQLoC's correspondence: which patches of a frame show the query's thing.

A small head on the correspondence's output that training adds and drops: what is saved is the paper's
network. It is learnt on single frames, of the query's own clip and of another clip that does not show the
thing, as a warm-up before the paper's losses, and as a term beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.model.inputs import patches_inside
from lastseen.train.batch import Batch

LOGIT_OF_A_PATCH = -3.0  # before the first step: few patches show the thing


@dataclass(frozen=True, kw_only=True)
class DenseConfig:
    """Off by default: neither a warm-up nor a term."""

    steps: int = 0  # of the warm-up, in which nothing but the reduction and the correspondence learns
    frames: int = 12  # of each clip in the warm-up
    peak_lr: float = 8e-4  # of the warm-up
    warmup_steps: int = 50  # of its rate
    weight: float = 0.0  # of the term beside the paper's losses
    positive_weight: float = 6.0  # of patches that show the thing

    def __post_init__(self) -> None:
        if self.steps < 0 or self.frames < 1 or self.peak_lr <= 0 or self.weight < 0:
            raise ValueError(
                "steps and weight must not be negative, frames must be at least 1 and peak_lr above 0, got "
                f"{self.steps}, {self.weight}, {self.frames} and {self.peak_lr}"
            )

    @property
    def is_used(self) -> bool:
        return self.steps > 0 or self.weight > 0


class DenseHead(nn.Module):
    """Correspondence [b, t, dim, h, w] -> logits [b, t, h, w]"""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1)
        nn.init.zeros_(self.score.weight)
        nn.init.constant_(self.score.bias, LOGIT_OF_A_PATCH)

    def forward(self, correspondence: Tensor) -> Tensor:
        return self.score(rearrange(correspondence, "b t c h w -> b t h w c"))[..., 0]


class DenseTargets(NamedTuple):
    """| shows   | bool [b, t + m, h, w] patches that show the thing, of t own and m other frames |
    | counted | bool [b, t + m] frames that count                                             |
    """

    shows: Tensor
    counted: Tensor


def dense_targets(batch: Batch, side: int, mined: Tensor | None) -> DenseTargets:
    """`mined` bool [b, m]: which of the other clips' frames count; none of these shows the thing."""
    counted = torch.ones_like(batch.visible) if batch.known is None else batch.known
    inside = patches_inside(batch.boxes_unit.flatten(0, 1).float(), side)[:, 0]
    shows = (inside.view(*counted.shape, side, side) > 0) & (batch.visible & counted)[..., None, None]
    if mined is None:
        return DenseTargets(shows, counted)
    nothing = shows.new_zeros(*mined.shape, *shows.shape[2:])
    return DenseTargets(torch.cat([shows, nothing], 1), torch.cat([counted, mined], 1))


def dense_count(targets: DenseTargets) -> Tensor:
    """How many patches are averaged over; add it up over the whole step."""
    patches = targets.shows.shape[-1] * targets.shows.shape[-2]
    return (targets.counted.sum() * patches).double()


def dense_loss(logits: Tensor, targets: DenseTargets, count: Tensor, config: DenseConfig) -> Tensor:
    """This part's share of the step's mean: shares add up."""
    weight = logits.new_tensor(config.positive_weight, dtype=torch.float32)
    each = F.binary_cross_entropy_with_logits(
        logits.float(), targets.shows.float(), pos_weight=weight, reduction="none"
    )
    return (each * targets.counted[..., None, None]).sum() / count.clamp(min=1.0)


def some_frames(batch: Batch, count: int, *, seed: int, step: int, first_row: int = 0) -> Batch:
    """`count` frames of each clip, drawn by the row's place in the whole batch, in their order."""
    time = batch.visible.shape[1]
    drawn = [
        np.sort(np.random.default_rng([seed, step, first_row + row, 1]).permutation(time)[:count])
        for row in range(len(batch))
    ]
    return batch.frames(torch.from_numpy(np.stack(drawn)))

"""Hard negatives within the batch: false detections of each query in clips of other videos.

The paper tries every query on every clip of the batch. Here each query is tried on a short run of frames of
a few other clips, all of its own small group, so the cost is bounded and no process needs another's clips.
Features are encoded once; only `localize` runs again, in one pass with the query's own clip, so that the
batch norms see both kinds of frames together, as they will at inference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lastseen.model import EncodedQuery, Predictions, TrainedModel


@dataclass(frozen=True, kw_only=True)
class MiningConfig:
    pairs_per_query: int = 1  # other clips that each query is compared with; 0: none
    mined_frames: int = 10  # of each of them, in a row
    group: int = 4  # consecutive clips of a batch that are each other's partners

    def __post_init__(self) -> None:
        if not 0 <= self.pairs_per_query < max(self.group, 1):
            raise ValueError(
                f"pairs_per_query must be 0 to {self.group - 1} in groups of {self.group}, "
                f"got {self.pairs_per_query}"
            )
        if self.mined_frames < 1 or self.group < 1:
            raise ValueError("mined_frames and group must be at least 1")


class Partners(NamedTuple):
    """For each query the clips to be compared with.

    | clips  | [b, p] rows of the batch                                          |
    | frames | [b, p, m] which of their frames                                   |
    | usable | bool [b, p] false: no unrelated clip was left, the row is a dummy |
    """

    clips: Tensor
    frames: Tensor
    usable: Tensor

    @property
    def mined(self) -> Tensor:
        """bool [b, p * m] mined frames that count."""
        return self.usable.repeat_interleave(self.frames.shape[-1], 1)


def choose_partners(
    unrelated: Tensor, time: int, config: MiningConfig, *, seed: int, step: int, first_row: int = 0
) -> Partners | None:
    """Partners of the rows `unrelated` [b, b] is of, which begin at `first_row` of the whole batch.

    The draw depends on the seed, the step and the row in the whole batch: not on how it is split.
    """
    pairs, length = config.pairs_per_query, min(config.mined_frames, time)
    if not pairs:
        return None
    allowed = unrelated.cpu().numpy()
    rows = len(allowed)
    clips = np.repeat(np.arange(rows)[:, None], pairs, 1)
    starts = np.zeros((rows, pairs), np.int64)
    usable = np.zeros((rows, pairs), bool)
    for row in range(rows):
        rng = np.random.default_rng([seed, step, first_row + row])
        begin = row // config.group * config.group
        group = np.arange(begin, min(begin + config.group, rows))
        found = rng.permutation(group[allowed[row, group] & (group != row)])[:pairs]
        clips[row, : len(found)], usable[row, : len(found)] = found, True
        starts[row] = rng.integers(0, time - length + 1, pairs)
    frames = starts[..., None] + np.arange(length)
    return Partners(*(torch.from_numpy(part).to(unrelated.device) for part in (clips, frames, usable)))


def localize_with_partners(
    model: TrainedModel, features: Tensor, query: EncodedQuery, partners: Partners | None
) -> tuple[Predictions, Tensor | None]:
    """Predictions of each query on its own clip, and its logits [b, p * m, n] on its partners' frames.

    features [b, t, dim, side, side] and query as `encode_together` returns them.
    """
    if partners is None:
        return model.localize(features, query), None
    together, runs = with_partners(features, partners)
    own = features.shape[1]
    boxes, logits = model.localize(together, query, runs=runs)
    return Predictions(boxes[:, :own], logits[:, :own]), logits[:, own:]


def with_partners(features: Tensor, partners: Partners | None) -> tuple[Tensor, tuple[int, ...]]:
    """Each clip's frames and then its partners', [b, t + p * m, ..], and the lengths of these runs."""
    if partners is None:
        return features, (features.shape[1],)
    clips, frames = (part.to(features.device, non_blocking=features.is_cuda) for part in partners[:2])
    others = features[clips[..., None], frames].flatten(1, 2)
    pairs, length = frames.shape[1:]
    return torch.cat([features, others], 1), (features.shape[1], *(length for _ in range(pairs)))

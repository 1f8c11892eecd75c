"""What a training step reads: clips, queries and where the thing truly is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lastseen.errors import TrainError


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """b clips of t frames, each with its query.

    | clips      | [b, t, 3, size, size] normalised pictures, or [b, t, channels, side, side] features     |
    | queries    | [b, shares * 3, q size, q size], or [b, shares * channels, q side, q side] of the same  |
    |            | backbone; their size may differ from the frames'                                        |
    | boxes_unit | [b, t, 4] x1 y1 x2 y2 in the unit square of the padded frame; ignored where not visible |
    | visible    | bool [b, t]                                                                             |
    | unrelated  | bool [b, b] clip j certainly does not show the thing of query i: free negatives; on the |
    |            | CPU, where partners are chosen                                                          |
    | known      | bool [b, t] where the truth is known at all, the rest does not count; None: everywhere  |
    | lengths    | [b, shares, q side, q side] of the queries' vectors, see `lengths_of_patches`; None: 1  |
    """

    clips: Tensor
    queries: Tensor
    boxes_unit: Tensor
    visible: Tensor
    unrelated: Tensor
    known: Tensor | None = None
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        b, t = self.clips.shape[:2]
        known = self.visible if self.known is None else self.known
        for name, value, shape in (
            (
                "queries",
                self.queries[:, : self.clips.shape[2]],
                (b, self.clips.shape[2], *self.queries.shape[-2:]),
            ),
            ("boxes_unit", self.boxes_unit, (b, t, 4)),
            ("visible", self.visible, (b, t)),
            ("unrelated", self.unrelated, (b, b)),
            ("known", known, (b, t)),
        ):
            if tuple(value.shape) != shape:
                raise ValueError(f"{name} must be {list(shape)}, got {list(value.shape)}")

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def has_pictures(self) -> bool:
        """Pictures, which any model can read; otherwise features of one backbone."""
        return self.clips.shape[2] == 3

    def rows(self, first: int, last: int) -> Batch:
        """A part of the batch: what one process, or one turn of an accumulated step, works on."""
        part = slice(first, last)
        return Batch(
            clips=self.clips[part],
            queries=self.queries[part],
            boxes_unit=self.boxes_unit[part],
            visible=self.visible[part],
            unrelated=self.unrelated[part, part],
            known=None if self.known is None else self.known[part],
            lengths=None if self.lengths is None else self.lengths[part],
        )

    def to(self, device: torch.device | str) -> Batch:
        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        return replace(
            self,
            clips=moved(self.clips),
            queries=moved(self.queries),
            boxes_unit=moved(self.boxes_unit),
            visible=moved(self.visible),
            known=None if self.known is None else moved(self.known),
            lengths=None if self.lengths is None else moved(self.lengths),
        )


class Source(Protocol):
    """Where batches come from.

    A batch depends on the source's seed and the step alone: that is what makes resuming exact.
    """

    def batch(self, step: int) -> Batch: ...


@runtime_checkable
class SharedSource(Protocol):
    """A source that can make one process's rows of a batch without making the others'."""

    def batch(self, step: int) -> Batch: ...
    def share(self, first: int, last: int) -> Source: ...


class Listed:
    """A source of given batches, in turn; for tests and for fitting a handful of clips."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        if not batches:
            raise TrainError("no batch to train on")
        self._batches = tuple(batches)

    def batch(self, step: int) -> Batch:
        return self._batches[step % len(self._batches)]


def unrelated_by_name(shown: Sequence[frozenset[str]], asked: Sequence[str]) -> Tensor:
    """[b, b] from the names of all things that clip j may show and the name of what query i asks for."""
    return torch.tensor([[name not in names for names in shown] for name in asked], dtype=torch.bool)

"""What a training step reads: clips, queries and ground truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from lastseen.errors import TrainError


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """b clips of t frames, each with its query.

    | clips      | [b, t, 3, size, size] normalised pictures, or [b, t, channels, side, side] features     |
    | queries    | [b, scales, 3, q px, q px] normalised crops, or [b, scales, channels, q side, q side]   |
    |            | features of the same backbone                                                           |
    | boxes_unit | [b, t, 4] x1 y1 x2 y2 in the unit square of the padded frame; ignored where not visible |
    | visible    | bool [b, t]                                                                             |
    | unrelated  | bool [b, b] clip j certainly does not show the thing of query i: free negatives; on the |
    |            | CPU, where partners are chosen                                                          |
    | known      | bool [b, t] where the truth is known at all, the rest does not count; None: everywhere  |
    | query_boxes_unit | [b, scales, 4] the thing in its crops; None: all of a crop is the thing           |
    | query_shown_unit | [b, scales, 4] the picture in them, beyond which its edges are repeated           |
    | swapped    | bool [b] the row before asks for the same thing in the same clip with another picture;  |
    |            | None: no row                                                                            |
    """

    clips: Tensor
    queries: Tensor
    boxes_unit: Tensor
    visible: Tensor
    unrelated: Tensor
    known: Tensor | None = None
    query_boxes_unit: Tensor | None = None
    query_shown_unit: Tensor | None = None
    swapped: Tensor | None = None

    def __post_init__(self) -> None:
        b, t = self.clips.shape[:2]
        known = self.visible if self.known is None else self.known
        scales, places = self.queries.shape[1], torch.empty(b, self.queries.shape[1], 4)
        boxes, shown = (
            places if given is None else given for given in (self.query_boxes_unit, self.query_shown_unit)
        )
        for name, value, shape in (
            ("queries", self.queries, (b, scales, self.clips.shape[2], *self.queries.shape[-2:])),
            ("query_boxes_unit", boxes, (b, scales, 4)),
            ("query_shown_unit", shown, (b, scales, 4)),
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
        """Pictures; otherwise stored features of one backbone."""
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
            query_boxes_unit=None if self.query_boxes_unit is None else self.query_boxes_unit[part],
            query_shown_unit=None if self.query_shown_unit is None else self.query_shown_unit[part],
            swapped=None if self.swapped is None else self.swapped[part],
        )

    def frames(self, numbers: Tensor) -> Batch:
        """These frames [b, n] of each clip."""
        rows = torch.arange(len(self))[:, None]
        at = rows.to(self.clips.device), numbers.to(self.clips.device)
        return replace(
            self,
            clips=self.clips[at],
            boxes_unit=self.boxes_unit[at],
            visible=self.visible[at],
            known=None if self.known is None else self.known[at],
        )

    def to(self, device: torch.device | str) -> Batch:
        def moved(tensor: Tensor | None) -> Any:
            return None if tensor is None else tensor.to(device, non_blocking=True)

        return replace(
            self,
            clips=moved(self.clips),
            queries=moved(self.queries),
            boxes_unit=moved(self.boxes_unit),
            visible=moved(self.visible),
            known=moved(self.known),
            query_boxes_unit=moved(self.query_boxes_unit),
            query_shown_unit=moved(self.query_shown_unit),
            swapped=moved(self.swapped),
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


class ListSource:
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

"""The interface of refinement steps, their access to the video, and the function that composes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from lastseen.box import Box, Letterbox
from lastseen.masks.segmenter import BoxMask
from lastseen.progress import Work
from lastseen.refine.window import Window
from lastseen.sighting import Evidence, Extract
from lastseen.track import FramePredictions


class FrameAccess(Protocol):
    """What a step may read of the video. Frames are numbered as in the evidence."""

    @property
    def letterbox(self) -> Letterbox:
        """Converts between pixels of the frame and the canvas of its features."""

    @property
    def clip_length(self) -> int:
        """Number of frames in one model input."""

    def vectors(self, start: int, stop: int) -> Tensor:
        """Unit vectors of the patches of frames [start, stop): [n, channels, rows, columns]"""

    def localize(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """Run the model on enlarged windows: boxes [n, 4] in pixels and logits [n]; n is smaller than the
        window's length if the video ends early."""

    def pictures(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Frames [start, stop) in their original size, one by one: [height, width, 3]; fewer if the video
        ends early."""

    def segment(self, pictures: Sequence[np.ndarray], boxes: Sequence[Box]) -> list[BoxMask]:
        """Bounds of the masks of what boxes show, in square pictures; an error if there is no segmenter."""


class Step(Protocol):
    """A frozen dataclass whose fields are its settings."""

    name: ClassVar[str]

    def __call__(self, evidence: Evidence, extract: Extract, video: FrameAccess) -> Evidence: ...


BeforeStep = Callable[[Step, Evidence], None]


@dataclass(frozen=True)
class Scale:
    """What the work of a step depends on, beside the evidence."""

    frames: int  # searched
    clip_length: int
    batch: int  # frames encoded at a time
    stored: bool = False  # features are: those of whole frames need not be encoded again

    def read(self, frames: int) -> int:
        """About how many frames are encoded to read some consecutive ones: batches are encoded whole."""
        return min(self.frames, frames - 1 + self.batch) if frames > 0 and not self.stored else 0


@runtime_checkable
class Planned(Protocol):
    """A step that says what it will take, so that the time left can be told. Others count when they run."""

    phase: ClassVar[str]

    def work(self, evidence: Evidence | None, extract: Extract, scale: Scale) -> Work:
        """What the step is expected to take, given the evidence before it; None: before the first pass."""


def refine(
    predictions: FramePredictions | Evidence,
    steps: Sequence[Step],
    extract: Extract,
    video: FrameAccess,
    *,
    skip: Collection[str] = (),
    before_step: BeforeStep | None = None,
) -> Evidence:
    """Evidence after all steps except those named in `skip`; predictions are not changed. Evidence that some
    steps have refined can be refined further by the others."""
    evidence = predictions if isinstance(predictions, Evidence) else Evidence.of(predictions)
    for step in steps:
        if len(evidence) and step.name not in skip:
            if before_step is not None:
                before_step(step, evidence)
            evidence = step(evidence, extract, video)
    return evidence

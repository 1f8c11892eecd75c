"""What a refinement step is, what it may ask for, and the function that composes steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Protocol

import numpy as np
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.refine.window import Window
from lastseen.sighting import Evidence, Extract
from lastseen.track import FramePredictions


class FrameAccess(Protocol):
    """The video as steps see it. Frames are numbered as in the evidence."""

    @property
    def letterbox(self) -> Letterbox:
        """From pixels of the frame to the canvas of its features."""

    @property
    def clip_length(self) -> int:
        """Frames that the model reads at once."""

    def vectors(self, start: int, stop: int) -> Tensor:
        """Unit vectors of the patches of frames [start, stop): [n, channels, rows, columns]"""

    def localize(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """The model's boxes [n, 4] in pixels and logits [n] on enlarged windows; n is less than asked for
        where the video ends early."""


class Step(Protocol):
    """A frozen dataclass whose fields are its settings."""

    name: ClassVar[str]

    def __call__(self, evidence: Evidence, extract: Extract, video: FrameAccess) -> Evidence: ...


def refine(
    predictions: FramePredictions,
    steps: Sequence[Step],
    extract: Extract,
    video: FrameAccess,
    *,
    skip: Collection[str] = (),
) -> Evidence:
    """The evidence after all steps but those whose names are in `skip`; predictions stay as they are."""
    evidence = Evidence.of(predictions)
    for step in steps:
        if len(evidence) and step.name not in skip:
            evidence = step(evidence, extract, video)
    return evidence

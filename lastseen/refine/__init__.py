"""Refinement: post-processing steps that correct the first pass over a video.

    Evidence --Zoom--> --Verify--> --Extend--> (--Mask-->) Evidence

    Zoom      run the model again on enlarged windows around the most confident sightings
    Verify    penalise sightings that do not look like the most confident one
    Extend    follow each sighting over time by patch similarity to its peak frame
    Mask      replace the boxes of the answer by the bounds of masks; only if asked for, needs MobileSAM

A step is a frozen config that can be called; each can be left out and measured alone. `refine` composes them.
"""

from lastseen.refine.extend import Extend
from lastseen.refine.mask import Mask
from lastseen.refine.step import BeforeStep, FrameAccess, Step, refine
from lastseen.refine.verify import Verify
from lastseen.refine.zoom import Zoom

STEPS: dict[str, type[Zoom] | type[Verify] | type[Extend] | type[Mask]] = {
    step.name: step for step in (Zoom, Verify, Extend, Mask)
}

__all__ = ["STEPS", "BeforeStep", "Extend", "FrameAccess", "Mask", "Step", "Verify", "Zoom", "refine"]

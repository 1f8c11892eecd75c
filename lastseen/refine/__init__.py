"""Refinement: post-processing steps that correct the first pass over a video.

    Evidence --Zoom--> --Verify--> --Extend--> Evidence

    Zoom      run the model again on enlarged windows around the most confident sightings
    Verify    penalise sightings that do not look like the most confident one
    Extend    follow each sighting over time by patch similarity to its peak frame

A step is a frozen config that can be called; each can be left out and measured alone. `refine` composes them.
"""

from lastseen.refine.extend import Extend
from lastseen.refine.step import FrameAccess, Step, refine
from lastseen.refine.verify import Verify
from lastseen.refine.zoom import Zoom

STEPS: dict[str, type[Zoom] | type[Verify] | type[Extend]] = {
    step.name: step for step in (Zoom, Verify, Extend)
}

__all__ = ["STEPS", "Extend", "FrameAccess", "Step", "Verify", "Zoom", "refine"]

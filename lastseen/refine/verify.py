"""Verify: penalise sightings that do not look like the most confident one.

The query may show the thing in a different light and from a different side than this video does. The most
confident sighting shows how it looks here, so the others are compared with that, patch by patch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from lastseen.progress import ENCODED, LOOKING_CLOSER, Work
from lastseen.refine.appearance import Appearance, BoxPatches, best_match
from lastseen.refine.step import FrameAccess, Scale
from lastseen.sighting import Evidence, Extract, Sighting, answerable


@dataclass(frozen=True, kw_only=True)
class Verify:
    name: ClassVar[str] = "verify"
    phase: ClassVar[str] = LOOKING_CLOSER

    min_cosine: float = 0.6  # to the most confident sighting; lower ones are penalised
    logit_per_cosine: float = 8.0  # penalty per unit of cosine below that
    peak_frames: int = 2  # before and after a peak, of which the best counts
    search_ratio: float = 1.5  # search region, relative to the box
    background_cosine: float = 0.5  # cosine with a patch around the box above which a patch is background

    def __post_init__(self) -> None:
        check_cosine("verify.min_cosine", self.min_cosine)

    def __call__(self, evidence: Evidence, extract: Extract, video: FrameAccess) -> Evidence:
        evidence = replace(evidence, penalties=())
        sightings = answerable(extract(evidence))
        if not sightings:
            return evidence
        reference = max(sightings, key=lambda sighting: sighting.confidence)
        patches = BoxPatches(evidence, video)
        thing = patches.appearance(reference.peak, self.background_cosine)
        penalties = []
        for sighting in sightings:
            if sighting is not reference:
                lacking = self.min_cosine - self._cosine(patches, thing, sighting)
                if lacking > 0:
                    penalties.append((sighting.first, sighting.last, self.logit_per_cosine * lacking))
        return replace(evidence, penalties=tuple(penalties))

    def work(self, evidence: Evidence | None, extract: Extract, scale: Scale) -> Work:
        """The peak of one sighting, and some frames of each other; before the first pass: of two."""
        count = 2 if evidence is None else len(answerable(extract(evidence)))
        others = max(0, count - 1) * scale.read(2 * self.peak_frames + 1)
        return Work({ENCODED: min(scale.frames, others + scale.read(1) * bool(count))})

    def _cosine(self, patches: BoxPatches, thing: Appearance, sighting: Sighting) -> float:
        """Mean best-match cosine of the thing's patches in the search region; best frame near the peak."""
        start = max(sighting.first, sighting.peak - self.peak_frames)
        stop = min(sighting.last, sighting.peak + self.peak_frames) + 1
        found = zip(patches.boxes[start:stop], patches.cosines(thing, start, stop))
        return max(
            best_match(cosine, patches.around(box, cosine, self.search_ratio))[0].mean().item()
            for box, cosine in found
        )


def check_cosine(name: str, value: float) -> None:
    if not (isinstance(value, (int, float)) and 0 <= value <= 1):
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")

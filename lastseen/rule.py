"""Rule: all settings that turn a model's predictions into an answer. Stored as rule.json in a model folder.

extraction    scores -> sightings          Extraction (lastseen.sighting)
confidence    a sighting -> a probability  Confidence (lastseen.sighting)
refinement    steps on the evidence        Zoom, Verify, Extend, Mask (lastseen.refine)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from lastseen.box import Box
from lastseen.plain import made_of
from lastseen.refine import STEPS, BeforeStep, Extend, FrameAccess, Mask, Step, Verify, Zoom, refine
from lastseen.sighting import Confidence, Evidence, Extraction, Sighting
from lastseen.track import FramePredictions, ResponseTrack

S = TypeVar("S", bound=Zoom | Verify | Extend | Mask)
SCHEMA = "lastseen/rule@2"
# Field of a version 1 rule -> part and field of the current version. Steps are converted separately.
MIGRATED = {
    "gain": ("extraction", "gain"),
    "shift": ("extraction", "shift"),
    "median": ("extraction", "median_frames"),
    "peak_ratio": ("extraction", "peak_ratio"),
    "extent_ratio": ("extraction", "extent_ratio"),
    "box_median": ("extraction", "box_median_frames"),
    "slope": ("confidence", "slope"),
    "offset": ("confidence", "offset"),
    "length_cost": ("confidence", "search_length_penalty"),
    "threshold": ("confidence", "threshold"),
}
AT_LEAST_1 = {
    "batch_frames",
    "box_median_frames",
    "center_mean_frames",
    "min_window_px",
    "window_step_px",
}  # of the steps' fields
MIGRATED_STEPS = {"looks", "like_surest", "like_itself"}


@dataclass(frozen=True, kw_only=True)
class Rule:
    extraction: Extraction = Extraction()
    confidence: Confidence = Confidence()
    refinement: tuple[Step, ...] = ()

    def refine(
        self,
        predictions: FramePredictions | Evidence,
        video: FrameAccess,
        skip: Collection[str] = (),
        before_step: BeforeStep | None = None,
    ) -> Evidence:
        return refine(predictions, self.refinement, self.extract, video, skip=skip, before_step=before_step)

    def extract(self, evidence: Evidence, peak_ratio: float | None = None) -> list[Sighting]:
        """Sightings in time order; if none has `is_seen`, the last one is the best guess."""
        extraction = self.extraction
        if peak_ratio is not None:
            extraction = replace(extraction, peak_ratio=peak_ratio)
        return [self._with_confidence(sighting) for sighting in extraction.sightings(evidence)]

    def tracks(self, evidence: Evidence) -> tuple[list[ResponseTrack], ResponseTrack | None]:
        """Tracks of seen sightings in time order, and the best guess, however low (None: no frames)."""
        sightings = self.extract(evidence)
        seen = [self._track(sighting) for sighting in sightings if sighting.is_seen]
        if not sightings:
            return seen, None
        return seen, seen[-1] if sightings[-1].is_seen else self._track(sightings[-1])

    def without(self, steps: Collection[str]) -> Rule:
        """The rule without the named refinement steps."""
        unknown = set(steps) - STEPS.keys() - {step.name for step in self.refinement}
        if unknown:
            raise ValueError(f"no such refinement step: {', '.join(sorted(unknown))}; {', '.join(STEPS)}")
        return replace(self, refinement=tuple(step for step in self.refinement if step.name not in steps))

    def with_mask(self) -> Rule:
        """The rule with boxes by masks as last step."""
        if any(step.name == Mask.name for step in self.refinement):
            return self
        return replace(self, refinement=(*self.refinement, Mask()))

    def with_step(self, name: str, **fields: Any) -> Rule:
        """The rule with a step added or changed, in its usual position; fields that are None are not changed,
        and a step whose fields are 0 is removed."""
        given = {key: value for key, value in fields.items() if value is not None}
        if not given:
            return self
        steps: dict[str, Step] = {step.name: step for step in self.refinement}
        if all(value == 0 for value in given.values()):
            steps.pop(name, None)
        elif name in steps:
            steps[name] = replace(steps[name], **given)  # type: ignore[type-var]
        else:
            steps[name] = STEPS[name](**given)
        order = [*STEPS, *(known for known in steps if known not in STEPS)]
        return replace(self, refinement=tuple(steps[known] for known in order if known in steps))

    def _with_confidence(self, sighting: Sighting) -> Sighting:
        confidence = self.confidence.of(sighting.peak_score, sighting.evidence.searched_s)
        seen = confidence >= self.confidence.threshold
        return replace(sighting, confidence=confidence, is_seen=seen)

    def _track(self, sighting: Sighting) -> ResponseTrack:
        boxes_px = self.extraction.smooth_boxes(sighting.boxes_px)
        return ResponseTrack(
            first_frame=sighting.first,
            fps=sighting.evidence.fps,
            boxes=tuple(Box(*map(float, box)) for box in boxes_px),
            score=sighting.confidence,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "extraction": asdict(self.extraction),
            "confidence": asdict(self.confidence),
            "refinement": {step.name: asdict(step) for step in self.refinement},  # type: ignore[call-overload]
        }

    @classmethod
    def from_dict(cls, data: Any) -> Rule:
        """Read the current version or version 1; raises ValueError with the reason."""
        if not isinstance(data, dict):
            raise ValueError("expected an object")
        if "schema" not in data:
            return _of_version_1(data)
        if data["schema"] != SCHEMA:
            raise ValueError(f"is {data['schema']}, this lastseen reads {SCHEMA}")
        unknown = data.keys() - {"schema", "extraction", "confidence", "refinement"}
        steps = data.get("refinement", {})
        if not isinstance(steps, dict):
            raise ValueError("refinement must be an object with a step for each name")
        unknown |= steps.keys() - STEPS.keys()
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}")
        return cls(
            extraction=made_of(Extraction, data.get("extraction", {}), "extraction"),
            confidence=made_of(Confidence, data.get("confidence", {}), "confidence"),
            refinement=tuple(_step(STEPS[name], fields) for name, fields in steps.items()),
        )


def _step(step: type[S], data: Any) -> S:
    """Lengths, shares and counts: none is below 0, and sizes and batches are above."""
    made = made_of(step, data, step.name)
    for name, value in data.items():
        least = 1 if name in AT_LEAST_1 else 0
        if value is not None and value < least:
            raise ValueError(f"{step.name}.{name} must be {least} or more, got {value}")
    return made


def _of_version_1(data: dict[str, Any]) -> Rule:
    unknown = data.keys() - MIGRATED.keys() - MIGRATED_STEPS
    if unknown:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}")
    parts: dict[str, dict[str, Any]] = {"extraction": {}, "confidence": {}}
    for old, (part, name) in MIGRATED.items():
        if old in data:
            parts[part][name] = data[old]
    steps: list[Step] = []
    if data.get("looks"):
        steps.append(_step(Zoom, {"sightings": data["looks"]}))
    if data.get("like_surest") is not None:
        steps.append(_step(Verify, {"min_cosine": data["like_surest"]}))
    if data.get("like_itself") is not None:
        steps.append(_step(Extend, {"min_cosine": data["like_itself"]}))
    return Rule(
        extraction=made_of(Extraction, parts["extraction"], "extraction"),
        confidence=made_of(Confidence, parts["confidence"], "confidence"),
        refinement=tuple(steps),
    )

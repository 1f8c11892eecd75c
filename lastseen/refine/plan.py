"""What refinement is expected to take: planned before the first pass, and again as more is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lastseen.progress import ENCODED, LOCALIZED, LOOKING_CLOSER, MEASURING, SEGMENTED, Tracker, Work
from lastseen.refine.step import Planned, Scale, Step
from lastseen.sighting import Evidence, Extract

SHOWN = {LOOKING_CLOSER: (ENCODED, LOCALIZED), MEASURING: (SEGMENTED,)}  # the work that is counted for people


class Refining(Protocol):
    """The part of Rule that is used here."""

    @property
    def refinement(self) -> tuple[Step, ...]: ...
    @property
    def extract(self) -> Extract: ...


class RefinementPlan:
    """The steps of one question, in phases."""

    def __init__(self, tracker: Tracker, rule: Refining, scale: Scale, question: str) -> None:
        self.tracker, self.rule, self.scale, self.question = tracker, rule, scale, question
        self._phases = {
            step.name: phase for phase, steps in phases(rule.refinement).items() for step in steps
        }
        self._open: str | None = None
        self.expect(None)

    def expect(self, evidence: Evidence | None) -> None:
        """Plan all steps by this evidence; None: before the first pass."""
        for step in self.rule.refinement:
            self._expect(step, evidence)

    def begin(self, step: Step, evidence: Evidence) -> None:
        """A step begins: by now more is known of what it will take."""
        self._end_step()
        self._open = step.name
        self._expect(step, evidence)
        phase = self._phases[step.name]
        self.tracker.begin(phase, self._task(step.name), *SHOWN[phase])

    def end(self, phase: str) -> None:
        """All of a phase is done: nothing that was planned for it is left."""
        self._end_step()
        for name, of_step in self._phases.items():
            if of_step == phase:
                self.tracker.finish(phase, self._task(name))

    def _end_step(self) -> None:
        if self._open is not None:
            self.tracker.finish(self._phases[self._open], self._task(self._open))
            self._open = None

    def _expect(self, step: Step, evidence: Evidence | None) -> None:
        work = expected([step], evidence, self.rule.extract, self.scale)
        self.tracker.plan(self._phases[step.name], self._task(step.name), work)

    def _task(self, name: str) -> str:
        return f"{self.question}: {name}"


def expected(steps: Sequence[Step], evidence: Evidence | None, extract: Extract, scale: Scale) -> Work:
    """What some steps are expected to take together; None: before the first pass."""
    planned = (step for step in steps if isinstance(step, Planned))
    return sum((step.work(evidence, extract, scale) for step in planned), Work())


def phases(steps: Sequence[Step]) -> dict[str, list[Step]]:
    """The steps by phase, in order: once boxes are being measured, later steps belong to that."""
    found: dict[str, list[Step]] = {}
    phase = LOOKING_CLOSER
    for step in steps:
        if isinstance(step, Planned) and step.phase == MEASURING:
            phase = MEASURING
        found.setdefault(phase, []).append(step)
    return found

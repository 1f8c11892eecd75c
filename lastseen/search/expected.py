"""What a search is expected to take, told to a tracker as the search learns more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from lastseen.progress import (
    ENCODED,
    LOCALIZED,
    LOOKING_CLOSER,
    MEASURING,
    SCORED,
    SEARCHING,
    SEGMENTED,
    Tracker,
    Work,
)
from lastseen.refine import Extend, Mask
from lastseen.rule import Rule
from lastseen.search.outline import LAST_STEPS, Draft, Outline, SourceFacts

SCORING = "scoring"  # the task of giving every frame a coarse score
ASSUMED_VIDEOS = 2  # in which the thing may have been seen, before anything is known


class Expected:
    """Tasks: the first pass; then checking, extending and measuring, each by name and video."""

    def __init__(
        self, tracker: Tracker, rule: Rule, cases: Mapping[str, Sequence[Outline]], every: bool
    ) -> None:
        self.tracker, self.cases = tracker, cases
        steps = {step.name for step in rule.refinement}
        self._check_steps, self._extend_steps = steps - LAST_STEPS, steps & {Extend.name}
        self._mask_steps = steps & {Mask.name}
        for name, of_name in cases.items():
            self._checks(name, dict.fromkeys(of_name[: ASSUMED_VIDEOS if every else 1]))

    # --- the first pass ---

    def clips(self, sources: Iterable[SourceFacts], count: int) -> None:
        """Coarse scores of all frames, and then `count` clips for each name."""
        self.tracker.plan(SEARCHING, SCORING, sum((source.scoring_work for source in sources), Work()))
        for name, cases in self.cases.items():
            there = sum(len(case.clips) for case in cases)
            self.tracker.plan(SEARCHING, name, self._of_clips(name, min(there, count)))

    @contextmanager
    def searching(self, name: str) -> Iterator[None]:
        yield from self._task(SEARCHING, name, SCORED, LOCALIZED)

    @contextmanager
    def later_clips(self, name: str, count: int) -> Iterator[None]:
        self.tracker.plan(LOOKING_CLOSER, name, self._of_clips(name, count))
        yield from self._task(LOOKING_CLOSER, name, ENCODED, LOCALIZED)

    def _of_clips(self, name: str, count: int) -> Work:
        """What the model takes on `count` clips, of average length; their features may not be stored."""
        cases = self.cases[name]
        there = sum(len(case.clips) for case in cases)
        if not there:
            return Work()
        frames = round(
            count * sum(stop - start for case in cases for start, stop, _, _ in case.clips) / there
        )
        stored = all(case.source.stored for case in cases)
        return Work({LOCALIZED: frames, ENCODED: 0 if stored else frames})

    def all_frames(self, key: str) -> None:
        """Every frame of a video."""
        cases = [case for of_name in self.cases.values() for case in of_name if case.key == key]
        localized = sum(case.frames for case in cases)
        sources = [case.source for case in cases]
        encoded = max((source.end - source.first for source in sources if not source.stored), default=0)
        self.tracker.plan(SEARCHING, key, {LOCALIZED: localized, ENCODED: encoded})

    def begin_all_frames(self, key: str) -> None:
        self.tracker.begin(SEARCHING, key, LOCALIZED)

    def end_all_frames(self, key: str) -> None:
        self.tracker.finish(SEARCHING, key)

    # --- refinement ---

    def checks(self, name: str, drafts: Mapping[Outline, Draft], chosen: Sequence[Outline]) -> None:
        """After the first pass: these drafts will be checked, and probably extended and measured."""
        for case in self.cases[name]:
            self._drop(name, case)
        self._checks(name, {case: drafts[case] for case in chosen})

    def last_steps(self, leading: Mapping[str, Sequence[tuple[Outline, Draft]]]) -> None:
        """After the checks: these drafts are the answers."""
        for name, cases in self.cases.items():
            for case in cases:
                self._drop(name, case)
            for case, draft in leading[name]:
                self._last_steps(name, case, draft)

    @contextmanager
    def checking(self, name: str, case: Outline, draft: Draft) -> Iterator[None]:
        self.tracker.plan(LOOKING_CLOSER, _check(name, case), case.work(draft.evidence, self._check_steps))
        yield from self._task(LOOKING_CLOSER, _check(name, case), ENCODED, LOCALIZED)

    @contextmanager
    def extending(self, name: str, case: Outline) -> Iterator[None]:
        yield from self._task(LOOKING_CLOSER, _extend(name, case), ENCODED, LOCALIZED)

    @contextmanager
    def measuring(self, name: str, case: Outline) -> Iterator[None]:
        if self._mask_steps:
            yield from self._task(MEASURING, _mask(name, case), SEGMENTED)
        else:
            yield

    def _checks(self, name: str, chosen: Mapping[Outline, Draft | None]) -> None:
        for case, draft in chosen.items():
            evidence = draft.evidence if draft else None
            self.tracker.plan(LOOKING_CLOSER, _check(name, case), case.work(evidence, self._check_steps))
            self._last_steps(name, case, draft)

    def _last_steps(self, name: str, case: Outline, draft: Draft | None) -> None:
        evidence = draft.evidence if draft else None
        self.tracker.plan(LOOKING_CLOSER, _extend(name, case), case.work(evidence, self._extend_steps))
        self.tracker.plan(MEASURING, _mask(name, case), case.work(evidence, self._mask_steps))

    def _drop(self, name: str, case: Outline) -> None:
        for phase, task in (
            (LOOKING_CLOSER, _check(name, case)),
            (LOOKING_CLOSER, _extend(name, case)),
            (MEASURING, _mask(name, case)),
        ):
            self.tracker.drop(phase, task)

    def _task(self, phase: str, task: str, *shown: str) -> Iterator[None]:
        self.tracker.begin(phase, task, *shown)
        yield
        self.tracker.finish(phase, task)


def _check(name: str, case: Outline) -> str:
    return f"{name}: check {case.key}"


def _extend(name: str, case: Outline) -> str:
    return f"{name}: extend {case.key}"


def _mask(name: str, case: Outline) -> str:
    return f"{name}: mask {case.key}"

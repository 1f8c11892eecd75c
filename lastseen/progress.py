"""Progress of long work: which phase it is in, how much of that is done, how long everything left will take.

Work is counted in kinds (a frame encoded, a frame searched, ...). Speeds are measured by kind, and a tracker
knows what each phase is still expected to take, so that the time left is told for all phases from the start.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

READING, SEARCHING = "reading", "searching"
LOOKING_CLOSER, MEASURING = "looking closer", "measuring boxes"
PREPARING = "preparing (only once)"
REPAIRING, EVALUATING, CHECKING = "repairing", "evaluating", "checking"
# Kinds of work, counted in frames: scored by their compact tokens; decoded and encoded; searched by the model
# for one query; segmented.
SCORED, ENCODED, LOCALIZED, SEGMENTED = "scored", "encoded", "localized", "segmented"
FORGETTING = 0.95  # weight of what was measured before, with each new measurement
# Where a kind has not been measured yet: its cost relative to another kind's.
GUESSED_COSTS: Mapping[str, tuple[tuple[str, float], ...]] = MappingProxyType(
    {
        SCORED: ((ENCODED, 0.001),),
        ENCODED: ((LOCALIZED, 5.0),),
        LOCALIZED: ((ENCODED, 0.2),),
        SEGMENTED: ((ENCODED, 5.0), (LOCALIZED, 25.0)),
    }
)

Work = Counter[str]  # how much of each kind


@dataclass(frozen=True)
class Progress:
    """`done` of `total` in this phase; `left_s`: estimated seconds until all phases are done, None while that
    cannot be told. `total` follows what is known and may change."""

    phase: str  # "reading", "searching", "looking closer", "measuring boxes", ...
    done: int
    total: int
    unit: str = "frames"
    left_s: float | None = None


Tell = Callable[[Progress], None]


class Speeds:
    """Measured seconds per unit of each kind of work; recent measurements count more."""

    def __init__(self) -> None:
        self._measured: dict[str, tuple[int, float, float]] = {}  # measurements, units, seconds

    def add(self, kind: str, units: int, seconds: float) -> None:
        times, before, took_s = self._measured.get(kind, (0, 0.0, 0.0))
        keep = FORGETTING if times > 1 else 0.0  # the first one is of a cold start: the second replaces it
        self._measured[kind] = times + 1, keep * before + units, keep * took_s + seconds

    def seconds_for(self, work: Mapping[str, int]) -> float | None:
        """What some work will take; None if nothing that would tell it has been measured."""
        total = 0.0
        for kind, units in work.items():
            if units:
                cost = self._cost(kind)
                if cost is None:
                    return None
                total += units * cost
        return total

    def _cost(self, kind: str) -> float | None:
        for other, ratio in ((kind, 1.0), *GUESSED_COSTS.get(kind, ())):
            if other in self._measured:
                _, units, seconds = self._measured[other]
                return ratio * seconds / units
        return None


class Pace:
    """Progress of work that counts itself, in one phase: called with (done, total), it adds the time left."""

    def __init__(
        self, tell: Tell | None, phase: str, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell, self._phase, self._unit, self._clock = tell, phase, unit, clock
        self._speeds, self._at, self._done = Speeds(), clock(), 0

    def __call__(self, done: int, total: int) -> None:
        if self._tell is None:
            return
        if done > self._done:
            self._speeds.add(self._unit, done - self._done, self._clock() - self._at)
        self._tell(
            Progress(
                self._phase, done, total, self._unit, self._speeds.seconds_for({self._unit: total - done})
            )
        )
        self._at, self._done = self._clock(), done


class Tracker:
    """Counts work and tells its progress.

    `plan` says what a task is expected to take. `begin` opens a task; `did` counts what was done of the open
    one; `finish` drops what was planned of a task and is not needed.
    """

    def __init__(
        self,
        tell: Tell | None = None,
        speeds: Speeds | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell, self._clock = tell, clock  # the callback may raise, which stops the work
        self._speeds = Speeds() if speeds is None else speeds
        self._planned: dict[tuple[str, str], Work] = {}  # by phase and task
        self._done: Counter[str] = Counter()  # units shown, by phase
        self._shown: dict[str, frozenset[str]] = {}  # which kinds a phase shows
        self._open: tuple[str, str] | None = None
        self._last: tuple[str, int, int] | None = None
        self._at = clock()

    def plan(self, phase: str, task: str, work: Mapping[str, int]) -> None:
        """What a task will still take, as far as is known; replaces what was said before."""
        self._planned[phase, task] = Counter(work)

    def begin(self, phase: str, task: str, *shown: str, done: int | None = None) -> None:
        """Begin or go on with a task. Of its phase the `shown` kinds are counted, from `done` on."""
        self._shown.setdefault(phase, frozenset(shown))
        if done is not None:
            self._done[phase] = done
        self._open = phase, task
        self._at = self._clock()
        self.tell()

    def did(self, kind: str, units: int) -> None:
        """Count work; the time since the last call, or since the task began, is what it took."""
        now = self._clock()
        self._speeds.add(kind, units, now - self._at)
        self._at = now
        if self._open is None:
            return
        planned = self._planned.get(self._open)
        if planned is not None:
            # More than was expected: as much again may follow. `finish` says when it does not.
            left = planned[kind] - units
            planned[kind] = left if left >= 0 else units
        if kind in self._shown[self._open[0]]:
            self._done[self._open[0]] += units

    def finish(self, phase: str, task: str) -> None:
        """Of this task nothing is left to do."""
        self.drop(phase, task)
        self.tell()

    def drop(self, phase: str, task: str) -> None:
        """This task is not going to be done."""
        self._planned.pop((phase, task), None)

    def tell(self) -> None:
        """Tell the state, if it has changed; a phase that turns out to be empty is not begun."""
        if self._tell is None or self._open is None:
            return
        phase = self._open[0]
        left = [work for (other, _), work in self._planned.items() if other == phase]
        done = self._done[phase]
        total = done + sum(work[kind] for work in left for kind in self._shown[phase])
        known = total or (self._last is not None and self._last[0] == phase)
        if known and (phase, done, total) != self._last:
            self._last = phase, done, total
            began = self._clock()
            self._tell(Progress(phase, done, total, "frames", self.left_s))
            self._at += self._clock() - began  # whoever is told may take long: that is no work

    @contextmanager
    def aside(self, phase: str, unit: str) -> Iterator[None]:
        """One thing that must be made first: a phase of its own, whose time is not that of the open task."""
        if self._tell is not None:
            self._tell(Progress(phase, 0, 1, unit))
        yield
        if self._tell is not None:
            self._tell(Progress(phase, 1, 1, unit))
        self._last, self._at = None, self._clock()
        self.tell()

    @property
    def left_s(self) -> float | None:
        """What is planned, in seconds."""
        return self._speeds.seconds_for(sum(self._planned.values(), Counter()))

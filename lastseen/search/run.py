"""A search of some parts for some queries: the exact model on candidate clips, or on all frames.

coarse scores of all frames --> candidate clips --exact model--> drafts --refinement--> answers
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np

from lastseen.answer import Answer
from lastseen.errors import IndexStoreError
from lastseen.procedure import Procedure
from lastseen.progress import LOCALIZED, SCORED, SEARCHING, Tracker
from lastseen.rule import Rule
from lastseen.search.expected import SCORING, Expected
from lastseen.search.outline import Draft, Outline
from lastseen.search.part import Part
from lastseen.search.ranking import by_rank

CANDIDATES = 24  # clips of an index on which the model runs first, per query
LATER_ROUNDS = 3  # rounds in which it runs on clips later than the last sighting so far
MAX_GUESSES = 4  # videos whose best guess is refined, if the thing was seen in none
Clip = tuple[Outline, int]
Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
Preliminary = Callable[[str, list[Answer]], None]


class Possible(Protocol):
    """An Outline, as far as the functions below need it."""

    def may_be_seen(self, draft: Draft) -> bool: ...


C = TypeVar("C", bound=Possible)


def search_parts(
    parts: Sequence[Part],
    procedure: Procedure,
    names: Sequence[str],
    *,
    every: bool,
    exhaustive: bool,
    candidates: int,
    tracker: Tracker,
    preliminary: Preliminary | None = None,
    each: Each = map,
) -> dict[str, list[Answer]]:
    """For each name the answer from the source in which the thing was last seen; `every`: all, latest first.

    Of several parts it is that of one part with the sources of all, in the order of their places.
    `exhaustive` runs the exact model on every frame. `preliminary` is called with each name and what the
    first pass says of it: as the answers, before any refinement.

    `each` calls a function for all items and yields what it returns, in their order: `map`, or the map of a
    pool of threads, if parts compute elsewhere.
    """
    work = _Search(parts, procedure.rule, names, every, tracker, preliminary, each)
    if exhaustive or procedure.reads_every_frame:
        work.run_on_all_frames()
    else:
        work.run_on_candidates(candidates)
    return work.answers()


class _Search:
    """The state of a search over all parts: one case for each query and source."""

    def __init__(
        self,
        parts: Sequence[Part],
        rule: Rule,
        names: Collection[str],
        every: bool,
        tracker: Tracker,
        preliminary: Preliminary | None,
        each: Each,
    ) -> None:
        self.parts, self.every, self._each = parts, every, each
        self.tracker, self._preliminary, self._lock = tracker, preliminary, Lock()
        found = [(key, source, part) for part in parts for key, source in part.sources.items()]
        if len(parts) > 1:  # the same order, whichever part has which source
            found.sort(key=lambda one: (Path(one[1].place), one[0]))
        self.sources = {key: source for key, source, _ in found}
        self._part = {key: part for key, _, part in found}
        there = {(name, case.key): case for part in parts for name in names for case in part.outlines[name]}
        self.cases = {
            name: [there[name, key] for key in self.sources if (name, key) in there] for name in names
        }
        self._drafts: dict[str, dict[Outline, Draft]] = {name: {} for name in names}
        self._expected = Expected(tracker, rule, self.cases, every)

    def answers(self) -> dict[str, list[Answer]]:
        """Refined by the steps that are left, phase by phase."""
        leading = {name: ranked_drafts(drafts, self.every) for name, drafts in self._drafts.items()}
        self._expected.last_steps(leading)
        extended = {name: self._extended(name, [case for case, _ in leading[name]]) for name in leading}
        return {name: self._finished(name, cases) for name, cases in extended.items()}

    def _extended(self, name: str, cases: Sequence[Outline]) -> Sequence[Outline]:
        made = iter(self._each(lambda case: self._part[case.key].extended(name, case.key, self.every), cases))
        for case in cases:
            with self._expected.extending(name, case):
                next(made)
        return cases

    def _finished(self, name: str, cases: Sequence[Outline]) -> list[Answer]:
        """With boxes by masks, if the rule has them, and with what was found damaged."""
        answers = []
        made = iter(self._each(lambda case: self._part[case.key].masked(name, case.key), cases))
        for case in cases:
            with self._expected.measuring(name, case):
                answers.append(next(made))
        told: dict[str, list[str]] = {}
        for lines_of in self._each(lambda part: part.damage(), self.parts):
            told |= lines_of
        damage = {key: told[key] for key in self.sources}
        if not answers and any(damage.values()):
            raise IndexStoreError(next(filter(None, damage.values()))[0])
        mine = [tuple(damage.pop(case.key, ())) for case in cases]
        # Damage of sources without an answer is said with the first: it may be why they have none.
        rest = tuple(line for lines in damage.values() for line in lines)
        return [
            replace(answer, damage=lines + (() if number else rest))
            for number, (answer, lines) in enumerate(zip(answers, mine))
        ]

    def run_on_all_frames(self) -> None:
        """Exhaustive search, latest source first in each part; all queries share a source's features."""
        order = sorted(self.sources, key=lambda key: -self.sources[key].ended_at)
        for key in order:
            self._expected.all_frames(key)
        for _ in self._each(lambda part: self._run_all_of(part, order), self.parts):
            pass
        for name, drafts in self._drafts.items():  # parts at work at once finish in any order
            self._drafts[name] = dict(sorted(drafts.items(), key=lambda one: order.index(one[0].key)))
        self._first_pass_done()
        for name in self._drafts:
            self._check(name)

    def _run_all_of(self, part: Part, order: Sequence[str]) -> None:
        for key in [key for key in order if self._part[key] is part]:
            with self._lock:
                ended = self.sources[key].ended_at
                still_open = {
                    name: case
                    for name, cases in self.cases.items()
                    for case in cases
                    if case.key == key and (self.every or not self._seen_after(name, ended))
                }
                self._expected.begin_all_frames(key)
            drafts = part.run_on_all_frames(key, list(still_open), self.every)
            with self._lock:
                for name, draft in drafts.items():
                    self._drafts[name][still_open[name]] = draft
                self._expected.end_all_frames(key)

    def run_on_candidates(self, count: int) -> None:
        """Run the model on the `count` highest-ranked clips, then on clips after the last sighting, in which
        the thing may have been seen again."""
        every, done = self.every, {}
        self._expected.clips(self.sources.values(), count)
        ranked = _candidates(self)
        for name, clips in ranked.items():
            with self._expected.searching(name):
                done[name] = self._run(name, clips, count)
        self._first_pass_done()
        for name, clips in ranked.items():
            self._check(name)
            for _ in range(LATER_ROUNDS):
                latest = self._latest(name)
                if latest is None or every:
                    break
                later = [
                    (case, clip)
                    for case, clip in clips
                    if (case, clip) not in done[name] and case.clip_end(clip) > latest
                ]
                if not later:
                    break
                with self._expected.later_clips(name, min(len(later), count // 2)):
                    done[name] |= self._run(name, later, count // 2)
                self._check(name)
                now = self._latest(name)  # None: refinement rejected the sighting
                if now is None or now <= latest:
                    break

    def _run(self, name: str, clips: Sequence[Clip], count: int) -> set[Clip]:
        chosen = set(clips[:count])
        of_parts: dict[int, dict[str, list[int]]] = {id(part): {} for part in self.parts}
        for case, clip in chosen:
            of_parts[id(self._part[case.key])].setdefault(case.key, []).append(clip)
        drafts: dict[str, Draft] = {}
        for made in self._each(lambda part: part.run(name, of_parts[id(part)], self.every), self.parts):
            drafts |= made
        self._drafts[name] = {case: drafts[case.key] for case in self.cases[name] if case.key in drafts}
        return chosen

    def _first_pass_done(self) -> None:
        for name, drafts in self._drafts.items():
            self._expected.checks(name, drafts, to_check(drafts, self.every))
            if self._preliminary is not None:
                answers = [draft.answer for _, draft in ranked_drafts(drafts, self.every)]
                self._preliminary(name, [replace(answer, preliminary=True) for answer in answers])

    def _check(self, name: str) -> None:
        """Refine the leading draft until the leader is a refined one (`every`: all possible sightings)."""
        drafts = self._drafts[name]
        tried: set[Outline] = set()
        while (case := next_to_check(drafts, tried, self.every)) is not None:
            tried.add(case)
            with self._expected.checking(name, case, drafts[case]):
                drafts[case] = self._part[case.key].checked(name, case.key, self.every)

    def _latest(self, name: str) -> float | None:
        """When the thing was last seen, according to the clips processed so far."""
        drafts = self._drafts[name].values()
        return max((draft.seen_at for draft in drafts if draft.answer.found), default=None)

    def _seen_after(self, name: str, time: float) -> bool:
        return any(draft.answer.found and draft.seen_at >= time for draft in self._drafts[name].values())


def _candidates(work: _Search) -> dict[str, list[Clip]]:
    """For each query the clips of all sources, highest rank first."""
    work.tracker.begin(SEARCHING, SCORING, SCORED, LOCALIZED)
    scores: dict[tuple[str, str], np.ndarray] = {}
    for found in work._each(lambda part: part.clip_scores(), work.parts):
        scores |= found
    work.tracker.finish(SEARCHING, SCORING)
    return {
        name: [(cases[n], clip) for n, clip in by_rank(scores[name, case.key] for case in cases)]
        for name, cases in work.cases.items()
    }


def next_to_check(drafts: Mapping[C, Draft], tried: set[C], every: bool) -> C | None:
    """The latest possible sighting, unless a later one is confirmed; if nothing was seen, the best guess."""
    waiting = [case for case, draft in drafts.items() if case not in tried and not draft.zoomed]
    confirmed = [
        draft.seen_at for case, draft in drafts.items() if draft.answer.found and case not in waiting
    ]
    possible = [case for case in waiting if case.may_be_seen(drafts[case])]
    if confirmed and not every:
        possible = [case for case in possible if drafts[case].seen_at > max(confirmed)]
    if possible:
        return max(possible, key=lambda case: drafts[case].seen_at)
    if confirmed or len(tried) >= MAX_GUESSES:
        return None
    guesses = {case: guess.score for case, draft in drafts.items() if (guess := draft.answer.best_guess)}
    best = max(guesses, key=lambda case: guesses[case], default=None)
    return best if best in waiting else None


def to_check(drafts: Mapping[C, Draft], every: bool) -> list[C]:
    """Which drafts will be refined, as far as they tell before that."""
    possible = [case for case, draft in drafts.items() if not draft.zoomed and case.may_be_seen(draft)]
    first = next_to_check(drafts, set(), every)
    return possible if every and possible else [case for case in (first,) if case is not None]


def ranked_drafts(drafts: Mapping[C, Draft], every: bool) -> list[tuple[C, Draft]]:
    seen = sorted(
        ((case, draft) for case, draft in drafts.items() if draft.answer.found),
        key=lambda pair: -pair[1].seen_at,
    )
    if seen:
        return seen if every else seen[:1]
    guessed = [
        (guess.score, case, draft) for case, draft in drafts.items() if (guess := draft.answer.best_guess)
    ]
    return [max(guessed, key=lambda guess: guess[0])[1:]] if guessed else []

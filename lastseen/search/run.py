"""A search of some sources for some queries: on candidate clips, or on all frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

from lastseen.answer import Answer
from lastseen.model import EncodedQuery
from lastseen.progress import LOCALIZED, SCORED, SEARCHING, Tracker
from lastseen.query import Query
from lastseen.runner import ModelRunner
from lastseen.search.case import Case, Draft
from lastseen.search.expected import SCORING, Expected
from lastseen.search.ranking import by_rank, query_vectors
from lastseen.search.source import Source

CANDIDATES = 24  # clips on which the model runs first, per query
LATER_ROUNDS = 3  # rounds in which it runs on clips later than the last sighting so far
MAX_GUESSES = 4  # videos whose best guess is refined, if the thing was seen in none
S = TypeVar("S", bound=Source)


class Possible(Protocol):
    """A Case, or what is known of one elsewhere."""

    def may_be_seen(self, draft: Draft) -> bool: ...


C = TypeVar("C", bound=Possible)
Preliminary = Callable[[str, list[Answer]], None]


class Search(Generic[S]):
    """The state of a search: one Case for each query and source. Run it in one of two ways, then ask for
    `answers`.

    `ends` says how many frames of a source are searched for a query. `preliminary` is called with each name
    and what the first pass says of it, before any refinement; `after_clip` whenever the model ran on a clip.
    """

    def __init__(
        self,
        runner: ModelRunner,
        queries: Mapping[str, Query],
        encoded: Mapping[str, list[EncodedQuery]],
        sources: Sequence[S],
        ends: Callable[[S, Query], int],
        *,
        tracker: Tracker,
        every: bool = False,
        preliminary: Preliminary | None = None,
        after_clip: Callable[[], None] | None = None,
    ) -> None:
        self.runner, self.encoded, self.sources, self.every = runner, encoded, sources, every
        self.tracker, self._preliminary, self._after_clip = tracker, preliminary, after_clip
        self.cases: dict[str, list[Case]] = {name: [] for name in queries}
        self._drafts: dict[str, dict[Case, Draft]] = {name: {} for name in queries}
        self._sources: dict[Case, S] = {}
        for source in sources:
            for name, query in queries.items():
                if (end := ends(source, query)) > source.first:
                    case = Case(runner, source, query, encoded[name], end)
                    self.cases[name].append(case)
                    self._sources[case] = source
        self._expected = Expected(tracker, runner.rule, self.cases, every)

    def answers(self) -> dict[str, list[tuple[S, Answer]]]:
        """Refined by the steps that are left, phase by phase; each with where it is from."""
        leading = {name: ranked_drafts(drafts, self.every) for name, drafts in self._drafts.items()}
        self._expected.last_steps(leading)
        extended: dict[str, list[tuple[Case, Draft]]] = {name: [] for name in leading}
        for name, ranked in leading.items():
            for case, draft in ranked:
                with self._expected.extending(name, case):
                    extended[name].append((case, case.extended(draft, self.every)))
        return {name: self._measured(name, drafts) for name, drafts in extended.items()}

    def _measured(self, name: str, drafts: Sequence[tuple[Case, Draft]]) -> list[tuple[S, Answer]]:
        """With boxes by masks, if the rule has them."""
        answers = []
        for case, draft in drafts:
            with self._expected.measuring(name, case):
                answers.append((self._sources[case], case.masked(draft)))
        return answers

    def run_on_candidates(self, count: int) -> None:
        """Run the model on the `count` highest-ranked clips, then on clips after the last sighting, in which
        the thing may have been seen again."""
        every, done = self.every, {}
        self._expected.clips(self.sources, count)
        ranked = self._ranked_clips()
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

    def _run(self, name: str, clips: Sequence[tuple[Case, int]], count: int) -> set[tuple[Case, int]]:
        chosen = set(clips[:count])
        order = {case: number for number, case in enumerate(self.cases[name])}
        for case, clip in sorted(chosen, key=lambda pair: (order[pair[0]], pair[1])):
            case.run(clip)
            if self._after_clip is not None:
                self._after_clip()
        touched = [case for case in self.cases[name] if case.has_predictions]
        for case in touched:
            case.run_around(self.every)
        self._drafts[name] = {case: case.unrefined() for case in touched}
        return chosen

    def _ranked_clips(self) -> dict[str, list[tuple[Case, int]]]:
        """For each query the clips of all sources, highest rank first."""
        names = list(self.encoded)
        vectors = [
            torch.cat([query_vectors(self.runner.model, view) for view in self.encoded[name]])
            for name in names
        ]
        self.tracker.begin(SEARCHING, SCORING, SCORED, LOCALIZED)
        scores = {source.key: source.coarse_scores(vectors, self._scored) for source in self.sources}
        self.tracker.finish(SEARCHING, SCORING)
        ranked = {}
        for number, name in enumerate(names):
            cases, of_clips = self.cases[name], []
            for case in cases:
                of_frames = scores[case.source.key][number]
                of_clips.append(np.array([of_frames[first:last].max() for *_, first, last in case.clips]))
            ranked[name] = [(cases[place], clip) for place, clip in by_rank(of_clips)]
        return ranked

    def _scored(self, frames: int) -> None:
        self.tracker.did(SCORED, frames)
        self.tracker.tell()

    def _first_pass_done(self) -> None:
        for name, drafts in self._drafts.items():
            self._expected.checks(name, drafts, to_check(drafts, self.every))
            if self._preliminary is not None:
                answers = [draft.answer for _, draft in ranked_drafts(drafts, self.every)]
                self._preliminary(name, [replace(answer, preliminary=True) for answer in answers])

    def _check(self, name: str) -> None:
        """Refine the leading draft until the leader is a refined one (`every`: all possible sightings)."""
        drafts = self._drafts[name]
        tried: set[Case] = set()
        while (case := next_to_check(drafts, tried, self.every)) is not None:
            tried.add(case)
            with self._expected.checking(name, case, drafts[case]):
                drafts[case] = case.checked(drafts[case], self.every)

    def _latest(self, name: str) -> float | None:
        """When the thing was last seen, according to the clips processed so far."""
        drafts = self._drafts[name].values()
        return max((draft.seen_at for draft in drafts if draft.answer.found), default=None)


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

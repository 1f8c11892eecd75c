"""Search an index: a coarse score for every frame, the exact model on the clips that score highest.

compact tokens of all frames --coarse_scores--> candidate clips --exact model--> answers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from lastseen.answer import Answer
from lastseen.errors import IndexStoreError, QueryError
from lastseen.index.case import Case, Draft
from lastseen.index.compact import coarse_scores, query_vectors
from lastseen.index.entry import IndexedVideo
from lastseen.index.expected import SCORING, Expected
from lastseen.index.fine import FineFeatures
from lastseen.index.folder import IndexFolder
from lastseen.localizer import Localizer
from lastseen.model import EncodedQuery
from lastseen.progress import LOCALIZED, SCORED, SEARCHING, Tell, Tracker
from lastseen.query import Query

CANDIDATES = 24  # clips of the whole index on which the exact model runs first, per query
LATER_ROUNDS = 3  # rounds in which it runs on clips later than the last sighting so far
ATTEMPTS = 5  # a recording that drops frames faster than they can be searched must not keep it going forever
MAX_GUESSES = 4  # videos whose best guess is refined, if the thing was seen in none
Preliminary = Callable[[str, list[Answer]], None]


def search(
    index: IndexFolder,
    localizer: Localizer,
    queries: Mapping[str, Query],
    *,
    videos: Sequence[IndexedVideo] | None = None,
    before: float | None = None,
    every: bool = False,
    exhaustive: bool = False,
    candidates: int = CANDIDATES,
    progress: Tell | None = None,
    preliminary: Preliminary | None = None,
) -> dict[str, list[Answer]]:
    """For each query the answer from the video in which the thing was last seen; `every`: all, latest first.

    If it was seen in none, the answer with the best guess. `before` is a moment in seconds since 1970; a
    query's own `asked_at` counts from the beginning of each video. `exhaustive` runs the exact model on
    every frame.

    `preliminary` is called with each name and what the first pass says of it: as the answers, before any
    refinement.
    """
    if not index.videos():
        raise IndexStoreError(_empty(index))
    index.bind(localizer)
    encoded = {name: localizer.encode_query(query) for name, query in queries.items()}
    chosen = None if videos is None else {video.id for video in videos}
    for attempt in range(ATTEMPTS):
        asked = [video for video in index.videos() if chosen is None or video.id in chosen]
        if not asked:
            raise IndexStoreError(_empty(index) if chosen is None else f"{index.folder}: {_REMOVED}")
        kept = [video for video in asked if video.frames > video.first]
        try:
            tracker = Tracker(progress, localizer.speeds)
            here = localizer.tracked_by(tracker)
            work = _Search(index, here, queries, encoded, kept, before, every, tracker, preliminary)
            if exhaustive or localizer.procedure.reads_every_frame:
                work.run_on_all_frames()
            else:
                work.run_on_candidates(candidates)
            return work.answers()
        except IndexStoreError:
            now = {video.id: video.first for video in index.videos()}
            if attempt == ATTEMPTS - 1 or all(video.first == now.get(video.id) for video in kept):
                raise
            # A recording dropped its oldest frames, or a video was removed, during the search: repeat it.
    raise AssertionError("the last attempt returns or raises")


_REMOVED = "the video was removed from the index meanwhile; ask again"


def _empty(index: IndexFolder) -> str:
    return f"{index.folder} is empty; add something to search: lastseen index VIDEO..."


class _Search:
    """The state of a search: one Case for each query and video."""

    def __init__(
        self,
        index: IndexFolder,
        localizer: Localizer,
        queries: Mapping[str, Query],
        encoded: Mapping[str, list[EncodedQuery]],
        videos: Sequence[IndexedVideo],
        before: float | None,
        every: bool,
        tracker: Tracker,
        preliminary: Preliminary | None,
    ) -> None:
        self.localizer, self.encoded, self.every = localizer, encoded, every
        self.tracker, self._preliminary = tracker, preliminary
        self.fine = [FineFeatures(index, localizer, video) for video in videos]
        self.cases: dict[str, list[Case]] = {name: [] for name in queries}
        self._drafts: dict[str, dict[Case, Draft]] = {name: {} for name in queries}
        for fine in self.fine:
            for name, query in queries.items():
                end = _frames_searched(localizer, fine.video, query, before)
                if end > fine.video.first:
                    self.cases[name].append(Case(localizer, fine, query, encoded[name], end))
        if videos and not any(self.cases.values()):
            raise QueryError("nothing in the index was recorded before that; ask about a later moment")
        self._expected = Expected(tracker, localizer.rule, self.cases, every)

    def answers(self) -> dict[str, list[Answer]]:
        """Refined by the steps that are left, phase by phase."""
        leading = {name: _ranked(drafts, self.every) for name, drafts in self._drafts.items()}
        self._expected.last_steps(leading)
        extended: dict[str, list[tuple[Case, Draft]]] = {name: [] for name in leading}
        for name, ranked in leading.items():
            for case, draft in ranked:
                with self._expected.extending(name, case):
                    extended[name].append((case, case.extended(draft, self.every)))
        return {name: self._finished(name, drafts) for name, drafts in extended.items()}

    def _finished(self, name: str, drafts: Sequence[tuple[Case, Draft]]) -> list[Answer]:
        """With boxes by masks, if the rule has them, and with what was found damaged."""
        answers = []
        for case, draft in drafts:
            with self._expected.measuring(name, case):
                answers.append(case.masked(draft))
        damage = {fine.video.id: fine.damage() for fine in self.fine}
        if not answers and any(damage.values()):
            raise IndexStoreError(next(filter(None, damage.values()))[0])
        mine = [tuple(damage.pop(_id(answer), ())) for answer in answers]
        # Damage of videos without an answer is said with the first: it may be why they have none.
        rest = tuple(line for lines in damage.values() for line in lines)
        return [
            replace(answer, damage=lines + (() if number else rest))
            for number, (answer, lines) in enumerate(zip(answers, mine))
        ]

    def run_on_all_frames(self) -> None:
        """Exhaustive search, latest video first; all queries share a video's features."""
        every, order = self.every, sorted(self.fine, key=lambda fine: -_ended(fine.video))
        for fine in order:
            self._expected.all_frames(fine)
        for fine in order:
            still_open = [
                (name, case)
                for name, cases in self.cases.items()
                for case in cases
                if case.fine is fine and (every or not self._seen_after(name, _ended(fine.video)))
            ]
            self._expected.begin_all_frames(fine)
            # How the last clip is cut depends on the end, so each distinct end gets its own pass.
            for end in sorted({case.end for _, case in still_open}):
                together = [(name, case) for name, case in still_open if case.end == end]
                encoded = [case.encoded for _, case in together]
                parts = []
                for at, to in fine.readable(fine.video.first, end):
                    ends = [to - at] * len(together)
                    pieces = fine.pieces(at, to)
                    parts.append((at, self.localizer.predict_encoded(fine.video, pieces, encoded, ends)))
                for number, (name, case) in enumerate(together if parts else []):
                    case.set_predictions([(at, found[number]) for at, found in parts])
                    draft = case.unrefined()
                    # Unless all videos are asked for, a sighting that stands the check ends the search.
                    possible = not every and case.may_be_seen(draft)
                    self._drafts[name][case] = case.checked(draft, every) if possible else draft
            self._expected.end_all_frames(fine)
        self._first_pass_done()
        for name in self._drafts:
            self._check(name)

    def run_on_candidates(self, count: int) -> None:
        """Run the model on the `count` highest-ranked clips, then on clips after the last sighting, in which
        the thing may have been seen again."""
        every, done = self.every, {}
        self._expected.clips(self.fine, count)
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

    def _run(self, name: str, clips: Sequence[tuple[Case, int]], count: int) -> set[tuple[Case, int]]:
        chosen = set(clips[:count])
        for case, clip in sorted(chosen, key=lambda pair: (pair[0].fine.video.id, pair[1])):
            case.run(clip)
        touched = [case for case in self.cases[name] if case.has_predictions]
        for case in touched:
            case.run_around(self.every)
        self._drafts[name] = {case: case.unrefined() for case in touched}
        return chosen

    def _first_pass_done(self) -> None:
        for name, drafts in self._drafts.items():
            self._expected.checks(name, drafts, _to_check(drafts, self.every))
            if self._preliminary is not None:
                answers = [draft.answer for _, draft in _ranked(drafts, self.every)]
                self._preliminary(name, [replace(answer, preliminary=True) for answer in answers])

    def _check(self, name: str) -> None:
        """Refine the leading draft until the leader is a refined one (`every`: all possible sightings)."""
        drafts = self._drafts[name]
        tried: set[Case] = set()
        while (case := _next_to_check(drafts, tried, self.every)) is not None:
            tried.add(case)
            with self._expected.checking(name, case, drafts[case]):
                drafts[case] = case.checked(drafts[case], self.every)

    def _latest(self, name: str) -> float | None:
        """When the thing was last seen, according to the clips processed so far."""
        drafts = self._drafts[name].values()
        return max((draft.seen_at for draft in drafts if draft.answer.found), default=None)

    def _seen_after(self, name: str, time: float) -> bool:
        return any(draft.answer.found and draft.seen_at >= time for draft in self._drafts[name].values())


def _next_to_check(drafts: Mapping[Case, Draft], tried: set[Case], every: bool) -> Case | None:
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


def _to_check(drafts: Mapping[Case, Draft], every: bool) -> list[Case]:
    """Which drafts will be refined, as far as they tell before that."""
    possible = [case for case, draft in drafts.items() if not draft.zoomed and case.may_be_seen(draft)]
    first = _next_to_check(drafts, set(), every)
    return possible if every and possible else [case for case in (first,) if case is not None]


def _candidates(work: _Search) -> dict[str, list[tuple[Case, int]]]:
    """For each query the clips of all videos, highest rank first."""
    names, localizer = list(work.encoded), work.localizer
    vectors = [
        torch.cat([query_vectors(localizer.model, view) for view in work.encoded[name]]) for name in names
    ]
    scores: dict[int, np.ndarray] = {}
    work.tracker.begin(SEARCHING, SCORING, SCORED, LOCALIZED)
    for fine in work.fine:
        parts = []
        for start, end, tokens in fine.token_pieces():
            # Tokens that cannot be made again are of frames that cannot be searched either.
            unknown = np.full((len(names), end - start), -np.inf, np.float32)
            parts.append(unknown if tokens is None else coarse_scores(fine.grid, tokens, start, vectors))
            work.tracker.did(SCORED, end - start)
            work.tracker.tell()
        scores[fine.video.id] = np.concatenate(parts, 1)
    work.tracker.finish(SEARCHING, SCORING)
    return {
        name: _by_rank(work.cases[name], {id: of_all[number] for id, of_all in scores.items()})
        for number, name in enumerate(names)
    }


def _by_rank(cases: Sequence[Case], scores: Mapping[int, np.ndarray]) -> list[tuple[Case, int]]:
    """Clips ordered by coarse score. A clip next to a better one has its rank number doubled, so that a thing
    that is in view for minutes does not fill the list."""
    clips: list[tuple[float, int, bool, Case]] = []
    for case in cases:
        of_frames = scores[case.fine.video.id]
        coarse = np.array([of_frames[first:last].max() for _, _, first, last in case.clips])
        rim = np.pad(coarse, 1, constant_values=-np.inf)
        is_peak = (coarse >= rim[:-2]) & (coarse > rim[2:])
        clips += [(-score, clip, peak, case) for clip, (score, peak) in enumerate(zip(coarse, is_peak))]
    by_score = sorted(clips, key=lambda clip: clip[0])
    order = sorted(enumerate(by_score, 1), key=lambda place: place[0] * (1 if place[1][2] else 2))
    return [(case, clip) for _, (_, clip, _, case) in order]


def _ranked(drafts: Mapping[Case, Draft], every: bool) -> list[tuple[Case, Draft]]:
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


def _frames_searched(localizer: Localizer, video: IndexedVideo, query: Query, before: float | None) -> int:
    """Number of the video's frames before the query's `asked_at` and `before`."""
    if before is None:
        return localizer.frames_searched(video, query)
    asked_at = before - video.began_at
    if asked_at <= 0:
        return 0
    return localizer.frames_searched(video, query.asked(asked_at if asked_at < video.duration_s else None))


def _id(answer: Answer) -> int:
    assert isinstance(answer.video, IndexedVideo)
    return answer.video.id


def _ended(video: IndexedVideo) -> float:
    return video.began_at + video.duration_s

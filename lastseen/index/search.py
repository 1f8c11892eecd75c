"""Questions to an index: a coarse look at every frame, the exact model where that looked promising.

    compact tokens of all frames --coarse_scores--> candidate clips --exact model--> tracks, as of one-shot

A clip gets the boxes and logits that it gets when its video is searched alone, bit by bit: the clips are cut
the same way and their features are the same. Frames that the exact model never saw count as "not there".
In the end the likeliest sightings are looked at again, enlarged, in the video's file if that is still there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lastseen.ends import PATIENCE
from lastseen.errors import IndexStoreError, QueryError, VideoError
from lastseen.index.catalogue import IndexedVideo
from lastseen.index.compact import coarse_scores, query_vectors
from lastseen.index.fine import FineFeatures
from lastseen.index.folder import Index
from lastseen.index.recorder import compact_grid
from lastseen.localizer import Localizer, Progress
from lastseen.model import EncodedQuery
from lastseen.query import Query
from lastseen.second_look import Looks
from lastseen.track import FramePredictions, ResponseTrack

CANDIDATES = 24  # clips of the whole library that the exact model looks at first, for each thing
LATER = 3  # times that it looks again, at what may have come after the answer
ALMOST = 0.4  # of the score that counts as seen: a second look may find that it was
MOST_GUESSES = 4  # videos that are looked at again for a thing that seems to be in none
# Frames around a track that must have been looked at for it to be whole: so many would be passed over.
RIM = PATIENCE + 1


@dataclass(frozen=True)
class Finding:
    """What one video says about one thing; `guess` is the best there is when it was not seen."""

    video: IndexedVideo
    tracks: tuple[ResponseTrack, ...]
    guess: ResponseTrack | None
    predictions: FramePredictions  # from the video's first kept frame on; logit -inf where nobody looked
    looked_again: bool = False  # enlarged, in the video's file
    no_file: bool = False  # to look at again

    @property
    def seen_at(self) -> float:
        """When the thing was last seen (or guessed to be), in seconds since 1970."""
        last = self.tracks[-1] if self.tracks else self.guess
        return self.video.recorded_at + (last.end if last else 0.0)


def search(
    index: Index,
    localizer: Localizer,
    things: Mapping[str, Query],
    *,
    videos: Sequence[IndexedVideo] | None = None,
    before: float | None = None,
    every: bool = False,
    exhaustive: bool = False,
    candidates: int = CANDIDATES,
    progress: Progress | None = None,
) -> dict[str, list[Finding]]:
    """For each thing the videos it was seen in, the latest sighting first; only the first unless `every`.

    Where it was seen in none, the one with the best guess. `before` is a moment in seconds since 1970; a
    query's own `asked_at` counts from the beginning of each video. `exhaustive` runs the exact model on
    every frame.
    """
    index.bind(localizer)
    if not index.videos():
        raise IndexStoreError(f"{index.folder} is empty; add something to search: lastseen index VIDEO...")
    views = {name: localizer.encode_query(query) for name, query in things.items()}
    chosen = None if videos is None else {video.id for video in videos}
    while True:
        asked = [video for video in index.videos() if chosen is None or video.id in chosen]
        kept = [video for video in asked if video.frames > video.first]
        cases = _Cases(index, localizer, things, views, kept, before)
        try:
            if exhaustive or localizer.paper:
                cases.look_everywhere(every, progress)
            else:
                cases.look_closely(_candidates(index, localizer, cases, progress), candidates, every)
            return {name: cases.answers(name, every) for name in things}
        except IndexStoreError:
            now = {video.id: video.first for video in index.videos()}
            if all(video.first == now.get(video.id) for video in kept):
                raise
            # A recording dropped its oldest frames, or a video was removed, while we looked: again.


class _Case:
    """One thing in one video: which clips were looked at and what was seen there."""

    def __init__(self, localizer: Localizer, fine: FineFeatures, views: list[EncodedQuery], end: int) -> None:
        self.localizer, self.fine, self.views = localizer, fine, views
        self.first, self.end = fine.video.first, end
        # Row numbers instead of features: the same cutting tells which frames are in which clip.
        cut = localizer.clips([torch.arange(max(0, end - self.first))])
        self.clips = [
            (start, start + len(rows), start + first, start + last) for start, rows, first, last in cut
        ]
        self.seen: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._closer: Looks = {}

    def look(self, number: int) -> None:
        """Run the exact model on a clip, once."""
        if number not in self.seen:
            start, stop, first, last = self.clips[number]
            features = self.fine.read(self.first + start, self.first + stop)
            boxes, logits = self.localizer.localize_clip(features, self.views)
            self.seen[number] = boxes[first - start : last - start], logits[first - start : last - start]

    def look_on(self, every: bool) -> None:
        """Look further until the last sighting (or each) ends on both sides, as when all is searched."""
        while missing := self._needed(every, self.predictions()) - self.seen.keys():
            for number in sorted(missing):
                self.look(number)

    def predictions(self) -> FramePredictions:
        """Of the frames from `first` on."""
        count = self.end - self.first
        boxes, logits = np.zeros((count, 4), np.float32), np.full(count, -np.inf, np.float32)
        for number, (some_boxes, some_logits) in self.seen.items():
            _, _, first, last = self.clips[number]
            boxes[first:last], logits[first:last] = some_boxes, some_logits
        letterbox = self.localizer.model.letterbox(self.fine.video.width, self.fine.video.height)
        return FramePredictions(fps=self.localizer.fps, boxes_px=letterbox.to_px(boxes), logits=logits)

    def finding(self, predictions: FramePredictions | None = None, again: bool = False) -> Finding:
        predictions = predictions or self.predictions()
        if again:
            video = self.fine.opened()
            predictions = self.localizer.look_again(video, self.views, predictions, self.first, self._closer)
            predictions = self.localizer.doubt(self.fine.video, predictions, self._features)
        tracks = [self._shifted(track) for track in self.localizer.tracks(predictions)]
        guess = None if tracks else self._shifted(self.localizer.best_guess(predictions))
        return Finding(self.fine.video, tuple(tracks), guess, predictions, again)

    def hopeful(self, finding: Finding) -> bool:
        least = ALMOST * self.localizer.rule.threshold
        return bool(finding.tracks or (finding.guess and finding.guess.score >= least))

    def again(self, finding: Finding, every: bool) -> Finding:
        """What a second look says, once; or doubts alone, if none is asked for or the video's file is not
        there to be looked at."""
        if finding.looked_again:
            return finding
        if not self.localizer.looks:
            return self._doubted(finding)
        if not self.fine.can_open():
            return replace(self._doubted(finding), no_file=True)
        try:
            finding = self.finding(finding.predictions, again=True)
            # What is the answer now may reach into clips that nobody looked at.
            while missing := self._needed(every, finding.predictions) - self.seen.keys() if self.seen else ():
                for number in sorted(missing):
                    self.look(number)
                finding = self.finding(again=True)
        except (VideoError, OSError):  # it went away just now
            return replace(self._doubted(finding), no_file=True)
        return finding

    def _doubted(self, finding: Finding) -> Finding:
        return self.finding(self.localizer.doubt(self.fine.video, finding.predictions, self._features))

    def followed(self, finding: Finding, every: bool) -> Finding:
        """To the ends of what was seen, which may be in clips that nobody looked at."""
        while True:
            predictions = self.localizer.follow(self.fine.video, finding.predictions, self._features)
            missing = self._needed(every, predictions) - self.seen.keys() if self.seen else set()
            if not missing:
                told = self.finding(predictions)
                return replace(told, looked_again=finding.looked_again, no_file=finding.no_file)
            for number in sorted(missing):
                self.look(number)
            finding = self.again(self.finding(), every) if finding.looked_again else self.finding()

    def _features(self, start: int, stop: int) -> Tensor:
        return self.fine.read(self.first + start, self.first + stop).to(self.localizer.device)

    def _needed(self, every: bool, predictions: FramePredictions) -> set[int]:
        best = int(predictions.logits.argmax())
        tracks = self.localizer.tracks(predictions)[0 if every else -1 :]
        shown = {clip for track in tracks for clip in self._around(track.first_frame, track.last_frame)}
        # Neighbours of a better clip wait in the queue; where the thing was seen, they come at once.
        beside = {clip + step for clip in shown for step in (-1, 1)} & set(range(len(self.clips)))
        return shown | beside | self._around(best, best)

    def _around(self, start: int, to: int) -> set[int]:
        """The clips that hold the frames from `start` to `to` and a rim on both sides."""
        spans = enumerate(self.clips)
        return {n for n, (_, _, first, last) in spans if first <= to + RIM and last > start - RIM}

    def _shifted(self, track: ResponseTrack) -> ResponseTrack:
        return replace(track, first_frame=track.first_frame + self.first)


class _Cases:
    """All things in all videos."""

    def __init__(
        self,
        index: Index,
        localizer: Localizer,
        things: Mapping[str, Query],
        views: Mapping[str, list[EncodedQuery]],
        videos: Sequence[IndexedVideo],
        before: float | None,
    ) -> None:
        self.localizer = localizer
        self.fine = [FineFeatures(index, localizer, video) for video in videos]
        self._cases: dict[str, list[_Case]] = {name: [] for name in things}
        self._findings: dict[str, dict[_Case, Finding]] = {name: {} for name in things}
        self.views = views
        for fine in self.fine:
            for name, query in things.items():
                end = _frames_searched(localizer, fine.video, query, before)
                if end > fine.video.first:
                    self._cases[name].append(_Case(localizer, fine, views[name], end))
        if videos and not any(self._cases.values()):
            raise QueryError("nothing in the index was recorded before that; ask about a later moment")

    def cases(self, name: str) -> list[_Case]:
        return self._cases[name]

    def of(self, name: str) -> list[Finding]:
        return list(self._findings[name].values())

    def answers(self, name: str, every: bool) -> list[Finding]:
        cases = {id(finding): case for case, finding in self._findings[name].items()}
        return [cases[id(finding)].followed(finding, every) for finding in _ranked(self.of(name), every)]

    def look_everywhere(self, every: bool, progress: Progress | None) -> None:
        """The exact model on every frame, the latest video first; all things share a video's features."""
        order = sorted(self.fine, key=lambda fine: -_ended(fine.video))
        frames, done = sum(fine.video.frames - fine.video.first for fine in order), 0
        for fine in order:
            still_open = [
                (name, case)
                for name, cases in self._cases.items()
                for case in cases
                if case.fine is fine and (every or not self._answered_after(name, _ended(fine.video)))
            ]
            # How the last clip is cut depends on the end: things asked at another moment get their own pass.
            for end in sorted({case.end for _, case in still_open}):
                together = [(name, case) for name, case in still_open if case.end == end]
                views, ends = [case.views for _, case in together], [end - fine.video.first] * len(together)
                pieces = fine.pieces(fine.video.first, end)
                found = self.localizer.predict_encoded(fine.video, pieces, views, ends)
                for (name, case), predictions in zip(together, found):
                    finding = case.finding(predictions)
                    again = case.hopeful(finding)
                    self._findings[name][case] = case.again(finding, every) if again else finding
            done += fine.video.frames - fine.video.first
            if progress:
                progress(done, frames)
        for name in self._findings:
            self.look_again(name, every)

    def look_closely(self, ranked: Mapping[str, list[tuple[_Case, int]]], count: int, every: bool) -> None:
        """The exact model on the `count` most promising clips; then on those after the answer, in which
        the thing may have been seen again."""
        for name, clips in ranked.items():
            looked = self._look(name, clips, count, every)
            for _ in range(LATER):
                latest = self._latest(name)
                if latest is None or every:
                    break
                later = [
                    (case, number)
                    for case, number in clips
                    if (case, number) not in looked and _clip_end(case, number) > latest
                ]
                if not later:
                    break
                looked |= self._look(name, later, count // 2, every)
                now = self._latest(name)  # none: a closer look at what is best now refused it
                if now is None or now <= latest:
                    break

    def _look(
        self, name: str, clips: Sequence[tuple[_Case, int]], count: int, every: bool
    ) -> set[tuple[_Case, int]]:
        looked = set(clips[:count])
        for case, number in sorted(looked, key=lambda pair: (pair[0].fine.video.id, pair[1])):
            case.look(number)
        touched = [case for case in self._cases[name] if case.seen]
        for case in touched:
            case.look_on(every)
        self._findings[name] = {case: case.finding() for case in touched}
        self.look_again(name, every)
        return looked

    def look_again(self, name: str, every: bool) -> None:
        """Enlarged, at what would be the answer, until that has been looked at (or at all that has hope)."""
        found = self._findings[name]
        tried: set[_Case] = set()
        while (case := _next_to_look_at(found, tried, every)) is not None:
            tried.add(case)
            found[case] = case.again(found[case], every)

    def _latest(self, name: str) -> float | None:
        """When the thing was last seen, by all that was looked at so far."""
        return max((finding.seen_at for finding in self.of(name) if finding.tracks), default=None)

    def _answered_after(self, name: str, time: float) -> bool:
        return any(finding.tracks and finding.seen_at >= time for finding in self.of(name))


def _next_to_look_at(found: Mapping[_Case, Finding], tried: set[_Case], every: bool) -> _Case | None:
    """The latest that may be a sighting, unless a later one stands; if nothing was seen, the best guess."""
    waiting = [case for case, finding in found.items() if case not in tried and not finding.looked_again]
    stands = [finding.seen_at for case, finding in found.items() if finding.tracks and case not in waiting]
    hopeful = [case for case in waiting if case.hopeful(found[case])]
    if stands and not every:
        hopeful = [case for case in hopeful if found[case].seen_at > max(stands)]
    if hopeful:
        return max(hopeful, key=lambda case: found[case].seen_at)
    if stands or len(tried) >= MOST_GUESSES:
        return None
    guessed = {case: finding.guess.score for case, finding in found.items() if finding.guess}
    best = max(guessed, key=lambda case: guessed[case], default=None)
    return best if best in waiting else None


def _candidates(
    index: Index, localizer: Localizer, cases: _Cases, progress: Progress | None
) -> dict[str, list[tuple[_Case, int]]]:
    """For each thing the clips of all videos, the most promising first."""
    names = list(cases.views)
    vectors = [
        torch.cat([query_vectors(localizer.model, view) for view in cases.views[name]]) for name in names
    ]
    scores: dict[int, np.ndarray] = {}
    frames, done = sum(fine.video.frames - fine.video.first for fine in cases.fine), 0
    for fine in cases.fine:
        video, rows = fine.video, index.compact(fine.video)
        assert rows is not None and video.grid is not None
        grid = compact_grid(localizer, video, video.grid)
        parts = []
        for part in rows.mapped(video.first, video.frames):
            parts.append(coarse_scores(grid, part, vectors))
            done += len(part)
            if progress:
                progress(done, frames)
        scores[video.id] = np.concatenate(parts, 1)
    ranked = {}
    for number, name in enumerate(names):
        clips: list[tuple[float, int, bool, _Case]] = []
        for case in cases.cases(name):
            of_frames = scores[case.fine.video.id][number]
            coarse = np.array([of_frames[first:last].max() for _, _, first, last in case.clips])
            rim = np.pad(coarse, 1, constant_values=-np.inf)
            is_peak = (coarse >= rim[:-2]) & (coarse > rim[2:])
            clips += [(-score, clip, peak, case) for clip, (score, peak) in enumerate(zip(coarse, is_peak))]
        by_score = sorted(clips, key=lambda clip: clip[0])
        # A thing that is in view for minutes must not take all places: beside a better clip, half the rank.
        order = sorted(enumerate(by_score, 1), key=lambda place: place[0] * (1 if place[1][2] else 2))
        ranked[name] = [(case, clip) for _, (_, clip, _, case) in order]
    return ranked


def _ranked(findings: Sequence[Finding], every: bool) -> list[Finding]:
    seen = sorted((f for f in findings if f.tracks), key=lambda f: -f.seen_at)
    if seen:
        return seen if every else seen[:1]
    guessed = [f for f in findings if f.guess]
    return [max(guessed, key=lambda f: f.guess.score if f.guess else 0.0)] if guessed else []


def _frames_searched(localizer: Localizer, video: IndexedVideo, query: Query, before: float | None) -> int:
    """How many of a video's frames come before the question."""
    if before is None:
        return localizer.frames_searched(video, query)
    asked_at = before - video.recorded_at
    if asked_at <= 0:
        return 0
    return localizer.frames_searched(video, query.asked(asked_at if asked_at < video.duration_s else None))


def _ended(video: IndexedVideo) -> float:
    return video.recorded_at + video.duration_s


def _clip_end(case: _Case, number: int) -> float:
    video, last = case.fine.video, case.first + case.clips[number][3]
    return video.recorded_at + last / case.localizer.fps

"""Part of a search: one index. It reads features and runs the model; `search` decides over all parts on which
clips, and which drafts are refined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from lastseen.answer import Answer
from lastseen.index.case import Case, Outline
from lastseen.index.compact import coarse_scores
from lastseen.index.entry import IndexedVideo
from lastseen.index.fine import FineFeatures
from lastseen.index.folder import IndexFolder
from lastseen.localizer import Localizer
from lastseen.model import EncodedQuery
from lastseen.progress import SCORED, Tracker
from lastseen.query import Query
from lastseen.search.case import Draft
from lastseen.search.ranking import query_vectors


class Part(Protocol):
    """Videos have keys that are unique in a search; a case is one question (by name) to one video."""

    @property
    def videos(self) -> Mapping[str, IndexedVideo]: ...
    @property
    def outlines(self) -> Mapping[str, Sequence[Outline]]:
        """The cases of each name, in the order of the videos."""

    def clip_scores(self) -> dict[tuple[str, str], np.ndarray]:
        """By name and key, for each clip the highest coarse score of its frames."""

    def run(self, name: str, chosen: Mapping[str, Collection[int]], every: bool) -> dict[str, Draft]:
        """Run the model on clips, and around what it sees there; unrefined drafts of all cases on which it
        ran by now."""

    def run_on_all_frames(self, key: str, names: Sequence[str], every: bool) -> dict[str, Draft]:
        """Drafts by name. Unless all videos are asked for, possible sightings are checked."""

    def checked(self, name: str, key: str, every: bool) -> Draft: ...
    def extended(self, name: str, key: str, every: bool) -> Draft: ...
    def masked(self, name: str, key: str) -> Answer: ...
    def damage(self) -> dict[str, list[str]]:
        """What was found damaged in each video, and what was done about it."""


class IndexPart:
    """A part that is computed here. The drafts that it made last are what is refined next."""

    def __init__(
        self,
        index: IndexFolder,
        localizer: Localizer,
        queries: Mapping[str, Query],
        encoded: Mapping[str, list[EncodedQuery]],
        videos: Sequence[IndexedVideo],
        before: float | None,
        tracker: Tracker,
        original: Callable[[IndexedVideo], Path] | None = None,
    ) -> None:
        """`original` gives a video's file, if it is not where the catalogue says."""
        self.localizer, self._encoded, self._tracker = localizer.tracked_by(tracker), encoded, tracker
        self._fine = {
            f"{index.folder}:{video.id}": FineFeatures(index, self.localizer, video, original)
            for video in videos
        }
        self.videos = {key: fine.video for key, fine in self._fine.items()}
        self._cases: dict[str, dict[str, Case]] = {name: {} for name in queries}
        self._drafts: dict[tuple[str, str], Draft] = {}
        for key, fine in self._fine.items():
            for name, query in queries.items():
                end = _frames_searched(localizer, fine.video, query, before)
                if end > fine.video.first:
                    case = Case(self.localizer, fine, query, encoded[name], end, key)
                    self._cases[name][key] = case

    @property
    def outlines(self) -> dict[str, list[Outline]]:
        return {name: [case.outline for case in cases.values()] for name, cases in self._cases.items()}

    def clip_scores(self) -> dict[tuple[str, str], np.ndarray]:
        model = self.localizer.model
        names = list(self._cases)
        vectors = [torch.cat([query_vectors(model, view) for view in self._encoded[name]]) for name in names]
        found = {}
        for key, fine in self._fine.items():
            parts = []
            for start, end, tokens in fine.token_pieces():
                # Tokens that cannot be made again are of frames that cannot be searched either.
                unknown = np.full((len(names), end - start), -np.inf, np.float32)
                parts.append(unknown if tokens is None else coarse_scores(fine.grid, tokens, start, vectors))
                self._tracker.did(SCORED, end - start)
                self._tracker.tell()
            of_frames = np.concatenate(parts, 1)
            for number, name in enumerate(names):
                if case := self._cases[name].get(key):
                    best = [of_frames[number, first:last].max() for _, _, first, last in case.clips]
                    found[name, key] = np.array(best)
        return found

    def run(self, name: str, chosen: Mapping[str, Collection[int]], every: bool) -> dict[str, Draft]:
        cases = self._cases[name]
        for key in self.videos:
            for clip in sorted(chosen.get(key, ())):
                cases[key].run(clip)
        touched = {key: case for key, case in cases.items() if case.has_predictions}
        for case in touched.values():
            case.run_around(every)
        drafts = {key: case.unrefined() for key, case in touched.items()}
        self._drafts |= {(name, key): draft for key, draft in drafts.items()}
        return drafts

    def run_on_all_frames(self, key: str, names: Sequence[str], every: bool) -> dict[str, Draft]:
        fine, cases = self._fine[key], {name: self._cases[name][key] for name in names}
        drafts = {}
        # How the last clip is cut depends on the end, so each distinct end gets its own pass.
        for end in sorted({case.end for case in cases.values()}):
            together = {name: case for name, case in cases.items() if case.end == end}
            encoded = [case.encoded for case in together.values()]
            parts = []
            for at, to in fine.readable(fine.video.first, end):
                ends = [to - at] * len(together)
                pieces = fine.pieces(at, to)
                parts.append((at, self.localizer.predict_encoded(fine.video, pieces, encoded, ends)))
            for number, (name, case) in enumerate(together.items() if parts else ()):
                case.set_predictions([(at, found[number]) for at, found in parts])
                draft = case.unrefined()
                # Unless all videos are asked for, a sighting that stands the check ends the search.
                possible = not every and case.outline.may_be_seen(draft)
                drafts[name] = case.checked(draft, every) if possible else draft
        self._drafts |= {(name, key): draft for name, draft in drafts.items()}
        return drafts

    def checked(self, name: str, key: str, every: bool) -> Draft:
        draft = self._cases[name][key].checked(self._drafts[name, key], every)
        self._drafts[name, key] = draft
        return draft

    def extended(self, name: str, key: str, every: bool) -> Draft:
        draft = self._cases[name][key].extended(self._drafts[name, key], every)
        self._drafts[name, key] = draft
        return draft

    def masked(self, name: str, key: str) -> Answer:
        return self._cases[name][key].masked(self._drafts[name, key])

    def damage(self) -> dict[str, list[str]]:
        return {key: fine.damage() for key, fine in self._fine.items()}


def _frames_searched(localizer: Localizer, video: IndexedVideo, query: Query, before: float | None) -> int:
    """Number of the video's frames before the query's `asked_at` and `before`."""
    if before is None:
        return localizer.frames_searched(video, query)
    asked_at = before - video.began_at
    if asked_at <= 0:
        return 0
    return localizer.frames_searched(video, query.asked(asked_at if asked_at < video.duration_s else None))

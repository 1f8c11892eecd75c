"""Part of a search: some sources that are read, and searched by the model, in one place. `search_parts`
decides over all parts on which clips the model runs, and which drafts are refined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

from lastseen.answer import Answer
from lastseen.model import EncodedQuery
from lastseen.progress import SCORED, Tracker
from lastseen.query import Query
from lastseen.runner import ModelRunner
from lastseen.search.case import Case
from lastseen.search.outline import Draft, Outline, SourceFacts
from lastseen.search.ranking import query_vectors
from lastseen.search.source import Source

S = TypeVar("S", bound=Source)


class Part(Protocol):
    """Sources have keys that are unique in a search; a case is one question (by name) to one source."""

    @property
    def sources(self) -> Mapping[str, SourceFacts]: ...
    @property
    def outlines(self) -> Mapping[str, Sequence[Outline]]:
        """The cases of each name, in the order of the sources."""

    def clip_scores(self) -> dict[tuple[str, str], np.ndarray]:
        """By name and key, for each clip the highest coarse score of its frames."""

    def run(self, name: str, chosen: Mapping[str, Collection[int]], every: bool) -> dict[str, Draft]:
        """Run the model on clips, and around what it sees there; unrefined drafts of all cases on which it
        ran by now."""

    def run_on_all_frames(self, key: str, names: Sequence[str], every: bool) -> dict[str, Draft]:
        """Drafts by name. Unless all sources are asked for, possible sightings are checked."""

    def checked(self, name: str, key: str, every: bool) -> Draft: ...
    def extended(self, name: str, key: str, every: bool) -> Draft: ...
    def masked(self, name: str, key: str) -> Answer: ...
    def damage(self) -> dict[str, list[str]]:
        """What was found damaged in each source, and what was done about it."""


class SourcePart(Generic[S]):
    """A part that is computed here. The drafts that it made last are what is refined next.

    `ends` says how many frames of a source are searched for a query; `after_clip` is called whenever the
    model ran on a clip.
    """

    def __init__(
        self,
        runner: ModelRunner,
        queries: Mapping[str, Query],
        encoded: Mapping[str, list[EncodedQuery]],
        sources: Sequence[S],
        ends: Callable[[S, Query], int],
        tracker: Tracker,
        after_clip: Callable[[], None] | None = None,
    ) -> None:
        self.runner, self._encoded, self._tracker, self._after_clip = runner, encoded, tracker, after_clip
        self._sources = {source.key: source for source in sources}
        self.sources = {key: SourceFacts.of(source) for key, source in self._sources.items()}
        self.cases: dict[str, dict[str, Case]] = {name: {} for name in queries}
        self._drafts: dict[tuple[str, str], Draft] = {}
        for key, source in self._sources.items():
            for name, query in queries.items():
                if (end := ends(source, query)) > source.first:
                    self.cases[name][key] = Case(runner, source, query, encoded[name], end)

    @property
    def outlines(self) -> dict[str, list[Outline]]:
        return {name: [case.outline for case in cases.values()] for name, cases in self.cases.items()}

    def clip_scores(self) -> dict[tuple[str, str], np.ndarray]:
        model, names = self.runner.model, list(self.cases)
        vectors = [torch.cat([query_vectors(model, view) for view in self._encoded[name]]) for name in names]
        found = {}
        for key, source in self._sources.items():
            of_frames = source.coarse_scores(vectors, self._scored)
            for number, name in enumerate(names):
                if case := self.cases[name].get(key):
                    best = [of_frames[number, first:last].max() for _, _, first, last in case.clips]
                    found[name, key] = np.array(best)
        return found

    def _scored(self, frames: int) -> None:
        self._tracker.did(SCORED, frames)
        self._tracker.tell()

    def run(self, name: str, chosen: Mapping[str, Collection[int]], every: bool) -> dict[str, Draft]:
        cases = self.cases[name]
        for key in self._sources:
            for clip in sorted(chosen.get(key, ())):
                cases[key].run(clip)
                if self._after_clip is not None:
                    self._after_clip()
        touched = {key: case for key, case in cases.items() if case.has_predictions}
        for case in touched.values():
            case.run_around(every)
        drafts = {key: case.unrefined() for key, case in touched.items()}
        self._drafts |= {(name, key): draft for key, draft in drafts.items()}
        return drafts

    def run_on_all_frames(self, key: str, names: Sequence[str], every: bool) -> dict[str, Draft]:
        source, cases = self._sources[key], {name: self.cases[name][key] for name in names}
        drafts = {}
        # How the last clip is cut depends on the end, so each distinct end gets its own pass.
        for end in sorted({case.end for case in cases.values()}):
            together = {name: case for name, case in cases.items() if case.end == end}
            encoded = [case.encoded for case in together.values()]
            parts = []
            for at, to in source.readable(source.first, end):
                ends = [to - at] * len(together)
                pieces = source.pieces(at, to)
                parts.append((at, self.runner.predict_encoded(source.video, pieces, encoded, ends)))
            for number, (name, case) in enumerate(together.items() if parts else ()):
                case.set_predictions([(at, found[number]) for at, found in parts])
                draft = case.unrefined()
                # Unless all sources are asked for, a sighting that stands the check ends the search.
                possible = not every and case.outline.may_be_seen(draft)
                drafts[name] = case.checked(draft, every) if possible else draft
        self._drafts |= {(name, key): draft for name, draft in drafts.items()}
        return drafts

    def checked(self, name: str, key: str, every: bool) -> Draft:
        draft = self.cases[name][key].checked(self._drafts[name, key], every)
        self._drafts[name, key] = draft
        return draft

    def extended(self, name: str, key: str, every: bool) -> Draft:
        draft = self.cases[name][key].extended(self._drafts[name, key], every)
        self._drafts[name, key] = draft
        return draft

    def masked(self, name: str, key: str) -> Answer:
        return self.cases[name][key].masked(self._drafts[name, key])

    def damage(self) -> dict[str, list[str]]:
        return {key: source.damage() for key, source in self._sources.items()}

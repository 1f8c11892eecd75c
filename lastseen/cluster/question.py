"""A question to shards, wherever they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lastseen.answer import Answer
from lastseen.cluster.shards import Held
from lastseen.index.search import check_any_asked
from lastseen.procedure import Procedure
from lastseen.progress import Tell, Tracker
from lastseen.query import Query
from lastseen.search.part import Part
from lastseen.search.run import CANDIDATES, Each, Preliminary, search_parts


@dataclass(frozen=True, kw_only=True)
class Question:
    """As `lastseen.index.search.search` takes it; `held`: the videos to search."""

    queries: Mapping[str, Query]
    held: Sequence[Held]
    before: float | None = None
    every: bool = False
    exhaustive: bool = False
    candidates: int | None = None
    progress: Tell | None = None
    preliminary: Preliminary | None = None

    @property
    def ids(self) -> dict[str, set[int]]:
        """The numbers of the videos to search, by shard."""
        found: dict[str, set[int]] = {}
        for one in self.held:
            found.setdefault(one.shard, set()).add(one.video.id)
        return found

    def search(
        self, parts: Sequence[Part], procedure: Procedure, tracker: Tracker, each: Each = map
    ) -> dict[str, list[Answer]]:
        check_any_asked(parts)
        return search_parts(
            parts,
            procedure,
            list(self.queries),
            every=self.every,
            exhaustive=self.exhaustive,
            candidates=CANDIDATES if self.candidates is None else self.candidates,
            tracker=tracker,
            preliminary=self.preliminary,
            each=each,
        )

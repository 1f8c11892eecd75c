"""Cluster: one index in shards, made and asked by many machines.

cluster = Cluster("archive-index", ray="auto")
cluster.add("archive/")
answer = cluster.ask("keys.jpg")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lastseen.cluster.machines import AUTO, machines
from lastseen.cluster.shards import Held, Shards
from lastseen.cluster.storage import Source, is_address, sources_of
from lastseen.cluster.worker import FAILED, ModelChoice, Outcome
from lastseen.errors import IndexStoreError
from lastseen.index.entry import COMPACT, FULL, SMALL, IndexedVideo

if TYPE_CHECKING:
    from lastseen.answer import Answer
    from lastseen.progress import Tell
    from lastseen.query import Query


class Cluster:
    """A folder of shards (a path that all machines see, or an address like s3://bucket/index) and a Ray
    cluster: its address, "auto" for one on this machine, or None: asked here, one shard after another."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        ray: str | None = AUTO,
        workers: int | None = None,
        model: ModelChoice = ModelChoice(),
    ) -> None:
        self.folder, self.ray, self.workers, self.model = os.fspath(folder), ray, workers, model
        if not is_address(self.folder):
            self.folder = str(Path(folder).absolute())  # workers have another working folder

    def videos(self) -> list[IndexedVideo]:
        """The videos of all shards, in the order of their paths."""
        with Shards(self.folder) as shards:
            return shards.videos()

    def add(
        self,
        *videos: str | os.PathLike[str],
        keep: str | None = None,
        allow_truncated: bool = False,
        report: Callable[[Outcome], None] | None = None,
        progress: Tell | None = None,
    ) -> list[Outcome]:
        """Index files, folders and addresses of videos; what was interrupted goes on, what is there is
        skipped. `report` is called with each outcome as it comes; one that failed says why."""
        from lastseen.cluster.indexing import Plan, index_sources

        if keep not in (None, FULL, SMALL, COMPACT):
            raise IndexStoreError(f"keep {keep}: choose small, full or compact")
        sources, failed = sources_of([os.fspath(video) for video in videos])
        outcomes: list[Outcome] = []

        def tell(outcome: Outcome) -> None:
            outcomes.append(outcome)
            if report is not None:
                report(outcome)

        for place, error in failed.items():
            tell(Outcome(source=Source(place=place, size=0, mtime_ns=None), outcome=FAILED, error=error))
        if sources:
            plan = Plan(self.folder, self.model, keep, allow_truncated, self.workers)
            index_sources(partial(machines, self.ray or AUTO), plan, sources, tell, progress)
        return outcomes

    def ask(self, query: Query | str | os.PathLike[str]) -> Answer | None:
        """As `Index.ask`: the answer of one index that holds all videos."""
        found = self.ask_many({"thing": query})["thing"]
        return found[0] if found else None

    def ask_many(
        self,
        queries: Mapping[str, Query | str | os.PathLike[str]],
        *,
        videos: Sequence[str] | None = None,
        before: float | None = None,
        every: bool = False,
        exhaustive: bool = False,
        candidates: int | None = None,
        progress: Tell | None = None,
        preliminary: Callable[[str, list[Answer]], None] | None = None,
    ) -> dict[str, list[Answer]]:
        """As `Index.ask_many`; `videos` by their names."""
        with Shards(self.folder) as shards:
            chosen = None if videos is None else [shards.named(name) for name in videos]
            return self.asked(
                shards,
                queries,
                chosen,
                before=before,
                every=every,
                exhaustive=exhaustive,
                candidates=candidates,
                progress=progress,
                preliminary=preliminary,
            )[0]

    def asked(
        self,
        shards: Shards,
        queries: Mapping[str, Query | str | os.PathLike[str]],
        chosen: Sequence[Held] | None,
        *,
        before: float | None,
        every: bool,
        exhaustive: bool,
        candidates: int | None,
        progress: Tell | None,
        preliminary: Callable[[str, list[Answer]], None] | None,
    ) -> tuple[dict[str, list[Answer]], str]:
        """The answers, and the name of the model."""
        from lastseen.cluster.asking import ask_shards
        from lastseen.cluster.here import ask_here
        from lastseen.cluster.question import Question
        from lastseen.query import as_query

        held = shards.held() if chosen is None else list(chosen)
        if not held:
            raise IndexStoreError(f"{self.folder} is empty; add something to search: lastseen index VIDEO...")
        question = Question(
            queries={name: as_query(query) for name, query in queries.items()},
            held=held,
            before=before,
            every=every,
            exhaustive=exhaustive,
            candidates=candidates,
            progress=progress,
            preliminary=preliminary,
        )
        model = replace(self.model, engine=self.model.engine or shards.engine)
        if self.ray is None:
            return ask_here(shards, model.load, question)
        with machines(self.ray) as there:
            return ask_shards(there, shards, model, question, self.workers)

"""Ask all shards at once: each computes on its worker, and what is decided over all of them is decided here,
by the code that asks one index (`lastseen.search`), so that the answer is the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np

from lastseen.answer import Answer
from lastseen.cluster.machines import WAIT_S, Machines, WorkerDied
from lastseen.cluster.question import Question
from lastseen.cluster.shards import Shards
from lastseen.cluster.worker import AskWorker, ModelChoice, Ready
from lastseen.errors import LastSeenError
from lastseen.progress import LOCALIZED, SCORED, Tracker
from lastseen.query import Query
from lastseen.search.outline import Draft, Outline, SourceFacts

CLOSE_S = 5.0  # for all workers to remove what they fetched; one that computes is not waited for longer
ATTEMPTS = 3  # a question is asked again if a worker dies


class RemotePart:
    """A shard on its worker: each call waits for the worker."""

    def __init__(
        self, machines: Machines, worker: Any, shard: str, queries: Mapping[str, Query], counting: Counting
    ) -> None:
        self._machines, self._worker, self.shard = machines, worker, shard
        self._queries, self._counting = queries, counting
        self.sources: dict[str, SourceFacts] = {}
        self.outlines: dict[str, list[Outline]] = {}

    def open(self, ids: Collection[int], queries: Any, encoded: Any, before: float | None) -> None:
        self.sources, self.outlines = self._call("open", ids, queries, encoded, before)

    def clip_scores(self) -> dict[tuple[str, str], np.ndarray]:
        found: dict[tuple[str, str], np.ndarray] = self._call("clip_scores")
        self._counting.did(SCORED, sum(source.end - source.first for source in self.sources.values()))
        return found

    def run(self, name: str, chosen: Mapping[str, Collection[int]], every: bool) -> dict[str, Draft]:
        made: dict[str, Draft] = self._call("run", name, chosen, every)
        clips = {case.key: case.clips for case in self.outlines[name]}
        frames = sum(clips[key][n][1] - clips[key][n][0] for key, numbers in chosen.items() for n in numbers)
        self._counting.did(LOCALIZED, frames)
        return {key: self._complete(name, draft) for key, draft in made.items()}

    def run_on_all_frames(self, key: str, names: Sequence[str], every: bool) -> dict[str, Draft]:
        made: dict[str, Draft] = self._call("run_on_all_frames", key, names, every)
        source = self.sources[key]
        self._counting.did(LOCALIZED, (source.end - source.first) * len(names))
        return {name: self._complete(name, draft) for name, draft in made.items()}

    def checked(self, name: str, key: str, every: bool) -> Draft:
        return self._complete(name, self._call("checked", name, key, every))

    def extended(self, name: str, key: str, every: bool) -> Draft:
        return self._complete(name, self._call("extended", name, key, every))

    def masked(self, name: str, key: str) -> Answer:
        answer: Answer = self._call("masked", name, key)
        return replace(answer, query=self._queries[name])

    def damage(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = self._call("damage")
        return found

    def _complete(self, name: str, draft: Draft) -> Draft:
        return replace(draft, answer=replace(draft.answer, query=self._queries[name]))

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._machines.get(getattr(self._worker, method).remote(self.shard, *arguments))


class Counting:
    """A tracker that several threads count in."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker, self._lock = tracker, Lock()

    def did(self, kind: str, units: int) -> None:
        with self._lock:
            if units:
                self._tracker.did(kind, units)
                self._tracker.tell()


class Crew:
    """Workers that keep the model, and which shards each of them has."""

    def __init__(self, machines: Machines, shards: Shards, choice: ModelChoice, workers: int | None) -> None:
        self.machines, self.folder, self.names = machines, shards.folder, list(shards.indexes)
        room = machines.room(min(workers or len(self.names), len(self.names)), choice.device)
        choice = replace(choice, threads=room.threads)
        self.workers = [
            machines.actor(AskWorker, self.folder, choice, room=room) for _ in range(room.workers)
        ]
        beginning = [worker.begin.remote() for worker in self.workers]
        try:
            self.ready: Ready = [machines.get(call, WAIT_S) for call in beginning][0]  # noqa: RUF015
        except TimeoutError:
            self.stop()
            raise LastSeenError(
                f"--ray: not all workers began within {WAIT_S:g} s; give fewer --workers"
            ) from None

    def worker_of(self, shard: str) -> Any:
        return self.workers[self.names.index(shard) % len(self.workers)]

    def stop(self) -> None:
        closing, ends = [worker.close.remote() for worker in self.workers], monotonic() + CLOSE_S
        for worker, call in zip(self.workers, closing):
            with suppress(TimeoutError, WorkerDied):
                self.machines.get(call, max(0.0, ends - monotonic()))
            self.machines.stop(worker)


@contextmanager
def crew(machines: Machines, shards: Shards, choice: ModelChoice, workers: int | None) -> Iterator[Crew]:
    made = Crew(machines, shards, choice, workers)
    try:
        yield made
    finally:
        made.stop()


def ask_shards(
    machines: Machines, shards: Shards, choice: ModelChoice, question: Question, workers: int | None = None
) -> tuple[dict[str, list[Answer]], str]:
    """For each query its answers, as `lastseen.index.search.search` gives them, and the model's name."""
    for attempt in range(ATTEMPTS):
        try:
            with crew(machines, shards, choice, workers) as here:
                return _asked(here, question), here.ready.title
        except WorkerDied as error:
            if attempt == ATTEMPTS - 1:
                raise LastSeenError(
                    f"--ray: workers died {ATTEMPTS} times while they searched ({error}); is there memory "
                    "enough? Fewer --workers need less"
                ) from None
    raise AssertionError("the last attempt returns or raises")


def _asked(here: Crew, question: Question) -> dict[str, list[Answer]]:
    machines, queries = here.machines, question.queries
    tracker = Tracker(question.progress)
    # Once, by one worker: another processor might round differently.
    encoded = machines.put(machines.get(here.workers[0].encode.remote(queries)))
    asked, counting, ids = machines.put(queries), Counting(tracker), question.ids
    parts = [RemotePart(machines, here.worker_of(shard), shard, queries, counting) for shard in ids]
    with ThreadPoolExecutor(max_workers=len(parts)) as pool:
        for _ in pool.map(lambda part: part.open(ids[part.shard], asked, encoded, question.before), parts):
            pass
        return question.search(parts, here.ready.procedure, tracker, pool.map)

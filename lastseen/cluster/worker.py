"""What runs on the workers: IndexWorker encodes videos into its shard, AskWorker searches shards.

Plain classes; `lastseen.cluster.machines` makes Ray actors of them.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastseen.cluster.remote import fetched_shard
from lastseen.cluster.shards import Held
from lastseen.cluster.storage import Source, fetch, is_address
from lastseen.cluster.writing import writing_to
from lastseen.errors import IndexStoreError, LastSeenError
from lastseen.index.database import SHARDS
from lastseen.index.entry import RECORDED, IndexedVideo
from lastseen.index.identity import sha256_of
from lastseen.index.index import Index
from lastseen.index.originals import check_unchanged
from lastseen.progress import Progress, Tracker
from lastseen.video.containers import unreadable_file

if TYPE_CHECKING:
    import numpy as np

    from lastseen.answer import Answer
    from lastseen.index.fine import FineFeatures
    from lastseen.localizer import Localizer
    from lastseen.model import EncodedQuery
    from lastseen.procedure import Procedure
    from lastseen.query import Query
    from lastseen.search.outline import Draft, Outline, SourceFacts
    from lastseen.search.part import SourcePart

ADDED, KNOWN, REPAIRED, BUSY, FAILED = "added", "known", "repaired", "busy", "failed"
ELSEWHERE = "elsewhere"  # begun in the shard of another worker, which lives: that one must finish it


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model workers load, and with what; as the options of the command line."""

    weights: str | None = None
    device: str | None = None
    engine: str | None = None
    threads: int | None = None  # on the CPU
    paper: bool = False
    threshold: float | None = None
    skip: tuple[str, ...] = ()
    masks: bool = False

    def load(self) -> Localizer:
        import torch

        from lastseen.localizer import Localizer

        if self.threads is not None:
            allowed = os.environ.get("OMP_NUM_THREADS", "")
            torch.set_num_threads(min(self.threads, int(allowed) if allowed.isdecimal() else self.threads))
        return Localizer.from_pretrained(
            self.weights,
            paper=self.paper,
            device=self.device,
            threshold=self.threshold,
            skip=self.skip,
            engine=self.engine,
            masks=self.masks,
        )


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A worker that is ready."""

    shard: str
    fingerprint: str
    engine: str
    host: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a video; `shard`: the one that holds it."""

    source: Source
    outcome: str
    name: str = ""
    shard: str = ""
    frames: int = 0
    bytes: int = 0
    unreadable: int = 0
    note: str | None = None
    error: str | None = None


class IndexWorker:
    """Encodes one video at a time into its own shard, for as long as it lives."""

    def __init__(self, folder: str, choice: ModelChoice, board: Any, number: int) -> None:
        self._folder, self._choice, self._board, self._number = folder, choice, board, number

    def begin(self) -> Begun | str:
        """Load the model and open a shard; returns the error of a user's mistake."""
        try:
            self._localizer = self._choice.load()
            self._writing = writing_to(self._folder)
            self._writing.index.sweep()
            self._writing.index.bind(self._localizer)
        except LastSeenError as error:
            return str(error)
        return Begun(
            shard=self._writing.name,
            fingerprint=self._localizer.feature_fingerprint(),
            engine=self._localizer.engine.name,
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    def record(self, source: Source, name: str, keep: str | None, allow_truncated: bool) -> Outcome:
        """Index a video, unless some shard has it; returns when its shard has committed it."""
        self._place = source.place
        try:
            with tempfile.TemporaryDirectory(prefix="lastseen-") as folder:
                path = fetch(source, Path(folder))
                try:
                    digest = sha256_of(path)
                    with self._writing.claimed(digest) as mine:
                        if not mine:
                            return Outcome(source=source, outcome=BUSY, name=name)
                        return self._recorded(source, path, digest, name, keep, allow_truncated)
                except (FileNotFoundError, PermissionError) as error:  # it was removed meanwhile
                    raise unreadable_file(path, error) from None
        except LastSeenError as error:
            return Outcome(source=source, outcome=FAILED, name=name, error=str(error))

    def _recorded(
        self, source: Source, path: Path, digest: str, name: str, keep: str | None, allow_truncated: bool
    ) -> Outcome:
        from lastseen.index.record import add_file

        def into(index: Index, shard: str) -> Outcome:
            done = add_file(
                index,
                self._localizer,
                path,
                keep=keep,
                name=name,
                allow_truncated=allow_truncated,
                progress=self._tell,
                check=False,
            )
            video = done.video
            size = index.size_bytes(video)
            if is_address(source.place):
                video = index.catalogue.update(video.id, source=source.place)
            if done.outcome == ADDED and index is self._writing.index:
                self._writing.publish(video)
            return Outcome(
                source=source,
                outcome=done.outcome,
                name=video.name,
                shard=shard,
                frames=video.frames - video.first,
                bytes=size,
                unreadable=video.unreadable,
                note=done.note,
            )

        held = self._writing.holder(digest)
        if held is None:
            return into(self._writing.index, self._writing.name)
        if held.video.complete and (held.video.source == source.place or is_address(source.place)):
            return known(source, held)
        # Begun by a worker that died, or its file was moved: it stays in its shard.
        with self._writing.borrowed(held.shard) as index:
            if index is not None:
                return into(index, held.shard)
        if held.video.complete:
            return known(source, held)
        return Outcome(source=source, outcome=ELSEWHERE, name=name, shard=held.shard)

    def _tell(self, told: Progress) -> None:
        if self._board is not None:
            self._board.tell.remote(self._number, self._place, told.done, told.total)

    def close(self) -> None:
        self._writing.close()


def known(source: Source, held: Held) -> Outcome:
    frames = held.video.frames - held.video.first
    return Outcome(source=source, outcome=KNOWN, name=held.video.name, shard=held.shard, frames=frames)


class Board:
    """What the workers are at: an actor of its own, since a worker that encodes answers nobody."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[str, int, int]] = {}

    def tell(self, worker: int, place: str, done: int, total: int) -> None:
        self._told[worker] = place, done, total

    def told(self) -> dict[int, tuple[str, int, int]]:
        return self._told


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A worker that can answer: by what procedure, with which model."""

    procedure: Procedure
    title: str


class AskWorker:
    """Searches some shards; keeps the model, and the state of the question between two calls."""

    def __init__(self, folder: str, choice: ModelChoice) -> None:
        self._folder, self._choice = folder, choice
        self._parts: dict[str, SourcePart[FineFeatures]] = {}
        self._fetched = tempfile.TemporaryDirectory(prefix="lastseen-")

    def begin(self) -> Ready:
        self._localizer = self._choice.load()
        return Ready(procedure=self._localizer.procedure, title=self._localizer.model.title)

    def encode(self, queries: Mapping[str, Query]) -> dict[str, list[EncodedQuery]]:
        import torch

        cpu = torch.device("cpu")
        encoded = {name: self._localizer.encode_query(query) for name, query in queries.items()}
        return {name: [view.to(cpu) for view in views] for name, views in encoded.items()}

    def open(
        self,
        shard: str,
        ids: Collection[int],
        queries: Mapping[str, Query],
        encoded: Mapping[str, Sequence[EncodedQuery]],
        before: float | None,
    ) -> tuple[dict[str, SourceFacts], dict[str, list[Outline]]]:
        device = self._localizer.device
        here = {name: [view.to(device) for view in views] for name, views in encoded.items()}
        index, folder = opened_shard(self._folder, shard), Path(self._fetched.name)
        part = self._parts[shard] = opened_part(
            self._localizer, queries, here, before, index, ids, folder=folder, tracker=Tracker()
        )
        return part.sources, part.outlines

    def clip_scores(self, shard: str) -> dict[tuple[str, str], np.ndarray]:
        return self._parts[shard].clip_scores()

    def run(
        self, shard: str, name: str, chosen: Mapping[str, Collection[int]], every: bool
    ) -> dict[str, Draft]:
        made = self._parts[shard].run(name, chosen, every)
        return {key: _light(draft) for key, draft in made.items()}

    def run_on_all_frames(self, shard: str, key: str, names: Sequence[str], every: bool) -> dict[str, Draft]:
        made = self._parts[shard].run_on_all_frames(key, names, every)
        return {name: _light(draft) for name, draft in made.items()}

    def checked(self, shard: str, name: str, key: str, every: bool) -> Draft:
        return _light(self._parts[shard].checked(name, key, every))

    def extended(self, shard: str, name: str, key: str, every: bool) -> Draft:
        return _light(self._parts[shard].extended(name, key, every))

    def masked(self, shard: str, name: str, key: str) -> Answer:
        return replace(self._parts[shard].masked(name, key), query=None)

    def damage(self, shard: str) -> dict[str, list[str]]:
        return self._parts[shard].damage()

    def close(self) -> None:
        """Remove the copies of videos that it fetched: a worker that is stopped has no time to."""
        self._fetched.cleanup()


def opened_shard(folder: str, shard: str) -> Index:
    if is_address(folder):
        return Index(fetched_shard(folder, shard), create=False)
    return Index(Path(folder) / SHARDS / shard, create=False)


def opened_part(
    localizer: Localizer,
    queries: Mapping[str, Query],
    encoded: Mapping[str, list[EncodedQuery]],
    before: float | None,
    index: Index,
    ids: Collection[int],
    *,
    folder: Path,
    tracker: Tracker,
) -> SourcePart[FineFeatures]:
    """Some videos of a shard, as part of a search; `folder` is for copies of videos that are at addresses."""
    from lastseen.index.part import part_of_index

    index.bind(localizer)
    videos = [video for video in index.videos() if video.id in ids and video.frames > video.first]
    original = partial(_original, index, folder)
    return part_of_index(index, localizer, queries, encoded, videos, before, tracker, original)


def _original(index: Index, folder: Path, video: IndexedVideo) -> Path:
    """A video's file; of one that is at an address a copy in `folder`."""
    if video.kind != RECORDED or not is_address(video.source):
        return check_unchanged(index, video).path
    copy = fetch(Source(place=video.source, size=video.size or 0, mtime_ns=video.mtime_ns), folder)
    if sha256_of(copy) != video.sha256:
        raise IndexStoreError(f"{video.name}: {video.source} is not the file that was indexed")
    return copy


def _light(draft: Draft) -> Draft:
    """Without the question's pictures, which whoever asked has."""
    return replace(draft, answer=replace(draft.answer, query=None))

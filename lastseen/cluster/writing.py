"""Where a worker writes its shard: in a folder that all machines share, or on its own disk, to be published.

In a shared folder locks keep two workers from one shard and from one video; a lock is released when its
holder ends, even if it is killed.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Protocol

from lastseen.cluster.remote import publish
from lastseen.cluster.shards import Held, Shards, check_place, places
from lastseen.cluster.storage import is_address
from lastseen.errors import LastSeenError
from lastseen.index.database import SHARDS
from lastseen.index.entry import IndexedVideo
from lastseen.index.index import Index
from lastseen.index.lock import locked


class Writing(Protocol):
    name: str  # of the worker's own shard
    index: Index

    def claimed(self, digest: str) -> AbstractContextManager[bool]:
        """Hold the right to index a video; False if another worker has it."""

    def holder(self, digest: str) -> Held | None:
        """The video in another shard than the worker's own."""

    def borrowed(self, shard: str) -> AbstractContextManager[Index | None]:
        """Write another shard for a while; None if its own worker lives."""

    def publish(self, video: IndexedVideo) -> None:
        """Let the others see a finished video."""

    def close(self) -> None: ...


def writing_to(folder: str) -> Writing:
    return RemoteFolder(folder) if is_address(folder) else SharedFolder(Path(folder))


class SharedFolder:
    def __init__(self, folder: Path) -> None:
        self.folder, self._held = folder, ExitStack()
        check_place(str(folder))
        for place in (folder, folder / "locks", folder / SHARDS):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.name = next(name for name in self._names() if self._held.enter_context(self._lock(name)))
        self.index = Index(folder / SHARDS / self.name)

    def _names(self) -> Iterator[str]:
        """Shards that are there, then new ones."""
        there = list(places(self.folder))
        yield from there
        yield from (name for n in count(1) if (name := f"{n:03d}") not in there)

    def _lock(self, name: str) -> AbstractContextManager[bool]:
        return locked(self.folder / "locks" / f"shard-{name}.lock", wait=False)

    def claimed(self, digest: str) -> AbstractContextManager[bool]:
        return locked(self.folder / "locks" / f"{digest}.lock", wait=False)

    def holder(self, digest: str) -> Held | None:
        with Shards(self.folder) as shards:
            identity = f"sha256:{digest}"
            held = [one for one in shards.held() if one.video.identity == identity]
        return held[0] if held and held[0].shard != self.name else None

    @contextmanager
    def borrowed(self, shard: str) -> Iterator[Index | None]:
        with self._lock(shard) as mine:
            if not mine:
                yield None
                return
            with Index(self.folder / SHARDS / shard, create=False) as index:
                yield index

    def publish(self, video: IndexedVideo) -> None:
        pass  # it is seen as soon as it is committed

    def close(self) -> None:
        """An empty shard is removed."""
        empty = not self.index.catalogue.videos()
        self.index.close()
        if empty:
            shutil.rmtree(self.folder / SHARDS / self.name, ignore_errors=True)
        self._held.close()


class RemoteFolder:
    def __init__(self, folder: str) -> None:
        self.folder, self._held = folder, ExitStack()
        self.name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
        place = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="lastseen-")))
        self.index = Index(place / self.name)
        with Shards(folder) as shards:
            self._known = {one.video.sha256: one for one in shards.held()}

    def claimed(self, digest: str) -> AbstractContextManager[bool]:
        return nullcontext(True)  # a storage has no locks: a copy that two drivers make counts once

    def holder(self, digest: str) -> Held | None:
        return self._known.get(digest)

    def borrowed(self, shard: str) -> AbstractContextManager[Index | None]:
        return nullcontext(None)

    def publish(self, video: IndexedVideo) -> None:
        for other in self.index.catalogue.videos(complete=0):
            self.index.remove(other)  # failed: the catalogue there names only what is whole
        try:
            publish(self.index, video, self.folder, self.name)
        except LastSeenError:
            self.index.remove(video)
            raise
        self._known[video.sha256] = Held(self.name, video)
        shutil.rmtree(self.index.place(video))  # this disk need not hold the whole shard

    def close(self) -> None:
        self.index.close()
        self._held.close()

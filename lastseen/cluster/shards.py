"""Shards: an index of many machines. Each shard is an ordinary index, written by one worker at a time.

    FOLDER/shards/001/            an index: lastseen find --index FOLDER/shards/001
    FOLDER/locks/shard-001.lock   held by the worker that writes it
    FOLDER/locks/SHA256.lock      held by the worker that indexes this video

A video that is in several shards (two drivers on a storage without locks) counts once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lastseen.cluster.remote import fetched_catalogues
from lastseen.cluster.storage import Source, is_address
from lastseen.errors import IndexStoreError
from lastseen.index.database import FILE, SHARDS
from lastseen.index.entry import IndexedVideo
from lastseen.index.folder import IndexFolder

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True)
class Held:
    """A video, and the shard that holds it."""

    shard: str
    video: IndexedVideo


class Shards:
    """The shards of a folder, opened; read by everyone, written by workers alone."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self._opened = ExitStack()
        self.indexes: dict[str, IndexFolder] = {}
        for name, place in self._places().items():
            self.indexes[name] = self._opened.enter_context(IndexFolder(place))

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _places(self) -> dict[str, Path]:
        if is_address(self.folder):
            return self._opened.enter_context(fetched_catalogues(self.folder))
        return places(Path(self.folder))

    def held(self) -> list[Held]:
        """Each video once, in the order of their paths; of several copies the most complete one."""
        best: dict[str, Held] = {}
        for shard, index in self.indexes.items():
            for video in index.videos():
                known = best.get(video.identity)
                if known is None or _completeness(video) > _completeness(known.video):
                    best[video.identity] = Held(shard, video)
        return sorted(best.values(), key=lambda held: (Path(held.video.source), held.shard))

    def videos(self) -> list[IndexedVideo]:
        return [held.video for held in self.held()]

    def named(self, name: str) -> Held:
        """Find a video by name, by path, or by name without its suffix."""
        held, path = self.held(), str(Path(name).absolute())
        for matches in (
            [one for one in held if one.video.name == name],
            [one for one in held if one.video.source in (name, path)],
            [one for one in held if Path(one.video.name).stem == name],
        ):
            if len(matches) == 1:
                return matches[0]
            if matches:
                where = " or ".join(one.video.source for one in matches)
                raise IndexStoreError(f"{name} may be {where}; give one of them")
        raise IndexStoreError(f"{name} is not in {self.folder}")

    @property
    def engine(self) -> str | None:
        """The engine that made the features; None if nothing is there yet."""
        return next((index.engine for index in self.indexes.values() if index.engine), None)

    def known(self, sources: Sequence[Source]) -> dict[str, Held]:
        """Which sources are there already, also unfinished: by place, size and time of the last change."""
        held = {one.video.source: one for one in self.held()}
        found = {}
        for source in sources:
            one = held.get(source.place)
            if one and one.video.size == source.size and source.mtime_ns in (None, one.video.mtime_ns):
                found[source.place] = one
        return found


def places(folder: Path) -> dict[str, Path]:
    """The shards of a folder by name."""
    found = sorted((folder / SHARDS).glob(f"*/{FILE}"))
    return {path.parent.name: path.parent for path in found}


def check_place(folder: str) -> None:
    """Raise IndexStoreError if shards cannot be there."""
    if not is_address(folder) and (Path(folder) / FILE).exists():
        raise IndexStoreError(f"{folder} is an index of one machine; give --ray another --index FOLDER")


def has_shards(folder: str | os.PathLike[str]) -> bool:
    return is_address(os.fspath(folder)) or (Path(folder) / SHARDS).is_dir()


def _completeness(video: IndexedVideo) -> tuple[bool, int]:
    return video.complete, video.frames

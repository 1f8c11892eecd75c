"""Shards behind an address: fetched to be read, and published whole by the worker that writes them.

The files of a video go first and the catalogue last, so that what a catalogue names is there. A shard there
has one writer ever; the next run begins shards of its own.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from lastseen.cluster.storage import get, put, storage_of
from lastseen.files import user_folder
from lastseen.index.database import FILE, SHARDS
from lastseen.index.entry import IndexedVideo
from lastseen.index.folder import IndexFolder

BUILDING = f"{FILE}.part"


def _shards(folder: str) -> tuple[Any, dict[str, str]]:
    """The storage, and the path of each shard in it by name."""
    storage, path = storage_of(folder)
    found = {}
    if storage.isdir(f"{path}/{SHARDS}"):
        for name in sorted(storage.ls(f"{path}/{SHARDS}", detail=False)):
            if storage.isfile(f"{name.rstrip('/')}/{FILE}"):
                found[PurePosixPath(name).name] = name.rstrip("/")
    return storage, found


@contextmanager
def fetched_catalogues(folder: str) -> Iterator[dict[str, Path]]:
    """The shards as local folders that hold their catalogues only."""
    with tempfile.TemporaryDirectory(prefix="lastseen-") as place:
        storage, shards = _shards(folder)
        local = {}
        for name, path in shards.items():
            local[name] = Path(place) / name
            local[name].mkdir(mode=0o700)
            get(storage, f"{path}/{FILE}", local[name] / FILE, storage.size(f"{path}/{FILE}"))
        yield local


def fetched_shard(folder: str, name: str) -> Path:
    """A whole shard in this user's folder of fetched shards; what is there already is not fetched again."""
    storage, shards = _shards(folder)
    place = user_folder("fetched") / hashlib.sha256(folder.encode()).hexdigest()[:16] / name
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, info in sorted(storage.find(shards[name], detail=True).items()):
        target = place / PurePosixPath(path).relative_to(PurePosixPath(shards[name]))
        if target.name == BUILDING:
            continue
        if target.name == FILE:
            for log in ("-wal", "-shm"):  # of a process that was killed: not of the catalogue that comes
                target.with_name(f"{FILE}{log}").unlink(missing_ok=True)
        # Files of features only ever grow; what is in them is checked as it is read.
        if target.name == FILE or not target.is_file() or target.stat().st_size != info["size"]:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            get(storage, path, target, info["size"])
    return place


def publish(index: IndexFolder, video: IndexedVideo, folder: str, name: str) -> None:
    """Add a finished video to the shard there."""
    storage, path = storage_of(folder)
    shard = f"{path}/{SHARDS}/{name}"
    local = index.place(video)
    for file in sorted(local.glob("*.bin")):
        put(storage, file, f"{shard}/videos/{local.name}/{file.name}")
    with tempfile.TemporaryDirectory(prefix="lastseen-") as building:
        snapshot = Path(building) / FILE
        with (
            closing(sqlite3.connect(index.catalogue.path)) as source,
            closing(sqlite3.connect(snapshot)) as target,
        ):
            source.backup(target)
        put(storage, snapshot, f"{shard}/{BUILDING}")
    storage.mv(f"{shard}/{BUILDING}", f"{shard}/{FILE}")
    storage.invalidate_cache()

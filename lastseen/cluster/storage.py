"""Videos and index folders at addresses (s3://bucket/archive, gs://..., file:///...), through fsspec.

A plain path is not an address: it is a file or folder of this machine, or one that all machines share.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from lastseen.errors import IndexStoreError, LastSeenError, VideoError
from lastseen.index.originals import expanded
from lastseen.video.containers import ENDINGS, check_kind, unreadable_file

STREAMS = ("rtsp", "rtsps", "rtmp", "rtp", "srt", "udp", "tcp", "mms")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A video file to index, wherever it is."""

    place: str  # absolute path, or address
    size: int
    mtime_ns: int | None  # None: the storage does not say

    @property
    def name(self) -> str:
        return PurePosixPath(self.place).name if is_address(self.place) else Path(self.place).name


def is_address(place: str) -> bool:
    return "://" in place


def storage_of(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    kind, rest = address.split("://", 1)
    if "@" in rest.split("/")[0]:
        raise LastSeenError(
            f"{kind}://...@...: an address with a password would be stored; set it as {kind}'s driver says"
        )
    if kind in STREAMS:
        raise LastSeenError(f"{kind}://...: a stream belongs to one machine: index it without --ray")
    try:
        import fsspec
    except ImportError:
        raise LastSeenError(f"{address}: addresses need fsspec: pip install 'lastseen[ray]'") from None
    try:
        return fsspec.core.url_to_fs(address)
    except ImportError as error:  # fsspec names the package, like s3fs
        raise LastSeenError(f"{address}: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise LastSeenError(f"{address}: no such kind of address ({error})") from None


def sources_of(places: Sequence[str]) -> tuple[list[Source], dict[str, str]]:
    """The videos in files, folders and addresses, without duplicates; and what cannot be one, with why."""
    found: dict[str, Source] = {}
    failed: dict[str, str] = {}
    for place in places:
        if is_address(place):
            found.update({source.place: source for source in _at_address(place)})
            continue
        for path in expanded([place]):
            try:
                found[path] = _file(path)
            except VideoError as error:
                failed[path] = str(error)
    return list(found.values()), failed


def _file(path: str) -> Source:
    check_kind(Path(path))
    try:
        stat = Path(path).stat()
    except OSError as error:
        raise unreadable_file(Path(path), error) from None
    return Source(place=path, size=stat.st_size, mtime_ns=stat.st_mtime_ns)


def _at_address(address: str) -> list[Source]:
    storage, path = storage_of(address)
    with _errors(address):
        if storage.isfile(path):
            return [_source(storage, path)]
        names = [name for name in storage.find(path) if name.lower().endswith(ENDINGS)]
    if not names:
        raise IndexStoreError(f"{address}: no videos there")
    with _errors(address):
        return [_source(storage, name) for name in sorted(names)]


def _source(storage: Any, path: str) -> Source:
    address = storage.unstrip_protocol(path)
    return Source(place=address, size=storage.size(path), mtime_ns=_modified_ns(storage, path))


def _modified_ns(storage: Any, path: str) -> int | None:
    try:
        moment: datetime = storage.modified(path)
    except NotImplementedError:
        return None
    return round(moment.timestamp() * 1e6) * 1000


def fetch(source: Source, folder: Path) -> Path:
    """A video as a local file: itself, or a copy in `folder` with its size and time."""
    if not is_address(source.place):
        return Path(source.place)
    copy = folder / hashlib.sha256(source.place.encode()).hexdigest()[:16] / source.name
    if copy.is_file():
        return copy
    copy.parent.mkdir()
    storage, path = storage_of(source.place)
    get(storage, path, copy, source.size)
    if source.mtime_ns is not None:
        os.utime(copy, ns=(source.mtime_ns, source.mtime_ns))
    return copy


def get(storage: Any, path: str, target: Path, size: int) -> None:
    """Copy a file here: whole, or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent) as building:
        part = Path(building) / target.name
        with _errors(storage.unstrip_protocol(path)):
            storage.get_file(path, str(part))
        if part.stat().st_size != size:
            raise VideoError(f"{storage.unstrip_protocol(path)} changed while it was fetched; try again")
        part.replace(target)


def put(storage: Any, local: Path, path: str) -> None:
    """Copy a file there, and check that all of it arrived."""
    with _errors(path):
        storage.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
        storage.put_file(str(local), path)
        storage.invalidate_cache()
        arrived = storage.size(path)
    if arrived != local.stat().st_size:
        raise IndexStoreError(f"{path}: {arrived} of {local.stat().st_size} bytes arrived; index again")


@contextmanager
def _errors(address: str) -> Iterator[None]:
    """Whatever the storage's driver raises, as one line."""
    try:
        yield
    except FileNotFoundError:
        raise VideoError(f"{address}: is not there; give a file or a folder that is") from None
    except LastSeenError:
        raise
    except Exception as error:  # each driver has errors of its own
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise IndexStoreError(f"{address}: cannot be reached or read ({what})") from None

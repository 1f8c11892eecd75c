"""The video files of an index: which ones to add, and whether they are unchanged since."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lastseen.errors import IndexStoreError
from lastseen.index.catalogue import GROWING, RECORDED, IndexedVideo
from lastseen.index.folder import IndexFolder
from lastseen.video import Video
from lastseen.video.containers import is_folder, unreadable_file
from lastseen.video.sources import is_live, recorded_at

ENDINGS = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg", ".3gp")


def expanded(paths: Sequence[str]) -> list[str]:
    """Files and addresses without duplicates; a folder is replaced by the videos in it and below."""
    found: dict[str, None] = {}
    for path in paths:
        if not path:
            raise IndexStoreError("an empty name is no video; give a file, a folder or an address")
        if not is_live(path) and is_folder(Path(path)):
            named = (p for p in Path(path).rglob("*") if p.suffix.lower() in ENDINGS)
            inside = sorted(p for p in named if not is_folder(p))
            if not inside:
                raise IndexStoreError(f"{path}: no videos in this folder")
            found.update(dict.fromkeys(str(p.absolute()) for p in inside))
        else:
            found[path if is_live(path) else str(Path(path).absolute())] = None
    return list(found)


def shard(items: Sequence[str], which: str) -> list[str]:
    """ "2/4": the second of four disjoint parts of the list."""
    match = re.fullmatch(r"(\d+)/(\d+)", which)
    part, parts = map(int, match.groups()) if match else (0, 0)
    if not 1 <= part <= parts:
        raise IndexStoreError(f"--shard {which}: expected I/N with I from 1 to N, like 2/4")
    return sorted(items)[part - 1 :: parts]


def check_unchanged(index: IndexFolder, video: IndexedVideo) -> IndexedVideo:
    """Raise IndexStoreError unless the video file exists and is the one that was indexed."""
    if not video.path.is_file():
        raise IndexStoreError(
            f"{video.name}: {video.source} is gone; put it back, or remove it from the index"
        )
    if video.kind == GROWING and not video.complete:
        same = video.identity == growing_identity(video.path)
    elif size_and_mtime(video.path) == (video.size, video.mtime_ns):
        same = True
    else:
        same = sha256_of(video.path) == video.sha256
        if same:
            size, mtime_ns = size_and_mtime(video.path)
            video = index.catalogue.update(video.id, size=size, mtime_ns=mtime_ns)
    if not same:
        raise IndexStoreError(
            f"{video.name}: {video.source} is not the file that was indexed; "
            f"forget the old one first: lastseen index remove '{video.name}'"
        )
    return video


def sha256_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable_file(path, error) from None


def known_by_path(index: IndexFolder, path: Path) -> IndexedVideo | None:
    known = index.catalogue.videos(source=str(path))
    return check_unchanged(index, known[-1]) if known and path.is_file() else None


def entered(
    index: IndexFolder, source: Video, total: int, keep: str, name: str | None, recorded: float | None
) -> IndexedVideo:
    """Add the video to the catalogue, or return the existing entry with the same content."""
    path, digest = source.path, sha256_of(source.path)
    for twin in index.catalogue.videos(sha256=digest):
        if twin.path.is_file():
            return twin
        size, mtime_ns = size_and_mtime(path)  # the file was moved
        return index.catalogue.update(twin.id, source=str(path), size=size, mtime_ns=mtime_ns)
    return index.catalogue.add(
        name or path.name,
        kind=RECORDED,
        identity=f"sha256:{digest}",
        sha256=digest,
        expected=total,
        recorded_at=began(source) if recorded is None else recorded,
        **facts(source, keep),
    )


def facts(source: Video, keep: str) -> dict[str, Any]:
    size, mtime_ns = size_and_mtime(source.path)
    return {
        "source": str(source.path),
        "size": size,
        "mtime_ns": mtime_ns,
        "width": source.width,
        "height": source.height,
        "fps": source.fps,
        "duration_s": source.duration_s,
        "keep": keep,
    }


def began(source: Video) -> float:
    """When the first frame was taken: from the file's metadata, else modification time minus duration."""
    from_metadata = recorded_at(source.path)
    return source.path.stat().st_mtime - source.duration_s if from_metadata is None else from_metadata


def size_and_mtime(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def growing_identity(path: Path) -> str:
    # Not a hash of the first bytes: some containers rewrite their header when a recording ends.
    stat = path.stat()
    return f"growing:{stat.st_dev}:{stat.st_ino}:{path}"

"""The video files of an index: which ones to add, and whether they are unchanged since."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lastseen.errors import IndexStoreError, VideoError
from lastseen.index.entry import RECORDED, IndexedVideo
from lastseen.index.folder import IndexFolder
from lastseen.index.identity import is_same_file, sha256_of, size_and_mtime
from lastseen.video import Video
from lastseen.video.containers import ENDINGS, is_file, is_folder
from lastseen.video.dates import CONTAINER, FILE_TIME, SAID, believable, local
from lastseen.video.sources import dates_in, is_live, recorded_at


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
    if not is_file(video.path):
        raise IndexStoreError(
            f"{video.name}: {video.source} is gone; put it back, or remove it from the index"
        )
    try:
        same = is_same_file(video)
        size, mtime_ns = size_and_mtime(video.path)
    except OSError as error:
        raise IndexStoreError(f"{video.name}: {video.source} cannot be read: {error.strerror}") from None
    if not same:
        raise IndexStoreError(
            f"{video.name}: {video.source} is not the file that was indexed; "
            f"forget the old one first: lastseen index remove '{video.name}'"
        )
    if video.sha256 is not None and (size, mtime_ns) != (video.size, video.mtime_ns):  # touched, not changed
        if index.catalogue.read_only is not None:
            return replace(video, size=size, mtime_ns=mtime_ns)
        return index.catalogue.update(video.id, size=size, mtime_ns=mtime_ns)
    return video


def known_by_path(index: IndexFolder, path: Path) -> IndexedVideo | None:
    check_name(path)
    known = index.catalogue.videos(source=str(path))
    return check_unchanged(index, known[-1]) if known and is_file(path) else None


def check_name(path: Path) -> None:
    """Raise VideoError for a name that the catalogue cannot hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise VideoError(f"{path}: its name is not text, so it cannot be remembered; rename it") from None


def entered(
    index: IndexFolder, source: Video, total: int, keep: str, name: str | None, recorded: float | None
) -> IndexedVideo:
    """Add the video to the catalogue, or return the existing entry with the same content."""
    path, digest = source.path, sha256_of(source.path)
    for twin in index.catalogue.videos(sha256=digest):
        if is_file(twin.path):
            return twin
        size, mtime_ns = size_and_mtime(path)  # the file was moved
        return index.catalogue.update(twin.id, source=str(path), size=size, mtime_ns=mtime_ns)
    return index.catalogue.add(
        name or path.name,
        kind=RECORDED,
        identity=f"sha256:{digest}",
        sha256=digest,
        expected=total,
        **dates(source, recorded),
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


def dates(source: Video, recorded: float | None) -> dict[str, Any]:
    """When the first frame was taken, and how that is known: `recorded` if given, else the file's metadata,
    else modification time minus duration, else as if it had ended now. A time that cannot be right is passed
    over."""
    if recorded is not None:
        return {"recorded_at": recorded, "dated_by": SAID}
    from_metadata = recorded_at(source.path)
    if from_metadata is not None and believable(from_metadata):
        return {"recorded_at": from_metadata, "dated_by": CONTAINER}
    written = source.path.stat().st_mtime - source.duration_s
    if not believable(written):
        written = time.time() - source.duration_s
    return {"recorded_at": written, "dated_by": FILE_TIME}


def doubted_date(source: Video, recorded: float | None) -> str | None:
    """A note if a date of the file was not believed and no better one was found."""
    found = [] if recorded is not None else dates_in(source.path)
    if recorded is not None or any(map(believable, found)):
        return None
    written = source.path.stat().st_mtime
    if not believable(written - source.duration_s):
        says, instead = (
            f"was written on {local(written):%Y-%m-%d}",
            "dated as if it had been recorded just now",
        )
    elif found:
        says, instead = f"was recorded on {local(found[0]):%Y-%m-%d}", "dated by when it was written"
    else:
        return None
    return (
        f"{source.path.name}: says that it {says}, which cannot be; it is {instead} "
        "(--recorded DATE says better)"
    )


def checked_date(recorded: float | None) -> float | None:
    """`recorded` as given; an error if no video can have been recorded then."""
    if recorded is not None and not believable(recorded):
        raise IndexStoreError(
            f"recorded {local(recorded):%Y-%m-%d}: no video is from then; give a date from 1980 to today"
        )
    return recorded

"""By what a video file is known: its content, or, while it is being written, its place on the disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lastseen.index.entry import GROWING, IndexedVideo
from lastseen.video.containers import unreadable_file

MOST_NS = 2**63 - 1  # what a database holds: the year 2262; a file can be dated centuries later


def sha256_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable_file(path, error) from None


def size_and_mtime(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, min(max(stat.st_mtime_ns, -MOST_NS), MOST_NS)


def growing_identity(path: Path) -> str:
    # Not a hash of the first bytes: some containers rewrite their header when a recording ends.
    stat = path.stat()
    return f"growing:{stat.st_dev}:{stat.st_ino}:{path}"


def is_same_file(video: IndexedVideo, *, by_content: bool = False) -> bool:
    """Whether the file that is there is the one that was indexed; `by_content`: also if size and time are the
    same."""
    if video.kind == GROWING and not video.complete:
        return video.identity == growing_identity(video.path)
    found = size_and_mtime(video.path)
    if found == (video.size, video.mtime_ns) and not by_content:
        return True
    return video.size in (None, found[0]) and sha256_of(video.path) == video.sha256

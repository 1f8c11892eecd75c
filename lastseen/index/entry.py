"""What the catalogue says of a video, checked: a damaged catalogue must not be believed.

Does not import torch.
"""

from __future__ import annotations

import json
import math
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from lastseen.video.dates import CONTAINER, FILE_TIME, SAID, believable, local

FULL, SMALL, COMPACT = "full", "small", "compact"  # which features of a video are kept
RECORDED, GROWING, LIVE = "file", "growing", "live"  # finished file, file being written, live stream
BLOCK_BYTES = 384  # of 2 x 2 tokens in small features; as lastseen.model.token_basis, which loads torch
MOST_FRAMES = 200_000_000  # over a year at 5 frames a second

VIDEOS = """CREATE TABLE videos (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    kind TEXT NOT NULL,
    identity TEXT NOT NULL UNIQUE,
    sha256 TEXT,
    size INTEGER,
    mtime_ns INTEGER,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    fps REAL NOT NULL,
    duration_s REAL NOT NULL,
    recorded_at REAL NOT NULL,
    keep TEXT NOT NULL,
    expected INTEGER,
    grid TEXT,
    fine_bytes INTEGER,
    compact_bytes INTEGER,
    first INTEGER NOT NULL DEFAULT 0,
    frames INTEGER NOT NULL DEFAULT 0,
    complete INTEGER NOT NULL DEFAULT 0,
    unreadable INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER,
    dated_by TEXT
);"""
# Columns that older catalogues lack: their declaration, and what to read in place of them.
ADDED_COLUMNS = {
    "unreadable": ("INTEGER NOT NULL DEFAULT 0", "0"),
    "checksum": ("INTEGER", "NULL"),
    "dated_by": ("TEXT", "NULL"),
}


@dataclass(frozen=True, kw_only=True)
class IndexedVideo:
    """A video in an index; frames are numbered from its beginning at the index's rate."""

    id: int
    name: str
    source: str  # absolute path, or the address of a stream
    kind: str
    identity: str  # unique key of the content
    sha256: str | None  # of the complete file; None until it is complete
    size: int | None
    mtime_ns: int | None
    width: int
    height: int
    fps: float  # nominal, of the video itself
    duration_s: float
    recorded_at: float  # as stored; `began_at` is what to go by
    keep: str
    expected: int | None  # total number of frames, if known
    grid: tuple[int, int, int] | None  # channels, rows and columns of a frame's features
    fine_bytes: int | None  # size of a frame's full features; None if they are not kept
    compact_bytes: int | None
    first: int  # frames before this one were dropped
    frames: int  # one past the last stored frame
    complete: bool
    unreadable: int  # samples that could not be decoded
    dated_by: str | None  # as stored; `date_source` is what to go by

    @property
    def path(self) -> Path:
        return Path(self.source)

    @property
    def start_s(self) -> float:
        return 0.0

    @property
    def date_is_doubtful(self) -> bool:
        """The stored date cannot be right: before 1980, or in the future."""
        return not believable(self.recorded_at)

    @property
    def began_at(self) -> float:
        """When the first frame was taken, seconds since 1970. A date that cannot be right is replaced by when
        the file was last written less its length, or by 1970, so that the video does not pass for the latest.
        """
        if not self.date_is_doubtful:
            return self.recorded_at
        written = self._written_at()
        return written if believable(written) else 0.0

    def _written_at(self) -> float:
        """When the file was last written, less its length."""
        return -math.inf if self.mtime_ns is None else self.mtime_ns / 1e9 - self.duration_s

    @property
    def date_source(self) -> str:
        """How sure `began_at` is: SAID, CONTAINER or FILE_TIME."""
        if self.date_is_doubtful:
            return FILE_TIME
        return self.dated_by or self._likely_source()

    def _likely_source(self) -> str:
        """Indexes of before did not say. Dates in metadata are whole seconds; the time at which a file was
        written, less its length, hardly ever is."""
        if self.kind == LIVE:
            return SAID
        if self.recorded_at % 1 or abs(self.recorded_at - self._written_at()) < 1:
            return FILE_TIME
        return CONTAINER

    def frame_count(self, fps: float) -> int:
        """As `Video.frame_count`; `fps` is the index's sampling rate."""
        return self.frames

    def time_of(self, time_s: float) -> datetime:
        """Local date and time of a moment of the video."""
        return local(self.began_at + time_s)


@dataclass(frozen=True)
class Block:
    """Rows that were committed together, with their checksums."""

    first: int
    rows: int
    fine: int | None
    compact: int

    @property
    def end(self) -> int:
        return self.first + self.rows


COLUMNS = tuple(field.name for field in fields(IndexedVideo))


class DamagedEntry(sqlite3.DataError):
    """A row of the catalogue with values that no writer can have put there."""

    def __init__(self, id: Any, what: str) -> None:
        super().__init__(f"video {id!r:.20}: {what}")
        self.id = id


def checksum_of(row: Sequence[Any]) -> int:
    """Of the values of COLUMNS, as SQLite gives them."""
    return zlib.crc32(repr(tuple(row)).encode("utf-8", "backslashreplace"))


def video_of(row: Sequence[Any], checksum: int | None) -> IndexedVideo:
    """The video in a row of the catalogue, or DamagedEntry. Rows of before have no checksum."""
    values = dict(zip(COLUMNS, row))
    id = values["id"]
    for column, allowed in _ALLOWED.items():
        if not allowed(values[column]):
            raise DamagedEntry(id, f"{column} is {values[column]!r:.40}")
    values["grid"] = _grid(id, values["grid"])
    video = IndexedVideo(**{**values, "complete": bool(values["complete"])})
    if not video.first <= video.frames:
        raise DamagedEntry(id, f"frames from {video.first} to {video.frames}")
    if problem := _sizes_disagree(video):
        raise DamagedEntry(id, problem)
    if checksum is not None and checksum != checksum_of(row):
        raise DamagedEntry(id, "its entry is not as it was written")
    return video


def block_of(row: tuple[Any, ...]) -> Block | None:
    """The block in a row of the catalogue; None if no writer can have put these values there."""
    first, rows, fine, compact = row
    if not (_count(0, MOST_FRAMES)(first) and _count(1, MOST_FRAMES)(rows)):
        return None
    return Block(first, rows, fine if isinstance(fine, int) else None, compact if _is(int)(compact) else -1)


def _sizes_disagree(video: IndexedVideo) -> str:
    """How the sizes of features contradict each other; empty if they do not."""
    if video.grid is None:
        if video.fine_bytes or video.compact_bytes or video.frames > 0:
            return "its features have no size"
        return ""
    numbers = math.prod(video.grid)
    kept = video.keep == FULL
    if kept != (video.fine_bytes is not None) or (
        kept and video.fine_bytes not in (2 * numbers, 4 * numbers)
    ):
        return f"frames of {video.fine_bytes} bytes do not hold features of {video.grid}"
    if video.compact_bytes is None or video.compact_bytes % (
        BLOCK_BYTES if video.keep == SMALL else video.grid[0] + 2
    ):
        return f"tokens of {video.compact_bytes} bytes are not of features of {video.grid}"
    return ""


def _grid(id: int, text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    try:
        grid = json.loads(text)
    except (ValueError, RecursionError):
        grid = None
    if not (isinstance(grid, list) and len(grid) == 3 and all(map(_count(1, 100_000), grid))):
        raise DamagedEntry(id, f"grid is {text!r:.40}")
    return grid[0], grid[1], grid[2]


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


def _within(least: float, most: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and least <= value <= most


def _optional(allowed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or allowed(value)


def _one_of(*values: str) -> Callable[[Any], bool]:
    return lambda value: value in values


def _count(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _text(value: Any) -> bool:
    return type(value) is str and "\0" not in value


_ALLOWED: dict[str, Callable[[Any], bool]] = {
    "id": _count(1, 2**62),
    "name": _text,
    "source": _text,
    "kind": _one_of(RECORDED, GROWING, LIVE),
    "identity": _text,
    "sha256": _optional(_text),
    "size": _optional(_count(0, 2**62)),
    "mtime_ns": _optional(_is(int)),
    "width": _count(1, 100_000),
    "height": _count(1, 100_000),
    "fps": _within(1e-6, 1e9),
    "duration_s": _within(0, 1e10),
    "recorded_at": _is(float, int),
    "keep": _one_of(FULL, SMALL, COMPACT),
    "expected": _optional(_count(0, MOST_FRAMES)),
    "grid": _optional(_text),
    "fine_bytes": _optional(_count(1, 2**40)),
    "compact_bytes": _optional(_count(1, 2**40)),
    "first": _count(0, MOST_FRAMES),
    "frames": _count(0, MOST_FRAMES),
    "complete": _count(0, 1),
    "unreadable": _count(0, MOST_FRAMES),
    "dated_by": _optional(_one_of(SAID, CONTAINER, FILE_TIME)),
}

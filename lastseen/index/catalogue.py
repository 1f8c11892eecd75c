"""The SQLite file that lists an index's videos and how many feature rows of each are committed.

Rows are committed here only after they are on disk; uncommitted rows are ignored.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from lastseen.errors import IndexStoreError
from lastseen.index.lock import locked

SCHEMA = "lastseen/index@1"
FILE = "catalogue.sqlite"
FULL, COMPACT = "full", "compact"  # which features of a video are kept
RECORDED, GROWING, LIVE = "file", "growing", "live"  # finished file, file being written, live stream

TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE videos (
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
    unreadable INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE blocks (
    video INTEGER NOT NULL REFERENCES videos ON DELETE CASCADE,
    first INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    fine INTEGER,
    compact INTEGER NOT NULL,
    PRIMARY KEY (video, first)
) WITHOUT ROWID;
"""


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
    recorded_at: float  # when its first frame was taken, seconds since 1970
    keep: str
    expected: int | None  # total number of frames, if known
    grid: tuple[int, int, int] | None  # channels, rows and columns of a frame's features
    fine_bytes: int | None  # size of a frame's full features; None if they are not kept
    compact_bytes: int | None
    first: int  # frames before this one were dropped
    frames: int  # one past the last stored frame
    complete: bool
    unreadable: int = 0  # frames that could not be decoded; the one before each stands for it

    @property
    def path(self) -> Path:
        return Path(self.source)

    @property
    def start_s(self) -> float:
        return 0.0

    def frame_count(self, fps: float) -> int:
        """As `Video.frame_count`; `fps` is the index's sampling rate."""
        return self.frames

    def time_of(self, time_s: float) -> datetime:
        """Local date and time of a moment of the video."""
        return datetime.fromtimestamp(self.recorded_at + time_s).astimezone()


@dataclass(frozen=True)
class Block:
    """Rows that were committed together, with their checksums."""

    first: int
    rows: int
    fine: int | None
    compact: int


COLUMNS = tuple(field.name for field in fields(IndexedVideo))


class Catalogue:
    """The open database; every change is one transaction."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder, self.path = folder, folder / FILE
        if create:
            self._create()
        elif not self.path.is_file():
            raise IndexStoreError(f"no index at {folder}; make one: lastseen index VIDEO...")
        with self._sqlite_errors():
            self._base = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self._base.execute("PRAGMA synchronous = FULL")
            self._base.execute("PRAGMA foreign_keys = ON")
        try:
            schema = self.about().get("schema")
            if schema != SCHEMA:
                raise IndexStoreError(f"{folder}: is {schema}, this lastseen reads {SCHEMA}; index again")
        except IndexStoreError:
            self.close()
            raise

    def close(self) -> None:
        self._base.close()

    def about(self) -> dict[str, Any]:
        """Properties of the whole index: schema, model, sampling rate."""
        with self._sqlite_errors():
            rows = self._base.execute("SELECT key, value FROM about").fetchall()
        return {key: json.loads(value) for key, value in rows}

    def set_about(self, **values: Any) -> dict[str, Any]:
        """Set properties that are not set yet; returns the current ones."""
        with self._change():
            self._base.executemany(
                "INSERT OR IGNORE INTO about VALUES (?, ?)", [(k, json.dumps(v)) for k, v in values.items()]
            )
        return self.about()

    def videos(self, **equal: Any) -> list[IndexedVideo]:
        """Videos whose columns equal the given values, in the order in which they were added."""
        where = " AND ".join(f"{column} = ?" for column in equal) or "1"
        query = f"SELECT {', '.join(COLUMNS)} FROM videos WHERE {where} ORDER BY id"
        with self._sqlite_errors():
            return [_video(row) for row in self._base.execute(query, tuple(equal.values()))]

    def video(self, id: int) -> IndexedVideo:
        found = self.videos(id=id)
        if not found:
            raise IndexStoreError("the video was removed from the index meanwhile; ask again")
        return found[0]

    def add(self, name: str, **values: Any) -> IndexedVideo:
        """Add a video, or return the existing one with the same identity."""
        with self._change():
            if known := self.videos(identity=values["identity"]):
                return known[0]
            taken = {video.name for video in self.videos()}
            names = (name if n == 1 else f"{name} ({n})" for n in range(1, len(taken) + 2))
            values = {"name": next(n for n in names if n not in taken), **values}
            columns, marks = ", ".join(values), ", ".join("?" * len(values))
            query = f"INSERT INTO videos ({columns}) VALUES ({marks})"
            added = self._base.execute(query, tuple(values.values())).lastrowid
        assert added is not None
        return self.video(added)

    def update(self, id: int, **values: Any) -> IndexedVideo:
        with self._change():
            self._set(id, values)
        return self.video(id)

    def commit(self, id: int, block: Block, **values: Any) -> None:
        """Commit the rows of a block. They must be on disk already."""
        with self._change():
            row = (id, block.first, block.rows, block.fine, block.compact)
            self._base.execute("INSERT INTO blocks VALUES (?, ?, ?, ?, ?)", row)
            self._set(id, {"frames": block.first + block.rows, **values})

    def keep_rows(self, id: int, first: int, end: int) -> None:
        """Drop all rows outside [first, end)."""
        with self._change():
            self._base.execute(
                "DELETE FROM blocks WHERE video = ? AND (first < ? OR first + rows > ?)", (id, first, end)
            )
            self._set(id, {"first": first, "frames": end})

    def shorten(self, id: int, first: int, last: Block) -> None:
        """Replace the last, longer block by `last`, its beginning; the rows end there."""
        with self._change():
            self.keep_rows(id, first, last.first)
            self.commit(id, last)

    def blocks(self, id: int) -> list[Block]:
        query = "SELECT first, rows, fine, compact FROM blocks WHERE video = ? ORDER BY first"
        with self._sqlite_errors():
            return [Block(*row) for row in self._base.execute(query, (id,))]

    def remove(self, id: int) -> None:
        with self._change():
            self._base.execute("DELETE FROM videos WHERE id = ?", (id,))

    def problems(self) -> list[str]:
        with self._sqlite_errors():
            found = [row[0] for row in self._base.execute("PRAGMA integrity_check")]
        return [] if found == ["ok"] else [f"{self.path}: {line}" for line in found]

    def _set(self, id: int, values: dict[str, Any]) -> None:
        columns = ", ".join(f"{column} = ?" for column in values)
        self._base.execute(f"UPDATE videos SET {columns} WHERE id = ?", (*values.values(), id))

    def _create(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # private: no access for other users
            with locked(self.folder / "create.lock"):
                if not self.path.exists():
                    self._build()
        except OSError as error:
            raise IndexStoreError(f"{self.folder}: no index can be made there: {error.strerror}") from None

    def _build(self) -> None:
        # Built under another name, then renamed: a process killed meanwhile leaves no partial database.
        building = self.path.with_suffix(".building")
        building.unlink(missing_ok=True)
        with self._sqlite_errors():
            base = sqlite3.connect(building, isolation_level=None)
            try:
                base.executescript(TABLES)
                base.execute("INSERT INTO about VALUES ('schema', ?)", (json.dumps(SCHEMA),))
                base.execute("PRAGMA journal_mode = WAL")  # readers and the writer do not block each other
            finally:
                base.close()
        building.replace(self.path)

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._sqlite_errors():
            if self._base.in_transaction:
                yield
                return
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._base.execute("COMMIT")
            except BaseException:
                self._base.rollback()  # no effect if SQLite has already rolled back
                raise

    @contextmanager
    def _sqlite_errors(self) -> Iterator[None]:
        """Convert SQLite's errors to IndexStoreError with a one-line message."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorname", "")
            if code.startswith("SQLITE_FULL"):
                raise IndexStoreError(disk_full(self.folder)) from None
            if code.startswith("SQLITE_BUSY"):
                raise IndexStoreError(f"{self.path}: another process keeps it locked; try again") from None
            if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
                reason = "is damaged; remove the index and make it again"
            else:
                reason = f"cannot be used ({error})"
            raise IndexStoreError(f"{self.path}: {reason}") from None


def disk_full(folder: Path) -> str:
    return f"the disk of {folder} is full; what was committed is safe: free some space, then index again"


def _video(row: tuple[Any, ...]) -> IndexedVideo:
    values = dict(zip(COLUMNS, row))
    grid = values["grid"]
    values["grid"] = tuple(json.loads(grid)) if grid else None
    return IndexedVideo(**{**values, "complete": bool(values["complete"])})

"""The SQLite file that lists an index's videos and how many feature rows of each are committed.

Rows are committed here only after they are on disk; uncommitted rows are ignored.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lastseen.errors import IndexStoreError
from lastseen.index.entry import (
    ADDED_COLUMNS,
    COLUMNS,
    VIDEOS,
    Block,
    DamagedEntry,
    IndexedVideo,
    block_of,
    checksum_of,
    video_of,
)
from lastseen.index.lock import locked

SCHEMA = "lastseen/index@1"
FILE = "catalogue.sqlite"
BUILDING = "catalogue.building"
OURS = {FILE, f"{FILE}-wal", f"{FILE}-shm", BUILDING, "videos", "locks", "uploads", "create.lock"}

TABLES = f"""
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
{VIDEOS}
CREATE TABLE blocks (
    video INTEGER NOT NULL REFERENCES videos ON DELETE CASCADE,
    first INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    fine INTEGER,
    compact INTEGER NOT NULL,
    PRIMARY KEY (video, first)
) WITHOUT ROWID;
"""


class Catalogue:
    """The open database; every change is one transaction.

    Where nothing can be written (a read-only folder, a full disk) it can still be read: `read_only` says why.
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder, self.path = folder, folder / FILE
        self.read_only: str | None = None
        if not self._is_there():
            if not create:
                raise IndexStoreError(f"no index at {folder}; make one: lastseen index VIDEO...")
            self._create()
        if create:
            self._make_private()
        self._open()

    def close(self) -> None:
        self._base.close()

    def reopen(self) -> None:
        """Try once more to open it for writing, after space was freed."""
        self.close()
        self.read_only = None
        self._open()

    def about(self) -> dict[str, Any]:
        """Properties of the whole index: schema, model, sampling rate."""
        with self._sqlite_errors():
            rows = self._base.execute("SELECT key, value FROM about").fetchall()
        try:
            about = {str(key): json.loads(value) for key, value in rows}
        except (TypeError, ValueError, RecursionError):
            raise IndexStoreError(self._damaged("its properties cannot be read")) from None
        for key in ("schema", "fingerprint", "made_by", "engine"):
            if not isinstance(about.get(key, ""), str):
                raise IndexStoreError(self._damaged(f"{key} is {about[key]!r:.40}"))
        fps = about.get("fps", 5.0)
        if type(fps) not in (int, float) or not 1e-6 < fps < 1e6:
            raise IndexStoreError(self._damaged(f"fps is {fps!r:.40}"))
        if "fingerprint" in about and not {"made_by", "fps"} <= about.keys():
            raise IndexStoreError(self._damaged("it does not say which model made it"))
        return about

    def set_about(self, **values: Any) -> dict[str, Any]:
        """Set properties that are not set yet; returns the current ones."""
        with self._change():
            self._base.executemany(
                "INSERT OR IGNORE INTO about VALUES (?, ?)", [(k, json.dumps(v)) for k, v in values.items()]
            )
        return self.about()

    def videos(self, **equal: Any) -> list[IndexedVideo]:
        """Videos whose columns equal the given values, in the order in which they were added."""
        with self._sqlite_errors():
            return [video_of(row, checksum) for row, checksum in self._entries(**equal)]

    def sound_videos(self) -> list[IndexedVideo]:
        """All videos but those whose entries are damaged."""
        damaged = self.damaged_entries()
        with self._sqlite_errors():
            return [video_of(*entry) for entry in self._entries() if entry[0][0] not in damaged]

    def damaged_entries(self) -> dict[Any, str]:
        """Number of a video whose entry cannot be believed -> why."""
        damaged: dict[Any, str] = {}
        with self._sqlite_errors():
            for row, checksum in self._entries():
                try:
                    video_of(row, checksum)
                except DamagedEntry as error:
                    damaged[error.id] = str(error)
        return damaged

    def _entries(self, **equal: Any) -> list[tuple[tuple[Any, ...], int | None]]:
        """Values of COLUMNS, and their checksum."""
        where = " AND ".join(f"{column} = ?" for column in equal) or "1"
        query = f"SELECT {', '.join(self._columns)} FROM videos WHERE {where} ORDER BY id"
        return [(tuple(row), checksum) for *row, checksum in self._base.execute(query, tuple(equal.values()))]

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
            self._seal(added)
        return self.video(added)

    def update(self, id: int, **values: Any) -> IndexedVideo:
        with self._change():
            self._set(id, values)
        return self.video(id)

    def commit(self, id: int, blocks: Sequence[Block], **values: Any) -> None:
        """Commit the rows of consecutive blocks. They must be on disk already."""
        with self._change():
            self._insert(id, blocks)
            self._set(id, {"frames": blocks[-1].end, **values})

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
            self.commit(id, [last])

    def replace_blocks(self, id: int, blocks: Sequence[Block]) -> None:
        """Put these in place of all blocks of a video."""
        with self._change():
            self._base.execute("DELETE FROM blocks WHERE video = ?", (id,))
            self._insert(id, blocks)

    def blocks(self, id: int) -> list[Block]:
        """The blocks of a video; rows that cannot be blocks are left out."""
        query = "SELECT first, rows, fine, compact FROM blocks WHERE video = ? ORDER BY first"
        with self._sqlite_errors():
            found = map(block_of, self._base.execute(query, (id,)))
            return [block for block in found if block is not None]

    def remove(self, id: int) -> None:
        with self._change():
            self._base.execute("DELETE FROM videos WHERE id = ?", (id,))
        with self._sqlite_errors():
            # The name is still in the log of changes, until that is emptied.
            self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def problems(self) -> list[str]:
        with self._sqlite_errors():
            found = [str(row[0]) for row in self._base.execute("PRAGMA integrity_check")]
        lines = [] if found == ["ok"] else [line for text in found for line in text.splitlines()]
        return [f"{self.path}: {line}" for line in lines]

    def _set(self, id: int, values: dict[str, Any]) -> None:
        columns = ", ".join(f"{column} = ?" for column in values)
        self._base.execute(f"UPDATE videos SET {columns} WHERE id = ?", (*values.values(), id))
        self._seal(id)

    def _seal(self, id: int) -> None:
        for row, _ in self._entries(id=id):
            self._base.execute("UPDATE videos SET checksum = ? WHERE id = ?", (checksum_of(row), id))

    def _insert(self, id: int, blocks: Sequence[Block]) -> None:
        self._base.executemany(
            "INSERT INTO blocks VALUES (?, ?, ?, ?, ?)",
            [(id, block.first, block.rows, block.fine, block.compact) for block in blocks],
        )

    # --- opening and making ---

    def _is_there(self) -> bool:
        try:
            return self.path.is_file()
        except OSError as error:
            raise IndexStoreError(f"{self.path}: {str(error.strerror).lower()}; ask its owner") from None

    def _open(self) -> None:
        if not os.access(self.path, os.R_OK):
            raise IndexStoreError(f"{self.path}: permission denied; ask its owner")
        with self._sqlite_errors():
            self._base = sqlite3.connect(":memory:")
            try:
                self._connect(str(self.path))
                self._prepare(writable=True)
            except sqlite3.Error as error:
                if not _cannot_write(error):
                    raise
                self.read_only = disk_full(self.folder) if _is_full(error) else only_read(self.folder)
                self._open_read_only()
        try:
            schema = self.about().get("schema")
            if schema != SCHEMA:
                raise IndexStoreError(
                    f"{self.folder}: is {schema}, this lastseen reads {SCHEMA}; index again"
                )
        except IndexStoreError:
            self.close()
            raise

    def _open_read_only(self) -> None:
        """Without a log that could be followed, and so without files beside the catalogue."""
        log = self.path.with_name(f"{FILE}-wal")
        # "immutable" ignores the log, which is only right if nobody left changes in it.
        ways = ["mode=ro"] + ([] if log.exists() and log.stat().st_size else ["mode=ro&immutable=1"])
        for way in ways:
            address = f"file:{quote(str(self.path.absolute()))}?{way}"
            try:
                self._connect(address, uri=True)
                self._prepare(writable=False)
                return
            except sqlite3.Error as error:
                if way != ways[-1]:
                    continue
                if not _cannot_write(error):
                    raise
                raise IndexStoreError(
                    f"{self.path}: the last changes are still in its log, which cannot be read here; "
                    "open it once where it can be written: lastseen index list"
                ) from None

    def _connect(self, address: str, uri: bool = False) -> None:
        self._base.close()
        self._base = sqlite3.connect(address, timeout=60, isolation_level=None, uri=uri)

    def _prepare(self, writable: bool) -> None:
        self._base.execute("PRAGMA synchronous = FULL")
        self._base.execute("PRAGMA foreign_keys = ON")
        self._base.execute("PRAGMA secure_delete = ON")  # what is forgotten does not stay in unused pages
        held = self._held()
        if writable and not os.access(self.path, os.W_OK):
            raise _ReadOnly("the catalogue may only be read")
        missing = [column for column in ADDED_COLUMNS if column not in held]
        if writable and missing and held:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                for column in missing:
                    if column not in self._held():  # another process may have been quicker
                        self._base.execute(
                            f"ALTER TABLE videos ADD COLUMN {column} {ADDED_COLUMNS[column][0]}"
                        )
                self._base.execute("UPDATE videos SET checksum = NULL")  # they were of fewer columns
                self._base.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._base.rollback()
                raise
            missing = []
        columns = [ADDED_COLUMNS[column][1] if column in missing else column for column in COLUMNS]
        self._columns = [*columns, "NULL" if missing else "checksum"]

    def _held(self) -> set[str]:
        return {row[1] for row in self._base.execute("PRAGMA table_info(videos)")}

    def _create(self) -> None:
        try:
            # Private: no access for other users.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self.folder / "create.lock"):
                if not self.path.exists():
                    self._build()
        except OSError as error:
            raise IndexStoreError(f"{self.folder}: no index can be made there: {error.strerror}") from None

    def _make_private(self) -> None:
        """Take other users' access to a folder of the user's that was there before, or, if it holds other
        files, to what is the index's in it."""
        if os.name != "posix":
            return
        with suppress(OSError):
            entries = list(self.folder.iterdir())
            ours = [entry for entry in entries if entry.name in OURS]
            for path in [self.folder] if len(ours) == len(entries) else []:
                _take_from_others(path)
            for path in ours:
                _take_from_others(path)

    def _build(self) -> None:
        # Built under another name, then renamed: a process killed meanwhile leaves no partial database.
        building = self.folder / BUILDING
        building.unlink(missing_ok=True)
        os.close(os.open(building, os.O_CREAT | os.O_WRONLY, 0o600))
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
        if self.read_only is not None:
            raise IndexStoreError(self.read_only)
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
        except (sqlite3.Error, sqlite3.Warning) as error:
            code = getattr(error, "sqlite_errorname", None) or ""
            if _is_full(error):
                raise IndexStoreError(disk_full(self.folder)) from None
            if code.startswith("SQLITE_BUSY"):
                raise IndexStoreError(f"{self.path}: another process keeps it locked; try again") from None
            if code.startswith("SQLITE_READONLY"):
                raise IndexStoreError(only_read(self.folder)) from None
            if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
                raise IndexStoreError(self._damaged()) from None
            if isinstance(error, DamagedEntry):
                raise IndexStoreError(
                    f"{self.path}: is damaged ({_one_line(error)}); forget that video by its number "
                    f"(lastseen index remove {error.id!r:.20}) and add its file again"
                ) from None
            if isinstance(error, sqlite3.DataError) or not code:
                raise IndexStoreError(self._damaged(_one_line(error))) from None
            raise IndexStoreError(f"{self.path}: cannot be used ({_one_line(error)})") from None

    def _damaged(self, how: str = "") -> str:
        detail = f" ({how})" if how else ""
        return f"{self.path}: is damaged{detail}; remove the index and make it again"


class _ReadOnly(sqlite3.OperationalError):
    sqlite_errorname = "SQLITE_READONLY"


def disk_full(folder: Path) -> str:
    return f"the disk of {folder} is full; what was committed is safe: free some space, then index again"


def only_read(folder: Path) -> str:
    return f"{folder} can only be read, not changed; ask its owner, or make it writable"


def _cannot_write(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorname", None) or ""
    return _is_full(error) or code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"))


def _is_full(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorname", None) or ""
    return code.startswith("SQLITE_FULL") or code == "SQLITE_IOERR_SHMSIZE"


def _one_line(error: Exception) -> str:
    return "".join(c for c in " ".join(str(error).split()) if c.isprintable())[:120]


def _take_from_others(path: Path) -> None:
    found = path.stat()
    if found.st_uid == os.getuid() and found.st_mode & 0o077:
        path.chmod(found.st_mode & 0o700)

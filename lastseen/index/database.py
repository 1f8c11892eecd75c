"""The open SQLite file of an index: made, opened (also where nothing can be written), changed as a whole."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from lastseen.errors import IndexStoreError
from lastseen.index.entry import ADDED_COLUMNS, COLUMNS, VIDEOS, DamagedEntry
from lastseen.index.lock import locked

SCHEMA = "lastseen/index@1"
FILE = "catalogue.sqlite"
BUILDING = "catalogue.building"
SHARDS = "shards"  # in place of a catalogue: the folder holds several indexes
OURS = {
    FILE,
    f"{FILE}-wal",
    f"{FILE}-shm",
    BUILDING,
    "videos",
    "locks",
    "uploads",
    "questions",
    "create.lock",
}

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


class Database:
    """Every change is one transaction.

    Where nothing can be written (a read-only folder, a full disk) it can still be read: `read_only` says why.
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder, self.path = folder, folder / FILE
        self.read_only: str | None = None
        if not self._is_there():
            if (folder / SHARDS).is_dir():
                raise IndexStoreError(
                    f"{folder} holds the shards of an index: ask them all with 'lastseen find', add to them "
                    f"with 'lastseen index --ray', or give one: --index {folder / SHARDS}/NAME"
                )
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
        # Not one of an older index, which lacks columns: what was in it would be taken for missing.
        if unknown := sorted(held - {*COLUMNS, *ADDED_COLUMNS}):
            raise sqlite3.DataError(f"videos have a column {unknown[0]!r:.40}, unknown to this lastseen")
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
        except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:  # texts may be damaged, too
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

"""The list of an index's videos and of how many feature rows of each are committed.

Rows are committed here only after they are on disk; uncommitted rows are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lastseen.errors import IndexStoreError
from lastseen.index.database import SCHEMA, Database
from lastseen.index.entry import Block, DamagedEntry, IndexedVideo, block_of, checksum_of, video_of

CHECKSUM = "checksum"
PROPERTIES = {"schema", "fingerprint", "made_by", "fps", "engine", "basis"}


class Catalogue(Database):
    """What is stored of each video, and of the index as a whole."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        super().__init__(folder, create=create)
        self._check_schema()

    def reopen(self) -> None:
        super().reopen()
        self._check_schema()

    def _check_schema(self) -> None:
        try:
            schema = self.about().get("schema")
            if schema != SCHEMA:
                raise IndexStoreError(
                    f"{self.folder}: is {schema}, this lastseen reads {SCHEMA}; index again"
                )
        except IndexStoreError:
            self.close()
            raise

    def about(self) -> dict[str, Any]:
        """Properties of the whole index: schema, model, sampling rate."""
        with self._sqlite_errors():
            rows = self._about_rows()
        try:
            about = {str(key): json.loads(value) for key, value in rows}
        except (TypeError, ValueError, RecursionError):
            raise IndexStoreError(self._damaged("its properties cannot be read")) from None
        # Indexes of before have no checksum of their properties.
        if (
            about.pop(CHECKSUM, None) not in (None, _properties_checksum(rows))
            or not about.keys() <= PROPERTIES
        ):
            raise IndexStoreError(self._damaged("its properties are not as they were written"))
        for key in ("schema", "fingerprint", "made_by", "engine", "basis"):
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
            checksum = _properties_checksum(self._about_rows())
            self._base.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (CHECKSUM, str(checksum)))
        return self.about()

    def _about_rows(self) -> list[tuple[Any, Any]]:
        return self._base.execute("SELECT key, value FROM about").fetchall()

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


def _properties_checksum(rows: Sequence[tuple[Any, Any]]) -> int:
    return checksum_of(sorted(row for row in map(repr, rows) if not row.startswith(f"('{CHECKSUM}'")))

"""Rows of equal size in plain files: appended at the end, dropped at the beginning, memory-mapped to read.

    fine-00000000.bin   rows 0 to 511
    fine-00000512.bin   rows 512 to 1023 ...

The catalogue holds the number of valid rows and is updated after they are on disk. Rows beyond that were
being written when a process ended; the next writer cuts them off.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lastseen.errors import IndexStoreError

SEGMENT_ROWS = 512  # rows per file; old rows are dropped one file at a time


class Rows:
    """The rows of one kind ("fine" or "compact") of one video."""

    def __init__(self, folder: Path, kind: str, row_bytes: int) -> None:
        self.folder, self.kind, self.row_bytes = folder, kind, row_bytes

    def write(self, first: int, data: np.ndarray) -> None:
        """Write [n, row_bytes] uint8 as rows `first` and on; durable after `sync`."""
        for segment, start, stop in _pieces(first, first + len(data)):
            handle = os.open(self._file(segment), os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.lseek(handle, (start - segment) * self.row_bytes, os.SEEK_SET)
                write_all(handle, np.ascontiguousarray(data[start - first : stop - first]).data)
            finally:
                os.close(handle)

    def sync(self, first: int, end: int) -> None:
        """Return once the rows [first, end) would survive a power failure."""
        for segment, _, _ in _pieces(first, end):
            handle = os.open(self._file(segment), os.O_RDWR)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        if os.name == "posix":  # the folder must be synced too: it holds the new file's name
            handle = os.open(self.folder, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)

    def cut(self, end: int) -> None:
        """Remove all rows from `end` on."""
        for segment in self._segments():
            if segment >= end:
                self._file(segment).unlink()
            elif end < segment + SEGMENT_ROWS:
                size = (end - segment) * self.row_bytes
                if self._file(segment).stat().st_size > size:
                    os.truncate(self._file(segment), size)

    def drop(self, end: int) -> None:
        """Remove the files that contain only rows before `end`."""
        for segment in self._segments():
            if segment + SEGMENT_ROWS <= end:
                self._file(segment).unlink(missing_ok=True)

    def read(self, first: int, end: int) -> np.ndarray:
        """[end - first, row_bytes] uint8: a copy, so that no file stays mapped."""
        parts = [np.array(part) for part in self.mapped(first, end)]
        return np.concatenate(parts) if parts else np.empty((0, self.row_bytes), np.uint8)

    def mapped(self, first: int, end: int) -> Iterator[np.ndarray]:
        """As `read`, in pieces and without copying: pages are read from disk on access."""
        for segment, start, stop in _pieces(first, end):
            path = self._file(segment)
            try:
                held = path.stat().st_size // self.row_bytes
            except FileNotFoundError:
                raise IndexStoreError(f"{path} is missing; {REMEDY}") from None
            if held < stop - segment:
                raise IndexStoreError(
                    f"{path} is cut off: {held} rows of {stop - segment} are there; {REMEDY}"
                )
            whole = np.memmap(path, np.uint8, "r", shape=(held, self.row_bytes))
            yield whole[start - segment : stop - segment]

    def checksum(self, first: int, end: int) -> int:
        value = 0
        for part in self.mapped(first, end):
            value = zlib.crc32(part.data, value)
        return value

    def misfits(self, first: int, end: int, whole: bool) -> list[str]:
        """Files that are not as rows [first, end) need them, one line each; nothing is read. `whole`: nobody
        may be writing further rows."""
        expected = {
            self._file(segment): (stop - segment) * self.row_bytes for segment, _, stop in _pieces(first, end)
        }
        held = {
            path: size for path in self.folder.glob(f"{self.kind}-*") if (size := _size(path)) is not None
        }
        lines = []
        for path, size in expected.items():
            if path not in held:
                lines.append(f"{path} is missing")
            elif held[path] < size:
                lines.append(f"{path} is cut off: {held[path]} bytes of {size}")
            elif held[path] > size and whole:
                lines.append(f"{path} is too long: {held[path]} bytes instead of {size}")
        extra = sorted(held.keys() - expected.keys()) if whole else []
        return lines + [f"{path} does not belong there" for path in extra]

    def size_bytes(self) -> int:
        return sum(_size(self._file(segment)) or 0 for segment in self._segments())

    def _segments(self) -> list[int]:
        numbers = (path.stem.rsplit("-", 1)[1] for path in self.folder.glob(f"{self.kind}-*.bin"))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def _file(self, segment: int) -> Path:
        return self.folder / f"{self.kind}-{segment:08d}.bin"


REMEDY = "the index is damaged: lastseen index repair"


def _size(path: Path) -> int | None:
    """None if it was removed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def write_all(handle: int, data: memoryview) -> None:
    view = data.cast("B")
    while view:
        view = view[os.write(handle, view) :]


def _pieces(first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Split rows [first, end) by file: (first row of the file, first row, one past the last row)"""
    start = first
    while start < end:
        segment = start // SEGMENT_ROWS * SEGMENT_ROWS
        stop = min(end, segment + SEGMENT_ROWS)
        yield segment, start, stop
        start = stop

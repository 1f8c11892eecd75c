"""Append features to one video of an index; a killed process loses only uncommitted rows."""

from __future__ import annotations

import errno
import json
import math
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastseen.errors import IndexStoreError
from lastseen.index.compact import CompactGrid, TokenGrid
from lastseen.index.database import disk_full
from lastseen.index.entry import FULL, LIVE, SMALL, Block, IndexedVideo
from lastseen.index.folder import IndexFolder
from lastseen.index.rows import SEGMENT_ROWS, Rows
from lastseen.index.small import SmallGrid
from lastseen.localizer import Localizer
from lastseen.model.token_basis import TokenBasis

BLOCK_ROWS = 32  # at most so many have a checksum of their own: about a clip is read to check one frame
COMMIT_S = 1.0  # time between commits: about what a killed process loses


class Recorder:
    """Requires the video's lock (`Index.writing`). Rows are written at once and valid after `commit`."""

    _pending: list[Block]  # what was written since the last commit
    _since: float
    unreadable: int  # frames, of all written ones

    def __init__(
        self, index: IndexFolder, localizer: Localizer, video: IndexedVideo, *, commit_s: float = COMMIT_S
    ) -> None:
        self.index, self.localizer, self.video, self.commit_s = index, localizer, video, commit_s
        self._reset_pending()
        if video.keep == SMALL:
            index.bind_basis(basis_of(localizer))
        with self._rollback_on_error():
            index.make_place(video)
            self._open()
            self._drop_uncommitted()

    @property
    def end(self) -> int:
        """Number of the next frame."""
        return self._pending[-1].end if self._pending else self.video.frames

    def align(self) -> None:
        """Cut back to a batch boundary: a partial batch, left by a run with another batch size, is redone."""
        end = self.video.frames - self.video.frames % self.localizer.batch
        whole = [block for block in self.index.catalogue.blocks(self.video.id) if block.first < end]
        if end == self.video.frames or not whole:
            return
        first = whole[-1].first
        assert self.compact is not None
        fine = self.fine.checksum(first, end) if self.fine else None
        block = Block(first, end - first, fine, self.compact.checksum(first, end))
        self.index.catalogue.shorten(self.video.id, self.video.first, block)
        self.video = self.index.catalogue.video(self.video.id)
        self._drop_uncommitted()

    def append(self, features: Tensor, unreadable: int = 0) -> None:
        """Append features [n, c, rows, columns] of the next n frames; `unreadable` is of all so far."""
        self.unreadable = unreadable
        while len(features):
            room = _block_rows() - self.end % _block_rows()
            self._append(features[:room])
            features = features[room:]

    def commit(self, **values: Any) -> None:
        """Commit all appended rows and, in the same transaction, set `values` of the video."""
        with self._rollback_on_error():
            if self._pending:
                for rows in filter(None, (self.fine, self.compact)):
                    rows.sync(self.video.frames, self.end)
                given = {"unreadable": self.unreadable, **values}
                self.index.catalogue.commit(self.video.id, self._pending, **given)
            elif values:
                self.index.catalogue.update(self.video.id, **values)
        self.video = self.index.catalogue.video(self.video.id)
        self._reset_pending()

    def drop(self, end: int) -> None:
        """Drop frames before `end`, in whole files, so some of them may stay."""
        first = min(end, self.video.frames) // SEGMENT_ROWS * SEGMENT_ROWS
        if first <= self.video.first:
            return
        self.index.catalogue.keep_rows(self.video.id, first, self.video.frames)
        for rows in filter(None, (self.fine, self.compact)):
            rows.drop(first)
        self.index.questions.forget_before(self.video.id, first / self.localizer.fps)
        self.video = self.index.catalogue.video(self.video.id)

    def _append(self, features: Tensor) -> None:
        if not torch.isfinite(features).all():
            raise IndexStoreError(
                f"{self.video.name}: {self.localizer.engine.rounding} cannot hold the numbers that these "
                "weights make; choose another engine: torch-bf16 or torch-fp32"
            )
        if self.grid is None:
            self._measure(features)
        assert self.grid is not None and self.compact is not None
        compact = self.grid.pack(self.localizer.model.frame_vectors(features), self.end)
        fine = bytes_of(features) if self.fine else None
        with self._rollback_on_error():
            if self.fine and fine is not None:
                self.fine.write(self.end, fine)
            self.compact.write(self.end, compact)
        last = self._pending[-1] if self._pending else None
        if last is None or last.end % _block_rows() == 0:
            last = Block(self.end, 0, None if fine is None else 0, 0)
        else:
            self._pending.pop()
        self._pending.append(
            Block(
                last.first,
                last.rows + len(features),
                None if fine is None else zlib.crc32(fine.data, last.fine or 0),
                zlib.crc32(compact.data, last.compact),
            )
        )
        if self.end % SEGMENT_ROWS == 0 or time.monotonic() - self._since >= self.commit_s:
            self.commit()

    def _measure(self, features: Tensor) -> None:
        """Store the size of the features, known only once the first ones are computed."""
        grid = token_grid(self.localizer, self.video, tuple(features.shape[1:]))
        fine_bytes = features[0].numel() * features.element_size() if self.video.keep == FULL else None
        self.video = self.index.catalogue.update(
            self.video.id,
            grid=json.dumps(list(features.shape[1:])),
            fine_bytes=fine_bytes,
            compact_bytes=grid.row_bytes,
        )
        self._open()
        self.check_room()

    def check_room(self) -> None:
        """Raise IndexStoreError if the frames to come will not fit on the disk."""
        video = self.video
        if video.expected is None or video.compact_bytes is None:
            return
        rows, compact_bytes = video.expected - self.end, video.compact_bytes
        needed = rows * ((video.fine_bytes or 0) + compact_bytes)
        free = shutil.disk_usage(self.index.folder).free
        if needed > free:
            smaller = (
                f"--keep compact needs {rows * compact_bytes / 1e9:.3g} GB; " if video.fine_bytes else ""
            )
            raise IndexStoreError(
                f"{video.name}: its features need {needed / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free at "
                f"{self.index.folder}; {smaller}free some space, or give another --index"
            )

    def _open(self) -> None:
        self.fine: Rows | None = self.index.fine(self.video)
        self.compact: Rows | None = self.index.compact(self.video)
        self.grid = token_grid(self.localizer, self.video, self.video.grid) if self.video.grid else None

    def _reset_pending(self) -> None:
        self._pending = []
        self._since, self.unreadable = time.monotonic(), self.video.unreadable

    def _drop_uncommitted(self) -> None:
        for rows in filter(None, (self.fine, self.compact)):
            rows.cut(self.video.frames)
            rows.drop(self.video.first)

    @contextmanager
    def _rollback_on_error(self) -> Iterator[None]:
        """On a write error, roll back to the last commit and raise IndexStoreError."""
        try:
            yield
        except OSError as error:
            self._drop_uncommitted()
            self._reset_pending()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise IndexStoreError(disk_full(self.index.folder)) from None
            raise IndexStoreError(f"{self.index.folder} cannot be written: {error.strerror}") from None


def _block_rows() -> int:
    return min(BLOCK_ROWS, SEGMENT_ROWS)  # a block in two files could not be dropped with one of them


def bytes_of(features: Tensor) -> np.ndarray:
    """Features [n, c, rows, columns] as they are stored: [n, row_bytes] uint8"""
    return np.ascontiguousarray(features.cpu().numpy()).reshape(len(features), -1).view(np.uint8)


def token_grid(localizer: Localizer, video: IndexedVideo, grid: tuple[int, ...]) -> TokenGrid:
    channels, rows, columns = grid
    letterbox = localizer.model.letterbox(video.width, video.height)
    if video.keep == SMALL:
        return SmallGrid.fitting(basis_of(localizer), rows, columns, letterbox)
    return CompactGrid.fitting(channels, rows, columns, letterbox)


def checked_keep(localizer: Localizer, keep: str | None) -> str:
    """Which features to keep; by default small ones if the model has a basis for them, else full ones. Small
    ones without a basis are refused at once."""
    if keep == SMALL:
        basis_of(localizer)
    exact = localizer.token_basis is None or localizer.procedure.reads_every_frame  # the paper's numbers
    return keep or (FULL if exact else SMALL)


def basis_of(localizer: Localizer) -> TokenBasis:
    """The model's basis for small features, or IndexStoreError."""
    if localizer.token_basis is None:
        raise IndexStoreError(
            f"small features need a basis fitted to the model, and {localizer.model.title} has none "
            "(token_basis.safetensors in its folder): give --keep full or --keep compact"
        )
    return localizer.token_basis


def drop_older(recorder: Recorder, keep_hours: float | None) -> None:
    """Drop frames older than `keep_hours`, also those of earlier runs of the same stream (ring buffer)."""
    if keep_hours is None:
        return
    index, video, fps = recorder.index, recorder.video, recorder.localizer.fps
    recorder.drop(video.frames - math.ceil(keep_hours * 3600 * fps))
    oldest = video.recorded_at + video.frames / fps - keep_hours * 3600
    for other in index.catalogue.videos(kind=LIVE):
        if (
            other.id != video.id
            and _is_same_stream(video, other)
            and other.recorded_at + other.frames / fps < oldest
        ):
            with suppress(IndexStoreError):  # another process is writing it
                index.remove(other)


def _is_same_stream(video: IndexedVideo, other: IndexedVideo) -> bool:
    """By the key in the identity; runs of before there was one go by their address."""
    key, _, _ = video.identity.rpartition(":")
    return other.identity.startswith((f"{key}:", f"{LIVE}:{video.source}:"))

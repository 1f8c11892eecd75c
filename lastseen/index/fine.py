"""The features of an indexed video: read from the index, or encoded again from the video file.

What is stored is checked as it is read. Damaged features are encoded again; if the file is not there, the
frames count as not searched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lastseen.access import VideoFeatures
from lastseen.errors import IndexStoreError, VideoError
from lastseen.index.compact import TokenGrid, coarse_scores
from lastseen.index.entry import LIVE, SMALL, IndexedVideo
from lastseen.index.folder import IndexFolder
from lastseen.index.originals import check_unchanged
from lastseen.index.recorder import basis_of, token_grid
from lastseen.index.small import SmallGrid
from lastseen.index.soundness import Range, Soundness, in_words, joined, without
from lastseen.localizer import Localizer
from lastseen.progress import SCORED, Work
from lastseen.video import Video

PIECE_ROWS = 64  # read at a time by `pieces`
MOST_UNCOVERED = 100_000  # frames (five hours) of which no block is there: more is a wrong number
HELD_FRAMES = 512  # re-encoded frames that are cached, shared by neighbouring clips and by several queries


class FineFeatures:
    """Features of frames [start, end) of a video, bit-identical whether stored or encoded again; of a video
    that is kept small as they are after packing."""

    def __init__(
        self,
        index: IndexFolder,
        localizer: Localizer,
        video: IndexedVideo,
        original: Callable[[IndexedVideo], Path] | None = None,
    ) -> None:
        self.index, self.localizer, self.video = index, localizer, video
        self._original = original or (lambda video: check_unchanged(index, video).path)
        self.grid = fitting_grid(index, localizer, video)
        self._is_small = video.keep == SMALL  # all tokens in a few bits: what is read is nearly the features
        self._rows = index.compact(video) if self._is_small else index.fine(video)
        self._sound = index.soundness(video, self._rows) if self._rows else None
        self._video: Video | None = None
        self._unavailable = False
        self._encoded_again = VideoFeatures(localizer, self.opened, video.frames, HELD_FRAMES)
        self._remade: list[Range] = []  # damaged, and encoded again
        self._lost: list[Range] = []  # damaged, and the file is not there
        self._tokens_remade: list[Range] = []

    # --- as lastseen.search takes it ---

    @property
    def key(self) -> str:
        return f"{self.index.folder}:{self.video.id}"

    @property
    def place(self) -> str:
        return self.video.source

    @property
    def first(self) -> int:
        return self.video.first

    @property
    def end(self) -> int:
        return self.video.frames

    @property
    def began_at(self) -> float:
        return self.video.began_at

    @property
    def unreadable(self) -> int:
        return self.video.unreadable

    @property
    def stored(self) -> bool:
        """Whether features of all tokens are kept: else frames are encoded again."""
        return self._rows is not None

    @property
    def scoring_work(self) -> Work:
        return Work({SCORED: self.end - self.first})

    def coarse_scores(self, queries: Sequence[Tensor], did: Callable[[int], None]) -> np.ndarray:
        parts = []
        for start, end, tokens in self.token_pieces():
            # Tokens that cannot be made again are of frames that cannot be searched either.
            unknown = np.full((len(queries), end - start), -np.inf, np.float32)
            parts.append(unknown if tokens is None else coarse_scores(self.grid, tokens, start, queries))
            did(end - start)
        return np.concatenate(parts, 1)

    def readable(self, start: int, end: int) -> list[Range]:
        """Which of the frames can be read: all, unless some are damaged and the file is not there."""
        damaged = self._damaged(self._sound, start, end) if self._sound else []
        if damaged and self.can_open():
            self._remade = joined([*self._remade, *damaged])
        elif damaged:
            self._lost = joined([*self._lost, *damaged])
            return without(start, end, damaged)
        return [(start, end)]

    def read(self, start: int, end: int) -> Tensor:
        """Features of the frames; zeros where they cannot be read."""
        if self._sound is None:
            return self._encoded_again.read(start, end)
        parts, reached = [], start
        for first, stop in [*self._damaged(self._sound, start, end), (end, end)]:
            if first > reached:
                parts.append(self._stored(reached, first))
            if stop > first:
                parts.append(self._made_again(first, stop))
            reached = stop
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def pieces(self, start: int, end: int) -> Iterator[Tensor]:
        if self._rows is None:
            yield from self.localizer.encoded(self.opened(), start, end)
            return
        for at in range(start, end, PIECE_ROWS):
            yield self.read(at, min(end, at + PIECE_ROWS))

    def token_pieces(self) -> Iterator[tuple[int, int, np.ndarray | None]]:
        """The compact rows of consecutive frames [start, end); damaged ones are made again from the full
        features or the file, None if that cannot be done."""
        video, rows = self.video, self.index.compact(self.video)
        assert rows is not None
        damaged = self._damaged(self.index.soundness(video, rows), video.first, video.frames)
        self._tokens_remade = damaged
        reached = video.first
        for first, stop in [*damaged, (video.frames, video.frames)]:
            for part in rows.mapped(reached, first):
                yield reached, reached + len(part), part
                reached += len(part)
            while reached < stop:
                end = min(stop, reached + PIECE_ROWS)
                whole = self.readable(reached, end) == [(reached, end)]
                yield reached, end, self.tokens(reached, end) if whole else None
                reached = end

    def tokens(self, start: int, end: int) -> np.ndarray:
        """Compact rows of the frames, made from their features."""
        again = self._encoded_again if self._is_small else self
        features = again.read(start, end).to(self.localizer.device)
        return self.grid.pack(self.localizer.model.frame_vectors(features), start)

    def damage(self) -> list[str]:
        """What was found damaged and what was done about it, one line each."""
        name, remedy = self.video.name, f"lastseen index repair '{self.video.name}'"
        lines = []
        if self._lost:
            lines.append(
                f"{name}: {in_words(self._lost)} are damaged in the index and were not searched, since "
                + (
                    "a stream cannot be read again"
                    if self.video.kind == LIVE
                    else f"its file is gone or has changed; {remedy}"
                )
            )
        if self._remade:
            lines.append(
                f"{name}: {in_words(self._remade)} are damaged in the index and were encoded again from its "
                f"file; {remedy}"
            )
        tokens = [left for part in self._tokens_remade for left in without(*part, self._lost)]
        if tokens and not self._is_small:
            lines.append(
                f"{name}: compact tokens of {in_words(tokens)} are damaged and were made again; {remedy}"
            )
        return lines

    def _damaged(self, sound: Soundness, start: int, end: int) -> list[Range]:
        damaged = sound.damaged(start, end)
        if damaged and self.video.first not in (
            v.first for v in self.index.videos() if v.id == self.video.id
        ):
            raise IndexStoreError(f"{self.video.name} was removed from the index meanwhile; ask again")
        return damaged

    def _made_again(self, start: int, end: int) -> Tensor:
        if self.can_open():
            if self._is_small:
                return self._unpacked(self.tokens(start, end))
            return self._encoded_again.read(start, end)
        assert self.video.grid is not None
        return torch.zeros(end - start, *self.video.grid, dtype=self.localizer.feature_dtype)

    def _stored(self, start: int, end: int) -> Tensor:
        assert self._rows is not None and self.video.grid is not None
        if self._is_small:
            return self._unpacked(self._rows.read(start, end))
        dtype = torch.empty(0, dtype=self.localizer.feature_dtype).numpy().dtype
        rows = self._rows.read(start, end).view(np.dtype(dtype))
        return torch.from_numpy(rows).view(end - start, *self.video.grid)

    def _unpacked(self, packed: np.ndarray) -> Tensor:
        assert isinstance(self.grid, SmallGrid)
        return self.grid.unpack(packed).to(self.localizer.feature_dtype)

    def can_open(self) -> bool:
        """Whether the video file exists and is unchanged since it was indexed."""
        if not self._unavailable:
            try:
                self.opened()
            except (IndexStoreError, VideoError, OSError):
                self._unavailable = True  # cached: checking a changed file hashes all of it
        return not self._unavailable

    def opened(self) -> Video:
        if self._video is None:
            video = Video(self._original(self.video), allow_truncated=True)
            if video.frame_count(self.localizer.fps) < self.video.frames:
                raise IndexStoreError(f"{self.video.source} is shorter than what was indexed of it")
            self._video = video
        return self._video


def fitting_grid(index: IndexFolder, localizer: Localizer, video: IndexedVideo) -> TokenGrid:
    """The video's grid of compact tokens; IndexStoreError if the catalogue's numbers cannot be right."""
    assert video.grid is not None
    if video.keep == SMALL:
        index.check_basis(basis_of(localizer))
    try:
        grid = token_grid(localizer, video, video.grid)
        canvas = localizer.model.letterbox(video.width, video.height)
        fits = canvas.canvas_height * video.grid[2] == canvas.canvas_width * video.grid[1]
    except (ValueError, ZeroDivisionError):
        fits = False
    fine_bytes = math.prod(video.grid) * torch.empty(0, dtype=localizer.feature_dtype).element_size()
    blocks = index.catalogue.blocks(video.id)
    fits = fits and video.frames - max((block.end for block in blocks), default=video.first) < MOST_UNCOVERED
    if not fits or grid.row_bytes != video.compact_bytes or video.fine_bytes not in (None, fine_bytes):
        raise IndexStoreError(
            f"{video.name}: its numbers in the catalogue are damaged; remove it and index it again"
        )
    return grid

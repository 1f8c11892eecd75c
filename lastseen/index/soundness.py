"""Which stored rows are as they were written: blocks are checked when they are first read.

Does not import torch.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from lastseen.errors import IndexStoreError
from lastseen.index.entry import SMALL, Block, IndexedVideo
from lastseen.index.rows import Rows

Range = tuple[int, int]  # first frame, one past the last
Known = tuple[int, str, Block]  # video, kind, block: found sound


class Soundness:
    """The rows of one kind of a video: each block is read and compared with its checksum once.

    `known` outlives this object: what was found sound since the index was opened.
    """

    def __init__(self, video: IndexedVideo, rows: Rows, blocks: list[Block], known: set[Known]) -> None:
        self.video, self.rows, self.blocks, self._known = video, rows, blocks, known
        self._damaged: set[Block] = set()
        self._starts = [block.first for block in blocks]
        self._longest = max((block.rows for block in blocks), default=0)

    def damaged(self, first: int, end: int) -> list[Range]:
        """The frames of [first, end) that no sound block holds."""
        gaps, reached = [], first
        near = bisect_left(self._starts, first - self._longest), bisect_left(self._starts, end)
        for block in self.blocks[slice(*near)]:
            if block.end <= reached or not self.is_sound(block):
                continue
            if block.first > reached:
                gaps.append((reached, block.first))
            reached = max(reached, block.end)
        if reached < end:
            gaps.append((reached, end))
        return gaps

    def is_sound(self, block: Block) -> bool:
        key = self.video.id, self.rows.kind, block
        if key in self._known:
            return True
        if block in self._damaged:
            return False
        if self._matches(block):
            self._known.add(key)
            return True
        self._damaged.add(block)
        return False

    def _matches(self, block: Block) -> bool:
        value, finite = 0, True
        try:
            for part in self.rows.mapped(block.first, block.end):
                value = zlib.crc32(part.data, value)
                finite = finite and all_finite(self.video, self.rows.kind, part)
        except (IndexStoreError, OSError):
            return False
        return finite and value == (block.fine if self.rows.kind == "fine" else block.compact)


def all_finite(video: IndexedVideo, kind: str, rows: np.ndarray) -> bool:
    """Whether rows [n, row_bytes] hold neither infinities nor NaN."""
    assert video.grid is not None
    channels = video.grid[0]
    if kind == "compact" and video.keep == SMALL:  # every code is a number
        return True
    if kind == "compact":  # int8 numbers, then a float16 scale for each token
        tokens = rows.shape[1] // (channels + 2)
        return _all_finite_halves(np.ascontiguousarray(rows[:, tokens * channels :]))
    if rows.shape[1] == 2 * math.prod(video.grid):
        return _all_finite_halves(rows)
    return bool(np.isfinite(rows.view(np.float32)).all())


def _all_finite_halves(rows: np.ndarray) -> bool:
    """Of float16 numbers; faster than np.isfinite. The exponent is all ones in infinities and NaN, so
    their bits are the largest of the negative and of the positive numbers."""
    bits = rows.view(np.uint16)
    return bool(bits.max() < 0xFC00 and bits.view(np.int16).max() < 0x7C00)


def joined(ranges: Iterator[Range] | list[Range]) -> list[Range]:
    """The same frames as few ranges, ascending."""
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return merged


def without(first: int, end: int, holes: list[Range]) -> list[Range]:
    """What is left of [first, end) without some ranges, which ascend."""
    left = []
    for start, stop in holes:
        if start >= end:
            break
        if start > first:
            left.append((first, start))
        first = max(first, stop)
    return [*left, (first, end)] if first < end else left


def in_words(ranges: list[Range]) -> str:
    """ "frames 0-31, 96-127 ... (7 places)" """
    shown = ", ".join(f"{first}-{end - 1}" for first, end in ranges[:3])
    return f"frames {shown}" + (f" ... ({len(ranges)} places)" if len(ranges) > 3 else "")

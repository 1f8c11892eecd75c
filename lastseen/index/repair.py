"""Make damaged rows of an index again: full features from the video's file, compact tokens from those."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lastseen.errors import IndexStoreError, VideoError
from lastseen.index.entry import Block, IndexedVideo
from lastseen.index.fine import FineFeatures
from lastseen.index.folder import IndexFolder
from lastseen.index.recorder import BLOCK_ROWS, bytes_of
from lastseen.index.rows import SEGMENT_ROWS
from lastseen.index.soundness import Range, Soundness, in_words, joined, without
from lastseen.index.verify import covers
from lastseen.localizer import Localizer
from lastseen.progress import CHECKING, REPAIRING, Pace, Tell


@dataclass(frozen=True)
class Repair:
    """What was done for one video. Sentences say it to people; `stays` is empty if all is sound now."""

    video: IndexedVideo
    done: str
    stays: str

    @property
    def changed(self) -> bool:
        return bool(self.done)


def repair(
    index: IndexFolder, localizer: Localizer, video: IndexedVideo, progress: Tell | None = None
) -> Repair:
    """Make what is damaged of a video again, block by block; an interrupted repair can be repeated."""
    index.bind(localizer)
    with index.writing(video) as mine:
        if not mine:
            raise IndexStoreError(f"{video.name} is being indexed by another process; repair it after that")
        return repair_held(index, localizer, index.catalogue.video(video.id), progress)


def repair_held(
    index: IndexFolder, localizer: Localizer, video: IndexedVideo, progress: Tell | None = None
) -> Repair:
    """As `repair`; the caller holds the video's lock."""
    if video.frames == video.first:
        return Repair(video, "", "")
    work = _Work(index, localizer, video)
    return work.repaired(progress)


class _Work:
    def __init__(self, index: IndexFolder, localizer: Localizer, video: IndexedVideo) -> None:
        self.index, self.video = index, video
        self.features = FineFeatures(index, localizer, video)
        self.blocks = index.catalogue.blocks(video.id)
        self.rows = index.kept(video)
        self.sound = {rows.kind: index.soundness(video, rows) for rows in self.rows}
        self.kept = self._blocks_to_keep()
        holes = [(block.first, block.end) for block in self.kept]
        self.gaps = without(video.first, video.frames, holes)

    def repaired(self, progress: Tell | None) -> Repair:
        video, made, failed, same = self.video, [], [], True
        cleaned = self._remove_what_is_too_much()
        parts = [part for gap in self.gaps for part in _parts(*gap)]
        pace = Pace(progress, REPAIRING, "blocks")
        for number, (first, end) in enumerate(parts, 1):
            try:
                block = self._made(first, end)
            except (IndexStoreError, VideoError, OSError) as error:
                failed.append(((first, end), getattr(error, "strerror", None) or str(error)))
            else:
                same = same and self._as_committed(block)
                made.append(block)
            pace(number, len(parts))
        self._commit(made, [lost for lost, _ in failed])
        done = [f"{len(cleaned)} files removed or cut that were too much"] if cleaned else []
        if made:
            frames = in_words(joined([(block.first, block.end) for block in made]))
            bits = "the same bits as before" if same else "checksums are new"
            done.append(f"{frames} made again ({bits})")
        stays = (
            f"{in_words(joined([lost for lost, _ in failed]))} stay damaged: {failed[0][1]}" if failed else ""
        )
        return Repair(self.index.catalogue.video(video.id), "; ".join(done), stays)

    def _blocks_to_keep(self) -> list[Block]:
        """Sound blocks that follow each other without overlap."""
        kept: list[Block] = []
        reached = self.video.first
        for block in self.blocks:
            fits = reached <= block.first and block.end <= self.video.frames
            if fits and all(sound.is_sound(block) for sound in self.sound.values()):
                kept.append(block)
                reached = block.end
        return kept

    def _made(self, first: int, end: int) -> Block:
        """Write the damaged rows of [first, end) anew, with their checksums."""
        features = self.features
        sums: dict[str, int] = {}
        for rows in self.rows:
            if self.sound[rows.kind].damaged(first, end):
                if features.readable(first, end) != [(first, end)]:
                    features.opened()  # says why
                    raise IndexStoreError(f"{self.video.name}: its features cannot be made again")
                if rows.kind == "fine":
                    data = bytes_of(features.read(first, end))
                else:
                    data = features.tokens(first, end)
                self.index.make_place(self.video)
                rows.write(first, np.ascontiguousarray(data))
                rows.sync(first, end)
            sums[rows.kind] = rows.checksum(first, end)
        return Block(first, end - first, sums.get("fine"), sums["compact"])

    def _as_committed(self, block: Block) -> bool:
        """Whether the blocks that were there before hold for what is on disk now."""
        there = [old for old in self.blocks if old.first < block.end and old.end > block.first]
        return bool(there) and all(
            Soundness(self.video, rows, there, set()).damaged(block.first, block.end) == []
            for rows in self.rows
        )

    def _commit(self, made: list[Block], lost: list[Range]) -> None:
        """Sound blocks and new ones; where nothing could be done the old ones stay, and stay damaged."""
        if not made and (lost or covers(self.video, self.blocks)):
            return
        taken = self.kept + made
        holes = sorted((block.first, block.end) for block in taken)
        stay = [
            block
            for block in self.blocks
            if block not in taken and without(block.first, block.end, holes) == [(block.first, block.end)]
        ]
        self.index.catalogue.replace_blocks(self.video.id, sorted([*taken, *stay], key=lambda b: b.first))

    def _remove_what_is_too_much(self) -> list[str]:
        """Files and ends of files that no committed row is in; an unfinished video has them rightly."""
        if not self.video.complete:
            return []
        before = self.index.misfits(self.video)
        for rows in self.rows:
            rows.cut(self.video.frames)
            rows.drop(self.video.first)
        after = self.index.misfits(self.video)
        return [line for line in before if line not in after]


def _parts(first: int, end: int) -> list[Range]:
    """[first, end) cut where blocks end that are written in one go."""
    size = min(BLOCK_ROWS, SEGMENT_ROWS)
    edges = [first, *range((first // size + 1) * size, end, size), end]
    return list(pairwise(edges))


def has_missing_files(index: IndexFolder, video: IndexedVideo) -> bool:
    """A quick check, by sizes alone; `verify` reads everything."""
    return bool(index.misfits(video)) or not covers(video, index.catalogue.blocks(video.id))


def is_sound(index: IndexFolder, video: IndexedVideo, progress: Tell | None = None) -> bool:
    """Whether all rows are as their checksums say; reads everything."""
    blocks = index.catalogue.blocks(video.id)
    kept = [index.soundness(video, rows) for rows in index.kept(video)]
    pace = Pace(progress, CHECKING, "blocks")
    for number, block in enumerate(blocks, 1):
        if not all(sound.is_sound(block) for sound in kept):
            return False
        pace(number, len(blocks))
    return True

"""Compare what is on disk with what the catalogue says of it. Does not import torch."""

from __future__ import annotations

from lastseen.errors import LastSeenError
from lastseen.index.entry import COMPACT, LIVE, RECORDED, Block, IndexedVideo
from lastseen.index.identity import is_same_file
from lastseen.index.rows import Rows
from lastseen.index.soundness import Known, Soundness
from lastseen.video.containers import is_file


def problems_of(video: IndexedVideo, kept: list[Rows], blocks: list[Block]) -> list[str]:
    """Read all committed rows of a video, and its file if it is there; one line for each problem."""
    lines = [f"{video.name}: {problem}" for problem in _unexpected_files(video, kept)]
    if not covers(video, blocks):
        lines.append(f"{video.name}: the catalogue's blocks do not cover its frames")
    for rows in kept:
        nothing: set[Known] = set()
        sound = Soundness(video, rows, blocks, nothing)
        damaged = [block for block in blocks if not sound.is_sound(block)]
        # Of a file that is missing or cut off it was said already.
        if not rows.misfits(video.first, video.frames, whole=False):
            lines += [
                f"{video.name}: {rows.kind} frames {block.first}-{block.end - 1} are damaged"
                for block in damaged
            ]
    return [*lines, *(f"{video.name}: {problem}" for problem in _original(video))]


def covers(video: IndexedVideo, blocks: list[Block]) -> bool:
    """Whether the blocks hold each of the video's frames once."""
    starts, ends = [block.first for block in blocks], [block.end for block in blocks]
    return [*starts, video.frames] == [video.first, *ends]


def _unexpected_files(video: IndexedVideo, kept: list[Rows]) -> list[str]:
    lines = [
        problem for rows in kept for problem in rows.misfits(video.first, video.frames, whole=video.complete)
    ]
    kinds = {rows.kind for rows in kept}
    for kind in {"fine", "compact"} - kinds:
        folder = kept[0].folder if kept else None
        lines += (
            [f"{path} does not belong there" for path in sorted(folder.glob(f"{kind}-*"))] if folder else []
        )
    return lines


def _original(video: IndexedVideo) -> list[str]:
    if video.kind == LIVE:
        return []
    if video.kind == RECORDED and video.identity != f"sha256:{video.sha256}":
        return [f"the catalogue gives two contents for it, {video.identity:.24} and {video.sha256!s:.16}"]
    if not is_file(video.path):
        return [f"{video.source} is gone, and it cannot be searched without"] if video.keep == COMPACT else []
    try:
        same = is_same_file(video, by_content=True)
    except (LastSeenError, OSError) as error:
        return [f"{video.source} cannot be read: {error}"]
    return [] if same else [f"{video.source} is not the file that was indexed"]

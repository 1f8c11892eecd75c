"""IndexFolder: features of many videos on disk, all made by one model.

    INDEX/catalogue.sqlite        which videos, how many frames of each, checksums
    INDEX/videos/000001/          fine-*.bin (the features), compact-*.bin (a few tokens of each frame)
    INDEX/locks/000001.lock       held by the process that writes this video

Does not import torch, so listing, checking and removing start quickly.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lastseen.errors import IndexStoreError
from lastseen.files import user_folder
from lastseen.index.catalogue import COMPACT, LIVE, Block, Catalogue, IndexedVideo
from lastseen.index.lock import locked
from lastseen.index.rows import Rows

if TYPE_CHECKING:
    from typing import Self

    from lastseen.localizer import Localizer

VARIABLE = "LASTSEEN_INDEX"
FIRST_ENGINE = "torch-fp32"  # of indexes that do not name their engine: made before it could be chosen


def default_folder() -> Path:
    """$LASTSEEN_INDEX, or a folder in the user's data directory."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return user_folder("index")


class IndexFolder:
    """An index on disk. Any number of processes may read it and write different videos of it at once."""

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = False) -> None:
        self.folder = Path(folder)
        self.catalogue = Catalogue(self.folder, create=create)

    def close(self) -> None:
        self.catalogue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def bind(self, localizer: Localizer) -> None:
        """Bind an empty index to this model; raise IndexStoreError if it is bound to another."""
        engine, fps = localizer.engine.name, localizer.fps
        dtype = str(localizer.feature_dtype).removeprefix("torch.")
        mine = f"{localizer.model.title}, {dtype}, {fps:g} frames a second, engine {engine}"
        fingerprint = localizer.feature_fingerprint()
        about = self.catalogue.about()
        if "fingerprint" not in about:
            about = self.catalogue.set_about(fingerprint=fingerprint, made_by=mine, fps=fps, engine=engine)
        if about["fingerprint"] != fingerprint:
            theirs = about["made_by"]
            other = "the same with other weights" if theirs == mine else mine
            raise IndexStoreError(
                f"{self.folder} was made by another model ({theirs}), not by {other}; "
                "give --weights and --engine as it was made with, or another --index"
            )

    @property
    def engine(self) -> str | None:
        """The engine that made the index's features, and makes further ones; None if it is empty."""
        about = self.catalogue.about()
        return about.get("engine", FIRST_ENGINE if "fingerprint" in about else None)

    def videos(self) -> list[IndexedVideo]:
        return self.catalogue.videos()

    def named(self, name: str) -> IndexedVideo:
        """Find a video by name, by path, or by name without its suffix."""
        videos, path = self.videos(), str(Path(name).absolute())
        for matches in (
            [v for v in videos if v.name == name],
            [v for v in videos if v.source in (name, path)],
            [v for v in videos if Path(v.name).stem == name],
        ):
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise IndexStoreError(
                    f"{name} may be {' or '.join(v.name for v in matches)}; give one of them"
                )
        known = ", ".join(v.name for v in videos[:5]) + (" ..." if len(videos) > 5 else "")
        raise IndexStoreError(f"{name} is not in {self.folder}; it holds {known or 'nothing yet'}")

    def place(self, video: IndexedVideo) -> Path:
        return self.folder / "videos" / f"{video.id:06d}"

    def fine(self, video: IndexedVideo) -> Rows | None:
        return Rows(self.place(video), "fine", video.fine_bytes) if video.fine_bytes else None

    def compact(self, video: IndexedVideo) -> Rows | None:
        return Rows(self.place(video), "compact", video.compact_bytes) if video.compact_bytes else None

    def size_bytes(self, video: IndexedVideo) -> int:
        return sum(rows.size_bytes() for rows in (self.fine(video), self.compact(video)) if rows)

    @contextmanager
    def writing(self, video: IndexedVideo) -> Iterator[bool]:
        """Hold the video's lock; yields False if another process holds it."""
        (self.folder / "locks").mkdir(mode=0o700, exist_ok=True)
        with locked(self.folder / "locks" / f"{video.id:06d}.lock", wait=False) as mine:
            yield mine

    def remove(self, video: IndexedVideo) -> int:
        """Remove a video from the index; returns the number of bytes freed."""
        with self.writing(video) as mine:
            if not mine:
                raise IndexStoreError(f"{video.name} is being indexed by another process; stop that first")
            size = self.size_bytes(video)
            # Catalogue first: `sweep` removes files without an entry, but an entry without files is damage.
            self.catalogue.remove(video.id)
            shutil.rmtree(self.place(video), ignore_errors=True)
        (self.folder / "locks" / f"{video.id:06d}.lock").unlink(missing_ok=True)
        return size

    def sweep(self) -> None:
        """Remove files left by a process that was killed in `remove`."""
        found = list((self.folder / "videos").glob("[0-9]*"))
        known = {self.place(video).name for video in self.videos()}  # after listing the folders
        for place in found:
            if place.name not in known:
                shutil.rmtree(place, ignore_errors=True)

    def verify(self, video: IndexedVideo) -> list[str]:
        """Read all committed rows; returns one line for each problem."""
        problems = []
        blocks = self.catalogue.blocks(video.id)
        starts = [block.first for block in blocks]
        ends = [block.first + block.rows for block in blocks]
        if [*starts, video.frames] != [video.first, *ends]:
            problems.append(f"{video.name}: the catalogue's blocks do not cover its frames")
        for block in blocks:
            problems += self._damage(video, block)
        if video.keep == COMPACT and video.kind != LIVE and not video.path.is_file():
            problems.append(f"{video.name}: {video.source} is gone, and it cannot be searched without")
        return problems

    def _damage(self, video: IndexedVideo, block: Block) -> list[str]:
        problems, end = [], block.first + block.rows
        for rows, expected in ((self.fine(video), block.fine), (self.compact(video), block.compact)):
            try:
                if rows and rows.checksum(block.first, end) != expected:
                    problems.append(f"{video.name}: {rows.kind} frames {block.first}-{end - 1} are damaged")
            except IndexStoreError as error:
                problems.append(f"{video.name}: {error}")
        return problems

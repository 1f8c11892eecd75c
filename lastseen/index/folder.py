"""IndexFolder: features of many videos on disk, all made by one model.

    INDEX/catalogue.sqlite        which videos, how many frames of each, checksums
    INDEX/videos/000001/          fine-*.bin (the features), compact-*.bin (a few tokens of each frame)
    INDEX/videos/000001.removed/  a video that is being removed
    INDEX/locks/000001.lock       held by the process that writes this video
    INDEX/questions/              questions that were asked on the page, with their answers

Does not import torch, so listing, checking and removing start quickly.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lastseen.errors import IndexStoreError
from lastseen.files import empty_folder, user_folder
from lastseen.index.catalogue import Catalogue
from lastseen.index.database import only_read
from lastseen.index.entry import IndexedVideo
from lastseen.index.lock import locked
from lastseen.index.questions import Questions
from lastseen.index.rows import Rows
from lastseen.index.soundness import Known, Soundness
from lastseen.index.verify import problems_of

if TYPE_CHECKING:
    from typing import Self

    from lastseen.localizer import Localizer
    from lastseen.model.token_basis import TokenBasis

VARIABLE = "LASTSEEN_INDEX"
REMOVED = ".removed"
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
        self._known_sound: set[Known] = set()
        self.questions = Questions(self.folder)

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

    def bind_basis(self, basis: TokenBasis) -> None:
        """As `bind`, to the basis of small features."""
        self.catalogue.set_about(basis=basis.fingerprint)
        self.check_basis(basis)

    def check_basis(self, basis: TokenBasis) -> None:
        """Raise IndexStoreError if small features were made with another basis."""
        if self.catalogue.about().get("basis") != basis.fingerprint:
            raise IndexStoreError(
                f"{self.folder}: its small features were made with another token_basis.safetensors; "
                "give --weights as it was made with, or another --index"
            )

    @property
    def engine(self) -> str | None:
        """The engine that made the index's features, and makes further ones; None if it is empty."""
        about = self.catalogue.about()
        return about.get("engine", FIRST_ENGINE if "fingerprint" in about else None)

    def videos(self) -> list[IndexedVideo]:
        """The videos in the order in which they were added, without those that are being removed."""
        return [video for video in self.catalogue.videos() if not self._leaving(video).exists()]

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

    def make_place(self, video: IndexedVideo) -> None:
        for folder in (self.folder / "videos", self.place(video)):  # private even if the one above is not
            folder.mkdir(mode=0o700, exist_ok=True)

    def fine(self, video: IndexedVideo) -> Rows | None:
        return Rows(self.place(video), "fine", video.fine_bytes) if video.fine_bytes else None

    def compact(self, video: IndexedVideo) -> Rows | None:
        return Rows(self.place(video), "compact", video.compact_bytes) if video.compact_bytes else None

    def size_bytes(self, video: IndexedVideo) -> int:
        return sum(rows.size_bytes() for rows in self.kept(video))

    def kept(self, video: IndexedVideo) -> list[Rows]:
        return [rows for rows in (self.fine(video), self.compact(video)) if rows]

    def verify(self, video: IndexedVideo) -> list[str]:
        """Read all committed rows; returns one line for each problem."""
        return problems_of(video, self.kept(video), self.catalogue.blocks(video.id))

    def misfits(self, video: IndexedVideo) -> list[str]:
        """What the sizes of files alone tell of damage, one line each."""
        if not self.place(video).exists() and video.frames == 0:
            return []
        kept = self.kept(video)
        return [line for rows in kept for line in rows.misfits(video.first, video.frames, video.complete)]

    def problems(self) -> list[str]:
        """Damage that is not of one video, one line each."""
        folders = list((self.folder / "videos").glob("[0-9]*"))
        damaged = self.catalogue.damaged_entries()
        known = {video.id for video in self.catalogue.sound_videos()} | damaged.keys()  # after the folders
        names = {f"{id:06d}" for id in known if isinstance(id, int)}
        strays = [f"{path} belongs to no video" for path in sorted(folders) if path.name not in names]
        entries = [
            f"{reason}: lastseen index remove {id}, then add it again" for id, reason in damaged.items()
        ]
        return self.catalogue.problems() + entries + strays + self.questions.problems()

    def soundness(self, video: IndexedVideo, rows: Rows) -> Soundness:
        """What of the rows is as it was written, as far as it is asked for."""
        return Soundness(video, rows, self.catalogue.blocks(video.id), self._known_sound)

    @contextmanager
    def writing(self, video: IndexedVideo) -> Iterator[bool]:
        """Hold the video's lock; yields False if another process holds it."""
        if self.catalogue.read_only == only_read(self.folder):
            raise IndexStoreError(self.catalogue.read_only)
        lock = self._lock(video)
        with ExitStack() as held:
            try:
                lock.parent.mkdir(mode=0o700, exist_ok=True)
                mine = held.enter_context(locked(lock, wait=False))
            except OSError as error:
                raise IndexStoreError(f"{lock}: cannot be written ({error.strerror})") from None
            yield mine

    def remove_damaged(self, number: int) -> None:
        """Remove a video whose entry in the catalogue is damaged."""
        if stayed := self._remove(number):
            raise IndexStoreError(f"video {number} is forgotten, but files of it stay: {stayed}; delete them")

    def remove(self, video: IndexedVideo) -> int:
        """Remove a video from the index; returns the number of bytes freed.

        Files go first, since a full disk has no room for changes of the catalogue. From the renaming of their
        folder on the video counts as removed; `sweep` completes what is interrupted after that.
        """
        with self.writing(video) as mine:
            if not mine:
                raise IndexStoreError(f"{video.name} is being indexed by another process; stop that first")
            size = self.size_bytes(video)
            stayed = self._remove(video.id)
        with suppress(OSError):
            self._lock(video).unlink(missing_ok=True)
        if stayed:
            raise IndexStoreError(f"{video.name} is forgotten, but files of it stay: {stayed}; delete them")
        return size

    def _remove(self, id: int) -> str:
        """Remove files and entry; returns which files could not be removed and why, empty if all were."""
        place = self.folder / "videos" / f"{id:06d}"
        leaving = place.with_suffix(REMOVED)
        try:
            if place.exists():
                place.rename(leaving)
            elif not leaving.exists():
                leaving.mkdir(mode=0o700, parents=True)  # never written, or its files are gone
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise IndexStoreError(f"{place} cannot be removed: {error.strerror}") from None
            empty_folder(place)  # not even room for a name; then there is some
            place.rename(leaving)
        # From here on the video is not listed, so that no answer about it can be kept any more.
        known = [video.source for video in self.catalogue.sound_videos() if video.id == id]
        left = (empty_folder(leaving), self.questions.forget(id, *known))
        stayed = ", ".join(filter(None, left))
        if self.catalogue.read_only is not None:
            self.catalogue.reopen()
        self.catalogue.remove(id)
        with suppress(OSError):  # then it is not empty, which is said
            leaving.rmdir()
        return stayed

    def sweep(self) -> None:
        """Complete removals that were interrupted; remove files that belong to no video."""
        if self.catalogue.read_only is not None:
            return
        self.questions.sweep()
        found = list((self.folder / "videos").glob("[0-9]*"))
        known = {video.id for video in self.catalogue.videos()}  # after listing the folders
        for place in found:
            if not place.stem.isdecimal():
                continue
            if place.suffix == REMOVED:
                with suppress(IndexStoreError):  # the next one tries again; what matters says so itself
                    self._remove(int(place.stem))
            elif int(place.stem) not in known:
                shutil.rmtree(place, ignore_errors=True)

    def _leaving(self, video: IndexedVideo) -> Path:
        return self.place(video).with_suffix(REMOVED)

    def _lock(self, video: IndexedVideo) -> Path:
        return self.folder / "locks" / f"{video.id:06d}.lock"

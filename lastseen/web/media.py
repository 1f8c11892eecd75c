"""Which files the server may read, and where uploads are stored.

A video may be read if it is in a given folder, was named on the command line, was uploaded, or is in the
index and unchanged since. Requests cannot reach other files: links and ".." are resolved before the check.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import unicodedata
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lastseen.errors import VideoError
from lastseen.index import Index, IndexedVideo
from lastseen.index.entry import LIVE
from lastseen.index.lock import locked
from lastseen.index.originals import check_unchanged
from lastseen.video import Video
from lastseen.video.containers import ENDINGS, is_file, is_video_container
from lastseen.video.dates import believable
from lastseen.web.errors import DiskFull, Missing, Refused, TooLarge
from lastseen.web.limits import Limits
from lastseen.web.pictures import Pictures

GIB = 2**30
SPARE_BYTES = 200_000_000  # disk space that uploads leave free
LISTED = 2000  # most files listed from the folders
OPENED = 16  # most opened videos cached


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the command line allows the server to read and store."""

    index: Path
    folders: tuple[Path, ...] = ()  # videos in them may be added
    files: tuple[Path, ...] = ()  # videos that may be added, too
    max_upload: int = 4 * GIB  # bytes
    host: str = "127.0.0.1"
    token: str | None = None  # what every request must bring; None: requests need none
    limits: Limits = Limits()


@dataclass(frozen=True)
class Entry:
    """A video on the page: indexed, or about to be."""

    id: str
    name: str
    path: Path | None  # None for a stream, which has no file
    indexed: IndexedVideo | None


class Shelf:
    """The videos and pictures of one server."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pictures = Pictures(settings.limits)
        self.folders = tuple(folder.resolve() for folder in settings.folders)
        self.files = tuple(file.resolve() for file in settings.files)
        self.uploads = settings.index.resolve() / "uploads"
        self._added: dict[str, Path] = {}
        self._opened: OrderedDict[tuple[Path, int, int], Video] = OrderedDict()
        self._lock = threading.Lock()
        self.incoming = self.uploads / "incoming" / uuid.uuid4().hex

    @contextmanager
    def open(self) -> Iterator[None]:
        """Create the folder for unfinished uploads; remove those of servers that were killed."""
        with self.index() as index:
            index.sweep()
        self.incoming.mkdir(mode=0o700, parents=True)
        try:
            with locked(self.incoming / "lock"):
                for other in self.incoming.parent.iterdir():
                    if other != self.incoming:
                        _remove_if_left_over(other)
                for path in self.uploads.iterdir():
                    if path.is_file() and is_text(path.name):  # a finished upload, perhaps not indexed yet
                        self._added[video_id(path)] = path
                yield
        finally:
            shutil.rmtree(self.incoming, ignore_errors=True)

    def index(self) -> Index:
        """The index, opened for this thread; the caller closes it."""
        return Index(self.settings.index, create=True)

    # --- videos ---

    def entries(self) -> list[Entry]:
        with self.index() as index:
            indexed = [_entry(video) for video in index.videos()]
        known = {entry.id for entry in indexed}
        with self._lock:
            added = [Entry(i, path.name, path, None) for i, path in self._added.items() if i not in known]
        return indexed + added

    def entry(self, id: str) -> Entry:
        return self.entries_of([id])[0]

    def entries_of(self, ids: Sequence[str]) -> list[Entry]:
        if not ids:
            return []
        known = {entry.id: entry for entry in self.entries()}
        if not all(id in known for id in ids):
            raise Missing("no such video; it may have been removed")
        return [known[id] for id in ids]

    def file(self, id: str) -> Path:
        """The file of a video, if it exists and may be read."""
        entry = self.entry(id)
        if entry.path is None:
            raise Missing(f"{entry.name}: a stream leaves no pictures, only where things were seen")
        if entry.indexed is not None:
            with self.index() as index:
                check_unchanged(index, entry.indexed)
        elif not entry.path.is_file():
            raise Missing(f"{entry.name} is gone")
        elif not self._may_add(entry.path.resolve()):
            raise Refused(f"{entry.name} is not in a folder that may be read any more")
        return entry.path

    def add(self, text: str) -> Entry:
        """Add a local file, by absolute path or by path in one of the folders."""
        path = self._inside(text)
        if not is_file(path):
            raise Missing(f"{text}: no such file")
        self.checked(path)
        return self.added(path)

    def added(self, path: Path) -> Entry:
        entry = Entry(video_id(path), path.name, path, None)
        with self._lock:
            self._added[entry.id] = path
        return next((other for other in self.entries() if other.id == entry.id), entry)

    def remove(self, id: str) -> None:
        """Remove a video from the index; its file stays unless it was uploaded."""
        entry = self.entry(id)
        if entry.indexed is not None:
            with self.index() as index:
                index.remove(entry.indexed)
        elif entry.path is not None:  # pictures may have been taken from it
            with self.index() as index:
                index.questions.forget(None, str(entry.path))
        with self._lock:
            self._added.pop(id, None)
        if entry.path is not None:
            self.discard(entry.path)

    def discard(self, path: Path) -> None:
        """Delete a file if it is an upload; leave any other file."""
        if path.parent == self.uploads and not path.is_symlink():
            path.unlink(missing_ok=True)
        with self._lock:
            self._added.pop(video_id(path), None)

    def listed(self) -> list[tuple[Path, list[str]]]:
        """Each folder with the relative paths of the videos that may be added from it."""
        found = []
        for folder in self.folders:
            inside = [p for p in _files_in(folder) if _leads_into(p, folder)]
            found.append((folder, sorted(p.relative_to(folder).as_posix() for p in inside)[:LISTED]))
        return found

    def opened(self, id: str) -> Video:
        """The video, ready to be decoded; cached."""
        path = self.file(id)
        stat = path.stat()
        key = (path, stat.st_mtime_ns, stat.st_size)
        with self._lock:
            known = self._opened.get(key)
        if known is None:
            known = Video(path, allow_truncated=True)
        with self._lock:
            self._opened[key] = known
            self._opened.move_to_end(key)
            while len(self._opened) > OPENED:
                self._opened.popitem(last=False)
        return known

    def checked(self, path: Path) -> Video:
        """Check that a file decodes. Playlists are refused first, since they name other files to be read."""
        if not is_text(path.name):
            raise VideoError(f"{path.name!a}: the name of this file is not UTF-8; rename it first")
        with path.open("rb") as file:
            head = file.read(400)
        if head and not is_video_container(head):
            raise VideoError(
                f"{path.name} is not a video of a known kind (mp4, mov, mkv, webm, avi, ts, mpg, flv, wmv)"
            )
        try:
            return Video(path)
        except VideoError as error:
            raise VideoError(str(error).replace(str(path), path.name)) from None

    # --- uploads ---

    def check_size(self, size: int | None, most: int) -> None:
        if size is not None and size > most:
            raise TooLarge(f"{_size(size)} is more than this server takes ({_size(most)}); see --max-upload")
        if size is not None:
            self.check_room(size)

    def check_room(self, more: int) -> None:
        """Whether `more` bytes can be written; the disk is shared with other uploads and programs."""
        if shutil.disk_usage(self.uploads).free < more + SPARE_BYTES:
            raise DiskFull(f"the disk has no room for {_size(more)}; free some space")

    def arriving(self, name: str) -> Path:
        """The path for an upload, in its own folder; finish with `settled` or `abandoned`."""
        place = self.incoming / uuid.uuid4().hex
        place.mkdir(mode=0o700)
        return place / safe_name(name)

    def abandoned(self, building: Path) -> None:
        shutil.rmtree(building.parent, ignore_errors=True)

    def settled(self, building: Path, written_s: float | None = None) -> Entry:
        """Move a finished upload to the uploaded videos. The copy is dated as the file that was sent, in
        seconds since 1970: where nothing else tells when a video was recorded, that does."""
        self.checked(building)
        if written_s is not None and believable(written_s):
            os.utime(building, (written_s, written_s))
        with self._lock:
            numbers = range(1, 10_000)
            names = (building.name if n == 1 else f"{building.stem} ({n}){building.suffix}" for n in numbers)
            target = next(t for name in names if not (t := self.uploads / name).exists())
            building.replace(target)
        return self.added(target)

    # --- access checks ---

    def _inside(self, text: str) -> Path:
        """Resolve a path. All paths outside get the same error, which does not reveal whether they exist."""
        outside = Refused(f"{text}: not in a folder that this server may read; start it with --videos FOLDER")
        try:
            path = Path(text)
            tried = [path] if path.is_absolute() else [folder / path for folder in self.folders]
            allowed = [there for there in (p.resolve() for p in tried) if self._may_add(there)]
        except (OSError, RuntimeError, ValueError):  # a loop of links, or not a valid path
            raise outside from None
        if not allowed:
            raise outside
        return next((path for path in allowed if is_file(path)), allowed[0])

    def _may_add(self, path: Path) -> bool:
        places = (*self.folders, self.uploads)
        return path in self.files or any(path.is_relative_to(folder) for folder in places)


def video_id(path: Path | str) -> str:
    return hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_text(name: str) -> bool:
    """Whether a name can be sent: file names may hold bytes that are no UTF-8, as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def safe_name(name: str) -> str:
    """A file name of letters, digits and a few other characters, without path separators."""
    plain = unicodedata.normalize("NFC", name.replace("\\", "/").rsplit("/", 1)[-1])
    plain = re.sub(r"[^\w .()+-]", "_", plain).strip(" .")
    stem, dot, ending = plain.rpartition(".")
    if not dot:
        stem, ending = ending, ""
    return f"{stem[:80].strip(' .') or 'video'}{dot}{ending[:8]}"


def _entry(video: IndexedVideo) -> Entry:
    return Entry(video_id(video.source), video.name, None if video.kind == LIVE else video.path, video)


def _remove_if_left_over(folder: Path) -> None:
    with suppress(OSError), locked(folder / "lock", wait=False) as is_left_over:
        if is_left_over:
            shutil.rmtree(folder, ignore_errors=True)


def _files_in(folder: Path) -> list[Path]:
    """Videos by their names; a folder that goes away while it is listed holds none."""
    with suppress(OSError):
        return [p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS and is_text(str(p))]
    return []


def _leads_into(path: Path, folder: Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder) and path.is_file()
    except (OSError, RuntimeError):  # a loop of links
        return False


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"

"""Questions that were answered, kept with the index: what was asked, and the answers in full.

    INDEX/questions/4f0c13a29be1/question.json    what was asked of which videos, and a line of each answer
                                 answer-7.npz     the answer about video 7
                                 picture-0.jpg    a picture that it was asked with, reduced
                                 thing.jpg        the thing, cut out of the first picture
                                 thumbnail.jpg    the last sighting
    INDEX/questions/.4f0c13a29be1.part            being written or removed; nobody reads it

What an answer says of a video, and pictures taken from it, are forgotten with the video.

Does not import torch.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lastseen.errors import IndexStoreError
from lastseen.files import empty_folder
from lastseen.index.lock import locked

FOLDER, FILE, THING, THUMBNAIL = "questions", "question.json", "thing.jpg", "thumbnail.jpg"
SCHEMA = "lastseen/question@1"
MOST, MOST_BYTES = 500, 256 * 2**20  # kept; the oldest go first
_ID = re.compile(r"[0-9a-f]{12}")


def answer_file(video: int) -> str:
    return f"answer-{video}.npz"


def picture_file(number: int) -> str:
    return f"picture-{number}.jpg"


@dataclass(frozen=True, kw_only=True)
class Look:
    """A picture of the thing: a given one, or a frame of a video (`video`: its number, if it is indexed)."""

    number: int  # of its file
    width: int  # in pixels, before it was reduced
    height: int
    box: tuple[float, float, float, float] | None = None  # where the thing is in it; None: everywhere
    video: int | None = None
    source: str | None = None  # the path of the video's file
    time_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a list says of an answer about one video; `end_s`: of the last sighting or the best guess."""

    video: int
    identity: str  # of the video: numbers start anew if a catalogue is lost
    found: bool
    words: str
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Note:
    """A line of an answer (`answer`: its video) about the damage of a video, perhaps of another one."""

    answer: int
    video: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Question:
    id: str
    asked_at: float  # seconds since 1970
    looks: tuple[Look, ...]
    before_s: float | None
    everywhere: bool  # all videos that there were
    videos: tuple[int, ...]  # that were searched
    incomplete: tuple[int, ...]  # of these, read in part only
    frames: int
    seconds: float
    threshold: float  # least score that counted as seen
    lines: tuple[Line, ...]  # the latest sighting first
    notes: tuple[Note, ...] = ()
    thumbnail: int | None = None  # the video that it shows
    checksums: dict[str, int] = field(default_factory=dict)  # of its other files

    @property
    def found(self) -> bool:
        return any(line.found for line in self.lines)

    @property
    def needs(self) -> set[int]:
        """The videos that it says something of, or was asked with."""
        return {*self.videos, *(look.video for look in self.looks if look.video is not None)}

    def without(self, video: int | None, source: str | None = None) -> Question | None:
        """What stays when a video is forgotten; None if no answer or no picture does."""
        gone = {look.number for look in self.looks if _is_of(look, video, source)}
        numbers = set() if video is None else {video}
        return self._without(numbers, gone, numbers)

    def without_before(self, video: int, time_s: float) -> Question | None:
        """What stays when a video's frames before a moment are forgotten: no sighting, no picture of then."""
        old = {line.video for line in self.lines if line.video == video and line.end_s < time_s}
        looks = {look.number for look in self.looks if look.video == video and look.time_s < time_s}
        return self._without(old, looks, set())

    def _without(self, answers: set[int], looks: set[int], videos: set[int]) -> Question | None:
        """Without answers about some videos, without some pictures, and without a word of some videos."""
        if not (looks or answers & {line.video for line in self.lines} or videos & self.needs):
            return self
        files = {answer_file(id) for id in answers} | {picture_file(number) for number in looks}
        files |= {THING} if self.looks[0].number in looks else set()
        files |= {THUMBNAIL} if self.thumbnail in answers else set()
        left = replace(
            self,
            looks=tuple(look for look in self.looks if look.number not in looks),
            videos=tuple(id for id in self.videos if id not in videos),
            incomplete=tuple(id for id in self.incomplete if id not in videos),
            lines=tuple(line for line in self.lines if line.video not in answers),
            notes=tuple(n for n in self.notes if n.answer not in answers and n.video not in videos),
            thumbnail=None if self.thumbnail in answers else self.thumbnail,
            checksums={name: value for name, value in self.checksums.items() if name not in files},
        )
        return left if left.looks and left.lines else None


class Questions:
    """The kept questions of an index. Any number of processes may read, write and remove them at once."""

    def __init__(self, index: Path) -> None:
        self.folder, self._lock = index / FOLDER, index / "locks" / "questions.lock"

    def keep(
        self,
        question: Question,
        files: Mapping[str, bytes],
        indexed: Callable[[], Collection[int]],
        *,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Keep a question with its files: whole, or not at all. OSError or IndexStoreError if it cannot be.

        `indexed` says which videos there are: one that was removed meanwhile must not come back in an answer.
        """
        size = sum(map(len, files.values()))
        if size > most_bytes:
            raise IndexStoreError(f"its answers take {size / 2**20:.0f} MiB, more than may be kept")
        checksums = {name: zlib.crc32(content) for name, content in files.items()}
        building = self._part(question.id)
        with self._alone(make=True):
            if not question.needs <= set(indexed()):
                raise IndexStoreError("a video was removed meanwhile")
            self._sweep()
            try:
                building.mkdir(mode=0o700)
                for name, content in files.items():
                    _write(building / name, content)
                _write(building / FILE, _encoded(replace(question, checksums=checksums)))
                building.rename(self.folder / question.id)
            finally:
                empty_folder(building)
                with suppress(OSError):
                    building.rmdir()
            self._drop_oldest(most, most_bytes)

    def read(self) -> tuple[list[Question], dict[str, str]]:
        """All that are sound, the newest first, and for each damaged one what is wrong with it."""
        sound, damaged = [], {}
        for id in self._ids():
            try:
                sound.append(self._read(id))
            except IndexStoreError as error:
                if (self.folder / id).is_dir():  # not removed meanwhile
                    damaged[id] = str(error)
        return sorted(sound, key=lambda question: (-question.asked_at, question.id)), damaged

    def find(self, id: str) -> Question | None:
        """A question; None if there is none. IndexStoreError if it is damaged."""
        return self._read(id) if _ID.fullmatch(id) and (self.folder / id).is_dir() else None

    def file(self, question: Question, name: str) -> bytes | None:
        """One of its files; None if there is none. IndexStoreError if it is damaged."""
        if name not in question.checksums:
            return None
        try:
            content = (self.folder / question.id / name).read_bytes()
        except FileNotFoundError:
            raise IndexStoreError(f"{name} is missing") from None
        if zlib.crc32(content) != question.checksums[name]:
            raise IndexStoreError(f"{name} is not as it was written")
        return content

    def remove(self, id: str) -> bool:
        """Whether there was such a question."""
        if not _ID.fullmatch(id) or not (self.folder / id).is_dir():
            return False
        with self._alone():
            if stayed := self._discard(id):
                raise IndexStoreError(
                    f"the question is forgotten, but files of it stay: {stayed}; delete them"
                )
        return True

    def forget(self, video: int | None, source: str | None = None) -> str:
        """Forget all that is known of a video; returns what could not be deleted and why."""
        return self._change_all(lambda question: question.without(video, source), self._discard)

    def forget_before(self, video: int, time_s: float) -> None:
        self._change_all(lambda question: question.without_before(video, time_s), lambda id: "")

    def sweep(self) -> None:
        """Remove what killed processes left."""
        if self.folder.is_dir():
            with self._alone():
                self._sweep()

    def problems(self) -> list[str]:
        """Damage, one line each."""
        sound, damaged = self.read()
        for question in sound:
            for name in question.checksums:
                try:
                    self.file(question, name)
                except (IndexStoreError, OSError) as error:
                    damaged[question.id] = getattr(error, "strerror", None) or str(error)
        return [
            f"a kept question is damaged ({why}): delete {self.folder / id}" for id, why in damaged.items()
        ]

    def _ids(self) -> list[str]:
        try:
            return [path.name for path in self.folder.iterdir() if _ID.fullmatch(path.name)]
        except OSError:
            return []

    def _read(self, id: str) -> Question:
        try:
            question = _decoded((self.folder / id / FILE).read_bytes())
        except OSError as error:
            raise IndexStoreError(f"{FILE} cannot be read: {error.strerror}") from None
        if question.id != id:
            raise IndexStoreError(f"{FILE} is of another question")
        return question

    def _change_all(
        self, left_of: Callable[[Question], Question | None], if_damaged: Callable[[str], str]
    ) -> str:
        if not self.folder.is_dir():
            return ""
        stayed = []
        with self._alone():
            self._sweep()
            for id in self._ids():
                try:
                    question = self._read(id)
                except IndexStoreError:
                    stayed.append(if_damaged(id))  # nobody knows what it is about
                    continue
                left = left_of(question)
                if left is None:
                    stayed.append(self._discard(id))
                elif left != question:
                    stayed.append(self._replace(question, left))
        return ", ".join(filter(None, stayed))

    def _replace(self, question: Question, left: Question) -> str:
        """Delete files first: on a full disk, and when killed in between, what must go is gone."""
        place = self.folder / question.id
        building = place / f".{FILE}.part"
        try:
            for name in question.checksums.keys() - left.checksums.keys():
                (place / name).unlink(missing_ok=True)
            building.unlink(missing_ok=True)
            _write(building, _encoded(left))
            building.replace(place / FILE)
        except OSError:
            return self._discard(question.id)
        return ""

    def _discard(self, id: str) -> str:
        """Remove a question; returns which files could not be removed and why."""
        place, leaving = self.folder / id, self._part(id)
        with suppress(OSError):  # no room even for a name: then it is emptied where it is
            place.rename(leaving)
            place = leaving
        stayed = empty_folder(place)
        with suppress(OSError):
            place.rmdir()
        return stayed

    def _drop_oldest(self, most: int, most_bytes: int) -> None:
        sound, damaged = self.read()
        order = [*(question.id for question in sound), *damaged]
        sizes = [_size_bytes(self.folder / id) for id in order]
        while order and (len(order) > most or sum(sizes) > most_bytes):
            sizes.pop()
            self._discard(order.pop())

    def _sweep(self) -> None:
        for left_over in self.folder.glob(".*.part"):
            empty_folder(left_over)
            with suppress(OSError):
                left_over.rmdir()

    def _part(self, id: str) -> Path:
        return self.folder / f".{id}.part"

    @contextmanager
    def _alone(self, make: bool = False) -> Iterator[None]:
        """Hold the lock of the questions."""
        with ExitStack() as held:
            if make:
                for folder in (self.folder, self._lock.parent):
                    folder.mkdir(mode=0o700, exist_ok=True)
                held.enter_context(locked(self._lock))
            else:
                with suppress(OSError):  # what is to be forgotten must go, if need be without the lock
                    held.enter_context(locked(self._lock))
            yield


def _is_of(look: Look, video: int | None, source: str | None) -> bool:
    by_number = video is not None and look.video == video
    return by_number or (source is not None and look.source == source)


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _encoded(question: Question) -> bytes:
    body = json.dumps(asdict(question)).encode()
    return f"{SCHEMA} {zlib.crc32(body)}\n".encode() + body


def _decoded(content: bytes) -> Question:
    head, _, body = content.partition(b"\n")
    schema, _, checksum = head.decode("ascii", "replace").partition(" ")
    if schema != SCHEMA or checksum != str(zlib.crc32(body)):
        raise IndexStoreError(f"{FILE} is not as it was written")
    try:
        values = json.loads(body)
        looks = [Look(**{**look, "box": look["box"] and tuple(look["box"])}) for look in values["looks"]]
        made: dict[str, Any] = {
            "looks": tuple(looks),
            "videos": tuple(values["videos"]),
            "incomplete": tuple(values["incomplete"]),
            "lines": tuple(Line(**line) for line in values["lines"]),
            "notes": tuple(Note(**note) for note in values["notes"]),
        }
        return Question(**{**values, **made})
    except (KeyError, TypeError, ValueError, RecursionError):
        raise IndexStoreError(f"{FILE} is of another version of lastseen") from None


def _size_bytes(folder: Path) -> int:
    with suppress(OSError):
        return sum(entry.stat().st_size for entry in os.scandir(folder))
    return 0

"""What `lastseen find` is asked: pictures and boxes from the command line to queries."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lastseen.errors import QueryError

if TYPE_CHECKING:
    from lastseen.box import Box
    from lastseen.query import Query
    from lastseen.video import Video

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".avif")
BOX_HELPS = (  # said once, after the answer
    "note: the whole picture was taken as the thing; a photo with its surroundings works better than a tight "
    "crop: mark the thing in it with --mark, or say where it is with --box X1,Y1,X2,Y2"
)
ORDER = "the order is PICTURE... VIDEO"
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/")  # of a stream; as a path it has lost a slash
THING = "thing"  # name of a thing that was given none


def is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURES


def in_order(files: Sequence[Path], at: float | None) -> list[Path]:
    """Pictures first, the video last. What is plainly the other way round is understood, with a note."""
    from lastseen.video.containers import ENDINGS, is_file

    files = list(files)
    for path in files:
        if (address := ADDRESS.match(str(path))) and not is_file(path):
            raise QueryError(  # which may hold a password
                f"{address[1]}://…: find asks files and the index; record the stream with 'lastseen index "
                "ADDRESS', then ask: lastseen find PICTURE"
            )
    if at is not None:  # then the first may be a video, too
        return files
    videos = [path for path in files if path.suffix.lower() in ENDINGS]
    if len(videos) == 1 and len(files) > 1 and is_picture(files[-1]):
        print(f"note: {videos[0]} was taken as the video ({ORDER})", file=sys.stderr)
        return [path for path in files if path != videos[0]] + videos
    for path in videos[: len(videos) if files and is_picture(files[-1]) else -1]:
        raise QueryError(
            f"{path} is a video, not a picture of the thing: {ORDER}, with one video (several: 'lastseen "
            "index'); a moment of it is a picture with --at SECONDS"
        )
    return files


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to search for, as given on the command line."""

    pictures: list[Path]
    things: list[str]
    box: Box | None
    at: float | None
    mark: bool = False
    quiet: bool = False

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(_named(text)[0] for text in self.things)) or [THING]

    @property
    def named_pictures(self) -> list[Path]:
        return [_named(text)[1] for text in self.things]

    @property
    def lacks_box(self) -> bool:
        """Whether a box could have been given: it goes with one picture."""
        return len(self.pictures) == 1 and self.box is None and self.at is None and not self.mark

    def queries(self, video: Video | None, before: float | None) -> dict[str, Query]:
        from lastseen.query import Query

        if not self.things:
            return {THING: self._one(video).asked(before)}
        if self.pictures or self.box is not None or self.at is not None or self.mark:
            raise QueryError(
                "--thing goes with a video or none, not with other pictures, --box, --mark or --at"
            )
        named = [_named(text) for text in self.things]
        return {
            name: Query.from_images([path for other, path in named if other == name], before)
            for name in self.names
        }

    def _one(self, video: Video | None) -> Query:
        from lastseen.query import Query

        if self.mark and self.box is not None:
            raise QueryError("--mark asks where the thing is, and --box says it: give one of them")
        if self.at is not None:
            return self._moment(video, self.at)
        if not self.pictures:
            what = f"in {video.path}" if video else "in the index"
            raise QueryError(
                f"what to find {what}? Give a photo before the video, and --mark or --box X1,Y1,X2,Y2 for "
                "the thing in it; or --at SECONDS and --mark or --box"
            )
        if self.box is not None and len(self.pictures) > 1:
            raise QueryError("--box goes with one picture; --mark asks for a box in each")
        if self.box is not None:
            return Query.from_image(self.pictures[0], self.box)
        if self.mark:
            whole = [(Query.from_image(path), str(path)) for path in self.pictures]
            return Query.joined([self._marked(query, name) for query, name in whole])
        return Query.from_images(self.pictures)

    def _moment(self, video: Video | None, time_s: float) -> Query:
        from lastseen.query import Query
        from lastseen.video import Video

        if self.box is None and not self.mark:
            raise QueryError("--at needs --box X1,Y1,X2,Y2, where the thing is in that frame, or --mark")
        if len(self.pictures) > 1:
            raise QueryError("with --at give one video to take the picture from, or none to take VIDEO")
        source = Video(self.pictures[0]) if self.pictures else video
        if source is None:
            raise QueryError("--at needs a video to take the picture from")
        if self.mark:
            return self._marked(Query.from_video(source, time_s), f"{source.path} at {time_s:g} s")
        return Query.from_video(source, time_s, self.box)

    def _marked(self, query: Query, name: str) -> Query:
        """The same picture with the box that the user draws."""
        from lastseen.cli.mark import mark
        from lastseen.query import Query

        box = mark(query.views[0].picture, name)
        if not self.quiet:
            said = ",".join(f"{v:g}" for v in box.xyxy)
            print(f"note: marked in {name}: --box {said}", file=sys.stderr)
        return Query.from_array(query.views[0].picture, box)


def _named(text: str) -> tuple[str, Path]:
    name, is_there, path = text.partition("=")
    if not (name and is_there and path):
        raise QueryError(f"--thing {text}: expected NAME=PICTURE, like keys=keys.jpg")
    return name, Path(path)


def parse_box(text: str | None) -> Box | None:
    if text is None:
        return None
    from lastseen.box import Box

    try:
        x1, y1, x2, y2 = (float(part) for part in text.split(","))
    except ValueError:
        raise QueryError(f"--box {text}: expected X1,Y1,X2,Y2 in pixels, like 120,80,240,200") from None
    return Box(x1, y1, x2, y2)

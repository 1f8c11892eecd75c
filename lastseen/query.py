"""Query: pictures of the thing, and optionally the time at which the search ends."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from lastseen.box import Box, BoxLike
from lastseen.errors import QueryError
from lastseen.picture import read_picture as read_picture
from lastseen.video import Video

LEAST_SIDE_PX = 2  # smaller things cannot be recognized


class Footage(Protocol):
    """What is searched: a Video or an IndexedVideo."""

    @property
    def path(self) -> Path: ...
    @property
    def duration_s(self) -> float: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    def frame_count(self, fps: float) -> int: ...


@dataclass(frozen=True)
class View:
    """One picture of the thing with its box. The whole picture is kept, since context helps."""

    picture: np.ndarray  # [h, w, 3] uint8 RGB
    box: Box  # where the thing is in it
    mask: np.ndarray | None = None  # [h, w] bool: which pixels show the thing, if that is known

    @property
    def crop(self) -> np.ndarray:
        """The part of the picture inside the box."""
        x1, y1, x2, y2 = (round(v) for v in self.box.xyxy)
        return self.picture[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)]


def cut_around(picture: Any, box: Box, margin: float) -> tuple[Any, Box]:
    """The part of a picture [h, w, 3] (array or tensor) around a box, and the thing's box in it.

    `margin`, in units of the box's longer side, is added on every side, up to the picture's edges. Without
    one all of the part is the thing. The part has whole pixels, LEAST_SIDE_PX or more along each side.
    """
    height, width = picture.shape[:2]
    more = margin * max(box.width, box.height)
    left, right = _whole_pixels(box.x1 - more, box.x2 + more, width)
    top, bottom = _whole_pixels(box.y1 - more, box.y2 + more, height)
    part = picture[top:bottom, left:right]
    return part, box.shifted(-left, -top) if margin else Box(0, 0, right - left, bottom - top)


def _whole_pixels(low: float, high: float, side: int) -> tuple[int, int]:
    """First pixel and stop of [low, high] in a picture's side, with room for LEAST_SIDE_PX."""
    first, stop = max(0, math.floor(low)), min(side, math.ceil(high))
    first = max(0, min(first, side - LEAST_SIDE_PX))
    return first, min(side, max(stop, first + LEAST_SIDE_PX))


@dataclass(frozen=True)
class Query:
    """One or several views of the same thing; `asked_at` (seconds) ends the search, if given."""

    views: tuple[View, ...]
    asked_at: float | None = None

    def __post_init__(self) -> None:
        if not self.views:
            raise QueryError("a query needs at least one picture of the thing")
        for view in self.views:
            _check(view)

    @classmethod
    def from_array(
        cls, picture: np.ndarray, box: BoxLike | None = None, asked_at: float | None = None
    ) -> Query:
        """A picture [h, w, 3] uint8 and the thing's box in it (the whole picture if not given)."""
        height, width = picture.shape[:2]
        return cls((View(picture, Box(0, 0, width, height) if box is None else Box.of(box)),), asked_at)

    @classmethod
    def from_image(
        cls, path: str | os.PathLike[str], box: BoxLike | None = None, asked_at: float | None = None
    ) -> Query:
        """A picture file, rotated as its EXIF orientation says, and the thing's box in it."""
        try:
            return cls.from_array(read_picture(path), box, asked_at)
        except QueryError as error:
            name = os.fspath(path)
            raise (error if str(error).startswith(name) else QueryError(f"{name}: {error}")) from None

    @classmethod
    def from_images(cls, paths: Sequence[str | os.PathLike[str]], asked_at: float | None = None) -> Query:
        """Several pictures of the same thing."""
        return cls.joined([cls.from_image(path) for path in paths], asked_at)

    @classmethod
    def from_video(
        cls,
        video: Video | str | os.PathLike[str],
        time_s: float,
        box: BoxLike | None = None,
        asked_at: float | None = None,
    ) -> Query:
        """A frame of this or another video, and the thing's box in it."""
        video = as_video(video)
        if not 0 <= time_s < video.duration_s:
            raise QueryError(
                f"{video.path}: no frame at {time_s:g} s to take the query from; "
                f"the video lasts {video.duration_s:.2f} s"
            )
        frame = video.frame_at(time_s)
        if not frame.readable:
            raise QueryError(
                f"{video.path}: what is on display at {time_s:g} s cannot be decoded; choose another moment"
            )
        return cls.from_array(frame.image, box, asked_at)

    @classmethod
    def joined(cls, queries: Sequence[Query], asked_at: float | None = None) -> Query:
        """One query with the views of several queries for the same thing."""
        return cls(tuple(view for query in queries for view in query.views), asked_at)

    def asked(self, at: float | None) -> Query:
        return replace(self, asked_at=at)


def as_query(asked: object) -> Query:
    """A Query as it is, or the picture of the thing in a file."""
    if isinstance(asked, Query):
        return asked
    if isinstance(asked, (str, os.PathLike)):
        return Query.from_image(asked)
    if isinstance(asked, Video):
        raise QueryError(
            f"{asked.path} is a video where the thing is expected: ask(video, query); "
            "Query.from_video(video, time_s, box) takes the thing out of a video"
        )
    raise QueryError(f"a query is a Query or the name of a picture, got {type(asked).__name__}")


def as_video(asked: object) -> Video:
    """A Video (or what can be searched like one) as it is, or the one in a file."""
    if hasattr(asked, "frame_count"):
        return cast("Video", asked)
    if isinstance(asked, (str, os.PathLike)):
        return Video(asked)
    raise QueryError(f"{type(asked).__name__} where the video is expected: the order is ask(video, query)")


def _check(view: View) -> None:
    picture, box = view.picture, view.box
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        raise QueryError(f"a picture is [h, w, 3] uint8 RGB, got {list(picture.shape)} {picture.dtype}")
    height, width = picture.shape[:2]
    if min(width, height) < LEAST_SIDE_PX:
        raise QueryError(f"the picture is {width}x{height} pixels; the thing must be seen larger than that")
    if not all(np.isfinite(box.xyxy)):
        raise QueryError(f"the box {_plain(box)} is not four numbers")
    if box.x2 <= box.x1 or box.y2 <= box.y1:
        raise QueryError(f"the box {_plain(box)} is empty; give x1,y1,x2,y2 with x1 < x2 and y1 < y2")
    if box.x1 < 0 or box.y1 < 0 or box.x2 > width or box.y2 > height:
        raise QueryError(f"the box {_plain(box)} reaches outside the {width}x{height} picture")
    if view.mask is not None and (view.mask.shape != (height, width) or view.mask.dtype != bool):
        shape = f"{list(view.mask.shape)} {view.mask.dtype}"
        raise QueryError(f"a mask is [h, w] bool, {height}x{width} like its picture, got {shape}")
    if min(box.width, box.height) < LEAST_SIDE_PX:
        raise QueryError(f"the box {_plain(box)} is under {LEAST_SIDE_PX} pixels; draw it around the thing")


def _plain(box: Box) -> str:
    return ",".join(f"{v:g}" for v in box.xyxy)

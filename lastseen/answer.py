"""Answer: all that is said to one question about one video."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lastseen.track import ResponseTrack

ROUNDING = 1e-6  # of a sample

if TYPE_CHECKING:
    from lastseen.query import Query


class VideoInfo(Protocol):
    """Properties of an answer's video; implemented by Video, IndexedVideo and VideoFacts."""

    @property
    def path(self) -> Path: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def fps(self) -> float: ...
    @property
    def duration_s(self) -> float: ...
    @property
    def start_s(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class VideoFacts:
    """Properties of a video whose file may no longer exist."""

    path: Path
    width: int
    height: int
    fps: float
    duration_s: float
    start_s: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreCurve:
    """Score and box of every sampled frame after refinement; frame i is at i / fps seconds."""

    fps: float
    boxes_px: np.ndarray  # [T, 4] x1 y1 x2 y2
    scores: np.ndarray  # [T] in [0, 1]
    smooth: np.ndarray  # [T] after the median filter, in which peaks are found
    searched: np.ndarray  # [T] bool: the model ran on this frame

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Answer:
    """`sightings` in time order; if the thing was not seen there are none, but a `best_guess`."""

    video: VideoInfo
    sightings: tuple[ResponseTrack, ...]
    best_guess: ResponseTrack | None = None
    query: Query | None = None
    curve: ScoreCurve | None = None
    model: str = ""
    threshold: float = 0.5  # least confidence that counts as seen
    label: str = "thing"  # class name in formats that have classes
    steps: tuple[str, ...] = ()  # refinement steps that were run
    preliminary: bool = False  # what the first pass says; the final answer is still being worked on
    unreadable_s: float = 0.0  # of the video: could not be decoded, so what was in view then is not known
    searched_to_s: float | None = None  # the search ended there; None: at the end of the video
    video_missing: bool = False  # no zoom and no masks, since the video file was missing
    damage: tuple[str, ...] = ()  # what of the index was found damaged, and what was done about it, in words

    @property
    def found(self) -> bool:
        return bool(self.sightings)

    @property
    def last(self) -> ResponseTrack | None:
        """When and where the thing was last seen; None if it was not seen."""
        return self.sightings[-1] if self.sightings else None

    @property
    def shown(self) -> tuple[ResponseTrack, ...]:
        """The sightings, or else the best guess: what pictures show."""
        return self.sightings or ((self.best_guess,) if self.best_guess else ())

    @property
    def searched_s(self) -> float:
        """Where the search ended, in seconds from the video's beginning."""
        return self.video.duration_s if self.searched_to_s is None else self.searched_to_s

    @property
    def searched_to_end(self) -> bool:
        """Whether the search ended with the video, to within a sample."""
        fps = self.curve.fps if self.curve is not None else self.video.fps
        return self.searched_s > self.video.duration_s - 1 / fps

    @property
    def still_in_view(self) -> bool:
        """Whether the last sighting reaches the end of what was searched: nothing says that it went away."""
        last = self.last
        return last is not None and last.last_frame + 1 >= self.searched_s * last.fps - ROUNDING

    def only_last(self) -> Answer:
        """The answer without earlier sightings."""
        return replace(self, sightings=self.sightings[-1:])

    # --- showing it: for this, modules above are loaded when they are needed ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what the name's ending says: a picture (.jpg .png .webp), the moment as a video (.mp4), a
        report (.html), or one of the formats of docs/formats.md (.json .csv .xml .txt .vtt ...)."""
        _drawing().save_answer(path, self)

    def save_picture(self, path: str | os.PathLike[str]) -> None:
        """The last frame of the last sighting, or of the best guess, with its box."""
        _drawing().write_picture(path, self)

    def save_video(self, path: str | os.PathLike[str]) -> None:
        """The last sighting, or the best guess, with its boxes, as .mp4."""
        _drawing().write_video(path, self)

    def __repr__(self) -> str:
        so_far = " so far" if self.preliminary else ""
        return f"<Answer{so_far}: {import_module('lastseen.words').headline(self)}>"

    def _repr_html_(self) -> str:
        return str(_drawing().answer_html(self))

    def _repr_png_(self) -> bytes | None:
        png: bytes | None = _drawing().answer_png(self)
        return png


def _drawing() -> Any:
    return import_module("lastseen.render")

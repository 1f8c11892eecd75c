"""What is searched: features of any frames of a video, and a coarse score for every frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lastseen.access import VideoFeatures
from lastseen.answer import VideoInfo
from lastseen.progress import ENCODED, SCORED, Work
from lastseen.query import Footage
from lastseen.runner import ModelRunner
from lastseen.search.ranking import picture_tokens
from lastseen.video import Video
from lastseen.video.unreadable import Unreadable

HELD_FRAMES = 64  # encoded frames that are cached: 50 MB


class Searched(VideoInfo, Footage, Protocol):
    """A Video or an IndexedVideo."""


class Source(Protocol):
    @property
    def video(self) -> Searched: ...
    @property
    def key(self) -> str:
        """Different for each source of a search."""

    @property
    def place(self) -> str:
        """A path or an address: sources of several parts are searched in the order of their places."""

    @property
    def first(self) -> int:
        """Frames before this one are not there any more."""

    @property
    def end(self) -> int: ...
    @property
    def began_at(self) -> float:
        """When the video began, in seconds since 1970; sightings of several videos are compared by it."""

    @property
    def unreadable(self) -> int:
        """Frames that could not be decoded."""

    @property
    def stored(self) -> bool:
        """Whether features of all frames are at hand: else frames are encoded when they are read."""

    @property
    def scoring_work(self) -> Work: ...
    def coarse_scores(self, queries: Sequence[Tensor], did: Callable[[int], None]) -> np.ndarray:
        """How like each query's vectors [k, m] each frame from `first` on may be: [queries, frames]; `did` is
        called with numbers of frames."""

    def readable(self, start: int, end: int) -> list[tuple[int, int]]:
        """Which of the frames can be read, as runs of frames."""

    def read(self, start: int, end: int) -> Tensor:
        """Features of the frames."""

    def pieces(self, start: int, end: int) -> Iterable[Tensor]:
        """The same in pieces, which are not kept."""

    def damage(self) -> list[str]:
        """What was found damaged and what was done about it, one line each."""

    def can_open(self) -> bool:
        """Whether the video file is at hand."""

    def opened(self) -> Video: ...


class EndsEarly(Exception):
    """The file has fewer frames than it promises."""


class FileSource:
    """A video file: every `step`-th frame is encoded for the coarse scores, others when they are read.

    `coarse_scores` raises EndsEarly if not all frames are there.
    """

    first, began_at, stored, key = 0, 0.0, False, ""

    def __init__(self, runner: ModelRunner, video: Video, end: int, step: int) -> None:
        self.runner, self.video, self.end, self.step = runner, video, end, step
        self._unreadable = Unreadable(video, end)
        self.read = VideoFeatures(runner, self.opened, end, HELD_FRAMES).read

    @property
    def place(self) -> str:
        return str(self.video.path)

    @property
    def unreadable(self) -> int:
        return self._unreadable.count

    @property
    def scoring_work(self) -> Work:
        return Work({SCORED: self.end, ENCODED: -(-self.end // self.step)})

    def coarse_scores(self, queries: Sequence[Tensor], did: Callable[[int], None]) -> np.ndarray:
        """A frame between two that are encoded has the score of the nearer one."""
        runner, vectors = self.runner, torch.cat(list(queries)).float()
        shown = picture_tokens(runner.model, self.video.width, self.video.height)
        places: list[int] = []
        found: list[np.ndarray] = []
        frames = self.video.frames(
            runner.fps, end_s=self.end / runner.fps, ahead=runner.batch, every=self.step
        )
        try:
            while batch := list(islice(frames, runner.batch)):
                features = runner.encode_pictures([frame.image for frame in batch])
                tokens = runner.model.frame_vectors(features)[(..., *shown)].flatten(2)
                similarity = torch.einsum("nct,kc->nkt", tokens, vectors).amax(2)
                parts = torch.split_with_sizes(similarity, [len(query) for query in queries], 1)
                found.append(torch.stack([part.amax(1) for part in parts]).cpu().numpy())
                before = places[-1] if places else -1
                for frame in batch:
                    self._unreadable.add(frame)
                places += [frame.index for frame in batch]
                did(places[-1] - before)
        finally:
            frames.close()
        if not places or places[-1] != self.end - 1:
            raise EndsEarly
        nearest = np.searchsorted((np.array(places[1:]) + places[:-1]) / 2, np.arange(self.end))
        return np.concatenate(found, 1)[:, nearest]

    def readable(self, start: int, end: int) -> list[tuple[int, int]]:
        return [(start, end)]

    def pieces(self, start: int, end: int) -> Iterable[Tensor]:
        return self.runner.encoded(self.video, start, end)

    def damage(self) -> list[str]:
        return []  # what cannot be decoded is counted as unreadable

    def can_open(self) -> bool:
        return True

    def opened(self) -> Video:
        return self.video

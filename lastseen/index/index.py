"""Index: add videos, ask questions.

index = Index("library")
index.add("walk.mp4")
answer = index.ask(Query.from_image("keys.jpg"))
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lastseen.index.catalogue import FULL, IndexedVideo
from lastseen.index.folder import IndexFolder

if TYPE_CHECKING:
    from lastseen.answer import Answer
    from lastseen.index.record import Recording
    from lastseen.localizer import Localizer, Progress
    from lastseen.query import Query


class Index(IndexFolder):
    """A folder of encoded videos. The localizer is the bundled model's unless one is given; an index belongs
    to the model that made it, and refuses others."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        create: bool = True,
        localizer: Localizer | None = None,
    ) -> None:
        super().__init__(folder, create=create)
        self._localizer = localizer

    @property
    def localizer(self) -> Localizer:
        if self._localizer is None:
            from lastseen.localizer import Localizer

            self._localizer = Localizer.from_pretrained(engine=self.engine)
        return self._localizer

    def add(
        self,
        video: str | os.PathLike[str],
        *,
        keep: str = FULL,
        name: str | None = None,
        recorded: float | None = None,
        progress: Progress | None = None,
    ) -> Recording:
        """Encode a video file, or go on where that was interrupted; one that is there already costs nothing.

        `keep`: "full", or "compact": a few tokens of each frame, the rest is made again from the file.
        `recorded`: when its first frame was taken, in seconds since 1970; by default as the file says.
        """
        from lastseen.index.record import add_file

        return add_file(
            self, self.localizer, os.fspath(video), keep=keep, name=name, recorded=recorded, progress=progress
        )

    def ask(
        self,
        query: Query,
        *,
        videos: Sequence[IndexedVideo] | None = None,
        before: float | None = None,
        exhaustive: bool = False,
        progress: Progress | None = None,
    ) -> Answer | None:
        """The answer of the video in which the thing was last seen; if it was seen in none, of the one with
        the best guess. None: no frame was recorded yet."""
        found = self.ask_many(
            {"thing": query}, videos=videos, before=before, exhaustive=exhaustive, progress=progress
        )["thing"]
        return found[0] if found else None

    def ask_many(
        self,
        queries: Mapping[str, Query],
        *,
        videos: Sequence[IndexedVideo] | None = None,
        before: float | None = None,
        every: bool = False,
        exhaustive: bool = False,
        candidates: int | None = None,
        progress: Progress | None = None,
    ) -> dict[str, list[Answer]]:
        """Several things in one pass; with `every`, all videos in which each was seen, the latest first.

        `before` is a moment in seconds since 1970. `exhaustive` runs the exact model on every frame, else it
        runs on `candidates` clips first.
        """
        from lastseen.index.search import CANDIDATES, search

        return search(
            self,
            self.localizer,
            queries,
            videos=videos,
            before=before,
            every=every,
            exhaustive=exhaustive,
            candidates=CANDIDATES if candidates is None else candidates,
            progress=progress,
        )

"""Index: add videos, search them.

index = Index("library")
index.add("walk.mp4")
answer = index.ask(Query.from_image("keys.jpg"))
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from lastseen.index.entry import IndexedVideo
from lastseen.index.folder import IndexFolder

if TYPE_CHECKING:
    from lastseen.answer import Answer
    from lastseen.index.record import Recording
    from lastseen.localizer import Localizer
    from lastseen.progress import Tell
    from lastseen.query import Query
    from lastseen.video import Video


class Index(IndexFolder):
    """A folder of encoded videos. `localizer` defaults to the bundled model. An index is bound to the model
    that made it and refuses others."""

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
        video: Video | str | os.PathLike[str],
        *,
        keep: str | None = None,
        name: str | None = None,
        recorded: float | None = None,
        progress: Tell | None = None,
    ) -> Recording:
        """Encode a video file, or resume an interrupted run; a video that is already indexed is skipped.

        `keep`: "small", all features in few bits; "full"; or "compact", a few tokens per frame, where the
        file is encoded again when a question needs it. By default small, or full if the model has no basis
        for small ones.
        `recorded`: when its first frame was taken, in seconds since 1970; by default from its metadata.
        """
        from lastseen.index.record import add_file

        path = os.fspath(video if isinstance(video, str | os.PathLike) else video.path)
        return add_file(
            self, self.localizer, path, keep=keep, name=name, recorded=recorded, progress=progress
        )

    def ask(
        self,
        query: Query | str | os.PathLike[str],
        *,
        videos: Sequence[IndexedVideo] | None = None,
        before: float | None = None,
        exhaustive: bool = False,
        progress: Tell | None = None,
        preliminary: Callable[[Answer], None] | None = None,
    ) -> Answer | None:
        """The answer for the video in which the thing was last seen; if it was not seen, for the video with
        the best guess. None if no frame is indexed yet.

        `progress` is called with a Progress again and again, `preliminary` with what the first pass says;
        refinement may still change that.
        """

        def tell(_: str, answers: list[Answer]) -> None:
            if preliminary is not None and answers:
                preliminary(answers[0])

        found = self.ask_many(
            {"thing": query},
            videos=videos,
            before=before,
            exhaustive=exhaustive,
            progress=progress,
            preliminary=tell,
        )["thing"]
        return found[0] if found else None

    def ask_many(
        self,
        queries: Mapping[str, Query | str | os.PathLike[str]],
        *,
        videos: Sequence[IndexedVideo] | None = None,
        before: float | None = None,
        every: bool = False,
        exhaustive: bool = False,
        candidates: int | None = None,
        progress: Tell | None = None,
        preliminary: Callable[[str, list[Answer]], None] | None = None,
    ) -> dict[str, list[Answer]]:
        """Search for several things in one pass; `every`: all videos in which each was seen, latest first.

        `before` is a moment in seconds since 1970. `exhaustive` runs the exact model on every frame;
        otherwise it runs on `candidates` clips first. `preliminary` is called with each name and the answers
        of the first pass.
        """
        from lastseen.index.search import search
        from lastseen.query import as_query

        return search(
            self,
            self.localizer,
            {name: as_query(query) for name, query in queries.items()},
            videos=videos,
            before=before,
            every=every,
            exhaustive=exhaustive,
            candidates=candidates,
            progress=progress,
            preliminary=preliminary,
        )

"""Search an index: `lastseen.search` over its videos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lastseen.answer import Answer
from lastseen.errors import IndexStoreError, QueryError
from lastseen.index.entry import IndexedVideo
from lastseen.index.folder import IndexFolder
from lastseen.index.part import part_of_index
from lastseen.localizer import Localizer
from lastseen.progress import Tell, Tracker
from lastseen.query import Query
from lastseen.search.part import Part
from lastseen.search.run import CANDIDATES, Preliminary, search_parts

ATTEMPTS = 5  # a recording that drops frames faster than they can be searched must not keep it going forever


def search(
    index: IndexFolder,
    localizer: Localizer,
    queries: Mapping[str, Query],
    *,
    videos: Sequence[IndexedVideo] | None = None,
    before: float | None = None,
    every: bool = False,
    exhaustive: bool = False,
    candidates: int | None = None,
    progress: Tell | None = None,
    preliminary: Preliminary | None = None,
) -> dict[str, list[Answer]]:
    """For each query the answer from the video in which the thing was last seen; `every`: all, latest first.

    If it was seen in none, the answer with the best guess. `before` is a moment in seconds since 1970; a
    query's own `asked_at` counts from the beginning of each video. `exhaustive` runs the exact model on
    every frame.

    `preliminary` is called with each name and what the first pass says of it: as the answers, before any
    refinement.
    """
    if not index.videos():
        raise IndexStoreError(_empty(index))
    index.bind(localizer)
    encoded = {name: localizer.encode_query(query) for name, query in queries.items()}
    chosen = None if videos is None else {video.id for video in videos}
    for attempt in range(ATTEMPTS):
        asked = [video for video in index.videos() if chosen is None or video.id in chosen]
        if not asked:
            raise IndexStoreError(_empty(index) if chosen is None else f"{index.folder}: {_REMOVED}")
        kept = [video for video in asked if video.frames > video.first]
        try:
            tracker = Tracker(progress, localizer.speeds)
            part = part_of_index(index, localizer, queries, encoded, kept, before, tracker)
            check_any_asked([part])
            return search_parts(
                [part],
                localizer.procedure,
                list(queries),
                every=every,
                exhaustive=exhaustive,
                candidates=candidates or CANDIDATES,
                tracker=tracker,
                preliminary=preliminary,
            )
        except IndexStoreError:
            now = {video.id: video.first for video in index.videos()}
            if attempt == ATTEMPTS - 1 or all(video.first == now.get(video.id) for video in kept):
                raise
            # A recording dropped its oldest frames, or a video was removed, during the search: repeat it.
    raise AssertionError("the last attempt returns or raises")


_REMOVED = "the video was removed from the index meanwhile; ask again"


def _empty(index: IndexFolder) -> str:
    return f"{index.folder} is empty; add something to search: lastseen index VIDEO..."


def check_any_asked(parts: Sequence[Part]) -> None:
    there = any(part.sources for part in parts)
    if there and not any(cases for part in parts for cases in part.outlines.values()):
        raise QueryError("nothing in the index was recorded before that; ask about a later moment")

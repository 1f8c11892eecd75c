"""Search an index: a coarse score for every frame, the exact model on the clips that score highest
(lastseen.search)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lastseen.answer import Answer
from lastseen.errors import IndexStoreError, QueryError
from lastseen.index.entry import IndexedVideo
from lastseen.index.fine import FineFeatures
from lastseen.index.folder import IndexFolder
from lastseen.localizer import Localizer
from lastseen.progress import Tell, Tracker
from lastseen.query import Query
from lastseen.search.run import CANDIDATES, Preliminary, Search

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
            here = localizer.tracked_by(tracker)
            sources = [FineFeatures(index, here, video) for video in kept]
            ends = partial(_frames_searched, localizer, before)
            work = Search(
                here,
                queries,
                encoded,
                sources,
                ends,
                tracker=tracker,
                every=every,
                preliminary=preliminary,
            )
            if kept and not any(work.cases.values()):
                raise QueryError("nothing in the index was recorded before that; ask about a later moment")
            if exhaustive or localizer.procedure.reads_every_frame:
                work.run_on_all_frames()
            else:
                work.run_on_candidates(candidates or CANDIDATES)
            return {name: _with_damage(sources, found) for name, found in work.answers().items()}
        except IndexStoreError:
            now = {video.id: video.first for video in index.videos()}
            if attempt == ATTEMPTS - 1 or all(video.first == now.get(video.id) for video in kept):
                raise
            # A recording dropped its oldest frames, or a video was removed, during the search: repeat it.
    raise AssertionError("the last attempt returns or raises")


_REMOVED = "the video was removed from the index meanwhile; ask again"


def _empty(index: IndexFolder) -> str:
    return f"{index.folder} is empty; add something to search: lastseen index VIDEO..."


def _with_damage(
    sources: Sequence[FineFeatures], found: Sequence[tuple[FineFeatures, Answer]]
) -> list[Answer]:
    """The answers with what was found damaged."""
    damage = {source.key: source.damage() for source in sources}
    if not found and any(damage.values()):
        raise IndexStoreError(next(filter(None, damage.values()))[0])
    mine = [tuple(damage.pop(source.key, ())) for source, _ in found]
    # Damage of videos without an answer is said with the first: it may be why they have none.
    rest = tuple(line for lines in damage.values() for line in lines)
    return [
        replace(answer, damage=lines + (() if number else rest))
        for number, ((_, answer), lines) in enumerate(zip(found, mine))
    ]


def _frames_searched(localizer: Localizer, before: float | None, source: FineFeatures, query: Query) -> int:
    """Number of the video's frames before the query's `asked_at` and `before`."""
    video = source.video
    if before is None:
        return localizer.frames_searched(video, query)
    asked_at = before - video.began_at
    if asked_at <= 0:
        return 0
    return localizer.frames_searched(video, query.asked(asked_at if asked_at < video.duration_s else None))

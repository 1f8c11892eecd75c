"""One index as part of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lastseen.index.entry import IndexedVideo
from lastseen.index.fine import FineFeatures
from lastseen.index.folder import IndexFolder
from lastseen.localizer import Localizer
from lastseen.model import EncodedQuery
from lastseen.progress import Tracker
from lastseen.query import Query
from lastseen.search.part import SourcePart


def part_of_index(
    index: IndexFolder,
    localizer: Localizer,
    queries: Mapping[str, Query],
    encoded: Mapping[str, list[EncodedQuery]],
    videos: Sequence[IndexedVideo],
    before: float | None,
    tracker: Tracker,
    original: Callable[[IndexedVideo], Path] | None = None,
) -> SourcePart[FineFeatures]:
    """Some videos of an index; `original` gives a video's file, if it is not where the catalogue says."""
    here = localizer.tracked_by(tracker)
    sources = [FineFeatures(index, here, video, original) for video in videos]

    def ends(source: FineFeatures, query: Query) -> int:
        return frames_searched(localizer, source.video, query, before)

    return SourcePart(here, queries, encoded, sources, ends, tracker)


def frames_searched(localizer: Localizer, video: IndexedVideo, query: Query, before: float | None) -> int:
    """Number of the video's frames before the query's `asked_at` and `before`."""
    if before is None:
        return localizer.frames_searched(video, query)
    asked_at = before - video.began_at
    if asked_at <= 0:
        return 0
    return localizer.frames_searched(video, query.asked(asked_at if asked_at < video.duration_s else None))

"""What was seen until now, while the first pass over a long video goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lastseen.answer import Answer, VideoInfo
from lastseen.query import Query
from lastseen.track import FramePredictions

EVERY_S = 2.0  # at most this often
MOST_SHARE = 0.05  # of the time that may go into looking for sightings, again and again


class SeenSoFar:
    """Called after each clip, it tells the answer to each query whose last sighting has changed."""

    def __init__(
        self,
        answer: Callable[[VideoInfo, Query, FramePredictions], Answer],
        video: VideoInfo,
        queries: Sequence[Query],
        tell: Callable[[Answer], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answer, self._video, self._queries = answer, video, queries
        self._tell, self._clock = tell, clock
        self._told: list[tuple[int, int] | None] = [None] * len(queries)
        self._next = clock() + EVERY_S

    def __call__(self, predictions: Callable[[], list[FramePredictions]]) -> None:
        began = self._clock()
        if began < self._next:
            return
        for number, (query, found) in enumerate(zip(self._queries, predictions())):
            answer = self._answer(self._video, query, found) if len(found) else None
            if answer is None or answer.last is None:
                continue
            span = answer.last.first_frame, answer.last.last_frame
            if span != self._told[number]:
                self._told[number] = span
                self._tell(answer)
        now = self._clock()
        self._next = now + max(EVERY_S, (now - began) / MOST_SHARE)

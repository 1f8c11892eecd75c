"""Progress of many videos at once: frames done of all that there are, and the time that all will take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from lastseen.cluster.storage import Source
from lastseen.progress import ENCODED, READING, Progress, Speeds, Tell


class Overall:
    """How many frames a video has is known once a worker has opened it; until then its size tells."""

    def __init__(self, tell: Tell | None, sources: Sequence[Source]) -> None:
        self._tell, self._sources = tell, sources
        self._frames: dict[str, int] = {}  # of videos that were opened
        self._finished: dict[str, int] = {}
        self._running: dict[int, tuple[str, int]] = {}  # by worker: its video, and frames done
        self._speeds, self._at = Speeds(), time.monotonic()

    def done(self, source: Source, frames: int) -> None:
        self._finished[source.place] = self._frames[source.place] = frames

    def stopped(self, worker: int) -> None:
        """What it did since the last commit is lost."""
        self._running.pop(worker, None)

    def update(self, working: Mapping[int, Source], told: Mapping[int, tuple[str, int, int]]) -> None:
        """`told` by the workers: their video, frames done and to do."""
        now, new = time.monotonic(), 0
        running = {}
        for worker, source in working.items():
            place, done, total = told.get(worker, ("", 0, 0))
            if place != source.place:
                continue  # of the video before
            self._frames[place] = total
            before = self._running.get(worker)
            if before is not None and before[0] == place:  # else it may have been half done before
                new += done - before[1]
            running[worker] = place, done
        self._running = running
        if new > 0:
            self._speeds.add(ENCODED, new, now - self._at)
            self._at = now
        self._say()

    def _say(self) -> None:
        if self._tell is None or not self._frames:
            return
        sizes = {source.place: source.size for source in self._sources}
        bytes_known = sum(sizes[place] for place in self._frames)
        frames_known = sum(self._frames.values())
        unknown = sum(size for place, size in sizes.items() if place not in self._frames)
        total = frames_known + round(unknown * frames_known / max(1, bytes_known))
        done = sum(self._finished.values()) + sum(frames for _, frames in self._running.values())
        left_s = self._speeds.seconds_for({ENCODED: total - done})
        self._tell(Progress(READING, done, total, "frames", left_s))

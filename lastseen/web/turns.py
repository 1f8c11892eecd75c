"""Turns for work that takes much memory: who comes while others are at it waits in line.

Waiting takes no thread, so other requests are answered meanwhile. Nor may too many wait: whoever asks, leaves
and asks again would make the line longer and longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from lastseen.web.errors import TooMany
from lastseen.web.limits import Limits

T = TypeVar("T")


class Turns:
    def __init__(self, limits: Limits) -> None:
        self._most = limits.in_line
        self._pictures = CapacityLimiter(limits.pictures_at_once)
        self._frames = CapacityLimiter(limits.frames_at_once)
        self._uploads = CapacityLimiter(limits.uploads_at_once)
        self._drawn = CapacityLimiter(limits.drawn_at_once)

    async def picture(self, work: Callable[[], T]) -> T:
        """Decode a picture that was uploaded: its pixels may take a hundred times its file."""
        return await self._run(work, self._pictures)

    async def frame(self, work: Callable[[], T]) -> T:
        return await self._run(work, self._frames)

    async def upload(self, work: Callable[[], T]) -> T:
        """Check a video that was uploaded."""
        return await self._run(work, self._uploads)

    async def drawing(self, work: Callable[[], T]) -> T:
        return await self._run(work, self._drawn)

    async def _run(self, work: Callable[[], T], line: CapacityLimiter) -> T:
        if line.statistics().tasks_waiting >= self._most:
            raise TooMany("too many requests like this are waiting; try again in a moment")
        return await run_sync(work, limiter=line)

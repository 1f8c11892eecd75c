"""A queue of long-running jobs on one thread, with progress and cancellation.

Searches go first: they run between two batches of a video that is being indexed.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lastseen.errors import LastSeenError
from lastseen.progress import Progress
from lastseen.web.errors import Ending, TooMany, from_memory, from_system
from lastseen.web.limits import Limits
from lastseen.web.memory import give_back

WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"
KEPT = 50  # finished jobs that are kept
log = logging.getLogger("lastseen")


class Cancelled(Exception):
    """Raised inside a job to cancel it."""


@dataclass(eq=False)
class Job:
    """`done` of `total` units of a phase; `result` is what the work returned, `preliminary` the same of its
    first pass."""

    kind: str
    title: str
    videos: tuple[str, ...] = ()  # ids; none: all of them
    client: str = ""  # the address it was asked from
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    state: str = WAITING
    phase: str = ""  # "reading", "searching", "looking closer", "measuring boxes"
    step: str = ""  # the same for people
    done: int = 0
    total: int = 0
    unit: str = "frames"
    # Estimated time until the job is done, all phases. Not counted down between two reports: a step that
    # takes longer than it should must not look as if it were about to end.
    left_s: float | None = None
    message: str = ""  # error message
    ended: float = 0.0
    asked: Any = None  # what a question asks
    result: Any = None
    preliminary: Any = None
    result_bytes: int = 0  # the memory it takes, about; the work says it
    version: int = 0  # incremented with every change
    stop: threading.Event = field(default_factory=threading.Event)
    breathe: Callable[[], None] = lambda: None

    @property
    def finished(self) -> bool:
        return self.state in (DONE, FAILED, CANCELLED)

    @property
    def answered(self) -> bool:
        """Whether there is something to show: a preliminary result, or the final one."""
        return self.state == DONE or (self.state == RUNNING and self.preliminary is not None)

    def check(self) -> None:
        if self.stop.is_set():
            raise Cancelled
        self.breathe()

    def begin(self, phase: str, what: str = "") -> None:
        """A phase begins; `what` it is about is said to people."""
        self.phase, self.step = phase, f"{phase.capitalize()} {what}".strip()
        self.done, self.total, self.left_s = 0, 0, None
        self.version += 1
        self.check()

    def progress(self, told: Progress) -> None:
        if told.phase != self.phase:
            self.phase, self.step = told.phase, told.phase.capitalize()
        self.done, self.total, self.unit = told.done, told.total, told.unit
        self.left_s = told.left_s
        self.version += 1
        self.check()

    def answer_so_far(self, result: Any) -> None:
        self.preliminary = result
        self.version += 1
        self.check()


class Jobs:
    """The queue, its thread, and finished jobs. As many may wait and are kept as the limits say."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self.limits = limits
        self._known: dict[str, Job] = {}
        self._work: dict[str, Callable[[Job], Any]] = {}
        self._queue: deque[Job] = deque()
        self._urgent: deque[Job] = deque()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self.closed = False

    def start(self) -> None:
        self.closed = False
        # A daemon thread: the program can exit while a frame is being encoded; the index stays valid.
        self._thread = threading.Thread(target=self._run, name="lastseen-jobs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._change:
            self.closed = True
            for job in self._known.values():
                job.stop.set()
                self._drop(job)
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join(10)

    def submit(
        self,
        kind: str,
        title: str,
        work: Callable[[Job], Any],
        videos: tuple[str, ...] = (),
        *,
        urgent: bool = False,
        client: str = "",
        asked: Any = None,
    ) -> Job:
        """Urgent jobs also run between the batches of other jobs."""
        job = Job(kind, title, videos, client, asked=asked)
        if not urgent:
            job.breathe = self._run_urgent
        with self._change:
            self._check_room(kind, client)
            self._forget_oldest()
            self._known[job.id], self._work[job.id] = job, work
            (self._urgent if urgent else self._queue).append(job)
            self._change.notify_all()
        return job

    def all(self) -> list[Job]:
        with self._change:
            return list(self._known.values())

    def find(self, id: str) -> Job | None:
        with self._change:
            return self._known.get(id)

    def at_work_on(self, video: str) -> Job | None:
        """The running or queued job that indexes a video."""
        return next(
            (j for j in self.all() if j.kind == "index" and video in j.videos and not j.finished), None
        )

    def cancel(self, job: Job) -> None:
        with self._change:
            job.stop.set()
            self._drop(job)

    def forget(self, job: Job) -> None:
        """Nothing is known of a finished job any more."""
        with self._change:
            if job.finished:
                self._known.pop(job.id, None)

    def _check_room(self, kind: str, client: str) -> None:
        if self.closed:
            raise Ending("the server is being shut down; ask again when it runs")
        waiting = [job for job in (*self._queue, *self._urgent) if job.kind == kind]
        if kind == "index":
            if len(waiting) >= self.limits.readings:
                raise TooMany(f"{len(waiting)} videos are waiting to be read; add more when some are done")
        elif len(waiting) >= self.limits.questions:
            raise TooMany(f"{len(waiting)} questions are waiting; ask again in a moment")
        elif client and sum(job.client == client for job in waiting) >= self.limits.questions_of_one:
            raise TooMany("too many of your questions are waiting; ask again in a moment")

    def _drop(self, job: Job) -> None:
        """Take a job that has not begun out of its queue."""
        for queue in (self._queue, self._urgent):
            if job in queue:
                queue.remove(job)
                self._end(job, CANCELLED)

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self.closed or self._urgent or self._queue)
                if self.closed:
                    return
                job = (self._urgent or self._queue).popleft()
            self._do(job)

    def _run_urgent(self) -> None:
        while True:
            with self._change:
                if self.closed or not self._urgent:
                    return
                job = self._urgent.popleft()
            self._do(job)

    def _do(self, job: Job) -> None:
        job.state = RUNNING
        job.version += 1
        state = DONE
        try:
            job.check()
            job.result = self._work[job.id](job)
        except Cancelled:
            state = CANCELLED
        except LastSeenError as error:
            state, job.message = FAILED, str(error)
        except OSError as error:
            log.warning("%s failed: %s", job.title, error)
            state, job.message = FAILED, str(from_system(error))
        except MemoryError:
            state, job.message = FAILED, str(from_memory())
        except Exception:
            log.exception("%s failed", job.title)
            state, job.message = FAILED, "something went wrong inside; the server's log has the details"
        with self._change:
            self._end(job, state)
            self._forget_oldest()
        give_back()

    def _end(self, job: Job, state: str) -> None:
        job.state, job.ended = state, time.monotonic()
        job.preliminary = job.left_s = None
        job.version += 1
        self._work.pop(job.id, None)

    def _forget_oldest(self) -> None:
        finished = sorted((job for job in self._known.values() if job.finished), key=lambda job: job.ended)
        size = sum(job.result_bytes for job in finished)
        while len(finished) > KEPT or (len(finished) > 1 and size > self.limits.results_bytes):
            oldest = finished.pop(0)
            size -= oldest.result_bytes
            del self._known[oldest.id]

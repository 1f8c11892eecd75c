"""Gives cases to worker processes and counts how they end: normally, refused, or not as promised.

A case that takes too long or too much memory is killed with its worker and counted, as one whose worker dies.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from soak.case import NORMAL, REFUSED
from soak.worker import FAILED, IMPOSSIBLE, PREPARE, work

MEMORY_BYTES = 1536 * 2**20  # a case may use, with Python and what the product loads
NAMED = 20  # failures of a kind that the report names
START_S = 120.0  # to start a worker: some load torch
LOOK_S = 0.05  # between two looks at memory


@dataclass
class Row:
    """How the cases of one kind ended."""

    kind: str
    cases: int
    normal: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)  # one line each, in the order of their numbers
    worst_s: float = 0.0
    peak_bytes: int = 0
    seconds: float = 0.0
    skipped: str = ""  # why, if it could not be run

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """What two runs with the same seed have in common."""
        return self.cases, self.normal, self.refused, len(self.failures)


class _Worker:
    def __init__(self, module: str, seed: int, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, module, seed, folder, sys.path))
        self._process.start()
        theirs.close()
        self.number: int | None = None
        self.is_new, self.what, self.since, self._waited_s = True, "", 0.0, 0.0

    def begin(self, number: int) -> None:
        self.number, self.what, self.since = number, "", self.now_s()
        self.connection.send(number)

    def now_s(self) -> float:
        """A clock that stands still while the worker waits for a processor: on a busy machine no case is
        taken for one that hangs."""
        with suppress(OSError, ValueError, IndexError):  # it has just ended, or there is no /proc
            self._waited_s = int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[1]) / 1e9
        return time.monotonic() - self._waited_s

    def memory_bytes(self) -> int:
        with suppress(OSError, ValueError, IndexError):  # it has just ended, or there is no /proc
            pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def stop(self) -> int | None:
        """End it and the programs that it started; its exit status, if it had ended before."""
        if self._process.pid is None:
            return None
        self._process.join(0.2)
        status = self._process.exitcode
        for end in (os.killpg, os.kill):  # the group is not there yet if it has just begun
            with suppress(ProcessLookupError, PermissionError):
                end(self._process.pid, signal.SIGKILL)
        self._process.join()
        self.connection.close()
        return status


def soak(
    kind: Any,
    *,
    seed: int,
    cases: int,
    workers: int,
    folder: Path,
    keep: Path | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> Row:
    """Run the first `cases` cases of a kind (a module); files of failures are moved to `keep`."""
    began = time.monotonic()
    row = Row(kind.NAME, cases)
    run = _Run(kind, seed, folder, row, keep, memory_bytes)
    try:
        run.prepare()
        if not row.skipped and not row.failures:
            run.all(cases, min(workers, cases, getattr(kind, "AT_ONCE", workers)))
    finally:
        run.close()
    row.seconds = time.monotonic() - began
    return row


class _Run:
    def __init__(
        self, kind: Any, seed: int, folder: Path, row: Row, keep: Path | None, memory_bytes: int
    ) -> None:
        self.kind, self.seed, self.folder, self.row, self.keep = kind, seed, folder, row, keep
        self.memory_bytes = memory_bytes
        self.workers: list[_Worker] = []
        self.failed: dict[int, str] = {}

    def prepare(self) -> None:
        worker = self._started()
        worker.begin(PREPARE)
        while worker.number is not None:
            self._look()

    def all(self, cases: int, workers: int) -> None:
        waiting = list(range(cases))[::-1]
        while waiting or any(worker.number is not None for worker in self.workers):
            while waiting and len(self.workers) < workers:
                self._started()
            for worker in self.workers:
                if worker.number is None and waiting:
                    worker.begin(waiting.pop())
            self._look()

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.row.failures = [self.failed[number] for number in sorted(self.failed)]

    def _started(self) -> _Worker:
        self.workers.append(_Worker(self.kind.__name__, self.seed, self.folder))
        return self.workers[-1]

    def _look(self) -> None:
        """Take what workers have to say, and end those that take too much."""
        busy = {worker.connection: worker for worker in self.workers if worker.number is not None}
        ready: list[Any] = wait(list(busy), LOOK_S)
        for worker in busy.values():
            if worker.connection in ready:
                self._listen(worker, worker.connection)
            elif worker.now_s() - worker.since > self._limit_s(worker):
                self._end(worker, f"hang: killed after {self._limit_s(worker):g} s")
            elif worker.memory_bytes() > self.memory_bytes:
                self._end(worker, f"memory: killed at more than {self.memory_bytes >> 20} MiB")

    def _limit_s(self, worker: _Worker) -> float:
        limit_s = 10 * self.kind.LIMIT_S if worker.number == PREPARE else self.kind.LIMIT_S
        return limit_s + START_S if worker.is_new else limit_s

    def _listen(self, worker: _Worker, connection: Connection) -> None:
        try:
            said = connection.recv()
        except (EOFError, OSError):
            status = worker.stop()
            how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
            self._end(worker, f"crash: {how}")
            return
        if isinstance(said, str):
            worker.what, worker.since, worker.is_new = said, worker.now_s(), False
            return
        outcome, what, peak_bytes, seconds = said
        self.row.peak_bytes = max(self.row.peak_bytes, peak_bytes)
        if worker.number != PREPARE:
            self.row.worst_s = max(self.row.worst_s, seconds)
        if peak_bytes > self.memory_bytes:  # too short to be seen while it ran
            self._end(worker, f"memory: {peak_bytes >> 20} MiB, more than {self.memory_bytes >> 20}")
            return
        if outcome == FAILED:
            self._fail(worker, what)
        elif outcome == IMPOSSIBLE:
            self.row.skipped = what
        elif worker.number != PREPARE:
            self.row.normal += outcome == NORMAL
            self.row.refused += outcome == REFUSED
        worker.number, worker.is_new = None, False

    def _end(self, worker: _Worker, why: str) -> None:
        self._fail(worker, why)
        self.workers.remove(worker)
        if not worker.connection.closed:
            worker.stop()
        worker.number = None

    def _fail(self, worker: _Worker, what: str) -> None:
        number = worker.number
        assert number is not None
        name = "preparing" if number == PREPARE else str(number)
        case = f" ({worker.what})" if worker.what else ""
        self.failed[number] = f"seed {self.seed}, {self.row.kind} {name}{case}: {what}"
        left = self.folder / f"{self.row.kind}-{number}"
        if self.keep is not None and left.is_dir() and len(self.failed) <= NAMED:
            self.keep.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.keep / left.name, ignore_errors=True)
            shutil.move(left, self.keep / left.name)
        shutil.rmtree(left, ignore_errors=True)

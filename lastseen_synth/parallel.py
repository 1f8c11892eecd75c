"""Rendering jobs in several processes, because furnishing a room uses one CPU core."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context

import torch

from lastseen.errors import SynthError
from lastseen_synth.assets import AssetLibrary

OpenLibrary = Callable[[], AssetLibrary]
Job = Callable[[AssetLibrary, int], None]

_library: AssetLibrary | None = None  # of this worker process: opened once, used for all its jobs


def run_jobs(
    job: Job,
    numbers: Sequence[int],
    open_library: OpenLibrary,
    *,
    workers: int = 1,
    until_s: float | None = None,
) -> Iterator[int]:
    """Calls `job(library, number)` for each number in `workers` processes; yields numbers as they are done.

    `job` and `open_library` must be picklable: functions of a module, or `functools.partial` of them. No job
    is started after the time `until_s` (of time.monotonic).
    """
    if not numbers:
        return
    if workers == 1:
        library = open_library()
        for number in numbers:
            if until_s is not None and time.monotonic() > until_s:
                return
            job(library, number)
            yield number
        return
    pending: set[Future[int]] = set()
    waiting = iter(numbers)
    # A forked process cannot use the CUDA context it inherits.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start, (open_library,)) as pool:
        try:
            while True:
                while len(pending) < 2 * workers and (until_s is None or time.monotonic() < until_s):
                    upcoming = next(waiting, None)
                    if upcoming is None:
                        break
                    pending.add(pool.submit(_work, job, upcoming))
                if not pending:
                    return
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    try:
                        number = future.result()
                    except torch.OutOfMemoryError:
                        raise SynthError(
                            f"the GPU's memory is too small for {workers} processes that render: use fewer"
                        ) from None
                    yield number
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start(open_library: OpenLibrary) -> None:
    global _library
    torch.set_num_threads(1)
    _library = open_library()


def _work(job: Job, number: int) -> int:
    assert _library is not None
    job(_library, number)
    return number

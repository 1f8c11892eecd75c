"""Prefetching: decode in a thread while the model computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

LOOK_S = 0.1  # how often a waiting producer checks whether the consumer has stopped


def done_ahead(
    items: Generator[T, None, None], work: Callable[[T], R], *, depth: int, workers: int
) -> Generator[R, None, None]:
    """work(item) for each item, in order, of which up to `depth` wait to be asked for.

    One thread goes through the items, `workers` others do the work. What either raises comes out here, in its
    place. Whatever ends the asking, a break or Ctrl-C, also ends the threads.
    """
    waiting: queue.Queue[Future[R] | BaseException | None] = queue.Queue(depth)
    stop = threading.Event()
    with ThreadPoolExecutor(workers) as pool:
        reader = threading.Thread(target=_read, args=(items, work, pool, waiting, stop), daemon=True)
        reader.start()
        try:
            while True:
                next_one = waiting.get()
                if next_one is None:
                    return
                if isinstance(next_one, BaseException):
                    raise next_one
                yield next_one.result()
        finally:
            stop.set()
            reader.join()
            pool.shutdown(cancel_futures=True)


def _read(
    items: Generator[T, None, None],
    work: Callable[[T], R],
    pool: ThreadPoolExecutor,
    waiting: queue.Queue[Future[R] | BaseException | None],
    stop: threading.Event,
) -> None:
    def put(something: Future[R] | BaseException | None) -> None:
        while not stop.is_set():
            try:
                waiting.put(something, timeout=LOOK_S)
                return
            except queue.Full:
                continue

    try:
        for item in items:
            if stop.is_set():
                break
            put(pool.submit(work, item))
    except BaseException as error:
        put(error)
    else:
        put(None)
    finally:
        items.close()  # here: a decoder is closed by the thread that used it

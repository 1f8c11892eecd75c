"""Uploaded pictures of things: kept in a folder, as many and as long as the limits say."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lastseen.errors import QueryError
from lastseen.query import read_picture
from lastseen.web.errors import Missing, from_memory
from lastseen.web.limits import Limits


@dataclass
class _Kept:
    path: Path
    size: int
    used: float  # monotonic clock


class Pictures:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # the least recently used first
        self._lock = threading.Lock()

    def keep(self, path: Path) -> str:
        """Its id from now on. The file is in a folder of its own, which is removed with it."""
        id = uuid.uuid4().hex[:16]
        kept = _Kept(path, path.stat().st_size, time.monotonic())
        with self._lock:
            self._kept[id] = kept
        self.sweep()
        return id

    def read(self, id: str) -> np.ndarray:
        with self._lock:
            kept = self._kept.get(id)
            if kept is not None:
                kept.used = time.monotonic()
                self._kept.move_to_end(id)
        if kept is not None:
            try:
                return pixels(kept.path)
            except QueryError:
                if kept.path.exists():
                    raise
        raise Missing("the picture is no longer there; give it again")

    def sweep(self) -> None:
        """Remove what is over the limits, or was not used for long."""
        limits, now, old = self.limits, time.monotonic(), []
        with self._lock:
            size = sum(kept.size for kept in self._kept.values())
            for id, kept in list(self._kept.items()):
                is_over = len(self._kept) > limits.pictures or size > limits.pictures_bytes
                if not (is_over and len(self._kept) > 1) and now - kept.used <= limits.picture_age_s:
                    break
                size -= kept.size
                old.append(self._kept.pop(id))
        for kept in old:
            shutil.rmtree(kept.path.parent, ignore_errors=True)


def pixels(path: Path) -> np.ndarray:
    """As `read_picture`; errors name the file, not its folder."""
    try:
        return read_picture(path)
    except QueryError as error:
        raise QueryError(str(error).replace(str(path), path.name)) from None
    except MemoryError:
        raise from_memory() from None

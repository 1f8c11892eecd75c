"""Runs cases in a process of its own, one at a time, as the harness sends their numbers."""

from __future__ import annotations

import importlib
import os
import re
import resource
import shutil
import sys
import time
import traceback
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lastseen.errors import LastSeenError
from soak.case import NORMAL, REFUSED, Broken, Case, Impossible

PREPARE = -1  # instead of a case's number: make what all cases need
FAILED, IMPOSSIBLE = "failed", "impossible"
BACKSTOP_BYTES = 8 * 2**30  # more than a case may use: a machine must survive a case that asks for everything


def work(connection: Connection, module: str, seed: int, folder: Path, paths: list[str]) -> None:
    """Answers each number with (outcome, what, peak memory in bytes, seconds)."""
    os.setpgid(0, 0)  # the programs that a case starts end with it
    sys.path[:] = paths
    warnings.simplefilter("ignore")  # they are for developers; errors are what counts here
    _limit_memory()
    kind = importlib.import_module(module)
    while (number := connection.recv()) is not None:
        began = time.monotonic()
        if number == PREPARE:
            outcome, what = _prepared(kind, folder / "prepared")
        else:
            scratch = folder / f"{kind.NAME}-{number}"
            scratch.mkdir()
            case = Case(kind.NAME, seed, number, folder / "prepared", scratch, connection.send)
            outcome, what = _outcome(kind, case)
            if outcome != FAILED:
                shutil.rmtree(scratch, ignore_errors=True)
        connection.send((outcome, what, peak_bytes(), time.monotonic() - began))


def _prepared(kind: Any, folder: Path) -> tuple[str, str]:
    folder.mkdir()
    try:
        kind.prepare(folder)
    except Impossible as reason:
        return IMPOSSIBLE, str(reason)
    except Exception as error:
        return FAILED, f"preparing: {_described(error)}"
    return NORMAL, ""


def _outcome(kind: Any, case: Case) -> tuple[str, str]:
    try:
        try:
            return kind.run(case), ""
        except LastSeenError as error:
            case.check_error(error)
            return REFUSED, ""
    except Broken as error:
        return FAILED, str(error)
    except Exception as error:  # what the command line would call an internal error
        return FAILED, _described(error)


def _described(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "lastseen" in Path(frame.filename).parts] or frames
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__} at {where}: {lines[0]:.200}"


def peak_bytes() -> int:
    """The most memory that this process, or a program that it waited for, ever held."""
    programs = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    # Not what getrusage says of this process: that counts what its parent held before this one began.
    with suppress(OSError):
        match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return max(programs, int(match[1]) * 1024 if match else 0)
    return programs


def _limit_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > BACKSTOP_BYTES:
        resource.setrlimit(resource.RLIMIT_DATA, (BACKSTOP_BYTES, hard))

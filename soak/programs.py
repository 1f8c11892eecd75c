"""Real `lastseen` processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import lastseen
from soak.case import NORMAL, REFUSED, Broken, check_line

# The copies of the product and of the soak that run here, also in other processes.
SOURCES = dict.fromkeys(str(Path(file).parents[1]) for file in (lastseen.__file__, __file__))
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(SOURCES), "TERM": "dumb"}


def started(*words: object, log: Path, module: str = "lastseen") -> subprocess.Popen[bytes]:
    """`lastseen WORDS` with what it says in LOG.out and LOG.err."""
    with log.with_suffix(".out").open("wb") as out, log.with_suffix(".err").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", module, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **ENVIRONMENT},
        )


def ended(process: subprocess.Popen[bytes], log: Path, limit_s: float) -> tuple[int, str, str]:
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Broken(f"hang: {log.name} took over {limit_s:g} s") from None
    texts = [log.with_suffix(ending).read_text(errors="replace") for ending in (".out", ".err")]
    return status, *texts


def command(*words: object, log: Path, limit_s: float = 60.0, outputs: int = 1) -> str:
    """NORMAL (exit status 0 or 1), or REFUSED with status 2 and one line, at most one for each output."""
    status, _, err = ended(started(*words, log=log), log, limit_s)
    said = f"lastseen {words[0]} {words[1]}"
    lines = [line for line in err.splitlines() if not line.startswith(("note: ", "Wrote "))]
    if status not in (0, 1, 2) or "Traceback" in err or "internal error" in err:
        raise Broken(f"{said}: exit status {status}: {err[-300:]!r}")
    if status == 2:
        for line in lines:
            check_line(line, log.parent)
        if not 1 <= len(lines) <= outputs:
            raise Broken(f"{said}: {len(lines)} lines: {err[-300:]!r}")
        return REFUSED
    return NORMAL


def wait_until(is_so: Callable[[], bool], limit_s: float, *, every_s: float = 0.005) -> bool:
    ends = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > ends:
            return False
        time.sleep(every_s)
    return True

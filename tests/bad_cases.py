"""A kind of the soak whose cases go wrong in every way that the harness must notice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from lastseen.errors import VideoError
from soak.case import NORMAL, Broken, Case, Impossible

NAME = "bad"
LIMIT_S = 6.0
PATIENCE_S = 600
MEMORY_BYTES = 300 * 2**20


def prepare(folder: Path) -> None:
    if folder.with_name("impossible").exists():
        raise Impossible("not on this machine")
    (folder / "sound.txt").write_text("sound")


def hang(case: Case) -> str:
    time.sleep(PATIENCE_S)
    return NORMAL


def hang_with_a_program(case: Case) -> str:
    with subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({PATIENCE_S})"]) as program:
        (case.prepared / "child.pid").write_text(str(program.pid))
    return NORMAL


def crash(case: Case) -> str:
    os.kill(os.getpid(), signal.SIGSEGV)
    return NORMAL


def leave(case: Case) -> str:
    os._exit(3)


def fill_memory(case: Case) -> str:
    held = b"x" * (MEMORY_BYTES)
    time.sleep(PATIENCE_S)
    return NORMAL if held else ""


def fill_memory_for_a_moment(case: Case) -> str:
    return NORMAL if len(b"x" * (MEMORY_BYTES)) else ""


def wrong_exception(case: Case) -> str:
    return str({}["no such key"])


def two_lines(case: Case) -> str:
    raise VideoError("one line\nand another")


def long_line(case: Case) -> str:
    raise VideoError("long " * 200)


def broken(case: Case) -> str:
    (case.scratch / "kept.txt").write_text("for whoever looks into it")
    raise Broken("more frames than announced")


def refused(case: Case) -> str:
    raise VideoError(f"{case.scratch / 'v.mp4'}: is no video; give a video")


def sound(case: Case) -> str:
    assert (case.prepared / "sound.txt").read_text() == "sound"
    assert not list(case.scratch.iterdir())
    return NORMAL


WAYS = (
    sound,
    hang,
    sound,
    crash,
    leave,
    fill_memory,
    wrong_exception,
    two_lines,
    long_line,
    broken,
    refused,
    sound,
    hang_with_a_program,
    fill_memory_for_a_moment,
    sound,
)


def run(case: Case) -> str:
    way = WAYS[case.number]
    case.say(way.__name__)
    return way(case)

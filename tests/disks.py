"""Disks that are full or can only be read, for tests: real ones, mounted for the test alone."""

import os
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest


def mount(*options: str) -> None:
    done = subprocess.run(["mount", *options], capture_output=True, check=False) if is_root() else None
    if done is None or done.returncode:
        pytest.skip("only root can mount a small or a read-only disk")


def is_root() -> bool:
    return os.geteuid() == 0


@contextmanager
def mounted(folder: Path, *options: str):
    mount(*options, str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def only_readable(folder: Path):
    """A folder in which nothing can be written: mounted so if root, to whom modes do not apply."""
    with ExitStack() as stack:
        if is_root():
            stack.enter_context(mounted(folder, "--bind", str(folder)))
            mount("-o", "remount,ro,bind", str(folder))
        else:
            for path in [folder, *folder.rglob("*")]:
                mode = path.stat().st_mode
                stack.callback(path.chmod, mode)
                path.chmod(mode & 0o555)
        yield


def fill(disk: Path) -> None:
    with (disk / "other people's files").open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue

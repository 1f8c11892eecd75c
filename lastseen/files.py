"""Output files, written atomically: complete or not at all. And where a user's own files are kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lastseen.errors import OutputError


def check_writable(path: str | os.PathLike[str], suffixes: tuple[str, ...] = ()) -> None:
    """Raise OutputError if an output cannot be written; call it before long work."""
    target = Path(path)
    if target.is_dir():
        raise OutputError(f"{target} is a folder; give the name of a file to write")
    if not target.parent.is_dir():
        raise OutputError(f"{target}: the folder {target.parent} does not exist; create it first")
    if not os.access(target.parent, os.W_OK):
        raise OutputError(f"{target}: the folder {target.parent} cannot be written to")
    if suffixes and target.suffix.lower() not in suffixes:
        raise OutputError(f"{target}: choose a name that ends in {' or '.join(suffixes)}")


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it on success and removed on failure."""
    target = Path(path)
    building = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        yield building
        building.replace(target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        building.unlink(missing_ok=True)


def user_folder(name: str) -> Path:
    """A folder of this name in the user's data directory, by the custom of the operating system."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "lastseen" / name
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "lastseen" / name
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "lastseen" / name

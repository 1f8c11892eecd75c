"""Output files, written atomically: complete or not at all. And where a user's own files are kept."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lastseen.errors import OutputError

MOST_STEM = 40  # characters of a name that a temporary file keeps: with more the whole can become too long
StrPath = str | os.PathLike[str]
# Control characters other than tabs and the ends of lines, and what reverses the direction of text;
# surrogates stand for bytes of names that are no text.
NOT_PRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)


def printable(text: str) -> str:
    """The text with characters that would change how it is shown as escapes, like \\x1b."""
    return NOT_PRINTABLE.sub(lambda match: _escape(ord(match[0])), text)


def one_line(text: str) -> str:
    """Printable, and without ends of lines: a name inside a line, or an error."""
    return re.sub("[\r\n]", lambda match: _escape(ord(match[0])), printable(text))


def _escape(code: int) -> str:
    known = {ord("\n"): "\\n", ord("\r"): "\\r"}
    return known.get(code, f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def check_writable(path: StrPath, suffixes: tuple[str, ...] = ()) -> None:
    """Raise OutputError if an output cannot be written; call it before long work."""
    target = Path(path)
    kind = _kind_of(target)
    if stat.S_ISDIR(kind):
        raise OutputError(f"{target} is a folder; give the name of a file to write")
    if kind and not stat.S_ISREG(kind):  # its place would be taken by a file
        raise OutputError(f"{target} is a pipe or a device, not a file; give the name of a file to write")
    if not target.parent.is_dir():
        raise OutputError(f"{target}: the folder {target.parent} does not exist; create it first")
    if not os.access(target.parent, os.W_OK):
        raise OutputError(f"{target}: the folder {target.parent} cannot be written to")
    if suffixes and target.suffix.lower() not in suffixes:
        raise OutputError(f"{target}: choose a name that ends in {' or '.join(suffixes)}")


def _kind_of(target: Path) -> int:
    """Its `st_mode`; 0 if there is nothing."""
    try:
        return target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (OSError, ValueError) as error:  # too long, or not a name at all
        reason = str(getattr(error, "strerror", None) or error).lower()
        raise OutputError(f"{target} cannot be written: {reason}; choose another name") from None


def check_apart(outputs: Iterable[tuple[str, StrPath]], inputs: Iterable[StrPath] = ()) -> None:
    """Raise OutputError if writing an output would replace an input, or an output written before.

    Outputs have a name for messages, such as the option that gave them ("" for none). Files are the same by
    whatever name: links of both kinds count.
    """
    read = {key: path for path in inputs for key in _same_for_all_names(path)}
    written: dict[object, str] = {}
    for option, path in outputs:
        called = f"{option} {os.fspath(path)}".strip()
        keys = _same_for_all_names(path)
        for key in keys:
            if key in read:
                raise OutputError(f"{called} is the same file as the input {read[key]}; choose another name")
            if key in written:
                raise OutputError(f"{called} is the same file as {written[key]}; choose another name")
        written.update(dict.fromkeys(keys, called))


def _same_for_all_names(path: StrPath) -> list[object]:
    resolved = os.path.normcase(os.path.realpath(path))
    try:
        found = Path(path).stat()
    except (OSError, ValueError):  # not there yet, or a stream's address
        return [resolved]
    return [resolved, (found.st_dev, found.st_ino)]


@contextmanager
def whole_file(path: StrPath) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it on success and removed on failure."""
    target = Path(path)
    building = target.with_name(f".{target.stem[:MOST_STEM]}.{os.getpid()}.part{target.suffix}")
    try:
        yield building
        sync(building)
        building.replace(target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        building.unlink(missing_ok=True)


def write_whole(path: StrPath, content: bytes) -> None:
    """A file with this content, or none."""
    with whole_file(path) as building:
        building.write_bytes(content)
        if building.stat().st_size != len(content):
            raise OSError("only a part of it could be written; check the disk")


def regular_bytes(path: Path, most: int) -> bytes:
    """The content of an input; OSError unless it is a regular file of at most so many bytes.

    A pipe may wait for its writer for ever, and a device may have no end.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EINVAL, "is a pipe or a device, not a file")
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"is larger than {most >> 20} MiB")
    return path.read_bytes()


def sync(path: Path) -> None:
    """Have a file on disk: some file systems tell only then that there was no room for it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def empty_folder(folder: Path) -> str:
    """Remove all in a folder; returns what could not be removed and why, as one line."""
    stayed: list[str] = []
    for below, folders, files in os.walk(folder, topdown=False):
        for name in [*files, *folders]:
            path = Path(below) / name
            try:
                path.unlink() if name in files or path.is_symlink() else path.rmdir()
            except FileNotFoundError:
                continue  # another process removes it, too
            except OSError as error:
                stayed.append(f"{path} ({error.strerror})")
    return ", ".join(stayed[:3]) + (f" and {len(stayed) - 3} more" if len(stayed) > 3 else "")


def user_folder(name: str) -> Path:
    """A folder of this name in the user's data directory, by the custom of the operating system."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "lastseen" / name
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "lastseen" / name
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "lastseen" / name

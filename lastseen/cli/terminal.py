"""What is printed: text only, whatever the names of files and the words of errors contain.

A terminal obeys control characters: a file's name could move the cursor, hide or forge lines, or set the
title. They are shown as escapes (\\x1b), and so are bytes of names that are no text in this encoding.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from lastseen.files import one_line, printable


class _Printable:
    """A text stream that shows control characters instead of obeying them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(printable(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable_streams() -> Iterator[None]:
    """Within it, sys.stdout and sys.stderr are printable."""
    before = sys.stdout, sys.stderr
    make_printable()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def make_printable() -> None:
    """Wrap sys.stdout and sys.stderr as they are now."""
    sys.stdout, sys.stderr = (cast("TextIO", _Printable(stream)) for stream in (sys.stdout, sys.stderr))


def complain(message: object) -> None:
    """One line on stderr."""
    print(f"lastseen: {one_line(str(message))}", file=sys.stderr)


def raw(stream: TextIO) -> TextIO:
    """The stream itself, for what may move the cursor: the progress bar."""
    return stream._stream if isinstance(stream, _Printable) else stream

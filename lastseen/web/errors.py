"""What a request can be refused for, and the status of the answer."""

from __future__ import annotations

import errno
import os

from lastseen.errors import IndexStoreError, LastSeenError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) if os.name == "posix" else (errno.ENOSPC,)


class Refused(LastSeenError):
    """403"""


class Missing(LastSeenError):
    """404"""


class Busy(LastSeenError):
    """409"""


class TooLarge(LastSeenError):
    """413"""


class TooMany(LastSeenError):
    """429: later there may be room"""


class Ending(LastSeenError):
    """503: the server is being shut down"""


class DiskFull(LastSeenError):
    """507"""


STATUS: dict[type[LastSeenError], int] = {
    Refused: 403,
    Missing: 404,
    Busy: 409,
    IndexStoreError: 409,
    TooLarge: 413,
    TooMany: 429,
    Ending: 503,
    DiskFull: 507,
    LastSeenError: 422,
}
RETRY_S = 5  # what TooMany and Ending say in Retry-After


def status_of(error: LastSeenError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def from_system(error: OSError) -> LastSeenError:
    """What the operating system refused, in one line that names no path of this machine."""
    if error.errno in NO_ROOM:
        return DiskFull("the disk is full; free some space and try again")
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Missing("a file went away meanwhile; look at the list of videos again")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooMany("too many files are open; try again in a moment")
    return Busy(f"a file cannot be used: {str(error.strerror or error).lower()}; try again")


def from_memory() -> LastSeenError:
    return DiskFull("there is not enough memory for this; use a smaller picture or video")


def plain(text: str) -> str:
    """Replace what UTF-8 cannot encode: requests and file names may contain lone surrogates."""
    return text.encode("utf-8", "replace").decode()

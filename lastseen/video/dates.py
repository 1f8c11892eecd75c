"""Which recording times can be believed: cameras without a clock write 1904, 1970 or the far future."""

from __future__ import annotations

import time
from datetime import datetime

# What a video's date goes by: somebody said it or the clock while a stream ran, the file's metadata, or when
# the file was last written, which copying changes.
SAID, CONTAINER, FILE_TIME = "recorded", "container", "file time"
EARLIEST_S = 315_532_800.0  # 1980-01-01 UTC, in seconds since 1970
AHEAD_S = 86_400.0  # a clock in another time zone may be this far ahead
_YEARS_1_TO_9999_S = -62_135_510_400.0, 253_402_214_400.0  # less a day at either end, for time zones


def believable(time_s: float) -> bool:
    """Whether a video may have been recorded then; `time_s` counts from 1970."""
    return EARLIEST_S <= time_s <= time.time() + AHEAD_S


def local(time_s: float) -> datetime:
    """Local date and time; the nearest that can be written if the year has none."""
    first, last = _YEARS_1_TO_9999_S
    try:
        return datetime.fromtimestamp(min(max(time_s, first), last)).astimezone()
    except (OverflowError, OSError, ValueError):  # NaN, or a year that the system cannot convert
        return datetime.fromtimestamp(0.0).astimezone()

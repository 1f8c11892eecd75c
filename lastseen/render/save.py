"""Write an answer as what the ending of a name says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lastseen.answer import Answer
from lastseen.errors import OutputError
from lastseen.files import check_writable
from lastseen.formats import FORMATS, write_answer
from lastseen.render.film import write_video
from lastseen.render.report import write_report
from lastseen.render.still import write_picture

DRAWN: dict[str, Callable[[Any, Answer], None]] = {
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".webp"), write_picture),
    ".mp4": write_video,
    **dict.fromkeys((".html", ".htm"), write_report),
}


def save_answer(path: str | os.PathLike[str], answer: Answer) -> None:
    """A picture, a video, a report, or one of `lastseen.formats`."""
    check_writable(path)
    name = Path(path).name.lower()
    write = DRAWN.get(Path(name).suffix)
    of_formats = [ending for known in FORMATS.values() for ending in known.endings]
    if write is None and not name.endswith(tuple(of_formats)):
        raise OutputError(f"{path}: choose a name that ends in {', '.join([*DRAWN, *of_formats])}")
    (write or write_answer)(path, answer)

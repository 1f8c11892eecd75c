"""Export answers to the file formats of other programs, one module per family of formats.

    write_answer("walk.xml", answer)              ->  CVAT, by the ending
    write_answer("walk.json", answer, "coco")     ->  COCO, by name

All formats are text. What each one holds is in docs/formats.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from lastseen.errors import OutputError

if TYPE_CHECKING:
    from lastseen.answer import Answer


@dataclass(frozen=True)
class Format:
    name: str
    endings: tuple[str, ...]  # of file names that mean it
    about: str
    module: str  # in this package; loaded when first used, so that `--help` waits for nothing
    function: str  # Answer -> text


FORMATS = {
    known.name: known
    for known in (
        Format("json", (".json",), "what 'lastseen find --json' prints", "answer_json", "answer_json"),
        Format("csv", (".csv",), "a table, one line a box", "table", "table"),
        Format("coco", (".coco.json",), "COCO annotations for video frames", "coco", "coco"),
        Format("coco-results", (".results.json",), "COCO detection results", "coco", "coco_results"),
        Format("mot", (".txt",), "MOT Challenge", "mot", "mot"),
        Format("vtt", (".vtt",), "WebVTT chapters", "chapters", "chapters"),
        Format("label-studio", (".ls.json",), "Label Studio tasks", "label_studio", "label_studio"),
        Format("cvat", (".xml",), "CVAT for video 1.1", "cvat", "cvat"),
    )
}


def write_answer(path: str | os.PathLike[str], answer: Answer, format: str | None = None) -> None:
    """Write an answer in the format named, or else the one that the file's name ends in."""
    from lastseen.files import check_apart, write_whole

    chosen = find_format(format, path)
    check_apart([("", path)], [answer.video.path])
    write_whole(path, format_answer(answer, chosen.name).encode())


def format_answer(answer: Answer, format: str) -> str:
    """The text of an answer's file."""
    chosen = find_format(format)
    return str(getattr(import_module(f"lastseen.formats.{chosen.module}"), chosen.function)(answer))


def find_format(name: str | None, path: str | os.PathLike[str] | None = None) -> Format:
    """The format of this name, or else the one for the file's ending."""
    if name is not None:
        if name not in FORMATS:
            raise OutputError(f"unknown format {name!r}; choose one of {', '.join(FORMATS)}")
        return FORMATS[name]
    file = Path(path or "").name.lower()
    endings = {ending: known for known in FORMATS.values() for ending in known.endings}
    for ending in sorted(endings, key=len, reverse=True):  # .coco.json before .json
        if file.endswith(ending):
            return endings[ending]
    known = ", ".join(endings)
    raise OutputError(
        f"{path}: its ending names no format; choose one of {known}, or name one to 'lastseen export --to'"
    )

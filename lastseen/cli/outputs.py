"""Files that `lastseen find` can write in addition to printing the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lastseen.answer import Answer

PICTURES, FILMS, PAGES = (".jpg", ".jpeg", ".png", ".webp"), (".mp4",), (".html", ".htm")

Figure = Annotated[
    Path | None,
    typer.Option(metavar="OUT.png", help="Write the paper's figure: query, frames, score over time."),
]
Filmstrip = Annotated[
    Path | None, typer.Option(metavar="OUT.jpg", help="Write the moments of the track side by side.")
]
Cutout = Annotated[
    Path | None,
    typer.Option(metavar="OUT.mp4", help="Write that part of the video as it was, without boxes."),
]
Report = Annotated[
    Path | None, typer.Option(metavar="OUT.html", help="Write a page with everything in it, in one file.")
]
Save = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="OUT",
        help="Write the answer for other programs, by its ending: .json .csv .xml (CVAT) .txt (MOT) .vtt "
        ".coco.json .ls.json; repeatable.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Paths of the files to write; `check` before the search, `write` after it."""

    figure: Path | None = None
    filmstrip: Path | None = None
    cutout: Path | None = None
    report: Path | None = None
    save: Sequence[Path] = field(default=())

    def check(self) -> None:
        from lastseen.files import check_writable
        from lastseen.formats import find_format

        wanted = (
            (self.figure, PICTURES),
            (self.filmstrip, PICTURES),
            (self.cutout, FILMS),
            (self.report, PAGES),
        )
        for path, endings in wanted:
            if path is not None:
                check_writable(path, endings)
        for path in self.save:
            find_format(None, path)
            check_writable(path)

    def write(self, answer: Answer, *, every: bool = True) -> None:
        """Pictures show the last sighting; data files contain that one, or `every` one."""
        from lastseen.formats import write_answer
        from lastseen.render import write_cutout, write_figure, write_filmstrip, write_report

        if self.figure is not None:
            write_figure(self.figure, answer)
        if self.report is not None:
            write_report(self.report, answer)
        if answer.found and self.filmstrip is not None:
            write_filmstrip(self.filmstrip, answer)
        if answer.found and self.cutout is not None:
            write_cutout(self.cutout, answer)
        for path in self.save:
            write_answer(path, answer if every else answer.only_last())

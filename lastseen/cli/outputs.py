"""Files that `lastseen find` can write in addition to printing the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastseen.errors import LastSeenError

if TYPE_CHECKING:
    from lastseen.answer import Answer

Original = Callable[[], "Answer"]  # the answer with the video itself
PICTURES, FILMS, PAGES = (".jpg", ".jpeg", ".png", ".webp"), (".mp4",), (".html", ".htm")
ENDINGS = {
    "--picture": PICTURES,
    "--video": FILMS,
    "--figure": PICTURES,
    "--report": PAGES,
    "--filmstrip": PICTURES,
    "--cutout": FILMS,
}
ALSO_OF_GUESSES = ("--figure", "--report")  # the others show only what was seen

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
    """Paths of the files to write; `check` and `check_apart` before the search, `write` after it."""

    picture: Path | None = None
    video: Path | None = None
    figure: Path | None = None
    report: Path | None = None
    filmstrip: Path | None = None
    cutout: Path | None = None
    save: Sequence[Path] = field(default=())

    @property
    def wanted(self) -> bool:
        return bool(self._named())

    def check(self) -> None:
        from lastseen.files import check_writable
        from lastseen.formats import find_format

        for option, path in self._named():
            if option == "--save":
                find_format(None, path)
            check_writable(path, ENDINGS.get(option, ()))

    def check_apart(self, inputs: Iterable[Path]) -> None:
        """Raise OutputError if one is an input, or another output."""
        from lastseen.files import check_apart

        check_apart(self._named(), inputs)

    def write(self, answer: Answer, *, every: bool = True, original: Original | None = None) -> list[str]:
        """Write all that can be written, and return why the others could not be, a line each.

        Pictures show the last sighting; data files contain that one, or `every` one. `original` opens the
        video to draw on where the answer has only facts about it.
        """
        from lastseen.formats import write_answer

        failures: dict[str, None] = {}  # a missing video is told once, not for every picture
        for option, path in self._named():
            try:
                if option == "--save":
                    write_answer(path, answer if every else answer.only_last())
                elif answer.found or option in ALSO_OF_GUESSES:
                    _draw(option, path, answer if original is None else original())
            except LastSeenError as error:
                failures[str(error)] = None
        return list(failures)

    def _named(self) -> list[tuple[str, Path]]:
        """Each output with its option."""
        single = [(option, getattr(self, option.removeprefix("--"))) for option in ENDINGS]
        return [
            *((option, path) for option, path in single if path is not None),
            *(("--save", path) for path in self.save),
        ]


def _draw(option: str, path: Path, answer: Answer) -> None:
    from lastseen import render

    {
        "--picture": render.write_picture,
        "--video": render.write_video,
        "--figure": render.write_figure,
        "--report": render.write_report,
        "--filmstrip": render.write_filmstrip,
        "--cutout": render.write_cutout,
    }[option](path, answer)

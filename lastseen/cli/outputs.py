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
ONLY_OF_SIGHTINGS = ("--video", "--filmstrip", "--cutout")  # the others show the best guess, and say so

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


@dataclass(frozen=True)
class Written:
    """Which files were written, and why the others were not, a line each."""

    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # of what there was nothing to show, for example
    failures: list[str] = field(default_factory=list)

    def said(self) -> str:
        """What becomes of every file that was asked for, except for failures."""
        named = [f"Wrote {', '.join(map(str, self.files))}."] if self.files else []
        return "\n".join([*named, *self.notes])


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

    def write(self, answer: Answer, *, every: bool = True, original: Original | None = None) -> Written:
        """Write all that can be written.

        Pictures show the last sighting; data files contain that one, or `every` one. `original` opens the
        video to draw on where the answer has only facts about it.
        """
        from lastseen.formats import write_answer

        written = Written()
        for option, path in self._named():
            try:
                if option == "--save":
                    write_answer(path, answer if every else answer.only_last())
                elif why := _nothing_to_show(option, answer):
                    written.notes.append(f"{path} was not written: {why}.")
                    continue
                else:
                    _draw(option, path, answer if original is None else original())
                written.files.append(path)
            except LastSeenError as error:
                if str(error) not in written.failures:  # a missing video is told once, not for every picture
                    written.failures.append(str(error))
        return written

    def _named(self) -> list[tuple[str, Path]]:
        """Each output with its option."""
        single = [(option, getattr(self, option.removeprefix("--"))) for option in ENDINGS]
        return [
            *((option, path) for option, path in single if path is not None),
            *(("--save", path) for path in self.save),
        ]


def _nothing_to_show(option: str, answer: Answer) -> str:
    if option in ONLY_OF_SIGHTINGS and not answer.found:
        return "the thing was not seen"
    if option == "--picture" and not answer.shown:
        return "the thing was not seen, and there is not even a guess"
    return ""


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

"""lastseen export: convert an answer to other file formats."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lastseen.errors import TrackError
from lastseen.formats import FORMATS

STREAM = Path("-")


def _names(incomplete: str) -> list[tuple[str, str]]:
    return [(name, known.about) for name, known in FORMATS.items() if name.startswith(incomplete)]


def export(
    answer: Annotated[
        Path, typer.Argument(metavar="ANSWER.json", help="What 'lastseen find --json' printed; - is stdin.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; - is stdout.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            autocompletion=_names,
            help=f"{', '.join(FORMATS)} (default: by OUT's ending).",
        ),
    ] = None,
    video: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The video, if it moved or the answer does not tell enough of it."),
    ] = None,
    label: Annotated[str, typer.Option(metavar="NAME", help="What to call the thing.")] = "thing",
) -> None:
    """Write an answer for annotation tools, evaluators or players.

    Example: lastseen find keys.jpg walk.mp4 --json > answer.json; lastseen export answer.json walk.xml

    Formats: docs/formats.md.
    """
    from lastseen.files import check_apart, check_writable
    from lastseen.formats import find_format, format_answer, write_answer
    from lastseen.formats.answer_json import parse_answer
    from lastseen.video import Video

    chosen = find_format("json" if to is None and out == STREAM else to, out)
    if out != STREAM:
        check_writable(out)
        check_apart([("", out)], [path for path in (answer, video) if path is not None and path != STREAM])
    text = _read(answer)
    source = Video(video, allow_truncated=True) if video is not None else None
    try:
        found = replace(parse_answer(text, source), label=label)
    except TrackError as error:
        raise TrackError(f"{answer}: {error}") from None
    if not found.sightings:
        print("note: nothing was found, so the file has no boxes", file=sys.stderr)
    if out == STREAM:
        sys.stdout.write(format_answer(found, chosen.name))
        return
    write_answer(out, found, chosen.name)


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if path == STREAM else path.read_text(encoding="utf-8")
    except OSError as error:
        raise TrackError(f"{path}: {str(error.strerror).lower()}; give the JSON of an answer") from None
    except UnicodeDecodeError:
        raise TrackError(f"{path}: not text; give the JSON of an answer") from None

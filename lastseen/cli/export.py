"""lastseen export: convert what `lastseen find --json` printed to other file formats."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastseen.errors import OutputError, TrackError
from lastseen.formats import FORMATS, Format

if TYPE_CHECKING:
    from lastseen.formats.answer_json import Entry

STREAM = Path("-")
MOST_BYTES = 2**28  # of an answer: boxes for a day of video
THING = "thing"  # what a thing without a name is called
LONGEST_NAME = 80  # characters of a name in the name of a file


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
    thing: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of answers about several things, those about this one."),
    ] = None,
    in_: Annotated[
        str | None,
        typer.Option(
            "--in", metavar="NAME", help="Of answers in several videos, this one (default: the latest)."
        ),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Every answer, in a file of its own: OUT with its names added.")
    ] = False,
    video: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The video, if it moved or the answer does not tell enough of it."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to call the thing (default: its name).")
    ] = None,
) -> None:
    """Write an answer for annotation tools, evaluators or players.

    Example: lastseen find keys.jpg walk.mp4 --json > answer.json; lastseen export answer.json walk.xml

    Formats: docs/formats.md.
    """
    from lastseen.files import check_apart, check_writable
    from lastseen.formats import find_format, format_answer, write_answer
    from lastseen.formats.answer_json import answer_of
    from lastseen.video import Video

    chosen = find_format("json" if to is None and out == STREAM else to, out)
    inputs = [path for path in (answer, video) if path is not None and path != STREAM]
    if out != STREAM:
        check_writable(out)
        check_apart([("", out)], inputs)
    elif each:
        raise OutputError("--each writes several files, and stdout is one: give a name")
    given = _chosen(answer, _read(answer), thing, in_, each)
    files = _files(out, given, chosen) if each else [out]
    check_apart([("", file) for file in files if file != STREAM], inputs)
    source = Video(video, allow_truncated=True) if video is not None else None
    for file, entry in zip(files, given):
        try:
            found = replace(answer_of(entry.data, source), label=label or entry.thing or THING)
        except TrackError as error:
            raise TrackError(f"{answer}: {error}") from None
        if not found.sightings:
            print(f"note: nothing was found, so {_called(file)} has no boxes", file=sys.stderr)
        if file == STREAM:
            sys.stdout.write(format_answer(found, chosen.name))
        else:
            write_answer(file, found, chosen.name)
    if out != STREAM:
        print(f"Wrote {', '.join(map(str, files))}.", file=sys.stderr)


def _chosen(path: Path, text: str, thing: str | None, video: str | None, each: bool) -> list[Entry]:
    """The answers to write: one, or with `each` all that are of the thing and in the video."""
    from lastseen.formats.answer_json import entries

    try:
        given = entries(text)
    except TrackError as error:
        raise TrackError(f"{path}: {error}") from None
    if not given:
        raise TrackError(f"{path}: there is no answer in it; nothing was searched")
    if thing is not None:
        given = _only("--thing", thing, given, [str(entry.thing) for entry in given])
    if video is not None:
        given = _only("--in", video, given, [entry.video for entry in given])
    if each:
        return given
    things = _distinct(entry.thing for entry in given)
    if len(things) > 1:
        raise TrackError(
            f"{path}: answers about {', '.join(things)}; choose one with --thing NAME, or --each writes all"
        )
    if len(given) > 1:
        print(
            f"note: of {len(given)} answers the latest was taken, in {given[0].video}; --in NAME takes "
            "another one, --each writes all",
            file=sys.stderr,
        )
    return given[:1]


def _only(option: str, name: str, given: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
    chosen = [entry for entry, known in zip(given, names) if known == name]
    if not chosen:
        raise TrackError(f"{option} {name}: there is no such answer; there are {', '.join(_distinct(names))}")
    return chosen


def _files(out: Path, given: Sequence[Entry], chosen: Format) -> list[Path]:
    """A file for each answer: walk.coco.json -> walk-keys-monday.coco.json; what all share is left out."""
    ending = next((end for end in chosen.endings if out.name.lower().endswith(end)), out.suffix)
    stem = out.name[: len(out.name) - len(ending)]
    several_things = len({entry.thing for entry in given}) > 1
    several_videos = len({entry.video for entry in given}) > 1
    names: list[str] = []
    taken: dict[str, int] = {}
    for entry in given:
        parts = [stem, _plain(entry.thing or THING) if several_things else ""]
        parts.append(_plain(Path(entry.video).stem) if several_videos else "")
        name = "-".join(filter(None, parts))
        taken[name] = taken.get(name, 0) + 1
        names.append(name if taken[name] == 1 else f"{name}~{taken[name]}")
    return [out.with_name(f"{name}{out.name[len(stem) :]}") for name in names]


def _plain(name: str) -> str:
    """A name that can be part of a file's."""
    return re.sub(r"[^\w.-]+", "_", name)[:LONGEST_NAME]


def _called(file: Path) -> str:
    return "the file" if file == STREAM else str(file)


def _distinct(names: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(map(str, names)))


def _read(path: Path) -> str:
    from lastseen.files import regular_bytes

    try:
        if path == STREAM:
            text = sys.stdin.read(MOST_BYTES)
            if len(text) == MOST_BYTES:
                raise OSError(errno.EFBIG, "does not end")
            return text
        return regular_bytes(path, MOST_BYTES).decode()
    except OSError as error:
        raise TrackError(f"{path}: {str(error.strerror).lower()}; give the JSON of an answer") from None
    except UnicodeDecodeError:
        raise TrackError(f"{path}: not text; give the JSON of an answer") from None

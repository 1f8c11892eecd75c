"""lastseen find: search one video, or all videos of the index."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from lastseen.cli.bar import SoFar, progress_bar
from lastseen.cli.cluster import Ray, Workers, asked_shards, is_sharded, model_choice
from lastseen.cli.index import IndexFolder, engine_of, open_index
from lastseen.cli.outputs import Cutout, Figure, Filmstrip, Outputs, Report, Save, Written
from lastseen.cli.request import BOX_HELPS, Request, in_order, is_picture, parse_box
from lastseen.cli.shared import (
    ERROR,
    FOUND,
    NOT_FOUND,
    AsJson,
    Device,
    EngineName,
    Masks,
    Paper,
    Quiet,
    Skip,
    Verbose,
    Weights,
    model_files,
    open_localizer,
)
from lastseen.cli.terminal import complain
from lastseen.errors import QueryError
from lastseen.files import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lastseen.answer import Answer
    from lastseen.cli.cluster import AskedShards
    from lastseen.cluster import ModelChoice
    from lastseen.index import Index, IndexedVideo
    from lastseen.index.folder import IndexFolder as FolderOfIndex
    from lastseen.localizer import Localizer
    from lastseen.query import Query
    from lastseen.video import Video


def find(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PICTURE... [VIDEO]",
            help="A photo of the thing with its surroundings (then give --box) or several pictures, then the "
            "video; without one, all that the index remembers.",
        ),
    ] = None,
    things: Annotated[
        list[str] | None,
        typer.Option(
            "--thing",
            metavar="NAME=PICTURE",
            help="Several things at once; a name may have several pictures.",
        ),
    ] = None,
    box: Annotated[
        str | None, typer.Option(metavar="X1,Y1,X2,Y2", help="Where the thing is in the photo, in pixels.")
    ] = None,
    mark: Annotated[
        bool,
        typer.Option("--mark", help="Ask for the box: drag it in a small window, or type it."),
    ] = False,
    at: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="PICTURE is a video: take its picture at this moment. Without PICTURE: that of VIDEO.",
        ),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Search only before this: seconds of a video, or a date and time."),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Every occurrence, not just the last; of VIDEO every frame is searched."),
    ] = False,
    as_json: AsJson = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="OUT.jpg", help="Write the last moment, box drawn in.")
    ] = None,
    video_out: Annotated[
        Path | None,
        typer.Option("--video", metavar="OUT.mp4", help="Write that part of the video, box drawn in."),
    ] = None,
    figure: Figure = None,
    filmstrip: Filmstrip = None,
    cutout: Cutout = None,
    report: Report = None,
    save: Save = None,
    folder: IndexFolder = None,
    in_: Annotated[
        list[str] | None,
        typer.Option("--in", metavar="NAME", help="Only this video of the index; repeatable."),
    ] = None,
    exhaustive: Annotated[bool, typer.Option("--exhaustive", help="Run the model on every frame.")] = False,
    candidates: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of clips that the model searches first (default: 24 of an index, 15 % of VIDEO).",
        ),
    ] = None,
    weights: Weights = None,
    paper: Paper = False,
    skip: Skip = None,
    masks: Masks = False,
    threshold: Annotated[
        float | None,
        typer.Option(metavar="SCORE", min=0.0, max=1.0, help="Lowest score that counts as seen."),
    ] = None,
    device: Device = None,
    engine: EngineName = None,
    allow_truncated: Annotated[
        bool, typer.Option("--allow-truncated", help="Search the readable part of a damaged video.")
    ] = False,
    ray: Ray = None,
    workers: Workers = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find when and where a thing was last seen. Without a video: in all videos of the index.

    Example: lastseen find desk.jpg walk.mp4 --mark --picture answer.jpg

    Example: lastseen find desk.jpg walk.mp4 --box 120,80,240,200 --picture answer.jpg

    Example: lastseen index walk.mp4 holiday/; lastseen find desk.jpg --box 120,80,240,200

    A whole photo with --box works better than a tight crop: what is around the thing helps. The page of
    'lastseen serve' lets you draw the box.

    Exit status: 0 found, 1 not found (of several things: not all), 2 error.
    """
    from lastseen.index.answers import parse_moment
    from lastseen.words import tips_text

    outputs = Outputs(
        picture=picture,
        video=video_out,
        figure=figure,
        report=report,
        filmstrip=filmstrip,
        cutout=cutout,
        save=save or (),
    )
    outputs.check()
    files = in_order(files or [], at)
    asks_index = bool(in_) or not files or is_picture(files[-1])
    if ray is not None and not asks_index:
        raise QueryError(f"--ray asks an index, and {files[-1]} is a video: leave out one of them")
    request = Request(
        pictures=files if asks_index else files[:-1],
        things=things or [],
        box=parse_box(box),
        at=at,
        mark=mark,
        quiet=quiet,
    )
    inputs = [*files, *request.named_pictures, *model_files(weights)]
    outputs.check_apart(inputs)
    if outputs.wanted and len(request.names) > 1:
        raise QueryError(f"pictures and videos show one thing, not {len(request.names)}: ask one by one")
    second, date = (None, None) if before is None else parse_moment(before)
    if second is not None and not second > 0:
        raise QueryError(f"--before {before}: a video starts at 0 s, ask after that")

    def localizer() -> Localizer:  # loaded only after the arguments are checked
        chosen = engine or (engine_of(folder) if asks_index and not paper else None)
        return open_localizer(
            weights, paper, threshold, device, quiet, chosen, skip or (), masks, rivals=not asks_index
        )

    if not asks_index:
        if date is not None:
            raise QueryError("--before takes seconds of the video; a date is for questions to the index")
        how = {"exhaustive": exhaustive or all_, "candidates": candidates}
        said = _ask_video(
            files[-1], request, localizer, second, how, outputs, all_, allow_truncated, quiet, not as_json
        )
        found = _tell(said, as_json, quiet)
    else:
        if second is not None and len(in_ or []) != 1:
            raise QueryError(f"{before} seconds of which video? Give --in NAME, or --before a date and time")
        model = partial(model_choice, weights, device, engine, paper=paper, threshold=threshold)
        choice = partial(model, skip=tuple(skip or ()), masks=masks)
        with _asked(folder, files, ray, workers, localizer, choice) as index:
            videos = [index.named(name) for name in in_] if in_ else None
            options = {"before": date, "exhaustive": exhaustive, "candidates": candidates}
            # Also the videos that are not searched: what is remembered is worth more than any output.
            outputs.check_apart([*inputs, *(video.path for video in index.videos())])
            said = _ask_index(index, videos, request, second, options, outputs, all_, quiet, not as_json)
            found = _tell(said, as_json, quiet)
    if not (found or quiet or as_json):
        print(tips_text(), file=sys.stderr)
    elif request.lacks_box and not (quiet or as_json):
        print(BOX_HELPS, file=sys.stderr)
    raise typer.Exit(FOUND if found else NOT_FOUND)


def _ask_video(
    path: Path,
    request: Request,
    open_model: Callable[[], Localizer],
    before: float | None,
    options: dict[str, Any],
    outputs: Outputs,
    every: bool,
    allow_truncated: bool,
    quiet: bool,
    tells_so_far: bool,
) -> _Said:
    from lastseen.formats.answer_json import ANSWERS_SCHEMA
    from lastseen.render import answer_dict, answer_text, unreadable_words
    from lastseen.video import Video

    video = Video(path, allow_truncated=allow_truncated)
    queries = request.queries(video, before)
    localizer = open_model()
    with progress_bar(None, quiet) as bar:
        so_far = SoFar(bar, queries, tells_so_far)
        answers = localizer.ask_many(video, list(queries.values()), bar, so_far.tell, **options)
    things: list[dict[str, Any]] = []
    texts = []
    for name, answer in zip(queries, answers):
        shown = answer if every else answer.only_last()
        things.append({"thing": name, "found": answer.found, "answers": [answer_dict(shown)]})
        head = f"{one_line(name)}: " if len(queries) > 1 else ""
        texts += [head + line for line in answer_text(shown).splitlines()]
    content = things[0]["answers"][0]
    if request.things:
        content = {"schema": ANSWERS_SCHEMA, "index": None, "model": localizer.model.title, "things": things}
    note = unreadable_words(answers[0].unreadable_s) if answers[0].unreadable_s and not quiet else ""

    def write() -> Written:
        return outputs.write(answers[0], every=every) if outputs.wanted else Written()

    return _Said("\n".join(texts), content, all(thing["found"] for thing in things), write, note)


def _ask_index(
    index: AskedIndex | AskedShards,
    videos: list[Any] | None,
    request: Request,
    before: float | None,
    options: dict[str, Any],
    outputs: Outputs,
    every: bool,
    quiet: bool,
    tells_so_far: bool,
) -> _Said:
    from lastseen.index.answers import answers_dict, answers_text

    queries = request.queries(None, before)
    with progress_bar(None, quiet) as bar:
        so_far = SoFar(bar, queries, tells_so_far)
        told = {"every": every, "progress": bar, "preliminary": so_far.tell_first}
        answers, model = index.ask(queries, videos, **told, **options)

    def write() -> Written:
        if not outputs.wanted:
            return Written()
        (given,) = answers.values()
        if not given:
            return Written(notes=["Nothing was written: no frame is in the index yet."])
        answer, video = given[0], cast("IndexedVideo", given[0].video)
        written = outputs.write(
            answer, every=every, original=lambda: replace(answer, video=index.original(video))
        )
        if len(given) > 1:
            written.notes.append(f"Files show the latest answer, in {one_line(video.name)} (--in chooses).")
        return written

    content = answers_dict(str(index.folder), model, answers, every)
    found = all(given and given[0].found for given in answers.values())
    return _Said(answers_text(answers, every), content, found, write)


@dataclass(frozen=True)
class _Said:
    """What is printed, as text or as JSON, and what then writes the output files."""

    text: str
    content: dict[str, Any]
    found: bool
    write: Callable[[], Written]
    note: str = ""  # goes to stderr beside JSON; the text has it


def _tell(said: _Said, as_json: bool, quiet: bool) -> bool:
    """The answer first: it took long, and must not be lost because a picture of it cannot be written."""
    try:
        print(json.dumps(said.content) if as_json else said.text, flush=True)
        if as_json and said.note:
            print(f"note: {said.note}", file=sys.stderr)
    finally:  # also if nobody reads what is printed
        written = said.write()
        if (named := written.said()) and not quiet:
            print(named, file=sys.stderr)
        for failure in written.failures:
            complain(failure)
    if written.failures:
        raise typer.Exit(ERROR)
    return said.found


class AskedIndex:
    """The index of one machine as `find` asks it."""

    def __init__(self, index: Index, open_model: Callable[[], Localizer]) -> None:
        self._index, self._open_model, self.folder = index, open_model, index.folder
        self.videos, self.named = index.videos, index.named

    def ask(
        self, queries: Mapping[str, Query], videos: list[Any] | None, **options: Any
    ) -> tuple[dict[str, list[Answer]], str]:
        localizer = self._open_model()
        from lastseen.index.search import search

        return search(self._index, localizer, queries, videos=videos, **options), localizer.model.title

    def original(self, video: IndexedVideo) -> Video:
        return original_of(self._index, video)


def original_of(index: FolderOfIndex, video: IndexedVideo) -> Video:
    """The file of an indexed video; an error if it is missing or has changed."""
    from lastseen.errors import IndexStoreError
    from lastseen.index.entry import LIVE
    from lastseen.index.originals import check_unchanged
    from lastseen.video import Video

    if video.kind == LIVE:
        raise IndexStoreError(f"{video.name}: a stream leaves no pictures to draw on, only where it was seen")
    return Video(check_unchanged(index, video).path, allow_truncated=True)


@contextmanager
def _asked(
    folder: Path | None,
    files: list[Path],
    ray: str | None,
    workers: int | None,
    open_model: Callable[[], Localizer],
    choice: Callable[[], ModelChoice],
) -> Iterator[AskedIndex | AskedShards]:
    from lastseen.index import default_folder

    place = folder or default_folder()
    if is_sharded(place, ray):
        with asked_shards(place, ray, workers, choice()) as shards:
            yield shards
    else:
        with _index(place, files) as index:
            yield AskedIndex(index, open_model)


def _index(place: Path, files: list[Path]) -> Index:
    from lastseen.index.database import FILE

    if not (place / FILE).is_file():
        if not files:
            raise QueryError(
                "what to find, and in which video? lastseen find desk.jpg walk.mp4 --mark asks where the "
                f"thing is in the photo; a photo alone asks the index, and there is none at {place}"
            )
        given = f"{files[-1]} is a picture, and there" if files else "there"
        raise QueryError(
            f"in which video? {given} is no index at {place}: give one, or run lastseen index VIDEO..."
        )
    return open_index(place)

"""lastseen find: the answer to one question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastseen.cli.shared import (
    FOUND,
    NOT_FOUND,
    AsJson,
    Device,
    Paper,
    Quiet,
    Weights,
    open_localizer,
    progress_bar,
)
from lastseen.errors import QueryError

if TYPE_CHECKING:
    from lastseen.query import Query
    from lastseen.video import Video


def find(
    files: Annotated[
        list[Path], typer.Argument(metavar="PICTURE... VIDEO", help="Pictures of the thing, then the video.")
    ],
    box: Annotated[
        str | None, typer.Option(metavar="X1,Y1,X2,Y2", help="Where the thing is in the picture, in pixels.")
    ] = None,
    at: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="PICTURE is a video: look at it there. Left out: at VIDEO."),
    ] = None,
    before: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When you ask: search only before this moment.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every occurrence, not just the last.")] = False,
    as_json: AsJson = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="OUT.jpg", help="Write the last moment, box drawn in.")
    ] = None,
    video_out: Annotated[
        Path | None,
        typer.Option("--video", metavar="OUT.mp4", help="Write that part of the video, box drawn in."),
    ] = None,
    weights: Weights = None,
    paper: Paper = False,
    threshold: Annotated[
        float | None, typer.Option(metavar="SCORE", min=0.0, max=1.0, help="Least score that counts as seen.")
    ] = None,
    device: Device = None,
    allow_truncated: Annotated[
        bool, typer.Option("--allow-truncated", help="Search the readable part of a damaged video.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Find when and where a thing was last seen in a video.

    Example: lastseen find keys.jpg walk.mp4 --picture answer.jpg --video answer.mp4

    Exit status: 0 found, 1 not found, 2 error.
    """
    from lastseen.files import check_writable
    from lastseen.render import answer_dict, answer_text, write_picture, write_video
    from lastseen.video import Video

    for path, suffixes in ((picture, (".jpg", ".jpeg", ".png", ".webp")), (video_out, (".mp4",))):
        if path is not None:
            check_writable(path, suffixes)
    video = Video(files[-1], allow_truncated=allow_truncated)
    query = _query(files, video, _box(box), at, before)
    localizer = open_localizer(weights, paper, threshold, device, quiet)
    with progress_bar("searching", "frames", quiet) as progress:
        predictions = localizer.predict(video, [query], progress)[0]
    tracks = localizer.tracks(predictions)
    if tracks:
        thing = query.views[0].crop
        if picture is not None:
            write_picture(picture, video, tracks[-1], thing)
        if video_out is not None:
            write_video(video_out, video, tracks[-1], thing)
    shown = tracks if all_ else tracks[-1:]
    guess = None if tracks else localizer.best_guess(predictions)
    if as_json:
        print(json.dumps(answer_dict(video, localizer.model.title, shown, guess)))
    else:
        print(answer_text(video, shown, guess, localizer.rule.threshold))
    raise typer.Exit(FOUND if tracks else NOT_FOUND)


def _query(files: list[Path], video: Video, box: Any, at: float | None, before: float | None) -> Query:
    from lastseen.query import Query
    from lastseen.video import Video

    pictures = files[:-1]
    if at is not None:
        if box is None:
            raise QueryError("--at needs --box X1,Y1,X2,Y2: where the thing is in that frame")
        if len(pictures) > 1:
            raise QueryError("with --at give one video to take the picture from, or none to take VIDEO")
        return Query.from_video(Video(pictures[0]) if pictures else video, at, box, before)
    if not pictures:
        raise QueryError(
            f"what to find in {files[0]}? Give a picture before the video, or --at SECONDS --box X1,Y1,X2,Y2"
        )
    if box is not None and len(pictures) > 1:
        raise QueryError("--box goes with one picture; cut the others to the thing")
    if box is not None:
        return Query.from_image(pictures[0], box, before)
    return Query.from_images(pictures, before)


def _box(text: str | None) -> Any:
    if text is None:
        return None
    from lastseen.box import Box

    try:
        x1, y1, x2, y2 = (float(part) for part in text.split(","))
    except ValueError:
        raise QueryError(f"--box {text}: expected X1,Y1,X2,Y2 in pixels, like 120,80,240,200") from None
    return Box(x1, y1, x2, y2)

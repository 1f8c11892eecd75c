"""The command line: parse, call, print. No logic; torch is imported only by commands that need it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lastseen import __version__
from lastseen.errors import LastSeenError, QueryError

if TYPE_CHECKING:
    from lastseen.localizer import Localizer
    from lastseen.query import Query
    from lastseen.video import Video

FOUND, NOT_FOUND, ERROR = 0, 1, 2

app = typer.Typer(
    name="lastseen",
    help="Where did I last see this?\n\nExample: lastseen find keys.jpg walk.mp4 --picture answer.jpg",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> NoReturn:
    """Errors that a user can cause are one line and status 2; a reader that went away is no error."""
    try:
        app(standalone_mode=True)
    except LastSeenError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted")
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FOUND)
    sys.exit(FOUND)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lastseen {__version__}")
        raise typer.Exit


# Options that several commands take.
Weights = Annotated[Path | None, typer.Option(metavar="FOLDER", help="A model made by 'lastseen convert'.")]
Paper = Annotated[bool, typer.Option("--paper", help="Infer exactly as the paper does: always an answer.")]
Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1 ... (default: the best).")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no notes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Annotated_ = Annotated[Path, typer.Option("--annotations", metavar="FILE", help="VQ2D or EgoTracks JSON.")]


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
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
    localizer = _localizer(weights, paper, threshold, device, quiet)
    with _progress("searching", "frames", quiet) as progress:
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


@app.command()
def evaluate(
    annotations: Annotated_,
    videos: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Clips or source videos: run the model on them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The answers, in challenge format (with --videos).")
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score this challenge file instead of running.")
    ] = None,
    absent: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Questions about absent things: adds the AUROC.")
    ] = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="training-free, or vqloc (with --weights).")
    ] = "training-free",
    weights: Weights = None,
    paper: Paper = False,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a model on annotated videos and score it, or score an existing challenge file.

    Example: lastseen evaluate --annotations vq_val.json --videos clips/ --out predictions.json

    Stopped? The same command goes on where it was.
    """
    from lastseen.datasets.vq2d import load_absent, load_vq2d
    from lastseen.evaluate.challenge import read_predictions, score_file

    questions = load_vq2d(annotations)
    asides = load_absent(absent) if absent else ()
    if predictions is not None and videos is None:
        content = read_predictions(predictions)
    elif videos is None or predictions is not None:
        raise LastSeenError("give --videos and --out to run a model, or else --predictions to score a file")
    else:
        if out is None:
            raise LastSeenError("--videos needs --out FILE.json for the answers")
        if method not in ("training-free", "vqloc"):
            raise LastSeenError(f"unknown method {method!r}; choose training-free or vqloc")
        if (method == "vqloc") != (weights is not None):
            raise LastSeenError("method vqloc needs --weights FOLDER, and training-free takes none")
        from lastseen.evaluate.benchmark import run_benchmark

        localizer = _localizer(weights, paper, None, device, quiet)
        with _progress("evaluating", "clips", quiet) as progress:
            content = run_benchmark(localizer, questions, videos, out, absent=asides, progress=progress)
    if not any(question.truth for question in questions.questions):
        print(f"{annotations} has no true answers: nothing to score")
        return
    report = score_file(questions, content, asides)
    print(json.dumps(report.to_dict()) if as_json else report.to_text())


@app.command()
def validate(
    annotations: Annotated_,
    predictions: Annotated[Path, typer.Option(metavar="FILE", help="The challenge file to check.")],
    as_json: AsJson = False,
) -> None:
    """Say precisely what is wrong with a challenge file.

    Example: lastseen validate --annotations vq_val.json --predictions predictions.json

    Exit status: 0 valid (there may be warnings), 1 not valid, 2 the files cannot be read.
    """
    from lastseen.datasets.vq2d import load_vq2d
    from lastseen.evaluate.challenge import WARNING, check_predictions, read_predictions

    problems = check_predictions(load_vq2d(annotations), read_predictions(predictions))
    wrong = [problem for problem in problems if not problem.startswith(WARNING)]
    if as_json:
        print(json.dumps({"schema": "lastseen/validation@1", "valid": not wrong, "problems": problems}))
    else:
        for problem in problems:
            print(problem)
        print(f"{predictions}: {f'{len(wrong)} problems' if wrong else 'valid'}")
    raise typer.Exit(1 if wrong else 0)


@app.command()
def convert(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT.pt", help="Published by the authors.")],
    out: Annotated[Path, typer.Argument(metavar="OUT/", help="The folder to make.")],
) -> None:
    """Convert a published VQLoC checkpoint to a model folder that 'find --weights' takes.

    Example: lastseen convert vqloc_vitb14.pt models/vqloc-base
    """
    from lastseen.weights import convert_published, save_model

    model, unused = convert_published(checkpoint)
    save_model(model, out)
    print(f"{out}: {model.title}, clips of {model.clip_length} frames")
    print(f"{len(unused)} keys of the checkpoint are used by no forward pass and were left out:")
    for key in unused:
        print(f"  {key}")


@app.command()
def synth(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The folder to make (with --preview: a picture).")
    ],
    split: Annotated[
        str, typer.Option(metavar="NAME", help="train, or val, which no training sees.")
    ] = "val",
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="How many videos.")] = 10,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Another seed, other episodes.")] = 0,
    assets: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Asset packs (.npz); without: drawn at run time.")
    ] = None,
    scans: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Your own Google Scanned Objects (OBJ + texture).")
    ] = None,
    size: Annotated[str, typer.Option(metavar="WxH", help="Of the videos, in pixels.")] = "640x480",
    fps: Annotated[float, typer.Option(metavar="N", help="Of the videos: a multiple of 5.")] = 10.0,
    seconds: Annotated[str, typer.Option(metavar="A-B", help="Shortest and longest episode.")] = "30-300",
    preview: Annotated[
        bool,
        typer.Option("--preview", help="Only one episode, boxes drawn in: OUT.jpg (a sheet) or OUT.mp4."),
    ] = False,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Processes that render.")] = 1,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Render first-person videos with perfect answers, in the VQ2D schema.

    Example: lastseen synth data/val --split val --episodes 50 --seed 0

    Stopped? The same command goes on where it was.
    """
    from lastseen.localizer import best_device, checked_device
    from lastseen.synth.library import open_library
    from lastseen.synth.preview import write_preview
    from lastseen.synth.write import settings_from, write_dataset

    settings = settings_from(size, fps, seconds)
    open_split = partial(open_library, split, assets, scans)
    where = checked_device(device) if device else best_device()
    if preview:
        write_preview(out, open_split(), seed=seed, settings=settings, device=where)
        print(f"Look at {out}.")
        return
    with _progress("rendering", "episodes", quiet) as progress:
        annotations = write_dataset(
            out,
            open_split,
            split=split,
            episodes=episodes,
            seed=seed,
            settings=settings,
            device=where,
            workers=workers,
            progress=progress,
        )
    print(f"{annotations}: {episodes} episodes")


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


def _localizer(
    weights: Path | None, paper: bool, threshold: float | None, device: str | None, quiet: bool
) -> Localizer:
    from lastseen.localizer import Localizer

    localizer = Localizer.from_pretrained(weights, paper=paper, device=device, threshold=threshold)
    if weights is None and not quiet:
        print("note: no trained heads are bundled yet; using the training-free localizer", file=sys.stderr)
    return localizer


@contextmanager
def _progress(what: str, unit: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    task = bar.add_task(what, total=None)

    def show(done: int, total: int) -> None:
        bar.start()  # only now: a mistake found before the work begins is one line, without a bar
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()


def _fail(message: str) -> NoReturn:
    print(f"lastseen: {message}", file=sys.stderr)
    sys.exit(ERROR)


if __name__ == "__main__":
    main()

"""lastseen evaluate and validate: run and score a model on annotated videos; check challenge files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastseen.cli.bar import progress_bar
from lastseen.cli.shared import (
    Annotations,
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
from lastseen.errors import LastSeenError

if TYPE_CHECKING:
    from lastseen.datasets import Annotations as LoadedAnnotations


def evaluate(
    annotations: Annotations,
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
        Path | None, typer.Option(metavar="FILE", help="Questions about absent things, for the AUROC.")
    ] = None,
    detections: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Published detections, ANNOTATION_SET.pt each, instead of a model's."
        ),
    ] = None,
    tracker: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="After a rival's peak: particles (default), nano or ends."),
    ] = None,
    tracker_weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="nanotrack_v2.pth, for --tracker nano.")
    ] = None,
    least_score: Annotated[
        float, typer.Option(metavar="SCORE", help="Of a peak of published detections; CocoFormer's is 0.25.")
    ] = 0.5,
    weights: Weights = None,
    paper: Paper = False,
    skip: Skip = None,
    masks: Masks = False,
    device: Device = None,
    engine: EngineName = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Score a model on annotated videos, or score a challenge file.

    Example: lastseen evaluate --annotations vq_val.json --videos clips/ --out predictions.json

    If it was stopped, the same command resumes.
    """
    from lastseen.datasets.vq2d import load_absent, load_vq2d
    from lastseen.evaluate.challenge import read_predictions, score_file

    questions = load_vq2d(annotations)
    absent_questions = load_absent(absent) if absent else ()
    if predictions is not None and videos is None:
        content = read_predictions(predictions)
    elif videos is None or predictions is not None:
        raise LastSeenError("give --videos and --out to run a model, or else --predictions to score a file")
    else:
        if out is None:
            raise LastSeenError("--videos needs --out FILE.json for the answers")
        from lastseen.files import check_apart

        given = [path for path in (annotations, absent, tracker_weights) if path is not None]
        check_apart([("--out", out)], [*given, *model_files(weights)])
        if detections is not None:
            if weights is not None or absent is not None or masks or skip or paper:
                raise LastSeenError(
                    "--detections takes the place of a model: leave out --weights, --absent and the like"
                )
            content = _of_detections(
                detections, least_score, tracker, tracker_weights, device, questions, videos, out, quiet
            )
        else:
            from lastseen.evaluate.benchmark import run_benchmark

            localizer = open_localizer(
                weights,
                paper,
                None,
                device,
                quiet,
                engine,
                skip or (),
                masks,
                tracker=tracker,
                tracker_weights=tracker_weights,
                rivals=True,
            )
            with progress_bar(None, quiet) as progress:
                content = run_benchmark(
                    localizer, questions, videos, out, absent=absent_questions, progress=progress
                )
    if not any(question.truth for question in questions.questions):
        print(f"{annotations} has no true answers: nothing to score")
        return
    report = score_file(questions, content, absent_questions)
    print(json.dumps(report.to_dict()) if as_json else report.to_text())


def _of_detections(
    folder: Path,
    least_score: float,
    tracker: str | None,
    tracker_weights: Path | None,
    device: str | None,
    questions: LoadedAnnotations,
    videos: Path,
    out: Path,
    quiet: bool,
) -> dict[str, Any]:
    from lastseen.engine.devices import best_device, checked_device
    from lastseen.evaluate.detections import detections_procedure, run_detections

    where = best_device() if device is None else checked_device(device)
    procedure = detections_procedure(least_score, tracker, tracker_weights, where)
    with progress_bar(None, quiet) as progress:
        return run_detections(folder, procedure, questions, videos, out, progress=progress)


def validate(
    annotations: Annotations,
    predictions: Annotated[Path, typer.Option(metavar="FILE", help="The challenge file to check.")],
    as_json: AsJson = False,
) -> None:
    """Check a challenge file, and say precisely what is wrong.

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

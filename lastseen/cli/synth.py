"""lastseen synth: render synthetic videos."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from lastseen.cli.bar import progress_bar
from lastseen.cli.shared import AsJson, Device, Quiet, Verbose
from lastseen.progress import Pace


def synth(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The folder to make (with --preview: a picture).")
    ],
    split: Annotated[
        str, typer.Option(metavar="NAME", help="train, or val, which no training sees.")
    ] = "val",
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="How many videos.")] = 10,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the episodes.")] = 0,
    assets: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Asset packs (.npz); without them things are generated."),
    ] = None,
    scans: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Your own Google Scanned Objects (OBJ + texture).")
    ] = None,
    size: Annotated[str, typer.Option(metavar="WxH", help="Size of the videos in pixels.")] = "640x480",
    fps: Annotated[
        float, typer.Option(metavar="N", help="Frames a second of the videos: a multiple of 5.")
    ] = 10.0,
    seconds: Annotated[str, typer.Option(metavar="A-B", help="Shortest and longest episode.")] = "30-300",
    preview: Annotated[
        bool,
        typer.Option("--preview", help="Render one episode with its boxes, as OUT.jpg (a sheet) or OUT.mp4."),
    ] = False,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Number of processes.")] = 1,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Render first-person videos with exact annotations. Their schema is that of VQ2D.

    Example: lastseen synth data/val --split val --episodes 50 --seed 0

    If it was stopped, the same command resumes.
    """
    from lastseen.engine.devices import best_device, checked_device
    from lastseen.files import check_apart
    from lastseen_synth.dataset_writer import settings_from, write_dataset
    from lastseen_synth.library import checked_split, open_library
    from lastseen_synth.preview import write_preview

    settings = settings_from(size, fps, seconds)
    open_split = partial(open_library, checked_split(split), assets, scans)
    where = checked_device(device) if device else best_device()
    if preview:
        given = [path for folder in (assets, scans) if folder is not None for path in folder.rglob("*")]
        check_apart([("", out)], given)
        write_preview(out, open_split(), seed=seed, settings=settings, device=where)
        _say({"preview": str(out)}, f"Look at {out}.", as_json)
        return
    with progress_bar(None, quiet) as progress:
        annotations = write_dataset(
            out,
            open_split,
            split=split,
            episodes=episodes,
            seed=seed,
            settings=settings,
            device=where,
            workers=workers,
            progress=Pace(progress, "rendering", "episodes"),
        )
    facts = {"annotations": str(annotations), "episodes": episodes}
    _say(facts, f"{annotations}: {episodes} episodes", as_json)


def _say(facts: dict[str, Any], text: str, as_json: bool) -> None:
    print(json.dumps({"schema": "lastseen_synth@1", **facts}) if as_json else text)

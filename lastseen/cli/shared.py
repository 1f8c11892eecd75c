"""Shared by several commands: options, the localizer, the log.

Options that are usually set once also read an environment variable (LASTSEEN_...).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastseen.errors import LastSeenError

if TYPE_CHECKING:
    from lastseen.localizer import Localizer

STEPS = ("zoom", "verify", "extend", "mask")  # as lastseen.refine.STEPS, whose import loads torch
ENGINES = (  # as lastseen.engine.ENGINES, whose import loads torch, too
    "torch-fp32",
    "torch-fp32-grouped",
    "torch-fp16",
    "torch-fp16-grouped",
    "torch-fp16-compiled",
    "torch-bf16",
    "openvino-bf16",
)
FOUND, NOT_FOUND, ERROR, INTERRUPTED = 0, 1, 2, 130
log = logging.getLogger("lastseen")


def start_log(verbose: bool) -> None:
    """Log to stderr: warnings, and with `verbose` also information."""
    log.handlers = [logging.StreamHandler()]  # a new one each time, since sys.stderr may have been replaced
    log.setLevel(logging.INFO if verbose else logging.WARNING)


def _set_verbose(wanted: bool) -> bool:
    if wanted:
        start_log(verbose=True)
    return wanted


def _check_device(device: str | None) -> str | None:
    if device is not None and device.startswith("meta"):  # a valid torch device without data
        raise LastSeenError(f"device {device} cannot be used: it computes nothing; try cpu")
    return device


def _devices(incomplete: str) -> list[str]:
    """Shell completion; a fixed list, since importing torch takes seconds."""
    return [name for name in ("cpu", "cuda", "cuda:0", "cuda:1") if name.startswith(incomplete)]


def _engines(incomplete: str) -> list[str]:
    return [name for name in ENGINES if name.startswith(incomplete)]


def _known_steps(names: list[str] | None) -> list[str]:
    for name in names or []:
        if name not in STEPS:
            raise LastSeenError(f"--skip {name}: no such step; choose one of {', '.join(STEPS)}")
    return names or []


Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        envvar="LASTSEEN_WEIGHTS",
        help="A model made by 'lastseen train' or 'lastseen convert', training-free, or a rival of the paper "
        "like siamrcnn (default: bundled).",
    ),
]
Paper = Annotated[
    bool, typer.Option("--paper", help="Follow the paper's inference procedure: always an answer.")
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STEP",
        callback=_known_steps,
        help="Leave out a refinement step: zoom (the slowest), verify, extend or mask; repeatable.",
    ),
]
Masks = Annotated[
    bool,
    typer.Option(
        "--masks",
        help="Refine boxes by masks (MobileSAM; run 'lastseen models add mobile-sam' first).",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        envvar="LASTSEEN_DEVICE",
        callback=_check_device,
        autocompletion=_devices,
        help="cpu, cuda, cuda:1 ... (default: the best).",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        envvar="LASTSEEN_ENGINE",
        autocompletion=_engines,
        help="torch-fp32, torch-fp16, openvino-bf16 ... (default: the index's, or the fastest here).",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no notes.")]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        callback=_set_verbose,
        is_eager=True,
        help="Log steps, device and speed; show where an error comes from.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Annotations = Annotated[Path, typer.Option("--annotations", metavar="FILE", help="VQ2D or EgoTracks JSON.")]


def open_localizer(
    weights: Path | None,
    paper: bool,
    threshold: float | None,
    device: str | None,
    quiet: bool,
    engine: str | None = None,
    skip: Sequence[str] = (),
    masks: bool = False,
    tracker: str | None = None,
    tracker_weights: Path | None = None,
    rivals: bool = False,
) -> Localizer:
    """`rivals`: whether the paper's rivals will do."""
    began = time.monotonic()
    from lastseen.localizer import Localizer

    if not rivals:
        refuse_rival(weights)

    localizer = Localizer.from_pretrained(
        weights,
        paper=paper,
        device=device,
        threshold=threshold,
        skip=skip,
        engine=engine,
        masks=masks,
        tracker=tracker,
        tracker_weights=tracker_weights,
    )
    what = localizer.model.title, localizer.device, engine or localizer.engine.name
    log.info("%s on %s with %s, ready in %.1f s", *what, time.monotonic() - began)
    return localizer


def refuse_rival(weights: Path | None) -> None:
    from lastseen.baselines.stored import rival_folder

    if weights is not None and rival_folder(weights) is not None:
        raise LastSeenError(
            f"{weights} is a rival of the paper: ask it by 'lastseen find' in a video or 'lastseen evaluate'"
        )


def model_files(weights: Path | None) -> list[Path]:
    """Inputs that no output may replace."""
    return list(weights.iterdir()) if weights is not None and weights.is_dir() else []

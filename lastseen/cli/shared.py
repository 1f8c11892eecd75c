"""What several commands share: options, the localizer, the progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lastseen.localizer import Localizer

FOUND, NOT_FOUND, ERROR = 0, 1, 2

Weights = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="A model made by 'lastseen convert' or 'lastseen train'."),
]
Paper = Annotated[bool, typer.Option("--paper", help="Infer exactly as the paper does: always an answer.")]
Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1 ... (default: the best).")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no notes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Annotations = Annotated[Path, typer.Option("--annotations", metavar="FILE", help="VQ2D or EgoTracks JSON.")]


def open_localizer(
    weights: Path | None, paper: bool, threshold: float | None, device: str | None, quiet: bool
) -> Localizer:
    from lastseen.localizer import Localizer

    localizer = Localizer.from_pretrained(weights, paper=paper, device=device, threshold=threshold)
    if weights is None and not quiet:
        print("note: no trained heads are bundled yet; using the training-free localizer", file=sys.stderr)
    return localizer


@contextmanager
def progress_bar(what: str, unit: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
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

"""The command line: parse, call, print. No logic; torch is imported only by commands that need it."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from lastseen import __version__
from lastseen.cli.doctor import doctor
from lastseen.cli.evaluate import evaluate, validate
from lastseen.cli.export import export
from lastseen.cli.find import find
from lastseen.cli.index import index
from lastseen.cli.models import calibrate, convert, train
from lastseen.cli.serve import serve
from lastseen.cli.shared import ERROR, FOUND, Verbose, log, start_log
from lastseen.cli.synth import synth
from lastseen.errors import LastSeenError

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


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    start_log(verbose)


app.add_typer(index)
for command in (find, serve, evaluate, validate, export, convert, synth, train, calibrate, doctor):
    app.command()(command)


def _fail(message: str) -> NoReturn:
    if log.isEnabledFor(logging.INFO):
        traceback.print_exc()
    print(f"lastseen: {message}", file=sys.stderr)
    sys.exit(ERROR)

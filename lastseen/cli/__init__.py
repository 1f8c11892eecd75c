"""The command line: parse, call, print. No logic; torch is imported only by commands that need it."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer

from lastseen import __version__
from lastseen.cli.affinity import affinity
from lastseen.cli.doctor import doctor
from lastseen.cli.evaluate import evaluate, validate
from lastseen.cli.export import export
from lastseen.cli.find import find
from lastseen.cli.index import index
from lastseen.cli.models import calibrate, convert, models, train
from lastseen.cli.serve import serve
from lastseen.cli.shared import ERROR, FOUND, INTERRUPTED, Verbose, log, start_log
from lastseen.cli.synth import synth
from lastseen.cli.terminal import complain, printable_streams
from lastseen.cli.usage import PlainCommand
from lastseen.errors import LastSeenError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UsageError: Any = typer.BadParameter.__base__  # some versions of Typer bundle Click

app = typer.Typer(
    name="lastseen",
    help="Where did I last see this?\n\nExample: lastseen find desk.jpg walk.mp4 --box 120,80,240,200",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> NoReturn:
    """Errors, also internal ones, print one line and exit with 2 (1 means "not found")."""
    with printable_streams():
        _main()


def _main() -> NoReturn:
    try:
        _check_words(sys.argv[1:])
        status = app(prog_name="lastseen", standalone_mode=False)  # the status of a command's typer.Exit
        sys.stdout.flush()
    except LastSeenError as error:
        _fail(str(error))
    except UsageError as error:
        _fail_usage(error)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        _exit_on_broken_pipe()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # Typer turns it into SystemExit
            _exit_on_broken_pipe()
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
            _discard_output()
            _fail(f"cannot print: {error.strerror}; what was written to files is there")
        if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str):
            advice = "check the name, the disk and who may read and write there"
            _fail(f"{error.filename}: {error.strerror.lower()}; {advice}")
        _fail(f"internal error, please report it ({_first_line(error)}); 'lastseen -v ...' tells where")
    if status == INTERRUPTED:
        _fail("interrupted", INTERRUPTED)
    sys.exit(status or FOUND)


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
app.add_typer(models)
for command in (find, serve, evaluate, validate, export, affinity, convert, synth, train, calibrate, doctor):
    app.command(cls=PlainCommand)(command)


def _check_words(words: list[str]) -> None:
    """An unset variable of the shell must not become the current folder, which is what `Path("")` is."""
    for before, word in zip(["", *words], words):
        if not word or (word.startswith("--") and word.endswith("=")):
            after = f" after {before}" if before.startswith("-") else f": {word}" if word else ""
            raise LastSeenError(
                f"an empty name is no video, picture or folder{after}; is a variable of the shell unset?"
            )


def _fail(message: str, status: int = ERROR) -> NoReturn:
    if log.isEnabledFor(logging.INFO) and status == ERROR:
        traceback.print_exc()
    complain(message)
    sys.exit(status)


def _fail_usage(error: Any) -> NoReturn:
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help text
        print(message, file=sys.stderr)
        sys.exit(ERROR)
    command = error.ctx.command_path if error.ctx else "lastseen"
    _fail(f"{message[:1].lower()}{message[1:].rstrip('.')}; see {command} --help")


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _exit_on_broken_pipe() -> NoReturn:
    """Stdout was closed by its reader."""
    _discard_output()
    sys.exit(FOUND)


def _discard_output() -> None:
    """What is buffered cannot be printed: without this, the final flush would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

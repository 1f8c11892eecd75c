"""Write docs/cli.md from what `lastseen COMMAND --help` says.

python docs/make_cli_reference.py            # writes it
python docs/make_cli_reference.py --check    # status 1 if it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from lastseen.cli import app
from lastseen.doctor import SETTINGS

FILE = Path(__file__).with_name("cli.md")
WIDTH = 100
OPENING = """\
# The command line

Made by `python docs/make_cli_reference.py` from `--help`; do not edit.

Shell completion: `lastseen --install-completion`, or `lastseen --show-completion` to see what it would add.

Answers go to stdout, everything else to stderr. Exit status: 0 done or found, 1 not found (or not valid, or
damaged), 2 an error, in one line, 130 interrupted; `-v` adds where an error comes from. `--json` prints one
object that names its schema.
"""


def reference() -> str:
    group = get_command(app)
    context = group.make_context("lastseen", ["x"], resilient_parsing=True, terminal_width=WIDTH)
    return "\n".join([OPENING, _environment(), *_sections(group, context)])


def _sections(command: Any, context: Any) -> Iterator[str]:
    """A command, and below it its actions, if it has any."""
    yield _section(command, context)
    for name, action in getattr(command, "commands", {}).items():
        yield from _sections(action, action.make_context(name, ["x"], parent=context, resilient_parsing=True))


def _environment() -> str:
    rows = "".join(f"| `{name}` | {about} |\n" for name, about in SETTINGS.items())
    return f"| environment variable | means |\n|---|---|\n{rows}"


def _section(command: Any, context: Any) -> str:
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"## {context.command_path}\n\n```\n{text.strip()}\n```\n"


if __name__ == "__main__":
    text = reference()
    if "--check" in sys.argv:
        is_current = FILE.exists() and FILE.read_text() == text
        sys.exit(0 if is_current else f"{FILE} is not up to date: run python {sys.argv[0]}")
    FILE.write_text(text)
    print(FILE)

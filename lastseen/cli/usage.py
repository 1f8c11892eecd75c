"""What `--help` calls the arguments of a command: by their names, as the examples do.

Some versions of Typer add Python types (`VIDEO <list[Path]>`) and brackets around names that have their own.
"""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperArgument, TyperCommand

TYPE = re.compile(r"(?<=\S) <\S+>$")


class PlainCommand(TyperCommand):
    """A command whose arguments are named in its usage line and its help as they were written."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [param for param in self.params if isinstance(param, TyperArgument)]
        return ["[OPTIONS]", *(argument.metavar or str(argument.name) for argument in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        untyped: Any = _Untyped(formatter)
        super().format_options(ctx, untyped)


class _Untyped:
    """A formatter of help that leaves out the types of arguments."""

    def __init__(self, formatter: Any) -> None:
        self._formatter = formatter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._formatter, name)

    def write_dl(self, rows: Any, *rest: Any, **named: Any) -> None:
        self._formatter.write_dl([(TYPE.sub("", name), text) for name, text in rows], *rest, **named)

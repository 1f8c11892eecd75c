"""lastseen doctor: check this machine."""

from __future__ import annotations

import json

import typer

from lastseen.cli.index import IndexFolder
from lastseen.cli.shared import AsJson


def doctor(index: IndexFolder = None, as_json: AsJson = False) -> None:
    """Check this machine, and say how to fix what is wrong.

    Example: lastseen doctor

    Exit status: 0 all that is needed works, 1 something is broken.
    """
    from lastseen.doctor import as_dict, as_text, examine, is_healthy
    from lastseen.index import default_folder

    findings = examine(index, usual=default_folder())
    print(json.dumps(as_dict(findings)) if as_json else as_text(findings))
    raise typer.Exit(0 if is_healthy(findings) else 1)

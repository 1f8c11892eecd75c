"""What one case knows, and what counts as a plain refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from lastseen.errors import LastSeenError

NORMAL, REFUSED = "normal", "refused"
MOST_CHARACTERS = 400  # of an error, besides the folders in it


class Broken(Exception):
    """Something that is promised was not kept."""


class Impossible(Exception):
    """This kind cannot be run on this machine; the report says why."""


@dataclass(frozen=True)
class Case:
    """One of a kind's cases: the same seed and number always do the same."""

    kind: str
    seed: int
    number: int
    prepared: Path  # what the kind's `prepare` made, for all cases
    scratch: Path  # an empty folder for this case
    say: Callable[[str], None]  # what the case is, for the report

    @cached_property
    def rng(self) -> Random:
        return Random(f"{self.seed} {self.kind} {self.number}")

    def check_error(self, error: LastSeenError) -> None:
        check_line(str(error), self.scratch, self.prepared)


def check_line(text: str, *folders: Path) -> None:
    """Raise Broken unless an error is one line of a readable length."""
    for folder in folders:
        text = text.replace(str(folder), "")
    if not text.strip() or len(text.splitlines()) != 1:
        raise Broken(f"an error of {len(text.splitlines())} lines: {text!r:.300}")
    if len(text) > MOST_CHARACTERS:
        raise Broken(f"an error of {len(text)} characters: {text!r:.300}")
    if "\x1b" in text:
        raise Broken(f"an error with escape sequences: {text!r:.300}")

"""The progress bar: a row for each phase, the time that is left, and the answer so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lastseen.cli.shared import log
from lastseen.cli.terminal import make_printable, raw
from lastseen.files import one_line
from lastseen.progress import Progress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lastseen.answer import Answer
    from lastseen.query import Query


class Bar:
    """Called with each Progress. `shows_lines`: whether `say` is seen, which takes a terminal."""

    shows_lines = False

    def __init__(self, what: str | None = None) -> None:
        self.what = what  # said instead of the phase: a file's name
        self._began = time.monotonic()
        self._told: dict[str, tuple[Progress, float]] = {}  # by phase, with the time

    def __call__(self, told: Progress) -> None:
        self._told[told.phase] = told, time.monotonic()

    def say(self, line: str) -> None:
        """A line below the bar, with the phase, instead of the one before; it goes with the bar."""

    def log_times(self) -> None:
        began = self._began
        for told, ended in self._told.values():
            if told.done:
                took_s, began = ended - began, ended
                what = self.what or told.phase, told.done, told.unit
                log.info("%s: %d %s in %.1f s, %.1f a second", *what, took_s, told.done / max(took_s, 1e-9))


class SoFar:
    """The answers so far, in one line below the progress bar."""

    def __init__(self, bar: Bar, queries: Mapping[str, Query], wanted: bool) -> None:
        self._bar, self._wanted = bar, wanted and bar.shows_lines
        self._names = {id(query): name for name, query in queries.items()}
        self._words: dict[str, str] = {}

    def tell(self, answer: Answer) -> None:
        self.tell_first(self._names[id(answer.query)], [answer])

    def tell_first(self, name: str, answers: Sequence[Answer]) -> None:
        from lastseen.words import so_far_words

        if not (answers and self._wanted):
            return
        self._words[name] = (f"{name} " if len(self._names) > 1 else "") + so_far_words(answers[0])
        self._bar.say(f"So far: {'; '.join(self._words.values())}")


@contextmanager
def progress_bar(what: str | None, quiet: bool) -> Iterator[Bar]:
    """Also logs the time taken by each phase in which anything was done."""
    if quiet:
        bar = Bar(what)
        yield bar
    else:
        with _shown(what) as bar:
            yield bar
    bar.log_times()


@contextmanager
def _shown(what: str | None) -> Iterator[Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Rows
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        def render(self, task: Task) -> Text:
            left_s = task.fields["left_s"]
            if left_s is None:
                return Text("")
            return Text(f"{timedelta(seconds=round(left_s))} left", style="progress.remaining")

    class Live(Rows):
        line = phase = ""

        def get_renderables(self) -> Iterable[RenderableType]:
            yield from super().get_renderables()
            if self.line:
                yield Text(f"{self.line}; {self.phase} ...", no_wrap=True, overflow="ellipsis")

    class Shown(Bar):
        def __init__(self) -> None:
            super().__init__(what)
            title, unit = TextColumn("{task.fields[title]}", markup=False), TextColumn("{task.fields[unit]}")
            console = Console(file=raw(sys.stderr))
            self.live = Live(title, BarColumn(), MofNCompleteColumn(), unit, TimeLeft(), console=console)
            self.shows_lines = console.is_terminal
            self._rows: dict[str, Any] = {}
            self._streams: tuple[Any, Any] | None = None

        def __call__(self, told: Progress) -> None:
            super().__call__(told)
            self._start()
            if told.phase not in self._rows:
                self._end_rows()
                title = one_line(self.what or told.phase)
                self._rows[told.phase] = self.live.add_task(
                    "", total=None, title=title, unit=told.unit, left_s=None
                )
            shown: dict[str, Any] = {"unit": told.unit, "left_s": told.left_s}
            self.live.update(self._rows[told.phase], completed=told.done, total=told.total, **shown)
            if told.phase != self.live.phase:
                self.live.phase = told.phase
                self.live.refresh()

        def say(self, line: str) -> None:
            self._start()
            self.live.line = one_line(line)
            self.live.refresh()

        def _start(self) -> None:
            """Late: an error before the work begins prints one line, no bar."""
            if self._streams is None:
                self._streams = sys.stdout, sys.stderr
                self.live.start()
                make_printable()  # the bar has put streams of its own there

        def _end_rows(self) -> None:
            """Only the phase that is going on says what is left of all."""
            for row in self._rows.values():
                self.live.update(row, left_s=None)

        def stop(self) -> None:
            if self._streams is not None:
                self.live.line = ""  # the answer replaces what was said so far
                self._end_rows()
                self.live.stop()
                sys.stdout, sys.stderr = self._streams

    bar = Shown()
    try:
        yield bar
    finally:
        bar.stop()

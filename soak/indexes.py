"""Damaged indexes: the sound answer, an answer that names the damage, or one line; never another answer.

In turn: one bit of the rows (which `verify` must tell), bytes of the catalogue, values in it, whole files.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from lastseen.errors import LastSeenError
from lastseen.index import Index
from lastseen.index.answers import answers_dict, answers_text, list_dict, list_text
from lastseen.index.database import FILE
from lastseen.localizer import Localizer
from lastseen.procedure import Standard
from lastseen.query import Query
from lastseen.weights import load_model, load_rule
from soak.case import NORMAL, REFUSED, Broken, Case
from soak.mutate import DAMAGE, ODD_VALUES
from soak.samples import blocks, moving, save_tiny_model, write_video

NAME = "indexes"
CASES = 700
LIMIT_S = 30.0
T = TypeVar("T")
# Another valid name or date cannot be told from one that was given; only values that cannot be right are.
LABELS = {"name": (None, b"\xff", ""), "recorded_at": (None, "today", float("inf"), 1e30)}
NOT_READ = {"sha256", "size", "mtime_ns", "identity", "id"}  # by a search


def prepare(folder: Path) -> None:
    save_tiny_model(folder / "model")
    localizer = _localizer(folder)
    with Index(folder / "index", localizer=localizer) as index:
        for number, keep in enumerate(("full", "compact", "full")):
            pictures = moving(7 + number, 5, seed=number)
            path = write_video(folder / f"{'abc'[number]}.mp4", pictures, "libx264", fps=5)
            os.utime(
                path, (1_000_000_000, 1_000_000_000)
            )  # the catalogue's bytes must not differ from run to run
            index.add(path, keep=keep, recorded=1e9 + 1000 * number)
        for exhaustive in (False, True):
            answers, _ = asked(index, exhaustive)
            (folder / f"sound-{exhaustive}.json").write_text(answers)


def run(case: Case) -> str:
    folder = case.scratch / "index"
    shutil.copytree(case.prepared / "index", folder)
    kind = KINDS[case.number % len(KINDS)]
    case.say(kind(case, folder))
    return judged(case, folder, must_tell=kind is flip_a_bit)


def judged(case: Case, folder: Path, *, must_tell: bool) -> str:
    """All that can be asked of an index, one after the other; each may refuse for itself."""
    refusals: list[LastSeenError] = []

    def tried(step: Callable[[], T]) -> T | None:
        try:
            return step()
        except LastSeenError as error:
            case.check_error(error)
            refusals.append(error)
            return None

    exhaustive = case.rng.random() < 0.5
    index = tried(lambda: Index(folder, create=False, localizer=_localizer(case.prepared)))
    if index is None:
        return REFUSED
    named = False
    with closing(index):
        tried(lambda: (list_text(index, index.videos()), json.dumps(list_dict(index, index.videos()))))
        problems = tried(lambda: verified(index))
        if must_tell and not problems:
            raise Broken("a bit of committed rows was flipped, and verify says that all is sound")
        if found := tried(lambda: asked(index, exhaustive)):
            answers, text = found
            named = "damage" in text.lower()
            sound = (case.prepared / f"sound-{exhaustive}.json").read_text()
            if answers != sound and not named:
                raise Broken(f"silently another answer: {difference(sound, answers)}")
        for video in tried(index.videos) or []:
            if tried(lambda video=video: index.remove(video)) is not None:
                if any(other.id == video.id for other in tried(index.videos) or []):
                    raise Broken(f"{video.name} was removed and is still listed")
                if index.place(video).exists():
                    raise Broken(f"{video.name} was removed and its rows are still there")
    return REFUSED if refusals or named else NORMAL


def asked(index: Index, exhaustive: bool) -> tuple[str, str]:
    """The answers as JSON and as text."""
    things = {"it": Query.from_array(blocks(7)), "other": Query.from_array(moving(1, 5, seed=1)[2])}
    found = index.ask_many(things, every=True, exhaustive=exhaustive, candidates=2)
    text = answers_text(found, every=True)
    return json.dumps(answers_dict(None, "", found, every=True), sort_keys=True), text


def verified(index: Index) -> list[str]:
    return index.catalogue.problems() + [line for v in index.videos() for line in index.verify(v)]


def difference(sound: str, other: str) -> str:
    at = next((n for n, (a, b) in enumerate(zip(sound, other)) if a != b), min(len(sound), len(other)))
    return f"{sound[max(0, at - 30) : at + 30]!r} became {other[max(0, at - 30) : at + 30]!r}"


# --- damage; each says what it did


def flip_a_bit(case: Case, folder: Path) -> str:
    path = case.rng.choice(_rows(folder))
    data = bytearray(path.read_bytes())
    place, bit = case.rng.randrange(len(data)), case.rng.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {path.parent.name}/{path.name}"


def catalogue_bytes(case: Case, folder: Path) -> str:
    path, turn = folder / FILE, case.number // len(KINDS)
    data = bytearray(path.read_bytes())
    if turn % 2:
        place = case.rng.choice([place for place, byte in enumerate(data) if byte])
        data[place] ^= 1 << case.rng.randrange(8)
        path.write_bytes(data)
        return f"a bit of byte {place} of the catalogue"
    name = list(DAMAGE)[turn // 2 % len(DAMAGE)]
    rows = [rows.read_bytes() for rows in _rows(folder)]
    path.write_bytes(DAMAGE[name](case.rng, data, rows))
    return f"catalogue, {name}"


def catalogue_values(case: Case, folder: Path) -> str:
    """One value of the catalogue; the database stays sound, so only its readers can tell."""
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as base:
        places = [("about", "value")]
        for table in ("videos", "blocks"):
            columns = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
            places += [(table, column) for column in columns if column not in NOT_READ]
        while True:
            table, column = case.rng.choice(places)
            keys = (
                [row[0] for row in base.execute(f"SELECT rowid FROM {table}")] if table != "blocks" else [0]
            )
            where, key = ("1", ()) if table == "blocks" else ("rowid = ?", (case.rng.choice(keys),))
            old = base.execute(f"SELECT {column} FROM {table} WHERE {where}", key).fetchone()[0]
            new = case.rng.choice(LABELS.get(column) or _others(old))
            try:
                base.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (new, *key))
            except (sqlite3.Error, OverflowError, UnicodeEncodeError):
                continue  # the database itself does not take it
            return f"{table}.{column}: {old!r:.40} became {new!r:.40}"


def whole_files(case: Case, folder: Path) -> str:
    rows = _rows(folder)
    path, how = case.rng.choice(rows), case.rng.randrange(7)
    if how == 0:
        path.unlink()
    elif how == 1:
        path.write_bytes(path.read_bytes()[: case.rng.randrange(path.stat().st_size)])
    elif how == 2:
        path.write_bytes(path.read_bytes() + case.rng.randbytes(case.rng.randrange(1, 5000)))
    elif how == 3:
        path.write_bytes(case.rng.choice(rows).read_bytes())
    elif how == 4:
        path.unlink()
        path.mkdir()
    elif how == 5:
        shutil.rmtree(path.parent)
    else:
        (folder / FILE).unlink()
        (folder / FILE).mkdir() if case.rng.random() < 0.5 else (folder / FILE).touch()
    what = ("gone", "cut off", "longer", "another's", "a folder", "gone with its folder", "no catalogue")[how]
    return f"{path.parent.name}/{path.name}: {what}"


def _others(old: Any) -> tuple[Any, ...]:
    odd = (*(value for value in ODD_VALUES if not isinstance(value, (list, dict))), b"\x00\xff")
    if isinstance(old, int | float) and not isinstance(old, bool):
        near = (old + 1, old - 1, 2 * old, -old, old // 2)
        return (*near, *near, *odd)
    return odd


def _rows(folder: Path) -> list[Path]:
    return sorted((folder / "videos").glob("*/*.bin"))


@cache
def _localizer(folder: Path) -> Localizer:
    model = folder / "model"
    return Localizer(load_model(model), procedure=Standard(load_rule(model)))


KINDS: tuple[Callable[[Case, Path], str], ...] = (
    flip_a_bit,
    catalogue_bytes,
    flip_a_bit,
    catalogue_values,
    catalogue_bytes,
    flip_a_bit,
    catalogue_values,
    whole_files,
    catalogue_bytes,
    flip_a_bit,
)

"""Programs killed amid their work: what was committed is there, the rest is made again; outputs are whole."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from operator import le
from pathlib import Path

from PIL import Image

from lastseen.formats.answer_json import parse_answer
from lastseen.index import Index
from lastseen.index.answers import answers_dict
from lastseen.localizer import Localizer
from lastseen.query import Query
from lastseen.video import Video
from soak.case import NORMAL, Broken, Case
from soak.programs import command, started
from soak.samples import blocks, moving, save_tiny_model, write_video

NAME = "kills"
CASES = 32
LIMIT_S = 240.0
SECONDS = 110  # of the video: 550 frames, in two files of rows
SHORT_S = 12  # of the one that is searched
ENGINE = "torch-fp32"  # of all processes of a case, whose features are compared
OUTPUTS = ("out.jpg", "out.mp4", "out.json", "out.csv", "out.html")
RUN_S = 90.0  # one program may take so long


def prepare(folder: Path) -> None:
    save_tiny_model(folder / "model")
    write_video(folder / "walk.mp4", moving(SECONDS, 5), "libx264", fps=5)
    write_video(folder / "short.mp4", moving(SHORT_S, 5), "libx264", fps=5)
    Image.fromarray(blocks(7)).save(folder / "thing.png")
    if (
        command("index", "add", *add_words(folder, folder / "index"), log=folder / "add", limit_s=RUN_S)
        != NORMAL
    ):
        raise Broken("a sound video was not indexed")
    command("find", *find_words(folder, folder), log=folder / "find", limit_s=RUN_S)
    (folder / "answers.json").write_text(answers(folder / "index", folder))


def run(case: Case) -> str:
    if case.number % 4 == 3:
        return outputs_are_whole_or_absent(case)
    return index_goes_on(case)


def index_goes_on(case: Case) -> str:
    folder, log, whole = case.scratch / "index", case.scratch / "add", _contents(case.prepared / "index")
    all_bytes = sum(map(len, whole.values()))
    committed: dict[str, int] = {}
    for kill in range(case.rng.choice((1, 1, 2))):
        least = round(case.rng.random() * all_bytes)
        delay_s = case.rng.uniform(0.2, 5.0)
        if case.rng.random() < 0.7:
            what, is_time = f"{least} bytes of rows", partial(_has_written, folder, least)
        else:
            what, is_time = f"{delay_s:.2f} s", partial(le, delay_s)
        case.say(f"index add, kill {kill + 1} after {what}")
        killed(started("index", "add", *add_words(case.prepared, folder), log=log), is_time)
        check_committed(folder, whole, committed)
    if command("index", "add", *add_words(case.prepared, folder), log=log, limit_s=RUN_S) != NORMAL:
        raise Broken(f"it did not go on: {log.with_suffix('.err').read_text()[-300:]!r}")
    check_committed(folder, whole, committed)
    if _contents(folder) != whole:
        raise Broken("the finished index differs from one that was made in one go")
    if answers(folder, case.prepared) != (case.prepared / "answers.json").read_text():
        raise Broken("the finished index answers otherwise than one that was made in one go")
    return NORMAL


def check_committed(folder: Path, whole: dict[str, bytes], committed: dict[str, int]) -> None:
    """Nothing that was once committed is lost, and all of it is right."""
    if not (folder / "catalogue.sqlite").exists():
        if committed:
            raise Broken("the catalogue is gone")
        return
    with Index(folder, create=False) as index:
        problems = index.catalogue.problems() + [p for v in index.videos() for p in index.verify(v)]
    if problems:
        raise Broken(f"after a kill, verify says: {problems[0]}")
    for name, data in _contents(folder).items():
        if data != whole[name][: len(data)]:
            raise Broken(f"{name}: wrong bytes were committed")
        if len(data) < committed.get(name, 0):
            raise Broken(f"{name}: committed rows are lost")
        committed[name] = len(data)


def outputs_are_whole_or_absent(case: Case) -> str:
    log, sound = case.scratch / "find", case.prepared
    late_s = case.rng.choice((0.0, 0.005, 0.02, 0.1, 0.4))
    first_seen: list[float] = []

    def is_time(since_s: float) -> bool:
        if not first_seen and any(path.name.startswith((".out", "out")) for path in case.scratch.iterdir()):
            first_seen.append(since_s)
        return bool(first_seen) and since_s >= first_seen[0] + late_s

    case.say(f"find, killed {late_s} s after it began to write")
    killed(started("find", *find_words(sound, case.scratch), log=log), is_time)
    for name in OUTPUTS:
        if (path := case.scratch / name).exists():
            check_whole(path, sound / name)
    command("find", *find_words(sound, case.scratch), log=log, limit_s=RUN_S)
    for name in OUTPUTS:
        check_whole(case.scratch / name, sound / name)
    return NORMAL


def check_whole(path: Path, sound: Path) -> None:
    """The output that an uninterrupted run wrote."""
    if path.suffix == ".mp4":
        counts = [sum(1 for _ in Video(file).frames(5)) for file in (path, sound)]
        if counts[0] != counts[1]:
            raise Broken(f"{path.name}: {counts[0]} frames of {counts[1]}")
    elif path.suffix == ".html":
        if not path.read_text().rstrip().endswith("</html>"):
            raise Broken(f"{path.name} ends early")
    elif path.suffix == ".json":
        parse_answer(path.read_text())
    elif path.read_bytes() != sound.read_bytes():
        raise Broken(f"{path.name} is not what an uninterrupted run writes")


def killed(process: subprocess.Popen[bytes], is_time: Callable[[float], bool]) -> None:
    """Kill it when it is time, if it has not ended before."""
    began = time.monotonic()
    try:
        while process.poll() is None and not is_time(time.monotonic() - began):
            if time.monotonic() - began > RUN_S:
                raise Broken(f"hang: not done after {RUN_S:g} s")
            time.sleep(0.002)
    finally:
        process.kill()
        process.wait()


def _has_written(folder: Path, least: int, _: float) -> bool:
    total = 0
    for path in (folder / "videos").glob("*/*.bin"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total >= least


def answers(folder: Path, prepared: Path) -> str:
    with Index(folder, create=False, localizer=_localizer(prepared)) as index:
        found = index.ask_many({"it": Query.from_array(blocks(7))}, every=True)
        return json.dumps(answers_dict(None, "", found, every=True))


def _contents(folder: Path) -> dict[str, bytes]:
    """All committed rows, by video and kind."""
    found = {}
    with Index(folder, create=False) as index:
        for video in index.videos():
            for rows in filter(None, (index.fine(video), index.compact(video))):
                found[f"{video.name}:{rows.kind}"] = rows.read(video.first, video.frames).tobytes()
    return found


def add_words(prepared: Path, folder: Path) -> tuple[object, ...]:
    """`lastseen index add` of the prepared video into an index."""
    date = "2026-01-01 10:00"
    where = ("--index", folder, "--weights", prepared / "model")
    return (
        prepared / "walk.mp4",
        *where,
        "--quiet",
        "--device",
        "cpu",
        "--engine",
        ENGINE,
        "--recorded",
        date,
    )


def find_words(prepared: Path, out: Path) -> tuple[object, ...]:
    """`lastseen find` in the prepared video, with all OUTPUTS in a folder."""
    jpg, mp4, data, table, page = (out / name for name in OUTPUTS)
    what = (prepared / "thing.png", prepared / "short.mp4", "--weights", prepared / "model")
    drawn = ("--picture", jpg, "--video", mp4, "--report", page)
    return (*what, "--quiet", "--device", "cpu", *drawn, "--save", data, "--save", table)


@cache
def _localizer(folder: Path) -> Localizer:
    return Localizer.from_pretrained(folder / "model", device="cpu", engine=ENGINE)

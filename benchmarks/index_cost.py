"""What an hour costs beside a minute: seconds and memory of indexing, asking and searching without an index.

    python benchmarks/index_cost.py                              1, 10 and 60 minutes
    python benchmarks/index_cost.py --minutes 1 10 --limit 300   nothing that takes longer than five minutes

Writes docs/pictures/cost.png and a line of JSON for each. The model is tiny and random and the video is small
(320x180, a drifting pattern), so that an hour takes minutes: read how cost grows with length, not how high it
is. The question is about a thing that is not there. Each job is a process of its own; memory is its peak as
the operating system tells it; seconds are processor time, since other programs may run beside.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from index_kill import tiny_localizer
from memory import repeated
from PIL import ImageDraw

from lastseen import Index, Query, Video
from lastseen.render.canvas import BLUE, FAINT, INK, MUTED, Canvas, Colour, save_picture
from lastseen.video import VideoWriter

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "cost.png"
WIDTH, HEIGHT, FPS = 320, 180, 15
JOBS = {"index": "index it", "ask": "ask the index", "find": "search without an index"}
COLOURS: dict[str, Colour] = {"index": INK, "ask": BLUE, "find": (190, 120, 0)}
Row = dict[str, float]


def make_minute(path: Path) -> None:
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 255, (12, 60, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    with VideoWriter(path, WIDTH, HEIGHT, FPS) as writer:
        for number in range(60 * FPS):
            x = number * 2 % (blocks.shape[1] - WIDTH)
            writer.write(np.ascontiguousarray(blocks[:HEIGHT, x : x + WIDTH]))


def run(job: str, path: Path, folder: Path) -> None:
    """In a process of its own: do it, print what it cost."""
    import torch

    from lastseen.index.record import add_file
    from lastseen.index.search import search

    torch.set_num_threads(1)
    localizer = tiny_localizer("vqloc")
    # Random weights see everything everywhere, and the quick search would have to look at all of it.
    rule = localizer.rule
    localizer = localizer.with_rule(replace(rule, confidence=replace(rule.confidence, threshold=1.0)))
    query = Query.from_array(np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8))
    began, wall = time.process_time(), time.perf_counter()
    if job == "find":
        frames = len(localizer.predict(Video(path), [query])[0])
    else:
        with Index(folder, create=True) as index:
            if job == "index":
                add_file(index, localizer, path)
            else:
                search(index, localizer, {"it": query})
            frames = index.videos()[0].frames
    row = {"frames": frames, "cpu_s": time.process_time() - began, "wall_s": time.perf_counter() - wall}
    row["peak_mib"] = _peak_mib()
    print(json.dumps({key: round(value, 2) for key, value in row.items()}))


def _peak_mib() -> float:
    """Not ru_maxrss if it can be helped: on Linux that begins with the size of the parent process."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # KiB


def measured(minutes: Sequence[int], limit_s: float) -> dict[str, dict[int, Row]]:
    found: dict[str, dict[int, Row]] = {job: {} for job in JOBS}
    with tempfile.TemporaryDirectory() as place:
        minute = Path(place) / "minute.mp4"
        make_minute(minute)
        for count in minutes:
            path, index = Path(place) / f"{count}min.mp4", Path(place) / f"index{count}"
            repeated(minute, path, count)
            for job in JOBS:
                command = [sys.executable, __file__, "--one", job, str(path), str(index)]
                try:
                    done = subprocess.run(
                        command, check=True, stdout=subprocess.PIPE, text=True, timeout=limit_s
                    )
                except subprocess.TimeoutExpired:
                    print(json.dumps({"minutes": count, "job": job, "stopped after_s": limit_s}), flush=True)
                    break
                found[job][count] = json.loads(done.stdout)
                print(json.dumps({"minutes": count, "job": job, **found[job][count]}), flush=True)
    return found


def draw(found: dict[str, dict[int, Row]]) -> np.ndarray:
    """Two plots side by side; straight lines through what was measured, nothing beyond."""
    canvas = Canvas(1200, 420)
    canvas.text(32, 46, "Cost against length of the video", size=24)
    canvas.text(32, 74, "tiny random model, 320x180, 5 frames a second, one thread", size=15, fill=MUTED)
    _plot(canvas, (90, 130, 560, 360), found, "cpu_s", "processor seconds")
    _plot(canvas, (690, 130, 1160, 360), found, "peak_mib", "peak memory, MiB")
    return canvas.array()


def _plot(
    canvas: Canvas,
    area: tuple[float, float, float, float],
    found: dict[str, dict[int, Row]],
    key: str,
    title: str,
) -> None:
    x1, y1, x2, y2 = area
    longest = max(minutes for rows in found.values() for minutes in rows)
    step, top = _scale(max(row[key] for rows in found.values() for row in rows.values()))

    def place(minutes: float, value: float) -> tuple[float, float]:
        return x1 + (x2 - x1) * minutes / longest, y2 - (y2 - y1) * value / top

    def paint(pen: ImageDraw.ImageDraw, u: Callable[[float], float]) -> None:
        def at(x: float, y: float) -> tuple[float, float]:
            return u(x - x1 + 10), u(y - y1 + 10)

        for level in np.arange(0, top + step / 2, step):
            y = place(0, level)[1]
            pen.line((*at(x1, y), *at(x2, y)), fill=FAINT, width=int(u(1)))
        for job, rows in found.items():
            points = [at(*place(minutes, row[key])) for minutes, row in rows.items()]
            pen.line(points, fill=COLOURS[job], width=int(u(2)), joint="curve")
            for x, y in points:
                pen.ellipse((x - u(4), y - u(4), x + u(4), y + u(4)), fill=COLOURS[job])

    canvas.smooth((x1 - 10, y1 - 10, x2 + 10, y2 + 10), paint)
    canvas.text(x1 - 58, y1 - 18, title, size=16)
    for level in np.arange(0, top + step / 2, step):
        canvas.text(x1 - 14, place(0, level)[1], f"{level:g}", size=15, fill=MUTED, anchor="rm")
    for minutes in sorted({minutes for rows in found.values() for minutes in rows}):
        text = f"{minutes}" + (" min" if minutes == longest else "")
        canvas.text(place(minutes, 0)[0], y2 + 24, text, size=15, fill=MUTED, anchor="ms")
    x = x1
    for job, name in JOBS.items():
        canvas.text(x, y2 + 50, name, size=15, fill=COLOURS[job])
        x += canvas.text_width(name, 15) + 20


def _scale(most: float) -> tuple[float, float]:
    """Round steps, at most five of them, and where the axis ends."""
    power = 10.0 ** np.floor(np.log10(max(most, 1e-6) / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if most <= 5 * factor * power)
    return float(step), float(step * np.ceil(most / step))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, nargs="+", default=[1, 10, 60])
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds that a job may take")
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--one", nargs=3, metavar=("JOB", "VIDEO", "INDEX"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        job, path, index = arguments.one
        run(job, Path(path), Path(index))
        return
    save_picture(arguments.out, draw(measured(arguments.minutes, arguments.limit)))
    print(arguments.out)


if __name__ == "__main__":
    main()

"""The paper's qualitative figure: the query, four frames with zoom-ins, the score over time."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

from lastseen.answer import Answer
from lastseen.files import check_apart, one_line
from lastseen.render.canvas import (
    BLUE,
    CYAN,
    INK,
    MUTED,
    YELLOW,
    Area,
    Canvas,
    Painter,
    fitted,
    save_picture,
)
from lastseen.render.curve import score_curve
from lastseen.render.moments import Moment, moments
from lastseen.render.plot import draw_curve
from lastseen.render.subject import thing_of, video_of
from lastseen.track import ResponseTrack
from lastseen.video import Video
from lastseen.words import clock, headline

WIDTH, MARGIN, GAP, FRAMES = 1600, 32, 16, 4
QUERY_WIDTH, TALLEST, LABEL, TITLE, PLOT = 220, 240, 26, 44, 200  # a width, then heights of the parts
TEXT = 16


def draw_figure(answer: Answer, *, truth: ResponseTrack | None = None, scale: float = 1.0) -> np.ndarray:
    """[h, w, 3]; the last sighting is shown, or else the best guess. Use `scale` 2 for print."""
    video, thing, shown = video_of(answer), thing_of(answer), answer.shown
    cell = (WIDTH - 2 * MARGIN - QUERY_WIDTH - FRAMES * GAP) / FRAMES
    tall = min(cell * video.height / video.width, TALLEST)
    rows = TITLE + LABEL + tall + GAP / 2 + tall
    height = 2 * MARGIN + rows + (GAP + LABEL + PLOT + LABEL if answer.curve is not None else 0)
    canvas = Canvas(WIDTH, height, scale)
    canvas.text(MARGIN, MARGIN + 22, headline(answer), size=24)
    if shown:
        _legend(
            canvas, "answer" if answer.found else "best guess", truth is not None, answer.curve is not None
        )
    top = MARGIN + TITLE
    if thing is not None:
        _query(canvas, thing, video, (MARGIN, top, MARGIN + QUERY_WIDTH, MARGIN + rows))
    x = float(MARGIN + QUERY_WIDTH + GAP)
    for moment in moments(video, shown[-1] if shown else None, FRAMES, truth):
        _column(canvas, moment, (x, top, x + cell, top + LABEL + tall), tall)
        x += cell + GAP
    if answer.curve is not None:
        curve = score_curve(answer, truth, columns=round(WIDTH * scale))
        y = MARGIN + rows + GAP + LABEL
        draw_curve(canvas, curve, (MARGIN + 40, y, WIDTH - MARGIN, y + PLOT))
    return canvas.array()


def write_figure(
    path: str | os.PathLike[str], answer: Answer, *, truth: ResponseTrack | None = None, scale: float = 1.0
) -> None:
    check_apart([("", path)], [answer.video.path])
    save_picture(path, draw_figure(answer, truth=truth, scale=scale))


def _legend(canvas: Canvas, answer: str, with_truth: bool, with_peaks: bool) -> None:
    """The meaning of the colours, drawn from the right."""
    entries: list[tuple[str, Painter]] = [(answer, _solid)]
    if with_truth:
        entries.append(("truth", _dashed))
    if with_peaks:
        entries.append(("peak", _dot))
    x, y = float(WIDTH - MARGIN), MARGIN + 20
    for name, swatch in reversed(entries):
        x -= canvas.text_width(name, TEXT)
        canvas.text(x, y, name, size=TEXT)
        canvas.smooth((x - 26, y - 15, x - 4, y + 3), swatch)
        x -= 50


def _solid(pen: ImageDraw.ImageDraw, u: Callable[[float], float]) -> None:
    pen.rectangle((u(1), u(6), u(20), u(12)), fill=YELLOW, outline=INK, width=int(u(1)))


def _dashed(pen: ImageDraw.ImageDraw, u: Callable[[float], float]) -> None:
    for start in (1, 8, 15):
        pen.rectangle((u(start), u(6), u(start + 5), u(12)), fill=CYAN, outline=INK, width=int(u(1)))


def _dot(pen: ImageDraw.ImageDraw, u: Callable[[float], float]) -> None:
    pen.ellipse((u(6), u(4), u(16), u(14)), fill=BLUE)


def _query(canvas: Canvas, thing: np.ndarray, video: Video, area: Area) -> None:
    """The query and, if there is room below, the name of the video."""
    x1, y1, x2, y2 = area
    canvas.text(x1, y1 + 17, "query", size=TEXT, fill=MUTED)
    height, width = thing.shape[:2]
    place = fitted(width, height, (x1, y1 + LABEL, x2, y2))
    bottom = y1 + LABEL + place[3] - place[1]
    canvas.picture(Image.fromarray(np.ascontiguousarray(thing)), (place[0], y1 + LABEL, place[2], bottom))
    facts = f"{video.width}x{video.height}, {clock(video.duration_s)}"
    if y2 - bottom > 60:
        canvas.text(x1, y2 - 26, canvas.shortened(one_line(video.path.name), TEXT, x2 - x1), size=TEXT)
        canvas.text(x1, y2 - 4, facts, size=TEXT, fill=MUTED)


def _column(canvas: Canvas, moment: Moment, area: Area, tall: float) -> None:
    """A frame with its time, and the zoom-in below."""
    x1, y1, x2, y2 = area
    canvas.text(x1, y1 + 17, clock(moment.time_s), size=TEXT, fill=MUTED)
    if moment.box is not None and moment.truth is not None:
        overlap = f"IoU {moment.box.iou(moment.truth):.2f}"
        canvas.text(x2, y1 + 17, overlap, size=TEXT, fill=MUTED, anchor="rs")
    height, width = moment.image.shape[:2]
    left, top, right, bottom = fitted(width, height, (x1, y1 + LABEL, x2, y2))
    place = (x1, top, x1 + right - left, bottom)
    canvas.picture(moment.drawn(*_size(canvas, place)), place)
    below = (x1, y2 + GAP / 2, x2, y2 + GAP / 2 + tall)
    canvas.picture(moment.zoomed(*_size(canvas, below)), below)


def _size(canvas: Canvas, area: Area) -> tuple[int, int]:
    x1, y1, x2, y2 = (round(v * canvas.scale) for v in area)
    return max(1, x2 - x1), max(1, y2 - y1)

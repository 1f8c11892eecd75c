"""A filmstrip: frames of a track side by side."""

from __future__ import annotations

import os

import numpy as np
from PIL import Image

from lastseen.answer import Answer
from lastseen.files import check_apart
from lastseen.render.canvas import MUTED, Canvas, fitted, save_picture
from lastseen.render.moments import moments
from lastseen.render.subject import thing_of, track_of, video_of
from lastseen.track import ResponseTrack
from lastseen.words import clock

WIDTH, MARGIN, GAP, LABEL = 1600, 24, 12, 26
TALL, FEWEST, MOST = 210, 2, 8  # preferred height; fewest and most frames in a row
ROWS = 2


def draw_filmstrip(
    answer: Answer, *, count: int | None = None, truth: ResponseTrack | None = None, scale: float = 1.0
) -> np.ndarray:
    """[h, w, 3]: the query, if known, then `count` frames (default: two rows)."""
    video, track, thing = video_of(answer), track_of(answer), thing_of(answer)
    wished = TALL * video.width / video.height
    columns = min(max(int((WIDTH - 2 * MARGIN + GAP) / (wished + GAP)), FEWEST), MOST)
    cell = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns
    tall = cell * video.height / video.width
    first = int(thing is not None)
    shown = moments(video, track, count or ROWS * columns - first, truth)
    cells = first + len(shown)
    rows, columns = -(-cells // columns), min(columns, cells)
    width = 2 * MARGIN + columns * cell + (columns - 1) * GAP
    canvas = Canvas(width, 2 * MARGIN + rows * (LABEL + tall) + (rows - 1) * GAP, scale)
    for number in range(cells):
        row, column = divmod(number, columns)
        x, y = MARGIN + column * (cell + GAP), MARGIN + row * (LABEL + tall + GAP)
        area = (x, y + LABEL, x + cell, y + LABEL + tall)
        if thing is not None and number == 0:
            name, picture = "query", Image.fromarray(np.ascontiguousarray(thing))
            left, top, right, bottom = fitted(picture.width, picture.height, area)
            area = (x, y + LABEL, x + right - left, y + LABEL + bottom - top)
        else:
            moment = shown[number - first]
            name, picture = clock(moment.time_s), moment.drawn(round(cell * scale), round(tall * scale))
        canvas.text(x, y + 17, name, size=16, fill=MUTED)
        canvas.picture(picture, area)
    return canvas.array()


def write_filmstrip(
    path: str | os.PathLike[str],
    answer: Answer,
    *,
    count: int | None = None,
    truth: ResponseTrack | None = None,
    scale: float = 1.0,
) -> None:
    check_apart([("", path)], [answer.video.path])
    save_picture(path, draw_filmstrip(answer, count=count, truth=truth, scale=scale))

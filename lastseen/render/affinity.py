"""The figure of the paper's appendix: a point of the query and a map of its feature similarity to a frame."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

from lastseen.box import Letterbox
from lastseen.render.canvas import BLACK, BLUE, MUTED, WHITE, Canvas, fitted, save_picture

HEIGHT, MARGIN, GAP, LABEL, BAR = 420, 24, 16, 26, 18
# Dark blue, red, yellow with increasing lightness: readable in greyscale and by the colour-blind.
HEAT = ((0, 0, 20), (60, 15, 110), (140, 30, 110), (210, 65, 65), (245, 135, 15), (252, 235, 110))


def draw_affinity(
    picture: np.ndarray,
    point: tuple[float, float],
    frame: np.ndarray,
    similarity: np.ndarray,
    letterbox: Letterbox,
    *,
    scale: float = 1.0,
) -> np.ndarray:
    """The query [h, w, 3] with its point (x, y) in pixels, and the frame with the heat map over it.

    `similarity` [rows, columns] is `lastseen.model.affinity.point_affinity`'s, on the letterbox' canvas.
    """
    heat = over_frame(similarity, letterbox)
    low, high = float(np.median(heat)), float(heat.max())
    share = np.clip((heat - low) / max(high - low, 1e-6), 0, 1)
    left = _width(picture)
    right = _width(frame)
    canvas = Canvas(MARGIN * 2 + left + GAP + right + GAP + BAR + 44, HEIGHT + LABEL + 2 * MARGIN, scale)
    top = MARGIN + LABEL
    canvas.text(MARGIN, MARGIN + 17, "query", size=16, fill=MUTED)
    canvas.text(MARGIN + left + GAP, MARGIN + 17, "similarity to the point", size=16, fill=MUTED)
    area = fitted(picture.shape[1], picture.shape[0], (MARGIN, top, MARGIN + left, top + HEIGHT))
    canvas.picture(Image.fromarray(np.ascontiguousarray(picture)), area)
    x = area[0] + point[0] / picture.shape[1] * (area[2] - area[0])
    y = area[1] + point[1] / picture.shape[0] * (area[3] - area[1])
    _dot(canvas, x, y)
    x = MARGIN + left + GAP
    place = fitted(frame.shape[1], frame.shape[0], (x, top, x + right, top + HEIGHT))
    canvas.picture(_overlay(frame, share), place)
    peak = np.unravel_index(heat.argmax(), heat.shape)
    px = place[0] + (peak[1] + 0.5) / heat.shape[1] * (place[2] - place[0])
    py = place[1] + (peak[0] + 0.5) / heat.shape[0] * (place[3] - place[1])
    _ring(canvas, px, py)
    bar = np.linspace(1, 0, 256)[:, None].repeat(4, 1)
    x += right + GAP
    canvas.picture(Image.fromarray(coloured(bar)), (x, place[1], x + BAR, place[3]))
    canvas.text(x + BAR + 8, place[1], f"{high:.2f}", size=15, fill=MUTED, anchor="lt")
    canvas.text(x + BAR + 8, place[3], f"{low:.2f}", size=15, fill=MUTED, anchor="ls")
    return canvas.array()


def write_affinity(
    path: str | os.PathLike[str],
    picture: np.ndarray,
    point: tuple[float, float],
    frame: np.ndarray,
    similarity: np.ndarray,
    letterbox: Letterbox,
    *,
    scale: float = 1.0,
) -> None:
    save_picture(path, draw_affinity(picture, point, frame, similarity, letterbox, scale=scale))


def over_frame(similarity: np.ndarray, letterbox: Letterbox) -> np.ndarray:
    """[rows, columns] on the canvas -> [h, w] on the frame, smoothly enlarged, padding cut off."""
    canvas = Image.fromarray(np.asarray(similarity, np.float32))
    size = (letterbox.canvas_width, letterbox.canvas_height)
    left, top = letterbox.left, letterbox.top
    content = (left, top, left + letterbox.content_width, top + letterbox.content_height)
    large = canvas.resize(size, Image.Resampling.BICUBIC).crop(content)
    whole = large.resize((letterbox.frame_width, letterbox.frame_height), Image.Resampling.BILINEAR)
    return np.asarray(whole)


def coloured(share: np.ndarray) -> np.ndarray:
    """[h, w] in [0, 1] -> [h, w, 3] uint8"""
    stops = np.linspace(0, 1, len(HEAT))
    planes = [np.interp(share, stops, [colour[c] for colour in HEAT]) for c in range(3)]
    return np.stack(planes, -1).round().astype(np.uint8)


def _overlay(frame: np.ndarray, share: np.ndarray) -> Image.Image:
    """Heat map over the frame in greyscale, so that colour shows only similarity."""
    grey = np.asarray(Image.fromarray(frame).convert("L"), np.float32)[..., None] * 0.75
    opacity = (0.85 * share**0.8)[..., None]
    mixed = (1 - opacity) * grey + opacity * coloured(share)
    return Image.fromarray(mixed.round().clip(0, 255).astype(np.uint8))


def _width(picture: np.ndarray) -> float:
    """Width of the picture at the figure's height, at most 16:9."""
    return HEIGHT * min(picture.shape[1] / picture.shape[0], 16 / 9)


def _dot(canvas: Canvas, x: float, y: float) -> None:
    def paint(pen: ImageDraw.ImageDraw, u: Callable[[float], float]) -> None:
        pen.ellipse((u(2), u(2), u(22), u(22)), fill=WHITE)
        pen.ellipse((u(5), u(5), u(19), u(19)), fill=BLUE)

    canvas.smooth((x - 12, y - 12, x + 12, y + 12), paint)


def _ring(canvas: Canvas, x: float, y: float) -> None:
    def paint(pen: ImageDraw.ImageDraw, u: Callable[[float], float]) -> None:
        pen.ellipse((u(2), u(2), u(30), u(30)), outline=BLACK, width=int(u(5)))
        pen.ellipse((u(3), u(3), u(29), u(29)), outline=WHITE, width=int(u(2.5)))

    canvas.smooth((x - 16, y - 16, x + 16, y + 16), paint)

"""One frame, box drawn in."""

from __future__ import annotations

import io
import os

import numpy as np
from PIL import Image, ImageDraw

from lastseen.box import Box
from lastseen.render.canvas import BLACK, WHITE, YELLOW, font, outline, save_picture
from lastseen.render.words import clock
from lastseen.track import ResponseTrack
from lastseen.video import Video


def draw_answer(
    image: np.ndarray, box: Box | None, caption: str = "", thing: np.ndarray | None = None
) -> np.ndarray:
    """A frame [h, w, 3] with the box, a line of text and, in the corner, what was asked for."""
    picture = Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    unit = max(1, round(min(picture.size) / 240))  # line widths and text grow with the picture
    if box is not None:
        outline(picture, box, YELLOW, 2 * unit)
    if thing is not None:
        _paste_thing(picture, thing, unit)
    if caption:
        face = font(12 * unit)
        _, top, right, bottom = draw.textbbox((0, 0), caption, font=face)
        height = bottom - top + 8 * unit
        y = picture.height - height
        draw.rectangle((0, y, min(picture.width, right + 12 * unit), picture.height), fill=BLACK)
        draw.text((6 * unit, y + 4 * unit - top), caption, fill=WHITE, font=face)
    return np.asarray(picture)


def write_picture(
    path: str | os.PathLike[str], video: Video, track: ResponseTrack, thing: np.ndarray | None = None
) -> None:
    """The last moment in view, box drawn in."""
    image = video.frame_at(track.end).image
    caption = f"last seen {clock(track.end)}   score {track.score:.2f}"
    save_picture(path, draw_answer(image, track.last_box, caption, thing))


def jpeg(image: np.ndarray, longer: int | None = None) -> bytes:
    """A picture [h, w, 3] as the bytes of a JPEG file, no larger than `longer` on its longer side."""
    picture = Image.fromarray(np.ascontiguousarray(image))
    if longer is not None:
        picture.thumbnail((longer, longer))
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=88)
    return stream.getvalue()


def _paste_thing(picture: Image.Image, thing: np.ndarray, unit: int) -> None:
    side = min(picture.size) // 4
    inset = Image.fromarray(np.ascontiguousarray(thing))
    scale = side / max(inset.size)
    inset = inset.resize((max(1, round(inset.width * scale)), max(1, round(inset.height * scale))))
    framed = Image.new("RGB", (inset.width + 2 * unit, inset.height + 2 * unit), WHITE)
    framed.paste(inset, (unit, unit))
    picture.paste(framed, (picture.width - framed.width - 4 * unit, 4 * unit))

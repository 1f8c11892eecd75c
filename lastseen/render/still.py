"""One frame with its box."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from lastseen.answer import Answer
from lastseen.box import Box
from lastseen.files import check_apart
from lastseen.render.canvas import BLACK, WHITE, YELLOW, font, outline, save_picture
from lastseen.render.subject import thing_of, track_of, video_of
from lastseen.words import caption


def draw_answer(
    image: np.ndarray,
    box: Box | None,
    caption: str = "",
    thing: np.ndarray | None = None,
    *,
    is_guess: bool = False,
) -> np.ndarray:
    """A frame [h, w, 3] with the box and, where they do not cover it, a caption and the query. The box of a
    guess is dashed."""
    picture = Image.fromarray(image)
    width, height = picture.size
    unit = max(1, round(min(picture.size) / 240))  # scales line widths and text with the picture
    taken = [] if box is None else [box]
    if box is not None:
        outline(picture, box, YELLOW, 2 * unit, dashed=is_guess)
    if caption:
        words = _caption(caption, width, unit)
        taken.append(_put(picture, words, [(0, height - words.height), (0, 0)], taken))
    if thing is not None:
        inset, rim = _framed(thing, min(picture.size) // 4, unit), 4 * unit
        right, bottom = width - inset.width - rim, height - inset.height - rim
        _put(picture, inset, [(right, rim), (rim, rim), (right, bottom), (rim, bottom)], taken)
    return np.asarray(picture)


def write_picture(path: str | os.PathLike[str], answer: Answer) -> None:
    """The last frame of the track, with its box; if the thing was not seen, the best guess, labelled so."""
    check_apart([("", path)], [answer.video.path])
    save_picture(path, answer_picture(answer))


def answer_picture(answer: Answer) -> np.ndarray:
    """[h, w, 3] uint8: what `write_picture` writes."""
    track, thing = track_of(answer), thing_of(answer)
    image = video_of(answer).frame_at(track.end).image
    return draw_answer(image, track.last_box, caption(answer), thing, is_guess=not answer.found)


def jpeg(image: np.ndarray, longer: int | None = None) -> bytes:
    """Encode a picture [h, w, 3] as JPEG, its longer side reduced to at most `longer` pixels."""
    picture = Image.fromarray(np.ascontiguousarray(image))
    if longer is not None:
        picture.thumbnail((longer, longer))
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=88)
    return stream.getvalue()


def decoded(content: bytes) -> np.ndarray:
    """The picture [h, w, 3] of a JPEG that `jpeg` made."""
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def _caption(text: str, most: int, unit: int) -> Image.Image:
    face = font(12 * unit)
    _, top, right, bottom = face.getbbox(text)
    words = Image.new("RGB", (min(most, round(right) + 12 * unit), round(bottom - top) + 8 * unit), BLACK)
    ImageDraw.Draw(words).text((6 * unit, 4 * unit - top), text, fill=WHITE, font=face)
    return words


def _framed(thing: np.ndarray, side: int, unit: int) -> Image.Image:
    inset = Image.fromarray(np.ascontiguousarray(thing))
    scale = side / max(inset.size)
    inset = inset.resize((max(1, round(inset.width * scale)), max(1, round(inset.height * scale))))
    framed = Image.new("RGB", (inset.width + 2 * unit, inset.height + 2 * unit), WHITE)
    framed.paste(inset, (unit, unit))
    return framed


def _put(
    picture: Image.Image, part: Image.Image, corners: Sequence[tuple[int, int]], taken: list[Box]
) -> Box:
    """Paste `part` at the first corner where it covers none of `taken`, else at the first corner."""
    places = [Box(x, y, x + part.width, y + part.height) for x, y in corners]
    place = next((p for p in places if not any(p.iou(other) for other in taken)), places[0])
    picture.paste(part, (int(place.x1), int(place.y1)))
    return place

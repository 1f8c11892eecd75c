"""How a notebook shows an answer: its words, and its picture if the video is there."""

from __future__ import annotations

import base64
import io
from html import escape

from PIL import Image

from lastseen.answer import Answer
from lastseen.errors import LastSeenError
from lastseen.files import one_line
from lastseen.render.still import answer_picture, jpeg
from lastseen.words import answer_text

LONGER = 640  # side of the picture, in pixels


def answer_html(answer: Answer) -> str:
    words = escape(answer_text(answer.only_last())).replace("\n", "<br>")
    name = escape(one_line(answer.video.path.name))
    try:
        picture = base64.b64encode(jpeg(answer_picture(answer), LONGER)).decode()
    except LastSeenError as error:  # a notebook shows what there is
        return f"<p>{words}<br><small>in {name}; no picture: {escape(one_line(str(error)))}</small></p>"
    image = f'<img src="data:image/jpeg;base64,{picture}" alt="the moment, with a box around the thing">'
    return f"<figure>{image}<figcaption>{words}<br><small>in {name}</small></figcaption></figure>"


def answer_png(answer: Answer) -> bytes | None:
    """None if there is nothing to draw, or nothing to draw on."""
    stream = io.BytesIO()
    try:
        Image.fromarray(answer_picture(answer)).save(stream, "PNG")
    except LastSeenError:
        return None
    return stream.getvalue()

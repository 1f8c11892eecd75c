"""A self-contained HTML report: the answer, its pictures, the score curve.

It loads nothing from outside (its content security policy forbids it) and is also well-formed XML.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files

import numpy as np
from PIL import Image

from lastseen import __version__
from lastseen.answer import Answer
from lastseen.files import check_apart, one_line, write_whole
from lastseen.render.curve import score_curve
from lastseen.render.moments import Moment, moments
from lastseen.render.subject import thing_of, video_of
from lastseen.render.svg import curve_html
from lastseen.track import ResponseTrack
from lastseen.video import Video
from lastseen.words import clock, headline

LARGE, SMALL = 960, 400  # longer sides of pictures, in pixels
FILMSTRIP = 8


def report_html(answer: Answer, *, truth: ResponseTrack | None = None) -> str:
    """The page; the last sighting is shown, or else the best guess."""
    video, thing, shown = video_of(answer), thing_of(answer), answer.shown
    title = headline(answer)
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="muted">in {escape(one_line(video.path.name))}</p>']
    seen = "last in view" if answer.found else "best guess"
    parts.append(_answer(video, shown[-1] if shown else None, thing, truth, seen))
    if answer.curve is not None:
        curve = score_curve(answer, truth)
        parts += ["<h2>Score over time</h2>", curve_html(curve), _legend(bool(shown), truth is not None)]
    if shown:
        strip = "".join(
            _figure(moment, SMALL, clock(moment.time_s))
            for moment in moments(video, shown[-1], FILMSTRIP, truth)
        )
        parts += ["<h2>The moment</h2>", f'<div class="strip">{strip}</div>']
        parts += ["<h2>Sightings</h2>" if answer.found else "<h2>Best guess</h2>", _table(shown)]
    parts += ["<h2>About</h2>", _facts(answer)]
    return _page(title, "\n".join(parts))


def write_report(path: str | os.PathLike[str], answer: Answer, *, truth: ResponseTrack | None = None) -> None:
    check_apart([("", path)], [answer.video.path])
    write_whole(path, report_html(answer, truth=truth).encode())


def data_uri(picture: Image.Image) -> str:
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=85, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


def _answer(
    video: Video,
    track: ResponseTrack | None,
    thing: np.ndarray | None,
    truth: ResponseTrack | None,
    seen: str,
) -> str:
    query = "" if thing is None else _query(thing)
    if track is None:
        return f'<div class="answer">{query}</div>'
    image = video.frame_at(min(track.end, video.duration_s)).image
    there = truth.box_at(track.end) if truth else None
    last = _figure(Moment(track.end, image, track.last_box, there), LARGE, f"{seen} at {clock(track.end)}")
    return f'<div class="answer">{query}{last}</div>'


def _query(thing: np.ndarray) -> str:
    picture = Image.fromarray(np.ascontiguousarray(thing))
    picture.thumbnail((SMALL, SMALL))
    shown = _img(picture, "what was looked for")
    return f'<figure class="query">{shown}<figcaption>query</figcaption></figure>'


def _figure(moment: Moment, longer: int, caption: str) -> str:
    height, width = moment.image.shape[:2]
    scale = min(1.0, longer / max(width, height))
    picture = moment.drawn(max(1, round(width * scale)), max(1, round(height * scale)))
    shown = _img(picture, f"the frame at {clock(moment.time_s)}")
    return f"<figure>{shown}<figcaption>{caption}</figcaption></figure>"


def _img(picture: Image.Image, alt: str) -> str:
    size = f'width="{picture.width}" height="{picture.height}"'
    return f'<img src="{data_uri(picture)}" alt="{escape(alt)}" {size}/>'


def _legend(with_answer: bool, with_truth: bool) -> str:
    entries = [("line", "score, smoothed")]
    if with_answer:
        entries += [("answer", "the answer"), ("peak", "peak")]
    if with_truth:
        entries.append(("truth", "the truth"))
    items = "".join(f'<li><i style="background:var(--{name})"></i>{text}</li>' for name, text in entries)
    return f'<ul class="legend">{items}</ul>'


def _table(tracks: Sequence[ResponseTrack]) -> str:
    rows = "".join(
        f"<tr><td>{clock(track.start)}</td><td>{clock(track.end)}</td><td>{track.score:.2f}</td>"
        f'<td class="rare">{", ".join(str(round(v)) for v in track.last_box.xyxy)}</td></tr>'
        for track in tracks
    )
    heads = '<th>from</th><th>to</th><th>score</th><th class="rare">last box (x1, y1, x2, y2)</th>'
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _facts(answer: Answer) -> str:
    video = answer.video
    name = one_line(video.path.name)
    facts = [("Video", f"{name}, {video.width}x{video.height}, {clock(video.duration_s)}")]
    if answer.curve is not None:
        facts.append(("Searched", f"{len(answer.curve)} frames, {answer.curve.fps:g} a second"))
    if answer.model:
        facts.append(("Model", answer.model))
    facts.append(("Made by", f"lastseen {__version__}"))
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts) + "</dl>"


def _page(title: str, body: str) -> str:
    style = (files("lastseen.render") / "report.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="{policy}"/>
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

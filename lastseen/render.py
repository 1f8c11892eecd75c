"""An answer for people and programs: words, JSON, a still of the last moment, a video with boxes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lastseen.box import Box
from lastseen.files import whole_file
from lastseen.track import ResponseTrack
from lastseen.video import Video, VideoWriter

YELLOW = (255, 210, 0)  # the paper's colour for predictions
MARGIN_S = 2.0  # shown before and after the track


def draw_answer(
    image: np.ndarray, box: Box | None, caption: str = "", thing: np.ndarray | None = None
) -> np.ndarray:
    """A frame [h, w, 3] with the box, a line of text and, in the corner, what was asked for."""
    picture = Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    unit = max(1, round(min(picture.size) / 240))  # line widths and text grow with the picture
    if box is not None:
        draw.rectangle(_outside(box, unit, picture.size), outline=(0, 0, 0), width=2 * unit)
        draw.rectangle(_outside(box, 0, picture.size), outline=YELLOW, width=2 * unit)
    if thing is not None:
        _paste_thing(picture, thing, unit)
    if caption:
        font = ImageFont.load_default(size=12 * unit)
        _, top, right, bottom = draw.textbbox((0, 0), caption, font=font)
        height = bottom - top + 8 * unit
        y = picture.height - height
        draw.rectangle((0, y, min(picture.width, right + 12 * unit), picture.height), fill=(0, 0, 0))
        draw.text((6 * unit, y + 4 * unit - top), caption, fill=(255, 255, 255), font=font)
    return np.asarray(picture)


def write_picture(
    path: str | os.PathLike[str], video: Video, track: ResponseTrack, thing: np.ndarray | None = None
) -> None:
    """The last moment in view, box drawn in."""
    image = video.frame_at(track.end).image
    caption = f"last seen {clock(track.end)}   score {track.score:.2f}"
    with whole_file(path) as building:
        Image.fromarray(draw_answer(image, track.last_box, caption, thing)).save(building, quality=92)


def write_video(
    path: str | os.PathLike[str],
    video: Video,
    track: ResponseTrack,
    thing: np.ndarray | None = None,
    margin_s: float = MARGIN_S,
) -> None:
    """The track and a little before and after, at the video's own rate, box drawn in."""
    fps = min(video.fps, 30.0)
    start, end = max(0.0, track.start - margin_s), min(video.duration_s, track.end + 1 / track.fps + margin_s)
    with VideoWriter(Path(path), video.width, video.height, fps) as writer:
        for frame in video.frames(fps, start_s=start, end_s=end):
            box = track.box_at(frame.time_s)
            writer.write(draw_answer(frame.image, box, clock(frame.time_s), thing))


def answer_dict(
    video: Video, model: str, tracks: Sequence[ResponseTrack], guess: ResponseTrack | None
) -> dict[str, Any]:
    """`guess` is the best there is when nothing was found."""
    return {
        "schema": "lastseen/answer@1",
        "video": str(video.path),
        "width": video.width,
        "height": video.height,
        "model": model,
        "found": bool(tracks),
        "tracks": [track.to_dict() for track in tracks],
        "best_guess": guess.to_dict() if guess else None,
    }


def answer_text(
    video: Video, tracks: Sequence[ResponseTrack], guess: ResponseTrack | None, threshold: float
) -> str:
    lines = []
    for track in tracks:
        x1, y1, x2, y2 = (round(v) for v in track.last_box.xyxy)
        seen, size = "Last seen" if track is tracks[-1] else "Seen", f"{video.width}x{video.height}"
        lines.append(f"{seen} from {clock(track.start)} to {clock(track.end)}, score {track.score:.2f}.")
        lines.append(f"At {clock(track.end)} it is at x {x1}-{x2}, y {y1}-{y2} of the {size} frame.")
    if not tracks:
        lines.append("Not seen.")
    if guess is not None:
        score = f"score {guess.score:.2f}, under {threshold:.2f}"
        lines.append(f"The best guess is {clock(guess.start)} to {clock(guess.end)} ({score}).")
    return "\n".join(lines)


def clock(time_s: float) -> str:
    """65.4 -> 1:05.4"""
    tenths = round(time_s * 10)
    hours, minutes, seconds = tenths // 36000, tenths // 600 % 60, tenths % 600 / 10
    return f"{hours}:{minutes:02d}:{seconds:04.1f}" if hours else f"{minutes}:{seconds:04.1f}"


def _outside(box: Box, by: float, size: tuple[int, int]) -> tuple[float, float, float, float]:
    right, bottom = size[0] - 1, size[1] - 1
    x1, y1, x2, y2 = box.clipped(right, bottom).xyxy
    return max(0, x1 - by), max(0, y1 - by), min(right, max(x1, x2) + by), min(bottom, max(y1, y2) + by)


def _paste_thing(picture: Image.Image, thing: np.ndarray, unit: int) -> None:
    side = min(picture.size) // 4
    inset = Image.fromarray(np.ascontiguousarray(thing))
    scale = side / max(inset.size)
    inset = inset.resize((max(1, round(inset.width * scale)), max(1, round(inset.height * scale))))
    framed = Image.new("RGB", (inset.width + 2 * unit, inset.height + 2 * unit), (255, 255, 255))
    framed.paste(inset, (unit, unit))
    picture.paste(framed, (picture.width - framed.width - 4 * unit, 4 * unit))

"""Answers and listings of an index, as text and as JSON. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lastseen.errors import QueryError
from lastseen.files import one_line
from lastseen.formats.answer_json import ANSWERS_SCHEMA, answer_dict
from lastseen.index.entry import IndexedVideo
from lastseen.index.folder import IndexFolder
from lastseen.words import clock, guess_line, how_sure, seen_lines, unreadable_words

if TYPE_CHECKING:
    from lastseen.answer import Answer

LIST_SCHEMA = "lastseen/index-list@1"


def answers_dict(
    index: str | None, model: str, found: Mapping[str, Sequence[Answer]], every: bool
) -> dict[str, Any]:
    """One entry per thing: its answers, latest first, as `find --json` prints them, with dates added."""
    things = []
    for name, given in found.items():
        answers = [_answer(answer, every) for answer in given]
        damage = [line for answer in given for line in answer.damage]
        found_any = any(a["found"] for a in answers)
        things.append({"thing": name, "found": found_any, "answers": answers, "damaged": damage})
    return {"schema": ANSWERS_SCHEMA, "index": index, "model": model, "things": things}


def answers_text(found: Mapping[str, Sequence[Answer]], every: bool) -> str:
    lines = []
    for name, answers in found.items():
        before = f"{one_line(name)}: " if len(found) > 1 else ""
        seen = [answer for answer in answers if answer.found]
        for answer in seen:
            shown = answer.sightings[::-1] if every else answer.sightings[-1:]
            for track in shown:
                first = answer is seen[0] and track is shown[0]
                lines += [before + line for line in seen_lines(answer, track, is_last=first)]
        if not seen:
            lines.append(f"{before}Not seen.")
        for answer in answers:
            video = _indexed(answer)
            if answer.best_guess and not seen:
                lines.append(before + guess_line(answer))
            lost = f"note: {line}" if (line := _unreadable(answer)) else ""
            said = (_missing(answer), *answer.damage, lost, _doubt(video))
            lines += [f"{before}{one_line(line)}" for line in said if line]
    return "\n".join(lines)


def left_out(answer: Answer) -> str:
    """What was not done or is not certain, and why, in sentences; empty if nothing."""
    lost = _unreadable(answer)
    said = [
        _missing(answer),
        *(f"{line}." for line in (*answer.damage, lost) if line),
        _doubt(_indexed(answer)),
    ]
    return " ".join(filter(None, said))


def _unreadable(answer: Answer) -> str:
    return unreadable_words(answer.unreadable_s, _indexed(answer).name) if answer.unreadable_s else ""


def _missing(answer: Answer) -> str:
    """What was not done because the video file is missing."""
    if not answer.video_missing:
        return ""
    name = one_line(_indexed(answer).name)
    if "zoom" in answer.steps:
        return f"{name} is not there to take masks from: boxes are the model's."
    return f"{name} is not there to zoom in: first pass only."


def _doubt(video: IndexedVideo) -> str:
    if not video.date_is_doubtful:
        return ""
    return f"The date that the index has for {video.name} cannot be right; correct it with --recorded DATE."


def list_dict(index: IndexFolder, videos: Sequence[IndexedVideo]) -> dict[str, Any]:
    about = index.catalogue.about()
    return {
        "schema": LIST_SCHEMA,
        "index": str(index.folder),
        "made_by": about.get("made_by"),
        "fps": about.get("fps"),
        "videos": [
            {
                "name": video.name,
                "source": video.source,
                "kind": video.kind,
                "sha256": video.sha256,
                "recorded_at": _iso(video, 0.0),
                "date_doubtful": video.date_is_doubtful,
                "date_source": video.date_source,
                "duration": round(video.duration_s, 3),
                "width": video.width,
                "height": video.height,
                "keep": video.keep,
                "first_frame": video.first,
                "frames": video.frames - video.first,
                "unreadable_frames": video.unreadable,
                "complete": video.complete,
                "bytes": index.size_bytes(video),
            }
            for video in videos
        ],
    }


def list_text(index: IndexFolder, videos: Sequence[IndexedVideo]) -> str:
    if not videos:
        return f"{index.folder} holds nothing yet."
    fps = index.catalogue.about().get("fps", 5.0)
    rows, total = [], 0
    for video in videos:
        size = index.size_bytes(video)
        total += size
        length = clock((video.frames - video.first) / fps)
        state = "" if video.complete else f", {state_of(video)}"
        if video.unreadable:
            state += f", {video.unreadable / fps:.1f} s unreadable"
        date = f"{video.time_of(0.0):%Y-%m-%d %H:%M}{_how_sure(video)}"
        rows.append(f"{one_line(video.name)}   {length}, {date}, {video.keep}, {megabytes(size)}{state}")
    count = "1 video" if len(videos) == 1 else f"{len(videos)} videos"
    return "\n".join([*rows, f"{count}, {megabytes(total)} in {index.folder}"])


def _how_sure(video: IndexedVideo) -> str:
    if video.date_is_doubtful:
        return " (the index's date cannot be right)"
    return how_sure(video)


def state_of(video: IndexedVideo) -> str:
    if video.complete:
        return "complete"
    return f"{video.frames} frames so far" + (f" of {video.expected}" if video.expected else "")


def megabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def parse_moment(text: str) -> tuple[float | None, float | None]:
    """ "60" -> (seconds from the start of a video, None); "2026-11-15 10:30" -> (None, seconds since 1970)"""
    try:
        return float(text), None
    except ValueError:
        pass
    try:
        return None, datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise QueryError(f"{text}: expected seconds, or a date and time like '2026-11-15 10:30'") from None


def _answer(answer: Answer, every: bool) -> dict[str, Any]:
    video = _indexed(answer)
    shown = answer if every else answer.only_last()
    last = shown.shown[-1] if shown.shown else None
    dates = {
        "name": video.name,
        "recorded_at": _iso(video, 0.0),
        "date_doubtful": video.date_is_doubtful,
        "date_source": video.date_source,
        "seen_at": _iso(video, last.end) if last else None,
        "looked_again": "zoom" in answer.steps,
    }
    return {**answer_dict(shown), **dates}


def _indexed(answer: Answer) -> IndexedVideo:
    assert isinstance(answer.video, IndexedVideo)
    return answer.video


def _iso(video: IndexedVideo, time_s: float) -> str:
    return video.time_of(time_s).isoformat(timespec="milliseconds")

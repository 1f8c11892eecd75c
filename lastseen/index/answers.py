"""What an index says, in words and as JSON. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lastseen.errors import QueryError
from lastseen.formats.answer import answer_dict
from lastseen.index.catalogue import IndexedVideo
from lastseen.index.folder import Index
from lastseen.render.words import clock
from lastseen.track import ResponseTrack

if TYPE_CHECKING:
    from lastseen.index.search import Finding

SCHEMA, LIST_SCHEMA = "lastseen/answers@1", "lastseen/index-list@1"


def answers_dict(
    index: str | None, model: str, found: Mapping[str, Sequence[Finding]], every: bool
) -> dict[str, Any]:
    """One entry a thing; its answers, latest first, are those of `find --json` on one video, and dated."""
    things = []
    for name, findings in found.items():
        answers = [_answer(model, finding, every) for finding in findings]
        things.append({"thing": name, "found": any(a["found"] for a in answers), "answers": answers})
    return {"schema": SCHEMA, "index": index, "model": model, "things": things}


def answers_text(found: Mapping[str, Sequence[Finding]], every: bool, threshold: float) -> str:
    lines = []
    for name, findings in found.items():
        before = f"{name}: " if len(found) > 1 else ""
        seen = [finding for finding in findings if finding.tracks]
        for finding in seen:
            shown = finding.tracks[::-1] if every else finding.tracks[-1:]
            for track in shown:
                first = finding is seen[0] and track is shown[0]
                lines.append(before + _sentence(finding.video, track, "Last seen" if first else "Seen"))
                lines.append(before + _place(finding.video, track))
        if not seen:
            lines.append(f"{before}Not seen.")
        for finding in findings:
            if finding.guess and not seen:
                guess, score = finding.guess, f"score {finding.guess.score:.2f}, under {threshold:.2f}"
                when = f"{clock(guess.start)} to {clock(guess.end)}"
                lines.append(f"{before}The best guess is {finding.video.name}, {when} ({score}).")
            if finding.no_file:
                lines.append(f"{before}{finding.video.name} is not there for a second look: first look only.")
    return "\n".join(lines)


def list_dict(index: Index, videos: Sequence[IndexedVideo]) -> dict[str, Any]:
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
                "duration": round(video.duration_s, 3),
                "width": video.width,
                "height": video.height,
                "keep": video.keep,
                "first_frame": video.first,
                "frames": video.frames - video.first,
                "complete": video.complete,
                "bytes": index.size_bytes(video),
            }
            for video in videos
        ],
    }


def list_text(index: Index, videos: Sequence[IndexedVideo]) -> str:
    if not videos:
        return f"{index.folder} holds nothing yet."
    fps = index.catalogue.about().get("fps", 5.0)
    rows, total = [], 0
    for video in videos:
        size = index.size_bytes(video)
        total += size
        length = clock((video.frames - video.first) / fps)
        state = "" if video.complete else f", {state_of(video)}"
        date = video.time_of(0.0).strftime("%Y-%m-%d %H:%M")
        rows.append(f"{video.name}   {length}, {date}, {video.keep}, {megabytes(size)}{state}")
    return "\n".join([*rows, f"{len(videos)} videos, {megabytes(total)} in {index.folder}"])


def state_of(video: IndexedVideo) -> str:
    if video.complete:
        return "complete"
    return f"{video.frames} frames so far" + (f" of {video.expected}" if video.expected else "")


def megabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def parse_moment(text: str) -> tuple[float | None, float | None]:
    """ "60" -> (seconds of a video, None); "2026-11-15 10:30" -> (None, seconds since 1970)"""
    try:
        return float(text), None
    except ValueError:
        pass
    try:
        return None, datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise QueryError(f"{text}: expected seconds, or a date and time like '2026-11-15 10:30'") from None


def _answer(model: str, finding: Finding, every: bool) -> dict[str, Any]:
    shown = finding.tracks if every else finding.tracks[-1:]
    last = shown[-1] if shown else finding.guess
    dates = {
        "name": finding.video.name,
        "recorded_at": _iso(finding.video, 0.0),
        "seen_at": _iso(finding.video, last.end) if last else None,
        "looked_again": finding.looked_again,
    }
    return {**answer_dict(finding.video, model, shown, finding.guess), **dates}


def _sentence(video: IndexedVideo, track: ResponseTrack, seen: str) -> str:
    when = video.time_of(track.end).strftime("%Y-%m-%d at %H:%M:%S")
    span = f"{clock(track.start)} to {clock(track.end)}"
    return f"{seen} on {when}, in {video.name} from {span}, score {track.score:.2f}."


def _place(video: IndexedVideo, track: ResponseTrack) -> str:
    x1, y1, x2, y2 = (round(v) for v in track.last_box.xyxy)
    size = f"{video.width}x{video.height}"
    return f"At {clock(track.end)} it is at x {x1}-{x2}, y {y1}-{y2} of the {size} frame."


def _iso(video: IndexedVideo, time_s: float) -> str:
    return video.time_of(time_s).isoformat(timespec="milliseconds")

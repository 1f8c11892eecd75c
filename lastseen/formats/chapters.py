"""WebVTT chapters: players show the sightings on their timeline."""

from __future__ import annotations

from lastseen.answer import Answer
from lastseen.files import one_line


def chapters(answer: Answer) -> str:
    blocks = ["WEBVTT", f"NOTE {_plain(answer.video.path.name)}"]
    for number, track in enumerate(answer.sightings, 1):
        # The last sample stays on display until the next one would come; a cue must not be empty.
        end_s = min((track.last_frame + 1) / track.fps, answer.video.duration_s)
        end_ms = max(_ms(end_s), _ms(track.start) + 1)
        seen = "Last seen" if number == len(answer.sightings) else "Seen"
        title = f"{seen}: {_plain(answer.label)} (score {track.score:.2f})"
        blocks.append(f"{number}\n{timestamp(_ms(track.start))} --> {timestamp(end_ms)}\n{title}")
    return "\n\n".join(blocks) + "\n"


def timestamp(time_ms: int) -> str:
    """3723004 -> 01:02:03.004"""
    seconds, ms = divmod(time_ms, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{ms:03d}"


def _ms(time_s: float) -> int:
    return round(time_s * 1000)


def _plain(text: str) -> str:
    """One line with markup escaped and without an arrow, which would begin a cue."""
    words = one_line(" ".join(text.split()))
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

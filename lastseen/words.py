"""An answer in words. The command line, the server and every picture say the same, in these sentences."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, runtime_checkable

from lastseen.answer import Answer
from lastseen.files import one_line
from lastseen.track import ResponseTrack
from lastseen.video.dates import FILE_TIME

TIPS = (  # what to try if a thing was not seen, and the options for it
    ("give a whole photo and a close box around the thing, not a picture cut to it", "--box or --mark"),
    ("give a second picture, from another side", "PICTURE PICTURE VIDEO"),
    ("take the picture out of the footage", "VIDEO --at SECONDS --box X1,Y1,X2,Y2"),
    ("accept less certain answers, of which more are wrong", "--threshold SCORE"),
)


@runtime_checkable
class Dated(Protocol):
    """A video of which it is known when it was recorded, and how that is known."""

    @property
    def name(self) -> str: ...
    @property
    def date_source(self) -> str: ...
    def time_of(self, time_s: float) -> datetime: ...


def answer_text(answer: Answer) -> str:
    lines = []
    for track in answer.sightings:
        lines += seen_lines(answer, track, is_last=track is answer.last)
    if not answer.found:
        lines.append("Not seen.")
    if answer.best_guess is not None:
        lines.append(guess_line(answer))
    if answer.unreadable_s:
        lines.append(f"note: {unreadable_words(answer.unreadable_s)}")
    return "\n".join(lines)


def seen_lines(answer: Answer, track: ResponseTrack, *, is_last: bool) -> list[str]:
    """When and where, a sentence each; `is_last` of all that is said."""
    video = answer.video
    dated = ""
    if isinstance(video, Dated):
        dated = f" on {date_words(video, track.end)}, in {one_line(video.name)}"
    span = f"from {clock(track.start)} to {clock(track.end)}"
    still = f", {words}" if track is answer.last and (words := still_words(answer)) else ""
    x1, y1, x2, y2 = (round(v) for v in track.last_box.xyxy)
    return [
        f"{'Last seen' if is_last else 'Seen'}{dated} {span}{still}, score {track.score:.2f}.",
        f"At {clock(track.end)} it is at x {x1}-{x2}, y {y1}-{y2} of the {video.width}x{video.height} frame.",
    ]


def guess_line(answer: Answer) -> str:
    guess, video = answer.best_guess, answer.video
    assert guess is not None
    where = f"{one_line(video.name)}, " if isinstance(video, Dated) else ""
    score = f"score {guess.score:.2f}, under {answer.threshold:.2f}"
    return f"The best guess is {where}{clock(guess.start)} to {clock(guess.end)} ({score})."


def still_words(answer: Answer) -> str:
    """That the thing is in view to the end of what was searched; empty if it is not."""
    if not answer.still_in_view:
        return ""
    if answer.searched_to_end:
        return "still in view when the video ends"
    return f"still in view where the search ends ({clock(answer.searched_s)})"


def so_far_words(answer: Answer) -> str:
    """A preliminary answer, within a sentence."""
    track, guess = answer.last, answer.best_guess
    if track is not None:
        return f"last seen from {clock(track.start)} to {clock(track.end)}"
    if guess is not None:
        return f"not seen, best guess {clock(guess.start)} to {clock(guess.end)}"
    return "not seen"


def date_words(video: Dated, time_s: float) -> str:
    return video.time_of(time_s).strftime("%Y-%m-%d at %H:%M:%S") + how_sure(video)


def how_sure(video: Dated) -> str:
    """Copying and editing change a file's date: what rests on it is said to. Empty if the date is surer."""
    return " (by the file's date)" if video.date_source == FILE_TIME else ""


def tips_text() -> str:
    """What to try if a thing was not seen."""
    lines = [f"  {number}. {what} ({option})" for number, (what, option) in enumerate(TIPS, 1)]
    return "\n".join(["Is it there all the same? Look at the best guess, then", *lines])


def unreadable_words(unreadable_s: float, video: str = "the video") -> str:
    return f"{unreadable_s:.1f} s of {video} could not be decoded; what was in view then is not known"


def caption(answer: Answer) -> str:
    """What stands in a picture of the answer."""
    track = answer.shown[-1]
    said = "last seen" if answer.found else "not seen; best guess"
    return f"{said} {clock(track.end)}   score {track.score:.2f}"


def headline(answer: Answer) -> str:
    """The answer in one line, for a title."""
    track, guess = answer.last, answer.best_guess
    if track is not None:
        still = f", {words}" if (words := still_words(answer)) else ""
        return f"Last seen {clock(track.start)} to {clock(track.end)}{still}, score {track.score:.2f}"
    if guess is not None:
        return f"Not seen; best guess {clock(guess.start)} to {clock(guess.end)}, score {guess.score:.2f}"
    return "Not seen"


def clock(time_s: float) -> str:
    """65.4 -> 1:05.4"""
    tenths = round(time_s * 10)
    hours, minutes, seconds = tenths // 36000, tenths // 600 % 60, tenths % 600 / 10
    return f"{hours}:{minutes:02d}:{seconds:04.1f}" if hours else f"{minutes}:{seconds:04.1f}"

"""An answer as text."""

from __future__ import annotations

from lastseen.answer import Answer


def answer_text(answer: Answer) -> str:
    video, tracks, guess = answer.video, answer.sightings, answer.best_guess
    lines = []
    for track in tracks:
        x1, y1, x2, y2 = (round(v) for v in track.last_box.xyxy)
        seen, size = "Last seen" if track is tracks[-1] else "Seen", f"{video.width}x{video.height}"
        lines.append(f"{seen} from {clock(track.start)} to {clock(track.end)}, score {track.score:.2f}.")
        lines.append(f"At {clock(track.end)} it is at x {x1}-{x2}, y {y1}-{y2} of the {size} frame.")
    if not tracks:
        lines.append("Not seen.")
    if guess is not None:
        score = f"score {guess.score:.2f}, under {answer.threshold:.2f}"
        lines.append(f"The best guess is {clock(guess.start)} to {clock(guess.end)} ({score}).")
    if answer.unreadable_s:
        lines.append(f"note: {unreadable_words(answer.unreadable_s)}")
    return "\n".join(lines)


def unreadable_words(unreadable_s: float, video: str = "the video") -> str:
    return f"{unreadable_s:.1f} s of {video} could not be decoded; what was in view then is not known"


def headline(answer: Answer) -> str:
    """The answer in one line, for a title."""
    track, guess = answer.last, answer.best_guess
    if track is not None:
        return f"Last seen {clock(track.start)} to {clock(track.end)}, score {track.score:.2f}"
    if guess is not None:
        return f"Not seen; best guess {clock(guess.start)} to {clock(guess.end)}, score {guess.score:.2f}"
    return "Not seen"


def so_far_words(answer: Answer) -> str:
    """A preliminary answer, within a sentence."""
    track, guess = answer.last, answer.best_guess
    if track is not None:
        return f"last seen from {clock(track.start)} to {clock(track.end)}"
    if guess is not None:
        return f"not seen, best guess {clock(guess.start)} to {clock(guess.end)}"
    return "not seen"


def clock(time_s: float) -> str:
    """65.4 -> 1:05.4"""
    tenths = round(time_s * 10)
    hours, minutes, seconds = tenths // 36000, tenths // 600 % 60, tenths % 600 / 10
    return f"{hours}:{minutes:02d}:{seconds:04.1f}" if hours else f"{minutes}:{seconds:04.1f}"

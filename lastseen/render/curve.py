"""The score curve, ready to be drawn: shared by the figure (Pillow) and the report (SVG)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lastseen.answer import Answer
from lastseen.track import ResponseTrack

STEPS_S = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)
Span = tuple[float, float]  # seconds


@dataclass(frozen=True, eq=False)
class DrawnCurve:
    """Times in seconds, scores in [0, 1]."""

    duration_s: float
    searched_s: float  # end of the search; before the end of the video if the query has `asked_at`
    times_s: np.ndarray  # [n]
    scores: np.ndarray  # [n] raw
    smooth: np.ndarray  # [n] median-filtered, in which peaks are found
    peaks: tuple[tuple[float, float], ...]  # (time, score), one per track
    chosen: Span | None
    others: tuple[Span, ...]
    truth: Span | None


def score_curve(answer: Answer, truth: ResponseTrack | None = None, *, columns: int = 600) -> DrawnCurve:
    """The curve with the last sighting (or the best guess) highlighted, reduced to about `columns` points."""
    assert answer.curve is not None
    scores, smooth, fps = answer.curve.scores, answer.curve.smooth, answer.curve.fps
    duration_s, tracks = answer.video.duration_s, answer.shown
    times_s = np.arange(len(scores)) / fps
    peaks = []
    for track in tracks:
        inside = smooth[track.first_frame : track.last_frame + 1]
        if len(inside):
            at = track.first_frame + int(inside.argmax())
            peaks.append((float(times_s[at]), float(smooth[at])))
    group = max(1, -(-len(scores) // columns))
    return DrawnCurve(
        duration_s=duration_s,
        searched_s=min(duration_s, len(scores) / fps),
        times_s=times_s[::group],
        scores=_highest(scores, group),
        smooth=_highest(smooth, group),
        peaks=tuple(peaks),
        chosen=_span(tracks[-1]) if tracks else None,
        others=tuple(_span(track) for track in tracks[:-1]),
        truth=_span(truth) if truth else None,
    )


def time_ticks(duration_s: float, most: int) -> list[float]:
    """At most `most` round times, from 0."""
    step = next((s for s in STEPS_S if duration_s / s < most), STEPS_S[-1])
    while duration_s / step >= most:
        step *= 2
    return [float(i * step) for i in range(int(duration_s / step) + 1)]


def tick_text(time_s: float) -> str:
    """90 -> 1:30; tenths only if not zero."""
    minutes, seconds = divmod(time_s, 60)
    hours, minutes = divmod(int(minutes), 60)
    rest = f"{seconds:04.1f}" if seconds % 1 else f"{int(seconds):02d}"
    return f"{hours}:{minutes:02d}:{rest}" if hours else f"{minutes}:{rest}"


def _highest(scores: np.ndarray, group: int) -> np.ndarray:
    """The maximum of each group of samples: reduces a long curve without losing peaks."""
    padded = np.pad(scores, (0, -len(scores) % group), mode="edge")
    return padded.reshape(-1, group).max(1)


def _span(track: ResponseTrack) -> Span:
    return track.start, track.start + track.duration_s

"""The score curve as SVG inside HTML.

The drawing stretches with the page; line widths stay constant, and so does the size of labels (HTML), so
that it can be read on a phone.
"""

from __future__ import annotations

from lastseen.render.curve import DrawnCurve, tick_text, time_ticks
from lastseen.words import clock

WIDTH, HEIGHT = 1000, 100  # units of the drawing; a score of 1 is HEIGHT
TICKS = 7  # as many as fit on a phone


def curve_html(curve: DrawnCurve) -> str:
    """A <div class="plot">, styled by report.css."""
    end_s = curve.duration_s
    shapes = []
    if curve.searched_s < end_s - 0.5:
        shapes.append(_band((curve.searched_s, end_s), end_s, "unsearched", "after the question"))
    shapes += [_band(span, end_s, "other", f"seen {_from_to(span)}") for span in curve.others]
    if curve.chosen:
        shapes.append(_band(curve.chosen, end_s, "chosen", f"the answer, {_from_to(curve.chosen)}"))
    shapes += [f'<line class="grid" x1="0" y1="{y}" x2="{WIDTH}" y2="{y}"/>' for y in (0, 50, 100)]
    if curve.truth:
        shapes.append(_band(curve.truth, end_s, "true", f"the truth, {_from_to(curve.truth)}", height=4))
    for name, scores in (("raw", curve.scores), ("smooth", curve.smooth)):
        points = " ".join(
            f"{WIDTH * t / end_s:.1f},{HEIGHT * (1 - s):.2f}" for t, s in zip(curve.times_s, scores)
        )
        shapes.append(f'<polyline class="{name}" points="{points}"/>')
    for time_s, score in curve.peaks:
        x, y = WIDTH * time_s / end_s, HEIGHT * (1 - score)
        title = f"<title>{clock(time_s)}, score {score:.2f}</title>"
        # A zero-length line with round caps is a dot that stays round when the drawing is stretched.
        shapes.append(f'<path class="peak" d="M{x:.1f} {y:.2f}h0">{title}</path>')
    labels = [
        f'<span class="axis x" style="left:{100 * tick / end_s:.2f}%">{tick_text(tick)}</span>'
        for tick in time_ticks(end_s, TICKS)
    ]
    labels += [
        f'<span class="axis y" style="top:{top}%">{text}</span>'
        for top, text in ((0, "1"), (50, "0.5"), (100, "0"))
    ]
    drawing = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="score over time">{"".join(shapes)}</svg>'
    )
    return f'<div class="plot">{drawing}{"".join(labels)}</div>'


def _band(span: tuple[float, float], end_s: float, name: str, title: str, height: float = HEIGHT) -> str:
    x, width = WIDTH * span[0] / end_s, WIDTH * (min(span[1], end_s) - span[0]) / end_s
    shape = f'x="{x:.2f}" y="{HEIGHT - height:g}" width="{max(width, 0.0):.2f}" height="{height:g}"'
    return f'<rect class="{name}" {shape}><title>{title}</title></rect>'


def _from_to(span: tuple[float, float]) -> str:
    return f"{clock(span[0])} to {clock(span[1])}"

"""The score curve drawn on a canvas: bands for tracks, a bar for ground truth, dots for peaks."""

from __future__ import annotations

from collections.abc import Callable

from PIL import ImageDraw

from lastseen.render.canvas import BLUE, CYAN, FAINT, INK, MUTED, WHITE, YELLOW, Area, Canvas
from lastseen.render.curve import DrawnCurve, Span, tick_text, time_ticks

TICKS, TEXT = 16, 16
UNSEARCHED = "not searched"
RIM = 8.0  # margin around the plot for dots and lines at its edge
LEAST = 8.0  # least width of a band: two seconds of an hour must stay visible


def draw_curve(canvas: Canvas, curve: DrawnCurve, area: Area) -> None:
    """Draw the plot in `area`, with labels to its left, above and below."""
    x1, y1, x2, y2 = area

    def paint(pen: ImageDraw.ImageDraw, u: Callable[[float], float]) -> None:
        _Plot(pen, u, curve, x2 - x1, y2 - y1).draw()

    canvas.smooth((x1 - RIM, y1 - RIM, x2 + RIM, y2 + RIM), paint)
    canvas.text(x1 - 40, y1 - 12, "score", size=TEXT, fill=MUTED)
    for score, text in ((0.0, "0"), (0.5, "0.5"), (1.0, "1")):
        canvas.text(x1 - 10, y1 + (y2 - y1) * (1 - score), text, size=TEXT, fill=MUTED, anchor="rm")
    beyond = x1 + (x2 - x1) * curve.searched_s / curve.duration_s
    if x2 - beyond > canvas.text_width(UNSEARCHED, TEXT) + 16:
        canvas.text((beyond + x2) / 2, y1 + (y2 - y1) / 4, UNSEARCHED, size=TEXT, fill=MUTED, anchor="mm")
    for tick in time_ticks(curve.duration_s, TICKS):
        at = x1 + (x2 - x1) * tick / curve.duration_s
        canvas.text(at, y2 + 22, tick_text(tick), size=TEXT, fill=MUTED, anchor="ms")


class _Plot:
    """Draws in coordinates of time and score."""

    def __init__(
        self,
        pen: ImageDraw.ImageDraw,
        u: Callable[[float], float],
        curve: DrawnCurve,
        width: float,
        height: float,
    ) -> None:
        self.pen, self.u, self.curve, self.width, self.height = pen, u, curve, width, height

    def x(self, time_s: float) -> float:
        return self.u(RIM + self.width * min(time_s / self.curve.duration_s, 1.0))

    def y(self, score: float) -> float:
        return self.u(RIM + self.height * (1 - score))

    def draw(self) -> None:
        curve, pen, u, end_s = self.curve, self.pen, self.u, self.curve.duration_s
        if curve.searched_s < end_s - 0.5:
            self.band((curve.searched_s, end_s), self.y(1), (*FAINT, 140))
        for span in curve.others:
            self.band(span, self.y(1), (*YELLOW, 70))
        if curve.chosen:
            self.band(curve.chosen, self.y(1), (*YELLOW, 170))
        for score in (0.5, 1.0):
            self.level(score, FAINT)
        if curve.truth:
            self.band(curve.truth, self.y(0) - u(8), CYAN)
        self.line(curve.scores.tolist(), (*MUTED, 110), 1)
        self.line(curve.smooth.tolist(), INK, 2)
        self.level(0.0, MUTED)
        for tick in time_ticks(end_s, TICKS):
            pen.line((self.x(tick), self.y(0), self.x(tick), self.y(0) + u(5)), fill=MUTED, width=int(u(1)))
        for time_s, score in curve.peaks:
            x, y, r = self.x(time_s), self.y(score), u(6)
            pen.ellipse((x - r, y - r, x + r, y + r), fill=BLUE, outline=WHITE, width=int(u(1.5)))

    def band(self, span: Span, top: float, fill: tuple[int, ...]) -> None:
        left, right = self.x(span[0]), self.x(span[1])
        missing = max(0.0, self.u(LEAST) - (right - left)) / 2
        self.pen.rectangle((left - missing, top, right + missing, self.y(0)), fill=fill)

    def level(self, score: float, fill: tuple[int, ...]) -> None:
        y = self.y(score)
        self.pen.line((self.x(0), y, self.x(self.curve.duration_s), y), fill=fill, width=int(self.u(1)))

    def line(self, scores: list[float], fill: tuple[int, ...], width: float) -> None:
        points = [(self.x(t), self.y(s)) for t, s in zip(self.curve.times_s.tolist(), scores)]
        if len(points) > 1:
            self.pen.line(points, fill=fill, width=int(self.u(width)), joint="curve")

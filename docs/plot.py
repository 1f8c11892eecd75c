"""Line plots for the docs, in the style of drawing.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from drawing import Drawing, Rect

Point = tuple[float, float]
LEFT_OF = 66  # where a plot's title begins, left of its frame
SOLID, DASHED, DOTTED = "", "6 4", "1.5 4"


@dataclass(frozen=True)
class Axis:
    """From the first mark to the last one; `about` says what is drawn, with its unit."""

    about: str
    marks: Sequence[tuple[float, str]]
    is_log: bool = False

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high end"""
        low, high = self.marks[0][0], self.marks[-1][0]
        if self.is_log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


@dataclass(frozen=True)
class Pen:
    """`colour`: a name of drawing.py's"""

    colour: str
    dashes: str = SOLID
    width: float = 2

    def style(self) -> str:
        dashes = f"; stroke-dasharray: {self.dashes}" if self.dashes else ""
        return f"fill: none; stroke: var(--{self.colour}); stroke-width: {self.width:g}{dashes}"


class Plot:
    """A frame with marks on two axes, into which lines are drawn; what lies outside is cut off."""

    def __init__(self, drawing: Drawing, place: Rect, x: Axis, y: Axis) -> None:
        self.drawing, self.place, self.x, self.y = drawing, place, x, y
        for value, label in y.marks:
            at = self._at((x.marks[0][0], value))[1]
            drawing.path([(place.x, at), (place.right, at)], "thin", tip=False)
            drawing.text(place.x - 8, at + 4, label, "note", "end")
        for value, label in x.marks:
            is_end = value == x.marks[-1][0] and len(label) > 5  # or it would stick out
            at = self._at((value, y.marks[0][0]))[0]
            drawing.text(at, place.bottom + 18, label, "note", "end" if is_end else "middle")
        drawing.text(place.x - LEFT_OF, place.y - 66, y.about, "title")
        drawing.text(place.right, place.bottom + 36, x.about, "note", "end")

    def line(self, points: Sequence[Point], pen: Pen) -> None:
        for part in self._inside(points):
            _stroke(self.drawing, [self._at(point) for point in part], pen)

    def legend(self, names: Sequence[tuple[str, Pen]], columns: Sequence[float] = (0, 190)) -> None:
        """Below the title, row by row."""
        for number, (name, pen) in enumerate(names):
            x = self.place.x - LEFT_OF + columns[number % len(columns)]
            y = self.place.y - 44 + 18 * (number // len(columns))
            _stroke(self.drawing, [(x, y - 4), (x + 26, y - 4)], pen)
            self.drawing.text(x + 33, y, name, "note")

    def circle(
        self,
        point: Point,
        radius: float,
        colour: str,
        label: str = "",
        *,
        filled: bool = True,
        above: bool = False,
    ) -> None:
        """A point with an area; its label stands above it, or beside it where there is more room."""
        x, y = self._at(point)
        fill = f"var(--{colour}); fill-opacity: 0.35" if filled else "none"
        self.drawing.parts.append(
            f'<circle style="fill: {fill}; stroke: var(--{colour}); stroke-width: 1.5" '
            f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>'
        )
        if label and above:
            self.drawing.text(x, y - radius - 6, label, "note", "middle")
        elif label:
            is_left = x < self.place.cx
            beside = x + radius + 5 if is_left else x - radius - 5
            self.drawing.text(beside, y + 4, label, "note", "start" if is_left else "end")

    def level(self, y: float, label: str) -> None:
        """A level of interest, named."""
        self.line([(self.x.marks[0][0], y), (self.x.marks[-1][0], y)], Pen("line", DOTTED, 1.5))
        self.drawing.text(self.place.right - 4, self._at((1, y))[1] - 6, label, "note", "end")

    def event(self, x: float, label: str) -> None:
        """A value of x, named at the top."""
        low, high = self.y.marks[0][0], self.y.marks[-1][0]
        self.line([(x, low), (x, high)], Pen("edge", SOLID, 1))
        self.drawing.text(self._at((x, high))[0] - 5, self.place.y + 14, label, "note", "end")

    def _at(self, point: Point) -> Point:
        place = self.place
        return (
            place.x + place.width * self.x.share(point[0]),
            place.bottom - place.height * self.y.share(point[1]),
        )

    def _inside(self, points: Sequence[Point]) -> list[list[Point]]:
        parts: list[list[Point]] = [[]]
        for point in points:
            shares = self.x.share(point[0]), self.y.share(point[1])
            if all(-1e-6 <= share <= 1 + 1e-6 for share in shares):
                parts[-1].append(point)
            elif parts[-1]:
                parts.append([])
        return [part for part in parts if len(part) > 1]


def _stroke(drawing: Drawing, points: Sequence[Point], pen: Pen) -> None:
    path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    drawing.parts.append(f'<path style="{escape(pen.style())}" d="{path}"/>')

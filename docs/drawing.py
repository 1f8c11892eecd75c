"""Drawings of the docs: SVG in one style, that follow light and dark mode.

A picture brings its own background, so that it is readable on any page, also where the page's colours and the
system's differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from lastseen.files import whole_file

LIGHT = {
    "page": "#fafaf8", "ink": "#1f2328", "muted": "#5c6570", "line": "#8b949e", "box": "#ffffff",
    "edge": "#c9d1d9", "lane": "#f0f1ef", "accent": "#9a6700", "mark": "#ffd200", "wash": "#fff4c2",
}  # fmt: skip
DARK = {
    "page": "#15181c", "ink": "#e6e8ea", "muted": "#a0a8b1", "line": "#7d8590", "box": "#262b31",
    "edge": "#444c56", "lane": "#1c2025", "accent": "#f2c037", "mark": "#ffd200", "wash": "#3d3617",
}  # fmt: skip
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
TITLE_PX, NOTE_PX, CODE_PX = 8.3, 6.4, 7.0  # of a letter, in the widest of the usual fonts
STYLE = f"""\
text {{ font: 14px {SANS}; fill: var(--ink) }}
.title {{ font-weight: 600 }}
.note {{ font-size: 12px; fill: var(--muted) }}
.code {{ font: 11.5px {MONO}; fill: var(--accent) }}
.page {{ fill: var(--page) }} .lane {{ fill: var(--lane) }}
.box {{ fill: var(--box); stroke: var(--edge) }}
.main {{ fill: var(--wash); stroke: var(--mark); stroke-width: 1.5 }}
.optional {{ fill: var(--box); stroke: var(--line); stroke-dasharray: 4 3 }}
.wash {{ fill: var(--wash) }}
.line, .dashed {{ fill: none; stroke: var(--line); stroke-width: 1.5 }} .dashed {{ stroke-dasharray: 5 4 }}
.thin {{ fill: none; stroke: var(--edge) }}
.curve {{ fill: none; stroke: var(--ink); stroke-width: 1.5; stroke-linejoin: round }}
.faint {{ fill: none; stroke: var(--line); stroke-width: 1 }}
.marked {{ fill: none; stroke: var(--mark); stroke-width: 2.5 }}
.tip {{ fill: var(--line) }}"""


@dataclass(frozen=True)
class Rect:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def cx(self) -> float:
        return self.x + self.width / 2

    @property
    def cy(self) -> float:
        return self.y + self.height / 2


class Drawing:
    """Shapes in the order in which they are drawn; sizes in pixels."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def rect(self, place: Rect, kind: str = "box", radius: float = 7) -> Rect:
        self.parts.append(
            f'<rect class="{kind}" x="{place.x:g}" y="{place.y:g}" width="{place.width:g}" '
            f'height="{place.height:g}" rx="{radius:g}"/>'
        )
        return place

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        what = f' class="{kind}"' if kind else ""
        at = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{what}{at}>{escape(words)}</text>')

    def lines(self, x: float, y: float, words: Sequence[str], kind: str = "note", step: float = 16) -> None:
        for number, line in enumerate(words):
            self.text(x, y + number * step, line, kind)

    def lane(self, place: Rect, title: str, about: str = "", indent: float = 0) -> None:
        """A row of the drawing: a tinted band with its name on top; `indent` leaves room for an arrow."""
        self.rect(place, "lane", 10)
        self.text(place.x + 14 + indent, place.y + 22, title, "title")
        self.text(place.right - 14, place.y + 22, about, "note", "end")

    def box(
        self, place: Rect, title: str, about: Sequence[str] = (), code: str = "", kind: str = "box"
    ) -> Rect:
        """A named part: title, what it is, and where its code is, centred."""
        widest = max([len(title) * TITLE_PX, len(code) * CODE_PX, *(len(line) * NOTE_PX for line in about)])
        assert widest < place.width, f"{title}: {widest:.0f} px of text in a box of {place.width:g}"
        self.rect(place, kind)
        rows = 18 + 15 * len(about) + (16 if code else 0)
        y = place.cy - rows / 2 + 14
        self.text(place.cx, y, title, "title", "middle")
        for line in about:
            y += 16
            self.text(place.cx, y, line, "note", "middle")
        if code:
            self.text(place.cx, y + 17, code, "code", "middle")
        return place

    def path(self, points: Sequence[tuple[float, float]], kind: str = "line", tip: bool = True) -> None:
        """A line through points; `tip` puts the head of an arrow at its end."""
        (x0, y0), (x, y) = points[-2], points[-1]
        length = max(1e-9, ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5)
        ux, uy = (x - x0) / length, (y - y0) / length
        ends = [*points[:-1], (x - 6 * ux, y - 6 * uy)] if tip else points
        self.parts.append(
            f'<path class="{kind}" d="M' + " L".join(f"{a:.1f} {b:.1f}" for a, b in ends) + '"/>'
        )
        if tip:
            left, right = (
                (x - 9 * ux - 4.5 * uy, y - 9 * uy + 4.5 * ux),
                (
                    x - 9 * ux + 4.5 * uy,
                    y - 9 * uy - 4.5 * ux,
                ),
            )
            corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in ((x, y), left, right))
            self.parts.append(f'<polygon class="tip" points="{corners}"/>')

    def arrow(self, first: Rect, second: Rect, kind: str = "line") -> None:
        """Between neighbours: to the right, or down."""
        if second.x >= first.right:
            self.path([(first.right + 2, first.cy), (second.x - 2, first.cy)], kind)
        else:
            self.path([(second.cx, first.bottom + 2), (second.cx, second.y - 2)], kind)

    def picture(self, place: Rect, data: str) -> None:
        """`data`: an address, also one that holds the picture (data:image/jpeg;base64,...)"""
        self.parts.append(
            f'<image x="{place.x:g}" y="{place.y:g}" width="{place.width:g}" height="{place.height:g}" '
            f'href="{data}"/>'
        )

    def svg(self) -> str:
        light, dark = (
            "; ".join(f"--{name}: {value}" for name, value in colours.items()) for colours in (LIGHT, DARK)
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
                f'width="{self.width:g}" height="{self.height:g}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>\nsvg {{ {light} }}\n@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}",
                f"{STYLE}\n</style>",
                f'<rect class="page" width="{self.width:g}" height="{self.height:g}" rx="12"/>',
                *self.parts,
                "</svg>\n",
            ]
        )

    def save(self, path: Path) -> None:
        with whole_file(path) as part:
            part.write_text(self.svg())

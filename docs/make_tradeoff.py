"""The accuracy-speed figure of a run (docs/rivals.md), beside the paper's own.

    python docs/make_tradeoff.py speed.json docs/pictures/tradeoff.svg

speed.json is what benchmarks/rivals_speed.py wrote; a method without stAP25 in it is left out and named. The
paper's points are digitised from its figure: another data set (Ego4D's validation videos) on another machine,
so heights and speeds are to be compared inside a panel, not between them.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawing import Drawing, Rect
from plot import DOTTED, Axis, Pen, Plot

SCHEMA = "lastseen/rivals-speed@1"
REAL_TIME_FPS = 30
WEIGHTS_OF_RADIUS = 101.5e6, 22.0  # so many weights are a circle of so many pixels
NAMES = {
    "siamrcnn": "SiamRCNN",
    "nfm": "NFM",
    "cocoformer": "CocoFormer",
    "stark": "STARK",
    "stark-positions": "STARK with positions",
    "bundled": "lastseen",
    "training-free": "training-free",
}


@dataclass(frozen=True)
class PaperPoint:
    """Read from the paper's picture; `radius_px` is the circle's there, whose area is parameters."""

    name: str
    fps: float
    stap25_percent: float
    radius_px: float

    @property
    def weights(self) -> float:
        return 101.5e6 * (self.radius_px / 53.9) ** 2


PAPER = (
    PaperPoint("VQLoC, ViT-B", 36, 22.0, 53.9),
    PaperPoint("VQLoC, ViT-S", 80, 18.0, 32.2),
    PaperPoint("VQLoC, 224 px", 173, 10.0, 51.5),
    PaperPoint("STARK", 33, 4.0, 46.8),
    PaperPoint("SiamRCNN", 3, 15.0, 69.9),
    PaperPoint("CocoFormer", 3, 19.0, 71.3),
)


def drawing_of(run: dict[str, Any]) -> tuple[Drawing, list[str]]:
    """The figure, and the names of the methods that are not in it."""
    shown = [row for row in run["rows"] if row.get("stap25")]
    absent = [row["name"] for row in run["rows"] if not row.get("stap25")]
    drawing = Drawing(1180, 520, "Accuracy over speed: stAP25 and frames a second of every method")
    of_sets = sorted({row["set"] for row in shown})
    fastest = max((max(row["first_fps"], row["further_fps"]) for row in shown), default=1000.0)
    left = Plot(
        drawing,
        Rect(90, 120, 560, 330),
        speed_axis(f"frames a second on one {run['machine']}, end to end", fastest),
        percent_axis(f"stAP25 %, {', '.join(of_sets) or 'nothing answered'}", 100),
    )
    left.event(REAL_TIME_FPS, "real time")
    for row in shown:
        point = row["stap25"]["value"] * 100
        low, high = row["stap25"]["low"], row["stap25"]["high"]
        label, radius = label_of(row["name"]), radius_of(row["weights"])
        ours = "accent" if row["name"] in ("bundled", "training-free") else "ink"
        left.line([(row["first_fps"], point), (row["further_fps"], point)], Pen(ours, DOTTED, 1.2))
        if low is not None and high is not None:
            left.line([(row["first_fps"], 100 * low), (row["first_fps"], 100 * high)], Pen(ours, width=1))
        left.circle((row["further_fps"], point), radius, ours, filled=False)
        left.circle((row["first_fps"], point), radius, ours, label, above=True)
    drawing.text(24, 500, "Filled: the first question to a video. Open: a further one.", "note")
    right = Plot(
        drawing,
        Rect(760, 120, 380, 330),
        speed_axis("frames a second, RTX 6000", 200),
        percent_axis("The paper's figure: stAP25 %, Ego4D", 30),
    )
    right.event(REAL_TIME_FPS, "real time")
    for paper in PAPER:
        right.circle((paper.fps, paper.stap25_percent), radius_of(paper.weights), "line", paper.name)
    drawing.text(1156, 500, "Area of a circle: number of weights.", "note", "end")
    return drawing, absent


def label_of(name: str) -> str:
    """siamrcnn-448 -> SiamRCNN, 448 px"""
    kind, _, size = name.rpartition("-")
    if kind in NAMES and size.isdigit():
        return f"{NAMES[kind]}, {size} px"
    return NAMES.get(name, name)


def radius_of(weights: float) -> float:
    """Area is proportional to the number of weights."""
    of, radius = WEIGHTS_OF_RADIUS
    return radius * math.sqrt(weights / of)


def speed_axis(about: str, fastest: float) -> Axis:
    top = max(3, math.ceil(math.log10(fastest) + 0.2))
    return Axis(about, [(10.0**n, f"{10**n:,}") for n in range(top + 1)], is_log=True)


def percent_axis(about: str, top: int) -> Axis:
    return Axis(about, [(n * top / 5, f"{n * top // 5}") for n in range(6)])


def read_run(path: Path) -> dict[str, Any]:
    run = json.loads(path.read_text())
    if run.get("schema") != SCHEMA:
        sys.exit(f"{path} is not what benchmarks/rivals_speed.py writes: expected schema {SCHEMA}")
    return run


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("expected two files: python docs/make_tradeoff.py speed.json tradeoff.svg")
    drawing, absent = drawing_of(read_run(Path(sys.argv[1])))
    drawing.save(Path(sys.argv[2]))
    print(sys.argv[2] + (f"; without {', '.join(absent)}, which have no stAP25" if absent else ""))


if __name__ == "__main__":
    main()

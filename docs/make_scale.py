"""The tables and plots of docs/scale.md, computed by benchmarks/scale.

python docs/make_scale.py             # writes them
python docs/make_scale.py --check     # status 1 if they are not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from drawing import Drawing, Rect
from plot import DASHED, Axis, Pen, Plot

from lastseen.files import whole_file

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.scale import fleets, report
from benchmarks.scale.constants import Given, Measured, Samples, corpora
from benchmarks.scale.costs import Model

PAGE = Path(__file__).with_name("scale.md")
PICTURES = Path(__file__).parent / "pictures"
WIDTH = 880.0
HOURS = tuple(10 ** (step / 20) for step in range(121))  # 1 to a million
HOURS_AXIS = Axis(
    "hours of video that a question touches",
    [(1, "1"), (100, "100"), (1e4, "10,000"), (1e6, "1 million")],
    is_log=True,
)
INK, ACCENT, GREY = (Pen(colour) for colour in ("ink", "accent", "line"))
LEFT, RIGHT, HEIGHT = Rect(90, 92, 330, 210), Rect(526, 92, 330, 210), 352.0
KINDS = dict(zip(fleets.KINDS, (GREY, INK, Pen("ink", DASHED), ACCENT)))


def logarithmic(about: str, low: int, high: int, unit: str = "", every: int = 1) -> Axis:
    marks = [(10.0**power, unit + report.figure(10.0**power)) for power in range(low, high + 1, every)]
    return Axis(about, marks, is_log=True)


def curve(of: Callable[[float], float]) -> list[tuple[float, float]]:
    return [(hours, of(hours)) for hours in HOURS]


def limits(model: Model) -> Drawing:
    """How long the first stage takes, and how many machines it needs."""
    given, shape = model.given, model.samples.shape("wall")
    drawing = Drawing(WIDTH, HEIGHT, "First stage of a question: seconds and machines against hours of video")
    person = corpora(given)[1].touched_hours

    def slowest(hours: float) -> float:
        return model.scan_slowest_s(hours, model.machines_for_memory(hours), shape)

    left = Plot(drawing, LEFT, HOURS_AXIS, logarithmic("First stage, seconds", -1, 5))
    right = Plot(drawing, RIGHT, HOURS_AXIS, logarithmic("Machines", 0, 5))
    for plot in (left, right):
        plot.event(person, "a person's year")
    left.level(given.target_s, f"{given.target_s:g} s")
    left.line(curve(model.scan_core_s), GREY)
    left.line(curve(lambda hours: model.scan_median_s(hours, 1)), INK)
    left.line(curve(slowest), ACCENT)
    names = (
        "one core",
        f"one machine, {given.cores_a_machine:g} cores",
        "as many as hold the tokens in memory",
    )
    left.legend(list(zip(names, (GREY, INK, ACCENT))), (0, 130))
    right.line(curve(model.machines_for_memory), ACCENT)
    right.line(curve(model.machines_for_target), INK)
    right.legend(
        [("to hold the tokens in memory", ACCENT), (f"to score them in {given.target_s:g} s", INK)], (0,)
    )
    return drawing


def costs(model: Model) -> Drawing:
    """Dollars by the hour of video: kept, indexed, asked."""
    drawing = Drawing(WIDTH, HEIGHT, "Dollars: storage, machines and questions against hours of video")
    stored = Axis("hours of video stored", HOURS_AXIS.marks, is_log=True)
    left = Plot(drawing, LEFT, stored, logarithmic("Dollars to keep, and once to index", -2, 8, "$", 2))
    right = Plot(drawing, RIGHT, HOURS_AXIS, logarithmic("Dollars a question", -4, 4, "$", 2))
    gpu_usd, dashed = model.given.gpu_hour_usd, Pen("ink", DASHED)
    left.line(curve(model.index_usd), GREY)
    left.line(curve(lambda hours: model.store_usd("full", hours)), INK)
    left.line(curve(lambda hours: model.store_usd("compact", hours)), dashed)
    left.line(curve(lambda hours: model.fleet_usd(model.machines_for_memory(hours))), ACCENT)
    left.legend(
        [
            ("full, a month", INK),
            ("compact and videos, a month", dashed),
            ("indexing, once", GREY),
            ("machines for tokens, a month", ACCENT),
        ],
        (0, 150),
    )
    right.line(curve(lambda hours: model.question_usd("compact", hours)), dashed)
    right.line(curve(lambda hours: model.question_usd("full", hours)), INK)
    right.line(curve(lambda hours: model.exhaustive_gpu_s(hours) / 3600 * gpu_usd), ACCENT)
    names = "quick, full", "quick, compact", "exact model on every frame, GPU"
    right.legend(list(zip(names, (INK, dashed, ACCENT))), (0, 150))
    return drawing


def latency(results: Sequence[fleets.Result]) -> Drawing:
    """p99 under load: a person's year, on few machines and on many."""
    drawing = Drawing(WIDTH, HEIGHT, "Simulated p99 latency of a question against load")
    marks = [(share / 100, f"{share} %") for share in range(0, 101, 20)]
    load = Axis("load, of what the machines can serve", marks)
    for place, for_target in ((LEFT, False), (RIGHT, True)):
        mine = [result for result in results if result.case.for_target is for_target]
        shards = min(result.machines for result in mine)
        seconds = [result.p99_s for result in mine]
        about = f"{shards:,} shards: p99, seconds"
        plot = Plot(drawing, place, load, Axis(about, _marks(min(seconds), max(seconds)), is_log=True))
        for (replicas, hedge), pen in KINDS.items():
            rows = [row for row in mine if (row.case.replicas, row.case.hedge) == (replicas, hedge)]
            plot.line([(row.case.load, row.p99_s) for row in rows], pen)
        plot.legend([(report.kind(*name), pen) for name, pen in KINDS.items()], (0, 170))
    return drawing


def _marks(low: float, high: float) -> list[tuple[float, str]]:
    """1, 2, 5, 10 ... around both."""
    steps = [factor * 10.0**power for power in range(-2, 5) for factor in (1, 2, 5)]
    first = max(step for step in steps if step <= low)
    last = min(step for step in steps if step >= high)
    return [(step, report.figure(step)) for step in steps if first <= step <= last]


def page(model: Model, results: Sequence[fleets.Result]) -> str:
    """The page as it is, with its tables computed again."""
    blocks = {
        "costs": report.costs_table(model),
        "limits": report.limits_table(model),
        "latency": report.latency_table(results),
        "given": report.given_table(model),
        "measured": report.measured_table(model),
    }
    text = PAGE.read_text()
    for name, block in blocks.items():
        head, found, rest = text.partition(f"<!-- scale: begin {name} -->")
        _, closed, tail = rest.partition(f"<!-- scale: end {name} -->")
        assert found and closed, f"docs/scale.md has no place for {name}"
        text = f"{head}{found}\n{block}\n{closed}{tail}"
    return text


def made() -> dict[Path, str]:
    model, results = Model(Measured(), Samples.read(), Given()), fleets.read()
    return {
        PAGE: page(model, results),
        PICTURES / "scale_limits.svg": limits(model).svg(),
        PICTURES / "scale_costs.svg": costs(model).svg(),
        PICTURES / "scale_latency.svg": latency(results).svg(),
    }


def main() -> None:
    files = made()
    if "--check" in sys.argv:
        stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
        sys.exit(f"not up to date: {', '.join(stale)}; run python {sys.argv[0]}" if stale else 0)
    for path, text in files.items():
        with whole_file(path) as part:
            part.write_text(text)
        print(path)


if __name__ == "__main__":
    main()

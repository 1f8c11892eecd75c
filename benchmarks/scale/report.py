"""The tables of docs/scale.md, as Markdown, which a terminal shows well enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from benchmarks.scale.constants import Corpus, Given, Measured, corpora
from benchmarks.scale.costs import Model, expected_slowest
from benchmarks.scale.fleets import Result

SHOWN = (0.05, 0.5, 0.8)  # loads in the table; the plot has all


def figure(value: float) -> str:
    """Two significant digits, three above a hundred."""
    for name, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if value >= size:
            return f"{float(f'{value / size:.3g}'):,g} {name}"
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{float(f'{value:.2g}'):.10f}".rstrip("0").rstrip(".")


def usd(value: float) -> str:
    return f"${figure(value)}"


def bytes_of(gb: float) -> str:
    for unit, size in (("PB", 1e6), ("TB", 1e3)):
        if gb >= size:
            return f"{figure(gb / size)} {unit}"
    return f"{figure(gb)} GB"


def time_of(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{figure(seconds / size)} {unit}"
    return f"{figure(seconds)} s"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 1)]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def measured_table(model: Model) -> str:
    samples, source = model.samples, "`benchmarks/scale/measured.json`"
    rows = [
        (item.name, exact(getattr(model.measured, item.name)), item.metadata["unit"], item.metadata["about"])
        for item in fields(Measured)
    ]
    new = {
        "score_hour_core_s": (
            "core-seconds an hour",
            "first stage: tokens of 18,000 frames against the query",
        ),
        "encode_query_core_s": ("core-seconds", "encoding the query"),
        "index_frame_core_s": ("core-seconds a frame", "decoding (640x360), encoding and writing the demo"),
    }
    rows += [
        (name, f"{getattr(samples, name):,.3g}", unit, f"{about}: {source}")
        for name, (unit, about) in new.items()
    ]
    return _left(("constant", "value", "unit", "source"), [_coded(row) for row in rows])


def given_table(model: Model) -> str:
    rows = [
        (
            option(item.name),
            exact(getattr(model.given, item.name)),
            item.metadata["unit"],
            item.metadata["about"],
        )
        for item in fields(Given)
    ]
    return _left(("option", "value", "unit", "meaning"), [_coded(row) for row in rows])


def exact(value: float) -> str:
    return f"{value:,.6g}" if value >= 1e-3 else figure(value)


def costs_table(model: Model) -> str:
    target = figure(model.given.target_s)
    stored: dict[str, Callable[[float], str]] = {
        "hours of video stored": figure,
        "**storage**: `full` index": lambda hours: bytes_of(model.full_gb(hours)),
        "`compact` index": lambda hours: bytes_of(model.compact_gb(hours)),
        "the videos": lambda hours: bytes_of(model.video_gb(hours)),
        "`full`, a month": lambda hours: usd(model.store_usd("full", hours)),
        "`compact` and videos, a month": lambda hours: usd(model.store_usd("compact", hours)),
        "**indexing**, once: GPU-hours": lambda hours: figure(model.gpu_hours(hours)),
        "and core-hours of decoding": lambda hours: figure(model.decode_core_hours(hours)),
        "dollars": lambda hours: usd(model.index_usd(hours)),
        "without a GPU: core-hours": lambda hours: figure(model.cpu_core_hours(hours)),
        "dollars without a GPU": lambda hours: usd(model.index_without_gpu_usd(hours)),
    }
    touched: dict[str, Callable[[float], str]] = {
        "**a question** touches, hours": figure,
        "first stage, core-seconds": lambda hours: figure(model.scan_core_s(hours)),
        "machines, for memory": lambda hours: figure(model.machines_for_memory(hours)),
        "latency on these, `full`": lambda hours: _alone(model, "full", hours, False),
        "latency on these, `compact`": lambda hours: _alone(model, "compact", hours, False),
        f"machines, for a first stage of {target} s": lambda hours: figure(model.machines_for_target(hours)),
        "latency on those, `full`": lambda hours: _alone(model, "full", hours, True),
        "latency on those, `compact`": lambda hours: _alone(model, "compact", hours, True),
        "dollars a question, `full`": lambda hours: usd(model.question_usd("full", hours)),
        "dollars a question, `compact`": lambda hours: usd(model.question_usd("compact", hours)),
        "exact model on every frame, GPU-seconds": lambda hours: figure(model.exhaustive_gpu_s(hours)),
    }
    both: dict[str, Callable[[Corpus], str]] = {
        "**kept running**: machines for memory, a month": lambda corpus: usd(
            model.fleet_usd(model.machines_for_memory(corpus.stored_hours))
        ),
        f"for a first stage of {target} s, a month": lambda corpus: usd(
            model.fleet_usd(model.machines_serving(corpus))
        ),
    }
    columns = corpora(model.given)
    rows = [[about, *(said(corpus.stored_hours) for corpus in columns)] for about, said in stored.items()]
    rows += [[about, *(said(corpus.touched_hours) for corpus in columns)] for about, said in touched.items()]
    rows += [[about, *map(said, columns)] for about, said in both.items()]
    return table(("", *(corpus.name for corpus in columns)), rows)


def _alone(model: Model, keep: str, hours: float, for_target: bool) -> str:
    machines = (model.machines_for_target if for_target else model.machines_for_memory)(hours)
    return time_of(model.question_s(keep, hours, machines, model.samples.shape("wall")))


def limits_table(model: Model) -> str:
    given, hour = model.given, model.samples.score_hour_core_s
    target, cores = figure(given.target_s), figure(given.cores_a_machine)
    million = corpora(given)[-1].touched_hours
    enough = figure(model.machines_for_memory(million))
    widest = model.machines_for_target(corpora(given)[1].touched_hours)
    clock, core = (figure(expected_slowest(model.samples.shape(name), widest)) for name in ("wall", "core"))
    rows = [
        (f"one core scores all tokens in {target} s", f"{figure(given.target_s / hour)} hours"),
        (
            f"{cores} cores score all tokens in {target} s",
            f"{figure(given.target_s * given.cores_a_machine / hour)} hours",
        ),
        (
            f"tokens fit in {figure(given.memory_gb)} GB of memory",
            f"{figure(given.memory_gb / model.compact_gb(1))} hours",
        ),
        (
            f"features of `full` fit in {figure(given.gpu_memory_gb)} GB of a GPU",
            f"{figure(given.gpu_memory_gb / model.full_gb(1))} hours",
        ),
        (
            f"one GPU runs the exact model on every frame in {target} s",
            f"{figure(given.target_s / model.measured.gpu_exhaustive_hour_s)} hours",
        ),
        (
            "every second question has a later wrong sighting",
            f"{figure(model.hours_until_wrong())} hours",
        ),
        ("cores that decode for one indexing GPU", figure(model.decoding_cores_a_gpu())),
        (
            f"share of the tokens of a million hours that {enough} machines score in {target} s",
            f"{figure(100 * model.touched_share_for_target(million))} %",
        ),
    ]
    rows += [
        ("tokens that one core scores in a second", f"{figure(model.compact_gb(1) / hour)} GB"),
        ("operations that it does for them", f"{figure(model.scan_operations(1) / hour)} a second"),
        ("tokens of a million hours", figure(million * model.samples.tokens_an_hour)),
        (
            f"slowest of {figure(widest)} machines against the median, by the clock of a busy machine",
            f"{clock} times",
        ),
        ("the same by processor seconds", f"{core} times"),
    ]
    return table(("limit", "reached at"), rows)


def latency_table(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        case = result.case
        if case.load not in SHOWN:
            continue
        rows.append(
            (
                figure(result.machines),
                kind(case.replicas, case.hedge),
                f"{100 * case.load:g} %",
                figure(result.questions_an_hour),
                *(f"{figure(seconds)} s" for seconds in (result.p50_s, result.p95_s, result.p99_s)),
            )
        )
    return table(("machines", "replicas", "load", "questions an hour", "p50", "p95", "p99"), rows)


def kind(replicas: int, hedge: str) -> str:
    if hedge != "no":
        return f"{replicas}, hedged ({'wait' if hedge == 'sent' else 'service'})"
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def _left(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return table(titles, rows).replace("|---|---:|---:|---:|", "|---|---:|---|---|")


def _coded(row: Sequence[str]) -> Sequence[str]:
    return (f"`{row[0]}`", *row[1:])


def option(name: str) -> str:
    return "--" + name.replace("_", "-")

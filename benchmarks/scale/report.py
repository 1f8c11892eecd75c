"""The tables of docs/scale.md, as Markdown, which a terminal shows well enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from benchmarks.scale.constants import KEEPS, Given, Measured, Samples, corpora
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
            samples.score_hour_core_s("compact"),
            "core-seconds an hour",
            "first stage, `compact`",
        ),
        "score_hour_small_core_s": (
            samples.score_hour_core_s("small"),
            "core-seconds an hour",
            "first stage, `small`",
        ),
        "unpack_frame_core_s": (
            samples.unpack_frame_core_s,
            "core-seconds a frame",
            "features from a `small` index",
        ),
        "encode_query_core_s": (samples.encode_query_core_s, "core-seconds", "encoding the query"),
        "index_frame_core_s": (
            samples.index_frame_core_s,
            "core-seconds a frame",
            "decoding (640x360), encoding and writing the demo",
        ),
    }
    rows += [
        (name, f"{value:,.3g}", unit, f"{about}: {source}") for name, (value, unit, about) in new.items()
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


def storage_table(model: Model) -> str:
    rows: dict[str, Callable[[float], str]] = {
        "hours of video": figure,
        **{
            f"`{keep}`": lambda hours, keep=keep: bytes_of(model.index_gb(keep, hours))  # type: ignore[misc]
            for keep in KEEPS
        },
        "the videos": lambda hours: bytes_of(model.video_gb(hours)),
        **{
            f"`{keep}`{' and videos' if keep == 'compact' else ''}, a month": (
                lambda hours, keep=keep: usd(model.store_usd(keep, hours))  # type: ignore[misc]
            )
            for keep in KEEPS
        },
        "indexing, once: GPU-hours": lambda hours: figure(model.gpu_hours(hours)),
        "and core-hours of decoding": lambda hours: figure(model.decode_core_hours(hours)),
        "dollars": lambda hours: usd(model.index_usd(hours)),
        "without a GPU: core-hours": lambda hours: figure(model.cpu_core_hours(hours)),
        "dollars without a GPU": lambda hours: usd(model.index_without_gpu_usd(hours)),
    }
    columns = corpora(model.given)
    return table(
        ("", *(corpus.name for corpus in columns)),
        [[about, *(said(corpus.stored_hours) for corpus in columns)] for about, said in rows.items()],
    )


def questions_table(model: Model) -> str:
    columns = corpora(model.given)
    target = figure(model.given.target_s)
    hours = [corpus.touched_hours for corpus in columns]
    rows = [["hours that a question touches", *map(figure, hours)]]
    for keep in KEEPS:
        if keep != "full":  # which has the tokens of compact
            rows += [
                [
                    f"`{keep}`: core-seconds, first stage",
                    *(figure(model.scan_core_s(keep, h)) for h in hours),
                ],
                [
                    f"`{keep}`: machines for memory",
                    *(figure(model.machines_for_memory(keep, h)) for h in hours),
                ],
                [
                    f"`{keep}`: machines for a first stage of {target} s",
                    *(figure(model.machines_for_target(keep, h)) for h in hours),
                ],
            ]
    for keep in KEEPS:
        rows += [
            [f"latency, `{keep}`, machines for memory", *(_alone(model, keep, h, False) for h in hours)],
            [f"latency, `{keep}`, machines for {target} s", *(_alone(model, keep, h, True) for h in hours)],
        ]
    rows += [
        [f"dollars a question, `{keep}`", *(usd(model.question_usd(keep, h)) for h in hours)]
        for keep in KEEPS
    ]
    rows.append(
        ["exact model on every frame, GPU-seconds", *(figure(model.exhaustive_gpu_s(h)) for h in hours)]
    )
    for keep in KEEPS[1:]:
        kept = [model.fleet_usd(model.machines_for_memory(keep, corpus.stored_hours)) for corpus in columns]
        quick = [model.fleet_usd(model.machines_serving(keep, corpus)) for corpus in columns]
        rows.append([f"machines kept running, a month, `{keep}`: for memory", *map(usd, kept)])
        rows.append([f"machines kept running, a month, `{keep}`: for {target} s", *map(usd, quick)])
    return table(("", *(corpus.name for corpus in columns)), rows)


def _alone(model: Model, keep: str, hours: float, for_target: bool) -> str:
    machines = (model.machines_for_target if for_target else model.machines_for_memory)(keep, hours)
    return time_of(model.question_s(keep, hours, machines, model.samples.shape("wall")))


def limits_table(model: Model) -> str:
    given, samples = model.given, model.samples
    hour, small_hour = (samples.score_hour_core_s(keep) for keep in ("compact", "small"))
    target, cores = figure(given.target_s), given.cores_a_machine
    million = corpora(given)[-1].touched_hours
    enough = figure(model.machines_for_memory("compact", million))
    widest = model.machines_for_target("compact", corpora(given)[1].touched_hours)
    clock, core = (figure(expected_slowest(samples.shape(name), widest)) for name in ("wall", "core"))
    differs = samples.stage["largest_difference"]
    rows = {
        f"one GPU runs the exact model on every frame in {target} s": _hours(
            given.target_s / model.measured.gpu_exhaustive_hour_s
        ),
        f"features of `full` fit in {figure(given.gpu_memory_gb)} GB of a GPU": _hours(
            given.gpu_memory_gb / model.index_gb("full", 1)
        ),
        "every second question has a later wrong sighting": _hours(model.hours_until_wrong()),
        f"{figure(cores)} cores score all tokens of `compact`; `small` in {target} s": _hours(
            given.target_s * cores / hour, given.target_s * cores / small_hour
        ),
        f"tokens of `compact`; `small` fit in {figure(given.memory_gb)} GB of memory": _hours(
            *(given.memory_gb / model.tokens_gb(keep, 1) for keep in ("compact", "small"))
        ),
        "cores that decode for one indexing GPU": figure(model.decoding_cores_a_gpu()),
        f"share of the tokens of a million hours that {enough} machines score in {target} s": (
            f"{figure(100 * model.touched_share_for_target('compact', million))} %"
        ),
        "tokens of a million hours, `compact`": figure(million * samples.tokens_an_hour),
        "of them one core scores in a second": f"{figure(model.tokens_gb('compact', 1) / hour)} GB",
        "multiplications and additions for that": f"{figure(model.scan_operations(1) / hour)}",
        "first stage in bfloat16, which is not in the product": _faster(
            samples, "bfloat16", differs["bfloat16"]
        ),
        f"and with {samples.stage['query_vectors']['fewer']} instead of "
        f"{samples.stage['query_vectors']['all']} vectors of the query": _faster(
            samples, "bfloat16_fewer", differs["bfloat16_fewer"]
        ),
        f"slowest of {figure(widest)} machines against the median, by the clock": f"{clock} times",
        "the same by processor seconds": f"{core} times",
    }
    return table(("", "value"), list(rows.items()))


def _hours(*values: float) -> str:
    return "; ".join(map(figure, values)) + " hours"


def _faster(samples: Samples, way: str, difference: float) -> str:
    times = samples.score_hour_core_s("compact") / samples.score_hour_core_s(way)
    return f"{figure(times)} times as fast; scores differ by {figure(difference)} at most"


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

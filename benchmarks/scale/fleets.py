"""Which fleets are simulated under which load, and what came out.

A load is a share of what the fleet can serve, so fleets with two replicas get twice as many questions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.scale.constants import corpora
from benchmarks.scale.costs import Model
from benchmarks.scale.simulate import Draw, Fleet, Simulation, percentile, resampled, with_stragglers

RESULTS = Path(__file__).with_name("simulated.json")
KINDS = ((1, "no"), (2, "no"), (2, "sent"), (2, "served"))  # replicas, from when a hedged task is timed
LOADS = (0.05, 0.3, 0.5, 0.7, 0.8, 0.9)
QUESTIONS = {True: 1_500, False: 4_000}  # of a fleet for the target time, which is large; of the other
KEEP = "compact"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A person's year on the machines that its tokens fill, or that score them in the target time."""

    for_target: bool
    replicas: int
    hedge: str
    load: float


@dataclass(frozen=True, kw_only=True)
class Result:
    case: Case
    machines: int
    questions: int
    questions_an_hour: float
    p50_s: float
    p95_s: float
    p99_s: float


CASES = tuple(
    Case(for_target=for_target, replicas=replicas, hedge=hedge, load=load)
    for for_target in (False, True)
    for replicas, hedge in KINDS
    for load in LOADS
)


def fleet(model: Model, case: Case) -> tuple[Fleet, float]:
    """And how long all tasks of a question keep a machine busy, on average."""
    given, shape = model.given, model.samples.shape("wall")
    hours = corpora(given)[1].touched_hours
    shards = (model.machines_for_target if case.for_target else model.machines_for_memory)(hours)
    scan_s, exact_s = model.scan_median_s(hours, shards), model.clip_s(KEEP)
    candidates = round(model.measured.candidates)

    def drawn(median_s: float) -> Draw:
        return with_stragglers(resampled(shape, median_s), given.straggler_share, given.straggler_factor)

    mean = sum(shape) / len(shape) * (1 + given.straggler_share * (given.straggler_factor - 1))
    return (
        Fleet(
            shards=shards,
            scan=drawn(scan_s),
            replicas=case.replicas,
            hedge_after_s=given.hedge_after_medians * scan_s if case.hedge != "no" else None,
            hedge_from_service=case.hedge == "served",
            merge_s=model.merge_s(shards),
            candidates=candidates,
            exact=drawn(exact_s),
        ),
        mean * (scan_s + candidates / shards * exact_s),
    )


def simulated(model: Model, case: Case, seed: int = 0) -> Result:
    """The query's encoding is not in it: it does not wait for the machines of the index."""
    machines, busy_s = fleet(model, case)
    questions_s = case.load * case.replicas / busy_s
    count = QUESTIONS[case.for_target]
    seconds = Simulation(machines, questions_s, count, seed).run()
    p50_s, p95_s, p99_s = (float(f"{percentile(seconds, share):.4g}") for share in (0.5, 0.95, 0.99))
    return Result(
        case=case,
        machines=machines.shards * case.replicas,
        questions=count,
        questions_an_hour=float(f"{questions_s * 3600:.4g}"),
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
    )


def write(results: Sequence[Result], path: Path = RESULTS) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(asdict(result)) for result in results) + "\n]\n")


def read(path: Path = RESULTS) -> list[Result]:
    return [Result(**{**row, "case": Case(**row["case"])}) for row in json.loads(path.read_text())]

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

import benchmarks.scale as package
from benchmarks.scale import fleets, report
from benchmarks.scale.constants import Given, Measured, Samples
from benchmarks.scale.costs import Model


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description=package.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for item in fields(Given):
        about = f"{item.metadata['about']} ({item.metadata['unit']}, {item.default:g})"
        parser.add_argument(report.option(item.name), type=_positive, default=item.default, help=about)
    parser.add_argument("--simulate", action="store_true", help="latency under load, some minutes")
    parser.add_argument("--out", type=Path, help="JSON of what was simulated")
    arguments = parser.parse_args()
    given = Given(**{item.name: getattr(arguments, item.name) for item in fields(Given)})
    model = Model(Measured(), Samples.read(), given)
    for said in (report.given_table, report.measured_table, report.costs_table, report.limits_table):
        print(said(model), end="\n\n")
    if arguments.simulate:
        results = [fleets.simulated(model, case) for case in fleets.CASES]
        print(report.latency_table(results))
        if arguments.out:
            fleets.write(results, arguments.out)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


if __name__ == "__main__":
    main()

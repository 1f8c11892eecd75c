"""python -m soak: run the kinds one after another, print the table, exit with 1 if anything failed."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lastseen.doctor import SETTINGS
from soak.harness import Row, soak
from soak.report import table, to_dict, write_docs, write_json

KINDS = ("media", "pictures", "indexes", "weights", "texts", "kills", "servers", "disks")


def kinds(names: list[str] | None = None) -> list[Any]:
    return [importlib.import_module(f"soak.{name}") for name in names or KINDS]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the cases, each kind at least one")
    parser.add_argument("--only", nargs="+", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--workers", type=int, default=2, help="cases at once")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the report")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the files of cases that failed")
    parser.add_argument("--write-docs", action="store_true", help="put the report into docs/reliability.md")
    parser.add_argument("--from-report", type=Path, metavar="FILE.json", help="run nothing, take this report")
    given = parser.parse_args()
    report = json.loads(given.from_report.read_text()) if given.from_report else run(given)
    print(table(report))
    for row in report["kinds"]:
        print(*row["first_failures"], sep="\n", end="\n" if row["first_failures"] else "")
    if given.out:
        write_json(report, given.out)
    if given.write_docs:
        write_docs(report)
    sys.exit(any(row["failures"] for row in report["kinds"]))


def run(given: argparse.Namespace) -> dict[str, Any]:
    for name in SETTINGS:  # whoever runs this may have settings of their own
        os.environ.pop(name, None)
    os.environ["OMP_NUM_THREADS"] = "1"  # one thread for each case
    began = time.monotonic()
    rows: list[Row] = []
    for kind in kinds(given.only):
        with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
            cases = max(1, math.ceil(kind.CASES * given.scale))
            options = {"seed": given.seed, "cases": cases, "workers": given.workers}
            rows.append(soak(kind, folder=Path(folder), keep=given.keep, **options))
        print(f"{kind.NAME}: {rows[-1].counts}, {rows[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    return to_dict(rows, seed=given.seed, scale=given.scale, workers=given.workers, seconds=seconds)


if __name__ == "__main__":
    main()

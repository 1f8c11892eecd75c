"""The table at the end: as text, as JSON, and between two marks in docs/reliability.md."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lastseen import __version__
from soak.harness import NAMED, Row

SCHEMA = "lastseen/soak@1"
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
TITLES = ("kind", "cases", "normal", "refused in one line", "failures", "worst case", "peak memory")


def circumstances() -> dict[str, str]:
    """What made a report, when and on what."""
    git = ["git", "-C", str(PAGE.parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {
        "lastseen": f"{__version__} ({commit})" if commit else __version__,
        "date": datetime.now(UTC).date().isoformat(),
        "system": f"{machine}, Python {platform.python_version()}",
    }


def to_dict(rows: Sequence[Row], *, seed: int, scale: float, workers: int, seconds: float) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **circumstances(),
        "seed": seed,
        "scale": scale,
        "workers": workers,
        "seconds": round(seconds, 1),
        "kinds": [
            {
                **asdict(row),
                "failures": len(row.failures),
                "first_failures": row.failures[:NAMED],
                "worst_s": round(row.worst_s, 2),
                "seconds": round(row.seconds, 1),
            }
            for row in rows
        ],
    }


def table(report: dict[str, Any]) -> str:
    """As Markdown, which a terminal shows well enough."""
    lines = [f"| {' | '.join(TITLES)} |", "|---|" + "---:|" * (len(TITLES) - 1)]
    for row in report["kinds"]:
        if row["skipped"]:
            lines.append(f"| {row['kind']} | skipped: {row['skipped']} |  |  |  |  |  |")
            continue
        counts = (f"{row[name]:,}" for name in ("cases", "normal", "refused", "failures"))
        most = f"{row['worst_s']:.1f} s", f"{row['peak_bytes'] / 2**20:,.0f} MiB"
        lines.append(f"| {' | '.join((row['kind'], *counts, *most))} |")
    sums = [
        f"{sum(row[name] for row in report['kinds']):,}"
        for name in ("cases", "normal", "refused", "failures")
    ]
    lines.append(f"| all | {' | '.join(sums)} | {report['seconds'] / 60:.1f} min in all |  |")
    return "\n".join(lines)


def block(report: dict[str, Any]) -> str:
    made = (
        f"lastseen {report['lastseen']}, {report['date']}, {report['system']}, seed {report['seed']}, "
        f"{report['workers']} processes at once:"
    )
    failures = [line for row in report["kinds"] for line in row["first_failures"]]
    return "\n".join([made, "", table(report), *(f"- {line}" for line in failures)])


def write_docs(report: dict[str, Any], page: Path = PAGE) -> None:
    """Put the report between the page's two marks."""
    put_between(BEGIN, END, block(report), page)


def put_between(begin: str, end: str, text: str, page: Path) -> None:
    head, _, rest = page.read_text().partition(begin)
    _, _, tail = rest.partition(end)
    page.write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def write_json(report: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(report, indent=2) + "\n")

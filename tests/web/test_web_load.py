"""The load test of the page's server, tried small: a tiny model, few clients, seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

from models import SMALL, random_model

from benchmarks import load
from lastseen.weights import save_model

ROOT = Path(__file__).parents[2]


def test_several_people_at_once_get_answers_and_no_request_fails_inside(tmp_path):
    save_model(random_model(SMALL), tmp_path / "model")
    command = [sys.executable, "-m", "benchmarks.load", "--clients", "5", "--minutes", "0.1", "--idle", "1"]
    command += ["--weights", str(tmp_path / "model"), "--out", str(tmp_path / "load.json")]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "load.json").read_text())
    assert (report["failed"], report["messages"], report["broken"]) == ({}, {}, {})
    assert report["statuses"]["200"] > 20 and report["statuses"]["202"] > 0
    assert report["question_s"]["count"] > 0 and report["plain_request_s"]["count"] > 20
    assert 0 < report["memory_mib"]["before"] <= report["memory_mib"]["peak"]
    assert "PROBLEM" not in done.stdout and "status 500 or more: 0\n" in done.stdout
    # The page of the documentation has a place for it.
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "reliability.md").read_text())
    load.write_docs(report, page)
    written = page.read_text().partition(load.BEGIN)[2].partition(load.END)[0]
    assert load.text_of(report) in written and report["date"] in written
    load.write_docs(report, page)
    assert page.read_text().count(load.text_of(report)) == 1
    growing = {**report, "memory_mib": {"before": 100, "peak": 900, "after": 900}}
    assert load.problems(growing) == ["more than 300 MiB of memory did not come back"]

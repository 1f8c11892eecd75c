"""The load test of the page's server, tried small: a tiny model, few clients, seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

from models import SMALL, random_model

from lastseen.weights import save_model

ROOT = Path(__file__).parents[2]


def test_several_people_at_once_get_answers_and_no_request_fails_inside(tmp_path):
    save_model(random_model(SMALL), tmp_path / "model")
    command = [sys.executable, "benchmarks/load.py", "--clients", "8", "--minutes", "0.2", "--idle", "1"]
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
    assert "PROBLEM" not in done.stdout

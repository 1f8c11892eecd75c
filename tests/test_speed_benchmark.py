"""The benchmark of GPUs, tried small on the CPU: what it measures must be the product as it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_speed_benchmark_runs_at_toy_size(tmp_path):
    out = tmp_path / "speed.json"
    command = [sys.executable, "benchmarks/gpu_speed.py", "--toy", "--device", "cpu", "--out", str(out)]
    done = subprocess.run(
        [*command, "--only", "wide", "pipeline", "hour", "compact"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert {row["section"] for row in rows} == {"wide", "pipeline", "hour", "compact"}
    assert all(row["value"] > 0 for row in rows)

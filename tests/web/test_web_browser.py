"""The browser that tests of the page need: which one is taken, and what is said if there is none."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import find_chromium

ROOT = Path(__file__).parents[2]


def make_browser(path: Path) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_variable_chromium_names_the_browser(tmp_path, monkeypatch):
    own, other = make_browser(tmp_path / "my-browser"), make_browser(tmp_path / "chromium")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert find_chromium() == other
    for name in (own, "my-browser"):
        monkeypatch.setenv("CHROMIUM", name)
        assert find_chromium() == own
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "nothing"))
    assert find_chromium() is None  # not another one than was named


def test_without_a_browser_the_last_lines_say_what_was_skipped_and_how_to_get_one():
    """As `make test` runs it: in the folder `tests`, by several processes."""
    pytest.importorskip("playwright.sync_api")
    others = [*(ROOT / "tests").glob("*/"), *(ROOT / "tests").glob("*/test_*.py")]
    ignored = [f"--ignore={p}" for p in others if p.name not in ("web", "test_web_page.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", *ignored, "-k", "test_web_page and keyboard"],
        cwd=ROOT,
        env={**os.environ, "CHROMIUM": "/nowhere/chromium", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = re.findall(r"^\d+ tests of the page were skipped: .*$", done.stdout, re.MULTILINE)
    assert len(said) == 1, done.stdout + done.stderr
    assert said[0].startswith("1 ") and "apt install chromium" in said[0] and "CHROMIUM" in said[0]

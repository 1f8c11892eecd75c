"""A small part of the soak, and its harness: it notices hangs, crashes, memory and wrong exceptions."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import bad_cases
import pytest

from soak.__main__ import KINDS, kinds
from soak.harness import Row, _Worker, soak
from soak.mutate import DAMAGE, damaged, damaged_json
from soak.report import BEGIN, END, PAGE, table, to_dict, write_docs
from soak.worker import PREPARE

ROOT = Path(__file__).parents[2]
# Cases of each kind: all damage to all videos, and a glance at the slow ones, in less than a minute.
FEW = {
    "media": 200,
    "pictures": 100,
    "indexes": 10,
    "weights": 12,
    "texts": 90,
    "kills": 1,
    "servers": 1,
    "disks": 1,
}


@pytest.fixture(autouse=True)
def one_thread_each(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


# --- the product


@pytest.mark.parametrize("name", KINDS)
def test_a_few_damaged_cases_of_each_kind_end_as_promised(name, tmp_path):
    (kind,) = kinds([name])
    row = soak(kind, seed=0, cases=FEW[name], workers=1, folder=tmp_path)
    assert row.failures == []
    if row.skipped:
        pytest.skip(row.skipped)
    assert row.normal + row.refused == FEW[name]
    assert row.normal or name == "disks"


# --- the harness


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """How cases that go wrong in every way were counted; and the folder in which their files are kept."""
    root = tmp_path_factory.mktemp("bad")
    (root / "work").mkdir()
    keep = root / "kept"
    limits = {"workers": 2, "memory_bytes": bad_cases.MEMORY_BYTES * 2 // 3}
    row = soak(bad_cases, seed=5, cases=len(bad_cases.WAYS), folder=root / "work", keep=keep, **limits)
    return row, keep, root / "work"


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("hang", "hang: killed after 6 s"),
        ("hang_with_a_program", "hang: killed after 6 s"),
        ("crash", "crash: signal 11"),
        ("leave", "crash: exit status 3"),
        ("fill_memory", "memory: killed at more than 200 MiB"),
        ("fill_memory_for_a_moment", "memory: "),
        ("wrong_exception", "KeyError at bad_cases.py:"),
        ("two_lines", "an error of 2 lines"),
        ("long_line", "an error of 1000 characters"),
        ("broken", "more frames than announced"),
    ],
)
def test_what_goes_wrong_is_counted_and_named(bad, way, words):
    number = [function.__name__ for function in bad_cases.WAYS].index(way)
    (line,) = [line for line in bad[0].failures if line.startswith(f"seed 5, bad {number} ({way}): ")]
    assert words in line


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux")
def test_waiting_for_a_processor_is_no_hang():
    """Three programs that compute on one processor, each for a third of the time."""
    busy = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    programs = [subprocess.Popen([sys.executable, "-S", "-c", busy]) for _ in range(3)]
    try:
        worker = object.__new__(_Worker)
        worker._process, worker._waited_s = programs[0], 0.0
        time.sleep(0.5)
        began, since = time.monotonic(), worker.now_s()
        time.sleep(2.0)
        assert worker.now_s() - since < 0.75 * (time.monotonic() - began)
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_all_cases_are_counted_and_the_next_ones_are_still_run(bad):
    row, _, _ = bad
    assert row.counts == (15, 4, 1, 10)
    assert row.worst_s < bad_cases.PATIENCE_S and row.peak_bytes > 2**20


def test_the_files_of_a_failure_are_kept_and_no_others(bad):
    _, keep, work = bad
    assert [path.name for path in keep.rglob("*.txt")] == ["kept.txt"]
    assert sorted(path.name for path in work.iterdir()) == ["prepared"]


def test_programs_of_a_killed_case_end_with_it(bad):
    program = int((bad[2] / "prepared" / "child.pid").read_text())
    ends = time.monotonic() + 20
    while Path(f"/proc/{program}/stat").exists() and is_running(program):
        assert time.monotonic() < ends, "it is still there"
        time.sleep(0.05)


def is_running(program: int) -> bool:
    try:
        return Path(f"/proc/{program}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_kind_that_cannot_be_run_here_is_skipped_with_its_reason(tmp_path):
    (tmp_path / "impossible").touch()
    row = soak(bad_cases, seed=0, cases=3, workers=1, folder=tmp_path)
    assert row.skipped == "not on this machine" and not row.failures and not row.normal
    assert "skipped: not on this machine" in table(report_of(row))


# --- damage


def test_damage_is_the_same_for_a_seed_and_another_for_another():
    sound = [bytes(range(256)) * 8, b"\x00\x00\x00\x20ftypisom" + bytes(500), b"\x1a\x45\xdf\xa3" * 50]
    every = [[damaged(Random(f"{seed} {n}"), n, sound) for n in range(60)] for seed in (0, 0, 1)]
    assert every[0] == every[1] != every[2]
    texts = [
        [damaged_json(Random(f"{seed} {n}"), {"a": [1, {"b": "c"}]}) for n in range(60)] for seed in (0, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_every_file_meets_every_kind_of_damage():
    sound = [bytes([n]) * 600 for n in range(1, 12)]
    pairs = {damaged(Random(n), n, sound)[:2] for n in range(len(sound) * len(DAMAGE))}
    assert len(pairs) == len(sound) * len(DAMAGE)


def test_damage_changes_what_it_is_given():
    data = Random(0).randbytes(3000) + b"\x00\x00\x01\x00moov" + b"\x00\x00\x00\x20stts" + bytes(100)
    for name, damage in DAMAGE.items():
        results = {damage(Random(seed), bytearray(data), [b"other" * 99]) for seed in range(9)}
        assert (results == {data}) == (name == "untouched"), name


# --- the report


def report_of(*rows):
    return to_dict(rows, seed=3, scale=0.5, workers=2, seconds=61.0)


def test_the_report_goes_between_the_marks_of_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    row = Row(
        "media", 2400, 1500, 899, ["seed 3, media 7 (a.mp4): hang"], worst_s=1.25, peak_bytes=300 * 2**20
    )
    for _ in range(2):  # written again it is still one
        write_docs(report_of(row, replace(row, kind="texts", failures=[])), page)
    text = page.read_text()
    assert text.startswith(f"before\n\n{BEGIN}\n") and text.endswith(f"{END}\n\nafter\n")
    assert "| media | 2,400 | 1,500 | 899 | 1 | 1.2 s | 300 MiB |" in text and "old" not in text
    assert text.count("seed 3, media 7 (a.mp4): hang") == 1


def test_the_page_has_the_two_marks():
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1 and text.index(BEGIN) < text.index(END)


def test_the_command_exits_with_1_if_anything_failed(tmp_path):
    for failures in ([], ["seed 3, media 7: hang"]):
        (tmp_path / "report.json").write_text(json.dumps(report_of(Row("media", 8, 7, 0, failures))))
        command = [sys.executable, "-m", "soak", "--from-report", str(tmp_path / "report.json")]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        assert done.returncode == len(failures), done.stderr
        assert "| media | 8 |" in done.stdout


def test_the_full_run_is_as_large_as_the_page_says():
    text = PAGE.read_text()
    for kind in kinds():
        assert f"| `{kind.NAME}` | {kind.CASES:,} |" in text
    assert PREPARE < 0

"""Do two checkouts give the same answers, to the last bit? For refactoring.

    python runs/same_answers.py OLD NEW --set episodes

Each checkout is run by its own command line in a process of its own: the bundled demo (every occurrence; its
first 20 seconds by the paper's procedure and training-free; through an index with all features kept and with
compact ones, quick and exhaustive) and every question of an annotated set (`lastseen synth episodes --split
val --episodes 2 --seed 3 --fps 5 --seconds 25-30` makes one). Times, boxes and scores must be equal as
printed. Floating-point results depend on the machine, so both run here and nothing is stored.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

COMPARED = {"found", "tracks", "best_guess", "answers", "things", "fps", "duration"}


def answers(checkout: Path, sets: list[Path], work: Path) -> dict[str, Any]:
    assets = checkout / "lastseen" / "assets"
    demo = [str(assets / "demo_query.jpg"), str(assets / "demo.mp4")]
    given: dict[str, Any] = {}

    def ask(name: str, *command: str) -> None:
        done = run(checkout, *command)
        given[name] = compared(json.loads(done))

    for folder in sets:
        out = work / f"{folder.name}.json"
        files = ["--annotations", str(folder / "annotations.json"), "--absent", str(folder / "absent.json")]
        run(checkout, "evaluate", *files, "--videos", str(folder / "videos"), "--out", str(out))
        content = json.loads(out.read_text())
        given[f"evaluate {folder.name}"] = {name: content[name] for name in ("results", "absent")}
    for name, options in (
        ("demo, all", ["--all"]),
        ("demo, paper", ["--paper", "--before", "20"]),
        ("demo, training-free", ["--weights", "training-free", "--all", "--before", "20"]),
    ):
        ask(name, "find", *demo, "--json", *options)
    for keep in ("full", "compact"):
        index = str(work / f"index-{keep}")
        run(checkout, "index", demo[1], "--index", index, "--keep", keep)
        for name, options in (("quick", []), ("exhaustive", ["--exhaustive"])):
            ask(f"index {keep}, {name}", "find", demo[0], "--index", index, "--json", "--all", *options)
    return given


def run(checkout: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, "-m", "lastseen", *command], env=environment, capture_output=True, text=True
    )
    if done.returncode not in (0, 1):
        sys.exit(f"{checkout}: lastseen {' '.join(command)}\n{done.stderr}")
    return done.stdout


def compared(answer: Any) -> Any:
    """What is said of the video; not by which model, when or in which file."""
    if isinstance(answer, list):
        return [compared(part) for part in answer]
    if not isinstance(answer, dict):
        return answer
    if "boxes" in answer:  # a track: all of it
        return answer
    return {key: compared(value) for key, value in answer.items() if key in COMPARED}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--set", type=Path, action="append", default=[], dest="sets", metavar="FOLDER")
    parser.add_argument("--keep", type=Path, help="where the old checkout's answers are kept for next time")
    given = parser.parse_args()
    sets = [folder.resolve() for folder in given.sets]
    with tempfile.TemporaryDirectory() as work:
        if given.keep and given.keep.exists():
            old = json.loads(given.keep.read_text())
        else:
            (Path(work) / "old").mkdir()
            old = answers(given.old.resolve(), sets, Path(work) / "old")
            if given.keep:
                given.keep.write_text(json.dumps(old))
        (Path(work) / "new").mkdir()
        new = answers(given.new.resolve(), sets, Path(work) / "new")
    differ = 0
    for name in old:
        same = json.dumps(old[name], sort_keys=True) == json.dumps(new[name], sort_keys=True)
        differ += not same
        print(f"{name:28} {'same' if same else 'DIFFERENT'} ({len(json.dumps(old[name]))} characters)")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()

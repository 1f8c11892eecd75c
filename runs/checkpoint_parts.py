"""A run's newest checkpoint in pieces that fit through a narrow door, and whether all of it has arrived.

    python runs/checkpoint_parts.py RUN 0 FOLDER     the first piece, then 1, 2, .. until it says so
    python runs/checkpoint_parts.py RUN              what a checkpoint's pieces are, and which are missing

A piece has at most FILES files and MIB MiB, in FOLDER/checkpoints/STEP as they are in RUN: copied over each
other, all pieces of one checkpoint are a run again. The first one has the run's config and log, too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

FILES, MIB = 8, 60


def pieces(run: Path) -> list[list[Path]]:
    """Files of RUN, relative to it."""
    folders = sorted(path for path in (run / "checkpoints").glob("*") if path.name.isdigit())
    if not folders:
        sys.exit(f"{run} has no checkpoint")
    state = folders[-1] / "state.json"
    if not state.exists():
        sys.exit(f"{folders[-1]} is not whole: state.json is missing; copy the first piece here")
    listed = json.loads(state.read_text())["files"]
    files = [run / "config.json", run / "log.jsonl", folders[-1] / "state.json", folders[-1] / "config.json"]
    files += [folders[-1] / name for name in listed]
    missing = [path.name for path in files if not path.exists()]
    if missing:
        sys.exit(f"{folders[-1]} is not whole: {', '.join(missing)} missing; copy the other pieces here")
    found: list[list[Path]] = [[]]
    size = 0
    for file in files:
        bytes_ = file.stat().st_size
        if found[-1] and (len(found[-1]) == FILES or size + bytes_ > MIB * 2**20):
            found.append([])
            size = 0
        found[-1].append(file.relative_to(run))
        size += bytes_
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("number", type=int, nargs="?")
    parser.add_argument("folder", type=Path, nargs="?")
    arguments = parser.parse_args()
    found = pieces(arguments.run)
    if arguments.number is None:
        for number, files in enumerate(found):
            print(number, *files)
        return
    if arguments.folder is None or not 0 <= arguments.number < len(found):
        parser.error(f"expected a piece from 0 to {len(found) - 1} and a folder")
    for file in found[arguments.number]:
        target = arguments.folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(arguments.run / file, target)
    print(f"piece {arguments.number} of 0 to {len(found) - 1}: {len(found[arguments.number])} files")


if __name__ == "__main__":
    main()

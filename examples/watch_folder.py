"""Watch a folder of recordings: index each file once it is complete, and ask the saved questions again.

    python examples/watch_folder.py ~/Videos/bodycam questions.json
    python examples/watch_folder.py /media/recordings questions.json --index ~/week --pictures answers/ --once

questions.json names the things, their photos (beside the file, unless absolute), and where they are in them:

    {"keys": {"picture": "desk.jpg", "box": [273, 133, 336, 304]},
     "mug": {"picture": "mug.jpg"}}

A file is complete when it has not changed for --settle seconds and can be read to its end. One that cannot be
read is one line, and is tried again when it changes. Stopped at any moment, it goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from lastseen import Answer, Box, Index, LastSeenError, Query

ENDINGS = {".mp4", ".mov", ".mkv", ".avi", ".ts", ".m4v", ".webm"}
State = tuple[int, float]  # size in bytes, time of the last change


class Folder:
    """The files of a folder, at any depth; each is handed out once for each content that it settles on."""

    def __init__(self, folder: Path, settle_s: float) -> None:
        self.folder, self.settle_s = folder, settle_s
        self._since: dict[Path, tuple[State, float]] = {}  # how each file is, and since when
        self._done: dict[Path, State] = {}

    def complete(self, now_s: float) -> list[Path]:
        """Files that have settled since they were last handed out, the oldest first."""
        settled = []
        for path in self.folder.rglob("*"):
            if path.suffix.lower() not in ENDINGS or path.name.startswith("."):
                continue
            try:
                found = path.stat()
            except OSError:  # it was removed meanwhile
                continue
            state = (found.st_size, found.st_mtime)
            known, since_s = self._since.get(path, (None, now_s))
            if known != state:
                self._since[path] = (state, now_s)
                since_s = now_s
            if now_s - since_s >= self.settle_s and self._done.get(path) != state:
                self._done[path] = state
                settled.append(path)
        return sorted(settled, key=lambda path: self._done[path][1])


def read_questions(file: Path) -> dict[str, Query]:
    """The saved questions; an error names the one that is wrong."""
    try:
        saved = json.loads(file.read_text())
        return {name: _query(file.parent, **question) for name, question in saved.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise LastSeenError(f"{file}: not a file of questions ({error}); see {Path(__file__).name}") from None


def _query(folder: Path, picture: str, box: list[float] | None = None) -> Query:
    return Query.from_image(folder / picture, box=None if box is None else Box(*box))


def step(index: Index, folder: Folder, questions: dict[str, Query], now_s: float) -> dict[str, Answer]:
    """Index what is complete; the answers to all questions if there is anything new, else nothing."""
    new = False
    for path in folder.complete(now_s):
        try:
            outcome = index.add(path, keep="compact").outcome
        except LastSeenError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        print(f"{path.name}: {outcome}", flush=True)
        new = new or outcome == "added"
    if not new:
        return {}
    return {name: answers[0] for name, answers in index.ask_many(questions).items() if answers}


def told(name: str, answer: Answer) -> str:
    """One line for a person."""
    if not answer.found:
        return f"{name}: not seen yet"
    moment = answer.video.time_of(answer.last.end).strftime("%Y-%m-%d %H:%M:%S")
    return f"{name}: last seen {moment}, in {answer.video.name}, score {answer.last.score:.2f}"


def write_pictures(folder: Path, answers: dict[str, Answer]) -> None:
    """The last moment of each thing that was seen, with its box."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, answer in answers.items():
        if answer.found:
            answer.save_picture(folder / f"{name}.jpg")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--index", type=Path, default=Path("watched-index"), help="where features are kept")
    parser.add_argument("--pictures", type=Path, help="write the last moment of each thing into this folder")
    parser.add_argument("--settle", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="how often to look")
    parser.add_argument("--once", action="store_true", help="look until all is settled, then end")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        sys.exit(f"{arguments.folder}: no such folder")
    try:
        questions = read_questions(arguments.questions)
        folder, said = Folder(arguments.folder, arguments.settle), {}
        ends_s = time.monotonic() + arguments.settle
        with Index(arguments.index) as index:
            while True:
                answers = step(index, folder, questions, now_s := time.monotonic())
                for name, answer in answers.items():
                    if said.get(name) != (line := told(name, answer)):
                        print(line, flush=True)
                        said[name] = line
                if arguments.pictures and answers:
                    write_pictures(arguments.pictures, answers)
                if arguments.once and now_s >= ends_s:
                    return
                time.sleep(
                    min(arguments.every, max(0.0, ends_s - now_s)) if arguments.once else arguments.every
                )
    except LastSeenError as error:
        sys.exit(f"watch_folder: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()

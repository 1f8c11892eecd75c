"""Logging of a run: a line on stderr, a line of JSON in a file, and TensorBoard if asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from lastseen.errors import TrainError


class RunLog:
    """Numbers of a run by step. When resuming from an earlier step, later lines of the file are dropped."""

    def __init__(
        self,
        file: Path,
        *,
        steps: int,
        start: int = 0,
        tensorboard: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self._file, self._steps = file, steps
        self._stream = sys.stderr if stream is None else stream
        self._board = _open_board(file.parent / "tensorboard", start) if tensorboard else None
        kept = [line for line in _lines(file) if line["step"] <= start]
        building = file.with_suffix(".part")
        building.write_text("".join(json.dumps(line) + "\n" for line in kept))
        building.replace(file)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """`step` is how many are done."""
        with self._file.open("a") as file:
            file.write(json.dumps({"step": step, **numbers}) + "\n")
        said = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        print(f"step {step}/{self._steps}  {said}", file=self._stream, flush=True)
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)

    def say(self, message: str) -> None:
        print(message, file=self._stream, flush=True)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


def _lines(file: Path) -> list[dict[str, Any]]:
    """Whole lines only: a killed run may have left half of one."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _open_board(folder: Path, start: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TrainError(
            "tensorboard=true needs TensorBoard; run: pip install 'lastseen[tensorboard]', or leave it out"
        ) from None
    return SummaryWriter(str(folder), purge_step=start + 1)

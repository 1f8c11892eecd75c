"""The folder of a run: its config, its checkpoints, its model.

    OUT/config.json               what is trained; another config does not go on in this folder
    OUT/log.jsonl                 a line of numbers every so many steps
    OUT/checkpoints/00001000/     model, running average and optimiser (.safetensors, in parts of at most
                                  PART_BYTES: NAME, NAME-1, ..), config.json, state.json, which lists them
    OUT/model/                    what 'lastseen find --weights' takes; written when training stops

A checkpoint is built under a temporary name and renamed when it is complete, and the ones before it are
removed only then: whatever interrupts a run, the newest folder with a plain number is whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lastseen.errors import OutputError, TrainError
from lastseen.files import whole_file
from lastseen.model import TrainedModel
from lastseen.weights import save_model

Tensors = Mapping[str, Tensor]
PART_BYTES = 15 * 2**20  # of tensors in one file, so that a checkpoint can be moved in small pieces


class Checkpoint(NamedTuple):
    """Named groups of tensors, and what is not a tensor; `state` has the number of steps done."""

    tensors: Mapping[str, Tensors]
    state: dict[str, Any]


class RunFolder:
    def __init__(self, root: str | os.PathLike[str], *, keep: int = 2) -> None:
        self.root = Path(root)
        self.keep = keep
        self.checkpoints = self.root / "checkpoints"
        self.model = self.root / "model"
        self.log = self.root / "log.jsonl"
        self._config = self.root / "config.json"

    def check(self, config: Mapping[str, Any]) -> None:
        """Fail early, before long work, if this config cannot be trained here."""
        if not self._config.exists():
            if self.root.exists() and (not self.root.is_dir() or any(self.root.iterdir())):
                raise OutputError(f"{self.root} exists and is not a training run; choose a new folder")
            return
        different = sorted(_differences(json.loads(self._config.read_text()), _plain(config)))
        if different and self.numbers():  # a run without a checkpoint may be overwritten
            names = ", ".join(different[:4]) + (" ..." if len(different) > 4 else "")
            raise TrainError(
                f"{self.root} is a run with another config ({names} differ); "
                "choose another folder, or the same settings to go on"
            )

    def claim(self, config: Mapping[str, Any]) -> None:
        """Write the config, and remove half-written leftovers of an interrupted run."""
        self.check(config)
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            with whole_file(self._config) as building:
                building.write_text(json.dumps(_plain(config), indent=2) + "\n")
        except OSError as error:
            raise OutputError(f"{self.root} cannot be written: {error.strerror}") from None
        for leftover in [*self.root.glob(".*.part"), *self.checkpoints.glob(".*.part")]:
            shutil.rmtree(leftover)

    def numbers(self) -> list[int]:
        """Steps that there are checkpoints of, ascending."""
        names = (path.name for path in self.checkpoints.iterdir()) if self.checkpoints.is_dir() else ()
        return sorted(int(name) for name in names if re.fullmatch(r"\d{8}", name))

    def save(self, step: int, checkpoint: Checkpoint) -> None:
        target = self.checkpoints / f"{step:08d}"
        if target.exists():
            return
        building = Path(tempfile.mkdtemp(prefix=f".{step:08d}.", suffix=".part", dir=self.checkpoints))
        try:
            for name, tensors in checkpoint.tensors.items():
                flat = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
                for number, part in enumerate(in_parts(flat)):
                    save_file(part, building / f"{name}{f'-{number}' if number else ''}.safetensors")
            files = sorted(file.name for file in building.iterdir())
            state = {**checkpoint.state, "step": step, "files": files}
            (building / "state.json").write_text(json.dumps(state, indent=2) + "\n")
            shutil.copy(self._config, building)
            for file in building.iterdir():
                _flush(file)
            building.rename(target)
        except (OSError, SafetensorError) as error:
            raise OutputError(f"{target} cannot be written: {error}; free some space and go on") from None
        finally:
            shutil.rmtree(building, ignore_errors=True)
        for old in self.numbers()[: -self.keep]:
            shutil.rmtree(self.checkpoints / f"{old:08d}")

    def latest(self) -> tuple[int, Checkpoint] | None:
        """The newest checkpoint and the number of steps that were done."""
        numbers = self.numbers()
        if not numbers:
            return None
        folder = self.checkpoints / f"{numbers[-1]:08d}"
        try:
            state = json.loads((folder / "state.json").read_text())
            tensors: dict[str, dict[str, Tensor]] = {}
            for name in state.get("files") or [file.name for file in folder.glob("*.safetensors")]:
                file = folder / name
                tensors.setdefault(file.stem.split("-")[0], {}).update(load_file(file))
        except (OSError, ValueError, SafetensorError) as error:
            raise TrainError(
                f"{folder} is damaged ({error}); remove it to go on from an earlier one"
            ) from None
        return numbers[-1], Checkpoint(tensors, state)

    def write_model(self, model: TrainedModel) -> None:
        """The model folder, in place of an earlier one."""
        building, old = self.root / ".model.part", self.root / ".old.part"
        save_model(model, building)
        if self.model.exists():
            self.model.rename(old)
        building.rename(self.model)
        shutil.rmtree(old, ignore_errors=True)


def in_parts(tensors: Tensors) -> list[dict[str, Tensor]]:
    """In their order, each part of at most PART_BYTES, but for a tensor that is larger by itself."""
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, value in tensors.items():
        if parts[-1] and size + value.nbytes > PART_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = value
        size += value.nbytes
    return parts


def _plain(config: Mapping[str, Any]) -> Any:
    """As JSON gives it back: lists for tuples."""
    return json.loads(json.dumps(config))


def _differences(found: Any, wanted: Any, where: str = "") -> set[str]:
    """Dotted names of all that is not equal."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        names = found.keys() | wanted.keys()
        return {
            different
            for name in names
            for different in _differences(
                found.get(name), wanted.get(name), f"{where}.{name}" if where else name
            )
        }
    return set() if found == wanted else {where}


def _flush(file: Path) -> None:
    """fsync: a rename may reach the disk before the content does."""
    with file.open("rb") as open_file:
        os.fsync(open_file.fileno())

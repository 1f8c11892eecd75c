"""Tensors in files: read without running code, loaded strictly."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lastseen.errors import WeightsError

State = dict[str, Tensor]


def read_state(path: Path) -> State:
    """The tensors of a .safetensors or .pth/.pt file; never runs code from the file."""
    if not path.exists():
        raise WeightsError(f"{path}: no such weights file")
    if path.is_dir():
        raise WeightsError(f"{path} is a folder, not a weights file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise WeightsError(
            f"{path} cannot be read as plain tensors: it is damaged, or needs code to load (refused); "
            "re-save its state_dict with torch.save, or as .safetensors"
        ) from None
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError, KeyError):
        # Their own words (a missing opcode, a bad header) tell a user nothing.
        raise WeightsError(
            f"{path} is not a weights file, or is damaged; give a .safetensors or .pth file"
        ) from None
    return _tensors_of(data, path)


def _tensors_of(data: Any, path: Path) -> State:
    """Checkpoints wrap the state dict in different ways; unwrap the usual ones."""
    while isinstance(data, dict):
        for wrapper in ("state_dict", "model", "teacher"):
            if isinstance(data.get(wrapper), dict):
                data = data[wrapper]
                break
        else:
            break
    if not isinstance(data, dict) or not data or not all(isinstance(v, Tensor) for v in data.values()):
        raise WeightsError(f"{path} holds no state_dict: expected a dictionary of tensors")
    return {key.removeprefix("module."): value for key, value in data.items()}


def load_strictly(module: torch.nn.Module, state: State, source: Path) -> None:
    expected = module.state_dict()
    missing, extra = sorted(expected.keys() - state.keys()), sorted(state.keys() - expected.keys())
    odd = [k for k in expected.keys() & state.keys() if expected[k].shape != state[k].shape]
    if missing or extra or odd:
        parts = [
            f"{len(keys)} {what} (first: {min(keys)})"
            for what, keys in (("missing", missing), ("unexpected", extra), ("of another shape", odd))
            if keys
        ]
        raise WeightsError(f"{source} does not fit {type(module).__name__}: keys {', '.join(parts)}")
    module.load_state_dict(state, strict=True)

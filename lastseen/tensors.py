"""Tensors in files: read without running code, loaded strictly."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lastseen.errors import WeightsError

State = dict[str, Tensor]
WRAPPERS, MOST_WRAPPERS = ("state_dict", "model", "teacher"), 8


def read_state(path: Path) -> State:
    """The tensors of a .safetensors or .pth/.pt file; never runs code from the file."""
    if not path.exists():
        raise WeightsError(f"{path}: no such weights file")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe or a device"
        raise WeightsError(f"{path} is {what}, not a weights file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise WeightsError(
            f"{path} cannot be read as plain tensors: it is damaged, or needs code to load (refused); "
            "re-save its state_dict with torch.save, or as .safetensors"
        ) from None
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception:
        # Readers of damaged files raise anything; their words (a missing opcode) tell a user nothing.
        raise WeightsError(
            f"{path} is not a weights file, or is damaged; give a .safetensors or .pth file"
        ) from None
    return _tensors_of(data, path)


def save_tensors(state: State, path: Path) -> None:
    """As .safetensors; OSError if they cannot all be written."""
    try:
        save_file(state, path)
    except SafetensorError as error:
        raise OSError(str(error)) from None


def _tensors_of(data: Any, path: Path) -> State:
    """Checkpoints wrap the state dict in different ways; unwrap the usual ones."""
    for _ in range(MOST_WRAPPERS):  # a pickle may contain itself
        inside = [data.get(name) for name in WRAPPERS] if isinstance(data, dict) else []
        data = next((part for part in inside if isinstance(part, dict)), data)
    if not isinstance(data, dict) or not data or not all(map(_is_named_tensor, data.items())):
        raise WeightsError(f"{path} holds no state_dict: expected a dictionary of tensors")
    return {key.removeprefix("module."): value for key, value in data.items()}


def _is_named_tensor(item: tuple[Any, Any]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], Tensor)


def load_strictly(module: torch.nn.Module, state: State, source: Path) -> None:
    check_fits(module, state, source)
    unusable = [name for name, value in state.items() if not _is_finite(value)]
    if unusable:
        raise WeightsError(
            f"{source} is damaged: {len(unusable)} tensors have values that are no numbers (first: "
            f"{min(unusable)}); get or train it again"
        )
    module.load_state_dict(state, strict=True)


def check_fits(module: torch.nn.Module, state: State, source: Path) -> None:
    """Raise WeightsError unless names, shapes and kinds are the module's, which may be on the meta device."""
    expected = module.state_dict()
    missing, extra = sorted(expected.keys() - state.keys()), sorted(state.keys() - expected.keys())
    odd = [k for k in expected.keys() & state.keys() if expected[k].shape != state[k].shape]
    other = [k for k in expected.keys() & state.keys() if not _same_kind(expected[k], state[k])]
    if missing or extra or odd or other:
        parts = [
            f"{len(keys)} {what} (first: {min(keys)})"
            for what, keys in (
                ("missing", missing),
                ("unexpected", extra),
                ("of another shape", odd),
                ("of another type", other),
            )
            if keys
        ]
        raise WeightsError(f"{source} does not fit {type(module).__name__}: keys {', '.join(parts)}")


def _same_kind(expected: Tensor, found: Tensor) -> bool:
    """Any precision will do; whole numbers for fractions, or a tensor without its content, will not."""
    if found.layout != torch.strided or found.is_quantized or found.is_meta:
        return False
    # A tensor may repeat a number of the file any number of times, and claim any size.
    stored = found.untyped_storage().nbytes() >= found.numel() * found.itemsize
    return stored and _kind(expected) == _kind(found)


def _kind(value: Tensor) -> tuple[bool, bool, bool]:
    return value.is_floating_point(), value.is_complex(), value.dtype == torch.bool


def _is_finite(value: Tensor) -> bool:
    if value.is_floating_point() and value.itemsize == 1:
        value = value.float()  # torch has no test for these
    return bool(value.isfinite().all())

"""Engines: what computes a model's numbers, and how exactly.

    torch-fp32             the model as it is: the reference, and what the paper's numbers are made with
    torch-fp16             half precision, less memory traffic (lastseen.engine.half); the default on GPUs
    torch-fp16-compiled    the same through torch.compile, without kernels of our own; takes a while to start
    torch-bf16             three digits fewer and no overflow; on CPUs that have it faster than float32
    openvino-bf16          on such CPUs faster still: frames are encoded by OpenVINO (lastseen[openvino])

An engine's `rounding` is part of what an Index is bound to: features of another would not be the same.
"""

from __future__ import annotations

import torch

from lastseen.engine.eager import BFloat16Engine, CompiledEngine, Engine, Float16Engine, Model
from lastseen.engine.openvino import OpenVinoEngine
from lastseen.errors import LastSeenError

__all__ = ["DEFAULT", "ENGINES", "Engine", "Model", "default_engine", "make_engine"]

DEFAULT = "torch-fp32"
ENGINES: dict[str, type[Engine]] = {
    "torch-fp32": Engine,
    "torch-fp16": Float16Engine,
    "torch-fp16-compiled": CompiledEngine,
    "torch-bf16": BFloat16Engine,
    "openvino-bf16": OpenVinoEngine,
}


def make_engine(name: str, model: Model, device: torch.device) -> Engine:
    if name not in ENGINES:
        raise LastSeenError(f"engine {name} is unknown; choose one of {', '.join(ENGINES)}")
    return ENGINES[name](model, device)


def default_engine(device: torch.device, paper: bool) -> str:
    """Half precision where it costs nothing but digits. The paper's numbers are float32's.

    Never what happens to be installed: an index of today must open tomorrow.
    """
    return "torch-fp16" if device.type == "cuda" and not paper else DEFAULT

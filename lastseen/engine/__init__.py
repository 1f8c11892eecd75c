"""Engines: how a model is computed, and with which precision.

    torch-fp32             the model as it is: the reference, and the precision of the paper's numbers
    torch-fp16             half precision with fused kernels (lastseen.engine.half); the default on GPUs
    torch-fp16-compiled    the same through torch.compile, without kernels of our own; slow to start
    torch-bf16             fewer digits, no overflow; faster than float32 on CPUs that support it
    openvino-bf16          faster still on such CPUs: OpenVINO encodes the frames (lastseen[openvino])

An engine's `rounding` is part of an Index's fingerprint, as engines give slightly different features.
"""

from __future__ import annotations

import torch

from lastseen.engine.eager import BFloat16Engine, CompiledEngine, Engine, Float16Engine
from lastseen.engine.openvino import OpenVinoEngine
from lastseen.errors import LastSeenError
from lastseen.model import Model

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
    """Half precision on GPUs, float32 elsewhere and for the paper's numbers.

    It does not depend on what is installed: an index must open after an installation, too.
    """
    return "torch-fp16" if device.type == "cuda" and not paper else DEFAULT

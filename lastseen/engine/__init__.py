"""Engines: how a model is computed, and with which precision.

    torch-fp32             the model as it is: the reference, and the precision of the paper's numbers
    torch-fp32-grouped     the same, but one patch stands for several of padding (lastseen.model.padding)
    torch-fp16             half precision with fused kernels (lastseen.engine.half); the default on GPUs
    torch-fp16-grouped     the same with padding in groups, for GPUs; its speed has not been measured yet
    torch-fp16-compiled    torch-fp16 through torch.compile, without kernels of our own; slow to start
    torch-bf16             fewer digits, no overflow; faster than float32 on CPUs that support it
    openvino-bf16          faster still on such CPUs: OpenVINO encodes the frames (lastseen[openvino])

On CPUs, all but torch-fp32 and torch-fp16 group padding.

An engine's `rounding` is part of an Index's fingerprint, as engines give slightly different features.
"""

from __future__ import annotations

import torch

from lastseen.engine.eager import (
    BFloat16Engine,
    CompiledEngine,
    Engine,
    Float16Engine,
    GroupedEngine,
    GroupedFloat16Engine,
)
from lastseen.engine.openvino import OpenVinoEngine, why_no_openvino
from lastseen.errors import LastSeenError
from lastseen.model import Model, VQLoC

__all__ = ["DEFAULT", "ENGINES", "Engine", "Model", "default_engine", "make_engine"]

DEFAULT = "torch-fp32"
ENGINES: dict[str, type[Engine]] = {
    "torch-fp32": Engine,
    "torch-fp32-grouped": GroupedEngine,
    "torch-fp16": Float16Engine,
    "torch-fp16-grouped": GroupedFloat16Engine,
    "torch-fp16-compiled": CompiledEngine,
    "torch-bf16": BFloat16Engine,
    "openvino-bf16": OpenVinoEngine,
}


def make_engine(name: str, model: Model, device: torch.device) -> Engine:
    if name not in ENGINES:
        raise LastSeenError(f"engine {name} is unknown; choose one of {', '.join(ENGINES)}")
    return ENGINES[name](model, device)


def default_engine(device: torch.device, paper: bool, model: Model | None = None) -> str:
    """The fastest engine of this machine whose answers are as good; float32 for the paper's numbers.

    The paper's model stays in float32 on CPUs: its convolutions carry what grouped padding changes into the
    picture, and what that costs in answers has not been measured.

    An index names its engine, which its questions use: what is installed later changes nothing for it.
    """
    if device.type == "cuda" and not paper:
        return "torch-fp16"
    if paper or device.type != "cpu" or isinstance(model, VQLoC):
        return DEFAULT
    return "torch-fp32-grouped" if why_no_openvino() else "openvino-bf16"

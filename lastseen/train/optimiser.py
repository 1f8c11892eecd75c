"""AdamW, its learning-rate schedule, and the running average of the weights that is saved in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

NOTHING: Mapping[str, nn.Module] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """The paper's by default."""

    lr: float = 1e-4  # the peak
    weight_decay: float = 0.05
    warmup_steps: int = 1000
    clip_norm: float = 20.0  # of the gradients; 0: no clipping
    eps: float = 1e-8
    backbone_lr_factor: float = 0.1  # for backbone blocks that are trained at all

    def __post_init__(self) -> None:
        if self.lr <= 0 or self.warmup_steps < 0 or self.clip_norm < 0:
            raise ValueError("lr must be positive, warmup_steps and clip_norm not negative")


def lr_factor(step: int, *, warmup_steps: int, steps: int) -> float:
    """Share of the peak rate at a step, from 0: linear up to 1, then linear down to 0 at `steps`."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return max(0.0, (steps - step) / max(1, steps - warmup_steps))


def make_optimiser(
    model: nn.Module, config: OptimiserConfig, beside: Mapping[str, nn.Module] = NOTHING
) -> torch.optim.AdamW:
    """AdamW of all weights that require a gradient, without decay of norms, biases and positions."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in trained(model, beside).items():
        in_backbone = name.startswith("backbone.")
        decays = parameter.ndim > 1 and not name.endswith(("positions", "pos_embed", "_token", "_tokens"))
        groups.setdefault((in_backbone, decays), []).append(parameter)
    options: list[dict[str, Any]] = [
        {
            "params": parameters,
            "weight_decay": config.weight_decay if decays else 0.0,
            "factor": config.backbone_lr_factor if in_backbone else 1.0,
        }
        for (in_backbone, decays), parameters in groups.items()
    ]
    return adamw(options, lr=config.lr, weight_decay=config.weight_decay, eps=config.eps)


def adamw(
    groups: list[dict[str, Any]], *, lr: float, weight_decay: float, eps: float = 1e-8
) -> torch.optim.AdamW:
    """Fused on GPUs; on CPUs torch's plain loop."""
    on_gpu = all(parameter.is_cuda for group in groups for parameter in group["params"])
    return torch.optim.AdamW(groups, lr=lr, weight_decay=weight_decay, eps=eps, fused=on_gpu or None)


def set_lr(optimiser: torch.optim.Optimizer, lr: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = lr * group["factor"]


def trained(model: nn.Module, beside: Mapping[str, nn.Module] = NOTHING) -> dict[str, nn.Parameter]:
    """By name; those of modules beside the model, which are no part of it, begin with the module's."""
    found = dict(model.named_parameters())
    for prefix, module in beside.items():
        found |= dict(module.named_parameters(prefix))
    return {name: parameter for name, parameter in found.items() if parameter.requires_grad}


def optimiser_tensors(optimiser: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """The optimiser's state as named tensors, for a file."""
    return {
        f"{names[parameter]}/{key}": value
        for parameter, state in optimiser.state.items()
        for key, value in state.items()
    }


def restore_optimiser(
    optimiser: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]
) -> None:
    parameters = {name: parameter for parameter, name in names.items()}
    # A fused AdamW counts its steps beside the weights, the plain one on the CPU.
    elsewhere = () if optimiser.defaults.get("fused") else ("step",)
    for key, value in tensors.items():
        name, field = key.rsplit("/", 1)
        parameter = parameters[name]
        optimiser.state[parameter][field] = value if field in elsewhere else value.to(parameter.device)


class RunningAverage:
    """Exponential moving average (EMA) of named tensors.

    It forgets faster in the beginning, so that a short run is not an average over its random start.
    """

    def __init__(self, tensors: Mapping[str, Tensor], decay: float) -> None:
        self.decay = decay
        self.tensors = {name: value.detach().clone() for name, value in tensors.items()}
        self._moving = [name for name, average in self.tensors.items() if average.is_floating_point()]
        self._copied = [name for name in self.tensors if name not in set(self._moving)]

    @torch.no_grad()
    def update(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """`step` counts from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages, values = ([t[name].detach() for name in self._moving] for t in (self.tensors, tensors))
        torch._foreach_lerp_(averages, values, 1 - decay)  # one kernel for all
        if self._copied:
            counts, values = ([t[name] for name in self._copied] for t in (self.tensors, tensors))
            torch._foreach_copy_(counts, values)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name, average in self.tensors.items():
            average.copy_(tensors[name])

"""Several processes on one batch (torchrun), with the result of one.

Each process works on its rows of the batch. Losses are divided by counts of the whole batch, batch norms
see the whole batch, and gradients are added up: so the weights follow the same path as in one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lastseen.errors import TrainError


@dataclass(frozen=True)
class World:
    """The process group: this process is number `rank` of `size`."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """The process that writes files and logs."""
        return self.rank == 0

    def rows(self, count: int) -> tuple[int, int]:
        """First and one past the last row of a batch of `count` that are this process's."""
        share = count // self.size
        return self.rank * share, (self.rank + 1) * share

    def total(self, tensor: Tensor) -> Tensor:
        """Added up over all processes."""
        if self.size == 1:
            return tensor
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        if self.size == 1:
            return
        ours = list(parameters)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in ours]
        total = self.total(torch.cat([grad.flatten() for grad in grads]))
        for parameter, part in zip(ours, torch.split(total, [grad.numel() for grad in grads])):
            parameter.grad = part.view_as(parameter)

    def copy_from_first(self, module: nn.Module) -> None:
        if self.size > 1:
            for tensor in (*module.parameters(), *module.buffers()):
                dist.broadcast(tensor.detach(), 0)

    def agree(self, wish: bool, device: torch.device) -> bool:
        """The first process's `wish`, broadcast to all."""
        if self.size == 1:
            return wish
        flag = torch.tensor([int(wish)], device=device)
        dist.broadcast(flag, 0)
        return bool(flag.item())

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined(device: torch.device) -> Iterator[tuple[World, torch.device]]:
    """The process group of torchrun's variables (one process without them), and this process's device."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(), device
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        if local >= torch.cuda.device_count():
            raise TrainError(f"process {local} has no GPU of its own: start no more processes than GPUs")
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=rank, world_size=size)
    try:
        yield World(rank, size), device
    finally:
        dist.destroy_process_group()


def with_shared_norms(module: nn.Module) -> nn.Module:
    """Replaces every batch norm inside, in place, by one over all processes' rows with the same weights."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            shared = SharedBatchNorm(child.num_features, child.eps, child.momentum)
            shared.load_state_dict(child.state_dict())
            setattr(module, name, shared.to(child.running_mean.device))  # type: ignore[union-attr]
        else:
            with_shared_norms(child)
    return module


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch norm over all processes, on any device (torch's own needs a GPU)."""

    def forward(self, frames: Tensor) -> Tensor:
        if not self.training:
            return super().forward(frames)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        values = frames.to(self.running_mean.dtype)
        rows = values.new_full((1,), values.numel() / values.shape[1])
        total = _summed(torch.cat([values.sum((0, 2, 3)), rows]))
        count = total[-1].detach()
        mean = total[:-1] / count
        centred = values - mean[:, None, None]
        # Two passes instead of a mean of squares: float32 would lose small variances beside large means.
        variance = _summed(centred.square().sum((0, 2, 3))) / count
        with torch.no_grad():
            momentum = 0.1 if self.momentum is None else self.momentum
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * count / (count - 1), momentum)
        scale = (variance + self.eps).rsqrt() * self.weight
        return (centred * scale[:, None, None] + self.bias[:, None, None]).to(frames.dtype)


def _summed(tensor: Tensor) -> Tensor:
    return _Sum.apply(tensor)  # type: ignore[no-untyped-call]


class _Sum(torch.autograd.Function):
    """All-reduce with its gradient, which is the all-reduced gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total

"""gpu_speed.py's section `fused`: what takes one pass against PyTorch's own operations.

Times are the GPU's alone: each step is replayed from a CUDA graph, since between large steps of a model the
GPU never waits to be told.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch
import torch.nn.functional as F
from einops import rearrange
from gpu_speed_parts import PLAIN, Measuring, captured, plain
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lastseen.box import Letterbox
from lastseen.model import fused
from lastseen.model.propagation import frames_seen

SHAPES = [(512, 1), (1024, 1), (2048, 1), (2048, 2), (4096, 2), (4096, 4)]  # numbers at once, warps
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


@torch.inference_mode()
def measure_steps(bench: Measuring) -> None:
    """Additions and norms of a batch's tokens, by kernel shape; whether the product had better add; what
    else has a kernel, at the sizes of the paper's heads; what one token too many costs attention."""
    for dtype in fused.HALVES:
        why = fused.problem(bench.device, dtype)
        if why is not None:
            raise RuntimeError(why)
    from lastseen.model import kernels

    for columns in (384, 768):
        _norms(bench, kernels, columns)
    _others(bench)
    _attention(bench)


def _norms(bench: Measuring, kernels: ModuleType, columns: int) -> None:
    tokens = bench.size.batches[1] * ((bench.size.pixels // 14) ** 2 + 5)  # as with registers
    x, branch, hidden = torch.randn(3, tokens, columns, device=bench.device).half()
    layer = torch.nn.Linear(columns, columns).to(bench.device).half()
    norm = torch.nn.LayerNorm(columns, eps=1e-6).to(bench.device).half()
    for value in norm.parameters():
        torch.nn.init.normal_(value)
    args = norm.weight, norm.bias, norm.eps
    both = x.float() + branch.float()
    of_both = F.layer_norm(both, (columns,), norm.weight.float(), norm.bias.float(), norm.eps)
    for tile, warps in SHAPES:
        total, normed = kernels.add_norm(x, branch, *args, True, tile, warps)
        torch.testing.assert_close(total.float(), both, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(normed.float(), of_both, rtol=2e-3, atol=4e-3)
    alone = kernels.add_norm(x, None, *args, False)[1]
    torch.testing.assert_close(alone, norm(x), rtol=2e-3, atol=4e-3)
    del both, of_both, total, normed, alone

    kept = kernels.TILE, kernels.NORM_WARPS
    works: dict[str, Callable[[], object]] = {
        "x + branch, F.layer_norm": lambda: norm(x + branch),
        "F.layer_norm": lambda: norm(x),
        "kernel, norm alone": lambda: fused.norm_of(x, None, norm),
        "kernel, sum not kept": lambda: fused.norm_of(x, branch, norm),
        **{
            f"kernel, {tile} numbers, {warps} warps{' (in use)' if (tile, warps) == kept else ''}": (
                lambda tile=tile, warps=warps: kernels.add_norm(x, branch, *args, True, tile, warps)
            )
            for tile, warps in SHAPES
        },
        "product, then add and norm": lambda: fused.add_norm(x, layer(hidden), norm),
        "product into the sum, then norm": lambda: fused.norm_of(
            x.addmm_(hidden, layer.weight.t()), None, norm
        ),
    }
    for name, work in works.items():
        _add(bench, f"[{len(x)}, {columns}] {name}", work)


def _others(bench: Measuring) -> None:
    def some(*shape: int) -> Tensor:
        return torch.randn(shape, device=bench.device).half()

    count, side = bench.size.batches[1], bench.size.pixels
    patch_count = (side // 14) ** 2
    conv = torch.nn.Conv2d(256, 256, 3, padding=1).to(bench.device).half()
    conv = conv.to(memory_format=torch.channels_last)
    pictures = some(4 * count, 256, 16, 16).to(memory_format=torch.channels_last)
    qkv, seen = some(count // 4, 30, 64, 3 * 256), frames_seen(30, 2, None, bench.device)
    frames = torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8, device=bench.device)
    rows, box = some(count, 1 + patch_count, 592)[:, 1:], Letterbox.square(side, side, side)

    def patches() -> Tensor:
        fused.patch_rows(frames.permute(0, 3, 1, 2), box, 0.0, 14, rows)
        return rows[:, :, :588]

    works: dict[str, Callable[[], Tensor]] = {
        "convolution, leaky ReLU": lambda: fused.conv_leaky(pictures, conv, 0.01),
        "local attention": lambda: fused.local_attention(qkv, seen, 8),
        "rows of patches": patches,
    }
    for name, work in works.items():
        found = work().clone()
        _add(bench, f"{name}, kernel", work)
        with plain():
            torch.testing.assert_close(found, work(), rtol=0.01, atol=0.01)
            _add(bench, f"{name}, {PLAIN}", work)


def _attention(bench: Measuring) -> None:
    """Queries, keys and values side by side, as the backbone has them."""
    count, patches = bench.size.batches[1], (bench.size.pixels // 14) ** 2
    for length in (patches, patches + 1):
        qkv = torch.randn(count, length, 3 * 6 * 64, device=bench.device).half()
        q, k, v = rearrange(qkv, "n l (three h d) -> three n h l d", three=3, h=6)
        for name, backend in BACKENDS.items():
            with sdpa_kernel(backend):
                _add(
                    bench,
                    f"attention of {length} tokens, {name}",
                    lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v),
                )


def _add(bench: Measuring, name: str, work: Callable[[], object], times: int = 20) -> None:
    def often() -> None:
        for _ in range(times):
            work()

    graph, _ = captured(often)
    seconds = bench.median(graph.replay)
    bench.add("fused", "-", name, "us", round(seconds / times * 1e6, 1))

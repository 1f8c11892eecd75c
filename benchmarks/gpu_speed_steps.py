"""gpu_speed.py's section `fused`: what takes one pass against PyTorch's own operations.

Times are the GPU's alone: each step is replayed from a CUDA graph, since between large steps of a model the
GPU never waits to be told.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch
import torch.nn.functional as F
from gpu_speed_parts import PLAIN, Measuring, captured, plain
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lastseen.box import Letterbox
from lastseen.engine import fused
from lastseen.model.propagation import frames_seen

SHAPES = [(512, 1), (1024, 1), (2048, 1), (2048, 2), (4096, 2), (4096, 4)]  # numbers at once, warps
ATTENTIONS = [  # queries and keys at a time, warps, blocks of keys on their way
    (64, 64, 4, 2),
    (64, 64, 4, 3),
    (64, 128, 4, 2),
    (128, 64, 4, 2),
    (128, 64, 4, 3),
    (128, 64, 8, 2),
    (128, 64, 8, 3),
    (128, 128, 4, 2),
    (128, 128, 8, 2),
]


@torch.inference_mode()
def measure_steps(bench: Measuring) -> None:
    """Additions and norms of a batch's tokens, by kernel shape; whether the product had better add; what
    else has a kernel, at the sizes of the paper's heads; attention of a few tokens more than whole blocks."""
    for dtype in fused.HALVES:
        why = fused.problem(bench.device, dtype)
        if why is not None:
            raise RuntimeError(why)
    from lastseen.engine import kernels

    for columns in (384, 768):
        _norms(bench, kernels, columns)
    _others(bench)
    _attention(bench, kernels)


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
            fused.added(x, hidden, layer.weight), layer.bias, norm
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


def _attention(bench: Measuring, kernels: ModuleType) -> None:
    """Queries, keys and values side by side, as ViT-S has them; a class token and registers are too much for
    whole blocks."""
    count, patches = bench.size.batches[1], (bench.size.pixels // 14) ** 2

    def of(length: int) -> Tensor:
        return torch.randn(count, length, 3 * 6 * 64, device=bench.device).half()

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for length in (patches, patches + 1, patches + 5, patches + 128):
            qkv = of(length)
            _add(bench, f"attention of {length} tokens, cuDNN", lambda qkv=qkv: fused._attention(qkv, 6))
        qkv = of(patches + 1)
        expected = fused._attention(qkv, 6)
    for shape in ATTENTIONS:
        found = kernels.attention(qkv, 6, shape)
        torch.testing.assert_close(found, expected, rtol=0.01, atol=2e-3)
        said = "{} queries, {} keys, {} warps, {} on their way".format(*shape)
        used = " (in use)" if shape == kernels.ATTENTION else ""
        _add(
            bench,
            f"attention of {patches + 1} tokens, kernel, {said}{used}",
            lambda shape=shape: kernels.attention(qkv, 6, shape),
        )
    for length in (patches + 1, patches + 5):
        qkv, tokens = of(length), torch.randn(count, length, 384, device=bench.device).half()
        weight = torch.randn(384, 384, device=bench.device).half() / 100
        name = f"attention of {length} tokens and product into the sum"

        def work(tokens: Tensor = tokens, qkv: Tensor = qkv, weight: Tensor = weight) -> Tensor:
            return fused.attended(tokens, qkv, 6, weight)

        found = work(tokens.clone())  # before timing, which adds to the tokens again and again
        with plain():
            torch.testing.assert_close(found, work(), rtol=0.01, atol=4e-3)
            _add(bench, f"{name}, {PLAIN}", work)
        _add(bench, f"{name}, kernel", work)


def _add(bench: Measuring, name: str, work: Callable[[], object], times: int = 20) -> None:
    def often() -> None:
        for _ in range(times):
            work()

    graph, _ = captured(often)
    seconds = bench.median(graph.replay)
    bench.add("fused", "-", name, "us", round(seconds / times * 1e6, 1))

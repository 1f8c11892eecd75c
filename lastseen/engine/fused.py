"""Fused elementwise operations between matrix products: Triton on GPUs, PyTorch everywhere else.

| add_norm        | x, branch [.., c]         -> x + branch, LayerNorm of it       |
| norm_of         | x, branch or None         -> LayerNorm of the sum              |
| added           | tokens, hidden, weights   -> tokens + hidden times weights     |
| attended        | tokens, q k v, weights    -> tokens + attention times weights  |
| conv_leaky      | pictures, a convolution   -> leaky ReLU of the convolution     |
| patch_rows      | grey levels [n, 3, h, w]  -> pixels of each patch              |
| local_attention | q, k, v [b, t, s, 3 c]    -> [b, t, s, c]                      |

PyTorch's CUDA builds for Linux include Triton, which needs a C compiler. Where one is missing, or a kernel's
result differs from PyTorch's, PyTorch computes. Compiled models use PyTorch's operations, which the compiler
fuses itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache
from types import ModuleType

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from lastseen.box import Letterbox
from lastseen.model.inputs import MIDDLE, SPREAD
from lastseen.model.propagation import frames_seen, neighbours

GPU = torch.device("cuda")
HALVES = (torch.float16, torch.bfloat16)
LONGEST_ROW = 2048
SPACES = (16, 32, 64, 128)  # tokens a frame that the local attention kernel supports
HEAD_SIZES = (16, 32, 64)  # that the attention kernel supports; 128 would not fit every GPU


def add_norm(x: Tensor, branch: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """x [n or 1, l, c], branch [n, l, c] -> x + branch, norm(x + branch)"""
    kernels = _kernels_for(branch)
    if kernels is None or x.shape[-1] > LONGEST_ROW:
        total = x + branch
        return total, norm(total)
    with _on(branch):
        return kernels.add_norm(x, branch, norm.weight, norm.bias, norm.eps, True)


def norm_of(x: Tensor, branch: Tensor | None, norm: nn.LayerNorm) -> Tensor:
    """norm(x + branch) without writing the sum. A branch [c] is added to all rows."""
    kernels = _kernels_for(x)
    if kernels is None or x.shape[-1] > LONGEST_ROW:
        return norm(x if branch is None else x + branch)
    with _on(x):
        return kernels.add_norm(x, branch, norm.weight, norm.bias, norm.eps, False)[1]


def added(tokens: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
    """tokens [.., c] + hidden [.., d] times weight [c, d]; on GPUs in place, as one product"""
    if _kernels_for(tokens) is None:
        return tokens + F.linear(hidden, weight)
    tokens.view(-1, tokens.shape[-1]).addmm_(hidden.flatten(0, -2), weight.t())
    return tokens


def attended(tokens: Tensor, qkv: Tensor, heads: int, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """tokens [n, l, c] + attention of queries, keys and values [n, l, 3 c] times weight [c, c]

    `bias` [l, l], if any, is added to the logits of queries and keys; all its rows are the same.

    cuDNN's blocks of 256 queries and 128 keys make the 1025th token cost 5/4 times 9/8; our kernel has a
    small block for the remainder.
    """
    kernels = _kernels_for(tokens)
    if kernels is None or qkv.shape[2] // heads // 3 not in HEAD_SIZES:
        return added(tokens, _attention(qkv, heads, bias), weight)
    with _on(tokens):
        mixed = kernels.attention(qkv, heads, key_bias=None if bias is None else bias[0])
        return added(tokens, mixed, weight)


def _attention(qkv: Tensor, heads: int, bias: Tensor | None = None) -> Tensor:
    """[n, l, 3 c] -> [n, l, c]"""
    q, k, v = rearrange(qkv, "n l (three h d) -> three n h l d", three=3, h=heads)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    return rearrange(mixed, "n h l d -> n l (h d)")


def conv_leaky(pictures: Tensor, conv: nn.Conv2d, slope: float) -> Tensor:
    """[n, c, h, w] -> leaky ReLU of the convolution"""
    kernels = _kernels_for(pictures)
    if kernels is None or conv.bias is None or conv.out_channels > LONGEST_ROW:
        return F.leaky_relu(conv(pictures), slope)
    found = F.conv2d(pictures, conv.weight, None, conv.stride, conv.padding, conv.dilation, conv.groups)
    with _on(found):
        return kernels.bias_leaky(found.contiguous(memory_format=torch.channels_last), conv.bias, slope)


def patch_rows(levels: Tensor, letterbox: Letterbox, padding: float, patch: int, into: Tensor) -> None:
    """Grey levels of a letterbox's content [n, 3, h, w] into rows [n, patches, at least 3 patch^2]: a patch's
    pixels as (level - MIDDLE) / SPREAD, line by line, their three channels side by side."""
    kernels = _kernels_for(into)
    if kernels is not None:
        with _on(into):
            kernels.patch_rows(levels, letterbox, padding, patch, into)
        return
    box, size = letterbox, (letterbox.canvas_height, letterbox.canvas_width)
    canvas = torch.full((len(levels), 3, *size), 255 * padding, dtype=into.dtype, device=into.device)
    canvas[:, :, box.top : box.top + box.content_height, box.left : box.left + box.content_width] = levels
    put_patches(canvas.sub_(MIDDLE).div_(SPREAD), patch, into)


def put_patches(pictures: Tensor, patch: int, into: Tensor) -> None:
    """Pictures [n, 3, patch h, patch w] into rows [n, h w, at least 3 patch^2], ordered as `patch_rows`'s"""
    pixels = rearrange(pictures, "n c (h p) (w q) -> n (h w) (p q c)", p=patch, q=patch)
    into[..., : pixels.shape[-1]] = pixels


def local_attention(qkv: Tensor, seen: Tensor, heads: int) -> Tensor:
    """Each frame's tokens attend to the frames near it.

    | in  | queries, keys and values side by side [b, t, s, 3 c]; `frames_seen` [b or 1, t, 2 radius + 1] |
    | out | [b, t, s, c] |
    """
    kernels = _kernels_for(qkv)
    if kernels is not None and qkv.shape[2] in SPACES:
        with _on(qkv):
            return kernels.local_attention(qkv.contiguous(), seen.contiguous(), heads)
    batch, _, space, _ = qkv.shape
    query, key, value = qkv.chunk(3, -1)
    q = rearrange(query, "b t s (h d) -> (b t) h s d", h=heads)
    k, v = (
        rearrange(neighbours(x, seen.shape[2] // 2), "b t w s (h d) -> (b t) h (w s) d", h=heads)
        for x in (key, value)
    )
    mask = repeat(seen.expand(batch, -1, -1), "b t w -> (b t) 1 1 (w s)", s=space)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return rearrange(mixed, "(b t) h s d -> b t s (h d)", b=batch)


def problem(device: torch.device = GPU, dtype: torch.dtype = torch.float16) -> str | None:
    """Why the kernels are not used on this GPU; None if they are."""
    return _tried(device, dtype)[1]


def _kernels_for(x: Tensor) -> ModuleType | None:
    if torch.compiler.is_compiling() or not x.is_cuda or x.dtype not in HALVES:
        return None
    return _tried(x.device, x.dtype)[0]


def _on(x: Tensor) -> AbstractContextManager[object]:
    """Triton launches kernels on the current GPU, which need not be that of the tensors."""
    return torch.cuda.device_of(x)  # type: ignore[no-untyped-call]


@lru_cache
def _tried(device: torch.device, dtype: torch.dtype) -> tuple[ModuleType | None, str | None]:
    """The kernels if they work there, else why not. Not every GPU supports every type."""
    try:
        from lastseen.engine import kernels

        with torch.cuda.device(device):
            compare(kernels, device, dtype)
    except Exception as error:  # whatever it is, PyTorch can compute instead
        return None, f"{type(error).__name__}: {error}"
    return kernels, None


@torch.inference_mode()
def compare(kernels: ModuleType, device: torch.device, dtype: torch.dtype = torch.float16) -> None:
    """Each kernel against PyTorch in float32, at sizes of real models; raises if they differ."""
    generator = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    def same(what: str, found: Tensor, expected: Tensor) -> None:
        torch.testing.assert_close(
            found.float(), expected.float(), rtol=0.01, atol=0.01, msg=lambda why: f"{what}: {why}"
        )

    x, branch, weight, bias = some(1, 5, 384), some(3, 5, 384), some(384), some(384)
    total, normed = kernels.add_norm(x, branch, weight, bias, 1e-6, True)
    expected = x.float() + branch.float()
    same("sum", total, expected)
    same("norm", normed, F.layer_norm(expected, (384,), weight.float(), bias.float(), 1e-6))
    _, normed = kernels.add_norm(total, bias, weight, bias, 1e-6, False)
    expected = total.float() + bias.float()
    same("norm of rows and one", normed, F.layer_norm(expected, (384,), weight.float(), bias.float(), 1e-6))
    pictures, bias = some(2, 128, 3, 5).to(memory_format=torch.channels_last), some(128)
    expected = F.leaky_relu(pictures.float() + bias.float()[:, None, None], 0.01)
    same("bias and leaky ReLU", kernels.bias_leaky(pictures, bias, 0.01), expected)
    letterbox = Letterbox(40, 20, 42, 28)
    size = letterbox.content_height, letterbox.content_width, 3
    frames = torch.randint(0, 256, (2, *size), generator=generator, dtype=torch.uint8)
    levels, rows = rearrange(frames, "n h w c -> n c h w"), torch.zeros(2, 6, 592)
    patch_rows(levels, letterbox, 0.5, 14, rows)
    found = torch.zeros(2, 6, 592, device=device, dtype=dtype)
    kernels.patch_rows(levels.to(device), letterbox, 0.5, 14, found)
    same("rows of patches", found, rows.to(device))
    qkv, seen = some(2, 4, 64, 3 * 256), frames_seen(4, 2, torch.tensor([4, 3]), device)
    same("local attention", kernels.local_attention(qkv, seen, 8), local_attention(qkv.float(), seen, 8))
    qkv = some(1, 257, 3 * 128)
    same("attention", kernels.attention(qkv, 2), _attention(qkv.float(), 2))
    counts = torch.arange(1, 258).log().to(device, dtype)
    found = kernels.attention(qkv, 2, key_bias=counts)
    same("attention with counts", found, _attention(qkv.float(), 2, counts.float().expand(257, -1)))

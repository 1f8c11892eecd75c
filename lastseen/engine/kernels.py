"""GPU kernels in Triton, which not every PyTorch includes: `lastseen.engine.fused` imports this if it can.

Each function has a PyTorch equivalent in `fused`. Half precision in and out, float32 in between.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.model.inputs import MIDDLE, SPREAD

TILE = 2048  # numbers that a program holds: several rows if they are short
NORM_WARPS = 1  # a row within one warp is summed without shared memory
ATTENTION = (128, 64, 8, 3)  # queries and keys in a block, warps, pipeline stages


def add_norm(
    x: Tensor,
    branch: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    keep: bool,
    tile: int = TILE,
    warps: int = NORM_WARPS,
) -> tuple[Tensor, Tensor]:
    """x and branch [.., l, c], x perhaps broadcast [1, l, c] -> their sum, its LayerNorm

    A branch [c] is added to all rows. Without `keep` the sum is not written: ignore the first result then.
    """
    one = branch if branch is not None and branch.ndim == 1 else None
    many = branch if one is None else None
    shape, columns = (x if many is None else many).shape, x.shape[-1]
    x, x_step = _batches(x)
    other, other_step = (x, x_step) if many is None else _batches(many)
    batches, length = other.shape[:2]
    normed = torch.empty(shape, dtype=x.dtype, device=x.device)
    total = torch.empty_like(normed) if keep else normed
    block = triton.next_power_of_2(columns)
    rows = max(1, tile // block)
    _add_norm[(triton.cdiv(batches * length, rows),)](
        x,
        other if one is None else one,
        weight,
        bias,
        total,
        normed,
        batches * length,
        length,
        x_step,
        other_step,
        eps,
        COLUMNS=columns,
        BLOCK=block,
        ROWS=rows,
        ADD_ROWS=many is not None,
        ADD_ONE=one is not None,
        KEEP=keep,
        num_warps=warps,
    )
    return total, normed


def _batches(x: Tensor) -> tuple[Tensor, int]:
    """[n, l, c] with contiguous rows, and the stride between batches in rows; 0: broadcast"""
    x = x[None] if x.ndim == 2 else x.flatten(0, -3)
    columns = x.shape[2]
    if x.stride(2) != 1 or x.stride(1) != columns or x.stride(0) % columns:
        x = x.contiguous()
    return x, 0 if len(x) == 1 else x.stride(0) // columns


@triton.jit(do_not_specialize=["rows", "length", "x_step", "branch_step"])
def _add_norm(
    x,
    branch,
    weight,
    bias,
    total,
    normed,
    rows,
    length,
    x_step,
    branch_step,
    eps,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    ADD_ROWS: tl.constexpr,
    ADD_ONE: tl.constexpr,
    KEEP: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows)[:, None] & (column < COLUMNS)
    batch, within = (row // length).to(tl.int64), row % length
    values = tl.load(x + (batch * x_step + within)[:, None] * COLUMNS + column, inside, other=0.0)
    values = values.to(tl.float32)
    if ADD_ONE:
        values += tl.load(branch + column, column < COLUMNS, other=0.0).to(tl.float32)
    if ADD_ROWS:
        more = tl.load(branch + (batch * branch_step + within)[:, None] * COLUMNS + column, inside, other=0.0)
        values += more.to(tl.float32)
    into = row.to(tl.int64)[:, None] * COLUMNS + column
    if KEEP:
        tl.store(total + into, values.to(total.dtype.element_ty), inside)
    mean = tl.sum(values, 1) / COLUMNS
    values = tl.where(column < COLUMNS, values - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(values * values, 1) / COLUMNS + eps)
    by = tl.load(weight + column, column < COLUMNS, other=0.0).to(tl.float32)
    plus = tl.load(bias + column, column < COLUMNS, other=0.0).to(tl.float32)
    values = values * scale[:, None] * by + plus
    tl.store(normed + into, values.to(normed.dtype.element_ty), inside)


def bias_leaky(pictures: Tensor, bias: Tensor, slope: float) -> Tensor:
    """[n, c, h, w] channels last, changed in place: leaky ReLU after adding the bias"""
    assert pictures.is_contiguous(memory_format=torch.channels_last)
    columns = pictures.shape[1]
    count = pictures.numel() // columns
    block = triton.next_power_of_2(columns)
    rows = max(1, TILE // block)
    _bias_leaky[(triton.cdiv(count, rows),)](
        pictures, bias, count, slope, COLUMNS=columns, BLOCK=block, ROWS=rows, num_warps=4
    )
    return pictures


@triton.jit(do_not_specialize=["rows"])
def _bias_leaky(values, bias, rows, slope, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < COLUMNS)
    at = row.to(tl.int64) * COLUMNS + column
    found = tl.load(values + at, inside, other=0.0).to(tl.float32)
    found += tl.load(bias + column, column < COLUMNS, other=0.0).to(tl.float32)
    found = tl.where(found < 0, found * slope, found)
    tl.store(values + at, found.to(values.dtype.element_ty), inside)


def patch_rows(levels: Tensor, letterbox: Letterbox, padding: float, patch: int, into: Tensor) -> None:
    """As `fused.patch_rows`; levels [n, 3, h, w] of any type and strides"""
    assert into.stride()[1:] == (into.shape[2], 1), "rows side by side"
    pictures, _, height, width = levels.shape
    grid = (pictures, letterbox.canvas_height, triton.cdiv(3 * letterbox.canvas_width, 1024))
    _patch_rows[grid](
        levels,
        into,
        letterbox.top,
        letterbox.left,
        height,
        width,
        letterbox.canvas_width,
        *levels.stride(),
        255.0 * padding,
        MIDDLE,
        1 / SPREAD,
        into.stride(0),
        PATCH=patch,
        COLUMNS=into.shape[2],
        BLOCK=1024,
        num_warps=4,
    )


@triton.jit(do_not_specialize=["top", "left", "height", "width"])
def _patch_rows(
    levels,
    into,
    top,
    left,
    height,
    width,
    canvas_width,
    picture_step,
    channel_step,
    row_step,
    column_step,
    padding,
    middle,
    scale,
    into_step,
    PATCH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    picture, y = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    x, channel = at // 3, at % 3
    here = (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
    line = levels + picture * picture_step + (y - top) * row_step
    level = tl.load(line + (x - left) * column_step + channel * channel_step, here, other=0).to(tl.float32)
    value = (tl.where(here, level, padding) - middle) * scale
    number = y // PATCH * (canvas_width // PATCH) + x // PATCH
    within = (y % PATCH * PATCH + x % PATCH) * 3 + channel
    place = into + picture * into_step + number * COLUMNS + within
    tl.store(place, value.to(into.dtype.element_ty), x < canvas_width)


def local_attention(qkv: Tensor, seen: Tensor, heads: int) -> Tensor:
    """As `fused.local_attention`; s a power of two, qkv and seen contiguous"""
    batch, time, space, dim = qkv.shape[0], qkv.shape[1], qkv.shape[2], qkv.shape[3] // 3
    mixed = torch.empty((batch, time, space, dim), dtype=qkv.dtype, device=qkv.device)
    head = dim // heads
    _local_attention[(batch * time, heads)](
        qkv,
        seen.view(torch.uint8),
        mixed,
        time,
        0 if len(seen) == 1 else seen.stride(0),
        math.log2(math.e) / math.sqrt(head),
        SPACE=space,
        DIM=dim,
        HEAD=head,
        BLOCK=max(16, triton.next_power_of_2(head)),
        NEAR=seen.shape[2],
        num_warps=4 if space <= 64 else 8,  # 128 tokens are more than the registers of four hold
    )
    return mixed


@triton.jit(do_not_specialize=["time", "seen_step"])
def _local_attention(
    qkv,
    seen,
    mixed,
    time,
    seen_step,
    scale,
    SPACE: tl.constexpr,
    DIM: tl.constexpr,
    HEAD: tl.constexpr,
    BLOCK: tl.constexpr,
    NEAR: tl.constexpr,
):
    frame, head = tl.program_id(0), tl.program_id(1)
    row, column = tl.arange(0, SPACE)[:, None], tl.arange(0, BLOCK)[None, :]
    at = row * (3 * DIM) + head * HEAD + column
    mine = qkv + frame.to(tl.int64) * (SPACE * 3 * DIM)
    query = tl.load(mine + at, column < HEAD, other=0.0)
    seen += frame // time * seen_step + frame % time * NEAR
    highest = tl.full([SPACE], float("-inf"), tl.float32)
    weights = tl.zeros([SPACE], tl.float32)
    sums = tl.zeros([SPACE, BLOCK], tl.float32)
    for near in range(NEAR):
        if tl.load(seen + near) != 0:
            other = mine + (near - NEAR // 2) * (SPACE * 3 * DIM)
            key = tl.load(other + DIM + at, column < HEAD, other=0.0)
            value = tl.load(other + 2 * DIM + at, column < HEAD, other=0.0)
            logits = tl.dot(query, tl.trans(key))
            highest, weights, sums = _weighed(logits, value, scale, highest, weights, sums)
    into = mixed + frame.to(tl.int64) * (SPACE * DIM) + row * DIM + head * HEAD + column
    tl.store(into, (sums / weights[:, None]).to(mixed.dtype.element_ty), column < HEAD)


def attention(
    qkv: Tensor, heads: int, shape: tuple[int, int, int, int] = ATTENTION, key_bias: Tensor | None = None
) -> Tensor:
    """Queries, keys and values side by side [n, l, 3 c] -> [n, l, c]; c / heads a power of two from 16 on

    `key_bias` [l], if any, is added to the logits of each key. With a class token lengths are a little more
    than whole blocks. The remainder comes first: the first l % block keys are a small block of their own,
    and so are the queries.
    """
    assert qkv.is_contiguous()
    queries, keys, warps, stages = shape
    pictures, length, dim = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    mixed = torch.empty((pictures, length, dim), dtype=qkv.dtype, device=qkv.device)
    _attention[(triton.cdiv(length, queries), heads, pictures)](
        qkv,
        qkv if key_bias is None else key_bias.contiguous(),
        mixed,
        math.log2(math.e) / math.sqrt(dim // heads),
        math.sqrt(dim // heads),
        LENGTH=length,
        DIM=dim,
        HEAD=dim // heads,
        QUERIES=queries,
        FEW_QUERIES=_small(length % queries),
        KEYS=keys,
        FEW_KEYS=_small(length % keys),
        BIASED=key_bias is not None,
        num_warps=warps,
        num_stages=stages,
    )
    return mixed


def _small(count: int) -> int:
    return max(16, triton.next_power_of_2(count))


@triton.jit
def _attention(
    qkv,
    key_bias,
    mixed,
    scale,
    unscaled,
    LENGTH: tl.constexpr,
    DIM: tl.constexpr,
    HEAD: tl.constexpr,
    QUERIES: tl.constexpr,
    FEW_QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    FEW_KEYS: tl.constexpr,
    BIASED: tl.constexpr,
):
    ODD: tl.constexpr = LENGTH % QUERIES
    block, head, picture = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    qkv += picture * (LENGTH * 3 * DIM) + head * HEAD
    mixed += picture * (LENGTH * DIM) + head * HEAD
    if block < LENGTH // QUERIES:
        at = ODD + block * QUERIES
        _attend(
            qkv, key_bias, mixed, at, LENGTH, scale, unscaled,
            LENGTH, DIM, HEAD, QUERIES, KEYS, FEW_KEYS, BIASED,
        )  # fmt: skip
    else:
        _attend(
            qkv, key_bias, mixed, 0, ODD, scale, unscaled,
            LENGTH, DIM, HEAD, FEW_QUERIES, KEYS, FEW_KEYS, BIASED,
        )  # fmt: skip


@triton.jit
def _attend(
    qkv,
    key_bias,
    mixed,
    at,
    until,
    scale,
    unscaled,
    LENGTH: tl.constexpr,
    DIM: tl.constexpr,
    HEAD: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    FEW_KEYS: tl.constexpr,
    BIASED: tl.constexpr,
):
    """Queries from `at` to `until` of one head of one picture"""
    ODD: tl.constexpr = LENGTH % KEYS
    row, column = at + tl.arange(0, QUERIES)[:, None], tl.arange(0, HEAD)[None, :]
    query = tl.load(qkv + row * (3 * DIM) + column, row < until, other=0.0)
    highest = tl.full([QUERIES], float("-inf"), tl.float32)
    weights = tl.zeros([QUERIES], tl.float32)
    sums = tl.zeros([QUERIES, HEAD], tl.float32)
    if ODD > 0:
        few = tl.arange(0, FEW_KEYS)
        few_at = qkv + few[:, None] * (3 * DIM) + column
        few_keys = tl.load(few_at + DIM, few[:, None] < ODD, other=0.0)
        few_values = tl.load(few_at + 2 * DIM, few[:, None] < ODD, other=0.0)
        few_logits = tl.dot(query, tl.trans(few_keys))
        if BIASED:
            few_logits += tl.load(key_bias + few, few < ODD, other=0.0).to(tl.float32)[None, :] * unscaled
        few_logits = tl.where(few[None, :] < ODD, few_logits, float("-inf"))
        highest, weights, sums = _weighed(few_logits, few_values, scale, highest, weights, sums)
    for start in range(ODD, LENGTH, KEYS):
        place = qkv + (start + tl.arange(0, KEYS))[:, None] * (3 * DIM) + column
        key, value = tl.load(place + DIM), tl.load(place + 2 * DIM)
        logits = tl.dot(query, tl.trans(key))
        if BIASED:
            logits += tl.load(key_bias + start + tl.arange(0, KEYS)).to(tl.float32)[None, :] * unscaled
        highest, weights, sums = _weighed(logits, value, scale, highest, weights, sums)
    into = mixed + row * DIM + column
    tl.store(into, (sums / weights[:, None]).to(mixed.dtype.element_ty), row < until)


@triton.jit
def _weighed(logits, value, scale, highest, weights, sums):
    """Online softmax: running sums after another block of logits and values, relative to the maximum."""
    higher = tl.maximum(highest, tl.max(logits, 1) * scale)
    shrunk = tl.exp2(highest - higher)
    weight = tl.exp2(logits * scale - higher[:, None])
    weights = weights * shrunk + tl.sum(weight, 1)
    sums = tl.dot(weight.to(value.dtype), value, sums * shrunk[:, None])
    return higher, weights, sums

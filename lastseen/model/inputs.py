"""From uint8 pictures to what the backbone reads. Tensors only, the same code on CPU and GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from lastseen.box import Box, Letterbox

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
MIDDLE, SPREAD = 128.0, 64.0  # (level - MIDDLE) / SPREAD of a grey level is exact in every float type
EDGE_BLUR = 15  # a crop's side / radius of the blur beyond the picture
AT_ONCE_PX = 32_000_000  # resized by products at a time: about 400 MB of intermediate results
STRIP_PX = 4_000_000  # of a larger picture, which is resized in strips


def letterboxed(frames: Tensor, letterbox: Letterbox, padding: float) -> Tensor:
    """[n, h, w, 3] uint8 -> [n, 3, canvas h, canvas w] normalised; `padding` is a grey in [0, 1]."""
    content = resized(frames, letterbox.content_width, letterbox.content_height)
    return normalised(padded(content, letterbox, padding))


def resized_by_products(
    frames: Tensor, width: int, height: int, dtype: torch.dtype = torch.float16
) -> Tensor:
    """[n, h, w, 3] uint8 -> grey levels [n, 3, height, width]; unchanged (uint8) if the size is the same

    `resized` with the same weights as two matrix products a frame, many times faster on GPUs. float16
    holds levels exactly and rounds sums to an eighth of a level.
    """
    if frames.shape[1:3] == (height, width):
        return rearrange(frames, "n h w c -> n c h w")
    down, across = (
        resize_weights(size, new, frames.device, dtype)
        for size, new in zip(frames.shape[1:3], (height, width))
    )
    rows = torch.matmul(down, frames.to(dtype).flatten(2))  # [n, height, w * 3]
    return torch.matmul(rearrange(rows, "n h (w c) -> n c h w", c=3), across.T)


@lru_cache(maxsize=64)
def resize_weights(size: int, new: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """[new, size]: the weight of each old pixel in each new one in `resized`, along one side."""
    if size == new:
        return torch.eye(size, device=device, dtype=dtype)
    each = torch.eye(size)[None, None]
    weights = F.interpolate(each, (new, size), mode="bilinear", antialias=True)[0, 0]
    return weights.to(device, dtype)


def padded(content: Tensor, letterbox: Letterbox, padding: float) -> Tensor:
    """[n, 3, content h, content w] -> [n, 3, canvas h, canvas w]"""
    if content.shape[-2:] == (letterbox.canvas_height, letterbox.canvas_width):
        return content
    right = letterbox.canvas_width - letterbox.content_width - letterbox.left
    below = letterbox.canvas_height - letterbox.content_height - letterbox.top
    return F.pad(content, (letterbox.left, right, letterbox.top, below), value=padding)


def query_crops(
    picture: Tensor, box: Box, size: int, scales: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor]:
    """`query_crop` at several scales: [scales, 3, size, size] in [0, 1]; where in each of them the thing is,
    and where the picture is: [scales, 4] each, in the unit square, on the CPU."""
    crops = torch.cat([query_crop(picture, box, size, scale) for scale in scales])
    boxes, shown = (
        torch.stack([place(picture, box, scale) for scale in scales])
        for place in (box_in_crop, picture_in_crop)
    )
    return crops, boxes, shown


def query_crop(picture: Tensor, box: Box, size: int, scale: float = 1.0) -> Tensor:
    """The square around the thing in a picture [h, w, 3] uint8 -> [1, 3, size, size] in [0, 1]

    `scale` is the thing's share of the square's side. 1 is the paper's square, moved into the picture where
    it would leave it; a smaller scale keeps the thing in the middle. Beyond the picture its edge is repeated
    and blurred: sharp streaks would look like a part of the thing.
    """
    x1, y1, x2, y2 = _square(picture, box, scale)
    height, width = picture.shape[:2]
    inside = picture[None, max(y1, 0) : min(y2, height), max(x1, 0) : min(x2, width)]
    # At a border the paper's square may be cut short; it is stretched then.
    across, down = size / (x2 - x1), size / (y2 - y1)
    left, top = max(0, round(-x1 * across)), max(0, round(-y1 * down))
    columns = min(size - left, max(1, round(inside.shape[2] * across)))
    rows = min(size - top, max(1, round(inside.shape[1] * down)))
    content = resized(inside, columns, rows)
    if (rows, columns) == (size, size):
        return content
    canvas = F.pad(content, (left, size - left - columns, top, size - top - rows), mode="replicate")
    beyond = _blurred(canvas, size // EDGE_BLUR)
    beyond[..., top : top + rows, left : left + columns] = content
    return beyond


def _blurred(pictures: Tensor, radius: int) -> Tensor:
    """Two box filters of 2 radius + 1 pixels."""
    for _ in range(2):
        wide = F.pad(pictures, (radius, radius, radius, radius), mode="replicate")
        for kernel in ((1, 2 * radius + 1), (2 * radius + 1, 1)):
            wide = F.avg_pool2d(wide, kernel, 1)
        pictures = wide
    return pictures


def box_in_crop(picture: Tensor, box: Box, scale: float = 1.0, *, of: Box | None = None) -> Tensor:
    """Where the thing (or the box `of`) is in its `query_crop`: [4] x1 y1 x2 y2 in the unit square"""
    x1, y1, x2, y2 = _square(picture, box, scale)
    unit = (of or box).shifted(-x1, -y1).scaled(1 / (x2 - x1), 1 / (y2 - y1))
    return torch.tensor(unit.xyxy).clamp(0, 1)


def picture_in_crop(picture: Tensor, box: Box, scale: float = 1.0) -> Tensor:
    """Where a `query_crop` shows the picture, not its repeated edge: [4] x1 y1 x2 y2 in the unit square"""
    height, width = picture.shape[:2]
    return box_in_crop(picture, box, scale, of=Box(0, 0, width, height))


def _square(picture: Tensor, box: Box, scale: float) -> tuple[int, int, int, int]:
    height, width = picture.shape[:2]
    if scale == 1:
        x1, y1, x2, y2 = (round(v) for v in box.squared(width, height).xyxy)
        return x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)
    side = max(2, round(max(box.width, box.height) / scale))
    x1, y1 = (round(low + (high - low) / 2 - side / 2) for low, high in ((box.x1, box.x2), (box.y1, box.y2)))
    return x1, y1, x1 + side, y1 + side


def patches_inside(boxes_unit: Tensor, side: int, columns: int | None = None) -> Tensor:
    """Boxes [n, 4] -> [n, 1, side, columns or side] of 0 and 1: patches whose middle is inside, at least
    one along each axis."""
    x1, y1, x2, y2 = boxes_unit[:, :, None].unbind(1)
    across, down = _middles_inside(x1, x2, columns or side), _middles_inside(y1, y2, side)
    return (down[:, None, :, None] & across[:, None, None, :]).to(boxes_unit.dtype)


def _middles_inside(low: Tensor, high: Tensor, count: int) -> Tensor:
    middles = (torch.arange(count, device=low.device) + 0.5) / count
    half = 0.5 / count  # a box between two middles still has a patch
    return (middles >= torch.minimum(low, (low + high) / 2 - half)) & (
        middles <= torch.maximum(high, (low + high) / 2 + half)
    )


def resized(pictures: Tensor, width: int, height: int) -> Tensor:
    """[n, h, w, 3] uint8 -> [n, 3, height, width] in [0, 1], anti-aliased."""
    together = AT_ONCE_PX // (pictures.shape[1] * pictures.shape[2])
    if len(pictures) > max(1, together):  # as floats, large pictures would take gigabytes
        parts = torch.split(pictures, max(1, together))
        return torch.cat([resized(part, width, height) for part in parts])
    if pictures.shape[1:3] == (height, width):
        return _planes(pictures)
    if together:
        planes = _planes(pictures)
    else:  # columns first, as `interpolate` does itself: the same bits, a strip at a time
        strips = torch.split(pictures, max(1, STRIP_PX // pictures.shape[2]), 1)
        planes = torch.cat([_interpolated(_planes(strip), width, strip.shape[1]) for strip in strips], 2)
    return _interpolated(planes, width, height).clamp(0, 1)


def _planes(pictures: Tensor) -> Tensor:
    return rearrange(pictures, "n h w c -> n c h w") / 255


def _interpolated(planes: Tensor, width: int, height: int) -> Tensor:
    return F.interpolate(planes, (height, width), mode="bilinear", antialias=True)


def normalised(pictures: Tensor) -> Tensor:
    """[n, 3, h, w] in [0, 1] -> ImageNet's mean and deviation."""
    # non_blocking: do not wait for a busy GPU.
    device, at_once = pictures.device, pictures.is_cuda
    mean, std = (torch.tensor(x)[:, None, None].to(device, non_blocking=at_once) for x in (MEAN, STD))
    return (pictures - mean) / std

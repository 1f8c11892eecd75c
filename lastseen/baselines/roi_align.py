"""RoIAlign: the content of boxes, resampled to a grid of one size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

MOST_SAMPLES = 4  # along a side of a grid's cell
BOXES_AT_ONCE = 256


def roi_align(features: Tensor, boxes_unit: Tensor, size: int, most_samples: int = MOST_SAMPLES) -> Tensor:
    """Features [n, c, h, w] and boxes [n, k, 4] in their unit square -> [n, k, c, size, size]

    Each cell is the mean of s x s points, bilinear between the centres of features ("aligned", half a cell
    shifted against the first RoIAlign). s is chosen for each box so that no feature inside it is skipped, up
    to `most_samples`. Beyond the border the features at the border are repeated.
    """
    n, c, h, w = features.shape
    k = boxes_unit.shape[1]
    flat = boxes_unit.reshape(-1, 4).float()
    sides = (flat[:, 2:] - flat[:, :2]) * flat.new_tensor([w, h])
    samples = (sides.amax(1) / size).ceil().clamp(1, most_samples).long()
    whose = torch.arange(n, device=flat.device).repeat_interleave(k)
    out = features.new_empty(n * k, c, size, size)
    for count in sorted(set(samples.tolist())):
        chosen = (samples == count).nonzero().flatten()
        out[chosen] = _sampled(features, flat[chosen], whose[chosen], size, count)
    return out.view(n, k, c, size, size)


def _sampled(features: Tensor, boxes: Tensor, whose: Tensor, size: int, samples: int) -> Tensor:
    """Boxes [m, 4] of pictures `whose` [m], with samples x samples points in each cell."""
    places = (torch.arange(size * samples, device=boxes.device) + 0.5) / (size * samples)
    x, y = (
        low[:, None] + (high - low)[:, None] * places for low, high in zip(boxes[:, :2].T, boxes[:, 2:].T)
    )
    side = size * samples
    grid = torch.stack(
        [x[:, None, :].expand(-1, side, -1), y[:, :, None].expand(-1, -1, side)], -1
    )  # [m, side, side, 2] in the unit square
    parts = features.new_empty(len(boxes), features.shape[1], size, size)
    for picture in sorted(set(whose.tolist())):
        # In float32, whatever the features are: places need more digits than half precision has.
        of_picture = features[picture][None].float()
        for of_it in (whose == picture).nonzero().flatten().split(BOXES_AT_ONCE):
            # Boxes of one picture are rows of one tall grid, so that its features are not copied for each.
            tall = rearrange(grid[of_it], "m a b two -> 1 (m a) b two") * 2 - 1
            found = F.grid_sample(of_picture, tall, "bilinear", "border", align_corners=False)
            cells = rearrange(found, "1 c (m a) b -> m c a b", m=len(of_it))
            cells = F.avg_pool2d(cells, samples) if samples > 1 else cells
            parts[of_it] = cells.to(features.dtype)
    return parts

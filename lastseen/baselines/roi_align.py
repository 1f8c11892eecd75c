"""RoIAlign: the content of boxes, resampled to a grid of one size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

MOST_SAMPLES = 4  # along a side of a grid's cell
BOXES_AT_ONCE = 4096  # with one sample a cell: 0.8 GB of 256 channels


def roi_align(features: Tensor, boxes_unit: Tensor, size: int, most_samples: int = MOST_SAMPLES) -> Tensor:
    """Features [n, c, h, w] and boxes [n, k, 4] in their unit square -> [n, k, c, size, size]

    Each cell is the mean of s x s points, bilinear between the centres of features ("aligned", half a cell
    shifted against the first RoIAlign). s is chosen for each box so that no feature inside it is skipped, up
    to `most_samples`. Beyond the border the features at the border are repeated.
    """
    n, c, h, w = features.shape
    boxes = boxes_unit.float()
    sides = (boxes[..., 2:] - boxes[..., :2]) * boxes.new_tensor([w, h])
    samples = (sides.amax(-1) / size).ceil().clamp(1, most_samples).long()
    # In float32, whatever the features are: places need more digits than half precision has.
    exact, out = features.float(), features.new_zeros(n, boxes.shape[1], c, size, size)
    for count in sorted(set(samples.flatten().tolist())):
        chosen = samples == count
        # Boxes with this number of samples come first in each row; rows with fewer are filled up with others.
        order = chosen.long().argsort(dim=1, descending=True, stable=True)[:, : int(chosen.sum(1).max())]
        for part in order.split(max(1, BOXES_AT_ONCE // (n * count**2)), 1):
            found = _sampled(exact, boxes.gather(1, part[..., None].expand(-1, -1, 4)), size, count)
            wanted = chosen.gather(1, part)
            rows = torch.arange(n, device=part.device)[:, None].expand_as(part)
            out[rows[wanted], part[wanted]] = found[wanted].to(out.dtype)
    return out


def _sampled(features: Tensor, boxes: Tensor, size: int, samples: int) -> Tensor:
    """Boxes [n, m, 4], with samples x samples points in each cell."""
    side = size * samples
    places = (torch.arange(side, device=boxes.device) + 0.5) / side
    low, sides = boxes[..., :2, None], (boxes[..., 2:] - boxes[..., :2])[..., None]
    x, y = (low + sides * places).unbind(2)  # [n, m, side] each
    grid = torch.stack(
        [x[:, :, None].expand(-1, -1, side, -1), y[..., None].expand(-1, -1, -1, side)], -1
    )  # [n, m, side, side, 2] in the unit square
    # The boxes of a picture are rows of one tall grid, so that its features are not copied for each.
    tall = rearrange(grid, "n m a b two -> n (m a) b two") * 2 - 1
    found = F.grid_sample(features, tall, "bilinear", "border", align_corners=False)
    cells = F.avg_pool2d(found, samples) if samples > 1 else found
    return rearrange(cells, "n c (m a) b -> n m c a b", a=size)

"""Which box to suggest in a photo of a thing: around the mask that looks most like one whole thing.

picture --> embedding --+
                        +--> masks, predicted IoU --> stable, whole, near the middle --> bounds
PROMPTS (boxes) --------+
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.box import Box
from lastseen.masks.mobile_sam import MobileSam
from lastseen.masks.segmenter import MEAN, STD, mask_bounds

INPUT_PX = 512
# Of the picture's sides: squares in the middle, and smaller ones around it.
MIDDLE, AROUND = (0.2, 0.35, 0.5, 0.7), 0.3
PLACES = (1 / 3, 1 / 2, 2 / 3)


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """What makes a mask a thing that somebody took a photo of. Chosen on few pictures (docs/page.md)."""

    least_certainty: float = 0.6  # predicted IoU x stability
    least_share: float = 0.003  # of the picture, that a thing's bounds take
    most_share: float = 0.75
    size_power: float = 0.3  # of that share: whole things before parts of them
    offset: float = 1.0  # logits by which a stable mask hardly changes
    distance: float = 0.5  # of a thing's middle from the picture's, at which it counts half
    edge_penalty: float = 0.5  # for each edge of the picture that it reaches, as background does


def prompts(width: float, height: float) -> list[Box]:
    """In pixels of a picture."""
    side = min(width, height)
    places = [(0.5, 0.5, size) for size in MIDDLE]
    places += [(x, y, AROUND) for y in PLACES for x in PLACES if (x, y) != (0.5, 0.5)]
    found = []
    for x, y, size in places:
        half, x, y = size * side / 2, x * width, y * height
        found.append(Box(x - half, y - half, x + half, y + half).clipped(width, height))
    return found


@torch.inference_mode()
def suggested(model: MobileSam, picture: np.ndarray, rule: Suggestion = Suggestion()) -> Box | None:
    """A box around the thing in a picture [h, w, 3], in its pixels; None if nothing stands out."""
    height, width = picture.shape[:2]
    side = max(height, width)
    boxes = prompts(width, height)
    embedding = model.encode(_square(picture))
    unit = torch.tensor([box.scaled(1 / side, 1 / side).xyxy for box in boxes])
    logits, predicted = model.segment(embedding.expand(len(boxes), -1, -1, -1), unit)
    best, best_score = None, 0.0
    cells = logits.shape[-1]
    rows, columns = (max(1, round(cells * length / side)) for length in (height, width))
    for masks, ious in zip(logits[:, 1:, :rows, :columns].flatten(0, 1), predicted[:, 1:].flatten()):
        score, bounds = _score(masks, float(ious), rule)
        if bounds is not None and score > best_score:
            best, best_score = bounds, score
    if best is None:
        return None
    return best.scaled(side / cells, side / cells).clipped(width, height)


def _score(logits: Tensor, predicted_iou: float, rule: Suggestion) -> tuple[float, Box | None]:
    """Of a mask [rows, columns], and its bounds in cells; None if a thing of that size is not suggested."""
    mask = logits > 0
    bounds = mask_bounds(mask)
    if bounds is None:
        return 0.0, None
    rows, columns = mask.shape
    share = bounds.area / (rows * columns)
    inner, outer = (int((logits > level).sum()) for level in (rule.offset, -rule.offset))
    certainty = predicted_iou * inner / outer
    if certainty < rule.least_certainty or not rule.least_share <= share <= rule.most_share:
        return 0.0, None
    x, y = (bounds.x1 + bounds.x2) / 2 / columns, (bounds.y1 + bounds.y2) / 2 / rows
    nearness = 1 / (1 + (math.hypot(x - 0.5, y - 0.5) / rule.distance) ** 2)
    edges = sum((bounds.x1 < 2, bounds.y1 < 2, bounds.x2 > columns - 2, bounds.y2 > rows - 2))
    wholeness = max(0.0, 1 - rule.edge_penalty * edges)
    return certainty * nearness * wholeness * share**rule.size_power, bounds


def _square(picture: np.ndarray) -> Tensor:
    """The picture, scaled and normalised, in the upper left of [1, 3, INPUT_PX, INPUT_PX]; zero beside it."""
    height, width = picture.shape[:2]
    scale = INPUT_PX / max(height, width)
    size = [max(1, round(length * scale)) for length in (height, width)]
    pixels = torch.tensor(picture).permute(2, 0, 1)[None].float()
    scaled = F.interpolate(pixels, size, mode="bilinear", antialias=True)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    return F.pad((scaled - mean) / std, (0, INPUT_PX - size[1], 0, INPUT_PX - size[0]))

"""How like one point of a query a frame's patches are: what the model's first step sees."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.box import Box
from lastseen.model.inputs import letterboxed, normalised, query_crop, resized
from lastseen.model.training_free import PatchMatcher
from lastseen.model.vqloc import VQLoC


@torch.inference_mode()
def point_affinity(
    model: VQLoC | PatchMatcher, picture: Tensor, box: Box, point: tuple[float, float], frame: Tensor
) -> Tensor:
    """Cosine of the backbone's features [rows, columns] on the canvas `model.letterbox` gives the frame.

    picture [h, w, 3] uint8 with the thing's box and a point (x, y) on it in pixels; frame [H, W, 3] uint8.
    VQLoC sees the query at one size. PatchMatcher tries several, and the one that matches best counts.
    """
    letterbox = model.letterbox(frame.shape[1], frame.shape[0])
    padding = model.config.padding if isinstance(model, VQLoC) else 0.5
    features = F.normalize(model.backbone(letterboxed(frame[None], letterbox, padding)), dim=1)[0]
    if isinstance(model, VQLoC):
        views = [_square(model, picture, box, point)]
    else:
        views = [_scaled(model, picture, box, point, side) for side in model.config.query_scales_px]
    maps = [torch.einsum("chw,c->hw", features, _feature(model, view, at)) for view, at in views]
    return max(maps, key=lambda similarity: similarity.max().item())


View = tuple[Tensor, tuple[float, float]]  # normalised picture [1, 3, h, w] and the point in it, in pixels


def _square(model: VQLoC, picture: Tensor, box: Box, point: tuple[float, float]) -> View:
    """The paper's query: the square around the thing."""
    size = model.config.query_px
    square = box.squared(picture.shape[1], picture.shape[0])
    at = Box(*point, *point).shifted(-square.x1, -square.y1)
    at = at.scaled(size / max(square.width, 1.0), size / max(square.height, 1.0))
    return normalised(query_crop(picture, box, size)), (at.x1, at.y1)


def _scaled(
    model: PatchMatcher, picture: Tensor, box: Box, point: tuple[float, float], longer_side_px: int
) -> View:
    """The picture with the thing at a size, as much of it around the point as PatchMatcher looks at."""
    patch, (least, most) = model.backbone.config.patch, model.config.query_canvas_px
    scale = longer_side_px / max(box.width, box.height)
    reach = most / scale / 2
    height, width = picture.shape[:2]
    left, top = (max(0, math.floor(v - reach)) for v in point)
    right, bottom = (min(side, math.ceil(v + reach)) for v, side in zip(point, (width, height)))
    columns, rows = (max(1, round(side * scale)) for side in (right - left, bottom - top))
    content = resized(picture[None, top:bottom, left:right], columns, rows)
    across, down = (max(least, math.ceil(side / patch) * patch) - side for side in (columns, rows))
    margins = (across // 2, across - across // 2, down // 2, down - down // 2)
    view = normalised(F.pad(content, margins, mode="replicate"))
    return view, ((point[0] - left) * scale + across // 2, (point[1] - top) * scale + down // 2)


def _feature(model: VQLoC | PatchMatcher, view: Tensor, at: tuple[float, float]) -> Tensor:
    """[c], unit length: between the patches around the point."""
    height, width = view.shape[-2:]
    features = F.normalize(model.backbone(view), dim=1)
    grid = torch.tensor([2 * at[0] / width - 1, 2 * at[1] / height - 1], device=view.device)
    sampled = F.grid_sample(
        features, grid.to(features.dtype)[None, None, None], padding_mode="border", align_corners=False
    )
    return F.normalize(sampled[0, :, 0, 0], dim=0)

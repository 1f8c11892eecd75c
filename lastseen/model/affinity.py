"""Feature affinity: cosine of one point of a query with every patch of a frame, as in the paper's figure."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lastseen.box import Box, Letterbox
from lastseen.model.inputs import letterboxed, normalised, query_crop

PointView = tuple[Tensor, tuple[float, float]]  # normalised picture [1, 3, h, w], a point in it in pixels


class HasPointViews(Protocol):
    backbone: nn.Module

    @property
    def padding(self) -> float: ...
    def letterbox(self, width: int, height: int) -> Letterbox: ...
    def point_views(self, picture: Tensor, box: Box, point: tuple[float, float]) -> list[PointView]:
        """The query's picture as the model reads it, once for each size that it is read at."""
        ...


@torch.inference_mode()
def point_affinity(
    model: HasPointViews, picture: Tensor, box: Box, point: tuple[float, float], frame: Tensor
) -> Tensor:
    """Cosine of the backbone's features [rows, columns] on the canvas `model.letterbox` gives the frame.

    picture [h, w, 3] uint8 with the thing's box and a point (x, y) on it in pixels; frame [H, W, 3] uint8.
    Of several sizes of the query the one with the highest cosine is taken.
    """
    letterbox = model.letterbox(frame.shape[1], frame.shape[0])
    features = F.normalize(model.backbone(letterboxed(frame[None], letterbox, model.padding)), dim=1)[0]
    maps = [
        torch.einsum("chw,c->hw", features, _feature_at(model.backbone, view, at))
        for view, at in model.point_views(picture, box, point)
    ]
    return max(maps, key=lambda similarity: similarity.max().item())


def point_in_square(picture: Tensor, box: Box, point: tuple[float, float], size: int) -> PointView:
    """The paper's query crop of `size` px, and the point in it."""
    square = box.squared(picture.shape[1], picture.shape[0])
    at = Box(*point, *point).shifted(-square.x1, -square.y1)
    at = at.scaled(size / max(square.width, 1.0), size / max(square.height, 1.0))
    return normalised(query_crop(picture, box, size)), (at.x1, at.y1)


def _feature_at(backbone: nn.Module, view: Tensor, at: tuple[float, float]) -> Tensor:
    """[c], unit length, interpolated between the patches around the point."""
    height, width = view.shape[-2:]
    features = F.normalize(backbone(view), dim=1)
    grid = torch.tensor([2 * at[0] / width - 1, 2 * at[1] / height - 1], device=view.device)
    sampled = F.grid_sample(
        features, grid.to(features.dtype)[None, None, None], padding_mode="border", align_corners=False
    )
    return F.normalize(sampled[0, :, 0, 0], dim=0)

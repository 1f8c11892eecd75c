"""Training-free localization: patches of a frame that look like patches of the query.

The baseline that trained heads must beat, with the same methods as they have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.box import Box, Letterbox
from lastseen.model.affinity import PointView
from lastseen.model.backbone import Backbone
from lastseen.model.encoded_query import EncodedQuery
from lastseen.model.head import Predictions
from lastseen.model.inputs import letterboxed, normalised, resized
from lastseen.model.protocol import weights_fingerprint


@dataclass(frozen=True, kw_only=True)
class TrainingFreeConfig:
    """Chosen on the development set of real video; docs/results.md has the numbers."""

    longer_edge: int = 448  # px of a frame
    # The thing's size in the video is unknown, and patches match at equal scales only: all are tried.
    query_scales_px: tuple[int, ...] = (28, 40, 56, 80, 112, 160, 224)  # the thing's longer side
    query_canvas_px: tuple[int, int] = (336, 448)  # smallest and largest side of the picture around it
    region: float = 0.7  # the box ends where similarity falls below this share of peak over background
    even_similarity: float = 0.72  # cosine at which the logit is 0
    similarity_scale: float = 0.05  # cosine per unit of logit


class TrainingFreeModel(nn.Module):
    """| frames   | [n, h, w, 3] uint8                                            |
    | features | [n, c, rows, columns], unit length                            |
    | query    | vectors [k, c]: the thing's patches at all scales, unit length |
    """

    clip_length = 16  # frames are matched one by one: any length gives the same answer
    context = 0
    padding = 0.5  # grey value in [0, 1] around a frame

    def __init__(self, backbone: Backbone, config: TrainingFreeConfig = TrainingFreeConfig()) -> None:
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.config = config

    @property
    def title(self) -> str:
        backbone = self.backbone.config
        block = max(block % backbone.depth for block in backbone.blocks) + 1
        return (
            f"training-free patch matching ({backbone.name}, block {block} of {backbone.depth}, "
            f"{self.config.longer_edge} px)"
        )

    def fingerprint(self) -> str:
        return weights_fingerprint(self, self.config, self.backbone.config)

    def letterbox(self, width: int, height: int) -> Letterbox:
        return Letterbox.snug(width, height, self.config.longer_edge, self.backbone.config.patch)

    def encode_frames(self, frames: Tensor) -> Tensor:
        letterbox = self.letterbox(frames.shape[2], frames.shape[1])
        return self.encode(letterboxed(frames, letterbox, self.padding))

    def encode(self, pictures: Tensor) -> Tensor:
        return F.normalize(self.backbone(pictures), dim=1)

    def encode_query(self, picture: Tensor, box: Box) -> EncodedQuery:
        tokens = [self._tokens_at(picture, box, scale) for scale in self.config.query_scales_px]
        return EncodedQuery(torch.cat(tokens))

    def localize_clip(self, features: Tensor, query: EncodedQuery) -> Predictions:
        """One candidate a frame: boxes [1, t, 1, 4] in the unit square, logits [1, t, 1]."""
        rows = features.shape[2]
        similarity = torch.einsum("tchw,kc->thwk", features, query.vectors).amax(-1)
        # The most similar patch tells best *when*; with the mean of the thing's patches it tells *where*.
        mean = F.normalize(query.vectors.mean(0), dim=0)
        place = similarity + torch.einsum("tchw,c->thw", features, mean)
        boxes = region_around_peak(place, self.config.region)
        peak = rearrange(similarity, "t h w -> t (h w)", h=rows).amax(-1)
        logits = (peak - self.config.even_similarity) / self.config.similarity_scale
        return Predictions(boxes[None, :, None], logits[None, :, None])

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        """Frames do not depend on each other."""
        return self.localize_clip(features[first : len(features) - context], query)

    def frame_vectors(self, features: Tensor) -> Tensor:
        return features.float()

    def query_vectors(self, query: EncodedQuery) -> Tensor:
        return query.vectors

    def point_views(self, picture: Tensor, box: Box, point: tuple[float, float]) -> list[PointView]:
        views = []
        for scale in self.config.query_scales_px:
            view, place = self._scaled(picture, box, Box(*point, *point), scale)
            views.append((view, (place.x1, place.y1)))
        return views

    def _tokens_at(self, picture: Tensor, box: Box, longer_side_px: int) -> Tensor:
        """[k, c] patches on the thing when its longer side is `longer_side_px`, with its surroundings."""
        view, place = self._scaled(picture, box, box, longer_side_px)
        tokens, patch = self.backbone(view), self.backbone.config.patch
        inside = covered(place.scaled(1 / patch, 1 / patch), *tokens.shape[2:])
        return F.normalize(tokens[0, :, inside], dim=0).T

    def _scaled(self, picture: Tensor, box: Box, part: Box, longer_side_px: int) -> tuple[Tensor, Box]:
        """The picture resized for the longer side of `box`, as much of it as is used around the middle of
        `part` [1, 3, h, w]; and where in it `part` is, in pixels."""
        patch = self.backbone.config.patch
        least, most = self.config.query_canvas_px
        height, width = picture.shape[:2]
        scale = longer_side_px / max(box.width, box.height)
        reach = most / scale / 2
        x, y = (part.x1 + part.x2) / 2, (part.y1 + part.y2) / 2
        left, top = max(0, math.floor(x - reach)), max(0, math.floor(y - reach))
        right, bottom = min(width, math.ceil(x + reach)), min(height, math.ceil(y + reach))
        columns, rows = (max(1, round(side * scale)) for side in (right - left, bottom - top))
        content = resized(picture[None, top:bottom, left:right], columns, rows)
        # Repeated edges add no contour; a grey rim would.
        across, down = (max(least, math.ceil(side / patch) * patch) - side for side in (columns, rows))
        margins = (across // 2, across - across // 2, down // 2, down - down // 2)
        place = part.shifted(-left, -top).scaled(columns / (right - left), rows / (bottom - top))
        view = normalised(F.pad(content, margins, mode="replicate"))
        return view, place.shifted(across // 2, down // 2)


def covered(box_in_patches: Box, rows: int, columns: int) -> Tensor:
    """[rows, columns] which patches are more than half inside the box; the fullest one if none is."""
    x1, y1, x2, y2 = box_in_patches.xyxy
    share = _overlap(y1, y2, rows)[:, None] * _overlap(x1, x2, columns)[None, :]
    return share > min(0.5, share.max().item() - 1e-6)


def _overlap(low: float, high: float, cells: int) -> Tensor:
    edges = torch.arange(cells, dtype=torch.float64)
    return ((edges + 1).clamp(max=high) - edges.clamp(min=low)).clamp(0, 1)


def region_around_peak(place: Tensor, share: float, finer: int = 2) -> Tensor:
    """[t, h, w] -> boxes [t, 4] in the unit square, around what is connected to the highest point
    and at least `share` of the way from the frame's median up to it."""
    fine = F.interpolate(place[:, None].float(), scale_factor=finer, mode="bilinear")
    rows, columns = fine.shape[2:]
    flat = fine.flatten(1)
    top, where = flat.max(1)
    background = flat.median(1).values
    above = (fine >= (background + share * (top - background))[:, None, None, None]).float()
    region = F.one_hot(where, rows * columns).view_as(fine).float()
    while True:
        grown = F.max_pool2d(region, 3, 1, 1) * above
        if torch.equal(grown, region):
            break
        region = grown
    low_x, high_x = _bounds(region.amax((1, 2)))
    low_y, high_y = _bounds(region.amax((1, 3)))
    return torch.stack([low_x / columns, low_y / rows, high_x / columns, high_y / rows], -1)


def _bounds(occupied: Tensor) -> tuple[Tensor, Tensor]:
    """[t, n] of 0 and 1 -> first occupied cell and one past the last."""
    return occupied.argmax(1).float(), occupied.shape[1] - occupied.flip(1).argmax(1).float()

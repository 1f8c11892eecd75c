"""Training-free localization: patches of a frame that look like patches of the query.

The honest floor that trained heads must beat, with the same methods as VQLoC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.box import Box, Letterbox
from lastseen.model.backbone import Backbone
from lastseen.model.head import Predictions
from lastseen.model.inputs import letterboxed, normalised, resized


@dataclass(frozen=True, kw_only=True)
class PatchMatchConfig:
    """Chosen on the development set of real video; docs/results.md has the numbers."""

    longer_edge: int = 448
    # The thing's size in the video is unknown, and matching works at like scales only: try them all.
    query_scales_px: tuple[int, ...] = (28, 40, 56, 80, 112, 160, 224)  # its longer side
    query_canvas_px: tuple[int, int] = (336, 448)  # smallest and largest side of the picture around it
    region: float = 0.7  # the box ends where similarity falls below this share of peak over background
    even_similarity: float = 0.72  # cosine at which "there" is as likely as "not there"
    similarity_scale: float = 0.05  # cosine per unit of logit


class PatchMatcher(nn.Module):
    """| frames   | [n, h, w, 3] uint8            |
    | features | [n, c, rows, columns], unit length |
    | query    | [k, c]: the thing's patches at all scales, unit length |
    """

    title = "the training-free localizer"
    clip_length = 16  # frames are matched one by one: any length gives the same answer
    context = 0
    padding = 0.5  # grey around a frame

    def __init__(self, backbone: Backbone, config: PatchMatchConfig = PatchMatchConfig()) -> None:
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.config = config

    def letterbox(self, width: int, height: int) -> Letterbox:
        return Letterbox.snug(width, height, self.config.longer_edge, self.backbone.config.patch)

    def encode_frames(self, frames: Tensor) -> Tensor:
        letterbox = self.letterbox(frames.shape[2], frames.shape[1])
        return self.encode(letterboxed(frames, letterbox, self.padding))

    def encode(self, frames: Tensor) -> Tensor:
        """[n, 3, 14 h, 14 w] normalised -> [n, c, h, w]"""
        return F.normalize(self.backbone(frames), dim=1)

    def encode_view(self, picture: Tensor, box: Box) -> Tensor:
        """picture [h, w, 3] uint8 and the thing's box in it -> [k, c]"""
        return torch.cat([self._tokens_at(picture, box, scale) for scale in self.config.query_scales_px])

    def localize_clip(self, features: Tensor, query: Tensor) -> Predictions:
        """One candidate a frame: boxes [1, t, 1, 4] in the unit square, logits [1, t, 1]."""
        rows = features.shape[2]
        similarity = torch.einsum("tchw,kc->thwk", features, query).amax(-1)  # to the likest patch
        typical = F.normalize(query.mean(0), dim=0)
        # The likest patch tells best *when*, what is common to all of the thing's patches tells *where*.
        place = similarity + torch.einsum("tchw,c->thw", features, typical)
        boxes = region_around_peak(place, self.config.region)
        peak = rearrange(similarity, "t h w -> t (h w)", h=rows).amax(-1)
        logits = (peak - self.config.even_similarity) / self.config.similarity_scale
        return Predictions(boxes[None, :, None], logits[None, :, None])

    def localize_run(self, features: Tensor, query: Tensor, context: int, first: int) -> Predictions:
        """As VQLoC's: here each frame is for itself."""
        return self.localize_clip(features[first : len(features) - context], query)

    def _tokens_at(self, picture: Tensor, box: Box, longer_side_px: int) -> Tensor:
        """Patches on the thing when its longer side is `longer_side_px`, in what surrounds it."""
        patch = self.backbone.config.patch
        least, most = self.config.query_canvas_px
        height, width = picture.shape[:2]
        scale = longer_side_px / max(box.width, box.height)
        reach = most / scale / 2
        x, y = (box.x1 + box.x2) / 2, (box.y1 + box.y2) / 2
        left, top = max(0, math.floor(x - reach)), max(0, math.floor(y - reach))
        right, bottom = min(width, math.ceil(x + reach)), min(height, math.ceil(y + reach))
        columns, rows = (max(1, round(side * scale)) for side in (right - left, bottom - top))
        content = resized(picture[None, top:bottom, left:right], columns, rows)
        # Repeating the edge invents no contour; a grey rim would.
        across, down = (max(least, math.ceil(side / patch) * patch) - side for side in (columns, rows))
        margins = (across // 2, across - across // 2, down // 2, down - down // 2)
        tokens = self.backbone(normalised(F.pad(content, margins, mode="replicate")))
        inside = box.shifted(-left, -top).scaled(columns / (right - left), rows / (bottom - top))
        inside = inside.shifted(across // 2, down // 2).scaled(1 / patch, 1 / patch)
        return F.normalize(tokens[0, :, covered(inside, *tokens.shape[2:])], dim=0).T


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

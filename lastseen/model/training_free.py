"""Training-free localization: patches of a frame that look like the query's, close together.

The baseline that trained heads must beat, with the same methods and the same evidence as they have: cosine of
each patch with the thing's most similar one, and coverage (`lastseen.model.coverage`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.box import Box, Letterbox
from lastseen.model.affinity import PointView
from lastseen.model.backbone import Backbone
from lastseen.model.coverage import coverage, window_sides
from lastseen.model.encoded_query import EncodedQuery, background_patches, mask_picture
from lastseen.model.head import Predictions
from lastseen.model.inputs import letterboxed, normalised, resized
from lastseen.model.padding import PaddingGroups, padding_groups
from lastseen.model.protocol import weights_fingerprint

COVERED_SIDE = 4  # patches along the thing's longer side whose coverage is computed; others are left out
BACKGROUND_WEIGHT = 1e-3  # of background patches in coverage: they count only if there are no others


@dataclass(frozen=True, kw_only=True)
class TrainingFreeConfig:
    """Chosen on the development set of real video; docs/results.md has the numbers."""

    longer_edge: int = 448  # px of a frame
    # The thing's size in the video is unknown, and patches match at equal scales only: all are tried.
    query_scales_px: tuple[int, ...] = (28, 40, 56, 80, 112, 160, 224)  # the thing's longer side
    query_canvas_px: tuple[int, int] = (336, 448)  # smallest and largest side of the picture around it
    coverage_windows: tuple[float, ...] = (0.5, 1.0, 2.0)  # sides, in units of the thing's longer side
    background_cosine: float = 0.7  # above it a patch in the box counts as background
    region: float = 0.7  # the box ends where similarity falls below this share of peak over background
    even_similarity: float = 0.625  # mean of best cosine and coverage at which the logit is 0
    similarity_scale: float = 0.04  # of that mean per unit of logit


class TrainingFreeModel(nn.Module):
    """| frames   | [n, h, w, 3] uint8                                                         |
    | features | [n, c, rows, columns], unit length                                         |
    | query    | vectors [scales, c, q, q], unit length, zero where not on the thing; masks |
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

    @property
    def patch(self) -> int:
        return self.backbone.config.patch

    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        letterbox = self.letterbox(frames.shape[2], frames.shape[1])
        groups = padding_groups(letterbox, self.patch) if group_padding else None
        return self.encode(letterboxed(frames, letterbox, self.padding), groups)

    def encode(self, pictures: Tensor, groups: PaddingGroups | None = None) -> Tensor:
        return F.normalize(self.backbone(pictures, groups).contiguous(), dim=1)  # sums round by layout

    def encode_query(self, picture: Tensor, box: Box, mask: Tensor | None = None) -> EncodedQuery:
        views = [self._patches_at(picture, box, scale, mask) for scale in self.config.query_scales_px]
        vectors, on_thing, background, masked = (_in_squares(parts) for parts in zip(*views))
        query = EncodedQuery(vectors, on_thing, background)
        return query if mask is None else query.with_mask(masked)

    def localize_clip(self, features: Tensor, query: EncodedQuery) -> Predictions:
        """One candidate a frame: boxes [1, t, 1, 4] in the unit square, logits [1, t, 1]."""
        best, coverages = self.evidence(features, query)
        boxes = region_around_peak((best + coverages) / 2, self.config.region)
        similarity = (best.flatten(1).amax(1) + coverages.flatten(1).amax(1)) / 2
        logits = (similarity - self.config.even_similarity) / self.config.similarity_scale
        return Predictions(boxes[None, :, None], logits[None, :, None])

    def evidence(self, features: Tensor, query: EncodedQuery) -> tuple[Tensor, Tensor]:
        """Two maps [t, rows, columns]: cosine with the most similar patch, background patches included,
        which tells best *when*; and mean coverage, over scales and windows, which tells best *where*."""
        assert query.on_thing is not None and query.background is not None
        best, coverages = [], []
        views = zip(query.vectors, query.on_thing, query.background, self.config.query_scales_px, strict=True)
        for vectors, on_thing, background, longer_side_px in views:
            cosine = torch.einsum("ck,tchw->tkhw", vectors[:, on_thing], features)
            best.append(cosine.amax(1))
            side = longer_side_px / self.backbone.config.patch
            every = math.ceil(side / COVERED_SIDE)
            some = torch.zeros_like(on_thing)
            some[::every, ::every] = True
            weights = torch.where(background[on_thing & some], BACKGROUND_WEIGHT, 1.0)
            sides = window_sides(side, self.config.coverage_windows)
            coverages.append(coverage(cosine[None, :, some[on_thing]], weights[None], sides)[0].mean(1))
        return torch.stack(best).amax(0), torch.stack(coverages).mean(0)

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        """Frames do not depend on each other."""
        return self.localize_clip(features[first : len(features) - context], query)

    def frame_vectors(self, features: Tensor) -> Tensor:
        return features.float()

    def query_vectors(self, query: EncodedQuery) -> Tensor:
        assert query.on_thing is not None
        return rearrange(query.vectors, "s c h w -> s h w c")[query.on_thing]

    def point_views(self, picture: Tensor, box: Box, point: tuple[float, float]) -> list[PointView]:
        views = []
        for scale in self.config.query_scales_px:
            view, place, _ = self._scaled(picture, box, Box(*point, *point), scale)
            views.append((normalised(view), (place.x1, place.y1)))
        return views

    def _patches_at(
        self, picture: Tensor, box: Box, longer_side_px: int, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The thing when its longer side is `longer_side_px`: vectors [c, rows, columns] of its patches,
        which of them are on the thing, which are background, and how much of each is in the mask (all of it
        without one) [rows, columns]."""
        view, place, shown = self._scaled(picture, box, box, longer_side_px)
        features, patch = self.encode(normalised(view)), self.backbone.config.patch
        on_thing = covered(place.scaled(1 / patch, 1 / patch), *features.shape[2:]).to(features.device)
        shown_unit = torch.tensor(shown.scaled(1 / view.shape[3], 1 / view.shape[2]).xyxy, device=view.device)
        background = background_patches(
            features, on_thing[None, None], shown_unit[None], self.config.background_cosine
        )
        masked = torch.ones_like(features[0, 0])
        if mask is not None:
            as_mask, *_ = self._scaled(mask_picture(mask), box, box, longer_side_px)
            masked = F.avg_pool2d(as_mask[:, 0], patch)[0]
        vectors = features[0] * on_thing
        occupied = (on_thing.any(axis).nonzero().flatten() for axis in (1, 0))
        rows, columns = (slice(int(places[0]), int(places[-1]) + 1) for places in occupied)
        on_thing, of_background, masked = (
            flag[rows, columns] for flag in (on_thing, background[0, 0], masked)
        )
        return vectors[:, rows, columns], on_thing, of_background, masked

    def _scaled(self, picture: Tensor, box: Box, part: Box, longer_side_px: int) -> tuple[Tensor, Box, Box]:
        """The picture resized for the longer side of `box`, as much of it as is used around the middle of
        `part` [1, 3, h, w] in [0, 1]; where in it `part` is, and where the picture, in pixels."""
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
        view = F.pad(content, margins, mode="replicate")
        shown = Box(0, 0, columns, rows)
        return view, place.shifted(across // 2, down // 2), shown.shifted(across // 2, down // 2)


def covered(box_in_patches: Box, rows: int, columns: int) -> Tensor:
    """[rows, columns] which patches are more than half inside the box; the fullest one if none is."""
    x1, y1, x2, y2 = box_in_patches.xyxy
    share = _overlap(y1, y2, rows)[:, None] * _overlap(x1, x2, columns)[None, :]
    return share > min(0.5, share.max().item() - 1e-6)


def _overlap(low: float, high: float, cells: int) -> Tensor:
    edges = torch.arange(cells, dtype=torch.float64)
    return ((edges + 1).clamp(max=high) - edges.clamp(min=low)).clamp(0, 1)


def _in_squares(views: Sequence[Tensor]) -> Tensor:
    """[.., rows, columns] of several sizes -> [views, .., q, q], zero below and right of each"""
    side = max(max(view.shape[-2:]) for view in views)
    return torch.stack([F.pad(view, (0, side - view.shape[-1], 0, side - view.shape[-2])) for view in views])


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

"""The similarity-map model, ours: VQLoC with cosine maps in place of cross-attention.

Cross-attention weights are normalised over the query's patches, so they lose how similar a patch is, and the
attended features carry the appearance of the training data into the heads. Here heads see cosines only, which
look the same in rendered and real video.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.box import Box, Letterbox
from lastseen.model.affinity import PointView, point_in_square
from lastseen.model.backbone import Backbone, BackboneConfig
from lastseen.model.config import checked_size, config_dict, config_from_dict
from lastseen.model.encoded_query import EncodedQuery, background_patches, mask_picture
from lastseen.model.head import AnchorHead, Predictions, SingleBoxHead, make_head
from lastseen.model.inputs import letterboxed, normalised, patches_inside, query_crops
from lastseen.model.padding import PaddingGroups, padding_groups
from lastseen.model.propagation import GRID, SpatioTemporalTransformer
from lastseen.model.protocol import weights_fingerprint
from lastseen.model.similarity_maps import SimilarityFusion

WHOLE = (0.0, 0.0, 1.0, 1.0)  # a box in the unit square
# Of an untrained prior with coverage, near a logistic fit on the bundled backbone's features.
COSINE_SCALE, COSINE_MIDPOINT, COVERAGE_SCALE, COVERAGE_MIDPOINT = 8.0, 0.5, 16.0, 0.33


@dataclass(frozen=True, kw_only=True)
class SimilarityConfig:
    kind: ClassVar[str] = "similarity"

    backbone: BackboneConfig
    image_size: int = 448  # px
    clip_length: int = 30  # frames
    dim: int = 128
    attention_radius: int | None = 2  # frames on each side; None: the whole clip
    anchors: bool = True
    padding: float = 0.0  # grey value in [0, 1] around a frame that is not square
    query_scales: tuple[float, ...] = (1.0, 0.5, 0.25)  # the thing's share of the side of each query crop
    query_size: int = 224  # px of a query crop
    # Sides of the windows in which coverage is computed, in units of the thing's longer side; (): none
    coverage_windows: tuple[float, ...] = ()
    background_cosine: float | None = 0.7  # above it a patch in the box counts as background; None: none does
    head_score_weight: float = 1.0  # inference-time scale of the head's score; not part of the architecture
    skip_connection: bool = True  # from before propagation to the head, at twice propagation's grid

    def __post_init__(self) -> None:
        if self.query_scales[:1] != (1.0,) or not all(0 < scale <= 1 for scale in self.query_scales):
            raise ValueError(f"query_scales must begin with 1 and be above 0, got {self.query_scales}")
        if not all(0 < ratio <= 4 for ratio in self.coverage_windows):
            raise ValueError(f"coverage_windows must be above 0, 4 at most, got {self.coverage_windows}")
        if not 0 <= self.head_score_weight <= 1:
            raise ValueError(f"head_score_weight must be 0 to 1, got {self.head_score_weight}")
        checked_size("image_size", self.image_size, self.backbone.patch)
        # An even number of patches: the surroundings are cut off evenly.
        checked_size("query_size", self.query_size, 2 * self.backbone.patch)

    @property
    def side(self) -> int:
        """Patches along one edge of a frame."""
        return self.image_size // self.backbone.patch

    @property
    def query_side(self) -> int:
        """Patches along one edge of a query crop."""
        return self.query_size // self.backbone.patch

    def to_dict(self) -> dict[str, Any]:
        return config_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SimilarityConfig:
        return config_from_dict(cls, data)


class SimilarityModel(nn.Module):
    """VQLoC's four stages with another correspondence; `encode` once per video, `localize` once per query.

    | frames                  | [n, 3, size, size]         normalised RGB               |
    | query crops             | [b, scales, 3, q px, q px] normalised RGB               |
    | features after `encode` | [n, channels, side, side]  unit vectors of the backbone |
    | Predictions             | [b, t, candidates, ..]     boxes and logits             |
    """

    def __init__(
        self,
        config: SimilarityConfig,
        backbone: nn.Module,
        projection: UnitProjection,
        correspondence: SimilarityFusion,
        propagation: SpatioTemporalTransformer,
        head: AnchorHead | SingleBoxHead,
        prior: SimilarityPrior,
    ) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone.requires_grad_(False)
        self.projection = projection
        self.correspondence = correspondence
        self.propagation = propagation
        self.head = head
        self.prior = prior

    @classmethod
    def from_config(cls, config: SimilarityConfig) -> SimilarityModel:
        dim, skip = config.dim, config.skip_connection
        return cls(
            config,
            Backbone(config.backbone),
            projection=UnitProjection(config.backbone.channels),
            correspondence=SimilarityFusion(dim, config.query_scales, config.coverage_windows),
            propagation=SpatioTemporalTransformer(
                dim,
                hidden=8 * dim,
                radius=config.attention_radius,
                clip_length=config.clip_length,
                side=config.side,
                grid=GRID,
                skip=skip,
            ),
            head=make_head(dim, anchors=config.anchors, image_size=config.image_size, skip=skip),
            prior=SimilarityPrior(2 * GRID if config.anchors else 1, bool(config.coverage_windows)),
        )

    @property
    def title(self) -> str:
        backbone = self.config.backbone
        blocks = "1 block" if backbone.depth == 1 else f"{backbone.depth} blocks"
        return f"similarity-map model ({backbone.name}, {blocks}, {self.config.image_size} px)"

    @property
    def clip_length(self) -> int:
        return self.config.clip_length

    @property
    def context(self) -> int:
        return self.propagation.overlap

    @property
    def padding(self) -> float:
        return self.config.padding

    @property
    def patch(self) -> int:
        return self.config.backbone.patch

    def fingerprint(self) -> str:
        return weights_fingerprint(self, self.config)

    def letterbox(self, width: int, height: int) -> Letterbox:
        return Letterbox.square(width, height, self.config.image_size)

    def forward(self, clips: Tensor, queries: Tensor, lengths: Tensor | None = None) -> Predictions:
        """clips [b, t, 3, size, size], queries [b, scales, 3, q px, q px], all of which is the thing;
        `lengths` [b] if clips are padded."""
        features = self.encode(rearrange(clips, "b t c h w -> (b t) c h w"))
        features = rearrange(features, "(b t) c h w -> b t c h w", b=len(clips))
        return self.localize(features, self.encode_query_pictures(queries), lengths)

    def localize(
        self,
        features: Tensor,
        query: EncodedQuery,
        lengths: Tensor | None = None,
        runs: tuple[int, ...] | None = None,
    ) -> Predictions:
        """features [b, t, channels, side, side], a batch of queries; `lengths`, `runs` as in propagation."""
        fused, similarity = self.correspondence(features, query)
        return self._with_prior(self.head(*self.propagation(fused, lengths, runs)), similarity)

    def _with_prior(self, predictions: Predictions, similarity: Tensor) -> Predictions:
        """The head's score plus the prior chooses the candidate; of how far the head moves the best logit
        from the prior's, `head_score_weight` is kept."""
        prior = self.prior(similarity, predictions.logits.shape[-1])
        both = predictions.logits + prior
        change = both.amax(-1, keepdim=True) - prior.amax(-1, keepdim=True)
        return Predictions(predictions.boxes, both - (1 - self.config.head_score_weight) * change)

    # --- the parts that do not depend on each other: frames and queries ---

    def encode(self, pictures: Tensor, groups: PaddingGroups | None = None) -> Tensor:
        """[n, 3, size, size] normalised -> [n, channels, side, side]"""
        return self.encode_features(self.backbone(pictures, groups))

    def encode_features(self, features: Tensor) -> Tensor:
        """`encode` after the backbone, whose features several models may share."""
        return self.projection(features)

    def encode_query_pictures(
        self, pictures: Tensor, boxes_unit: Tensor | None = None, shown_unit: Tensor | None = None
    ) -> EncodedQuery:
        """[b, scales, 3, q px, q px] normalised -> a batch of queries; boxes as below"""
        features = self.backbone(rearrange(pictures, "b s c h w -> (b s) c h w"))
        features = rearrange(features, "(b s) c h w -> b s c h w", b=len(pictures))
        return self.encode_query_features(features, boxes_unit, shown_unit)

    def encode_query_features(
        self, features: Tensor, boxes_unit: Tensor | None = None, shown_unit: Tensor | None = None
    ) -> EncodedQuery:
        """The same after the backbone: [b, scales, channels, q side, q side].

        Boxes [b, scales, 4] of the thing in its crops, and of the picture, beyond which its edges are
        repeated; without them all of a crop is the thing.
        """
        boxes, shown = (
            (torch.tensor(WHOLE).expand(*features.shape[:2], 4) if places is None else places)
            .to(features.device, torch.float32)
            .flatten(0, 1)
            for places in (boxes_unit, shown_unit)
        )
        flat = features.flatten(0, 1)
        inside = patches_inside(boxes, self.config.query_side)
        background = torch.zeros_like(inside, dtype=torch.bool)
        if self.config.background_cosine is not None:
            background = background_patches(flat, inside, shown, self.config.background_cosine)
        vectors = self.projection(flat * inside.to(flat.dtype)).contiguous()  # products round by layout
        on_thing = (inside > 0).view(*features.shape[:2], *inside.shape[2:])
        return EncodedQuery(vectors.unflatten(0, features.shape[:2]), on_thing, background.view_as(on_thing))

    def encode_together(
        self,
        clips: Tensor,
        queries: Tensor,
        boxes_unit: Tensor | None = None,
        shown_unit: Tensor | None = None,
    ) -> tuple[Tensor, EncodedQuery]:
        """For training: clips [b, t, ..] and queries [b, scales, ..] -> what `localize` takes.

        Both are pictures, or stored features of the backbone (told apart by their channels).
        """
        frames = rearrange(clips, "b t c h w -> (b t) c h w")
        pictures = frames.shape[1] == 3
        features = self.encode(frames) if pictures else self.encode_features(frames)
        encode_query = self.encode_query_pictures if pictures else self.encode_query_features
        features = rearrange(features, "(b t) c h w -> b t c h w", b=len(clips))
        return features, encode_query(queries, boxes_unit, shown_unit)

    # --- lastseen.model.protocol ---

    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        letterbox = self.letterbox(frames.shape[2], frames.shape[1])
        groups = padding_groups(letterbox, self.patch) if group_padding else None
        return self.encode(letterboxed(frames, letterbox, self.config.padding), groups)

    def encode_query(self, picture: Tensor, box: Box, mask: Tensor | None = None) -> EncodedQuery:
        size, scales = self.config.query_size, self.config.query_scales
        crops, boxes, shown = query_crops(picture, box, size, scales)
        query = self.encode_query_pictures(normalised(crops)[None], boxes[None], shown[None]).row(0)
        if mask is None:
            return query
        crops, *_ = query_crops(mask_picture(mask), box, size, scales)
        return query.with_mask(F.avg_pool2d(crops[:, 0], self.config.backbone.patch))

    def localize_clip(self, features: Tensor, query: EncodedQuery) -> Predictions:
        return self.localize(features[None], query.as_batch())

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        fused, similarity = self.correspondence(features[None], query.as_batch())
        predictions = self.head(*self.propagation.overlapping(fused, context, first))
        return self._with_prior(predictions, similarity[:, first : len(features) - context])

    def frame_vectors(self, features: Tensor) -> Tensor:
        return F.normalize(features.float(), dim=1)

    def query_vectors(self, query: EncodedQuery) -> Tensor:
        vectors = rearrange(query.vectors, "s m h w -> (s h w) m").float()
        assert query.on_thing is not None
        return F.normalize(vectors[query.on_thing.flatten()], dim=1)

    def point_views(self, picture: Tensor, box: Box, point: tuple[float, float]) -> list[PointView]:
        return [point_in_square(picture, box, point, self.config.query_size)]


class UnitProjection(nn.Module):
    """Backbone features [n, c, h, w] -> unit vectors of the same shape; zeros stay zeros.

    Rotated by a constant orthogonal matrix, which keeps every cosine: the identity, but for models of before
    whose heads were trained on rotated features.
    """

    rotation: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("rotation", torch.eye(channels))

    def forward(self, features: Tensor) -> Tensor:
        rotated = torch.einsum("nchw,mc->nmhw", features, self.rotation.to(features.dtype))
        return F.normalize(rotated.float(), dim=1)


class SimilarityPrior(nn.Module):
    """Patch-similarity prior: a candidate's logit from the best cosine in its cell, and the best coverage.

    Heads learn what to add to it, so an untrained head is as good as plain matching.

    | in  | [b, t, 1 or 2, h, w] best cosines and coverage, how many candidates a frame has |
    | out | logits [b, t, candidates]                                                       |
    """

    def __init__(self, grid: int, coverage: bool = False) -> None:
        super().__init__()
        self.grid = grid
        scale, midpoint = (COSINE_SCALE, COSINE_MIDPOINT) if coverage else (12.0, 0.65)
        self.scale = nn.Parameter(torch.tensor(scale))  # logit per unit of cosine
        self.midpoint = nn.Parameter(torch.tensor(midpoint))  # cosine at which its part of the logit is 0
        if coverage:
            self.coverage_scale = nn.Parameter(torch.tensor(COVERAGE_SCALE))
            self.coverage_midpoint = nn.Parameter(torch.tensor(COVERAGE_MIDPOINT))

    def forward(self, similarity: Tensor, candidates: int) -> Tensor:
        pooled = F.adaptive_max_pool2d(similarity.float().flatten(0, 1), self.grid)
        best, *covered = pooled.view(*similarity.shape[:3], -1).unbind(2)
        logits = self.scale * (best - self.midpoint)
        for coverage in covered:
            logits = logits + self.coverage_scale * (coverage - self.coverage_midpoint)
        return logits.repeat_interleave(candidates // self.grid**2, 2)

"""VQLoC, single-stage visual query localization (Jiang, Ramakrishnan, Grauman, NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.box import Box, Letterbox
from lastseen.model.affinity import PointView, point_in_square
from lastseen.model.backbone import VIT_B, Backbone, BackboneConfig
from lastseen.model.config import checked_size, config_dict, config_from_dict
from lastseen.model.correspondence import ConvFusion, SpatialTransformer, conv_block
from lastseen.model.encoded_query import EncodedQuery
from lastseen.model.head import AnchorHead, Predictions, SingleBoxHead, make_head
from lastseen.model.inputs import letterboxed, normalised, patches_inside, query_crops
from lastseen.model.padding import PaddingGroups, padding_groups
from lastseen.model.propagation import GRID, SpatioTemporalTransformer
from lastseen.model.protocol import weights_fingerprint

WHOLE = (0.0, 0.0, 1.0, 1.0)  # a box in the unit square


@dataclass(frozen=True, kw_only=True)
class VQLoCConfig:
    """The paper's model by default; every field that its ablations vary can be set."""

    kind: ClassVar[str] = "vqloc"

    backbone: BackboneConfig = VIT_B
    image_size: int = 448  # px, of frames and of the query; or 224
    clip_length: int = 30  # frames
    dim: int = 256
    fusion: str = "attention"  # or "conv"
    spatial_layers: int = 1  # or 3
    attention_radius: int | None = 2  # frames on each side; None: the whole clip
    anchors: bool = True
    padding: float = 0.0  # grey value in [0, 1] around a frame that is not square
    # How the query is shown: nothing of it is in the weights. The paper: one square, which the thing fills.
    # Not in `repr`, of which fingerprints of before were made; `VQLoC.fingerprint` adds what differs.
    query_scales: tuple[float, ...] = field(
        default=(1.0,), repr=False
    )  # the thing's share of each crop's side
    masked_query: bool = field(default=False, repr=False)  # only patches in the thing's box are attended to

    def __post_init__(self) -> None:
        if self.fusion not in ("attention", "conv"):
            raise ValueError(f'fusion must be "attention" or "conv", got {self.fusion!r}')
        if not self.query_scales or not all(0 < scale <= 1 for scale in self.query_scales):
            raise ValueError(f"query_scales must be above 0, 1 at most, got {self.query_scales}")
        if self.fusion == "conv" and len(self.query_scales) > 1:
            raise ValueError(f'fusion "conv" takes one query scale, got {self.query_scales}')
        checked_size("image_size", self.image_size, self.backbone.patch)

    @property
    def side(self) -> int:
        """Patches along one edge of a frame, and of the query."""
        return self.image_size // self.backbone.patch

    @property
    def query_side(self) -> int:
        return self.side

    @property
    def query_size(self) -> int:
        return self.image_size

    def to_dict(self) -> dict[str, Any]:
        return config_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> VQLoCConfig:
        return config_from_dict(cls, data)


class VQLoC(nn.Module):
    """The four stages; `encode` once per video, `localize` once per query.

    | frames, queries         | [.., 3, size, size]    normalised RGB    |
    | features after `encode` | [n, dim, side, side]   query-independent |
    | Predictions             | [b, t, candidates, ..] boxes and logits  |
    """

    def __init__(
        self,
        config: VQLoCConfig,
        backbone: nn.Module,
        reduce: nn.Module,
        correspondence: SpatialTransformer | ConvFusion,
        propagation: SpatioTemporalTransformer,
        head: AnchorHead | SingleBoxHead,
    ) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone.requires_grad_(False)  # the paper's is frozen
        self.reduce = reduce
        self.correspondence = correspondence
        self.propagation = propagation
        self.head = head

    @classmethod
    def from_config(cls, config: VQLoCConfig) -> VQLoC:
        dim = config.dim
        return cls(
            config,
            Backbone(config.backbone),
            reduce=nn.Sequential(*conv_block(config.backbone.channels, dim), *conv_block(dim, dim)),
            correspondence=(
                SpatialTransformer(
                    dim,
                    layers=config.spatial_layers,
                    reachable=middle_patches(config.query_scales, config.side)
                    if config.masked_query
                    else None,
                )
                if config.fusion == "attention"
                else ConvFusion(dim, config.side)
            ),
            propagation=SpatioTemporalTransformer(
                dim,
                hidden=8 * dim,
                radius=config.attention_radius,
                clip_length=config.clip_length,
                side=config.side,
                grid=GRID,
            ),
            head=make_head(dim, anchors=config.anchors, image_size=config.image_size),
        )

    @property
    def title(self) -> str:
        fusion = {"attention": "cross-attention", "conv": "convolution"}[self.config.fusion]
        return f"VQLoC ({fusion}, {self.config.backbone.name}, {self.config.image_size} px)"

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
        shown = {f.name: getattr(self.config, f.name) for f in fields(self.config) if not f.repr}
        default = {f.name: f.default for f in fields(self.config) if not f.repr}
        return weights_fingerprint(self, self.config, *([] if shown == default else [shown]))

    def letterbox(self, width: int, height: int) -> Letterbox:
        return Letterbox.square(width, height, self.config.image_size)

    def forward(self, clips: Tensor, queries: Tensor, lengths: Tensor | None = None) -> Predictions:
        """clips [b, t, 3, size, size], queries [b, 3, size, size], or [b, scales, 3, size, size]; `lengths`
        [b] if clips are padded."""
        features = self.encode(rearrange(clips, "b t c h w -> (b t) c h w"))
        features = rearrange(features, "(b t) c h w -> b t c h w", b=len(clips))
        crops = queries if queries.ndim == 5 else queries[:, None]
        return self.localize(features, self.encode_query_pictures(crops), lengths)

    def localize(
        self,
        features: Tensor,
        query: EncodedQuery,
        lengths: Tensor | None = None,
        runs: tuple[int, ...] | None = None,
    ) -> Predictions:
        """features [b, t, dim, side, side], a batch of queries; `lengths` and `runs` as in propagation."""
        return self.head(*self.propagation(self.correspondence(features, query), lengths, runs))

    # --- the parts that do not depend on each other: frames and queries ---

    def encode(self, pictures: Tensor, groups: PaddingGroups | None = None) -> Tensor:
        """[n, 3, size, size] normalised -> [n, dim, side, side]"""
        return self.encode_features(self.backbone(pictures, groups))

    def encode_features(self, features: Tensor) -> Tensor:
        """`encode` after the backbone, whose features several models may share."""
        return self.correspondence.prepare(self.reduce(features))

    def encode_query_pictures(
        self, pictures: Tensor, boxes_unit: Tensor | None = None, shown_unit: Tensor | None = None
    ) -> EncodedQuery:
        """[b, scales, 3, size, size] normalised -> a batch of queries"""
        features = self.backbone(rearrange(pictures, "b s c h w -> (b s) c h w"))
        features = rearrange(features, "(b s) c h w -> b s c h w", b=len(pictures))
        return self.encode_query_features(features, boxes_unit, shown_unit)

    def encode_query_features(
        self, features: Tensor, boxes_unit: Tensor | None = None, shown_unit: Tensor | None = None
    ) -> EncodedQuery:
        """The same after the backbone: [b, scales, channels, side, side]. Boxes [b, scales, 4] of the thing
        in its crops count if the config masks the rest; without them all of a crop is the thing."""
        return self._query_of(self.reduce(features.flatten(0, 1)), boxes_unit, len(features))

    def _query_of(self, reduced: Tensor, boxes_unit: Tensor | None, batch: int) -> EncodedQuery:
        """Reduced crops [batch * scales, dim, side, side] -> a batch of queries"""
        vectors = rearrange(reduced, "(b s) c h w -> b s c h w", b=batch)
        if not self.config.masked_query:
            return EncodedQuery(vectors)
        whole = torch.tensor(WHOLE, device=reduced.device).expand(len(reduced), 4)
        boxes = whole if boxes_unit is None else boxes_unit.to(reduced.device).flatten(0, 1)
        on_thing = patches_inside(boxes, self.config.side) > 0
        return EncodedQuery(vectors, rearrange(on_thing, "(b s) 1 h w -> b s h w", b=batch))

    def encode_together(
        self,
        clips: Tensor,
        queries: Tensor,
        boxes_unit: Tensor | None = None,
        shown_unit: Tensor | None = None,
    ) -> tuple[Tensor, EncodedQuery]:
        """For training: clips [b, t, ..] and queries [b, scales, ..] -> what `localize` takes.

        Both are pictures, or stored features of the backbone (told apart by their channels). Frames and
        queries go through `reduce` as one batch: its batch norms learn one statistic, which inference uses.
        """
        crops = queries.flatten(0, 1)
        both = torch.cat([rearrange(clips, "b t c h w -> (b t) c h w"), crops])
        reduced = self.reduce(self.backbone(both) if both.shape[1] == 3 else both)
        frames, query = reduced[: -len(crops)], reduced[-len(crops) :]
        prepared = rearrange(self.correspondence.prepare(frames), "(b t) c h w -> b t c h w", b=len(clips))
        return prepared, self._query_of(query, boxes_unit, len(queries))

    # --- lastseen.model.protocol ---

    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        letterbox = self.letterbox(frames.shape[2], frames.shape[1])
        groups = padding_groups(letterbox, self.patch) if group_padding else None
        return self.encode(letterboxed(frames, letterbox, self.config.padding), groups)

    def encode_query(self, picture: Tensor, box: Box, mask: Tensor | None = None) -> EncodedQuery:
        """A mask of the thing is not used: the paper's network looks at all of the crop, or of the box."""
        crops, boxes, shown = query_crops(picture, box, self.config.query_size, self.config.query_scales)
        # Contiguous, whatever the backbone returns: convolutions round by memory layout.
        features = self.backbone(normalised(crops)).contiguous()
        return self.encode_query_features(features[None], boxes[None], shown[None]).row(0)

    def localize_clip(self, features: Tensor, query: EncodedQuery) -> Predictions:
        return self.localize(features[None], query.as_batch())

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        fused = self.correspondence(features[None], query.as_batch())
        return self.head(*self.propagation.overlapping(fused, context, first))

    def frame_vectors(self, features: Tensor) -> Tensor:
        return F.normalize(features.float(), dim=1)

    def query_vectors(self, query: EncodedQuery) -> Tensor:
        # The query's picture as if it were a frame: both have been through the same layers then.
        as_frame = rearrange(self.correspondence.prepare(query.vectors), "s m h w -> (s h w) m")
        kept = as_frame if query.on_thing is None else as_frame[query.on_thing.flatten()]
        return F.normalize(kept.float().contiguous(), dim=1)

    def point_views(self, picture: Tensor, box: Box, point: tuple[float, float]) -> list[PointView]:
        return [point_in_square(picture, box, point, self.config.query_size)]


def middle_patches(scales: Sequence[float], side: int) -> Tensor:
    """Of crops [scales, side, side], flattened: the patches in which a thing of these shares of the side can
    be. It is in the middle, but for scale 1; two patches on each side are for rounding."""
    places = []
    for number, scale in enumerate(scales):
        outside = 0 if scale == 1 else max(0, int(side * (1 - scale) / 2) - 2)
        inside = range(outside, side - outside)
        places += [(number * side + row) * side + column for row in inside for column in inside]
    return torch.tensor(places)

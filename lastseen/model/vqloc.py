"""VQLoC, single-stage visual query localization (Jiang, Ramakrishnan, Grauman, NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import dataclass
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
from lastseen.model.inputs import letterboxed, normalised, query_crop
from lastseen.model.padding import PaddingGroups, padding_groups
from lastseen.model.propagation import GRID, SpatioTemporalTransformer
from lastseen.model.protocol import weights_fingerprint


@dataclass(frozen=True, kw_only=True)
class VQLoCConfig:
    """The paper's model by default; every field that its ablations vary can be set."""

    kind: ClassVar[str] = "vqloc"
    query_scales: ClassVar[tuple[float, ...]] = (1.0,)  # one crop of the query, which the thing fills

    backbone: BackboneConfig = VIT_B
    image_size: int = 448  # px, of frames and of the query; or 224
    clip_length: int = 30  # frames
    dim: int = 256
    fusion: str = "attention"  # or "conv"
    spatial_layers: int = 1  # or 3
    attention_radius: int | None = 2  # frames on each side; None: the whole clip
    anchors: bool = True
    padding: float = 0.0  # grey value in [0, 1] around a frame that is not square

    def __post_init__(self) -> None:
        if self.fusion not in ("attention", "conv"):
            raise ValueError(f'fusion must be "attention" or "conv", got {self.fusion!r}')
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
                SpatialTransformer(dim, layers=config.spatial_layers)
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
        return weights_fingerprint(self, self.config)

    def letterbox(self, width: int, height: int) -> Letterbox:
        return Letterbox.square(width, height, self.config.image_size)

    def forward(self, clips: Tensor, queries: Tensor, lengths: Tensor | None = None) -> Predictions:
        """clips [b, t, 3, size, size], queries [b, 3, size, size]; `lengths` [b] if clips are padded."""
        features = self.encode(rearrange(clips, "b t c h w -> (b t) c h w"))
        features = rearrange(features, "(b t) c h w -> b t c h w", b=len(clips))
        return self.localize(features, self.encode_query_pictures(queries[:, None]), lengths)

    def localize(
        self,
        features: Tensor,
        query: EncodedQuery,
        lengths: Tensor | None = None,
        runs: tuple[int, ...] | None = None,
    ) -> Predictions:
        """features [b, t, dim, side, side], a batch of queries; `lengths` and `runs` as in propagation."""
        return self.head(*self.propagation(self.correspondence(features, query.vectors), lengths, runs))

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
        """[b, 1, 3, size, size] normalised -> a batch of queries"""
        return self.encode_query_features(self.backbone(pictures[:, 0])[:, None], boxes_unit, shown_unit)

    def encode_query_features(
        self, features: Tensor, boxes_unit: Tensor | None = None, shown_unit: Tensor | None = None
    ) -> EncodedQuery:
        """The same after the backbone: [b, 1, channels, side, side]. All of the crop is the query, so
        the boxes are not used."""
        return EncodedQuery(self.reduce(features[:, 0]))

    def encode_together(
        self,
        clips: Tensor,
        queries: Tensor,
        boxes_unit: Tensor | None = None,
        shown_unit: Tensor | None = None,
    ) -> tuple[Tensor, EncodedQuery]:
        """For training: clips [b, t, ..] and queries [b, 1, ..] -> what `localize` takes.

        Both are pictures, or stored features of the backbone (told apart by their channels). Frames and
        queries go through `reduce` as one batch: its batch norms learn one statistic, which inference uses.
        """
        both = torch.cat([rearrange(clips, "b t c h w -> (b t) c h w"), queries[:, 0]])
        reduced = self.reduce(self.backbone(both) if both.shape[1] == 3 else both)
        frames, query = reduced[: -len(queries)], reduced[-len(queries) :]
        prepared = rearrange(self.correspondence.prepare(frames), "(b t) c h w -> b t c h w", b=len(clips))
        return prepared, EncodedQuery(query)

    # --- lastseen.model.protocol ---

    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        letterbox = self.letterbox(frames.shape[2], frames.shape[1])
        groups = padding_groups(letterbox, self.patch) if group_padding else None
        return self.encode(letterboxed(frames, letterbox, self.config.padding), groups)

    def encode_query(self, picture: Tensor, box: Box, mask: Tensor | None = None) -> EncodedQuery:
        """All of the crop is the query, so a mask is not used."""
        features = self.backbone(normalised(query_crop(picture, box, self.config.query_size)))
        # Contiguous, whatever the backbone returns: convolutions round by memory layout.
        return self.encode_query_features(features[:, None].contiguous()).row(0)

    def localize_clip(self, features: Tensor, query: EncodedQuery) -> Predictions:
        return self.localize(features[None], query.as_batch())

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        fused = self.correspondence(features[None], query.vectors[None])
        return self.head(*self.propagation.overlapping(fused, context, first))

    def frame_vectors(self, features: Tensor) -> Tensor:
        return F.normalize(features.float(), dim=1)

    def query_vectors(self, query: EncodedQuery) -> Tensor:
        # The query's picture as if it were a frame: both have been through the same layers then.
        as_frame = self.correspondence.prepare(query.vectors[None])[0]
        return F.normalize(rearrange(as_frame, "m h w -> (h w) m").float().contiguous(), dim=1)

    def point_views(self, picture: Tensor, box: Box, point: tuple[float, float]) -> list[PointView]:
        return [point_in_square(picture, box, point, self.config.query_size)]

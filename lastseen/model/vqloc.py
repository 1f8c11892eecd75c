"""VQLoC: single-stage visual query localization (Jiang, Ramakrishnan, Grauman, NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from lastseen.box import Box, Letterbox
from lastseen.model.backbone import VIT_B, Backbone, BackboneConfig
from lastseen.model.correspondence import ConvFusion, SpatialTransformer, conv_block
from lastseen.model.head import AnchorHead, Predictions, SingleBoxHead
from lastseen.model.inputs import (
    letterboxed,
    normalised,
    patches_inside,
    places_in_crops,
    query_crop,
)
from lastseen.model.propagation import SpatioTemporalTransformer
from lastseen.model.similarity import (
    MOST_ACROSS,
    Likeness,
    MatchFusion,
    MatchingReduce,
    MatchingTransformer,
    lengths_of_patches,
)

GRID = 8  # the propagation's grid; the head's is twice as fine


@dataclass(frozen=True, kw_only=True)
class VQLoCConfig:
    """The paper's model by default; every field that its ablations vary can be set."""

    backbone: BackboneConfig = VIT_B
    image_size: int = 448  # or 224
    clip_length: int = 30  # frames
    dim: int = 256
    fusion: str = "attention"  # or "conv"; ours: "match", similarity maps alone (needs match_dim)
    spatial_layers: int = 1  # or 3
    attention_radius: int | None = 2  # frames on each side; None: the whole clip
    anchors: bool = True
    match_dim: int = 0  # ours: channels of the vectors whose similarity is mapped; 0: none, as in the paper
    query_shares: tuple[float, ...] = (1.0,)  # ours, with "match": the thing's part of each picture of it
    query_size: int | None = None  # ours, with "match": px of the query's pictures; none: image_size
    heads_say: float = 1.0  # ours, with "match": how far heads may change how sure likeness is of a frame
    mask_query: bool = False  # ours: patches of a query that are not the thing's do not count
    query_background: float | None = None  # ours, with both: what of its box is as like its surroundings
    fine: bool = False  # ours: the head also sees the frame at its own grid, not only what propagation shrank
    padding: float = 0.0  # grey value in [0, 1] around a frame that is not square

    def __post_init__(self) -> None:
        if self.fusion not in ("attention", "conv", "match"):
            raise ValueError(f'fusion must be "attention", "conv" or "match", got {self.fusion!r}')
        if bool(self.match_dim) != (self.fusion == "match") and self.fusion != "attention":
            raise ValueError('fusion "match" needs match_dim, and fusion "conv" takes none')
        if self.query_shares[:1] != (1.0,) or not all(0 < share <= 1 for share in self.query_shares):
            raise ValueError(f"query_shares must begin with 1 and be above 0, got {self.query_shares}")
        if len(self.query_shares) > 1 and self.fusion != "match":
            raise ValueError('several query_shares need fusion "match"')
        if not 0 <= self.heads_say <= 1 or (self.heads_say < 1 and self.fusion != "match"):
            raise ValueError(f'heads_say must be 0 to 1, and 1 without fusion "match", got {self.heads_say}')
        if self.query_background is not None and not (self.mask_query and self.fusion == "match"):
            raise ValueError('query_background needs mask_query and fusion "match"')
        if self.query_background is not None and self.query_side > MOST_ACROSS:
            largest = MOST_ACROSS * self.backbone.patch
            raise ValueError(f"query_background needs a query_size of at most {largest}, got {self.query_px}")
        if self.image_size % self.backbone.patch:
            raise ValueError(f"image_size must be a multiple of {self.backbone.patch}, got {self.image_size}")
        if self.query_px != self.image_size and self.fusion != "match":
            raise ValueError('a query_size other than image_size needs fusion "match"')
        # Whole patches, and an even number of them: what is around the thing is cut off evenly.
        if self.query_size is not None and (
            self.query_size < 1 or self.query_size % (2 * self.backbone.patch)
        ):
            raise ValueError(
                f"query_size must be a multiple of {2 * self.backbone.patch}, got {self.query_size}"
            )

    @property
    def side(self) -> int:
        """Patches along one edge of a frame."""
        return self.image_size // self.backbone.patch

    @property
    def query_px(self) -> int:
        return self.image_size if self.query_size is None else self.query_size

    @property
    def query_side(self) -> int:
        """Patches along one edge of a query's picture."""
        return self.query_px // self.backbone.patch

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> VQLoCConfig:
        unknown = set(data) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"unknown fields in the model's config: {', '.join(sorted(unknown))}")
        backbone = {**data["backbone"], "blocks": tuple(data["backbone"]["blocks"])}
        shares = tuple(data.get("query_shares", (1.0,)))
        return cls(**{**data, "backbone": BackboneConfig(**backbone), "query_shares": shares})


class VQLoC(nn.Module):
    """The four stages; `encode` once per video, `localize` once per query.

    | frames, queries          | [.., 3, size, size]      normalised RGB         |
    | features after `encode`  | [n, dim (+ match_dim), side, side]  query-independent |
    | Predictions              | [b, t, candidates, ..]   boxes and logits       |

    A query's pictures may have a size of their own: below, `q size` and `q side`.
    """

    def __init__(
        self,
        config: VQLoCConfig,
        backbone: nn.Module,
        reduce: nn.Module,
        correspondence: SpatialTransformer | ConvFusion | MatchFusion,
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
        self.likeness = Likeness() if isinstance(correspondence, MatchFusion) else None

    @classmethod
    def from_config(cls, config: VQLoCConfig) -> VQLoC:
        channels, dim, match = config.backbone.channels, config.dim, config.match_dim
        reduce: nn.Module = nn.Sequential(*conv_block(channels, dim), *conv_block(dim, dim))
        correspondence: SpatialTransformer | ConvFusion | MatchFusion
        if config.fusion == "match":
            reduce, correspondence = (
                MatchingReduce(channels, 0, match),
                MatchFusion(dim, config.query_shares, config.query_background is not None),
            )
        elif config.fusion == "conv":
            correspondence = ConvFusion(dim, config.side)
        elif match:
            reduce = MatchingReduce(channels, dim, match)
            correspondence = MatchingTransformer(dim, layers=config.spatial_layers)
        else:
            correspondence = SpatialTransformer(dim, layers=config.spatial_layers)
        propagation = SpatioTemporalTransformer(
            config.dim,
            hidden=8 * config.dim,
            radius=config.attention_radius,
            clip_length=config.clip_length,
            side=config.side,
            grid=GRID,
            fine=config.fine,
        )
        head = (
            AnchorHead(config.dim, grid=2 * GRID, image_size=config.image_size, fine=config.fine)
            if config.anchors
            else SingleBoxHead(config.dim, fine=config.fine)
        )
        return cls(config, Backbone(config.backbone), reduce, correspondence, propagation, head)

    @property
    def title(self) -> str:
        return f"VQLoC (ViT/14 of width {self.config.backbone.dim}, {self.config.image_size} px)"

    @property
    def clip_length(self) -> int:
        return self.config.clip_length

    @property
    def context(self) -> int:
        """How many frames on each side a frame's prediction depends on (a quarter clip if on all).

        Less than half a clip, though: clips that overlap by more would never get on.
        """
        context = self.propagation.context
        return self.clip_length // 4 if context is None else min(context, (self.clip_length - 1) // 2)

    @property
    def padding(self) -> float:
        return self.config.padding

    def letterbox(self, width: int, height: int) -> Letterbox:
        return Letterbox.square(width, height, self.config.image_size)

    def forward(self, clips: Tensor, queries: Tensor, lengths: Tensor | None = None) -> Predictions:
        """clips [b, t, 3, size, size], queries [b, 3, q size, q size]; `lengths` [b] if clips are padded."""
        features = self.encode(rearrange(clips, "b t c h w -> (b t) c h w"))
        features = rearrange(features, "(b t) c h w -> b t c h w", b=len(clips))
        return self.localize(features, self.encode_query(queries), lengths)

    def encode(self, frames: Tensor) -> Tensor:
        """All that does not depend on the query: [n, 3, size, size] -> [n, dim, side, side]."""
        return self.prepare(self.backbone(frames))

    def prepare(self, features: Tensor) -> Tensor:
        """`encode` after the backbone: many heads may share its features."""
        return self.correspondence.prepare(self.reduce(features))

    def prepare_query(self, features: Tensor, boxes_unit: Tensor, pictures_unit: Tensor) -> Tensor:
        """Backbone features [b, shares * channels, q side, q side] of query crops; the things' boxes in them
        [b, shares, 4], and the pictures', beyond which edges are repeated"""
        shares, background = len(self.config.query_shares), self.config.query_background
        features = rearrange(features, "b (s c) h w -> (b s) c h w", s=shares)
        boxes, pictures = (places.flatten(0, 1).to(features) for places in (boxes_unit, pictures_unit))
        inside = patches_inside(boxes, self.config.query_side)
        reduced = self.reduce(features * inside if self.config.mask_query else features)
        if background is not None:
            reduced = reduced * lengths_of_patches(features, inside, pictures, background)
        return rearrange(reduced, "(b s) c h w -> b (s c) h w", s=shares)

    def encode_query(self, queries: Tensor) -> Tensor:
        """[b, shares * 3, q size, q size]; all of a picture counts as the thing."""
        shares = len(self.config.query_shares)
        features = self.backbone(rearrange(queries, "b (s c) h w -> (b s) c h w", s=shares))
        return rearrange(self.reduce(features), "(b s) c h w -> b (s c) h w", s=shares)

    def encode_together(
        self, clips: Tensor, queries: Tensor, query_lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """For training: clips [b, t, ..] and queries [b, ..] -> what `localize` takes; `query_lengths`
        [b, shares, q side, q side] of its vectors, if some of a query is not the thing.

        Both may be pictures, or features that the backbone made earlier (told by their channels).
        Frames and queries go through `reduce` as one: its batch norms learn one statistic for both,
        the one that inference uses. Of two sizes they cannot, but then it has no batch norm.
        """
        shares = len(self.config.query_shares)
        frames = rearrange(clips, "b t c h w -> (b t) c h w")
        query = rearrange(queries, "b (s c) h w -> (b s) c h w", s=shares)
        if self.config.query_side == self.config.side:
            reduced = self._reduced(torch.cat([frames, query]))
            frames, query = reduced[: len(frames)], reduced[len(frames) :]
        else:
            frames, query = self._reduced(frames), self._reduced(query)
        if query_lengths is not None:
            query = query * rearrange(query_lengths, "b s h w -> (b s) 1 h w").to(query.dtype)
        prepared = rearrange(self.correspondence.prepare(frames), "(b t) c h w -> b t c h w", b=len(clips))
        return prepared, rearrange(query, "(b s) c h w -> b (s c) h w", s=shares)

    def _reduced(self, inputs: Tensor) -> Tensor:
        return self.reduce(self.backbone(inputs) if inputs.shape[1] == 3 else inputs)

    def localize(
        self,
        features: Tensor,
        query: Tensor,
        lengths: Tensor | None = None,
        runs: tuple[int, ...] | None = None,
    ) -> Predictions:
        """features [b, t, dim, side, side] of `encode`, query [b, dim, q side, q side] of `encode_query`.

        `lengths` and `runs` as in `SpatioTemporalTransformer`.
        """
        if self.likeness is None:
            return self.head(*self.propagation(self.correspondence(features, query), lengths, runs))
        seen, likest = self.correspondence(features, query)
        return self._with_likeness(self.head(*self.propagation(seen, lengths, runs)), likest)

    def _with_likeness(self, said: Predictions, likest: Tensor) -> Predictions:
        """Heads and likeness together choose the candidate; how sure it is, mostly likeness says."""
        assert self.likeness is not None
        grid = 2 * GRID if self.config.anchors else 1
        alike = self.likeness(likest, said.logits.shape[-1], grid)
        both = said.logits + alike
        change = both.amax(-1, keepdim=True) - alike.amax(-1, keepdim=True)
        return Predictions(said.boxes, both - (1 - self.config.heads_say) * change)

    def localize_run(self, features: Tensor, query: Tensor, context: int, first: int) -> Predictions:
        """Many overlapping clips at once; only propagation computes a frame for each clip that it is in.

        features [n, dim, side, side] of clips that begin `clip_length - 2 context` frames after each other
        and end with the last, one view's query -> Predictions [1, n - context - first, ..] of the frames
        from `first` (at most `context`) on, all but the last `context`.
        """
        length, step = self.clip_length, self.clip_length - 2 * context
        seen = self.correspondence(features[None], query[None])
        seen, likest = (seen, None) if self.likeness is None else seen
        tokens, half = self.propagation.shrunk(seen)
        clips = rearrange(tokens[0].unfold(0, length, step), "b s c t -> b t s c")
        done = self.propagation.propagated(clips)
        kept = torch.cat([done[0, first:context], done[:, context : length - context].flatten(0, 1)])
        shown = slice(first, len(features) - context)
        said = self.head(*self.propagation.grown(kept[None], half[:, shown]))
        return said if likest is None else self._with_likeness(said, likest[:, shown])

    # --- pictures as they come: what Localizer calls ---

    def encode_frames(self, frames: Tensor) -> Tensor:
        """[n, h, w, 3] uint8 -> features [n, dim, side, side]"""
        letterbox = self.letterbox(frames.shape[2], frames.shape[1])
        return self.encode(letterboxed(frames, letterbox, self.config.padding))

    def encode_view(self, picture: Tensor, box: Box) -> Tensor:
        """A query's picture [h, w, 3] uint8 and the thing's box in it -> [dim, q side, q side]"""
        size, shares = self.config.query_px, self.config.query_shares
        crops = torch.cat([query_crop(picture, box, size, share) for share in shares])
        features = rearrange(self.backbone(normalised(crops)), "s c h w -> 1 (s c) h w")
        boxes, pictures = places_in_crops(picture, box, shares)
        return self.prepare_query(features, boxes[None], pictures[None])[0]

    def localize_clip(self, features: Tensor, query: Tensor) -> Predictions:
        """features [t, dim, side, side] of one clip, one view's query -> Predictions [1, t, ..]"""
        return self.localize(features[None], query[None])

"""STARK as the paper's authors ran it, and the same with positions.

Query and frame tokens are concatenated, without telling them apart, and read by one encoder; a learned
embedding for each frame decodes that frame's box and whether the thing is there. There is no template, search
region or state: it is not the STARK tracker (docs/rivals.md). With positions (`StarkConfig.positions`), both
token sets carry sine positions and the box comes from a corner head over the frame's tokens, as in the
tracker's paper.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.baselines.detector import maps_of_frames
from lastseen.box import Box, Letterbox
from lastseen.model import Backbone, BackboneConfig, EncodedQuery, Predictions
from lastseen.model.attention import FeedForward, MultiHead
from lastseen.model.config import checked_size, config_dict, config_from_dict
from lastseen.model.correspondence import conv_block
from lastseen.model.head import corners, init_near_zero
from lastseen.model.inputs import normalised, query_crop
from lastseen.model.padding import PaddingGroups
from lastseen.model.protocol import weights_fingerprint


@dataclass(frozen=True, kw_only=True)
class StarkConfig:
    """The authors' sizes; the backbone is ours."""

    kind: ClassVar[str] = "stark"
    query_scales: ClassVar[tuple[float, ...]] = (1.0,)  # one crop of the query, which the thing fills

    backbone: BackboneConfig
    image_size: int = 448  # px, of frames and of the query
    clip_length: int = 30
    dim: int = 256
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_hidden: int = 2048
    decoder_hidden: int = 1024
    positions: bool = False
    padding: float = 0.0

    def __post_init__(self) -> None:
        checked_size("image_size", self.image_size, 2 * self.backbone.patch)
        checked_size("dim", self.dim, 8)

    @property
    def side(self) -> int:
        """Patches along one edge of a frame, and of the query; tokens are half as many."""
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
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return config_from_dict(cls, data)


class Stark(nn.Module):
    """| frames, queries | [.., 3, size, size] normalised RGB       |
    | features        | [n, dim, side / 2, side / 2]               |
    | Predictions     | [b, t, 1, 4] boxes and [b, t, 1] logits    |
    """

    def __init__(self, config: StarkConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.backbone: nn.Module = Backbone(config.backbone).requires_grad_(False)
        self.reduce = nn.Sequential(
            *conv_block(config.backbone.channels, dim), *conv_block(dim, dim), *conv_block(dim, dim, stride=2)
        )
        self.encoder = nn.ModuleList(
            EncoderLayer(dim, config.encoder_hidden) for _ in range(config.encoder_layers)
        )
        self.frames = nn.Parameter(torch.zeros(config.clip_length, dim))  # one embedding a frame
        self.decoder = nn.ModuleList(
            DecoderLayer(dim, config.decoder_hidden) for _ in range(config.decoder_layers)
        )
        self.output = PooledHead(dim)
        self.corner = CornerHead(dim) if config.positions else None

    @property
    def name(self) -> str:
        return "STARK with positions" if self.config.positions else "STARK"

    @property
    def title(self) -> str:
        return f"{self.name} ({self.config.backbone.name}, {self.config.image_size} px)"

    @property
    def clip_length(self) -> int:
        return self.config.clip_length

    @property
    def context(self) -> int:
        return 0

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

    def encode_together(self, clips: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Features of the backbone, of clips [b, t, c, side, side] and queries [b, c, side, side], through
        `reduce` as one batch: its batch norms learn one statistic, which inference uses."""
        b = len(clips)
        both = self.reduce(torch.cat([rearrange(clips, "b t c h w -> (b t) c h w"), queries]))
        return rearrange(both[:-b], "(b t) c h w -> b t c h w", b=b), both[-b:]

    def localize(self, features: Tensor, query: Tensor) -> Predictions:
        """features [b, t, dim, h, w], query [b, dim, h, w]"""
        b, t, _, h, w = features.shape
        frames = rearrange(features, "b t c h w -> (b t) (h w) c")
        asked = rearrange(query, "b c h w -> b (h w) c").repeat_interleave(t, 0)
        if self.config.positions:
            places = sine_positions(h, w, self.config.dim).to(frames)
            frames, asked = frames + places, asked + places
        tokens = joined(frames, asked)
        for layer in self.encoder:
            tokens = layer(tokens)
        memory = rearrange(tokens[:, : h * w], "(b t) l c -> b t l c", b=b)
        state = self.frames[:t].expand(b, -1, -1).to(memory.dtype)
        for layer in self.decoder:
            state = layer(state, memory)
        boxes, logits = self.output(state)
        if self.corner is not None:
            boxes = self.corner(memory, state, h, w)
        return Predictions(boxes[:, :, None], logits[:, :, None])

    # --- lastseen.model.protocol ---

    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        return self.reduce(maps_of_frames(self, self.backbone, frames, group_padding))

    def encode(self, pictures: Tensor, groups: PaddingGroups | None = None) -> Tensor:
        return self.reduce(self.backbone(pictures, groups))

    def encode_query(self, picture: Tensor, box: Box, mask: Tensor | None = None) -> EncodedQuery:
        """All of the crop is the query, so a mask is not used."""
        features = self.backbone(normalised(query_crop(picture, box, self.config.query_size)))
        return EncodedQuery(self.reduce(features.contiguous().to(self.frames.dtype))[0])

    def localize_clip(self, features: Tensor, query: EncodedQuery) -> Predictions:
        return self.localize(features[None], query.vectors[None].to(features.dtype))

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        """Clips side by side."""
        clips = rearrange(features, "(b t) c h w -> b t c h w", t=self.clip_length)
        found = self.localize(clips, query.vectors[None].expand(len(clips), -1, -1, -1).to(features.dtype))
        return Predictions(*(part.flatten(0, 1)[None, first : len(features) - context] for part in found))

    def frame_vectors(self, features: Tensor) -> Tensor:
        return F.normalize(features.float(), dim=1)

    def query_vectors(self, query: EncodedQuery) -> Tensor:
        return F.normalize(rearrange(query.vectors, "c h w -> (h w) c").float().contiguous(), dim=1)

    def in_half(self, backbone: nn.Module, dtype: torch.dtype) -> Self:
        """A copy that computes in `dtype`, with this backbone in place of its own."""
        backbones, self._modules["backbone"] = self._modules["backbone"], None
        try:
            other = copy.deepcopy(self).to(dtype)
        finally:
            self._modules["backbone"] = backbones
        other.backbone = backbone
        return other.eval()


def joined(frames: Tensor, query: Tensor) -> Tensor:
    """Frame and query tokens in one sequence; nothing says which is which."""
    return torch.cat([frames, query], 1)


class EncoderLayer(nn.Module):
    """Post-norm self-attention and feed-forward of tokens [n, l, dim]."""

    def __init__(self, dim: int, hidden: int, heads: int = 8) -> None:
        super().__init__()
        self.attention, self.attention_norm = MultiHead(dim, heads), nn.LayerNorm(dim)
        self.feed_forward, self.feed_norm = FeedForward(dim, hidden), nn.LayerNorm(dim)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self.attention_norm(tokens + self.attention(tokens, tokens))
        return self.feed_norm(tokens + self.feed_forward(tokens))


class DecoderLayer(nn.Module):
    """State [b, t, dim], memory [b, t, l, dim] -> [b, t, dim]

    Self-attention over the frames of the clip twice, as in the authors' code, then cross-attention, in which
    the embedding of a frame sees that frame's tokens only.
    """

    def __init__(self, dim: int, hidden: int, heads: int = 4) -> None:
        super().__init__()
        self.over_time = MultiHead(dim, heads)
        self.attention, self.attention_norm = MultiHead(dim, heads), nn.LayerNorm(dim)
        self.to_frame, self.to_frame_norm = MultiHead(dim, heads), nn.LayerNorm(dim)
        self.feed_forward, self.feed_norm = FeedForward(dim, hidden), nn.LayerNorm(dim)

    def forward(self, state: Tensor, memory: Tensor) -> Tensor:
        b = len(state)
        state = state + self.over_time(state, state)
        state = self.attention_norm(state + self.attention(state, state))
        alone = rearrange(state, "b t c -> (b t) 1 c")
        seen = self.to_frame(alone, rearrange(memory, "b t l c -> (b t) l c"))
        state = self.to_frame_norm(state + rearrange(seen, "(b t) 1 c -> b t c", b=b))
        return self.feed_norm(state + self.feed_forward(state))


class PooledHead(nn.Module):
    """State [b, t, dim] -> boxes [b, t, 4] in the unit square and logits [b, t]"""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, dim // 2)
        self.norm = nn.BatchNorm1d(dim // 2)
        self.out = nn.Linear(dim // 2, 5)
        init_near_zero(self.out)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        flat = F.leaky_relu(self.norm(self.hidden(state).flatten(0, 1)))
        box, logit = self.out(flat).float().view(*state.shape[:2], 5).split((4, 1), -1)
        # Sigmoid: an untrained head predicts the middle of the picture at half its size.
        return corners(box.sigmoid()), logit[..., 0]


class CornerHead(nn.Module):
    """Memory [b, t, l, dim] of h x w tokens, weighted by their similarity with the frame's state [b, t, dim]
    -> boxes [b, t, 4]: the expected place of each corner under a map of probabilities."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        widths = (dim, dim, dim // 2, dim // 4, dim // 8)
        self.towers = nn.ModuleList(
            nn.Sequential(
                *(layer for pair in pairwise(widths) for layer in _tower_block(*pair)),
                nn.Conv2d(widths[-1], 1, 1),
            )
            for _ in range(2)
        )

    def forward(self, memory: Tensor, state: Tensor, h: int, w: int) -> Tensor:
        b = len(memory)
        weights = torch.einsum("btlc,btc->btl", memory, state) / memory.shape[-1] ** 0.5
        weighted = memory * weights[..., None]
        maps = rearrange(weighted, "b t (h w) c -> (b t) c h w", h=h)
        places = [soft_argmax(tower(maps).float()) for tower in self.towers]
        # A box from corners in the wrong order is the box between them.
        first, second = torch.minimum(*places), torch.maximum(*places)
        return rearrange(torch.cat([first, second], -1), "(b t) four -> b t four", b=b)


def _tower_block(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]


def soft_argmax(maps: Tensor) -> Tensor:
    """[n, 1, h, w] -> [n, 2] the expected x and y in the unit square"""
    h, w = maps.shape[2:]
    share = maps.flatten(1).softmax(1).view(-1, h, w)
    x, y = ((torch.arange(size, device=maps.device) + 0.5) / size for size in (w, h))
    return torch.stack([(share.sum(1) * x).sum(1), (share.sum(2) * y).sum(1)], -1)


def sine_positions(rows: int, columns: int, dim: int) -> Tensor:
    """[rows * columns, dim]: half of the channels tell the row, half the column"""
    each = dim // 4
    rates = torch.exp(-math.log(10_000.0) * torch.arange(each) / each)
    y, x = torch.meshgrid(torch.arange(rows) + 0.5, torch.arange(columns) + 0.5, indexing="ij")
    parts = []
    for place, size in ((y, rows), (x, columns)):
        phase = 2 * math.pi * place.flatten()[:, None] / size * rates
        parts += [phase.sin(), phase.cos()]
    return torch.cat(parts, -1)

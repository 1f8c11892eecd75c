"""Query-to-frame correspondence: the paper's spatial transformer, and the fusion of its ablation.

Both are split at the query: `prepare` is the part that depends on the frame alone (once per video),
`forward` the part that needs the query (once per query).
"""

from __future__ import annotations

from typing import cast

import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from lastseen.model.attention import FeedForward, MultiHead
from lastseen.model.encoded_query import EncodedQuery


def conv_block(channels_in: int, channels_out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride, 1), nn.BatchNorm2d(channels_out), nn.LeakyReLU(0.01)
    )


class SpatialTransformer(nn.Module):
    """Self-attention within each frame, then cross-attention to the query, in 1 (the paper) or more layers.

    | prepare | frames [n, c, h, w] -> the same shape                                       |
    | forward | prepared [b, t, c, h, w], queries of vectors [b, s, c, q, q] -> as prepared |

    A query with `on_thing` is looked at in those patches alone. `reachable` are the patches, of all s q q,
    that can be among them: the others are left out before attention. None: all.
    """

    reachable: Tensor | None

    def __init__(
        self,
        dim: int = 256,
        heads: int = 4,
        hidden: int = 1024,
        layers: int = 1,
        reachable: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SpatialLayer(dim, heads, hidden) for _ in range(layers))
        self.register_buffer("reachable", reachable, persistent=False)

    def prepare(self, frames: Tensor) -> Tensor:
        first = cast(SpatialLayer, self.layers[0])
        tokens = first.attend_to_frame(rearrange(frames, "n c h w -> n (h w) c"))
        return rearrange(tokens, "n (h w) c -> n c h w", h=frames.shape[2])

    def forward(self, prepared: Tensor, query: EncodedQuery) -> Tensor:
        batch, time, _, height, _ = prepared.shape
        context, seen = self._context(query)
        tokens = rearrange(prepared, "b t c h w -> b (t h w) c")
        for number, layer in enumerate(cast(list[SpatialLayer], self.layers)):
            if number:  # the first layer's self-attention was done in `prepare`
                frames = rearrange(tokens, "b (t s) c -> (b t) s c", t=time)
                tokens = rearrange(layer.attend_to_frame(frames), "(b t) s c -> b (t s) c", b=batch)
            # Tokens attend to the query independently of each other, so a clip's frames go at once.
            tokens = layer.attend_to_query(tokens, context, seen)
        return rearrange(tokens, "b (t h w) c -> b t c h w", t=time, h=height)

    def _context(self, query: EncodedQuery) -> tuple[Tensor, Tensor | None]:
        """The query's patches [b, k, c], and which of them may be looked at [b, 1, 1, k]"""
        patches = rearrange(query.vectors, "b s c h w -> b (s h w) c")
        if query.on_thing is None:
            return patches, None
        seen = query.on_thing.flatten(1)
        if self.reachable is not None:
            patches, seen = patches.index_select(1, self.reachable), seen.index_select(1, self.reachable)
        return patches, seen[:, None, None]


class SpatialLayer(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.frame_attention = MultiHead(dim, heads)
        self.frame_norm = nn.LayerNorm(dim)
        self.query_attention = MultiHead(dim, heads)
        self.query_norm = nn.LayerNorm(dim)
        self.feed_forward = FeedForward(dim, hidden)
        self.feed_norm = nn.LayerNorm(dim)

    def attend_to_frame(self, tokens: Tensor) -> Tensor:
        return self.frame_norm(tokens + self.frame_attention(tokens, tokens))

    def attend_to_query(self, tokens: Tensor, query: Tensor, seen: Tensor | None = None) -> Tensor:
        tokens = self.query_norm(tokens + self.query_attention(tokens, query, seen))
        return self.feed_norm(tokens + self.feed_forward(tokens))


class ConvFusion(nn.Module):
    """The paper's ablation: the query pooled to one vector, laid beside every patch, then convolved.

    Of a query with `on_thing` the other patches are zeros.
    """

    def __init__(self, dim: int = 256, query_side: int = 32) -> None:
        super().__init__()
        halvings = query_side.bit_length() - 1  # until one cell is left: 32 -> 16 -> 8 -> 4 -> 2 -> 1
        self.pool = nn.Sequential(*(conv_block(dim, dim, stride=2) for _ in range(halvings)))
        self.fuse = nn.Sequential(conv_block(2 * dim, dim), conv_block(dim, dim))

    def prepare(self, frames: Tensor) -> Tensor:
        return frames

    def forward(self, prepared: Tensor, query: EncodedQuery) -> Tensor:
        batch, time, _, height, width = prepared.shape
        picture = query.vectors[:, 0]
        if query.on_thing is not None:
            picture = picture * query.on_thing.to(picture.dtype)
        tiled = repeat(self.pool(picture).mean((2, 3)), "b c -> (b t) c h w", t=time, h=height, w=width)
        frames = rearrange(prepared, "b t c h w -> (b t) c h w")
        return rearrange(self.fuse(torch.cat([frames, tiled], 1)), "(b t) c h w -> b t c h w", b=batch)

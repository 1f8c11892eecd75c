"""What quick models are made of: parts of the exact ones, with fewer passes over memory."""

from __future__ import annotations

import copy
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lastseen.engine.fused import added, attended, conv_leaky, local_attention, norm_of
from lastseen.model.backbone import Block, Mlp, SwiGLU
from lastseen.model.correspondence import SpatialLayer
from lastseen.model.head import Trunk
from lastseen.model.propagation import TemporalLayer


class Gelu(nn.Module):
    """A layer with GELU in its kernel: on GPUs its tanh form, which rounds to the same."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, tokens: Tensor) -> Tensor:
        rows, linear = tokens.flatten(0, -2), self.linear
        hidden = torch._addmm_activation(linear.bias, rows, linear.weight.t(), use_gelu=True)
        return hidden.view(*tokens.shape[:-1], -1)


class Gated(nn.Module):
    """A layer that gives twice what is asked of it; one half opens the other."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, tokens: Tensor) -> Tensor:
        gate, value = self.linear(tokens).chunk(2, -1)
        return F.silu(gate) * value


class GeluMlp(nn.Sequential):
    def __init__(self, up: nn.Linear, down: nn.Linear) -> None:
        super().__init__(Gelu(up), down)


class QuickBlock(nn.Module):
    """A Block, LayerScale folded. Its first norm is taken before it. Two products go into the tokens, which
    stay without their biases: those are the same for all tokens, so norms add what is owed up to there.

    | in  | tokens [n, l, c], changed in place on GPUs; `norm1` of them; biases owed before `norm2` [c] |
    | out | tokens |
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        made = copy.deepcopy(block)
        attention, mlp = made.attn, made.mlp
        self.norm1, self.norm2 = made.norm1, made.norm2
        self.qkv, self.heads = attention.qkv, attention.heads
        self.hidden = Gelu(mlp.fc1) if isinstance(mlp, Mlp) else Gated(mlp.w12)
        self.mix_weight = _scaled(attention.proj, block.ls1.gamma)[0]
        self.down_weight = _scaled(_last(mlp), block.ls2.gamma)[0]

    def forward(self, tokens: Tensor, normed: Tensor, owed: Tensor) -> Tensor:
        tokens = attended(tokens, self.qkv(normed), self.heads, self.mix_weight)
        return added(tokens, self.hidden(norm_of(tokens, owed, self.norm2)), self.down_weight)


def biases_of(block: Block) -> list[Tensor]:
    """Of both products, which a QuickBlock leaves out"""
    return [
        _scaled(block.attn.proj, block.ls1.gamma)[1],
        _scaled(_last(block.mlp), block.ls2.gamma)[1],
    ]


def _last(mlp: Mlp | SwiGLU) -> nn.Linear:
    return mlp.w3 if isinstance(mlp, SwiGLU) else mlp.fc2


def _scaled(linear: nn.Linear, gamma: Tensor) -> tuple[nn.Parameter, Tensor]:
    """Weight and bias"""
    weight, bias = linear.weight.detach() * gamma.detach()[:, None], linear.bias.detach() * gamma.detach()
    return nn.Parameter(weight), bias


class ConvLeaky(nn.Module):
    """A convolution and its leaky ReLU."""

    def __init__(self, conv: nn.Conv2d, slope: float) -> None:
        super().__init__()
        self.conv, self.slope = conv, slope

    def forward(self, pictures: Tensor) -> Tensor:
        return conv_leaky(pictures, self.conv, self.slope)

    def halves(self) -> tuple[ConvLeaky, ConvLeaky]:
        """One for each half of what it gives."""
        first, second = copy.deepcopy(self), copy.deepcopy(self)
        for half, part in zip((first.conv, second.conv), (0, 1)):
            assert half.bias is not None
            half.out_channels //= 2
            half.weight = nn.Parameter(half.weight.detach().chunk(2)[part].clone())
            half.bias = nn.Parameter(half.bias.detach().chunk(2)[part].clone())
        return first, second


class QuickTrunk(nn.Module):
    """A Trunk; its split is two convolutions, since half of one's channels would have to be copied."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.enlarge = trunk.enlarge
        self.lateral = getattr(trunk, "lateral", None)
        for_box, for_score = cast(ConvLeaky, trunk.split[0]).halves()
        self.for_box = nn.Sequential(for_box, trunk.for_box)
        self.for_score = nn.Sequential(for_score, trunk.for_score)

    def forward(self, frames: Tensor, fine: Tensor | None = None) -> tuple[Tensor, Tensor]:
        larger = self.enlarge(frames)
        if fine is not None and self.lateral is not None:
            larger = larger + self.lateral(fine)
        return self.for_box(larger), self.for_score(larger)


class QuickSpatialLayer(nn.Module):
    """A SpatialLayer."""

    def __init__(self, layer: SpatialLayer) -> None:
        super().__init__()
        self.frame_attention, self.frame_norm = layer.frame_attention, layer.frame_norm
        self.query_attention, self.query_norm = layer.query_attention, layer.query_norm
        self.feed_forward = GeluMlp(layer.feed_forward.up, layer.feed_forward.down)
        self.feed_norm = layer.feed_norm

    def look_at_frame(self, tokens: Tensor) -> Tensor:
        return norm_of(tokens, self.frame_attention(tokens, tokens), self.frame_norm)

    def look_at_query(self, tokens: Tensor, query: Tensor) -> Tensor:
        tokens = norm_of(tokens, self.query_attention(tokens, query), self.query_norm)
        return norm_of(tokens, self.feed_forward(tokens), self.feed_norm)


class QuickTemporalLayer(nn.Module):
    """A TemporalLayer with one product for queries, keys and values."""

    def __init__(self, layer: TemporalLayer) -> None:
        super().__init__()
        attention = layer.attention
        self.heads, self.out = attention.heads, attention.out
        self.qkv = _joined(attention.query, attention.key, attention.value)
        self.attention_norm = layer.attention_norm
        self.feed_forward = GeluMlp(layer.feed_forward.up, layer.feed_forward.down)
        self.feed_norm = layer.feed_norm

    def forward(self, tokens: Tensor, radius: int, seen: Tensor) -> Tensor:
        mixed = local_attention(self.qkv(tokens), seen, self.heads)
        tokens = norm_of(tokens, self.out(mixed), self.attention_norm)
        return norm_of(tokens, self.feed_forward(tokens), self.feed_norm)


@torch.no_grad()
def _joined(*layers: nn.Linear) -> nn.Linear:
    made = copy.deepcopy(layers[0])
    made.out_features = sum(layer.out_features for layer in layers)
    made.weight = nn.Parameter(torch.cat([layer.weight for layer in layers]))
    made.bias = nn.Parameter(torch.cat([layer.bias for layer in layers]))
    return made

"""Layers of the half-precision models: the same functions with fewer passes over memory."""

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
    """Linear layer with GELU fused into its kernel; on GPUs the tanh form, equal within rounding."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, tokens: Tensor) -> Tensor:
        rows, linear = tokens.flatten(0, -2), self.linear
        hidden = torch._addmm_activation(linear.bias, rows, linear.weight.t(), use_gelu=True)
        return hidden.view(*tokens.shape[:-1], -1)


class SwiGLUGate(nn.Module):
    """SwiGLU gate: silu of one half of a linear layer's output times the other."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, tokens: Tensor) -> Tensor:
        gate, value = self.linear(tokens).chunk(2, -1)
        return F.silu(gate) * value


class GeluMlp(nn.Sequential):
    def __init__(self, up: nn.Linear, down: nn.Linear) -> None:
        super().__init__(Gelu(up), down)


class HalfBlock(nn.Module):
    """A Block with LayerScale folded into its products, which are added to the tokens without their biases:
    a bias is the same for all tokens, so each norm adds the sum of those left out up to there.

    | tokens   | [n, l, c], changed in place on GPUs               |
    | normed   | `norm1` of them, which the caller computes        |
    | left_out | [c] sum of the biases left out up to `norm2`      |
    | bias     | [l, l] added to attention's logits                |
    | out      | tokens                                            |
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        made = copy.deepcopy(block)
        attention, mlp = made.attn, made.mlp
        self.norm1, self.norm2 = made.norm1, made.norm2
        self.qkv, self.heads = attention.qkv, attention.heads
        self.hidden = Gelu(mlp.fc1) if isinstance(mlp, Mlp) else SwiGLUGate(mlp.w12)
        self.mix_weight = _scaled(attention.proj, block.ls1.gamma)[0]
        self.down_weight = _scaled(_last(mlp), block.ls2.gamma)[0]

    def forward(self, tokens: Tensor, normed: Tensor, left_out: Tensor, bias: Tensor | None = None) -> Tensor:
        tokens = attended(tokens, self.qkv(normed), self.heads, self.mix_weight, bias)
        return added(tokens, self.hidden(norm_of(tokens, left_out, self.norm2)), self.down_weight)


def biases_of(block: Block) -> list[Tensor]:
    """The biases of both products, which a HalfBlock leaves out."""
    return [
        _scaled(block.attn.proj, block.ls1.gamma)[1],
        _scaled(_last(block.mlp), block.ls2.gamma)[1],
    ]


def _last(mlp: Mlp | SwiGLU) -> nn.Linear:
    return mlp.w3 if isinstance(mlp, SwiGLU) else mlp.fc2


def _scaled(linear: nn.Linear, gamma: Tensor) -> tuple[nn.Parameter, Tensor]:
    """Weight and bias with LayerScale folded in."""
    weight, bias = linear.weight.detach() * gamma.detach()[:, None], linear.bias.detach() * gamma.detach()
    return nn.Parameter(weight), bias


class ConvLeaky(nn.Module):
    """A convolution with leaky ReLU."""

    def __init__(self, conv: nn.Conv2d, slope: float) -> None:
        super().__init__()
        self.conv, self.slope = conv, slope

    def forward(self, pictures: Tensor) -> Tensor:
        return conv_leaky(pictures, self.conv, self.slope)

    def halves(self) -> tuple[ConvLeaky, ConvLeaky]:
        """One for each half of the output channels."""
        first, second = copy.deepcopy(self), copy.deepcopy(self)
        for half, part in zip((first.conv, second.conv), (0, 1)):
            assert half.bias is not None
            half.out_channels //= 2
            half.weight = nn.Parameter(half.weight.detach().chunk(2)[part].clone())
            half.bias = nn.Parameter(half.bias.detach().chunk(2)[part].clone())
        return first, second


class HalfTrunk(nn.Module):
    """A Trunk whose split is two convolutions: halves of one's channels would have to be copied."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.enlarge = trunk.enlarge
        self.lateral = getattr(trunk, "lateral", None)
        for_box, for_score = cast(ConvLeaky, trunk.split[0]).halves()
        self.for_box = nn.Sequential(for_box, trunk.for_box)
        self.for_score = nn.Sequential(for_score, trunk.for_score)

    def forward(self, frames: Tensor, skipped: Tensor | None = None) -> tuple[Tensor, Tensor]:
        larger = self.enlarge(frames)
        if skipped is not None and self.lateral is not None:
            larger = larger + self.lateral(skipped)
        return self.for_box(larger), self.for_score(larger)


class HalfSpatialLayer(nn.Module):
    def __init__(self, layer: SpatialLayer) -> None:
        super().__init__()
        self.frame_attention, self.frame_norm = layer.frame_attention, layer.frame_norm
        self.query_attention, self.query_norm = layer.query_attention, layer.query_norm
        self.feed_forward = GeluMlp(layer.feed_forward.up, layer.feed_forward.down)
        self.feed_norm = layer.feed_norm

    def attend_to_frame(self, tokens: Tensor) -> Tensor:
        return norm_of(tokens, self.frame_attention(tokens, tokens), self.frame_norm)

    def attend_to_query(self, tokens: Tensor, query: Tensor, seen: Tensor | None = None) -> Tensor:
        tokens = norm_of(tokens, self.query_attention(tokens, query, seen), self.query_norm)
        return norm_of(tokens, self.feed_forward(tokens), self.feed_norm)


class HalfTemporalLayer(nn.Module):
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

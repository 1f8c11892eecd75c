"""First weights that compare: VQLoC begins by telling which patches of a frame look like the query.

Drawn as usual, cross-attention has to find out what likeness is, and a network of this size learns the
training things by heart before it does. These are weights, nothing else: the network and the names in its
checkpoints stay the paper's. For tokens x of a frame and the likest patches q of the query:

| reduction            | a rotation onto fewer channels, then the identity: cosines are kept               |
| looking at the frame | adds little                                                                       |
| looking at the query | attends to the likest patch, and takes it from x on every second channel          |
| feed-forward         | sums up |x - q| of those channels and writes it, negated, into a few               |
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from lastseen.model import VQLoC
from lastseen.model.correspondence import SpatialLayer, SpatialTransformer

FAINT = 0.05  # of the usual size: weights that the comparison does not need
GAIN = 2.0  # of the projections to queries and keys: attention takes the likest patches
# Of what the reduction gives: batch norm and leaky ReLU, twice. The same for the bundled backbone's features
# of real video as for normally distributed ones, to a hundredth.
MEAN, DEVIATION = 0.39, 0.76
AGREEMENT_CHANNELS = 8  # into which the feed-forward writes how well frame and query agree
SPAN = 8.0  # of those channels, for each unit of the mean |x - q|
EVEN = 0.55  # mean |x - q| half-way between a copy of the query and a patch of something else


@torch.no_grad()
def begin_by_comparing(model: VQLoC, seed: int = 0) -> None:
    """Draws new weights for the reduction and, with cross-attention, for the correspondence's layers. The
    rotations depend on the seed alone, so that variants of the network share them."""
    generator = torch.Generator().manual_seed(seed)
    _reduce_by_rotation(cast(nn.Sequential, model.reduce), generator)
    if isinstance(model.correspondence, SpatialTransformer):
        first, *others = cast(list[SpatialLayer], list(model.correspondence.layers))
        _compare(first, generator)
        for layer in others:  # what the first found passes through them
            for linear in (layer.frame_attention.out, layer.query_attention.out, layer.feed_forward.down):
                linear.weight.mul_(FAINT)
                linear.bias.zero_()


def _reduce_by_rotation(reduce: nn.Sequential, generator: torch.Generator) -> None:
    first, second = (layer for layer in reduce if isinstance(layer, nn.Conv2d))
    for conv in (first, second):
        conv.weight.mul_(FAINT)
        if conv.bias is not None:
            conv.bias.zero_()
    nn.init.orthogonal_(middle := torch.empty(first.weight.shape[:2]), generator=generator)
    first.weight[:, :, 1, 1] = middle
    second.weight[:, :, 1, 1] = torch.eye(second.weight.shape[0])


def _compare(layer: SpatialLayer, generator: torch.Generator) -> None:
    layer.frame_attention.out.weight.mul_(FAINT)
    layer.frame_attention.out.bias.zero_()
    look, dim = layer.query_attention, layer.query_attention.out.weight.shape[0]
    # A frame's tokens are layer-normalised, the query's are not: keys and values are normalised here.
    nn.init.orthogonal_(look.query.weight, gain=GAIN, generator=generator)
    look.query.bias.zero_()
    look.key.weight.copy_(look.query.weight / DEVIATION)
    look.key.bias.copy_(-look.key.weight.sum(1) * MEAN)
    look.value.weight.copy_(torch.eye(dim) / DEVIATION)
    look.value.bias.fill_(-MEAN / DEVIATION)
    # On half of the channels only: beside those that stay, layer norm leaves it visible that a difference is
    # small. Every second channel, so that each attention head gives some.
    differing = torch.arange(0, dim, 2)
    look.out.weight.mul_(FAINT)
    look.out.weight[differing] = 0.0
    look.out.weight[differing, differing] = -1.0
    look.out.bias.zero_()
    _sum_up_differences(layer, differing)


def _sum_up_differences(layer: SpatialLayer, differing: torch.Tensor) -> None:
    up, down, count = layer.feed_forward.up, layer.feed_forward.down, len(differing)
    hidden = torch.arange(count)
    # GELU of a difference and of its negative add up to about its absolute value.
    for units, sign in ((hidden, 1.0), (hidden + count, -1.0)):
        up.weight[units] = 0.0
        up.weight[units, differing] = sign
        up.bias[units] = 0.0
    down.weight.mul_(FAINT)
    down.bias.zero_()
    channels = torch.arange(1, 2 * AGREEMENT_CHANNELS, 2)[: down.weight.shape[0] // 4]
    down.weight[channels, : 2 * count] = -SPAN / count
    down.bias[channels] = SPAN * EVEN

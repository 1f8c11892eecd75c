"""The same models for inference in half precision: fewer passes over memory, the same within rounding.

    quick(model, torch.float16)  ->  a model of the same kind: channels last, norms and scales folded

What is folded: LayerScale into the layer before it, batch norms into their convolutions, the normalisation of
pictures into the first product. What is fused: GELU into the product before it, and by
`lastseen.engine.fused` additions into products or LayerNorm, biases into LayerNorm or leaky
ReLU. Nothing is left out.
"""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lastseen.box import Letterbox
from lastseen.engine.fused import add_norm, norm_of, patch_rows, put_patches
from lastseen.engine.half_parts import (
    ConvLeaky,
    QuickBlock,
    QuickSpatialLayer,
    QuickTemporalLayer,
    QuickTrunk,
    biases_of,
)
from lastseen.model.backbone import Backbone, Block
from lastseen.model.correspondence import SpatialLayer
from lastseen.model.head import Trunk
from lastseen.model.inputs import AT_ONCE_PX, MEAN, MIDDLE, SPREAD, STD, resized_by_products
from lastseen.model.propagation import TemporalLayer
from lastseen.model.training_free import PatchMatcher
from lastseen.model.vqloc import VQLoC

Part = TypeVar("Part", bound=nn.Module)
ALIGNED = 8  # numbers in a row must be a multiple of this for matrix units to be fast
QUICKER = {SpatialLayer: QuickSpatialLayer, TemporalLayer: QuickTemporalLayer, Trunk: QuickTrunk}


def quick(model: VQLoC | PatchMatcher, dtype: torch.dtype) -> VQLoC | PatchMatcher:
    """A copy that computes in `dtype`; its features are of that type, its boxes float32."""
    backbone = QuickBackbone(cast(Backbone, model.backbone), dtype)
    if isinstance(model, PatchMatcher):
        return QuickPatchMatcher(cast(Backbone, backbone), model.config).eval()
    made = QuickVQLoC(
        model.config,
        backbone,
        _folded(model.reduce, dtype),
        _folded(model.correspondence, dtype),
        _folded(model.propagation, dtype),
        _folded(model.head, dtype),
    )
    made.likeness = copy.deepcopy(model.likeness)  # two numbers
    return made.eval()


class QuickVQLoC(VQLoC):
    def encode_frames(self, frames: Tensor) -> Tensor:
        return self.prepare(_of_frames(self, frames)) if frames.is_cuda else super().encode_frames(frames)


class QuickPatchMatcher(PatchMatcher):
    def encode_frames(self, frames: Tensor) -> Tensor:
        if not frames.is_cuda:
            return super().encode_frames(frames)
        return F.normalize(_of_frames(self, frames), dim=1)


def _of_frames(model: VQLoC | PatchMatcher, frames: Tensor) -> Tensor:
    letterbox = model.letterbox(frames.shape[2], frames.shape[1])
    return cast(QuickBackbone, model.backbone).of_frames(frames, letterbox, model.padding)


class QuickBackbone(nn.Module):
    """A Backbone's features, for the same pictures.

    | in  | pictures [n, 3, 14 h, 14 w] of any float type |
    | out | features [n, channels, h, w] in `dtype`, channels last |

    Its own input are rows [n, 1 + registers + h w, 592]: a patch's pixels as (grey level - 128) / 64, which
    halves hold exactly, and zeros for the other tokens. The first weights are scaled accordingly.
    """

    def __init__(self, backbone: Backbone, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.dtype = backbone.config, dtype
        self._whole = [backbone]  # in a list: its parameters are not ours
        self._chosen = tuple(b % self.config.depth for b in self.config.blocks)
        self._others = 1 + self.config.registers  # tokens before the patches
        weight, bias = backbone.patch_embed.proj.weight.detach().float(), backbone.patch_embed.proj.bias
        assert bias is not None
        mean, std = (torch.tensor(x, device=weight.device)[:, None, None] for x in (MEAN, STD))
        # Rows are these times normalised pictures, plus these.
        self._gain, self._shift = 255 * std / SPREAD, (255 * mean - MIDDLE) / SPREAD
        scaled = rearrange(weight / self._gain, "d c p q -> d (p q c)")
        self.patch_weight = nn.Buffer(F.pad(scaled, (0, -scaled.shape[1] % ALIGNED)).to(dtype))
        self.patch_bias = bias.detach().float() - (weight * self._shift / self._gain).sum((1, 2, 3))
        blocks = cast(list[Block], backbone.blocks[: max(self._chosen) + 1])
        self.blocks = nn.ModuleList(QuickBlock(block) for block in blocks).to(dtype)
        biases = [bias.float() for block in blocks for bias in biases_of(block)]
        # What tokens lack before each product, and after the last.
        self.owed = nn.Buffer(torch.stack([torch.zeros_like(biases[0]), *biases]).cumsum(0).to(dtype))
        self.norm = copy.deepcopy(backbone.norm).to(dtype)
        self._first: dict[tuple[int, int], Tensor] = {}

    def forward(self, pictures: Tensor) -> Tensor:
        patch = self.config.patch
        height, width = (side // patch for side in pictures.shape[-2:])
        rows = self._rows(len(pictures), height, width)
        put_patches(pictures.float() * self._gain + self._shift, patch, rows[:, self._others :])
        return self._features(rows, height, width)

    def of_frames(self, frames: Tensor, letterbox: Letterbox, padding: float) -> Tensor:
        """Frames [n, h, w, 3] uint8 of any size -> the features of their letterboxed pictures"""
        box, patch = letterbox, self.config.patch
        height, width = box.canvas_height // patch, box.canvas_width // patch
        rows = self._rows(len(frames), height, width)
        # bfloat16 has too few digits for sums of pixels.
        dtype = torch.float32 if self.dtype == torch.float32 else torch.float16
        together = max(1, AT_ONCE_PX // frames[0, :, :, 0].numel())
        patches = rows[:, self._others :]
        for part, into in zip(torch.split(frames, together), torch.split(patches, together)):
            levels = resized_by_products(part, box.content_width, box.content_height, dtype)
            patch_rows(levels, box, padding, patch, into)
        return self._features(rows, height, width)

    def _rows(self, pictures: int, height: int, width: int) -> Tensor:
        tokens, weight = self._others + height * width, self.patch_weight
        return torch.zeros(pictures, tokens, weight.shape[1], dtype=self.dtype, device=weight.device)

    def _features(self, rows: Tensor, height: int, width: int) -> Tensor:
        outputs: dict[int, Tensor] = {}
        blocks, positions = cast(list[QuickBlock], self.blocks), self._positions(height, width)
        tokens, normed = add_norm(positions, F.linear(rows, self.patch_weight), blocks[0].norm1)
        for number, block in enumerate(blocks):
            before, between, after = self.owed[2 * number : 2 * number + 3]
            if number:
                normed = norm_of(tokens, before, block.norm1)
            tokens = block(tokens, normed, between)
            if number in self._chosen:
                outputs[number] = self._output(tokens[:, self._others :], after)
        chosen = [outputs[b] for b in self._chosen]
        features = torch.cat(chosen, -1) if len(chosen) > 1 else chosen[0].contiguous()
        return rearrange(features, "n (h w) c -> n c h w", h=height)

    def _output(self, tokens: Tensor, owed: Tensor) -> Tensor:
        return norm_of(tokens, owed, self.norm) if self.config.final_norm else tokens + owed

    def _positions(self, height: int, width: int) -> Tensor:
        """[1, 1 + registers + h w, dim]: what tokens of all pictures begin with; the first bias is in it"""
        if (height, width) not in self._first:
            whole = self._whole[0]
            places = whole._positions(height, width).detach().float()
            parts = [whole.cls_token.detach() + places[:, :1]]
            if self.config.registers:
                parts.append(whole.register_tokens.detach())
            parts.append(places[:, 1:] + self.patch_bias.to(places.device))
            self._first[height, width] = torch.cat(parts, 1).to(self.patch_weight.device, self.dtype)
        return self._first[height, width]


def _folded(whole: Part, dtype: torch.dtype) -> Part:
    """A copy with quick layers; batch norm and leaky ReLU are part of the convolution before them."""
    module = copy.deepcopy(whole)
    for part in list(module.modules()):
        if not isinstance(part, nn.Sequential):
            continue
        for at, (conv, norm, leaky) in enumerate(zip(list(part), list(part)[1:], list(part)[2:])):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                assert isinstance(leaky, nn.LeakyReLU)
                part[at] = ConvLeaky(fuse_conv_bn_eval(conv, norm), leaky.negative_slope)
                part[at + 1], part[at + 2] = nn.Identity(), nn.Identity()
    _replace(module)
    for value in module.parameters():
        layout = torch.channels_last if value.ndim == 4 else torch.preserve_format
        value.data = value.detach().to(dtype, memory_format=layout)
    for name, constant in module.named_buffers():
        if constant.is_floating_point() and name != "anchors":  # places in the picture need more digits
            constant.data = constant.to(dtype)
    return module


def _replace(module: nn.Module) -> None:
    for name, part in module.named_children():
        if type(part) in QUICKER:
            setattr(module, name, QUICKER[type(part)](part))
        else:
            _replace(part)

"""Models in half precision for inference: the same results within rounding, with less memory traffic.

    half_precision(model, torch.float16)  ->  a model of the same kind

Folded: LayerScale into the linear layer before it, batch norms into their convolutions, the normalisation of
pictures into the patch embedding. Fused: GELU into the product before it, and by `lastseen.engine.fused`
additions into products or LayerNorm, biases into LayerNorm or leaky ReLU. Convolutions are channels-last.
"""

from __future__ import annotations

import copy
from typing import Protocol, TypeVar, cast, runtime_checkable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lastseen.box import Letterbox
from lastseen.engine.fused import add_norm, norm_of, patch_rows, put_patches
from lastseen.engine.half_parts import (
    ConvLeaky,
    HalfBlock,
    HalfSpatialLayer,
    HalfTemporalLayer,
    HalfTrunk,
    biases_of,
)
from lastseen.model import Model, SimilarityModel, TrainingFreeModel, VQLoC
from lastseen.model.backbone import Backbone, Block
from lastseen.model.correspondence import SpatialLayer
from lastseen.model.head import Trunk
from lastseen.model.inputs import AT_ONCE_PX, MEAN, MIDDLE, SPREAD, STD, resized_by_products
from lastseen.model.padding import PaddingGroups, padding_groups
from lastseen.model.propagation import TemporalLayer

Part = TypeVar("Part", bound=nn.Module)
ALIGNED = 8  # row lengths must be a multiple of this for tensor cores
REPLACED = {SpatialLayer: HalfSpatialLayer, TemporalLayer: HalfTemporalLayer, Trunk: HalfTrunk}


@runtime_checkable
class Halved(Protocol):
    """A model that knows itself how to be computed in half precision, around a backbone that is."""

    backbone: nn.Module

    def in_half(self, backbone: nn.Module, dtype: torch.dtype) -> Model: ...


def half_precision(model: Model, dtype: torch.dtype) -> Model:
    """A copy that computes in `dtype`; its features are of that type, its boxes float32."""
    if isinstance(model, Halved):
        return model.in_half(HalfBackbone(cast(Backbone, model.backbone), dtype), dtype)
    assert isinstance(model, VQLoC | SimilarityModel | TrainingFreeModel)
    backbone = HalfBackbone(cast(Backbone, model.backbone), dtype)
    if isinstance(model, TrainingFreeModel):
        return HalfTrainingFree(cast(Backbone, backbone), model.config).eval()
    propagation, head = _folded(model.propagation, dtype), _folded(model.head, dtype)
    if isinstance(model, SimilarityModel):
        return HalfSimilarity(
            model.config,
            backbone,
            _folded(model.projection, dtype),
            _folded(model.correspondence, dtype),
            propagation,
            head,
            copy.deepcopy(model.prior),  # two or four numbers, in float32
        ).eval()
    reduce, correspondence = _folded(model.reduce, dtype), _folded(model.correspondence, dtype)
    return HalfVQLoC(model.config, backbone, reduce, correspondence, propagation, head).eval()


class HalfVQLoC(VQLoC):
    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        if not frames.is_cuda:
            return super().encode_frames(frames, group_padding)
        return self.encode_features(_backbone_features(self, frames, group_padding))


class HalfSimilarity(SimilarityModel):
    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        if not frames.is_cuda:
            return super().encode_frames(frames, group_padding)
        return self.encode_features(_backbone_features(self, frames, group_padding))


class HalfTrainingFree(TrainingFreeModel):
    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        if not frames.is_cuda:
            return super().encode_frames(frames, group_padding)
        return F.normalize(_backbone_features(self, frames, group_padding), dim=1)


def _backbone_features(
    model: VQLoC | SimilarityModel | TrainingFreeModel, frames: Tensor, group_padding: bool
) -> Tensor:
    letterbox = model.letterbox(frames.shape[2], frames.shape[1])
    groups = padding_groups(letterbox, model.patch) if group_padding else None
    return cast(HalfBackbone, model.backbone).of_frames(frames, letterbox, model.padding, groups)


class HalfBackbone(nn.Module):
    """A Backbone's features, for the same pictures.

    | in  | pictures [n, 3, 14 h, 14 w] of any float type |
    | out | features [n, channels, h, w] in `dtype`, channels last |

    The patch embedding is a product with rows [n, 1 + registers + h w, 592]: a patch's pixels as
    (grey level - 128) / 64, exact in half precision, and zeros for the other tokens.
    """

    def __init__(self, backbone: Backbone, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.dtype = backbone.config, dtype
        self._whole = [backbone]  # in a list: not a submodule, so its parameters are not registered
        self._chosen = tuple(b % self.config.depth for b in self.config.blocks)
        self._others = 1 + self.config.registers  # tokens before the patches
        weight, bias = backbone.patch_embed.proj.weight.detach().float(), backbone.patch_embed.proj.bias
        assert bias is not None
        mean, std = (torch.tensor(x, device=weight.device)[:, None, None] for x in (MEAN, STD))
        # Rows are normalised pictures times gain plus shift.
        self._gain, self._shift = 255 * std / SPREAD, (255 * mean - MIDDLE) / SPREAD
        scaled = rearrange(weight / self._gain, "d c p q -> d (p q c)")
        self.patch_weight = nn.Buffer(F.pad(scaled, (0, -scaled.shape[1] % ALIGNED)).to(dtype))
        self.patch_bias = bias.detach().float() - (weight * self._shift / self._gain).sum((1, 2, 3))
        blocks = cast(list[Block], backbone.blocks[: max(self._chosen) + 1])
        self.blocks = nn.ModuleList(HalfBlock(block) for block in blocks).to(dtype)
        biases = [bias.float() for block in blocks for bias in biases_of(block)]
        # Sum of the biases that were left out up to each norm, and up to the end (see HalfBlock).
        self.left_out = nn.Buffer(torch.stack([torch.zeros_like(biases[0]), *biases]).cumsum(0).to(dtype))
        self.norm = copy.deepcopy(backbone.norm).to(dtype)
        self._first: dict[tuple[int, int], Tensor] = {}

    def forward(self, pictures: Tensor, groups: PaddingGroups | None = None) -> Tensor:
        patch = self.config.patch
        height, width = (side // patch for side in pictures.shape[-2:])
        rows = self._rows(len(pictures), height, width)
        put_patches(pictures.float() * self._gain + self._shift, patch, rows[:, self._others :])
        return self._features(rows, height, width, groups)

    def of_frames(
        self, frames: Tensor, letterbox: Letterbox, padding: float, groups: PaddingGroups | None = None
    ) -> Tensor:
        """Frames [n, h, w, 3] uint8 of any size -> the features of their letterboxed pictures"""
        box, patch = letterbox, self.config.patch
        height, width = box.canvas_height // patch, box.canvas_width // patch
        rows = self._rows(len(frames), height, width)
        # bfloat16 has too few digits to sum pixels.
        dtype = torch.float32 if self.dtype == torch.float32 else torch.float16
        together = max(1, AT_ONCE_PX // frames[0, :, :, 0].numel())
        patches = rows[:, self._others :]
        for part, into in zip(torch.split(frames, together), torch.split(patches, together)):
            levels = resized_by_products(part, box.content_width, box.content_height, dtype)
            patch_rows(levels, box, padding, patch, into)
        return self._features(rows, height, width, groups)

    def _rows(self, pictures: int, height: int, width: int) -> Tensor:
        tokens, weight = self._others + height * width, self.patch_weight
        return torch.zeros(pictures, tokens, weight.shape[1], dtype=self.dtype, device=weight.device)

    def _features(self, rows: Tensor, height: int, width: int, groups: PaddingGroups | None) -> Tensor:
        outputs: dict[int, Tensor] = {}
        blocks, positions = cast(list[HalfBlock], self.blocks), self._positions(height, width)
        bias = None
        if groups is not None:
            rows, positions = self._selected(rows, groups), self._selected(positions, groups)
            bias = groups.attention_bias(self._others, rows)
        tokens, normed = add_norm(positions, F.linear(rows, self.patch_weight), blocks[0].norm1)
        for number, block in enumerate(blocks):
            before, between, after = self.left_out[2 * number : 2 * number + 3]
            if number:
                normed = norm_of(tokens, before, block.norm1)
            tokens = block(tokens, normed, between, bias)
            if number in self._chosen:
                outputs[number] = self._output(tokens[:, self._others :], after)
        chosen = [outputs[b] for b in self._chosen]
        features = torch.cat(chosen, -1) if len(chosen) > 1 else chosen[0].contiguous()
        if groups is not None:
            features = groups.spread(features)
        return rearrange(features, "n (h w) c -> n c h w", h=height)

    def _selected(self, tokens: Tensor, groups: PaddingGroups) -> Tensor:
        return torch.cat([tokens[:, : self._others], groups.selected(tokens[:, self._others :])], 1)

    def _output(self, tokens: Tensor, left_out: Tensor) -> Tensor:
        return norm_of(tokens, left_out, self.norm) if self.config.final_norm else tokens + left_out

    def _positions(self, height: int, width: int) -> Tensor:
        """[1, 1 + registers + h w, dim]: class and register tokens, positions, the patch embedding's bias"""
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
    """A copy with Half* layers, batch norm and leaky ReLU folded into the convolution before them."""
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
        if constant.is_floating_point() and name != "anchors":  # coordinates need more digits
            constant.data = constant.to(dtype)
    return module


def _replace(module: nn.Module) -> None:
    for name, part in module.named_children():
        if type(part) in REPLACED:
            setattr(module, name, REPLACED[type(part)](part))
        else:
            _replace(part)

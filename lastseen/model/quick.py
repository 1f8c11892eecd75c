"""The same models for inference in half precision: fewer passes over memory, the same within rounding.

    quick(model, torch.float16)  ->  a model of the same kind: channels last, norms and scales folded

What is folded: LayerScale into the layer before it, batch norms into their convolutions. What is fused: GELU
into the product before it. Nothing is left out.
"""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lastseen.model.backbone import Backbone, Block, Mlp, SwiGLU
from lastseen.model.patch_match import PatchMatcher
from lastseen.model.vqloc import VQLoC

Part = TypeVar("Part", bound=nn.Module)
ALIGNED = 8  # numbers in a row must be a multiple of this for matrix units to be fast


def quick(model: VQLoC | PatchMatcher, dtype: torch.dtype) -> VQLoC | PatchMatcher:
    """A copy that computes in `dtype`; its features are of that type, its boxes float32."""
    backbone = QuickBackbone(cast(Backbone, model.backbone), dtype)
    if isinstance(model, PatchMatcher):
        return PatchMatcher(cast(Backbone, backbone), model.config).eval()
    made = VQLoC(
        model.config,
        backbone,
        _folded(model.reduce, dtype),
        _folded(model.correspondence, dtype),
        _folded(model.propagation, dtype),
        _folded(model.head, dtype),
    )
    made.likeness = copy.deepcopy(model.likeness)  # two numbers
    return made.eval()


class QuickBackbone(nn.Module):
    """A Backbone's features, for the same pictures.

    | in  | pictures [n, 3, 14 h, 14 w] of any float type |
    | out | features [n, channels, h, w] in `dtype`, channels last |
    """

    def __init__(self, backbone: Backbone, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.dtype = backbone.config, dtype
        self._whole = [backbone]  # in a list: its parameters are not ours
        self._chosen = tuple(b % self.config.depth for b in self.config.blocks)
        weight, bias = backbone.patch_embed.proj.weight.detach(), backbone.patch_embed.proj.bias
        assert bias is not None
        self._spare = -weight[0].numel() % ALIGNED
        self.patch_weight = nn.Buffer(F.pad(weight.flatten(1), (0, self._spare)).to(dtype))
        self.patch_bias = bias.detach().float()
        self.blocks = nn.ModuleList(
            _quick_block(cast(Block, block)) for block in backbone.blocks[: max(self._chosen) + 1]
        ).to(dtype)
        self.norm = copy.deepcopy(backbone.norm).to(dtype)
        self._first: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def forward(self, pictures: Tensor) -> Tensor:
        height = pictures.shape[-2] // self.config.patch
        return rearrange(self.run(self.tokens(pictures)), "n (h w) c -> n c h w", h=height)

    def tokens(self, pictures: Tensor) -> Tensor:
        """What enters the first block: class token, registers, patches."""
        patch = self.config.patch
        height, width = (side // patch for side in pictures.shape[-2:])
        head, places = self._positions(height, width)
        pixels = rearrange(pictures.to(self.dtype), "n c (h p) (w q) -> n (h w) (c p q)", p=patch, q=patch)
        patches = F.linear(F.pad(pixels, (0, self._spare)), self.patch_weight) + places
        return torch.cat([head.expand(len(patches), -1, -1), patches], 1)

    def run(self, tokens: Tensor) -> Tensor:
        outputs = {}
        for number, block in enumerate(self.blocks):
            tokens = block(tokens)
            if number in self._chosen:
                outputs[number] = self.norm(tokens) if self.config.final_norm else tokens
        patches = [outputs[b][:, 1 + self.config.registers :] for b in self._chosen]
        return torch.cat(patches, -1) if len(patches) > 1 else patches[0].contiguous()

    def _positions(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Class token and registers with their positions [1, 1 + registers, dim]; what patches get added."""
        if (height, width) not in self._first:
            whole = self._whole[0]
            places = whole._positions(height, width).detach().float()
            parts = [whole.cls_token.detach() + places[:, :1]]
            if self.config.registers:
                parts.append(whole.register_tokens.detach())
            patches = places[:, 1:] + self.patch_bias.to(places.device)
            self._first[height, width] = torch.cat(parts, 1).to(self.dtype), patches.to(self.dtype)
        return self._first[height, width]


class GeluMlp(nn.Module):
    """Mlp with GELU in the same kernel as the product: on GPUs its tanh form, which rounds to the same."""

    def __init__(self, mlp: Mlp) -> None:
        super().__init__()
        self.fc1, self.fc2 = mlp.fc1, mlp.fc2

    def forward(self, tokens: Tensor) -> Tensor:
        rows = tokens.flatten(0, -2)
        hidden = torch._addmm_activation(self.fc1.bias, rows, self.fc1.weight.t(), use_gelu=True)
        return self.fc2(hidden).view(tokens.shape)


def _quick_block(block: Block) -> Block:
    made = copy.deepcopy(block)
    _scale(made.attn.proj, block.ls1.gamma)
    _scale(made.mlp.w3 if isinstance(made.mlp, SwiGLU) else made.mlp.fc2, block.ls2.gamma)
    made.ls1 = made.ls2 = nn.Identity()  # type: ignore[assignment]
    if isinstance(made.mlp, Mlp):
        made.mlp = GeluMlp(made.mlp)  # type: ignore[assignment]
    return made


@torch.no_grad()
def _scale(linear: nn.Linear, gamma: Tensor) -> None:
    linear.weight.mul_(gamma[:, None])
    linear.bias.mul_(gamma)


def _folded(whole: Part, dtype: torch.dtype) -> Part:
    """A copy in which each batch norm that follows a convolution is part of it."""
    module = copy.deepcopy(whole)
    for part in list(module.modules()):
        if not isinstance(part, nn.Sequential):
            continue
        for number, (first, second) in enumerate(zip(list(part), list(part)[1:])):
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                part[number], part[number + 1] = fuse_conv_bn_eval(first, second), nn.Identity()
    for value in module.parameters():
        layout = torch.channels_last if value.ndim == 4 else torch.preserve_format
        value.data = value.detach().to(dtype, memory_format=layout)
    for name, constant in module.named_buffers():
        if constant.is_floating_point() and name != "anchors":  # places in the picture need more digits
            constant.data = constant.to(dtype)
    return module

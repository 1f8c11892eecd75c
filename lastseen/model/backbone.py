"""DINOv2, the image backbone: pictures to patch features.

Parameter names are DINOv2's own, so official and derived files load strictly without renaming.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.model.padding import PaddingGroups

POSITIONS = 37  # side of the pre-trained grid of position embeddings: 518 px / 14


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """Shape of a ViT/14 and which of its blocks give the features."""

    dim: int
    depth: int
    heads: int
    registers: int = 0
    ffn: str = "mlp"  # or "swiglu" (ViT-g)
    blocks: tuple[int, ...] = (-1,)  # concatenated; -1 is the last, 0 the first
    final_norm: bool = True  # LayerNorm after the chosen blocks, as DINOv2 does after its last
    patch: int = 14

    def __post_init__(self) -> None:
        if self.ffn not in ("mlp", "swiglu"):
            raise ValueError(f'ffn must be "mlp" or "swiglu", got {self.ffn!r}')
        if not self.blocks or any(not -self.depth <= b < self.depth for b in self.blocks):
            raise ValueError(f"blocks must name blocks of 0..{self.depth - 1}, got {self.blocks}")

    @property
    def channels(self) -> int:
        return self.dim * len(self.blocks)

    @property
    def name(self) -> str:
        """ViT-S/14 and so on; by its width where that is not one of DINOv2's."""
        size = {384: "S", 768: "B", 1024: "L", 1536: "g"}.get(self.dim)
        return f"ViT-{size}/{self.patch}" if size else f"ViT/{self.patch} of width {self.dim}"

    def using(self, *blocks: int, final_norm: bool = True) -> BackboneConfig:
        return replace(self, blocks=blocks, final_norm=final_norm)


VIT_S = BackboneConfig(dim=384, depth=12, heads=6)
VIT_B = BackboneConfig(dim=768, depth=12, heads=12)
VIT_L = BackboneConfig(dim=1024, depth=24, heads=16)
VIT_G = BackboneConfig(dim=1536, depth=40, heads=24, ffn="swiglu")


class Backbone(nn.Module):
    """Patch features of normalised pictures whose sides are whole patches.

    | in  | pictures [n, 3, 14 h, 14 w] |
    | out | features [n, channels, h, w] |

    With `groups` one patch of each group of padding patches is encoded; the others get its features.
    """

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.patch_embed = PatchEmbed(dim, config.patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + POSITIONS**2, dim))
        if config.registers:
            self.register_tokens = nn.Parameter(torch.zeros(1, config.registers, dim))
        self.blocks = nn.ModuleList(Block(dim, config.heads, config.ffn) for _ in range(config.depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self._chosen = tuple(b % config.depth for b in config.blocks)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward(self, pictures: Tensor, groups: PaddingGroups | None = None) -> Tensor:
        # int: a tracer gives sizes as tensors, and traces for one size anyway.
        height, width = (int(side) // self.config.patch for side in pictures.shape[-2:])
        tokens = self.patch_embed(pictures)
        tokens = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], 1)
        tokens = tokens + self._positions(height, width)
        others, patches = tokens[:, :1], tokens[:, 1:]
        if self.config.registers:
            others = torch.cat([others, self.register_tokens.expand(len(tokens), -1, -1)], 1)
        bias = None
        if groups is not None:
            patches, bias = groups.selected(patches), groups.attention_bias(others.shape[1], tokens)
        tokens = torch.cat([others, patches], 1)
        outputs = {}
        for number, block in enumerate(self.blocks[: max(self._chosen) + 1]):
            tokens = block(tokens, bias)
            if number in self._chosen:
                outputs[number] = self.norm(tokens) if self.config.final_norm else tokens
        patches = torch.cat([outputs[b][:, 1 + self.config.registers :] for b in self._chosen], -1)
        if groups is not None:
            patches = groups.spread(patches)
        return rearrange(patches, "n (h w) c -> n c h w", h=height)

    def shortened(self, depth: int) -> Backbone:
        """The first `depth` blocks without the final norm, which belongs to the last block."""
        if not 1 <= depth <= self.config.depth:
            raise ValueError(f"depth must be 1 to {self.config.depth}, got {depth}")
        short = Backbone(replace(self.config, depth=depth, blocks=(depth - 1,), final_norm=False))
        kept = short.state_dict()
        short.load_state_dict({name: value for name, value in self.state_dict().items() if name in kept})
        return short

    def _positions(self, height: int, width: int) -> Tensor:
        if (height, width) == (POSITIONS, POSITIONS):
            return self.pos_embed
        grid = rearrange(self.pos_embed[:, 1:].float(), "1 (h w) c -> 1 c h w", h=POSITIONS)
        if self.config.registers:
            # The models with registers were trained with plain anti-aliased resizing ...
            grid = F.interpolate(grid, (height, width), mode="bicubic", antialias=True)
        else:
            # ... those without with a size 0.1 too large, which must be repeated to match.
            scale = ((height + 0.1) / POSITIONS, (width + 0.1) / POSITIONS)
            grid = F.interpolate(grid, scale_factor=scale, mode="bicubic")
        patches = rearrange(grid, "1 c h w -> 1 (h w) c").to(self.pos_embed.dtype)
        return torch.cat([self.pos_embed[:, :1], patches], 1)


class PatchEmbed(nn.Module):
    def __init__(self, dim: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, stride=patch)

    def forward(self, pictures: Tensor) -> Tensor:
        return rearrange(self.proj(pictures), "n c h w -> n (h w) c")


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, ffn: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.ls1 = LayerScale(dim)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim) if ffn == "mlp" else SwiGLU(dim)
        self.ls2 = LayerScale(dim)

    def forward(self, tokens: Tensor, bias: Tensor | None = None) -> Tensor:
        tokens = tokens + self.ls1(self.attn(self.norm1(tokens), bias))
        return tokens + self.ls2(self.mlp(self.norm2(tokens)))


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor, bias: Tensor | None = None) -> Tensor:
        """`bias` [l, l] is added to the logits of queries and keys."""
        q, k, v = rearrange(self.qkv(tokens), "n l (three h d) -> three n h l d", three=3, h=self.heads)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(rearrange(mixed, "n h l d -> n l (h d)"))


class LayerScale(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * self.gamma


class Mlp(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(tokens)))


class SwiGLU(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden = (int(4 * dim * 2 / 3) + 7) // 8 * 8
        self.w12 = nn.Linear(dim, 2 * hidden)
        self.w3 = nn.Linear(hidden, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        gate, value = self.w12(tokens).chunk(2, -1)
        return self.w3(F.silu(gate) * value)

"""Mask decoder of Segment Anything: tokens and embedding attend to each other, tokens become masks.

    tokens      [n, 1 + 4 + prompts, dim]   predicted IoU, four masks, the prompt
    embedding   [n, dim, h, w]
    masks       [n, 4, 4 h, 4 w] logits     the first for unambiguous prompts, then part, whole and more
    iou         [n, 4]                      predicted IoU of each mask with the truth

Kirillov et al., "Segment Anything", 2023. Parameter names are those of the published checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lastseen.masks.image_encoder import ChannelNorm

MASKS = 4


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    dim: int = 256
    depth: int = 2
    heads: int = 8
    mlp_dim: int = 2048


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, inner_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, inner_dim) for _ in range(3))
        self.out_proj = nn.Linear(inner_dim, dim)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        heads = (rearrange(x, "n p (h d) -> n h p d", h=self.heads) for x in projected)
        return self.out_proj(rearrange(F.scaled_dot_product_attention(*heads), "n h p d -> n p (h d)"))


class FeedForward(nn.Module):
    def __init__(self, dim: int, inner_dim: int) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(dim, inner_dim), nn.Linear(inner_dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin2(F.relu(self.lin1(x)))


class TwoWayLayer(nn.Module):
    def __init__(self, config: DecoderConfig, *, first: bool) -> None:
        super().__init__()
        dim, heads = config.dim, config.heads
        self.first = first
        self.self_attn = Attention(dim, heads, dim)
        self.cross_attn_token_to_image = Attention(dim, heads, dim // 2)
        self.mlp = FeedForward(dim, config.mlp_dim)
        self.cross_attn_image_to_token = Attention(dim, heads, dim // 2)
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.LayerNorm(dim) for _ in range(4))

    def forward(
        self, tokens: Tensor, image: Tensor, prompts: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`prompts` are the tokens as given; they are added again wherever tokens say where they are."""
        if self.first:  # without prompts and without a residual: tokens are the prompts still
            tokens = self.self_attn(tokens, tokens, tokens)
        else:
            placed = tokens + prompts
            tokens = tokens + self.self_attn(placed, placed, tokens)
        tokens = self.norm1(tokens)
        tokens = self.norm2(
            tokens + self.cross_attn_token_to_image(tokens + prompts, image + positions, image)
        )
        tokens = self.norm3(tokens + self.mlp(tokens))
        image = self.norm4(
            image + self.cross_attn_image_to_token(image + positions, tokens + prompts, tokens)
        )
        return tokens, image


class TwoWayTransformer(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TwoWayLayer(config, first=not n) for n in range(config.depth))
        self.final_attn_token_to_image = Attention(config.dim, config.heads, config.dim // 2)
        self.norm_final_attn = nn.LayerNorm(config.dim)

    def forward(self, prompts: Tensor, image: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[n, tokens, dim], [n, h w, dim], [1, h w, dim] -> tokens and image after attention"""
        tokens = prompts
        for layer in self.layers:
            tokens, image = layer(tokens, image, prompts, positions)
        seen = self.final_attn_token_to_image(tokens + prompts, image + positions, image)
        return self.norm_final_attn(tokens + seen), image


class Perceptron(nn.Module):
    def __init__(self, dim: int, out_dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, out_dim)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class MaskDecoder(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        dim = config.dim
        self.transformer = TwoWayTransformer(config)
        self.iou_token, self.mask_tokens = nn.Embedding(1, dim), nn.Embedding(MASKS, dim)
        self.output_upscaling = nn.Sequential(
            nn.ConvTranspose2d(dim, dim // 4, 2, 2),
            ChannelNorm(dim // 4),
            nn.GELU(),
            nn.ConvTranspose2d(dim // 4, dim // 8, 2, 2),
            nn.GELU(),
        )
        self.output_hypernetworks_mlps = nn.ModuleList(Perceptron(dim, dim // 8) for _ in range(MASKS))
        self.iou_prediction_head = Perceptron(dim, MASKS)

    def forward(self, embedding: Tensor, positions: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
        """Embedding [n, dim, h, w], its positions [1, dim, h, w], prompts [n, k, dim] -> masks, iou"""
        rows = embedding.shape[2]
        own = torch.cat([self.iou_token.weight, self.mask_tokens.weight]).expand(len(prompts), -1, -1)
        flat, places = (rearrange(x, "n c h w -> n (h w) c") for x in (embedding, positions))
        tokens, image = self.transformer(torch.cat([own, prompts], 1), flat, places)
        upscaled = self.output_upscaling(rearrange(image, "n (h w) c -> n c h w", h=rows))
        kernels = torch.stack(
            [mlp(tokens[:, 1 + number]) for number, mlp in enumerate(self.output_hypernetworks_mlps)], 1
        )
        return torch.einsum("nkc,nchw->nkhw", kernels, upscaled), self.iou_prediction_head(tokens[:, 0])

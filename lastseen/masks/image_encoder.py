"""TinyViT, the image encoder of MobileSAM: convolutions, then attention within windows.

    stage       channels   stride   what
    stem              64        4   two convolutions
    layers.0          64        4   inverted bottlenecks
    layers.1         128        8   attention in windows of 7 x 7
    layers.2         160       16   attention in windows of 14 x 14
    layers.3         320       16   attention in windows of 7 x 7
    neck             256       16   two convolutions

Wu et al., "TinyViT: Fast Pretraining Distillation for Small Vision Transformers", 2022. The last reduction
has stride 1, as in Zhang et al., "Faster Segment Anything: Towards Lightweight SAM for Mobile Applications",
2023. Parameter names are those of the published checkpoint. Inputs may have any multiple of 16 as size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

STRIDE = 16  # of the embedding


@dataclass(frozen=True, kw_only=True)
class TinyViTConfig:
    """The defaults are TinyViT-5M."""

    dims: tuple[int, int, int, int] = (64, 128, 160, 320)
    depths: tuple[int, int, int, int] = (2, 2, 6, 2)
    heads: tuple[int, int, int, int] = (2, 4, 5, 10)  # the first stage has no attention
    windows: tuple[int, int, int, int] = (7, 7, 14, 7)  # side of a window, in positions
    mlp_ratio: int = 4
    out_dim: int = 256


class NormedConv(nn.Module):
    """Convolution and batch norm; after `fuse` one convolution with a bias."""

    def __init__(
        self, dim: int, out_dim: int, kernel: int = 1, stride: int = 1, *, depthwise: bool = False
    ) -> None:
        super().__init__()
        groups = dim if depthwise else 1
        self.c = nn.Conv2d(dim, out_dim, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn: nn.Module = nn.BatchNorm2d(out_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.c(x))

    @torch.no_grad()
    def fuse(self) -> None:
        if isinstance(self.bn, nn.BatchNorm2d):
            assert self.bn.running_mean is not None and self.bn.running_var is not None
            scale = self.bn.weight * (self.bn.running_var + self.bn.eps).rsqrt()
            self.c.weight.mul_(scale[:, None, None, None])
            self.c.bias = nn.Parameter(self.bn.bias - self.bn.running_mean * scale)
            self.bn = nn.Identity()


class Stem(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.seq = nn.Sequential(
            NormedConv(3, dim // 2, 3, stride=2), nn.GELU(), NormedConv(dim // 2, dim, 3, stride=2)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.seq(x)


class Bottleneck(nn.Module):
    """Inverted bottleneck: expand, convolve each channel, reduce."""

    def __init__(self, dim: int, ratio: int) -> None:
        super().__init__()
        self.conv1 = NormedConv(dim, ratio * dim)
        self.conv2 = NormedConv(ratio * dim, ratio * dim, 3, depthwise=True)
        self.conv3 = NormedConv(ratio * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.gelu(self.conv2(F.gelu(self.conv1(x))))
        return F.gelu(x + self.conv3(inner))


class Reduction(nn.Module):
    """From one stage to the next: more channels, and half the size if `stride` is 2."""

    def __init__(self, dim: int, out_dim: int, stride: int) -> None:
        super().__init__()
        self.conv1 = NormedConv(dim, out_dim)
        self.conv2 = NormedConv(out_dim, out_dim, 3, stride, depthwise=True)
        self.conv3 = NormedConv(out_dim, out_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv3(F.gelu(self.conv2(F.gelu(self.conv1(x)))))


class WindowAttention(nn.Module):
    """Attention among the positions of a window, with a learned bias for each distance."""

    distance: Tensor  # [positions, positions] index of the bias

    def __init__(self, dim: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.attention_biases = nn.Parameter(torch.zeros(heads, window * window))
        row, column = torch.arange(window).repeat_interleave(window), torch.arange(window).repeat(window)
        down, across = (row[:, None] - row).abs(), (column[:, None] - column).abs()
        self.register_buffer("distance", down * window + across, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[n, positions, dim] -> the same"""
        # Queries, keys and values of one head lie side by side.
        qkv = rearrange(self.qkv(self.norm(x)), "n p (h three d) -> three n h p d", h=self.heads, three=3)
        query, key, value = qkv.unbind(0)
        bias = self.attention_biases[:, self.distance]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.proj(rearrange(mixed, "n h p d -> n p (h d)"))


class FeedForward(nn.Module):
    def __init__(self, dim: int, ratio: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, ratio * dim), nn.Linear(ratio * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(self.norm(x))))


class AttentionBlock(nn.Module):
    def __init__(self, dim: int, heads: int, window: int, ratio: int) -> None:
        super().__init__()
        self.window = window
        self.attn = WindowAttention(dim, heads, window)
        self.local_conv = NormedConv(dim, dim, 3, depthwise=True)
        self.mlp = FeedForward(dim, ratio)

    def forward(self, x: Tensor) -> Tensor:
        """[n, dim, rows, columns] -> the same"""
        x = self.local_conv(x + self._attended(x))
        tokens = rearrange(x, "n c h w -> n h w c")
        return x + rearrange(self.mlp(tokens), "n h w c -> n c h w")

    def _attended(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[2:]
        side = self.window
        # Windows at the lower and right border are filled up with zeros, which take part in attention.
        x = F.pad(x, (0, -columns % side, 0, -rows % side))
        high, wide = x.shape[2] // side, x.shape[3] // side
        windows = rearrange(x, "n c (h a) (w b) -> (n h w) (a b) c", a=side, b=side)
        mixed = rearrange(
            self.attn(windows), "(n h w) (a b) c -> n c (h a) (w b)", h=high, w=wide, a=side, b=side
        )
        return mixed[:, :, :rows, :columns]


class Stage(nn.Module):
    def __init__(self, blocks: list[nn.Module], downsample: Reduction | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class ChannelNorm(nn.Module):
    """Layer norm over the channels of [n, c, h, w]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        normed = F.layer_norm(x.movedim(1, -1), self.weight.shape, self.weight, self.bias, 1e-6)
        return normed.movedim(-1, 1)


class TinyViT(nn.Module):
    def __init__(self, config: TinyViTConfig) -> None:
        super().__init__()
        self.patch_embed = Stem(config.dims[0])
        self.layers = nn.ModuleList(_stage(config, number) for number in range(4))
        self.neck = nn.Sequential(
            nn.Conv2d(config.dims[3], config.out_dim, 1, bias=False),
            ChannelNorm(config.out_dim),
            nn.Conv2d(config.out_dim, config.out_dim, 3, padding=1, bias=False),
            ChannelNorm(config.out_dim),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Normalised pictures [n, 3, 16 h, 16 w] -> embedding [n, out_dim, h, w]"""
        x = self.patch_embed(pictures)
        for layer in self.layers:
            x = layer(x)
        return self.neck(x)

    def fuse(self) -> None:
        """Merge batch norms into convolutions: the same numbers up to rounding, faster, not for training."""
        for module in self.modules():
            if isinstance(module, NormedConv):
                module.fuse()


def _stage(config: TinyViTConfig, number: int) -> Stage:
    dim = config.dims[number]
    blocks: list[nn.Module] = [
        AttentionBlock(dim, config.heads[number], config.windows[number], config.mlp_ratio)
        if number
        else Bottleneck(dim, config.mlp_ratio)
        for _ in range(config.depths[number])
    ]
    if number == 3:
        return Stage(blocks, None)
    return Stage(blocks, Reduction(dim, config.dims[number + 1], stride=1 if number == 2 else 2))

"""Propagation through time: the paper's spatio-temporal transformer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from lastseen.model.attention import FeedForward, MultiHead
from lastseen.model.correspondence import conv_block


class SpatioTemporalTransformer(nn.Module):
    """Frames shrunk to a small grid; each token sees the frames within `radius` of its own.

    | in  | [b, t, c, H, W], t at most `clip_length` |
    | out | [b, t, c, grid, grid], and with `fine` the frames half shrunk [b, t, c, 2 grid, 2 grid] |

    `lengths` [b] says how many frames of each clip are real: the rest is padding that no real frame sees.
    `runs` says that the frames are several clips in a row, of so many frames each; none sees another.
    """

    def __init__(
        self,
        dim: int = 256,
        heads: int = 8,
        hidden: int = 2048,
        layers: int = 3,
        *,
        radius: int | None = 2,
        clip_length: int = 30,
        side: int = 32,
        grid: int = 8,
        fine: bool = False,
    ) -> None:
        super().__init__()
        self.clip_length, self.grid, self.radius, self.fine = clip_length, grid, radius, fine
        strides = _strides(side, grid)
        if fine and strides[-1:] != [2]:
            raise ValueError(f"fine needs a frame's grid of {2 * grid} times twos and threes, got {side}")
        self.shrink = nn.Sequential(*(conv_block(dim, dim, stride=stride) for stride in strides))
        self.positions = nn.Parameter(torch.zeros(1, clip_length * grid * grid, dim))
        self.layers = nn.ModuleList(TemporalLayer(dim, heads, hidden) for _ in range(layers))

    @property
    def context(self) -> int | None:
        """How many frames on each side can influence a frame; None if all of the clip."""
        return None if self.radius is None else self.radius * len(self.layers)

    def forward(
        self, frames: Tensor, lengths: Tensor | None = None, runs: tuple[int, ...] | None = None
    ) -> tuple[Tensor, ...]:
        tokens, half = self.shrunk(frames)
        clips = (tokens,) if runs is None else torch.split(tokens, list(runs), 1)
        return self.grown(torch.cat([self.propagated(clip, lengths) for clip in clips], 1), half)

    def shrunk(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [b, t, grid * grid, c], and the frames half shrunk; each frame for itself."""
        half = small = rearrange(frames, "b t c h w -> (b t) c h w")
        for smaller in self.shrink:
            half, small = small, smaller(small)
        tokens = rearrange(small, "(b t) c h w -> b t (h w) c", b=len(frames))
        return tokens, rearrange(half, "(b t) c h w -> b t c h w", b=len(frames))

    def grown(self, tokens: Tensor, half: Tensor) -> tuple[Tensor, ...]:
        """What the head takes."""
        coarse = rearrange(tokens, "b t (h w) c -> b t c h w", h=self.grid)
        return (coarse, half) if self.fine else (coarse,)

    def propagated(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[b, t, grid * grid, c] of clips -> the same; here alone a frame sees others."""
        time = tokens.shape[1]
        if time > self.clip_length:
            raise ValueError(f"a clip has at most {self.clip_length} frames, got {time}")
        positions = rearrange(self.positions, "1 (t s) c -> 1 t s c", t=self.clip_length)
        tokens = tokens + positions[:, :time]
        radius = time - 1 if self.radius is None else min(self.radius, time - 1)
        seen = frames_seen(time, radius, lengths, tokens.device)
        for layer in self.layers:
            tokens = layer(tokens, radius, seen)
        return tokens


def _strides(side: int, grid: int) -> list[int]:
    """Steps from a frame's grid to the small one, the largest first."""
    left, strides = side, []
    for stride in (3, 2):
        while left % (stride * grid) == 0:
            left //= stride
            strides.append(stride)
    if left != grid:
        raise ValueError(f"the frame's grid of {side} must be {grid} times twos and threes")
    return strides


class TemporalLayer(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = MultiHead(dim, heads)
        self.attention_norm = nn.LayerNorm(dim)
        self.feed_forward = FeedForward(dim, hidden)
        self.feed_norm = nn.LayerNorm(dim)

    def forward(self, tokens: Tensor, radius: int, seen: Tensor) -> Tensor:
        tokens = self.attention_norm(tokens + self._attend(tokens, radius, seen))
        return self.feed_norm(tokens + self.feed_forward(tokens))

    def _attend(self, tokens: Tensor, radius: int, seen: Tensor) -> Tensor:
        """Local attention without a dense mask: each frame gets the keys of its neighbours only."""
        batch, _, space, _ = tokens.shape
        key, value = (
            rearrange(neighbours(x, radius), "b t w s c -> (b t) (w s) c")
            for x in (self.attention.key(tokens), self.attention.value(tokens))
        )
        query = rearrange(self.attention.query(tokens), "b t s c -> (b t) s c")
        mask = repeat(seen.expand(batch, -1, -1), "b t w -> (b t) 1 1 (w s)", s=space)
        return rearrange(self.attention.attend(query, key, value, mask), "(b t) s c -> b t s c", b=batch)


def neighbours(frames: Tensor, radius: int) -> Tensor:
    """[b, t, s, c] -> [b, t, 2 radius + 1, s, c]: frames t - radius .. t + radius, zeros past the ends."""
    padded = F.pad(frames, (0, 0, 0, 0, radius, radius))
    return rearrange(padded.unfold(1, 2 * radius + 1, 1), "b t s c w -> b t w s c")


def frames_seen(time: int, radius: int, lengths: Tensor | None, device: torch.device) -> Tensor:
    """[b or 1, t, 2 radius + 1] which neighbours exist. A frame always sees itself, padding too."""
    shift = torch.arange(-radius, radius + 1, device=device)
    other = torch.arange(time, device=device)[:, None] + shift  # [t, w]
    before_end = other[None] < (time if lengths is None else lengths.to(device)[:, None, None])
    real = (other >= 0) & before_end
    return real | (shift == 0)

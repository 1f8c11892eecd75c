"""Propagation through time: the paper's spatio-temporal transformer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from lastseen.model.attention import FeedForward, MultiHead
from lastseen.model.correspondence import conv_block

GRID = 8  # of a frame's tokens in propagation; the head's is twice as large


class SpatioTemporalTransformer(nn.Module):
    """Frames shrunk to a small grid; each token attends to the frames within `radius` of its own.

    | in  | [b, t, c, H, W], t at most `clip_length`                                              |
    | out | [b, t, c, grid, grid], and with `skip` the frames before the last halving of their    |
    |     | grid [b, t, c, 2 grid, 2 grid], for the head's skip connection                        |

    `lengths` [b]: how many frames of each clip are real; the rest is padding that no real frame attends to.
    `runs`: the lengths of several clips in a row, which do not attend to each other.
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
        grid: int = GRID,
        skip: bool = False,
    ) -> None:
        super().__init__()
        self.clip_length, self.grid, self.radius, self.skip = clip_length, grid, radius, skip
        strides = _strides(side, grid)
        if skip and strides[-1:] != [2]:
            raise ValueError(
                f"a skip connection needs a frame's grid of {2 * grid} times twos and threes, got {side}"
            )
        self.shrink = nn.Sequential(*(conv_block(dim, dim, stride=stride) for stride in strides))
        self.positions = nn.Parameter(torch.zeros(1, clip_length * grid * grid, dim))
        self.layers = nn.ModuleList(TemporalLayer(dim, heads, hidden) for _ in range(layers))

    @property
    def context(self) -> int | None:
        """How many frames on each side can influence a frame; None if all of the clip."""
        return None if self.radius is None else self.radius * len(self.layers)

    @property
    def overlap(self) -> int:
        """Frames of context on each side of a clip of a longer video: `context`, or a quarter of a clip if
        that is unlimited, and less than half a clip, so that clips advance."""
        if self.context is None:
            return self.clip_length // 4
        return min(self.context, (self.clip_length - 1) // 2)

    def forward(
        self, frames: Tensor, lengths: Tensor | None = None, runs: tuple[int, ...] | None = None
    ) -> tuple[Tensor, ...]:
        tokens, larger = self._shrunk(frames)
        clips = (tokens,) if runs is None else torch.split(tokens, list(runs), 1)
        return self._for_head(torch.cat([self._attended(clip, lengths) for clip in clips], 1), larger)

    def overlapping(self, frames: Tensor, context: int, first: int) -> tuple[Tensor, ...]:
        """Many overlapping clips of one video at once; only attention computes a frame for each of its clips.

        Frames [1, n, c, H, W] of clips that start `clip_length - 2 context` frames after each other and end
        with the last -> as `forward`, for the frames from `first` (at most `context`) to n - context.
        """
        length, step = self.clip_length, self.clip_length - 2 * context
        tokens, larger = self._shrunk(frames)
        clips = rearrange(tokens[0].unfold(0, length, step), "b s c t -> b t s c")
        done = self._attended(clips)
        kept = torch.cat([done[0, first:context], done[:, context : length - context].flatten(0, 1)])
        return self._for_head(kept[None], larger[:, first : frames.shape[1] - context])

    def _shrunk(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [b, t, grid * grid, c], and the frames before the last convolution."""
        larger = small = rearrange(frames, "b t c h w -> (b t) c h w")
        for smaller in self.shrink:
            larger, small = small, smaller(small)
        tokens = rearrange(small, "(b t) c h w -> b t (h w) c", b=len(frames))
        return tokens, rearrange(larger, "(b t) c h w -> b t c h w", b=len(frames))

    def _for_head(self, tokens: Tensor, larger: Tensor) -> tuple[Tensor, ...]:
        small = rearrange(tokens, "b t (h w) c -> b t c h w", h=self.grid)
        return (small, larger) if self.skip else (small,)

    def _attended(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[b, t, grid * grid, c] of clips -> the same; the only step in which frames exchange information."""
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

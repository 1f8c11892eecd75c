"""Post-norm transformer parts shared by correspondence and propagation, on fused attention."""

from __future__ import annotations

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn


class MultiHead(nn.Module):
    """Multi-head attention with the projections apart, so that a caller may regroup keys and values."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor, context: Tensor, seen: Tensor | None = None) -> Tensor:
        """tokens [n, l, c], context [n, m, c] -> [n, l, c]; `seen` as in `attend`"""
        return self.attend(self.query(tokens), self.key(context), self.value(context), seen)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None = None) -> Tensor:
        """Projected [n, l, c], [n, m, c], [n, m, c] -> [n, l, c]; `seen` [n, 1, 1, m] hides keys."""
        q, k, v = (rearrange(x, "n l (h d) -> n h l d", h=self.heads) for x in (query, key, value))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.out(rearrange(mixed, "n h l d -> n l (h d)"))


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(tokens)))

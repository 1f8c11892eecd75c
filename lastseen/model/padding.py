"""Padding patches in groups: a frame that is not square needs fewer tokens.

A 16:9 frame fills 18 of 32 rows of patches; the rest is padding of one colour. Leaving those patches out
would change attention, and with it the features of the picture. Instead one patch stands for a group of
similar ones, and attention counts it as often as the group has members: log(count) is added to its logits.
Groups are small next to the picture, where padding attends to it, and larger beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from lastseen.box import Letterbox

NEAR_ALONG = 2  # patches of a group in the line of padding next to the picture, along it
FAR_ALONG, FAR_ACROSS = 4, 3  # of a group beyond
LEAST_SAVED = 1 / 16  # share of the patches; with less to save all patches are encoded


@dataclass(frozen=True)
class PaddingGroups:
    """Which of a canvas's patches are encoded, row by row, and which of those stands for each patch."""

    encoded: tuple[int, ...]  # patches, in ascending order
    counts: tuple[int, ...]  # of the patches that each of them stands for
    stand_in: tuple[int, ...]  # for each patch of the canvas: the place of its stand-in in `encoded`

    def attention_bias(self, others: int, like: Tensor) -> Tensor:
        """[l, l] for l = others + encoded tokens: what attention adds to the logits of each query and key.

        All rows are the same, but OpenVINO computes wrongly in bfloat16 with one row for all.
        """
        counts = torch.tensor((1,) * others + self.counts, dtype=torch.float32, device=like.device)
        return counts.log().to(like.dtype).expand(len(counts), -1).contiguous()

    def selected(self, patches: Tensor) -> Tensor:
        """[n or 1, patches, c] -> [n or 1, encoded, c]"""
        return patches.index_select(1, torch.tensor(self.encoded, device=patches.device))

    def spread(self, encoded: Tensor) -> Tensor:
        """[n, encoded, c] -> [n, patches, c]"""
        return encoded.index_select(1, torch.tensor(self.stand_in, device=encoded.device))


@lru_cache(maxsize=64)
def padding_groups(letterbox: Letterbox, patch: int) -> PaddingGroups | None:
    """Groups of the patches that show only padding; None if the canvas has too few of them."""
    rows, columns = letterbox.canvas_height // patch, letterbox.canvas_width // patch
    top, bottom = _showing(letterbox.top, letterbox.content_height, patch)
    left, right = _showing(letterbox.left, letterbox.content_width, patch)
    groups: dict[tuple[int, ...], list[int]] = {}
    for row in range(rows):
        for column in range(columns):
            above, beside = _outside(row, top, bottom), _outside(column, left, right)
            groups.setdefault(_group(row, column, above, beside), []).append(row * columns + column)
    middles = {_middle(members, columns): members for members in groups.values()}
    encoded = sorted(middles)
    if len(encoded) > (1 - LEAST_SAVED) * rows * columns:
        return None
    stand_in = [0] * (rows * columns)
    for place, one in enumerate(encoded):
        for member in middles[one]:
            stand_in[member] = place
    return PaddingGroups(tuple(encoded), tuple(len(middles[one]) for one in encoded), tuple(stand_in))


def _showing(start_px: int, length_px: int, patch: int) -> tuple[int, int]:
    """The first patch along an axis that shows the picture, and the one after the last."""
    return start_px // patch, -(-(start_px + length_px) // patch)


def _outside(place: int, first: int, end: int) -> int:
    """Signed distance in patches from the patches [first, end); 0 inside."""
    return min(place - first, 0) + max(place - end + 1, 0)


def _group(row: int, column: int, above: int, beside: int) -> tuple[int, ...]:
    """Equal for patches of one group."""
    if not above and not beside:
        return 0, row, column
    axis, across, along = (1, above, column) if above else (2, beside, row)
    side, distance = (1 if across > 0 else -1), abs(across)
    if distance == 1:
        return axis, side, 0, along // NEAR_ALONG
    return axis, side, 1 + (distance - 2) // FAR_ACROSS, along // FAR_ALONG


def _middle(members: list[int], columns: int) -> int:
    """The member nearest to the group's middle."""
    row = sum(member // columns for member in members) / len(members)
    column = sum(member % columns for member in members) / len(members)
    return min(members, key=lambda m: ((m // columns - row) ** 2 + (m % columns - column) ** 2, m))

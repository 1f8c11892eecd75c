"""Unit vectors of patches in a few bits: a basis fitted to features, most digits where they vary most.

    vector [384] --minus the mean, along the axes--> 96 numbers of 4 bits, 192 of 2 bits --> 96 bytes

Axes are the principal axes of features of many pictures, so that the first ones hold most of what differs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

FOUR_BITS, TWO_BITS = 96, 192  # axes with numbers of so many bits
AXES = FOUR_BITS + TWO_BITS
TOKEN_BYTES = (4 * FOUR_BITS + 2 * TWO_BITS) // 8
# Steps of the best uniform quantisers of a normal distribution, in standard deviations.
STEP_OF_16, STEP_OF_4 = 0.335, 0.996


@dataclass(frozen=True, eq=False)
class TokenBasis:
    """| mean       | [c]       of the vectors                       |
    | axes       | [c, AXES] orthonormal, by descending variance  |
    | deviations | [AXES]    standard deviations along the axes   |
    """

    mean: Tensor
    axes: Tensor
    deviations: Tensor

    @classmethod
    def fitted(cls, mean: Tensor, covariance: Tensor) -> TokenBasis:
        """From the mean [c] and covariance [c, c] of vectors."""
        variances, axes = torch.linalg.eigh(covariance.double())
        variances, axes = variances.flip(0)[:AXES], axes.flip(1)[:, :AXES]  # eigh's ascend
        return cls(mean.float(), axes.float().contiguous(), variances.clamp(min=1e-12).sqrt().float())

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for part in (self.mean, self.axes, self.deviations):
            digest.update(part.cpu().numpy().tobytes())
        return digest.hexdigest()

    def encode(self, vectors: Tensor) -> Tensor:
        """Unit vectors [.., c] -> [.., TOKEN_BYTES] uint8"""
        device = vectors.device
        numbers = (vectors - self.mean.to(device)) @ self.axes.to(device) / self._steps(vectors)
        four = (numbers[..., :FOUR_BITS].floor() + 8).clamp(0, 15).to(torch.uint8)
        two = (numbers[..., FOUR_BITS:].floor() + 2).clamp(0, 3).to(torch.uint8)
        low, high = four.chunk(2, -1)
        quarters = two.chunk(4, -1)
        together = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
        return torch.cat([low | high << 4, together], -1)

    def numbers(self, codes: Tensor) -> Tensor:
        """[.., TOKEN_BYTES] uint8 -> [.., AXES] coordinates along the axes"""
        four, two = codes[..., : FOUR_BITS // 2], codes[..., FOUR_BITS // 2 :]
        parts = [(four & 15).float() - 7.5, (four >> 4).float() - 7.5]
        parts += [(two >> shift & 3).float() - 1.5 for shift in (0, 2, 4, 6)]
        return torch.cat(parts, -1).mul_(self._steps(codes))

    def decode(self, codes: Tensor) -> Tensor:
        """[.., TOKEN_BYTES] uint8 -> unit vectors [.., c]"""
        device = codes.device
        return F.normalize(self.numbers(codes) @ self.axes.T.to(device) + self.mean.to(device), dim=-1)

    def cosines(self, codes: Tensor, vectors: Tensor) -> Tensor:
        """[.., TOKEN_BYTES] uint8, unit vectors [k, c] -> [.., k], as `decode` would give them, for less"""
        axes, mean = self.axes.to(vectors.device), self.mean.to(vectors.device)
        numbers = self.numbers(codes)
        along = numbers @ torch.cat([axes.T @ vectors.T, (axes.T @ mean)[:, None]], 1)
        length = (mean @ mean + 2 * along[..., -1:] + numbers.square().sum(-1, keepdim=True)).sqrt()
        return (along[..., :-1] + vectors @ mean) / length

    def _steps(self, like: Tensor) -> Tensor:
        """[AXES] the quantiser's step along each axis"""
        steps = torch.full((AXES,), STEP_OF_16)
        steps[FOUR_BITS:] = STEP_OF_4
        return (steps * self.deviations.cpu()).to(like.device)

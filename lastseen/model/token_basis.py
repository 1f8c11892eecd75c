"""Unit vectors of patches in few bits, four neighbours together, most bits where they vary most.

    2 x 2 vectors [2, 2, c] --minus the mean, along the axes--> [2, 2, a] --sums and differences--> [4, a]
        --as many bits as each of these numbers deserves--> 384 bytes

Axes are the principal axes of features of many pictures. Neighbouring patches are alike, so that their sum
takes most of the bits and their differences few.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 2  # patches of a block on each side
BANDS = SIDE * SIDE  # sums and differences of a block's patches
BLOCK_BYTES = 384
AT_ONCE = 1024  # blocks whose numbers fit in a processor's cache
MOST_BITS = 6  # of a number
# Of a uniform quantiser of a normal distribution, by bits: the best step in standard deviations, and the
# share of the variance that is lost.
STEPS = (0.0, 1.596, 0.996, 0.586, 0.335, 0.188, 0.104)
LOST = (1.0, 0.3634, 0.1188, 0.03744, 0.01154, 0.00349, 0.00104)
# Patches (top left, top right, bottom left, bottom right) to bands and back.
SUMS = ((0.5, 0.5, 0.5, 0.5), (0.5, -0.5, 0.5, -0.5), (0.5, 0.5, -0.5, -0.5), (0.5, -0.5, -0.5, 0.5))


@dataclass(frozen=True, eq=False)
class TokenBasis:
    """| mean       | [c]        of the vectors                                |
    | axes       | [c, a]     orthonormal, by descending variance           |
    | deviations | [BANDS, a] standard deviations of the bands along them   |
    | padding    | [2, d, c]  of patches before and after the picture, by their distance from it |
    """

    mean: Tensor
    axes: Tensor
    deviations: Tensor
    padding: Tensor

    @classmethod
    def fitted(cls, mean: Tensor, covariance: Tensor, padding: Tensor) -> TokenBasis:
        """From the mean [4 c] and covariance [4 c, 4 c] of blocks' vectors, patch by patch, and the mean
        vectors of padding [2, d, c]."""
        channels = len(mean) // BANDS
        of_pairs = covariance.double().view(BANDS, channels, BANDS, channels)
        own = torch.stack([of_pairs[patch, :, patch] for patch in range(BANDS)]).mean(0)
        axes = torch.linalg.eigh(own)[1].flip(1)  # eigh's ascend
        sums = torch.tensor(SUMS, dtype=torch.float64)
        of_bands = torch.einsum("bp,pcqd,bq->bcd", sums, of_pairs, sums)
        variances = torch.einsum("ca,bcd,da->ba", axes, of_bands, axes).clamp(min=1e-12)
        return cls(
            mean=mean.view(BANDS, channels).mean(0).float(),
            axes=axes.float().contiguous(),
            deviations=variances.sqrt().float().contiguous(),
            padding=F.normalize(padding.float(), dim=-1),
        )

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for part in (self.mean, self.axes, self.deviations, self.padding):
            digest.update(part.cpu().numpy().tobytes())
        return digest.hexdigest()

    def encode(self, vectors: Tensor) -> np.ndarray:
        """Unit vectors [.., BANDS, c], a block's patches row by row -> [.., BLOCK_BYTES] uint8"""
        device = vectors.device
        along = (vectors - self.mean.to(device)) @ self.axes.to(device)
        bands = torch.einsum("bp,...pa->...ba", self._sums(device), along).flatten(-2)
        kept = bands[..., self._order.to(device)] / self._steps.to(device)
        codes = (kept.floor() + self._half.to(device)).clamp(min=0).minimum(2 * self._half.to(device) - 1)
        whole = codes.to(torch.uint8).cpu().numpy()
        planes = [whole[..., :count] >> bit & 1 for bit, count in enumerate(self._counts)]
        return np.packbits(np.concatenate(planes, -1), axis=-1)

    def bands(self, packed: np.ndarray) -> Tensor:
        """[.., BLOCK_BYTES] uint8 -> [.., BANDS, a] sums and differences of patches along the axes"""
        bits, at = np.unpackbits(packed, axis=-1), 0
        # The last code stands for all numbers without bits.
        codes = np.zeros((*packed.shape[:-1], self._counts[0] + 1), np.uint8)
        for bit, count in enumerate(self._counts):
            codes[..., :count] |= bits[..., at : at + count] << bit
            at += count
        places, middle, steps = self._layout
        bands = torch.from_numpy(np.take(codes, places, axis=-1)).float()
        return bands.sub_(middle).mul_(steps).view(*packed.shape[:-1], BANDS, -1)

    def decode(self, packed: np.ndarray) -> Tensor:
        """[.., BLOCK_BYTES] uint8 -> unit vectors [.., BANDS, c]"""
        bands = self.bands(packed)
        numbers = torch.einsum("bp,...ba->...pa", self._sums(bands.device), bands)
        return F.normalize(numbers @ self.axes.T + self.mean, dim=-1)

    def cosines(self, packed: np.ndarray, vectors: Tensor) -> Tensor:
        """[.., BLOCK_BYTES] uint8, unit vectors [k, c] -> [.., BANDS, k], as `decode` would give them, for
        less"""
        some = packed.reshape(-1, BLOCK_BYTES)
        parts = [self._cosines(some[at : at + AT_ONCE], vectors) for at in range(0, len(some), AT_ONCE)]
        return torch.cat(parts).view(*packed.shape[:-1], BANDS, -1)

    def _cosines(self, packed: np.ndarray, vectors: Tensor) -> Tensor:
        axes, mean = self.axes.to(vectors.device), self.mean.to(vectors.device)
        bands, sums = self.bands(packed).to(vectors.device), self._sums(vectors.device)
        # Patches are mixed from bands only after the products, which are far smaller.
        of_bands = bands @ torch.cat([axes.T @ vectors.T, (axes.T @ mean)[:, None]], 1)
        along = torch.einsum("bp,...bk->...pk", sums, of_bands)
        products = bands @ bands.transpose(-1, -2)
        squares = torch.einsum("bp,...bd,dp->...p", sums, products, sums)[..., None]
        length = (mean @ mean + 2 * along[..., -1:] + squares).sqrt()
        return (along[..., :-1] + vectors @ mean) / length

    @cached_property
    def _bits(self) -> Tensor:
        """[BANDS * a] for each number: each further bit goes where it saves most of what is lost."""
        variances = self.deviations.double().cpu().flatten().square()
        lost = torch.tensor(LOST, dtype=torch.float64)
        saved = (variances[:, None] * (lost[:-1] - lost[1:])).flatten()
        chosen = torch.sort(saved, descending=True, stable=True)[1][: 8 * BLOCK_BYTES]
        return torch.bincount(chosen // MOST_BITS, minlength=len(variances))

    @cached_property
    def _order(self) -> Tensor:
        """The numbers that have bits, those with most of them first."""
        order = torch.sort(self._bits, descending=True, stable=True)[1]
        return order[: int((self._bits > 0).sum())]

    @cached_property
    def _counts(self) -> list[int]:
        """How many numbers have a first, a second, .. bit."""
        counts = [int((self._bits > bit).sum()) for bit in range(MOST_BITS)]
        return [count for count in counts if count]

    @cached_property
    def _layout(self) -> tuple[np.ndarray, Tensor, Tensor]:
        """For each of the BANDS * a numbers: its place among those that have bits, the middle of its codes,
        and its step, which is 0 for those without."""
        places = np.full(self.deviations.numel(), len(self._order))
        places[self._order.numpy()] = np.arange(len(self._order))
        middle, steps = torch.zeros(2, len(places))
        middle[self._order], steps[self._order] = self._half - 0.5, self._steps
        return places, middle, steps

    @cached_property
    def _steps(self) -> Tensor:
        bits = self._bits[self._order]
        return torch.tensor(STEPS)[bits] * self.deviations.cpu().flatten()[self._order]

    @cached_property
    def _half(self) -> Tensor:
        """Half the number of levels."""
        return 2.0 ** (self._bits[self._order] - 1)

    def _sums(self, device: torch.device) -> Tensor:
        return torch.tensor(SUMS, device=device)

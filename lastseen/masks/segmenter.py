"""A picture and a box in, the mask of what the box shows out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.box import Box
from lastseen.masks.mobile_sam import MobileSam

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of ImageNet, for 0 to 255


@dataclass(frozen=True, kw_only=True, eq=False)
class BoxMask:
    """What the segmenter says of one box."""

    mask: np.ndarray  # [rows, columns] bool, over all of the picture, at the segmenter's resolution
    bounds: Box | None  # of the mask, in pixels of the picture; None if it is empty
    predicted_iou: float  # of the mask with the true one, by the segmenter's own estimate


class Segmenter(Protocol):
    def masks(self, pictures: Sequence[np.ndarray], boxes: Sequence[Box]) -> list[BoxMask]:
        """Square pictures [side, side, 3] of any sizes, and a box in pixels of each."""


class MobileSamSegmenter:
    """MobileSAM on pictures scaled to `input_px`.

    The published input is 1024 px for whole pictures. A window around the thing at 512 px shows it larger and
    takes a fifth of the time.
    """

    def __init__(
        self, model: MobileSam, *, device: str | torch.device = "cpu", input_px: int = 512, batch: int = 1
    ) -> None:
        self.model = model.to(device).eval()
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.device, self.input_px, self.batch = torch.device(device), input_px, batch

    @torch.inference_mode()
    def masks(self, pictures: Sequence[np.ndarray], boxes: Sequence[Box]) -> list[BoxMask]:
        found: list[BoxMask] = []
        for at in range(0, len(pictures), self.batch):
            found += self._masks(pictures[at : at + self.batch], boxes[at : at + self.batch])
        return found

    def _masks(self, pictures: Sequence[np.ndarray], boxes: Sequence[Box]) -> Iterator[BoxMask]:
        sides = [len(picture) for picture in pictures]
        prompts = torch.tensor([box.scaled(1 / side, 1 / side).xyxy for box, side in zip(boxes, sides)])
        inputs = torch.cat([self._input(picture) for picture in pictures])
        embedding = self.model.encode(inputs.contiguous(memory_format=torch.channels_last))
        logits, ious = self.model.segment(embedding, prompts.to(self.device))
        for side, of_one, predicted in zip(sides, logits, ious.cpu()):
            best = _best(predicted)
            whole = F.interpolate(of_one[None, best : best + 1], (self.input_px,) * 2, mode="bilinear")
            mask = whole[0, 0] > 0
            bounds = mask_bounds(mask)
            factor = side / self.input_px
            yield BoxMask(
                mask=mask.cpu().numpy(),
                bounds=None if bounds is None else bounds.scaled(factor, factor),
                predicted_iou=float(predicted[best]),
            )

    def _input(self, picture: np.ndarray) -> Tensor:
        """[side, side, 3] -> normalised [1, 3, input_px, input_px]"""
        pixels = (
            torch.from_numpy(np.ascontiguousarray(picture)).to(self.device).permute(2, 0, 1)[None].float()
        )
        scaled = F.interpolate(pixels, (self.input_px,) * 2, mode="bilinear", antialias=True)
        mean, std = (torch.tensor(values, device=self.device).view(1, 3, 1, 1) for values in (MEAN, STD))
        return (scaled - mean) / std


def _best(predicted: Tensor) -> int:
    return 1 + int(predicted[1:].argmax())


def mask_bounds(mask: Tensor) -> Box | None:
    """Bounds of what is True in [rows, columns]; None if nothing is."""
    rows, columns = (torch.nonzero(mask.any(axis)).flatten().tolist() for axis in (1, 0))
    if not rows:
        return None
    return Box(float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))

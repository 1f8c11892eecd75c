"""The originals' particle filter: boxes around the last one, of which the one that looks most alike is next.

Looks are the mean patch feature of a backbone, here that of the detector; the originals take an ImageNet
ResNet-50.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lastseen.baselines.roi_align import roi_align
from lastseen.box import Box
from lastseen.model.inputs import normalised

LEAST_SIDE_PX = 4.0  # of a particle's box


@dataclass(frozen=True, kw_only=True)
class ParticleFilter:
    """The originals' numbers, but for `crop_px` and for `stop`: .85 belongs to their features."""

    backbone: nn.Module = field(repr=False, compare=False)
    stop: float = 0.85  # cosine
    particles: int = 150
    position_std: float = 0.07  # of the picture's height and width
    first_scale_std: float = 0.1
    scale_std: float = 0.05
    template_rate: float = 0.001  # share of the new look in the template
    crop_px: int = 126  # a particle's content is resampled to such a square; 256 px in the originals
    seed: int = 0

    name = "particles"
    keeps_lost_frame = True

    def start(self, picture: np.ndarray, box: Box) -> Followed:
        return Followed(self, picture, box)


class Followed:
    """A particle is the centre of a box, and the scales of its sides against the start box: x, y, sx, sy."""

    def __init__(self, settings: ParticleFilter, picture: np.ndarray, box: Box) -> None:
        self.settings = settings
        self.device = next(settings.backbone.parameters()).device
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.sides = torch.tensor([box.width, box.height])
        self.best = torch.tensor([(box.x1 + box.x2) / 2, (box.y1 + box.y2) / 2, 1.0, 1.0])
        self.scale_std = settings.first_scale_std
        self.template = self._looks(picture, torch.tensor([box.xyxy]))[0]

    def follow(self, picture: np.ndarray) -> tuple[Box, float]:
        settings = self.settings
        height, width = picture.shape[:2]
        spread = torch.tensor(
            [settings.position_std * width, settings.position_std * height, self.scale_std, self.scale_std]
        )
        # All particles are drawn anew around the best one, so that none has a weight from before.
        drawn = self.best + spread * torch.randn(settings.particles, 4, generator=self.generator)
        self.scale_std = settings.scale_std
        boxes = self._boxes(drawn, width, height)
        looks = self._looks(picture, boxes)
        cosine = F.cosine_similarity(looks, self.template[None], dim=1)
        chosen = int(cosine.argmax())
        self.best = drawn[chosen]
        rate = settings.template_rate
        self.template = rate * looks[chosen] + (1 - rate) * self.template
        return Box(*boxes[chosen].tolist()), float(cosine[chosen])

    def _boxes(self, particles: Tensor, width: int, height: int) -> Tensor:
        half = (self.sides * particles[:, 2:].clamp(min=0.05)).clamp(min=LEAST_SIDE_PX) / 2
        sides = torch.tensor([width, height], dtype=torch.float32)
        low = torch.minimum((particles[:, :2] - half).clamp(min=0), sides - LEAST_SIDE_PX)
        high = torch.minimum(torch.maximum(particles[:, :2] + half, low + LEAST_SIDE_PX), sides)
        return torch.cat([low, high], 1)

    @torch.inference_mode()
    def _looks(self, picture: np.ndarray, boxes: Tensor) -> Tensor:
        """Boxes [n, 4] in pixels -> mean features [n, c] on the CPU"""
        height, width = picture.shape[:2]
        frame = (
            torch.from_numpy(np.ascontiguousarray(picture)).to(self.device).permute(2, 0, 1)[None].float()
            / 255
        )
        unit = boxes.to(self.device) / torch.tensor([width, height] * 2, device=self.device)
        crops = roi_align(frame, unit[None], self.settings.crop_px)[0]
        return self.settings.backbone(normalised(crops)).float().mean((2, 3)).cpu()

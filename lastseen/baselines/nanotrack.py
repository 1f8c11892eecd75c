"""NanoTrack v2 (Apache-2.0), a small published tracker: stands for KYS, whose weights cannot be had.

The template is a square around the start box; in each picture a square twice as wide around the last box is
searched. Places are chosen by score, less a penalty for boxes that change their size or shape, and near the
last place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.baselines.nanotrack_network import NanoTrackNetwork
from lastseen.box import Box

TEMPLATE_PX, SEARCH_PX, STRIDE_PX, CELLS = 127, 255, 16, 16
LEAST_SIDE_PX = 10.0


@dataclass(frozen=True, kw_only=True)
class NanoTrack:
    """The published settings; `stop` is ours, since the published tracker never stops."""

    network: NanoTrackNetwork = field(repr=False, compare=False)
    stop: float = 0.8  # score
    context: float = 0.5  # of the box's mean side, added on every side
    window_influence: float = 0.455
    size_penalty: float = 0.055
    size_rate: float = 0.37

    name = "nano"
    keeps_lost_frame = False

    def start(self, picture: np.ndarray, box: Box) -> Followed:
        return Followed(self, picture, box)


class Followed:
    def __init__(self, settings: NanoTrack, picture: np.ndarray, box: Box) -> None:
        self.settings, self.network = settings, settings.network
        self.device = next(self.network.parameters()).device
        self.centre = np.array([(box.x1 + box.x2) / 2, (box.y1 + box.y2) / 2])
        self.sides = np.array([box.width, box.height])
        line = torch.hann_window(CELLS, periodic=False)
        self.window = torch.outer(line, line).numpy()
        cells = (np.arange(CELLS) - CELLS // 2) * STRIDE_PX
        self.across, self.down = np.meshgrid(cells, cells)
        with torch.inference_mode():
            self.template = self.network.encode(self._square(picture, self._reach(self.sides), TEMPLATE_PX))

    @torch.inference_mode()
    def follow(self, picture: np.ndarray) -> tuple[Box, float]:
        reach = self._reach(self.sides)
        scale = TEMPLATE_PX / reach  # pixels of the search picture per pixel
        search = self._square(picture, reach * SEARCH_PX / TEMPLATE_PX, SEARCH_PX)
        score, distances = (
            part[0].cpu().numpy() for part in self.network.compare(self.template, self.network.encode(search))
        )
        left, top = self.across - distances[0], self.down - distances[1]
        right, bottom = self.across + distances[2], self.down + distances[3]
        wide, high = right - left, bottom - top
        penalty = self._penalty(wide, high, scale)
        settings = self.settings
        ranked = (1 - settings.window_influence) * penalty * score + settings.window_influence * self.window
        at = np.unravel_index(int(ranked.argmax()), ranked.shape)
        rate = float(penalty[at] * score[at]) * settings.size_rate
        moved = np.array([left[at] + right[at], top[at] + bottom[at]]) / 2 / scale
        height, width = picture.shape[:2]
        self.centre = (self.centre + moved).clip(0, [width, height])
        sides = (1 - rate) * self.sides + rate * np.array([wide[at], high[at]]) / scale
        self.sides = sides.clip(LEAST_SIDE_PX, [width, height])
        (x, y), (w, h) = self.centre, self.sides / 2
        return Box(*map(float, (x - w, y - h, x + w, y + h))).clipped(width, height), float(score[at])

    def _reach(self, sides: np.ndarray) -> float:
        """Side of the template's square in pixels."""
        return float(np.sqrt((sides + self.settings.context * sides.sum()).prod()))

    def _penalty(self, wide: np.ndarray, high: np.ndarray, scale: float) -> np.ndarray:
        size = _padded_side(wide, high) / _padded_side(*(self.sides * scale))
        ratio = (self.sides[0] / self.sides[1]) / (wide / high)
        change = np.maximum(size, 1 / size) * np.maximum(ratio, 1 / ratio)
        return np.exp(-(change - 1) * self.settings.size_penalty)

    def _square(self, picture: np.ndarray, side_px: float, size: int) -> Tensor:
        """The square of `side_px` around the centre -> [1, 3, size, size] in 0..255; beyond the picture its
        mean colour."""
        # The network reads blue, green, red, as the library does with which it was trained.
        bgr = np.ascontiguousarray(picture[..., ::-1])
        frame = torch.from_numpy(bgr).to(self.device).permute(2, 0, 1)[None].float()
        mean = frame.mean((2, 3), keepdim=True)
        height, width = picture.shape[:2]
        places = ((torch.arange(size, device=self.device) + 0.5) / size - 0.5) * side_px
        x = (self.centre[0] + places) / width * 2 - 1
        y = (self.centre[1] + places) / height * 2 - 1
        grid = torch.stack([x.expand(size, -1), y[:, None].expand(-1, size)], -1)[None].float()
        return F.grid_sample(frame - mean, grid, "bilinear", "zeros", align_corners=False) + mean


def _padded_side(wide: np.ndarray, high: np.ndarray) -> np.ndarray:
    more = (wide + high) / 2
    return np.sqrt((wide + more) * (high + more))

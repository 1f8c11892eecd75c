"""NanoTrack v2's network (a MobileNetV3 of 48 channels and a head of two towers), from its weights file.

Names of parameters are those of the published file, nanotrack_v2.pth, which loads strictly.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lastseen.errors import WeightsError
from lastseen.tensors import State, load_strictly

# Kernel, expanded channels, channels, squeeze-and-excitation's channels (0: none), hard swish, stride
BLOCKS = (
    (3, 16, 16, 8, False, 2),
    (3, 72, 24, 0, False, 2),
    (3, 88, 24, 0, False, 1),
    (5, 96, 40, 24, True, 2),
    (5, 240, 40, 64, True, 1),
    (5, 240, 40, 64, True, 1),
    (5, 120, 48, 32, True, 1),
    (5, 144, 48, 40, True, 1),
)
TEMPLATE_CELLS = 64  # 8 x 8 features of the template, each a channel of the correlation
TOWER_CHANNELS, TOWER_BLOCKS = 96, 6


class NanoTrackNetwork(nn.Module):
    """| template | [1, 3, 127, 127] -> [1, 48, 8, 8]   |
    | search   | [n, 3, 255, 255] -> [n, 48, 16, 16] |
    """

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.ModuleDict({"features": _backbone()})
        self.ban_head = _Head()

    def encode(self, pictures: Tensor) -> Tensor:
        return self.backbone["features"](pictures)

    def compare(self, template: Tensor, search: Tensor) -> tuple[Tensor, Tensor]:
        """-> scores [n, 16, 16] in [0, 1], and distances [n, 4, 16, 16] of each place to the box's left, top,
        right and bottom side, in pixels of the search picture"""
        return self.ban_head(template, search)


def load_nanotrack(path: Path) -> NanoTrackNetwork:
    """From nanotrack_v2.pth, a training checkpoint: nothing but tensors and numbers is read from it."""
    if not path.is_file():
        raise WeightsError(f"{path}: no such file; give the tracker's weights, nanotrack_v2.pth")
    scalar = import_module("numpy._core.multiarray").scalar
    numbers: list[Any] = [  # its log of numbers is NumPy's
        *((scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
        np.dtype,
        *{type(np.dtype(name)) for name in ("float32", "float64", "int64")},
    ]
    try:
        with torch.serialization.safe_globals(numbers):
            data = torch.load(path, map_location="cpu", weights_only=True)
        state: State = data["state_dict"]
        # The neck is of a variant with more channels.
        kept = {name: value for name, value in state.items() if not name.startswith("neck.")}
    except (pickle.UnpicklingError, KeyError, TypeError, AttributeError, EOFError, RuntimeError, ValueError):
        raise WeightsError(
            f"{path} is not NanoTrack's weights file, or is damaged; expected nanotrack_v2.pth"
        ) from None
    network = NanoTrackNetwork()
    load_strictly(network, kept, path)
    return network.eval()


def _backbone() -> nn.Sequential:
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
    blocks, before = [], 16
    for block in BLOCKS:
        blocks.append(_Block(before, *block))
        before = block[2]
    return nn.Sequential(stem, *blocks)


class _Block(nn.Module):
    """Inverted residual; the layers stand in the order of the published file."""

    def __init__(
        self, before: int, kernel: int, wide: int, after: int, squeezed: int, swish: bool, stride: int
    ) -> None:
        super().__init__()
        self.adds = stride == 1 and before == after
        squeeze = _Squeeze(wide, squeezed) if squeezed else nn.Identity()
        depthwise = [
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
        ]
        narrow = [nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after)]
        layers: Sequence[nn.Module]
        if before == wide:  # nothing to expand: no first convolution, and activation before squeezing
            layers = [*depthwise, _activation(swish), squeeze, *narrow]
        else:
            expand = [nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), _activation(swish)]
            layers = [*expand, *depthwise, squeeze, _activation(swish), *narrow]
        self.conv = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.conv(features) if self.adds else self.conv(features)


def _activation(swish: bool) -> nn.Module:
    return nn.Hardswish() if swish else nn.ReLU()


class _Squeeze(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fc = nn.Sequential(
            nn.Linear(channels, squeezed), nn.ReLU(), nn.Linear(squeezed, channels), nn.Hardsigmoid()
        )

    def forward(self, features: Tensor) -> Tensor:
        return features * self.fc(features.mean((2, 3)))[:, :, None, None]


class _Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.corr_pw_reg, self.corr_pw_cls = _Correlation(48), _Correlation(48)
        self.cls_pw_tower, self.bbox_pw_tower = _tower(), _tower()
        self.cls_pred = nn.Sequential(nn.Conv2d(TOWER_CHANNELS, 2, 1))
        self.bbox_pred = nn.Sequential(nn.Conv2d(TOWER_CHANNELS, 4, 1))

    def forward(self, template: Tensor, search: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.cls_pred(self.cls_pw_tower(self.corr_pw_cls(template, search)))
        sides = self.bbox_pred(self.bbox_pw_tower(self.corr_pw_reg(template, search))).exp()
        return logits.softmax(1)[:, 1], sides


class _Correlation(nn.Module):
    """Every feature of the template with every feature of the search picture; then channel attention."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_kernel, self.conv_search = _pointwise(channels), _pointwise(channels)
        self.CA_layer = _ChannelAttention(TEMPLATE_CELLS)

    def forward(self, template: Tensor, search: Tensor) -> Tensor:
        kernel, searched = self.conv_kernel(template), self.conv_search(search)
        return self.CA_layer(
            torch.einsum("nck,nchw->nkhw", kernel.flatten(2).expand(len(search), -1, -1), searched)
        )


def _pointwise(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels))


class _ChannelAttention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        mean = features.mean((2, 3), keepdim=True)
        return features * self.fc2(F.relu(self.fc1(mean))).sigmoid()


def _tower() -> nn.Sequential:
    layers: list[nn.Module] = []
    before = TEMPLATE_CELLS
    for _ in range(TOWER_BLOCKS):
        layers += [
            nn.Conv2d(before, before, 3, padding=1, groups=before, bias=False),
            nn.Conv2d(before, TOWER_CHANNELS, 1, bias=False),
            nn.BatchNorm2d(TOWER_CHANNELS),
            nn.ReLU6(),
        ]
        before = TOWER_CHANNELS
    return nn.Sequential(*layers)

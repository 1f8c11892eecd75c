"""Poses of the wearer's hand and of the object it holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lastseen_synth.assets import Asset


@dataclass(frozen=True, kw_only=True)
class Grip:
    """| grip_m   | centre of the held object in the hand's coordinates |
    | place_m  | the same point relative to the body: ahead, left, up |
    | roll_rad | of the forearm about its length                      |
    | turn_rad | of the object about the vertical                     |
    """

    grip_m: tuple[float, float, float]
    place_m: tuple[float, float, float]
    roll_rad: float
    turn_rad: float

    @classmethod
    def draw(cls, hand: Asset, rng: np.random.Generator) -> Grip:
        side = 1.0 if hand.grip_m is not None and "left" in hand.name else -1.0
        return cls(
            grip_m=hand.grip_m or (0.0, 0.09, -0.03),
            place_m=(
                float(rng.uniform(0.34, 0.46)),
                side * float(rng.uniform(0.03, 0.14)),
                float(rng.uniform(1.12, 1.28)),
            ),
            roll_rad=-side * float(rng.uniform(0.5, 1.3)),
            turn_rad=float(rng.uniform(0, 2 * np.pi)),
        )


def held_transforms(
    grip: Grip, thing: Asset, body_to_world: Tensor, camera_to_world: Tensor
) -> tuple[Tensor, Tensor]:
    """Object-to-world transforms [N, 4, 4] of the hand and of the held object, given body and head poses.

    The hand follows half of the head's vertical motion.
    """
    head = camera_to_world[:, 2, 3]
    sway = 0.5 * (head - head.mean())
    place = body_to_world @ torch.tensor([*grip.place_m, 1.0], dtype=torch.float64)
    place = place[:, :3] + torch.stack([0 * sway, 0 * sway, sway], 1)
    rotation = body_to_world[:, :3, :3]
    # In hand coordinates the fingers point to +y and the back of the hand to +z.
    ahead = torch.tensor([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]], dtype=torch.float64)
    c, s = np.cos(grip.roll_rad), np.sin(grip.roll_rad)
    rolled = torch.tensor([[c, 0, s], [0, 1, 0], [-s, 0, c]], dtype=torch.float64)
    hand = _rigid(rotation @ ahead @ rolled, place, torch.tensor(grip.grip_m, dtype=torch.float64))
    c, s = np.cos(grip.turn_rad), np.sin(grip.turn_rad)
    turned = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)
    middle = torch.tensor([0.0, 0.0, thing.size_m[2] / 2], dtype=torch.float64)
    return hand, _rigid(rotation @ turned, place, middle)


def _rigid(rotation: Tensor, place_m: Tensor, anchor_m: Tensor) -> Tensor:
    """[N, 4, 4] with this rotation that map the point `anchor_m` to `place_m`."""
    matrices = torch.eye(4, dtype=torch.float64).repeat(len(rotation), 1, 1)
    matrices[:, :3, :3] = rotation
    matrices[:, :3, 3] = place_m - rotation @ anchor_m
    return matrices

"""Photographs all around a head, with things pasted into them, and what cameras see of both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.ndimage import zoom
from torch import Tensor
from torch.nn import functional as F

from lastseen_synth.backdrop import Backdrop
from lastseen_synth.cutouts import Cutout
from lastseen_synth.geometry import Cameras
from lastseen_synth.object_pool import Item
from lastseen_synth.texture import linear_to_srgb
from lastseen_synth.visibility import visible_boxes

FOCAL_PX = (300.0, 420.0)  # fields of view of 77 to 60 degrees
EYE_M, DOME_M = 1.6, 5.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Thing:
    item: Item
    cutout: Cutout


@dataclass(frozen=True, kw_only=True)
class Pasted:
    """Where a thing is on the dome: direction, angle that its longer side subtends, and its slant [2, 2]."""

    yaw_rad: float
    pitch_rad: float
    across_rad: float
    slant: np.ndarray


class Surroundings:
    """The picture all around, and on it the labels of things; both are seen through the same rays.

    | sphere | uint8 [H, 2 H, 3], equirectangular                         |
    | labels | int64 [H, 2 H], number of the thing, -1 elsewhere           |
    """

    def __init__(self, sphere: np.ndarray) -> None:
        self.sphere = sphere.copy()
        self.labels = np.full(sphere.shape[:2], -1, np.int64)

    def paste(self, thing: Thing, place: Pasted, gain: np.ndarray) -> None:
        """Paints the cut-out onto the tangent plane at its place."""
        height, width = self.labels.shape
        rise = (0.5 - (np.arange(height) + 0.5) / height) * np.pi
        turn = (0.5 - (np.arange(width) + 0.5) / width) * 2 * np.pi - place.yaw_rad
        reach = place.across_rad * 1.2
        rows = np.flatnonzero(np.abs(rise - place.pitch_rad) < reach)
        columns = np.flatnonzero(np.cos(turn) > np.cos(min(reach / np.cos(place.pitch_rad), 1.5)))
        rise, turn = rise[rows][:, None], turn[columns][None]
        right, level, up = -np.cos(rise) * np.sin(turn), np.cos(rise) * np.cos(turn), np.sin(rise)
        cosine, sine = np.cos(place.pitch_rad), np.sin(place.pitch_rad)
        ahead, down = level * cosine + up * sine, level * sine - up * cosine
        right, down = right / ahead, down / ahead
        right, down = np.einsum("ij,jyx->iyx", place.slant, np.stack([right + 0 * down, down]))
        picture_height, picture_width = thing.cutout.picture.shape[:2]
        alpha = _alpha(thing.cutout)
        ys, xs = np.nonzero(alpha > 0.5)
        low, high = np.array([xs.min(), ys.min()]), np.array([xs.max(), ys.max()]) + 1
        px_per_unit = (high - low).max() / (2 * np.tan(place.across_rad / 2))
        x, y = ((low + high) / 2)[:, None, None] + np.stack([right, down]) * px_per_unit
        planes = np.dstack([thing.cutout.picture * gain, alpha * 255.0]).astype(np.float32)
        layers = torch.from_numpy(planes).permute(2, 0, 1)[None]
        shrink = 2 * np.pi / width * px_per_unit  # pixels of the picture for each of the sphere
        if shrink > 1:
            size = [max(2, round(side / shrink)) for side in layers.shape[2:]]
            layers = F.interpolate(layers, size, mode="area")
        grid = torch.from_numpy(np.stack([x / picture_width, y / picture_height], -1) * 2 - 1).float()[None]
        seen = F.grid_sample(layers, grid, padding_mode="zeros", align_corners=False)[0]
        inside = (np.abs(grid[0].numpy()) < 1).all(-1) * seen[3].numpy() / 255
        under = self.sphere[np.ix_(rows, columns)]
        over = seen[:3].permute(1, 2, 0).numpy().clip(0, 255)
        mixed = under + (over - under) * inside[..., None]
        self.sphere[np.ix_(rows, columns)] = mixed.round().astype(np.uint8)
        labels = self.labels[np.ix_(rows, columns)]
        self.labels[np.ix_(rows, columns)] = np.where(inside > 0.5, self._next(), labels)

    def _next(self) -> int:
        return int(self.labels.max()) + 1

    def backdrop(self) -> Backdrop:
        focal_px = 1.3 * FOCAL_PX[1]
        return Backdrop.of(torch.from_numpy(self.sphere), eye_m=EYE_M, radius_m=DOME_M, focal_px=focal_px)

    def labels_at(self, hits_m: Tensor) -> Tensor:
        """int64 [B, H, W]: the label at points [B, 3, H, W] of the dome."""
        x, y, z = hits_m.unbind(1)
        height, width = self.labels.shape
        turn, rise = torch.atan2(y, x), torch.atan2(z - EYE_M, torch.hypot(x, y))
        column = ((0.5 - turn / (2 * torch.pi)) * width).long().clamp(0, width - 1)
        row = ((0.5 - rise / torch.pi) * height).long().clamp(0, height - 1)
        return torch.from_numpy(self.labels)[row, column]


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """| images   | uint8 [T, H, W, 3]                                      |
    | boxes_px | [T, things, 4], nan where there is nothing of it         |
    | share    | [T, things] of a thing's pixels that are inside the frame |
    """

    images: np.ndarray
    boxes_px: np.ndarray
    share: np.ndarray


def render(around: Surroundings, cameras: Cameras, gains: np.ndarray, rng: np.random.Generator) -> Seen:
    """What the cameras see; `gains` [T, 3] are exposure and tint."""
    backdrop, count = around.backdrop(), int(around.labels.max()) + 1
    wide_x, wide_y = cameras.width_px // 2, cameras.height_px // 2
    images, boxes, shares = [], [], []
    for number in range(len(cameras)):
        camera = cameras.frames(number, number + 1)
        hits = backdrop.hits_m(camera)
        light = backdrop.sample(hits)[0] * torch.from_numpy(gains[number]).float()[:, None, None]
        picture = linear_to_srgb(light.clamp(0, 1)).permute(1, 2, 0).numpy() * 255
        picture = picture + 2.0 * rng.standard_normal(picture.shape, np.float32)
        images.append(picture.round().clip(0, 255).astype(np.uint8))
        found, pixels = visible_boxes(around.labels_at(hits).int(), range(count))
        # A frame twice as wide and high, at a third of the resolution, shows how much is outside.
        coarse = around.labels_at(backdrop.hits_m(camera.padded(wide_x, wide_y), 3))
        whole = torch.bincount(coarse.flatten() + 1, minlength=count + 1)[1:] * 9.0
        boxes.append(found[0].numpy())
        shares.append((pixels[0] / whole.clamp(min=1)).clamp(max=1).numpy())
    return Seen(images=np.stack(images), boxes_px=np.stack(boxes), share=np.stack(shares))


def _alpha(cutout: Cutout) -> np.ndarray:
    """[h, w] 0..1: inside the outline."""
    height, width = cutout.picture.shape[:2]
    rows, columns = cutout.inside.shape
    fine = zoom(cutout.inside, (height / rows, width / columns), order=1, grid_mode=False)
    return (fine[:height, :width] > 0).astype(np.float32)

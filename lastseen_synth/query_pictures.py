"""Query pictures: the thing in another room, from another side, in other light, by another camera."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Box
from lastseen.errors import SynthError
from lastseen_synth.assets import Asset, AssetLibrary
from lastseen_synth.geometry import Cameras, look_at
from lastseen_synth.rooms import Room, furnish, shadows_of
from lastseen_synth.sensor import Sensor, develop
from lastseen_synth.shade import render
from lastseen_synth.visibility import unoccluded_pixels, visible_boxes

SIDE_PX, GLANCE_PX = 320, 64
VIEW_DEG = 50.0
CANDIDATES = 24
NEAR_SIDE_RAD = 1.2
LEAST_SHARE = 0.8  # of the thing that should be visible


@torch.no_grad()
def query_pictures(
    library: AssetLibrary,
    things: Sequence[Asset],
    rng: np.random.Generator,
    *,
    seen_from_rad: Sequence[float | None] = (),
    device: torch.device | str = "cpu",
    max_triangles: int = 30_000,
) -> list[tuple[np.ndarray, Box]]:
    """For each thing a picture uint8 [h, w, 3] and its box in it, all taken in one room.

    `seen_from_rad`: direction, in the thing's coordinates, from which the video shows it. The picture is
    taken from within NEAR_SIDE_RAD of that, so that the two views overlap.
    """
    sides = seen_from_rad or [None] * len(things)
    room = furnish(library, rng, things=things, device=device, max_triangles=max_triangles)
    shadows = shadows_of(room)
    taken = []
    for number, thing, side in zip(room.things, things, sides):
        view = _best_view(room, number, thing, side, rng)
        picture = render(
            room.scene, _cameras(view, SIDE_PX, device), room.lights, shadows=shadows, antialias=True
        )
        generator = torch.Generator(picture.rgb.device).manual_seed(int(rng.integers(2**31)))
        images, _ = develop(picture.rgb, torch.zeros(1, dtype=torch.float64), Sensor.draw(rng), generator)
        box = Box(*visible_boxes(picture.instance, [number])[0][0, 0].tolist())
        taken.append(_cropped(images[0].cpu().numpy(), box, rng))
    return taken


def _best_view(
    room: Room, number: int, thing: Asset, side_rad: float | None, rng: np.random.Generator
) -> Tensor:
    """World-to-camera [1, 4, 4], drawn among candidates that see nearly all of the thing."""
    transform = next(placed.transform for placed in room.placed if placed.instance == number)
    middle = (transform @ torch.tensor([0, 0, thing.size_m[2] / 2, 1.0], dtype=torch.float64))[:3]
    share = rng.uniform(0.35, 0.7, CANDIDATES)
    distance = max(thing.size_m) / (2 * np.tan(np.deg2rad(VIEW_DEG / 2)) * share)
    around, above = rng.uniform(0, 2 * np.pi, CANDIDATES), np.deg2rad(rng.uniform(8, 55, CANDIDATES))
    if side_rad is not None:
        facing = float(torch.atan2(transform[1, 0], transform[0, 0]))
        around = facing + side_rad + rng.uniform(-NEAR_SIDE_RAD, NEAR_SIDE_RAD, CANDIDATES)
    offset = np.stack([np.cos(above) * np.cos(around), np.cos(above) * np.sin(around), np.sin(above)], 1)
    eyes = middle + torch.from_numpy(distance[:, None] * offset)
    aim = middle + torch.from_numpy(rng.normal(0, 0.1 * max(thing.size_m), (CANDIDATES, 3)))
    views = look_at(eyes, aim)
    cameras = _cameras(views, GLANCE_PX, room.scene.surface.device)
    ids = render(room.scene, cameras, room.lights).instance
    seen = visible_boxes(ids, [number])[1][:, 0]
    whole = unoccluded_pixels(room.scene.geometry, cameras, [number])[:, 0].clamp(min=1)
    visible = (seen / whole).cpu().numpy()
    good = np.flatnonzero(visible >= min(LEAST_SHARE, visible.max()))
    if visible.max() < 0.3:
        raise SynthError(f"{thing.name} is hidden in the room made for its picture; take another seed")
    return views[[int(rng.choice(good))]]


def _cameras(views: Tensor, side_px: int, device: torch.device | str) -> Cameras:
    return Cameras.pinhole(views.to(device), side_px, side_px, horizontal_fov_deg=VIEW_DEG, near_m=0.02)


def _cropped(image: np.ndarray, box: Box, rng: np.random.Generator) -> tuple[np.ndarray, Box]:
    """Cropped to the box with a random margin, as by a person."""
    height, width = image.shape[:2]
    x1, y1, x2, y2 = (
        round(v) for v in box.expanded(float(rng.uniform(1.1, 2.0))).clipped(width, height).xyxy
    )
    return np.ascontiguousarray(image[y1:y2, x1:x2]), box.shifted(-x1, -y1)

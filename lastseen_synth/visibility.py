"""Visibility from id buffers: boxes of visible pixels, and unoccluded pixel counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lastseen_synth.geometry import Cameras, Geometry, Poses
from lastseen_synth.raster import Budget, fragments, project, spans_of, triangles_in_view

LARGEST_CANVAS = 400_000_000  # pixels of all layers of `unoccluded_pixels`


def visible_boxes(instance: Tensor, instances: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Boxes float32 [B, I, 4] (x1 y1 x2 y2: edges in px, nan if not visible) and visible pixels int64 [B, I]
    of the `instances` in the id buffer `instance` int [B, H, W]."""
    frames, height, width = instance.shape
    device, count = instance.device, len(instances)
    if not count:
        return torch.zeros(frames, 0, 4, device=device), torch.zeros(
            frames, 0, dtype=torch.int64, device=device
        )
    numbers = torch.tensor(instances, device=device)
    # All other ids, which start at -1, go to one more column that is dropped at the end.
    slots = torch.full((max(instances) + 3,), count, device=device)
    slots[numbers + 1] = torch.arange(count, device=device)
    slot = slots[(instance.long() + 1).clamp(max=max(instances) + 2)]
    frame = torch.arange(frames, device=device)[:, None, None]
    place = frame * (count + 1) + slot
    one = torch.ones((), dtype=torch.int32, device=device).expand(frames * height * width)
    # Counted per column and per row: many counters, so that atomic additions rarely collide.
    found = []
    for size, position in (
        (width, torch.arange(width, device=device)),
        (height, torch.arange(height, device=device)[:, None]),
    ):
        histogram = torch.zeros(frames * (count + 1) * size, dtype=torch.int32, device=device)
        histogram.scatter_add_(0, (place * size + position).flatten(), one)
        found.append(histogram.view(frames, count + 1, size)[:, :count])
    columns, rows = found
    pixels = columns.sum(2)
    sides = []
    for histogram in (columns, rows):
        hit = (histogram > 0).int()
        size = hit.shape[2]
        sides.append((hit.argmax(2), size - hit.flip(2).argmax(2)))
    (x1, x2), (y1, y2) = sides
    boxes = torch.stack([x1, y1, x2, y2], 2).float()
    return boxes.where((pixels > 0)[..., None], torch.nan), pixels


def unoccluded_pixels(
    geometry: Geometry,
    cameras: Cameras,
    instances: Sequence[int],
    *,
    poses: Poses | None = None,
    margin: float = 0.5,
    budget: Budget | None = None,
) -> Tensor:
    """Pixels int64 [B, I] that each instance would cover if nothing else were in the scene.

    The canvas is wider than the frame by `margin` of its size on all sides, so that visible pixels divided by
    these tell how much of an instance is neither occluded nor truncated.
    """
    margin_x, margin_y = (round(margin * side) for side in (cameras.width_px, cameras.height_px))
    wide = cameras.padded(margin_x, margin_y)
    budget = budget or Budget.of(geometry.faces.device)
    canvas = wide.width_px * wide.height_px * min(budget.frames_per_pass, max(len(cameras), 1))
    at_once = max(1, LARGEST_CANVAS // canvas)
    columns = [torch.zeros(len(cameras), 0, dtype=torch.int64, device=geometry.faces.device)]
    for first in range(0, len(instances), at_once):
        few = list(instances[first : first + at_once])
        columns.append(_unoccluded(geometry.only(few), wide, few, _poses_of(poses, few), budget))
    return torch.cat(columns, 1)


def _unoccluded(
    alone: Geometry, cameras: Cameras, instances: list[int], poses: Poses | None, budget: Budget
) -> Tensor:
    """Pixels [B, I]: every instance is rasterised into a layer of its own, without a depth test."""
    counts = []
    for start in range(0, len(cameras), budget.frames_per_pass):
        stop = start + budget.frames_per_pass
        part = cameras.frames(start, stop)
        projection = project(alone, part, poses.frames(start, stop) if poses else None)
        triangles = triangles_in_view(alone, projection, part)
        layer = triangles.frame * len(instances) + alone.face_instance.index_select(0, triangles.face)
        shape = (len(part), len(instances), part.height_px, part.width_px)
        covered = torch.zeros(shape, dtype=torch.bool, device=layer.device)
        for _, pixel, _ in fragments(spans_of(triangles, part, layer=layer), budget):
            covered.view(-1)[pixel.long()] = True
        counts.append(covered.sum((2, 3)))
    return torch.cat(counts)


def _poses_of(poses: Poses | None, instances: list[int]) -> Poses | None:
    if poses is None:
        return None
    kept = [p for p, instance in enumerate(poses.instances) if instance in instances]
    if not kept:
        return None
    places = tuple(instances.index(poses.instances[p]) for p in kept)  # `Geometry.only` numbers them anew
    return Poses(instances=places, transforms=poses.transforms[:, kept])

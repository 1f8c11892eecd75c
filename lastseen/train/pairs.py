"""Training pairs of the backbone stage: a query picture of a thing, and frames with patch labels.

Two sources. Walks: things in rendered rooms, with other views of them as queries. Photographs: a region of
one, rotated, relit and blurred, as the query. In both the patches on the thing are known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import DTypeLike
from torch import Tensor

from lastseen.errors import TrainError
from lastseen.model.inputs import patches_inside
from lastseen.train.gallery import VIEW_PX, Gallery
from lastseen_synth.assets import Picture

SIZE_PX, SIDE = 448, 32  # of frames
QUERY_PX, QUERY_SIDE = VIEW_PX, 16
PHOTO_PX = 320
THING_PX = (22.0, 210.0)  # sides that a thing is brought to
ZOOM = (0.7, 3.0)
ROLL_SHARE, ROLL_RAD = 0.35, 0.6  # share of rotated frames, and largest angle: people tilt their heads
QUERY_WIDTHS = (1.0, 1.0, 2.0, 4.0)  # of a photograph's query, in widths of its region
RIGHT, IGNORED, WRONG = 1, -1, 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """G groups of f frames and q queries.

    | frames  | [G, f, 3, 448, 448] in [0, 1]                                          |
    | queries | [G, q, 3, 224, 224] in [0, 1]                                          |
    | on_thing   | bool [G, q, 16, 16] patches of the query that are the thing's          |
    | labels  | int8 [G, q, f, 32, 32] 1 right, 0 wrong, -1 neither: it does not count |
    """

    frames: Tensor
    queries: Tensor
    on_thing: Tensor
    labels: Tensor


class WalkPairs:
    """Things of a gallery in its frames."""

    def __init__(self, gallery: Gallery, *, queries_a_frame: int = 2) -> None:
        self.gallery, self.queries_a_frame = gallery, queries_a_frame
        names = sorted({group for walk in gallery.walks for group in walk.groups})
        self._ids = {group: number + 1 for number, group in enumerate(names)}
        self._present = [frozenset(walk.present) for walk in gallery.walks]
        # Every (walk, frame, thing) that can be asked about. Walks count alike, however long.
        self._targets: list[np.ndarray] = []
        for number, walk in enumerate(gallery.walks):
            known = np.array([bool(gallery.views_of.get(name)) for name in walk.names], bool)
            frame, thing = np.nonzero(walk.visible & known)
            covered = np.array([(walk.patches[f] == k).any() for f, k in zip(frame, thing)], bool)
            rows = np.stack([np.full(len(frame), number), frame, thing], 1)
            self._targets.append(rows[covered] if len(rows) else rows)
        self._walks = [n for n, rows in enumerate(self._targets) if len(rows)]
        if not self._walks:
            raise TrainError("no thing in these walks is seen well enough to learn from")

    def draw(self, groups: int, rng: np.random.Generator, per_group: int = 8) -> Pairs:
        """Of `per_group` frames in each group."""
        device, count = self.gallery.device, groups * per_group
        frames = torch.zeros(count, 3, SIZE_PX, SIZE_PX, device=device)
        patches = np.zeros((count, 1, SIDE, SIDE), np.float32)
        places, asked = [], []
        for row in range(count):
            options = self._targets[self._walks[rng.integers(len(self._walks))]]
            walk, frame, thing = options[rng.integers(len(options))]
            left, top = self._fill(frames[row], patches[row, 0], walk, frame)
            box = self.gallery.walks[walk].boxes_px[frame, thing] + np.array([left, top, left, top])
            places.append(place_for(box, rng))
            others = options[(options[:, 1] == frame) & (options[:, 2] != thing)][:, 2]
            more = rng.permutation(others)[: self.queries_a_frame - 1]
            asked.append([(walk, frame, int(k)) for k in (thing, *more)])
        theta = _sent(places, device)
        frames = warped(frames, theta, SIZE_PX)
        ids = warped(_sent(patches, device), theta, SIDE, mode="nearest")[:, 0].round().long()
        return self._with_queries(frames, ids, theta, asked, groups, rng)

    def _fill(self, canvas: Tensor, ids: np.ndarray, walk: int, frame: int) -> tuple[int, int]:
        """Centres the frame in its square; returns its left and top in pixels."""
        census = self.gallery.walks[walk]
        image = self.gallery.frames[walk][frame]
        height, width = image.shape[:2]
        left, top = (SIZE_PX - width) // 2, (SIZE_PX - height) // 2
        canvas[:, top : top + height, left : left + width] = image.permute(2, 0, 1) / 255
        numbers = np.array([0, *(self._ids[group] for group in census.groups)])
        patches = numbers[census.patches[frame].astype(int) + 1]
        rows, columns = patches.shape
        y, x = (SIDE - rows) // 2, (SIDE - columns) // 2
        ids[y : y + rows, x : x + columns] = patches
        return left, top

    def _with_queries(
        self,
        frames: Tensor,
        ids: Tensor,
        theta: Tensor,
        asked: list[list[tuple[int, int, int]]],
        groups: int,
        rng: np.random.Generator,
    ) -> Pairs:
        device, frames_each = frames.device, len(frames) // groups
        views, numbers, boxes = [], [], []
        for group in range(groups):
            rows = asked[group * frames_each : (group + 1) * frames_each]
            wanted = [what for row in rows for what in row]
            # Groups must be alike in size: what is missing is asked for twice.
            full = frames_each * self.queries_a_frame
            for walk, frame, thing in (wanted * self.queries_a_frame)[:full]:
                options = self.gallery.askable(walk, thing, [frame]) or self.gallery.askable(walk, thing)
                views.append(options[rng.integers(len(options))])
                group_name = self.gallery.walks[walk].groups[thing]
                numbers.append(self._ids[group_name])
                boxes.append([self._place_of(group_name, row[0][0], row[0][1]) for row in rows])
        chosen = _sent(views, device, np.int64)
        share = _sent(rng.integers(self.gallery.views.shape[1], size=len(views)), device, np.int64)
        queries = self.gallery.views[chosen, share].permute(0, 3, 1, 2).float() / 255
        per_group = len(views) // groups
        number = _sent(numbers, device, np.int64).view(groups, per_group, 1, 1, 1)
        own = ids.view(groups, 1, frames_each, SIDE, SIDE) == number
        boxes_px = _sent(boxes, device).flatten(0, 1)
        maps = theta.view(groups, 1, frames_each, 2, 3).expand(-1, per_group, -1, -1, -1).flatten(0, 2)
        # A patch that was the thing's for the most part may show what is beside it, once it is enlarged.
        right = own & _touched(boxes_px, maps, 0.0).view_as(own)
        # Patches that the thing covers in part are neither right nor wrong.
        near = own | _touched(boxes_px, maps, 1.0).view_as(own)
        labels = torch.where(near, IGNORED, WRONG).masked_fill(right, RIGHT).to(torch.int8)
        on_thing = patches_inside(self.gallery.view_boxes[chosen, share], QUERY_SIDE)
        return Pairs(
            frames=frames.view(groups, frames_each, 3, SIZE_PX, SIZE_PX),
            queries=queries.reshape(groups, per_group, 3, QUERY_PX, QUERY_PX),
            on_thing=on_thing.bool().view(groups, per_group, QUERY_SIDE, QUERY_SIDE),
            labels=labels,
        )

    def _place_of(self, group: str, walk: int, frame: int) -> np.ndarray:
        """The box [4] of things of this appearance in the frame's square: nan if there is none, everything if
        it may be anywhere (an appearance that the room has twice has no box)."""
        census = self.gallery.walks[walk]
        if group in census.groups:
            left, top = (SIZE_PX - census.width) // 2, (SIZE_PX - census.height) // 2
            return census.boxes_px[frame, census.groups.index(group)] + np.array([left, top, left, top])
        reach = np.inf if group in self._present[walk] else np.nan
        return np.array([-reach, -reach, reach, reach])


class PhotoPairs:
    """Regions of photographs as queries, the same photographs transformed as frames."""

    def __init__(
        self, pictures: Sequence[Picture], device: torch.device | str, *, queries_a_frame: int = 2
    ) -> None:
        self.queries_a_frame = queries_a_frame
        with ThreadPoolExecutor() as pool:
            squares = [_square_photo(image, device) for image in pool.map(Picture.image, pictures)]
        self.photos = torch.cat(
            [torch.empty(0, 3, PHOTO_PX, PHOTO_PX, dtype=torch.uint8).to(device), *squares]
        )

    def draw(self, groups: int, rng: np.random.Generator, per_group: int = 8) -> Pairs:
        """Of `per_group` photographs in each group."""
        if len(self.photos) < per_group:
            raise TrainError(f"{len(self.photos)} photographs are too few, {per_group} are needed")
        device, count = self.photos.device, groups * per_group
        chosen = np.concatenate(
            [rng.choice(len(self.photos), per_group, replace=False) for _ in range(groups)]
        )
        photos = self.photos[_sent(chosen, device, np.int64)].float() / 255
        theta = self._tensor(
            [
                _affine(rng.uniform(0.6, 1.15), rng, turn=0.1 + abs(_roll(rng)), shift=0.15)
                for _ in range(count)
            ]
        )
        frames = warped(photos, theta, SIZE_PX)
        repeats = self.queries_a_frame
        owner = torch.arange(count, device=device).repeat_interleave(repeats)
        regions = [self._region(rng) for _ in range(count * repeats)]
        views = self._tensor([_query_view(region, rng) for region in regions])
        # Twice as large and then averaged, against aliasing.
        queries = F.avg_pool2d(warped(photos[owner], views, 2 * QUERY_PX, beyond="border"), 2)
        box = self._tensor(regions)  # x1 y1 x2 y2 in [-1, 1] of the photo
        labels = torch.zeros(count * repeats, per_group, SIDE, SIDE, dtype=torch.int8, device=device)
        where = F.affine_grid(theta[owner], [len(owner), 1, SIDE, SIDE], align_corners=False)
        own = owner % per_group
        each = torch.arange(len(owner), device=device)
        labels[each, own] = torch.where(_within(where, box, 0.15), IGNORED, WRONG).to(torch.int8)
        right = _within(where, box, 0.0)
        labels[each, own] = torch.where(right, RIGHT, labels[each, own]).to(torch.int8)
        seen = F.affine_grid(views, [len(owner), 1, QUERY_SIDE, QUERY_SIDE], align_corners=False)
        shape = (groups, per_group * repeats)
        return Pairs(
            frames=frames.view(groups, per_group, 3, SIZE_PX, SIZE_PX),
            queries=queries.view(*shape, 3, QUERY_PX, QUERY_PX),
            on_thing=_within(seen, box, 0.0).view(*shape, QUERY_SIDE, QUERY_SIDE),
            labels=labels.view(*shape, per_group, SIDE, SIDE),
        )

    def _tensor(self, rows: Sequence[np.ndarray]) -> Tensor:
        return _sent(rows, self.photos.device)

    @staticmethod
    def _region(rng: np.random.Generator) -> np.ndarray:
        half = np.exp(rng.uniform(np.log(0.1), np.log(0.45))) * np.exp(rng.uniform(-0.3, 0.3, 2) * [1, -1])
        half = half.clip(0.08, 0.5)
        centre = rng.uniform(-0.75 + half, 0.75 - half)
        return np.concatenate([centre - half, centre + half])


def _sent(rows: Sequence[Any] | np.ndarray, device: torch.device, dtype: DTypeLike = np.float32) -> Tensor:
    """To a GPU without waiting for it: pairs are drawn while it computes the step before."""
    return torch.from_numpy(np.array(rows, dtype)).to(device, non_blocking=device.type == "cuda")


def _square_photo(image: np.ndarray, device: torch.device | str) -> Tensor:
    planes = torch.from_numpy(image.copy()).to(device)[None].permute(0, 3, 1, 2).float()
    square = F.interpolate(planes, (PHOTO_PX, PHOTO_PX), mode="bilinear", antialias=True)
    return square.round().to(torch.uint8)


def photometric_jitter(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Random gamma, gain, contrast, saturation, blur and noise for each picture [n, 3, h, w] in [0, 1]."""
    n, device = len(pictures), pictures.device

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        drawn = torch.rand(n, *(shape or (1, 1, 1)), generator=generator, device=device)
        return low + (high - low) * drawn

    pictures = pictures.clamp(1e-4, 1) ** torch.exp(uniform(-0.45, 0.45))
    pictures = pictures * uniform(0.65, 1.35) * torch.exp(uniform(-0.12, 0.12, 3, 1, 1))
    mean = pictures.mean((1, 2, 3), keepdim=True)
    pictures = mean + (pictures - mean) * uniform(0.6, 1.3)
    grey = pictures.mean(1, keepdim=True)
    pictures = grey + (pictures - grey) * uniform(0.4, 1.3) * (uniform(0, 1) > 0.08)
    blurry = uniform(0, 1) < 0.35
    height, width = pictures.shape[-2:]
    factor = int(torch.randint(2, 5, (), generator=generator, device=device))
    small = F.avg_pool2d(pictures, factor)
    pictures = torch.where(blurry, F.interpolate(small, (height, width), mode="bilinear"), pictures)
    noise = torch.randn(pictures.shape, generator=generator, device=device)
    return (pictures + uniform(0, 0.05) * noise).clamp(0, 1)


# --- Where things are ---------------------------------------------------------------------------
# An affine map [2, 3] leads from the new picture to the old one, both in [-1, 1].


def warped(
    pictures: Tensor, theta: Tensor, size: int, *, mode: str = "bilinear", beyond: str = "zeros"
) -> Tensor:
    grid = F.affine_grid(theta, [len(pictures), pictures.shape[1], size, size], align_corners=False)
    return F.grid_sample(pictures, grid, mode=mode, padding_mode=beyond, align_corners=False)


def place_for(box_px: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Affine map that brings a thing to a random size and place, perhaps mirrored."""
    side = math.sqrt((box_px[2] - box_px[0]) * (box_px[3] - box_px[1]))
    wanted = math.exp(rng.uniform(*np.log(THING_PX)))
    zoom = float(np.clip(wanted / side, *ZOOM))
    middle = (box_px[:2] + box_px[2:]) / SIZE_PX - 1
    target = rng.uniform(-0.8, 0.8, 2)
    mirror = -1.0 if rng.random() < 0.5 else 1.0
    reach = abs(1 - 1 / zoom)  # no more emptiness around the old picture than the zoom needs
    for angle in (_roll(rng), 0.0):
        rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        linear = rotation @ np.diag([mirror, 1.0]) / zoom
        shift = (middle - linear @ target).clip(-reach, reach)
        if np.abs(np.linalg.solve(linear, middle - shift)).max() <= 0.95:
            break  # a rotation must not take the thing out of the picture
    return np.concatenate([linear, shift[:, None]], 1)


def _roll(rng: np.random.Generator) -> float:
    """Angle in radians, mostly 0."""
    return float(rng.uniform(-ROLL_RAD, ROLL_RAD)) if rng.random() < ROLL_SHARE else 0.0


def _affine(scale: float, rng: np.random.Generator, *, turn: float, shift: float) -> np.ndarray:
    angle, mirror = rng.uniform(-turn, turn), rng.choice([-1.0, 1.0])
    stretch = np.exp(rng.uniform(-0.15, 0.15))
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    x, y = rng.uniform(-shift, shift, 2)
    return np.array([[mirror * cos * stretch, -sin / stretch, x], [mirror * sin * stretch, cos / stretch, y]])


def _query_view(region: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Affine map of a query: a square around the region, rotated and sheared a little."""
    half = (region[2:] - region[:2]).max() / 2 * rng.uniform(1.0, 1.35) * rng.choice(QUERY_WIDTHS)
    matrix = _affine(half, rng, turn=0.45, shift=0.0)
    matrix[:, 2] = (region[:2] + region[2:]) / 2 + rng.uniform(-0.1, 0.1, 2) * half
    return matrix


def _within(where: Tensor, boxes: Tensor, margin: float) -> Tensor:
    """Whether points [n, h, w, 2] are in boxes [n, 4] enlarged by `margin` of their sides."""
    low, high = boxes[:, None, None, :2], boxes[:, None, None, 2:]
    more = margin * (high - low)
    return ((where > low - more) & (where < high + more)).all(-1)


def _touched(boxes_px: Tensor, theta: Tensor, reach: float) -> Tensor:
    """bool [n, 32, 32]: patches of the new picture that boxes [n, 4] of the old one overlap; of each patch
    the central part of `reach` times its width counts."""
    where = F.affine_grid(theta, [len(boxes_px), 1, SIDE, SIDE], align_corners=False)
    half_patch = reach * theta[:, :, :2].abs().sum(2)[:, None, None] / SIDE  # bounds of a rotated patch
    unit = boxes_px / (SIZE_PX / 2) - 1
    low, high = unit[:, None, None, :2] - half_patch, unit[:, None, None, 2:] + half_patch
    return ((where > low) & (where < high)).all(-1)

"""What the rivals' detectors are trained on: frames of rendered walks with the boxes of things, and queries.

Everything drawn is a function of the seed and the step alone, so that a run can go on where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.baselines.detector import QUERY_GREY, QUERY_MARGIN_PX
from lastseen.baselines.nfm import negative_frame
from lastseen.box import Box
from lastseen.errors import TrainError
from lastseen.model.inputs import normalised
from lastseen.train.gallery import Gallery, asked_with
from lastseen_synth.annotation import runs_of

LEAST_SIDE_PX = 6.0  # of the input: smaller things are neither learned nor background
LEAST_SHARE = 0.25  # visible, likewise
LEAST_OTHER_SIDE_PX = 14.0  # of things whose visible share is not known
BRIGHTNESS = (0.75, 1.333)
SCALE = (0.8, 1.0)  # of the frame in its canvas: the originals' shorter side is 640 to 800 px
MOST_DEGREES = 120.0  # that a query's picture is rotated
TRIES = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Frames:
    """| pictures | [n, 3, size, size] normalised                                             |
    | things   | n tensors [t, 4] of all things to learn, in the unit square                |
    | ignored  | n tensors [i, 4] of things that are too small or too hidden                |
    | complete | n: whether all things of the frame are known                               |
    """

    pictures: Tensor
    things: list[Tensor]
    ignored: list[Tensor]
    complete: list[bool]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """b queries, each with the frame of one response track, and of some a later frame without the thing.

    | queries   | [b, 3, query size, query size] normalised                                          |
    | frames    | b + m of them: the response frames first, then the m negative ones                 |
    | truth     | [b, 4] the thing in the response frames, in the unit square                        |
    | owner     | int64 [b + m] the query that a frame belongs to                                    |
    | unrelated | bool [b, b + m] the frame certainly does not show the query's thing                |
    """

    queries: Tensor
    frames: Frames
    truth: Tensor
    owner: Tensor
    unrelated: Tensor


@dataclass(frozen=True)
class _Place:
    """A frame of a walk in which a thing is in view, and a view of the thing to ask with."""

    walk: int
    thing: int
    frame: int
    negative: int | None
    view: int


class RivalData:
    """Frames and pairs of the walks in a gallery."""

    def __init__(
        self,
        gallery: Gallery,
        *,
        image_size: int,
        query_size: int,
        seed: int = 0,
        photo_share: float = 0.5,
        augmented: bool = True,
    ) -> None:
        self.gallery, self.image_size, self.query_size = gallery, image_size, query_size
        self.seed, self.photo_share, self.augmented = seed, photo_share, augmented
        self.device = gallery.device
        if not self._walks["room"] and not self._walks["photo"]:
            raise TrainError("no thing in these walks can be asked for")

    def frames(self, step: int, count: int) -> Frames:
        """Frames of rooms, whose things are all known."""
        rooms = [n for n, walk in enumerate(self.gallery.walks) if walk.others_px is not None]
        if not rooms:
            raise TrainError(
                "proposals need walks through rooms with the boxes of all things; these are older, or over "
                "photographs: render them again in a new folder"
            )
        rng = np.random.default_rng([self.seed, step, 1])
        walks = [rooms[n] for n in rng.integers(len(rooms), size=count)]
        return self._frames([(w, int(rng.integers(len(self.gallery.frames[w])))) for w in walks], rng)[0]

    def pairs(self, step: int, count: int, *, negatives: bool) -> Pairs:
        rng = np.random.default_rng([self.seed, step, 2])
        places = [self._draw(rng) for _ in range(count)]
        later = [(n, p.negative) for n, p in enumerate(places) if negatives and p.negative is not None]
        chosen = [(p.walk, p.frame) for p in places] + [(places[n].walk, frame) for n, frame in later]
        owner = [*range(count), *(n for n, _ in later)]
        frames, moved = self._frames(chosen, rng)
        walks = self.gallery.walks
        truth = torch.stack(
            [moved[n](walks[p.walk].boxes_px[p.frame, p.thing][None])[0] for n, p in enumerate(places)]
        )
        groups = [walks[p.walk].groups[p.thing] for p in places]
        present = [frozenset(walks[walk].present) for walk, _ in chosen]
        unrelated = [[group not in names for names in present] for group in groups]
        return Pairs(
            queries=torch.stack([self._query(p, rng) for p in places]),
            frames=frames,
            truth=truth.to(self.device),
            owner=torch.tensor(owner, device=self.device),
            unrelated=torch.tensor(unrelated, device=self.device),
        )

    # --- what is drawn ---

    @cached_property
    def _walks(self) -> dict[str, list[tuple[int, np.ndarray, np.ndarray]]]:
        """By source: walks, their things that can be asked for, and the chances of these: larger ones more
        often, as there are far more small ones."""
        found: dict[str, list[tuple[int, np.ndarray, np.ndarray]]] = {"room": [], "photo": []}
        for number, walk in enumerate(self.gallery.walks):
            askable = [bool(self.gallery.views_of.get(name)) for name in walk.names]
            things = np.flatnonzero(np.array(askable, bool) & walk.visible.any(0))
            if not len(things):
                continue
            boxes = walk.boxes_px[:, things]
            sides = np.sqrt(np.nan_to_num(np.prod(boxes[..., 2:] - boxes[..., :2], -1)))
            mean = sides.sum(0) / walk.visible[:, things].sum(0)
            found[walk.source].append((number, things, mean / mean.sum()))
        return found

    def _draw(self, rng: np.random.Generator) -> _Place:
        for _ in range(TRIES):
            source = "photo" if rng.random() < self.photo_share else "room"
            walks = self._walks[source] or self._walks["room"] or self._walks["photo"]
            number, things, chances = walks[rng.integers(len(walks))]
            thing = int(rng.choice(things, p=chances))
            walk = self.gallery.walks[number]
            runs = runs_of(walk.visible[:, thing])
            first, stop = runs[rng.integers(len(runs))]
            views = self.gallery.askable(number, thing, [first, stop - 1])
            if not views:
                continue
            frame = int(rng.integers(first, stop))
            share = walk.share[:, thing]
            negative = negative_frame(frame, first, stop - 1, _end_of_absence(share, stop))
            if negative is not None and share[negative] > 0:  # a corner of it is still in view
                negative = None
            return _Place(number, thing, frame, negative, int(views[rng.integers(len(views))]))
        raise TrainError("no query fits these walks: render more or longer ones")

    # --- pictures ---

    def _frames(
        self, chosen: Sequence[tuple[int, int]], rng: np.random.Generator
    ) -> tuple[Frames, list[_Moved]]:
        pictures, things, ignored, moves, complete = [], [], [], [], []
        for number, frame in chosen:
            walk, image = self.gallery.walks[number], self.gallery.frames[number][frame]
            move = _Moved.drawn(image, self.image_size, rng, self.augmented)
            pictures.append(move.picture(image))
            learned, others = self._boxes(
                walk.boxes_px[frame], walk.share[frame], walk.others_px, frame, move
            )
            things.append(learned.to(self.device))
            ignored.append(others.to(self.device))
            moves.append(move)
            complete.append(walk.others_px is not None)
        shown = normalised(torch.stack(pictures))
        return Frames(pictures=shown, things=things, ignored=ignored, complete=complete), moves

    def _boxes(
        self, boxes_px: np.ndarray, share: np.ndarray, others_px: np.ndarray | None, frame: int, move: _Moved
    ) -> tuple[Tensor, Tensor]:
        """Boxes to learn, and to ignore."""
        there = np.isfinite(boxes_px).all(-1)
        boxes = move(boxes_px[there])
        learned = (_sides(boxes) * self.image_size >= LEAST_SIDE_PX) & torch.from_numpy(
            share[there] >= LEAST_SHARE
        )
        if others_px is not None:
            others = others_px[frame]
            others_unit = move(others[np.isfinite(others).all(-1)])
            boxes = torch.cat([boxes, others_unit])
            learned = torch.cat([learned, _sides(others_unit) * self.image_size >= LEAST_OTHER_SIDE_PX])
        return boxes[learned], boxes[~learned]

    def _query(self, place: _Place, rng: np.random.Generator) -> Tensor:
        record = self.gallery.records[place.view]
        walk = self.gallery.walks[record.walk]
        name = self.gallery.walks[place.walk].names[place.thing]
        if record.frame is None:
            shown = [p for p in walk.query_pictures if walk.names[p.thing] == name]
            portrait = shown[rng.integers(len(shown))]
            picture, box = torch.from_numpy(portrait.picture.copy()).to(self.device), portrait.box
        else:
            picture = self.gallery.frames[record.walk][record.frame]
            box = Box(*map(float, walk.boxes_px[record.frame, walk.names.index(name)]))
        picture, box = asked_with(picture, box, rng)
        degrees = float(rng.uniform(-MOST_DEGREES, MOST_DEGREES)) if self.augmented else 0.0
        crop = rotated_query(
            picture, box, self.query_size, degrees, bool(self.augmented and rng.random() < 0.5)
        )
        if self.augmented:
            crop = (crop * float(rng.uniform(*BRIGHTNESS))).clamp(0, 1)
        return normalised(crop)[0]


class _Moved:
    """A frame's place in its canvas: scaled, maybe mirrored, in the middle."""

    def __init__(
        self, width: int, height: int, size: int, scale: float, flip: bool, brightness: float
    ) -> None:
        factor = scale * size / max(width, height)
        self.width, self.size, self.flip, self.brightness = width, size, flip, brightness
        self.columns, self.rows = max(1, round(width * factor)), max(1, round(height * factor))
        self.left, self.top = (size - self.columns) // 2, (size - self.rows) // 2
        self.factors = np.array([self.columns / width, self.rows / height] * 2, np.float32)

    @classmethod
    def drawn(cls, image: Tensor, size: int, rng: np.random.Generator, augmented: bool) -> _Moved:
        height, width = image.shape[:2]
        if not augmented:
            return cls(width, height, size, 1.0, False, 1.0)
        scale, brightness = (float(rng.uniform(*bounds)) for bounds in (SCALE, BRIGHTNESS))
        return cls(width, height, size, scale, bool(rng.random() < 0.5), brightness)

    def picture(self, image: Tensor) -> Tensor:
        """[h, w, 3] uint8 -> [3, size, size] in [0, 1]"""
        planes = image.permute(2, 0, 1)[None].float() / 255
        if self.flip:
            planes = planes.flip(3)
        if planes.shape[2:] != (self.rows, self.columns):
            planes = F.interpolate(planes, (self.rows, self.columns), mode="bilinear", antialias=True)
        planes = (planes * self.brightness).clamp(0, 1)
        right, below = self.size - self.columns - self.left, self.size - self.rows - self.top
        return F.pad(planes, (self.left, right, self.top, below))[0]

    def __call__(self, boxes_px: np.ndarray) -> Tensor:
        """[n, 4] in pixels of the frame -> in the unit square of the canvas"""
        boxes = boxes_px.astype(np.float32)
        if self.flip:
            boxes = np.stack(
                [self.width - boxes[:, 2], boxes[:, 1], self.width - boxes[:, 0], boxes[:, 3]], 1
            )
        offset = np.array([self.left, self.top] * 2, np.float32)
        return torch.from_numpy((boxes * self.factors + offset) / self.size)


def _sides(boxes_unit: Tensor) -> Tensor:
    """[n, 4] -> [n] the shorter side"""
    return (boxes_unit[:, 2:] - boxes_unit[:, :2]).amin(1)


def _end_of_absence(share: np.ndarray, stop: int) -> int:
    """The first frame after a track's end in which the thing comes back: a question could be asked until
    then."""
    seen = share[stop:] > 0
    gone = np.flatnonzero(~seen)
    if not len(gone):
        return stop
    again = np.flatnonzero(seen[gone[0] :])
    return stop + int(gone[0] + again[0]) if len(again) else len(share)


def rotated_query(picture: Tensor, box: Box, size: int, degrees: float, flip: bool) -> Tensor:
    """As `query_square`, of the picture rotated around the thing: what is inside the rotated box's bounds and
    the margin around them; grey beyond. [h, w, 3] uint8 -> [1, 3, size, size] in [0, 1]"""
    height, width = picture.shape[:2]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    across = box.width * abs(cos) + box.height * abs(sin) + 2 * QUERY_MARGIN_PX
    down = box.width * abs(sin) + box.height * abs(cos) + 2 * QUERY_MARGIN_PX
    side = max(across, down)
    place = ((torch.arange(size, device=picture.device) + 0.5) / size - 0.5) * side
    y, x = torch.meshgrid(place, place, indexing="ij")
    inside = (x.abs() <= across / 2) & (y.abs() <= down / 2)
    if flip:
        x = -x
    px = (box.x1 + box.x2) / 2 + x * cos - y * sin
    py = (box.y1 + box.y2) / 2 + x * sin + y * cos
    inside &= (px >= 0) & (px <= width) & (py >= 0) & (py <= height)
    grid = torch.stack([px / width, py / height], -1)[None] * 2 - 1
    planes = picture.permute(2, 0, 1)[None].float() / 255
    shrink = max(1.0, side / size)
    if shrink > 1:  # or thin lines would flicker
        less = (max(1, round(height / shrink)), max(1, round(width / shrink)))
        planes = F.interpolate(planes, less, mode="bilinear", antialias=True)
    found = F.grid_sample(planes, grid, "bilinear", "border", align_corners=False)
    return torch.where(inside, found, QUERY_GREY)

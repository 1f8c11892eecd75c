"""Rendered walks in memory: their frames, and views of every thing in them to use as queries.

A view is a portrait, or a crop of a frame of another walk or of another time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Box
from lastseen.errors import TrainError
from lastseen.model.inputs import query_crops
from lastseen.query import cut_around
from lastseen_synth.annotated_walk import AnnotatedWalk

VIEW_PX = 224  # side of a view unless said otherwise: `query_size` of the model that it is for
LEAST_SHARE, LEAST_SIDE_PX = 0.7, 30.0  # visible share and size of a thing in a frame that is used as a view
VIEWS_A_WALK = 3
# How a view is asked with: the whole picture and a box; the same with a margin; the tight crop.
WAYS = {None: 0.5, 0.4: 0.2, 0.0: 0.3}  # margin in units of the thing's longer side -> share of views
APART = 15  # least distance in frames of two views of a walk, and of a view and the clip it is a query for


@dataclass(frozen=True, kw_only=True)
class ViewRecord:
    """Where a picture of a thing comes from: a frame of a walk, or (frame None) a portrait."""

    walk: int
    frame: int | None


class Gallery:
    """W walks on one device.

    | walks       | the censuses, without their JPEG files                                 |
    | frames      | W tensors uint8 [T, h, w, 3]                                           |
    | views       | uint8 [V, scales, px, px, 3]: squares, as a query is cut at inference |
    | view_boxes  | float32 [V, scales, 4] the thing in them, in their unit squares        |
    | view_shown  | float32 [V, scales, 4] what of them is a picture, not its repeated edge |
    | views_of    | name of a thing -> numbers of its views                                |
    """

    def __init__(
        self,
        walks: Sequence[AnnotatedWalk],
        frames: Sequence[Tensor],
        views: Tensor,
        view_boxes: Tensor,
        view_shown: Tensor,
        records: list[ViewRecord],
    ) -> None:
        self.walks, self.frames, self.records = list(walks), list(frames), records
        self.views, self.view_boxes, self.view_shown = views, view_boxes, view_shown
        self.views_of: dict[str, list[int]] = defaultdict(list)

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        device: torch.device | str,
        *,
        scales: Sequence[float] = (1.0,),
        view_px: int = VIEW_PX,
        threads: int = 16,
    ) -> Gallery:
        """`scales`: the thing's share of the side of its crops, see `query_crop`; `view_px`: that side."""
        if not paths:
            raise TrainError("no walks to train on")

        def read(path: Path) -> tuple[AnnotatedWalk, np.ndarray]:
            census = AnnotatedWalk.load(path)
            return replace(census, jpegs=()), census.frames()

        walks, frames = [], []
        with ThreadPoolExecutor(threads) as pool:
            for census, images in pool.map(read, paths):
                walks.append(census)
                frames.append(torch.from_numpy(images).to(device))
        return cls.of(walks, frames, scales, view_px)

    @classmethod
    def of(
        cls,
        walks: Sequence[AnnotatedWalk],
        frames: Sequence[Tensor],
        scales: Sequence[float] = (1.0,),
        view_px: int = VIEW_PX,
    ) -> Gallery:
        views, records, names = [], [], []
        for number, (walk, images) in enumerate(zip(walks, frames)):
            rng = np.random.default_rng(number)
            for portrait in walk.query_pictures:
                picture = torch.from_numpy(portrait.picture.copy()).to(images.device)
                views.append(square_views(*asked_with(picture, portrait.box, rng), scales, view_px))
                records.append(ViewRecord(walk=number, frame=None))
                names.append(walk.names[portrait.thing])
            for thing, name in enumerate(walk.names):
                for frame in good_frames(walk, thing):
                    box = Box(*map(float, walk.boxes_px[frame, thing]))
                    views.append(square_views(*asked_with(images[frame], box, rng), scales, view_px))
                    records.append(ViewRecord(walk=number, frame=frame))
                    names.append(name)
        if not views:
            raise TrainError("no thing in these walks is seen well enough to be asked for")
        pictures, boxes, shown = (torch.stack(column) for column in zip(*views))
        gallery = cls(walks, frames, pictures, boxes, shown, records)
        for number, name in enumerate(names):
            gallery.views_of[name].append(number)
        return gallery

    @property
    def device(self) -> torch.device:
        return self.views.device

    def is_from(self, view: int, walk: int) -> bool:
        """Whether the view is a crop of a frame of this walk; a portrait never is."""
        return self.records[view].walk == walk and self.records[view].frame is not None

    def askable(self, walk: int, thing: int, frames: Sequence[int] = ()) -> list[int]:
        """Views that may be queries for a thing in these frames of this walk: not of frames near them."""
        found = []
        for number in self.views_of.get(self.walks[walk].names[thing], ()):
            frame = self.records[number].frame
            near = frame is not None and len(frames) and frames[0] - APART < frame < frames[-1] + APART
            if not (near and self.is_from(number, walk)):
                found.append(number)
        return found


def good_frames(walk: AnnotatedWalk, thing: int) -> list[int]:
    """Some frames that show the thing well: nearly all of it, large, and apart from each other."""
    boxes = walk.boxes_px[:, thing]
    with np.errstate(invalid="ignore"):
        side = np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
    good = walk.visible[:, thing] & (walk.share[:, thing] >= LEAST_SHARE) & (side >= LEAST_SIDE_PX)
    chosen: list[int] = []
    for frame in np.argsort(-np.where(good, side, 0)):
        if not good[frame] or len(chosen) == VIEWS_A_WALK:
            break
        if all(abs(int(frame) - other) >= APART for other in chosen):
            chosen.append(int(frame))
    return chosen


def asked_with(picture: Tensor, box: Box, rng: np.random.Generator) -> tuple[Tensor, Box]:
    """The picture, or the part of it that is asked with, and the thing's box in it"""
    margin = list(WAYS)[rng.choice(len(WAYS), p=list(WAYS.values()))]
    return (picture, box) if margin is None else cut_around(picture, box, margin)


def square_views(
    picture: Tensor, box: Box, scales: Sequence[float], view_px: int = VIEW_PX
) -> tuple[Tensor, Tensor, Tensor]:
    """Squares around the thing in a picture [h, w, 3] uint8 -> uint8 [scales, view_px, view_px, 3], and the
    places [scales, 4] of the thing and of the picture in their unit squares"""
    views, boxes, shown = query_crops(picture, box, view_px, scales)
    pixels = (views * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    return pixels, boxes.to(views.device), shown.to(views.device)

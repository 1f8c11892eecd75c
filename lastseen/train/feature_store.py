"""Training clips from rendered walks, as stored features of a frozen backbone.

Every thing in a walk can be a query, so a few hundred walks give more clips than a run can use. Every
`refresh_steps` the walks are augmented and encoded again, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.errors import TrainError
from lastseen.model import Backbone, TrainedConfig
from lastseen.model.inputs import normalised, padded
from lastseen.train.augment import AugmentConfig, augment_clip
from lastseen.train.batch import Batch, unrelated_by_name
from lastseen.train.gallery import VIEW_PX, Gallery
from lastseen.train.harvest import PLAIN_SHARE, Progress, harvest
from lastseen.train.pairs import photometric_jitter
from lastseen_synth.assets import AssetLibrary
from lastseen_synth.library import open_library

ENCODED_AT_ONCE = 256  # pictures
TRIES = 40


@dataclass(frozen=True, kw_only=True)
class SynthData:
    """Walks of the synthetic world in `folder`; missing ones are rendered before the first step."""

    folder: str = "walks"
    assets: str | None = None  # a folder of asset packs; none: things drawn at run time
    scans: str | None = None  # a folder of scanned objects
    walks: int = 150  # through rooms
    photos: int = 300  # over photographs
    seconds: float = 50.0  # of each walk through a room
    plain_share: float = PLAIN_SHARE  # of things in one colour, in walks that are rendered now
    workers: int = 1  # processes that render
    refresh_steps: int | None = 500  # augment and encode anew every so many steps; none: never
    photo_share: float = 0.3  # of clips
    absent_share: float = 0.2  # of clips: the thing is not in them
    cut_share: float = 0.35  # of clips that begin or end in another walk
    fast_share: float = 0.2  # of clips at twice the speed
    same_walk_query_share: float = 0.0  # of queries, at least: a view of the same walk, if there is one
    swap_share: float = 0.0  # of every second row: the row before it, asked with another picture of the thing
    round_steps: int | None = None  # render new walks every so many steps; none: the same ones for all steps
    workers_beside: int = 2  # processes that render the next round's walks while a round is trained on
    fresh_share: float = 0.0  # of a round's things: newly drawn covers, regions of photographs of its own
    augment: AugmentConfig = AugmentConfig(
        hue=0.03, roll=0.3, grey=0.08, blur=0.2, degrade=0.25, noise=0.3, query_jitter=True
    )


def library_of(data: SynthData, split: str) -> AssetLibrary:
    packs, scans = (Path(p) if p else None for p in (data.assets, data.scans))
    return open_library(split, packs, scans)


def open_gallery(
    data: SynthData,
    seed: int,
    device: torch.device | str,
    scales: Sequence[float] = (1.0,),
    view_px: int = VIEW_PX,
) -> Gallery:
    """Renders the walks that are missing in the folder and reads all of them."""
    return Gallery.open(harvested(data, seed, device), device, scales=scales, view_px=view_px)


def harvested(
    data: SynthData, seed: int, device: torch.device | str, progress: Progress | None = None
) -> list[Path]:
    """The files of all walks, after those that were missing in the folder are rendered."""
    return harvest(
        data.folder,
        partial(library_of, data, "train"),
        walks=data.walks,
        photos=data.photos,
        seconds=data.seconds,
        plain_share=data.plain_share,
        fresh_share=data.fresh_share,
        seed=seed,
        device=device,
        workers=data.workers,
        progress=progress,
    )


class FeatureStore:
    """A Source of batches. N frames of all walks, K things in all of them, V views of things.

    | features | float16 [N, channels, side, side]                |
    | views    | float16 [V, scales, channels, q side, q side]    |
    | boxes    | per walk float32 [T, K, 4] in the padded square  |
    | visible  | per walk bool [T, K]                             |
    """

    def __init__(
        self,
        gallery: Gallery,
        data: SynthData,
        model: TrainedConfig,
        backbone: Backbone,
        batch: int,
        seed: int,
    ) -> None:
        if gallery.views.shape[1] != len(model.query_scales):
            raise ValueError(
                f"the gallery has views at {gallery.views.shape[1]} scales, "
                f"the model wants {len(model.query_scales)}"
            )
        self.gallery, self.data, self.model, self.size, self.seed = gallery, data, model, batch, seed
        self.backbone = backbone.to(gallery.device).eval()
        lengths = [len(frames) for frames in gallery.frames]
        if max(lengths) < model.clip_length:
            raise TrainError(f"the walks have {max(lengths)} frames, a clip has {model.clip_length}")
        self.starts = np.cumsum([0, *lengths[:-1]])
        self.lengths = np.array(lengths)
        self._round: int | None = None
        self._present = [frozenset(walk.present) for walk in gallery.walks]
        self._things = [self._known(walk) for walk in range(len(gallery.walks))]
        if not any(things.size for things in self._things):
            raise TrainError("no thing in these walks can be asked for")

    def batch(self, step: int) -> Batch:
        """Depends on the seed and the step alone."""
        every = self.data.refresh_steps
        self._refresh(0 if every is None else step // every)
        rng = np.random.default_rng([self.seed, step])
        drawn: list[_Drawn] = []
        while len(drawn) < self.size:
            swapped = self._swapped(drawn[-1], rng) if len(drawn) % 2 else None
            drawn.append(swapped or self._draw(rng))
        # Nothing here waits for the GPU, which still computes the step before.
        device = self.gallery.device
        index, boxes, visible, known, view = (
            torch.from_numpy(np.array([getattr(d, name) for d in drawn])).to(
                device, non_blocking=device.type == "cuda"
            )
            for name in ("frames", "boxes", "visible", "known", "view")
        )
        shown = [frozenset().union(*(self._present[walk] for walk in d.walks)) for d in drawn]
        unrelated = unrelated_by_name(shown, [d.group for d in drawn])
        return Batch(
            clips=self.features[index],
            queries=self.views[view],
            query_boxes_unit=self.gallery.view_boxes[view],
            query_shown_unit=self.gallery.view_shown[view],
            boxes_unit=boxes,
            visible=visible,
            unrelated=unrelated,
            known=known,
            swapped=torch.tensor([d.swapped for d in drawn]) if self.data.swap_share else None,
        )

    # --- what is drawn ---

    def _known(self, walk: int) -> np.ndarray:
        """The things of a walk that have a view."""
        names = self.gallery.walks[walk].names
        return np.flatnonzero([bool(self.gallery.views_of.get(name)) for name in names])

    def _draw(self, rng: np.random.Generator) -> _Drawn:
        for _ in range(TRIES):
            photo = bool(rng.random() < self.data.photo_share)
            absent = bool(rng.random() < self.data.absent_share)
            # The kind of clip is drawn before the walk: otherwise kinds that seldom fit would be too rare.
            choices = self._choices[absent]
            walks = choices["photo" if photo else "room"] or choices["room" if photo else "photo"]
            for _ in range(TRIES if walks else 0):
                drawn = self._try(*walks[rng.integers(len(walks))], absent, rng)
                if drawn is not None:
                    return drawn
        raise TrainError(
            f"no clip of {self.model.clip_length} frames fits data.absent_share={self.data.absent_share} in "
            f"these {len(self.lengths)} walks: render more or longer ones (data.walks, data.seconds)"
        )

    def _swapped(self, drawn: _Drawn, rng: np.random.Generator) -> _Drawn | None:
        """The same clip and thing asked with another picture, in the share that is asked for."""
        if not self.data.swap_share or rng.random() >= self.data.swap_share:
            return None
        others = [view for view in drawn.views if view != drawn.view]
        if not others:
            return None
        return replace(drawn, view=int(others[rng.integers(len(others))]), swapped=True)

    def _try(
        self, walk: int, things: np.ndarray, chances: np.ndarray, absent: bool, rng: np.random.Generator
    ) -> _Drawn | None:
        census, length = self.gallery.walks[walk], self.model.clip_length
        # As rng.choice(things, p=chances), without its checks.
        thing = int(things[chances.searchsorted(rng.random(), side="right")])
        stride = 2 if rng.random() < self.data.fast_share and self.lengths[walk] >= 2 * length else 1
        every = np.zeros(stride * (length - 1) + 1, np.int64)
        every[::stride] = 1
        seen = np.convolve(self.visible[walk][:, thing], every, "valid")
        fitting = np.flatnonzero(_fits(seen, length, absent))
        if not len(fitting):
            return None
        own = int(fitting[rng.integers(len(fitting))]) + stride * np.arange(length)
        views = self.gallery.askable(walk, thing, own.tolist())
        if not views:
            return None
        home = [view for view in views if self.gallery.is_from(view, walk)]
        if home and rng.random() < self.data.same_walk_query_share:
            views = home
        boxes, visible = self.boxes[walk][own, thing], self.visible[walk][own, thing]
        # A frame with a speck or a corner of the thing is neither positive nor negative.
        known = visible | (census.share[own, thing] == 0)
        frames, walks = self.starts[walk] + own, {walk}
        if rng.random() < self.data.cut_share:
            part, others, other = self._cut(length, census.groups[thing], rng)
            frames[part], visible[part], known[part] = others, False, True
            walks |= other
        return _Drawn(
            frames=frames,
            boxes=np.nan_to_num(boxes),
            visible=visible,
            known=known,
            view=int(views[rng.integers(len(views))]),
            views=tuple(views),
            group=census.groups[thing],
            walks=frozenset(walks),
        )

    def _cut(self, length: int, group: str, rng: np.random.Generator) -> tuple[slice, np.ndarray, set[int]]:
        """The beginning or end of a clip, and frames for it of a walk without the thing, if one is found."""
        at = int(rng.integers(4, length - 3)) if length > 8 else length // 2
        part = slice(0, at) if rng.random() < 0.5 else slice(at, length)
        count = part.stop - part.start
        for _ in range(8):
            other = int(rng.integers(len(self.lengths)))
            if group not in self._present[other] and self.lengths[other] >= count:
                first = int(rng.integers(self.lengths[other] - count + 1))
                return part, self.starts[other] + first + np.arange(count), {other}
        return slice(0, 0), np.zeros(0, int), set()

    # --- what is kept ---

    @torch.no_grad()
    def _refresh(self, number: int) -> None:
        if self._round == number:
            return
        self._round = number
        channels, side, query_side = self.model.backbone.channels, self.model.side, self.model.query_side
        device = self.gallery.device
        if not hasattr(self, "features"):
            shape = (channels, side, side)
            self.features = torch.empty(int(self.lengths.sum()), *shape, dtype=torch.float16, device=device)
            shape = (*self.gallery.views.shape[:2], channels, query_side, query_side)
            self.views = torch.empty(shape, dtype=torch.float16, device=device)
        self.boxes: list[np.ndarray] = []
        self.visible: list[np.ndarray] = []
        for walk, start in enumerate(self.starts):
            generator = torch.Generator(device).manual_seed(_seed_of(self.seed, number, walk))
            frames, boxes, visible = self._augmented(walk, generator)
            self._encode(frames, self.features[start : start + len(frames)])
            self.boxes.append(np.where(visible[..., None], boxes, np.nan))
            self.visible.append(visible)
        self._choices = {absent: self._walks_for(absent) for absent in (False, True)}
        generator = torch.Generator(device).manual_seed(_seed_of(self.seed, number, len(self.starts)))
        size = self.model.query_size
        for first in range(0, len(self.views), ENCODED_AT_ONCE):
            part = slice(first, first + ENCODED_AT_ONCE)
            pictures = rearrange(self.gallery.views[part], "v s h w c -> (v s) c h w").float() / 255
            if size != pictures.shape[-1]:
                pictures = F.interpolate(pictures, (size, size), mode="bilinear")
            if self.data.augment.query_jitter:
                pictures = photometric_jitter(pictures, generator)
            self._encode(normalised(pictures), self.views[part].flatten(0, 1))

    def _walks_for(self, absent: bool) -> dict[str, list[tuple[int, np.ndarray, np.ndarray]]]:
        """By source: walks, their things that some clip shows (or misses), and the cumulative probabilities
        with which these are drawn."""
        found: dict[str, list[tuple[int, np.ndarray, np.ndarray]]] = {"room": [], "photo": []}
        length = self.model.clip_length
        for walk, (census, things) in enumerate(zip(self.gallery.walks, self._things)):
            if self.lengths[walk] < length:
                continue
            seen = sliding_window_view(self.visible[walk][:, things], length, axis=0).sum(-1)
            things = things[_fits(seen, length, absent).any(0)]
            if things.size:
                # Larger things more often, as there are far more small ones; 1e-4: cropped away altogether.
                areas = np.nan_to_num(_areas(self.boxes[walk][:, things]))
                sides = np.sqrt((areas.sum(0) / (areas > 0).sum(0).clip(1)).clip(1e-4))
                chances = (sides / sides.sum()).cumsum()
                found[census.source].append((walk, things, chances / chances[-1]))
        return found

    def _augmented(self, walk: int, generator: torch.Generator) -> tuple[Tensor, np.ndarray, np.ndarray]:
        """Normalised frames in their square; boxes in its unit square and visibility of all things."""
        census, images = self.gallery.walks[walk], self.gallery.frames[walk]
        height, width = images.shape[1:3]
        sides = np.array([width, height, width, height], np.float32)
        boxes, visible = torch.from_numpy(census.boxes_px / sides), torch.from_numpy(census.visible)
        frames = images.permute(0, 3, 1, 2).float() / 255
        frames, boxes, visible, _ = augment_clip(  # slivers: visible in the census, not here, so unknown
            frames, boxes.nan_to_num(), visible, self.data.augment, generator
        )
        box = Letterbox.square(width, height, self.model.image_size)
        if (box.content_width, box.content_height) != (width, height):
            frames = F.interpolate(
                frames, (box.content_height, box.content_width), mode="bilinear", antialias=True
            )
        frames = normalised(padded(frames, box, self.model.padding))
        scale = np.array([box.content_width, box.content_height] * 2, np.float32)
        boxes_px = boxes.numpy() * scale + np.array([box.left, box.top] * 2, np.float32)
        return frames, boxes_px / self.model.image_size, visible.numpy()

    def _encode(self, pictures: Tensor, into: Tensor) -> None:
        device = pictures.device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            for first in range(0, len(pictures), ENCODED_AT_ONCE):
                part = slice(first, first + ENCODED_AT_ONCE)
                into[part] = self.backbone(pictures[part]).to(into.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Drawn:
    frames: np.ndarray  # [t] of all frames
    boxes: np.ndarray  # [t, 4]
    visible: np.ndarray  # [t]
    known: np.ndarray  # [t]
    view: int
    views: tuple[int, ...]  # that could be asked with
    group: str
    walks: frozenset[int]
    swapped: bool = False  # the row before it asks the same with another picture


def _fits(seen: np.ndarray, length: int, absent: bool) -> np.ndarray:
    """Number of frames of a clip that show the thing -> whether such a clip is wanted."""
    return seen == 0 if absent else seen >= min(3, length)


def _seed_of(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _areas(boxes: np.ndarray) -> np.ndarray:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])

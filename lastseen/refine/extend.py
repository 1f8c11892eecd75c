"""Extend: follow each sighting over time by patch similarity to its peak frame.

A sighting covers the frames in which the thing looks like the query. When the thing turns, blurs or the light
changes, the sighting ends or splits in two while the thing is still in view. From both ends, the next frames
are compared with the peak frame, in their predicted box or near the thing's last position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from lastseen.progress import ENCODED, LOOKING_CLOSER, Work
from lastseen.refine.appearance import Appearance, BoxPatches, best_match, centers
from lastseen.refine.step import FrameAccess, Scale
from lastseen.refine.verify import check_cosine
from lastseen.sighting import Evidence, Extract, answerable

EXPECTED_FRAMES = 8  # compared at either end of a sighting, on average


@dataclass(frozen=True, kw_only=True)
class Extend:
    name: ClassVar[str] = "extend"
    phase: ClassVar[str] = LOOKING_CLOSER

    min_cosine: float = 0.52  # to the peak frame, for a frame to be added
    min_margin_cosine: float = 0.05  # above the rest of the frame: textureless things match walls
    max_gap_frames: int = 2  # consecutive frames that may fail: blur, occlusion
    max_frames: int = 40  # most frames added at either end
    search_ratio: float = 1.5  # search region, relative to the box
    max_motion_patches: int = 2  # per frame, beyond the search region
    background_cosine: float = 0.5  # cosine with a patch around the box above which a patch is background
    batch_frames: int = 4  # frames compared at a time

    def __post_init__(self) -> None:
        check_cosine("extend.min_cosine", self.min_cosine)

    def __call__(self, evidence: Evidence, extract: Extract, video: FrameAccess) -> Evidence:
        """Evidence with extended sightings; where the thing is outside a frame's predicted box, the box is
        replaced, unless that frame belongs to another sighting."""
        sightings = answerable(extract(evidence))
        patches = BoxPatches(evidence, video)
        boxes_px, extents = evidence.boxes_px.copy(), []
        taken = {frame for sighting in sightings for frame in range(sighting.first, sighting.last + 1)}
        for sighting in sightings:
            first, last = sighting.first, sighting.last
            thing = patches.appearance(sighting.peak, self.background_cosine)
            before, after = (self._path(patches, thing, end, step) for end, step in ((first, -1), (last, 1)))
            for frame, box in (before | after).items():
                if box is not None and frame not in taken:
                    boxes_px[frame] = video.letterbox.to_px(box.numpy())
            extents.append((min(before, default=first), max(after, default=last)))
        return replace(evidence, boxes_px=boxes_px, extents=tuple(extents))

    def work(self, evidence: Evidence | None, extract: Extract, scale: Scale) -> Work:
        """The peak of each sighting, and its surroundings: most end after a few frames. Before the first
        pass: two sightings."""
        count = 2 if evidence is None else len(answerable(extract(evidence)))
        around = scale.read(1) + 2 * scale.read(min(self.max_frames, EXPECTED_FRAMES))
        return Work({ENCODED: min(scale.frames, count * around)})

    def _path(self, patches: BoxPatches, thing: Appearance, end: int, step: int) -> dict[int, Tensor | None]:
        """Frames beyond an end that show the thing, outwards; with a box if not in the predicted one."""
        path: dict[int, Tensor | None] = {}
        box, reached = patches.boxes[end], end
        for frame, cosine in self._beyond(patches, thing, end, step):
            gap = abs(frame - reached)
            if self._shows(patches, patches.boxes[frame], thing, cosine):
                path[frame], box, reached = None, patches.boxes[frame], frame
                continue
            moved = self._moved(patches, box, thing, cosine, self.max_motion_patches * gap)
            if self._shows(patches, moved, thing, cosine):
                path[frame], box, reached = moved, moved, frame
            elif gap > self.max_gap_frames:
                break
        return path

    def _beyond(
        self, patches: BoxPatches, thing: Appearance, end: int, step: int
    ) -> Iterator[tuple[int, Tensor]]:
        """Frames beyond an end one by one, with their cosines; stops at a frame on which the model did not
        run, since it has no box."""
        logits = patches.evidence.logits
        frames = [end + step * n for n in range(1, self.max_frames + 1)]
        known = list(takewhile(lambda n: 0 <= n < len(logits) and bool(np.isfinite(logits[n])), frames))
        for at in range(0, len(known), self.batch_frames):
            part = sorted(known[at : at + self.batch_frames])
            yield from list(zip(part, patches.cosines(thing, part[0], part[-1] + 1)))[::step]

    def _shows(self, patches: BoxPatches, box: Tensor, thing: Appearance, cosine: Tensor) -> bool:
        where = patches.around(box, cosine, self.search_ratio)
        elsewhere = patches.inside(patches.frame, cosine) & ~where
        (best, _), (other, _) = best_match(cosine, where), best_match(cosine, elsewhere)
        margin = (best - other)[thing.foreground].mean()
        return bool(best.mean() >= self.min_cosine and margin >= self.min_margin_cosine)

    def _moved(
        self, patches: BoxPatches, box: Tensor, thing: Appearance, cosine: Tensor, reach: int
    ) -> Tensor:
        """The box centred on the median match of its patches, searched up to `reach` patches further."""
        _, at = best_match(cosine, patches.around(box, cosine, self.search_ratio, reach))
        middles = (centers(*cosine.shape[1:])[at] - thing.offsets)[thing.foreground]
        half = (box[2:] - box[:2]) / 2
        low, high = patches.frame[0, :2], patches.frame[0, 2:]
        middle = middles.median(0).values.clamp(low, high)
        return torch.cat([middle - half, middle + half])

"""Training clips in memory: frames, query, boxes and visibility, without a file in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from lastseen.errors import SynthError
from lastseen.synth.assets import Library
from lastseen.synth.episode import (
    TRUTH_FPS,
    EpisodePlan,
    EpisodeSettings,
    plan_episode,
    render_episode,
    seen_from_rad,
)
from lastseen.synth.photos import Clip, PhotoWalks
from lastseen.synth.portrait import portraits
from lastseen.synth.sightings import sightings

ROOM_SETTINGS = EpisodeSettings(
    width_px=448, height_px=448, fps=TRUTH_FPS, duration_s=(40.0, 60.0), antialias=False
)


class RoomWalks:
    """Clips out of rendered rooms. A room is walked through once and gives clips of all its things."""

    def __init__(
        self,
        library: Library,
        *,
        frames: int = 30,
        settings: EpisodeSettings = ROOM_SETTINGS,
        device: torch.device | str = "cpu",
    ) -> None:
        if settings.duration_s[0] * TRUTH_FPS < frames:
            raise SynthError(f"a walk of {settings.duration_s[0]:g} s is shorter than {frames} frames")
        self.library, self.frames, self.device = library, frames, device
        self.settings = replace(settings, fps=TRUTH_FPS)

    def clips(self, rng: np.random.Generator) -> list[Clip]:
        """One room: for each thing a clip that shows it, and one without it where there is one."""
        plan = plan_episode(self.library, rng, self.settings, device=self.device)
        footage = list(render_episode(plan))
        images = torch.cat([part.images for part in footage])
        all_boxes = np.concatenate([part.boxes_px for part in footage])
        share = np.concatenate([part.share for part in footage])
        longer_px = max(self.settings.width_px, self.settings.height_px)
        boxes = torch.from_numpy(all_boxes)
        visible = torch.from_numpy(sightings(all_boxes, share, longer_px))
        found = []
        sides = [_side(plan, number, visible[:, number].numpy()) for number in range(len(plan.things))]
        queries = portraits(self.library, plan.things, rng, seen_from_rad=sides, device=self.device)
        for number, (query, box) in enumerate(queries):
            seen = visible[:, number].numpy()
            for start in windows(seen, self.frames, rng):
                part = slice(start, start + self.frames)
                shown = visible[part, number]
                found.append(
                    Clip(
                        frames=images[part],
                        boxes_px=boxes[part, number].where(shown[:, None], torch.nan).to(images.device),
                        visible=shown.to(images.device),
                        query=torch.from_numpy(query).to(images.device),
                        query_box=box,
                        thing=plan.things[number].name,
                        source="room",
                    )
                )
        return found


def _side(plan: EpisodePlan, number: int, seen: np.ndarray) -> float | None:
    """From where the thing is seen in the middle of all the time it is."""
    frames = np.flatnonzero(seen)
    return seen_from_rad(plan, number, frames[len(frames) // 2] / TRUTH_FPS) if len(frames) else None


def windows(seen: np.ndarray, length: int, rng: np.random.Generator) -> list[int]:
    """First frames of up to two windows of `length`: one in which the thing is seen, one without it."""
    starts = np.arange(len(seen) - length + 1)
    count = np.convolve(seen.astype(int), np.ones(length, int), "valid")
    chosen = []
    for fitting in (starts[count >= min(3, length)], starts[count == 0]):
        if len(fitting):
            chosen.append(int(rng.choice(fitting)))
    return chosen


def training_stream(
    library: Library,
    *,
    seed: int,
    photo_share: float = 0.3,
    frames: int = 30,
    size: tuple[int, int] = (448, 448),
    device: torch.device | str = "cpu",
) -> Iterator[Clip]:
    """Clips without end, of rooms and of photographs, in an order that depends on the seed alone."""
    rooms = RoomWalks(
        library,
        frames=frames,
        settings=replace(ROOM_SETTINGS, width_px=size[0], height_px=size[1]),
        device=device,
    )
    photos = PhotoWalks(library, size=size, frames=frames, device=device)
    number = 0
    while True:
        rng = np.random.default_rng([seed, number])
        number += 1
        if rng.random() < photo_share:
            yield photos.clip(rng, present=bool(rng.random() < 0.75))
            continue
        try:
            yield from rooms.clips(rng)
        except SynthError:
            continue  # this draw found no room for its things; the next one will

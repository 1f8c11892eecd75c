"""Walks made by hand: rectangles of one colour on grey noise, so that a pixel's colour tells whose it is."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image

from lastseen.box import Box
from lastseen.train.gallery import Gallery
from lastseen_synth.annotated_walk import AnnotatedWalk, QueryPicture, majority_per_patch

Corners = tuple[int, int, int, int]
RED, GREEN, BLUE, YELLOW = (230, 30, 30), (30, 220, 40), (40, 50, 230), (220, 210, 20)
PURPLE, CYAN = (200, 40, 210), (20, 200, 210)


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A rectangle. `boxes`: one a frame, None where it is not; later things hide earlier ones."""

    name: str
    colour: tuple[int, int, int]
    boxes: list[Corners | None]
    group: str = ""
    portraits: int = 0
    share: list[float] = field(default_factory=list)  # of it that is visible; none: all


def moving(
    start: Corners, step: tuple[int, int], frames: int, seen: range | None = None
) -> list[Corners | None]:
    """The same rectangle, moved by `step` from frame to frame, in the frames `seen` (all)."""
    x1, y1, x2, y2 = start
    dx, dy = step
    return [
        (x1 + dx * t, y1 + dy * t, x2 + dx * t, y2 + dy * t) if seen is None or t in seen else None
        for t in range(frames)
    ]


def walk_of(
    things: Sequence[Thing],
    *,
    size: tuple[int, int] = (112, 84),
    source: str = "room",
    also_present: Sequence[str] = (),
    seed: int = 0,
) -> tuple[AnnotatedWalk, np.ndarray]:
    """The census, and its frames uint8 [T, h, w, 3] as they were before JPEG."""
    width, height = size
    count = len(things[0].boxes)
    rng = np.random.default_rng(seed)
    frames = rng.integers(60, 190, (count, height, width, 1), dtype=np.uint8).repeat(3, 3)
    ids = np.full((count, height, width), -1, np.int16)
    boxes = np.full((count, len(things), 4), np.nan, np.float32)
    share = np.zeros((count, len(things)), np.float16)
    for number, thing in enumerate(things):
        for t, box in enumerate(thing.boxes):
            if box is not None:
                x1, y1, x2, y2 = boxes[t, number] = box
                part = (t, slice(int(y1), int(y2)), slice(int(x1), int(x2)))
                frames[part], ids[part] = thing.colour, number
                share[t, number] = thing.share[t] if thing.share else 1
    groups = tuple(thing.group or thing.name for thing in things)
    census = AnnotatedWalk(
        source=source,
        width=width,
        height=height,
        jpegs=tuple(map(jpeg, frames)),
        names=tuple(thing.name for thing in things),
        groups=groups,
        boxes_px=boxes,
        visible=np.isfinite(boxes).all(-1),
        share=share,
        patches=majority_per_patch(torch.from_numpy(ids)).numpy(),
        query_pictures=tuple(
            portrait(number, thing.colour)
            for number, thing in enumerate(things)
            for _ in range(thing.portraits)
        ),
        present=tuple(sorted({*groups, *also_present})),
    )
    return census, frames


def portrait(number: int, colour: tuple[int, int, int]) -> QueryPicture:
    """The thing, wide, in the middle of a grey picture."""
    picture = np.full((90, 120, 3), 128, np.uint8)
    picture[30:60, 30:90] = colour
    return QueryPicture(thing=number, picture=picture, box=Box(30, 30, 90, 60))


def gallery_of(*walks: tuple[AnnotatedWalk, np.ndarray]) -> Gallery:
    return Gallery.of([census for census, _ in walks], [torch.from_numpy(frames) for _, frames in walks])


def jpeg(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def is_colour(pixels: torch.Tensor, colour: Sequence[int], tolerance: float = 0.2) -> torch.Tensor:
    """Pixels [.., 3] in [0, 1] -> bool [..]"""
    return (pixels - torch.tensor(colour) / 255).abs().amax(-1) < tolerance


def at_patches(pictures: torch.Tensor) -> torch.Tensor:
    """[.., 3, 14 h, 14 w] -> [.., h, w, 3]: the colours in the middle of each patch"""
    middle = (pictures[..., 6::14, 6::14] + pictures[..., 7::14, 7::14]) / 2
    return middle.movedim(-3, -1)

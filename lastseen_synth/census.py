"""A walk in which every thing is known, not only the few that are asked for: the food of training.

    walk = room_census(library, np.random.default_rng(0), device="cuda")
    walk.save("walks/0.npz")

One walk of a minute through a full room shows dozens of things, each of them a question with an answer.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lastseen.box import Box
from lastseen.errors import SynthError
from lastseen.files import whole_file
from lastseen_synth.assets import Asset, Library
from lastseen_synth.cast import Item
from lastseen_synth.episode import TRUTH_FPS, EpisodeSettings, plan_episode, render_episode
from lastseen_synth.photos import Clip, PhotoWalks
from lastseen_synth.portrait import portraits
from lastseen_synth.rooms import Room
from lastseen_synth.sightings import sightings

PATCH_PX = 14
SIZES_PX = ((448, 336), (448, 252), (448, 448))  # whole patches, also after padding to a square
SIZE_SHARES = (0.45, 0.35, 0.2)
KINDS = ("object", "small", "person", "animal")
PORTRAITS = 8  # of each room's things
JPEG_QUALITY = (35, 92)
INNER = 0.8  # of a box, where its thing is taken for granted if there are no ids


@dataclass(frozen=True, kw_only=True, eq=False)
class Portrait:
    """A picture of one of the things, uint8 [h, w, 3]; `thing` is its place in the census."""

    thing: int
    picture: np.ndarray
    box: Box


@dataclass(frozen=True, kw_only=True, eq=False)
class Census:
    """T frames (JPEG files) and all K things that are seen in them.

    | jpegs     | T files of width x height pixels                                              |
    | names     | K                                                                             |
    | groups    | K: things of one group look the same, so none of them is "another thing"      |
    | boxes_px  | float32 [T, K, 4] nan where not visible                                       |
    | visible   | bool [T, K]                                                                   |
    | share     | float16 [T, K] of the thing that is visible                                   |
    | patches   | int16 [T, height / 14, width / 14] the thing that covers most of a patch, or -1 |
    | present   | groups of everything there is, also of what is never seen                     |
    """

    source: str
    width: int
    height: int
    jpegs: tuple[bytes, ...]
    names: tuple[str, ...]
    groups: tuple[str, ...]
    boxes_px: np.ndarray
    visible: np.ndarray
    share: np.ndarray
    patches: np.ndarray
    portraits: tuple[Portrait, ...]
    present: tuple[str, ...]

    def frames(self) -> np.ndarray:
        """uint8 [T, height, width, 3]"""
        return np.stack([np.asarray(Image.open(io.BytesIO(jpeg))) for jpeg in self.jpegs])

    def save(self, path: str | Path) -> None:
        pictures = [_jpeg(p.picture, 95) for p in self.portraits]
        arrays = {
            "source": np.array(self.source),
            "size": np.array([self.width, self.height]),
            "names": np.array(self.names, np.str_),
            "groups": np.array(self.groups, np.str_),
            "present": np.array(self.present, np.str_),
            "boxes_px": self.boxes_px,
            "visible": self.visible,
            "share": self.share,
            "patches": self.patches,
            "portrait_thing": np.array([p.thing for p in self.portraits], np.int64),
            "portrait_box": np.array([p.box.xyxy for p in self.portraits], np.float32).reshape(-1, 4),
        }
        for name, files in (("jpeg", self.jpegs), ("portrait", pictures)):
            arrays[f"{name}_bytes"] = np.frombuffer(b"".join(files), np.uint8)
            arrays[f"{name}_ends"] = np.cumsum([len(file) for file in files], dtype=np.int64)
        # Given a name, savez would add .npz to it.
        with whole_file(path) as building, building.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Census:
        with np.load(path) as packed:
            arrays = dict(packed)
        pictures = [np.asarray(Image.open(io.BytesIO(f))) for f in _files(arrays, "portrait")]
        shown = zip(arrays["portrait_thing"], pictures, arrays["portrait_box"])
        return cls(
            source=str(arrays["source"]),
            width=int(arrays["size"][0]),
            height=int(arrays["size"][1]),
            jpegs=tuple(_files(arrays, "jpeg")),
            names=tuple(map(str, arrays["names"])),
            groups=tuple(map(str, arrays["groups"])),
            present=tuple(map(str, arrays["present"])),
            boxes_px=arrays["boxes_px"],
            visible=arrays["visible"],
            share=arrays["share"],
            patches=arrays["patches"],
            portraits=tuple(
                Portrait(thing=int(thing), picture=picture, box=Box(*map(float, box)))
                for thing, picture, box in shown
            ),
        )


def room_census(
    library: Library,
    rng: np.random.Generator,
    *,
    seconds: float = 50.0,
    antialias: bool = False,
    size_px: tuple[int, int] | None = None,
    max_triangles: int = 60_000,
    device: torch.device | str = "cpu",
) -> Census:
    """A walk through one room, and portraits of some of its things taken in another."""
    width, height = size_px or SIZES_PX[rng.choice(len(SIZES_PX), p=SIZE_SHARES)]
    settings = EpisodeSettings(
        width_px=width,
        height_px=height,
        fps=TRUTH_FPS,
        duration_s=(seconds, seconds),
        antialias=antialias,
        max_triangles=max_triangles,
    )
    plan = plan_episode(library, rng, settings, device=device)
    watched = nameable(plan.room)
    parts = list(render_episode(plan, watched=[placed[0] for placed in watched]))
    boxes = np.concatenate([part.boxes_px for part in parts])
    share = np.concatenate([part.share for part in parts])
    visible = sightings(boxes, share, max(width, height))
    instance = torch.cat([part.instance for part in parts])
    seen = np.flatnonzero(visible.any(0))
    if not len(seen):
        raise SynthError("nothing was seen in this walk")
    boxes = np.where(visible[..., None], boxes, np.nan)[:, seen].astype(np.float32)
    numbers = torch.full((int(instance.max()) + 2,), -1, dtype=torch.int16, device=instance.device)
    for place, k in enumerate(seen):
        if watched[k][0] + 1 < len(numbers):
            numbers[watched[k][0] + 1] = place
    assets = [watched[k][1] for k in seen]
    quality = int(rng.integers(*JPEG_QUALITY))
    return Census(
        source="room",
        width=width,
        height=height,
        jpegs=tuple(_jpeg(image, quality) for part in parts for image in part.images.cpu().numpy()),
        names=tuple(asset.name for asset in assets),
        groups=tuple(group_of(asset) for asset in assets),
        boxes_px=boxes,
        visible=visible[:, seen],
        share=share[:, seen].astype(np.float16),
        patches=patches_of(numbers[(instance + 1).long()]).cpu().numpy(),
        portraits=_portraits(library, assets, rng, device),
        present=tuple(sorted({group_of(placed.asset) for placed in plan.room.placed})),
    )


def photo_census(
    walks: PhotoWalks, rng: np.random.Generator, *, groups: dict[str, str], present: bool = True
) -> Census:
    """A clip over photographs: one thing, its own picture. `groups`: as of groups_of."""
    clip = walks.clip(rng, present=present)
    height, width = clip.frames.shape[1:3]
    boxes = clip.boxes_px.cpu().numpy()[:, None]
    visible = clip.visible.cpu().numpy()[:, None]
    group = groups[clip.thing]
    quality = int(rng.integers(*JPEG_QUALITY))
    return Census(
        source="photo",
        width=width,
        height=height,
        jpegs=tuple(_jpeg(image, quality) for image in clip.frames.cpu().numpy()),
        names=(clip.thing,),
        groups=(group,),
        boxes_px=boxes,
        visible=visible,
        share=visible.astype(np.float16),
        patches=_inner_patches(clip, width, height),
        portraits=(Portrait(thing=0, picture=clip.query.cpu().numpy(), box=clip.query_box),),
        present=tuple(sorted({groups[name] for name in clip.scene})),
    )


def group_of(asset: Asset) -> str:
    return asset.name if asset.twin is None else f"twin {asset.twin}"


def groups_of(library: Library) -> dict[str, str]:
    """Of all that a walk may be about: assets, and what is cut out of pictures."""
    photographed = {picture.name: Item.of(picture).twins for picture in library.pictures}
    return photographed | {asset.name: group_of(asset) for asset in library.assets}


def nameable(room: Room) -> list[tuple[int, Asset]]:
    """Instances of things that a question could be about: of their looks there is only one in the room."""
    counts = Counter(group_of(placed.asset) for placed in room.placed)
    return [
        (placed.instance, placed.asset)
        for placed in room.placed
        if placed.asset.kind in KINDS and counts[group_of(placed.asset)] == 1
    ]


def patches_of(numbers: Tensor) -> Tensor:
    """Which number covers more than half of each patch: int16 [T, H, W] -> [T, H / 14, W / 14], or -1."""
    frames, height, width = numbers.shape
    rows, columns = height // PATCH_PX, width // PATCH_PX
    cells = numbers.view(frames, rows, PATCH_PX, columns, PATCH_PX).transpose(2, 3).flatten(3)
    middle = cells.median(3).values  # what has more than half of the pixels has the middle one, too
    count = (cells == middle[..., None]).sum(3)
    return middle.where(count > PATCH_PX**2 // 2, -1)


def _portraits(
    library: Library, assets: Sequence[Asset], rng: np.random.Generator, device: torch.device | str
) -> tuple[Portrait, ...]:
    """Of things that can be asked for; none if no other room has a place for them all."""
    able = [k for k, asset in enumerate(assets) if asset.kind == "object" and max(asset.size_m) < 0.4]
    chosen = [int(k) for k in rng.permutation(able)[:PORTRAITS]]
    if not chosen:
        return ()
    try:
        pictures = portraits(library, [assets[k] for k in chosen], rng, device=device)
    except SynthError:
        return ()
    return tuple(Portrait(thing=k, picture=p, box=box) for k, (p, box) in zip(chosen, pictures))


def _inner_patches(clip: Clip, width: int, height: int) -> np.ndarray:
    rows, columns = height // PATCH_PX, width // PATCH_PX
    patches = np.full((len(clip.frames), rows, columns), -1, np.int16)
    y, x = (np.mgrid[:rows, :columns] + 0.5) * PATCH_PX
    for number, box in enumerate(clip.boxes_px.cpu().numpy()):
        if np.isfinite(box).all():
            x1, y1, x2, y2 = Box(*map(float, box)).expanded(INNER).xyxy
            patches[number][(x > x1) & (x < x2) & (y > y1) & (y < y2)] = 0
    return patches


def _jpeg(image: np.ndarray, quality: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _files(arrays: dict[str, np.ndarray], name: str) -> list[bytes]:
    data, ends = arrays[f"{name}_bytes"].tobytes(), arrays[f"{name}_ends"]
    return [data[start:end] for start, end in zip([0, *ends[:-1]], ends)]

"""Fully annotated walks for training: boxes, visibility and patch labels of every object in view.

    walk = annotated_room_walk(library, np.random.default_rng(0), device="cuda")
    walk.save("walks/0.npz")

A walk of one minute through a full room shows dozens of objects, each of which can be queried.
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
from lastseen_synth.annotation import annotated_visibility
from lastseen_synth.assets import Asset, AssetLibrary
from lastseen_synth.episode import ANNOTATION_FPS, EpisodeSettings, plan_episode, render_episode
from lastseen_synth.object_pool import Item
from lastseen_synth.photo_walks import PhotoWalk, PhotoWalks
from lastseen_synth.query_pictures import query_pictures
from lastseen_synth.rooms import Room
from lastseen_synth.visibility import visible_boxes

PATCH_PX = 14
SIZES_PX = ((448, 336), (448, 252), (448, 448))  # whole patches, also after padding to a square
SIZE_SHARES = (0.45, 0.35, 0.2)
KINDS = ("object", "small", "person", "animal")
OTHERS = (*KINDS, "furniture")  # things that are seen, whether they can be asked for or not
QUERY_PICTURES = 8  # per room walk
JPEG_QUALITY = (35, 92)
INNER = 0.8  # of a box: patches inside belong to its object where there is no id buffer


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryPicture:
    """A query picture uint8 [h, w, 3] and the object's box in it; `thing` is the object's column in the
    walk."""

    thing: int
    picture: np.ndarray
    box: Box


@dataclass(frozen=True, kw_only=True, eq=False)
class AnnotatedWalk:
    """T frames (JPEG files) and all K objects that are seen in them.

    | jpegs     | T files of width x height pixels                                              |
    | names     | K                                                                             |
    | groups    | K: objects of one group look the same and are no negatives of each other      |
    | boxes_px  | float32 [T, K, 4] nan where not visible                                       |
    | visible   | bool [T, K]                                                                   |
    | share     | float16 [T, K] share of the object that is visible                            |
    | patches   | int16 [T, height / 14, width / 14] object that covers most of a patch, or -1  |
    | present   | groups of all objects in the scene, also of those never seen                  |
    | others_px | float32 [T, M, 4] of all other things that are seen, furniture included, which |
    |           | nobody can ask for: nan where not visible; None in walks of before, and where  |
    |           | not all things are known                                                       |
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
    query_pictures: tuple[QueryPicture, ...]
    present: tuple[str, ...]
    others_px: np.ndarray | None = None

    def frames(self) -> np.ndarray:
        """uint8 [T, height, width, 3]"""
        return np.stack([_pixels(jpeg) for jpeg in self.jpegs])

    def save(self, path: str | Path) -> None:
        pictures = [_jpeg(p.picture, 95) for p in self.query_pictures]
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
            "portrait_thing": np.array([p.thing for p in self.query_pictures], np.int64),
            "portrait_box": np.array([p.box.xyxy for p in self.query_pictures], np.float32).reshape(-1, 4),
        }
        if self.others_px is not None:
            arrays["others_px"] = self.others_px
        for name, files in (("jpeg", self.jpegs), ("portrait", pictures)):
            arrays[f"{name}_bytes"] = np.frombuffer(b"".join(files), np.uint8)
            arrays[f"{name}_ends"] = np.cumsum([len(file) for file in files], dtype=np.int64)
        # Given a name, savez would add .npz to it.
        with whole_file(path) as building, building.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> AnnotatedWalk:
        with np.load(path) as packed:
            arrays = dict(packed)
        pictures = [_pixels(jpeg) for jpeg in _files(arrays, "portrait")]
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
            others_px=arrays.get("others_px"),
            query_pictures=tuple(
                QueryPicture(thing=int(thing), picture=picture, box=Box(*map(float, box)))
                for thing, picture, box in shown
            ),
        )


def annotated_room_walk(
    library: AssetLibrary,
    rng: np.random.Generator,
    *,
    seconds: float = 50.0,
    size_px: tuple[int, int] | None = None,
    max_triangles: int = 60_000,
    device: torch.device | str = "cpu",
) -> AnnotatedWalk:
    """A walk through one room, and query pictures of some of its objects taken in another room."""
    width, height = size_px or SIZES_PX[rng.choice(len(SIZES_PX), p=SIZE_SHARES)]
    settings = EpisodeSettings(
        width_px=width,
        height_px=height,
        fps=ANNOTATION_FPS,
        duration_s=(seconds, seconds),
        antialias=False,
        max_triangles=max_triangles,
    )
    plan = plan_episode(library, rng, settings, device=device)
    watched = unique_instances(plan.room)
    parts = list(render_episode(plan, watched=[placed[0] for placed in watched]))
    boxes = np.concatenate([part.boxes_px for part in parts])
    share = np.concatenate([part.share for part in parts])
    visible = annotated_visibility(boxes, share, max(width, height))
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
    askable = {watched[k][0] for k in seen}
    rest = [p.instance for p in plan.room.placed if p.asset.kind in OTHERS and p.instance not in askable]
    others = visible_boxes(instance, rest)[0].cpu().numpy()
    quality = int(rng.integers(*JPEG_QUALITY))
    return AnnotatedWalk(
        source="room",
        width=width,
        height=height,
        jpegs=tuple(_jpeg(image, quality) for part in parts for image in part.images.cpu().numpy()),
        names=tuple(asset.name for asset in assets),
        groups=tuple(appearance_group(asset) for asset in assets),
        boxes_px=boxes,
        visible=visible[:, seen],
        share=share[:, seen].astype(np.float16),
        patches=majority_per_patch(numbers[(instance + 1).long()]).cpu().numpy(),
        query_pictures=_query_pictures(library, assets, rng, device),
        present=tuple(sorted({appearance_group(placed.asset) for placed in plan.room.placed})),
        others_px=others[:, np.isfinite(others).all(-1).any(0)],
    )


def annotated_photo_walk(
    walks: PhotoWalks, rng: np.random.Generator, *, groups: dict[str, str], present: bool = True
) -> AnnotatedWalk:
    """A photo walk with one annotated object and its query picture. `groups`: see appearance_groups."""
    walk = walks.draw(rng, present=present)
    height, width = walk.frames.shape[1:3]
    boxes = walk.boxes_px.cpu().numpy()[:, None]
    visible = walk.visible.cpu().numpy()[:, None]
    group = groups[walk.thing]
    quality = int(rng.integers(*JPEG_QUALITY))
    return AnnotatedWalk(
        source="photo",
        width=width,
        height=height,
        jpegs=tuple(_jpeg(image, quality) for image in walk.frames.cpu().numpy()),
        names=(walk.thing + walk.region,),
        groups=(group,),
        boxes_px=boxes,
        visible=visible,
        share=visible.astype(np.float16),
        patches=_inner_patches(walk, width, height),
        query_pictures=(QueryPicture(thing=0, picture=walk.query.cpu().numpy(), box=walk.query_box),),
        present=tuple(sorted({groups[name] for name in walk.scene})),
    )


def appearance_group(asset: Asset) -> str:
    return asset.name if asset.twin is None else f"twin {asset.twin}"


def appearance_groups(library: AssetLibrary) -> dict[str, str]:
    """Name -> appearance group, for all assets and for all pictures that objects are cut out of."""
    photographed = {picture.name: Item.of(picture).twins for picture in library.pictures}
    return photographed | {asset.name: appearance_group(asset) for asset in library.assets}


def unique_instances(room: Room) -> list[tuple[int, Asset]]:
    """Instances that can be queried without ambiguity: the only ones of their appearance group in the
    room."""
    counts = Counter(appearance_group(placed.asset) for placed in room.placed)
    return [
        (placed.instance, placed.asset)
        for placed in room.placed
        if placed.asset.kind in KINDS and counts[appearance_group(placed.asset)] == 1
    ]


def majority_per_patch(numbers: Tensor) -> Tensor:
    """The label that covers more than half of each patch, or -1: int16 [T, H, W] -> [T, H / 14, W / 14]."""
    frames, height, width = numbers.shape
    rows, columns = height // PATCH_PX, width // PATCH_PX
    cells = numbers.view(frames, rows, PATCH_PX, columns, PATCH_PX).transpose(2, 3).flatten(3)
    middle = cells.median(3).values  # a majority label is also the median
    count = (cells == middle[..., None]).sum(3)
    return middle.where(count > PATCH_PX**2 // 2, -1)


def _query_pictures(
    library: AssetLibrary, assets: Sequence[Asset], rng: np.random.Generator, device: torch.device | str
) -> tuple[QueryPicture, ...]:
    """Query pictures of some small objects; none if no room has space for them all."""
    able = [k for k, asset in enumerate(assets) if asset.kind == "object" and max(asset.size_m) < 0.4]
    chosen = [int(k) for k in rng.permutation(able)[:QUERY_PICTURES]]
    if not chosen:
        return ()
    try:
        pictures = query_pictures(library, [assets[k] for k in chosen], rng, device=device)
    except SynthError:
        return ()
    return tuple(QueryPicture(thing=k, picture=p, box=box) for k, (p, box) in zip(chosen, pictures))


def _inner_patches(walk: PhotoWalk, width: int, height: int) -> np.ndarray:
    rows, columns = height // PATCH_PX, width // PATCH_PX
    patches = np.full((len(walk.frames), rows, columns), -1, np.int16)
    y, x = (np.mgrid[:rows, :columns] + 0.5) * PATCH_PX
    for number, box in enumerate(walk.boxes_px.cpu().numpy()):
        if np.isfinite(box).all():
            x1, y1, x2, y2 = Box(*map(float, box)).expanded(INNER).xyxy
            patches[number][(x > x1) & (x < x2) & (y > y1) & (y < y2)] = 0
    return patches


def _pixels(jpeg: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(jpeg), formats=("JPEG",)))


def _jpeg(image: np.ndarray, quality: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _files(arrays: dict[str, np.ndarray], name: str) -> list[bytes]:
    data, ends = arrays[f"{name}_bytes"].tobytes(), arrays[f"{name}_ends"]
    return [data[start:end] for start, end in zip([0, *ends[:-1]], ends)]

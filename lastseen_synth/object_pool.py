"""Objects for photo walks: meshes and cut-outs from photographs, prepared as props for one scene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

import numpy as np

from lastseen.errors import SynthError
from lastseen_synth.assets import Asset, AssetLibrary, Picture, Support
from lastseen_synth.backdrop import Backdrop
from lastseen_synth.cutouts import Cutout
from lastseen_synth.meshes import Material, Mesh
from lastseen_synth.shadow import Lights
from lastseen_synth.texture import picture_texture

CUTOUT_KINDS = ("grocery", "caltech101", "generated")
CARD_SIDES_M = (0.08, 0.35)
CARD_TURN_RAD = 0.75  # maximum viewing angle of a cut-out, which is a flat card
OTHER_SIDE_RAD = 1.75  # of one mesh turned between query and video: the views overlap


@dataclass(frozen=True, kw_only=True)
class Item:
    """A mesh, or a photograph to cut an object out of.

    | family | group of items that look similar                              |
    | twins  | group of items that may be indistinguishable: one per scene   |
    """

    name: str
    family: str
    twins: str
    source: Asset | Picture

    @classmethod
    def of(cls, source: Asset | Picture) -> Item:
        if isinstance(source, Asset):
            twins = f"object {source.name}" if source.twin is None else f"twins {source.twin}"
            return cls(name=source.name, family=source.family, twins=twins, source=source)
        # Folders name what the photographs show; for groceries that is a product, whose pictures are twins.
        folder = PurePosixPath(source.name).parent
        if source.kind == "grocery":
            return cls(
                name=source.name, family=folder.parent.name, twins=f"product {folder.name}", source=source
            )
        family = folder.name or source.name
        return cls(name=source.name, family=family, twins=f"photograph {source.name}", source=source)


@dataclass(frozen=True, kw_only=True, eq=False)
class Prop:
    """An item prepared for one scene; `spin_rad` is its rotation relative to facing the viewer."""

    item: Item
    mesh: Mesh
    materials: tuple[Material, ...]
    spin_rad: float
    cutout: Cutout | None

    @property
    def low_m(self) -> np.ndarray:
        return self.mesh.positions_m.amin(0).double().numpy()

    @property
    def size_m(self) -> np.ndarray:
        return (self.mesh.positions_m.amax(0) - self.mesh.positions_m.amin(0)).double().numpy()


@dataclass(frozen=True, kw_only=True)
class Brightness:
    """Linear: `light` [3] that falls on objects of a scene, and the `mean` of its backdrop."""

    light: np.ndarray
    mean: float

    @classmethod
    def of(cls, backdrop: Backdrop, lights: Lights) -> Brightness:
        light = (lights.sky_colour + lights.ground_colour) / 2
        if lights.sun_colour is not None:
            light = light + 0.35 * lights.sun_colour
        return cls(light=light.double().cpu().numpy(), mean=float(backdrop.sphere.mean()))

    def gain(self, picture: np.ndarray) -> np.ndarray:
        """[3]: tint that matches the exposure of a cut-out from this picture to the scene."""
        own = float(((picture[::4, ::4] / 255.0) ** 2.2).mean())
        level = float(np.clip((self.mean / max(own, 0.02)) ** 0.6, 0.45, 1.4))
        # The square root keeps half of the scene's tint: the photograph has been lit once already.
        return level / (self.light.mean() * self.light).clip(4e-4) ** 0.5


class ObjectPool:
    """All items of a library that can be placed in a photo walk, and all backdrops for it."""

    def __init__(self, library: AssetLibrary) -> None:
        self.library = library
        self.shapes = [Item.of(a) for kind in ("object", "small") for a in library.kind(kind)]
        self.cutouts = [Item.of(p) for p in library.pictures if p.kind in CUTOUT_KINDS]
        self.panoramas = [p for p in library.pictures if p.kind == "pano"]
        self.flats = [Item.of(p) for p in library.pictures if p.kind != "pano"]
        self.stands = [(a, top) for a in library.kind("furniture") if (top := tabletop(a))]
        self.surfaces = [s for s in library.surfaces if s.use in ("wood", "counter", "fabric", "metal")]
        self.askable = [i for i in self.shapes if isinstance(i.source, Asset) and i.source.kind == "object"]
        if not (self.panoramas or self.flats):
            raise SynthError("walks over photographs need pictures: the library has none in this split")
        if not (self.askable or self.cutouts):
            raise SynthError("nothing to look for: the library has neither objects nor photographs of things")
        if len({item.twins for item in self.shapes + self.cutouts}) < 2:
            raise SynthError("all things of the library look the same: add others to tell them from")
        # The last few hundred: a small library's pictures are used again and again.
        self.image = lru_cache(maxsize=256)(Picture.image)
        self._relatives: dict[str, list[Item]] = {}
        for item in self.shapes + self.cutouts:
            self._relatives.setdefault(item.family, []).append(item)

    def thing(self, rng: np.random.Generator, shape_share: float) -> Item:
        shape = bool(self.askable) and (not self.cutouts or rng.random() < shape_share)
        return _one_of(self.askable if shape else self.cutouts, rng)

    def lookalike(self, thing: Item, rng: np.random.Generator) -> Item | None:
        """An item of the same family that is no twin; None if there is none."""
        relatives = [i for i in self._relatives[thing.family] if i.twins != thing.twins]
        return _one_of(relatives, rng) if relatives else None

    def other(self, thing: Item, rng: np.random.Generator, shape_share: float, *, largest_m: float) -> Item:
        """A random item that is no twin of the thing; of at most this size, if one is found in a few
        tries."""
        fallback = None
        for _ in range(8):
            shape = bool(self.shapes) and (not self.cutouts or rng.random() < shape_share)
            item = _one_of(self.shapes if shape else self.cutouts, rng)
            if item.twins == thing.twins:
                continue
            if isinstance(item.source, Picture) or max(item.source.size_m) <= largest_m:
                return item
            fallback = item
        return fallback or next(i for i in self.shapes + self.cutouts if i.twins != thing.twins)

    def prop(
        self,
        item: Item,
        bright: Brightness,
        rng: np.random.Generator,
        *,
        spin_rad: float | None = None,
        cutout: Cutout | None = None,
    ) -> Prop:
        """Prepares an item; rotation and cut-out are random where not given."""
        if isinstance(item.source, Asset):
            mesh, materials = item.source.load()
            spin = float(rng.uniform(-np.pi, np.pi)) if spin_rad is None else spin_rad
            return Prop(item=item, mesh=mesh, materials=materials, spin_rad=spin, cutout=None)
        cutout = cutout or Cutout.draw(self.image(item.source), rng)
        side_m = float(np.exp(rng.uniform(*np.log(CARD_SIDES_M))))
        red, green, blue = (
            bright.gain(cutout.picture) * rng.uniform(0.7, 1.3) * rng.uniform(0.93, 1.07, 3)
        ).tolist()
        material = Material(texture=picture_texture(cutout.picture, wrap=False), tint=(red, green, blue))
        return Prop(
            item=item,
            mesh=cutout.card(side_m, bend=float(rng.uniform(0, 0.3))),
            materials=(material,),
            spin_rad=float(rng.uniform(-CARD_TURN_RAD, CARD_TURN_RAD)) if spin_rad is None else spin_rad,
            cutout=cutout,
        )

    def again(self, prop: Prop, bright: Brightness, rng: np.random.Generator) -> Prop:
        """The same item for another scene: rotated, or cut out along another outline."""
        if prop.cutout is None:
            turn = float(np.clip(rng.normal(0, 0.8), -OTHER_SIDE_RAD, OTHER_SIDE_RAD))
            return self.prop(prop.item, bright, rng, spin_rad=prop.spin_rad + turn)
        return self.prop(prop.item, bright, rng, cutout=prop.cutout.varied(rng))

    def flat_pictures(self, thing: Item, count: int, rng: np.random.Generator) -> list[Picture]:
        """Photographs for a collage that show neither the thing nor its twins."""
        order = rng.permutation(len(self.flats))[: count + 40]
        chosen = [self.flats[i] for i in order if self.flats[i].twins != thing.twins]
        return [i.source for i in chosen[:count] if isinstance(i.source, Picture)]


def _one_of(items: Sequence[Item], rng: np.random.Generator) -> Item:
    return items[int(rng.integers(len(items)))]


def tabletop(asset: Asset) -> Support | None:
    """Its largest support at the height of tables and counters, if there is one."""
    tops = [s for s in asset.supports if 0.3 <= s.z_m <= 1.15 and s.clearance_m > 0.5]
    tops = [s for s in tops if s.x1_m - s.x0_m > 0.3 and s.y1_m - s.y0_m > 0.2]
    return max(tops, key=lambda s: (s.x1_m - s.x0_m) * (s.y1_m - s.y0_m), default=None)

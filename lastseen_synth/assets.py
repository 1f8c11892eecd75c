"""Assets: meshes, tiling surfaces and pictures, each with its size, split and credit.

An AssetLibrary lists them without reading a mesh; `load`, `texture` and `image` read or draw one on first use
and keep it. Lengths are metres, z is up, and furniture faces -y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from lastseen_synth.meshes import Material, Mesh
from lastseen_synth.texture import Texture, colour_texture

Split = Literal["train", "val"]
Point = tuple[float, float, float]
Loaded = tuple[Mesh, tuple[Material, ...]]
LICENCE_TEXTS = {
    "CC-BY-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "CC-BY-3.0": "https://creativecommons.org/licenses/by/3.0/",
    "CC-BY-3.0-US": "https://creativecommons.org/licenses/by/3.0/us/",
    "CC0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
}
# Linear light, from pale to dark.
SKIN_TONES = (
    (0.78, 0.52, 0.40),
    (0.66, 0.40, 0.28),
    (0.48, 0.27, 0.17),
    (0.28, 0.14, 0.08),
    (0.13, 0.06, 0.04),
)


@dataclass(frozen=True, kw_only=True)
class Credit:
    """Author and licence. `source` names the collection, `title` the item in it."""

    title: str
    author: str
    licence: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Support:
    """A flat rectangle to put objects on, in its asset's coordinates, with `clearance_m` of free height."""

    z_m: float
    x0_m: float
    y0_m: float
    x1_m: float
    y1_m: float
    clearance_m: float = float("inf")


@dataclass(frozen=True, kw_only=True, eq=False)
class Asset:
    """A mesh with its materials, loaded on first use.

    | kind       | object (may be queried), small, furniture, person, animal, opening, hand              |
    | type       | what it is: table, shelf, carton, ...; of a hand, its pose                             |
    | family     | assets that look similar; a family is wholly in one split                             |
    | twin       | assets of one twin group may be indistinguishable: never two of them in one room       |
    | lo_m, hi_m | bounding box; the origin is its middle in x and y, its lowest point (a hand's: its wrist) |
    | grip_m     | of a hand: where the centre of a held object goes                                     |
    """

    name: str
    kind: str
    type: str
    split: Split
    family: str
    lo_m: Point
    hi_m: Point
    credit: Credit
    loader: Callable[[], Loaded] = field(repr=False)
    supports: tuple[Support, ...] = ()
    twin: int | None = None
    grip_m: Point | None = None
    is_shoe: bool = False

    @property
    def size_m(self) -> Point:
        (x0, y0, z0), (x1, y1, z1) = self.lo_m, self.hi_m
        return x1 - x0, y1 - y0, z1 - z0

    def load(self) -> Loaded:
        """Mesh and materials on the CPU; the same objects every time, so that scenes share them."""
        return self._loaded

    @cached_property
    def _loaded(self) -> Loaded:
        return self.loader()

    def recoloured(self, materials: Sequence[Material]) -> Asset:
        """The same shape in other materials (as many as it has)."""

        def load() -> Loaded:
            mesh, own = self.load()
            if len(materials) != len(own):
                raise ValueError(f"{self.name} has {len(own)} materials, got {len(materials)}")
            return mesh, tuple(materials)

        return replace(self, loader=load)


@dataclass(frozen=True, kw_only=True, eq=False)
class Surface:
    """A tiling texture that repeats every `metres`. use: wall, floor, wood, fabric, counter or metal."""

    name: str
    use: str
    metres: float
    split: Split
    credit: Credit
    loader: Callable[[], Texture] = field(repr=False)

    def texture(self) -> Texture:
        return self._texture

    @cached_property
    def _texture(self) -> Texture:
        return self.loader()


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A photograph or generated picture: poster, cut-out or panorama. kind: pano, grocery, caltech101,
    wallpaper, generated."""

    name: str
    kind: str
    split: Split
    width: int
    height: int
    credit: Credit
    loader: Callable[[], np.ndarray] = field(repr=False)

    def image(self) -> np.ndarray:
        """uint8 [height, width, 3]; decoded anew each time, for there are thousands."""
        return self.loader()


@dataclass(frozen=True, kw_only=True, eq=False)
class AssetLibrary:
    assets: tuple[Asset, ...] = ()
    surfaces: tuple[Surface, ...] = ()
    pictures: tuple[Picture, ...] = ()

    def __add__(self, other: AssetLibrary) -> AssetLibrary:
        return AssetLibrary(
            assets=self.assets + other.assets,
            surfaces=self.surfaces + other.surfaces,
            pictures=self.pictures + other.pictures,
        )

    def split(self, name: Split) -> AssetLibrary:
        """The assets of one split. Hands are in both: they are never queried."""
        return AssetLibrary(
            assets=tuple(a for a in self.assets if a.split == name or a.kind == "hand"),
            surfaces=tuple(s for s in self.surfaces if s.split == name),
            pictures=tuple(p for p in self.pictures if p.split == name),
        )

    def kind(self, name: str) -> tuple[Asset, ...]:
        return tuple(a for a in self.assets if a.kind == name)


def with_skin_and_sleeve(hand: Asset, rng: np.random.Generator) -> Asset:
    """The hand with a random skin tone, its forearm bare or in a sleeve of random colour."""
    paler, darker = np.asarray(SKIN_TONES)[(first := int(rng.integers(len(SKIN_TONES) - 1))) : first + 2]
    skin = paler + (darker - paler) * rng.random() + rng.normal(0, 0.01, 3)
    sleeve = skin if rng.random() < 0.4 else rng.uniform(0.02, 0.7) * rng.uniform(0.4, 1.0, 3)
    white = colour_texture((255, 255, 255))
    return hand.recoloured(
        [
            Material(texture=white, tint=_colour(skin), specular=0.04, shininess=12.0),
            Material(texture=white, tint=_colour(sleeve)),
        ]
    )


def _colour(linear: np.ndarray) -> Point:
    red, green, blue = np.clip(linear, 0.01, 1.0).tolist()
    return red, green, blue


def attribution(items: Iterable[Asset | Surface | Picture]) -> str:
    """Credits as a Markdown list, each item once: by source and licence, then by author."""
    groups: dict[tuple[str, str], dict[str, set[str]]] = {}
    for credit in {item.credit for item in items}:
        authors = groups.setdefault((credit.source, credit.licence), {})
        authors.setdefault(credit.author, set()).add(credit.title)
    lines = []
    for (source, licence), authors in sorted(groups.items()):
        text = LICENCE_TEXTS.get(licence)
        lines.append(f"- {source} ({f'[{licence}]({text})' if text else licence})")
        lines += [f"  - {author}: {', '.join(sorted(titles))}" for author, titles in sorted(authors.items())]
    return "\n".join(lines) + "\n" if lines else ""

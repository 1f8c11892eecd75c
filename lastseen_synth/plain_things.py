"""Plain things for training walks: objects in one colour, and everyday objects that have little texture.

    library = with_plain_things(with_everyday_things(library), rng, share=0.35)

Scanned objects are mostly printed packaging and toys, but what people look for is often black, white or
metal, with only its shape to recognise it by. A plain variant of an asset keeps its mesh. Its colours are a
function of the names of asset and family, so that walks of one library share variants, and with them views.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from lastseen_synth.assets import Asset, AssetLibrary, Loaded
from lastseen_synth.meshes import Material
from lastseen_synth.procedural import everyday_objects
from lastseen_synth.procedural.everyday import EVERYDAY
from lastseen_synth.texture import Texture, picture_texture

Colour = tuple[int, int, int]
Shine = tuple[float, float]  # strength and exponent of the highlight
MATT, SATIN, GLOSSY, METAL = (0.02, 12.0), (0.08, 20.0), (0.2, 60.0), (0.4, 40.0)
# Share of all draws, sRGB colours, possible finishes.
PALETTE: tuple[tuple[float, tuple[Colour, ...], tuple[Shine, ...]], ...] = (
    (0.20, ((24, 24, 26),), (MATT, SATIN, GLOSSY)),
    (0.18, ((236, 236, 232), (228, 214, 186)), (MATT, SATIN, GLOSSY)),
    (0.15, ((70, 72, 76), (128, 130, 132), (188, 190, 190)), (MATT, SATIN)),
    (0.15, ((88, 90, 96), (150, 152, 156), (176, 146, 88)), (METAL,)),
    (0.10, ((92, 58, 34), (140, 96, 56), (196, 156, 108)), (MATT, SATIN)),
    (
        0.22,
        (
            (186, 32, 36),
            (224, 112, 32),
            (236, 190, 48),
            (44, 120, 60),
            (130, 180, 60),
            (24, 128, 130),
            (34, 76, 164),
            (96, 160, 214),
            (26, 34, 74),
            (104, 56, 136),
            (226, 120, 156),
            (104, 24, 36),
        ),
        (MATT, SATIN, GLOSSY),
    ),
)
VARIANTS = 2  # of an asset
FAMILY_COLOURS = 6  # of which each asset of a family has VARIANTS
APART = 70.0  # least distance in sRGB of two colours of a family
ALIKE, ALIKE_SIZE = 45.0, 1.2  # colour distance and ratio of sides below which two families may be confused
NOISE, TEXTURE_PX = 0.03, 32
SMALL_M = 0.4  # largest side of a small asset that is made an object


@lru_cache(maxsize=4)
def with_everyday_things(library: AssetLibrary) -> AssetLibrary:
    """Adds procedural tableware, gadgets, cables, tools and paper. Small household items become objects,
    which are placed more often, fixated, and photographed for queries."""
    splits = {a.split for a in library.kind("object")}
    have = {a.name for a in library.assets}
    more = tuple(a for a in everyday_objects() if a.split in splits and a.name not in have)
    assets = tuple(replace(a, kind="object") if _is_household_item(a) else a for a in library.assets)
    return replace(library, assets=assets + more)


def with_plain_things(library: AssetLibrary, rng: np.random.Generator, share: float) -> AssetLibrary:
    """The library with randomly chosen objects replaced by their plain variants, which make up `share` of the
    objects (but for EVERYDAY ones) in the result. At 0 it is the library itself, and nothing is drawn.

    No two variants of different families have about the same colour and size.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share of plain things must be in [0, 1], got {share}")
    if share == 0:
        return library
    objects = [a for a in library.assets if a.kind == "object" and a.type not in EVERYDAY]
    variants: dict[str, list[Asset]] = {}
    looks: list[np.ndarray] = []
    families: list[str] = []
    for k in rng.permutation(len(objects)):
        # Two variants of an object stand for one.
        if len(families) >= share * (len(objects) - len(variants) + len(families)):
            break
        fresh = [v for v in plain_variants(objects[k]) if not _confused(v, looks, families)]
        if fresh:
            variants[objects[k].name] = fresh
            looks += [_looks(v) for v in fresh]
            families += [v.family for v in fresh]
    return replace(library, assets=tuple(v for a in library.assets for v in variants.get(a.name, [a])))


@lru_cache(maxsize=8192)
def plain_variants(asset: Asset) -> tuple[Asset, ...]:
    """The asset in two colours; assets of one family in the same colour are twins, as they may have the same
    shape."""
    colours = _family_colours(asset.family)
    chosen = _rng("asset", asset.name).choice(len(colours), VARIANTS, replace=False)
    variants = []
    for colour, shine in (colours[k] for k in sorted(chosen.tolist())):
        code = "".join(f"{level:02x}" for level in colour)
        digest = hashlib.sha256(f"{asset.family}@plain-{code}".encode()).digest()
        variants.append(
            replace(
                asset,
                name=f"{asset.name}@plain-{code}",
                twin=int.from_bytes(digest[:7], "big"),  # far above the numbers that packs use
                loader=partial(_load, asset, colour, shine),
            )
        )
    return tuple(variants)


def plain_colour(asset: Asset) -> Colour | None:
    """sRGB, from the name of a plain variant; None for all other assets."""
    _, found, code = asset.name.rpartition("@plain-")
    return (int(code[:2], 16), int(code[2:4], 16), int(code[4:], 16)) if found else None


def _load(asset: Asset, colour: Colour, shine: Shine) -> Loaded:
    mesh, materials = asset.load()
    plain = _material(colour, shine)
    return mesh, tuple(m if m.emission > 0 else plain for m in materials)


@lru_cache(maxsize=4096)
def _material(colour: Colour, shine: Shine) -> Material:
    return Material(texture=_texture(colour), specular=shine[0], shininess=shine[1])


def _texture(colour: Colour) -> Texture:
    """The colour with faint soft noise, of dust and wear."""
    noise = _rng("noise", str(colour)).uniform(-1, 1, (TEXTURE_PX, TEXTURE_PX, 1))
    noise = (noise + np.roll(noise, 1, 0) + np.roll(noise, 1, 1) + np.roll(noise, (1, 1), (0, 1))) / 4
    pixels = np.array(colour) * (1 + NOISE * noise)
    return picture_texture(pixels.round().clip(0, 255).astype(np.uint8), wrap=True)


@lru_cache(maxsize=4096)
def _family_colours(family: str) -> tuple[tuple[Colour, Shine], ...]:
    rng = _rng("family", family)
    found: list[tuple[Colour, Shine]] = []
    shares = [share for share, _, _ in PALETTE]
    while len(found) < FAMILY_COLOURS:
        _, colours, finishes = PALETTE[int(rng.choice(len(PALETTE), p=shares))]
        base = colours[int(rng.integers(len(colours)))]
        red, green, blue = (np.array(base) + rng.integers(-8, 9, 3)).clip(8, 244).tolist()
        shine = finishes[int(rng.integers(len(finishes)))]
        if all(np.linalg.norm(np.subtract(other, (red, green, blue))) >= APART for other, _ in found):
            found.append(((red, green, blue), shine))
    return tuple(found)


def _confused(variant: Asset, looks: list[np.ndarray], families: list[str]) -> bool:
    if not looks:
        return False
    off = np.abs(np.stack(looks) - _looks(variant))
    alike = (np.linalg.norm(off[:, :3], axis=1) < ALIKE) & (off[:, 3:].max(1) < np.log(ALIKE_SIZE))
    return any(families[k] != variant.family for k in np.flatnonzero(alike))


def _looks(variant: Asset) -> np.ndarray:
    """[6]: colour and logarithms of the sides, shortest first."""
    return np.array([*(plain_colour(variant) or ()), *np.log(sorted(variant.size_m))])


def _is_household_item(asset: Asset) -> bool:
    return asset.kind == "small" and asset.type == "other" and max(asset.size_m) < SMALL_M


def _rng(*words: str) -> np.random.Generator:
    return np.random.default_rng([*hashlib.sha256(" ".join(words).encode()).digest()[:8]])

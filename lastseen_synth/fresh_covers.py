"""Things that never come back: objects with covers drawn for one seed.

    library = with_fresh_covers(library, rng, share=0.5, seed=7)

A few hundred objects are learnt by heart; their shapes with a picture that no other seed draws are not.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from lastseen_synth.assets import Asset, AssetLibrary, Loaded
from lastseen_synth.meshes import Material
from lastseen_synth.plain_things import plain_colour
from lastseen_synth.procedural.everyday import EVERYDAY
from lastseen_synth.procedural.pictures import ART, art
from lastseen_synth.texture import Texture, picture_texture

COVER_PX = 192


def with_fresh_covers(
    library: AssetLibrary, rng: np.random.Generator, share: float, *, seed: int
) -> AssetLibrary:
    """The library with `share` of its printed objects in covers of this seed. Everyday and plain things stay
    as they are: their colour and shape are what they are known by."""
    if not 0 <= share <= 1:
        raise ValueError(f"the share of fresh covers must be in [0, 1], got {share}")
    assets = tuple(
        fresh_variant(asset, seed) if _is_printed(asset) and rng.random() < share else asset
        for asset in library.assets
    )
    return replace(library, assets=assets)


@lru_cache(maxsize=8192)
def fresh_variant(asset: Asset, seed: int) -> Asset:
    """The same shape in a cover of its own, which is like no other: so it has no twins."""
    return replace(asset, name=f"{asset.name}@cover-{seed}", twin=None, loader=partial(_load, asset, seed))


def _is_printed(asset: Asset) -> bool:
    return asset.kind == "object" and asset.type not in EVERYDAY and plain_colour(asset) is None


def _load(asset: Asset, seed: int) -> Loaded:
    mesh, materials = asset.load()
    digest = hashlib.sha256(asset.name.encode()).digest()[:8]
    rng = np.random.default_rng([seed, *digest])
    drawn = art(rng, COVER_PX, COVER_PX, style=int(rng.integers(len(ART))))
    texture = picture_texture(drawn, wrap=True)
    return mesh, tuple(_covered(m, texture) for m in materials)


def _covered(material: Material, texture: Texture) -> Material:
    return material if material.emission > 0 else replace(material, texture=texture, tint=(1.0, 1.0, 1.0))

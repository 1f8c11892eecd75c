"""Opening an asset library: packs, scans, or procedural assets."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from lastseen.errors import SynthError
from lastseen_synth.assets import AssetLibrary, Split
from lastseen_synth.packs import read_packs
from lastseen_synth.procedural import procedural_library
from lastseen_synth.scans import read_scans


def open_library(split: str, packs: Path | None = None, scans: Path | None = None) -> AssetLibrary:
    """One split of the packs and scans in these folders or, without either, of the procedural assets."""
    return _whole_library(packs, scans).split(checked_split(split))


def checked_split(name: str) -> Split:
    for split in get_args(Split):
        if name == split:
            return split
    raise SynthError(f"there is no split {name!r}: choose train or val")


def _whole_library(packs: Path | None, scans: Path | None) -> AssetLibrary:
    if packs is None and scans is None:
        return procedural_library()
    library = AssetLibrary()
    if packs is not None:
        library = library + read_packs(packs)
    if scans is not None:
        library = library + read_scans(scans)
    # Packs may hold objects only: other kinds are then procedural.
    drawn = procedural_library()
    have = {asset.kind for asset in library.assets}
    missing = tuple(a for a in drawn.assets if a.kind not in have)
    return AssetLibrary(
        assets=library.assets + missing,
        surfaces=library.surfaces or drawn.surfaces,
        pictures=library.pictures or drawn.pictures,
    )

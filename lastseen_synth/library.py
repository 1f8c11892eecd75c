"""Which assets to make scenes of."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from lastseen.errors import SynthError
from lastseen_synth.assets import Library, Split
from lastseen_synth.procedural import procedural_library


def open_library(split: str, packs: Path | None = None, scans: Path | None = None) -> Library:
    """One split's part of the packs, of a user's scans, or, without either, of what is drawn at run time."""
    return _whole_library(packs, scans).split(checked_split(split))


def checked_split(name: str) -> Split:
    for split in get_args(Split):
        if name == split:
            return split
    raise SynthError(f"there is no split {name!r}: choose train or val")


def _whole_library(packs: Path | None, scans: Path | None) -> Library:
    if packs is None and scans is None:
        return procedural_library()
    library = Library()
    if packs is not None:
        library = library + Library.from_packs(packs)
    if scans is not None:
        library = library + Library.from_scans(scans)
    # Packs may hold objects alone: rooms are then furnished with what is drawn.
    drawn = procedural_library()
    have = {asset.kind for asset in library.assets}
    missing = tuple(a for a in drawn.assets if a.kind not in have)
    return Library(
        assets=library.assets + missing,
        surfaces=library.surfaces or drawn.surfaces,
        pictures=library.pictures or drawn.pictures,
    )

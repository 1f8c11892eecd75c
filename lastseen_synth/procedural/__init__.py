"""A procedural asset library that needs no files: for tests, previews and the demo.

Nothing is built until it is loaded; every item is a blueprint of known size. The same seed gives the same
assets, whatever else is loaded and in which order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from lastseen_synth.assets import Asset, AssetLibrary, Credit, Picture, Split, Surface
from lastseen_synth.procedural import gadgets, household, packaged_goods
from lastseen_synth.procedural.accessories import FITTINGS, OPENINGS, SMALL
from lastseen_synth.procedural.blueprint import Blueprint
from lastseen_synth.procedural.everyday import EVERYDAY
from lastseen_synth.procedural.furniture_parts import Makers, Rng
from lastseen_synth.procedural.packaging import Brand
from lastseen_synth.procedural.patterns import SURFACES, Drawing
from lastseen_synth.procedural.people import POSES, hand, load_hand, person
from lastseen_synth.procedural.pictures import ART, art
from lastseen_synth.procedural.seats import SEATS
from lastseen_synth.procedural.storage import STORAGE
from lastseen_synth.procedural.tables import TABLES
from lastseen_synth.texture import Texture, picture_texture

VARIANTS = 4  # look-alikes in a family
VAL_SHARE = 0.22
PEOPLE, PICTURES = 8, 35
Family = Callable[[Rng, Sequence[Brand]], list[Blueprint]]
# type -> (function that makes a family, number of families)
OBJECTS: dict[str, tuple[Family, int]] = {
    "carton": (partial(packaged_goods.cartons, small=False), 5),
    "packet": (partial(packaged_goods.cartons, small=True), 4),
    "milk": (packaged_goods.gables, 2),
    "can": (packaged_goods.cans, 4),
    "tin": (packaged_goods.tins, 3),
    "bottle": (partial(packaged_goods.bottles, kind="bottle"), 3),
    "jar": (partial(packaged_goods.bottles, kind="jar"), 3),
    "soap": (partial(packaged_goods.bottles, kind="pump"), 2),
    "tube": (packaged_goods.tubes, 2),
    "book": (packaged_goods.books, 5),
    "mug": (household.mugs, 4),
    "bowl": (household.bowls, 2),
    "vase": (household.vases, 2),
    "ball": (household.balls, 4),
    "clock": (household.clocks, 2),
    "toy": (household.toys, 4),
    "remote": (gadgets.remotes, 3),
    "phone": (gadgets.phones, 2),
    "torch": (gadgets.torches, 2),
    "camera": (gadgets.cameras, 2),
    "car": (gadgets.cars, 3),
    "cube": (gadgets.cubes, 3),
}
# Of OBJECTS, those that are useful beside scans, which are mostly packaging and toys.
UNPRINTED = ("mug", "bowl", "vase", "clock", "remote", "phone", "torch", "camera")


def procedural_library(seed: int = 0) -> AssetLibrary:
    """Of every type, the families with the smallest SHA-256 (about one in five, at least one) are val."""
    furniture = TABLES | STORAGE | SEATS | FITTINGS
    people: Makers = {"person": ((person, PEOPLE),)}
    assets = [*_objects(seed), *_hands()]
    for kind, makers in (
        ("furniture", furniture),
        ("small", SMALL),
        ("opening", OPENINGS),
        ("person", people),
    ):
        assets += _pieces(seed, kind, makers)
    return AssetLibrary(
        assets=tuple(assets), surfaces=tuple(_surfaces(seed)), pictures=tuple(_pictures(seed))
    )


def everyday_objects(seed: int = 0) -> tuple[Asset, ...]:
    """Tableware, gadgets, cables, tools and paper. Those of `everyday` are in no other library; those
    of one type and colour are twins, for a spoon looks like any other.
    """
    assets = [asset for asset in _objects(seed) if asset.type in UNPRINTED]
    for type_, (family_of, count) in EVERYDAY.items():
        for family, split in _splits([f"{type_}-{seed}-{k}" for k in range(count)]).items():
            plans = family_of(_rng(seed, family))
            for k, plan in enumerate(plans):
                asset = _asset(f"{family}{'abcdefgh'[k]}", "object", type_, split, family, plan, seed)
                digest = hashlib.sha256(f"everyday {type_} {k}".encode()).digest()
                assets.append(replace(asset, twin=int.from_bytes(digest[:7], "big")))
    return tuple(sorted(assets, key=lambda asset: asset.name))


def _rng(seed: int, name: str) -> Rng:
    """An independent random stream for every name."""
    return np.random.default_rng([seed, *hashlib.sha256(name.encode()).digest()[:8]])


def _splits(families: Sequence[str]) -> dict[str, Split]:
    ordered = sorted(families, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    held_out = max(1, round(VAL_SHARE * len(ordered)))
    return {name: "val" if k < held_out else "train" for k, name in enumerate(ordered)}


def _asset(name: str, kind: str, type_: str, split: Split, family: str, plan: Blueprint, seed: int) -> Asset:
    wide, deep, high = plan.size_m
    return Asset(
        name=name,
        kind=kind,
        type=type_,
        split=split,
        family=family,
        lo_m=(-wide / 2, -deep / 2, 0.0),
        hi_m=(wide / 2, deep / 2, high),
        supports=plan.supports,
        credit=_credit(name, seed),
        loader=plan.load,
    )


def _credit(name: str, seed: int) -> Credit:
    source = f"drawn by lastseen_synth.procedural, seed {seed}"
    return Credit(title=name, author="the lastseen authors", licence="Apache-2.0", source=source)


def _objects(seed: int) -> list[Asset]:
    assets = []
    for type_, (family_of, count) in OBJECTS.items():
        families = [f"{type_}-{seed}-{k}" for k in range(count)]
        for family, split in _splits(families).items():
            rng = _rng(seed, family)
            plans = family_of(rng, Brand.line(rng, VARIANTS))
            assets += [
                _asset(f"{family}{'abcdefgh'[k]}", "object", type_, split, family, plan, seed)
                for k, plan in enumerate(plans)
            ]
    return sorted(assets, key=lambda asset: asset.name)


def _pieces(seed: int, kind: str, makers: Makers) -> list[Asset]:
    """Every piece is a family of its own; each maker has some in both splits."""
    assets = []
    for type_, group in makers.items():
        for maker, count in group:
            splits = _splits([f"{maker.__name__}-{seed}-{k}" for k in range(count)])
            for name in sorted(splits):
                assets.append(_asset(name, kind, type_, splits[name], name, maker(_rng(seed, name)), seed))
    return assets


def _hands() -> list[Asset]:
    assets = []
    for side in ("right", "left"):
        for pose in POSES:
            low, high, grip = hand(pose, left=side == "left")
            name = f"drawn_hand_{side}_{pose}"
            assets.append(
                Asset(
                    name=name,
                    kind="hand",
                    type=pose,
                    split="train",
                    family=name,
                    lo_m=low,
                    hi_m=high,
                    grip_m=grip,
                    credit=_credit(name, 0),
                    loader=partial(load_hand, pose, left=side == "left"),
                )
            )
    return assets


def _surfaces(seed: int) -> list[Surface]:
    surfaces = []
    for family, (use, metres, drawing, count) in SURFACES.items():
        splits = _splits([f"{family}-{seed}-{k}" for k in range(count)])
        surfaces += [
            Surface(
                name=name,
                use=use,
                metres=metres,
                split=splits[name],
                credit=_credit(name, seed),
                loader=partial(_surface, drawing, seed, name),
            )
            for name in sorted(splits)
        ]
    return surfaces


def _surface(drawing: Drawing, seed: int, name: str) -> Texture:
    return picture_texture(drawing(_rng(seed, name)), wrap=True)


def _pictures(seed: int) -> list[Picture]:
    pictures = []
    splits = _splits([f"picture-{seed}-{k:02d}" for k in range(PICTURES)])
    for k, name in enumerate(sorted(splits)):
        width, height = ((300, 400), (400, 300), (360, 360))[k % 3]
        pictures.append(
            Picture(
                name=name,
                kind="generated",
                split=splits[name],
                width=width,
                height=height,
                credit=_credit(name, seed),
                loader=partial(_picture, seed, name, width, height, k % len(ART)),
            )
        )
    return pictures


def _picture(seed: int, name: str, width: int, height: int, style: int) -> np.ndarray:
    return art(_rng(seed, name), width, height, style=style)

"""Procedural cables, tools, cutlery, tableware, paper and small electronics, nearly all in one colour.

One function makes a family: four sizes and colours of one shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from lastseen_synth.assets import Point
from lastseen_synth.procedural.blueprint import GLOSSY, SATIN, Blueprint, Built, plain
from lastseen_synth.procedural.patterns import Colour, rgb
from lastseen_synth.shapes import Part, box, disc, revolved, smooth_normals, tube

Rng = np.random.Generator
METAL = (0.4, 40.0)
STEEL: Colour = (150, 152, 156)
METALS: tuple[Colour, ...] = (STEEL, (44, 44, 48), (182, 146, 84), (222, 222, 220))


def _family(
    rng: Rng, size_m: Point, build: Callable[[Colour, int], Built], colours: list[Colour]
) -> list[Blueprint]:
    """Each in another colour and size; one number for what else differs between families."""
    seed = int(rng.integers(2**31))
    plans = []
    for colour in colours:
        wide, deep, high = (np.array(size_m) * rng.uniform(0.8, 1.2) * rng.uniform(0.93, 1.07, 3)).tolist()
        plans.append(Blueprint(size_m=(wide, deep, high), build=partial(build, colour, seed)))
    return plans


def _plastics(rng: Rng) -> list[Colour]:
    """Black, white, grey and one bright colour."""
    levels = (rng.uniform(0.06, 0.14), rng.uniform(0.88, 0.97), rng.uniform(0.3, 0.6))
    return [*(rgb(rng.random(), 0.04, level) for level in levels), rgb(rng.random(), 0.75, 0.75)]


def cables(rng: Rng) -> list[Blueprint]:
    """A loose coil with a plug at both ends."""
    side = rng.uniform(0.1, 0.2)
    return _family(rng, (side, side * 0.8, 0.02), _cable, _plastics(rng))


def _cable(colour: Colour, seed: int) -> Built:
    rng = np.random.default_rng(seed)
    turns, ends = rng.uniform(1.6, 3.4), rng.uniform(0.03, 0.08)
    t = np.linspace(0, turns, int(36 * turns))
    radius = 0.06 + 0.012 * np.sin(2.3 * t + rng.uniform(0, 6)) + 0.006 * t
    angle = 2 * np.pi * t
    height = 0.004 + 0.004 * (1 + np.sin(3.1 * t))
    path = np.stack([radius * np.cos(angle), 0.8 * radius * np.sin(angle), height], 1)
    parts = [tube(path, rng.uniform(0.0018, 0.0032), sides=6)]
    for end, before in ((path[0], path[2]), (path[-1], path[-3])):
        ahead = (end - before) / np.linalg.norm(end - before)
        ahead[2] = 0.0
        plug = end + ends * ahead
        parts.append(tube([end, (end + plug) / 2, plug], [0.003, 0.0065, 0.006], sides=8, flat=0.6))
        parts.append(tube([plug, plug + 0.012 * ahead], 0.004, sides=6, flat=0.5, material=1))
    return parts, [plain(colour, SATIN), plain(STEEL, METAL)]


def chargers(rng: Rng) -> list[Blueprint]:
    side = rng.uniform(0.04, 0.07)
    return _family(
        rng, (side, side * rng.uniform(1.1, 1.8), side * rng.uniform(0.5, 0.9)), _charger, _plastics(rng)
    )


def _charger(colour: Colour, seed: int) -> Built:
    """A rounded block with two pins."""
    apart = np.random.default_rng(seed).uniform(0.007, 0.011)
    parts = box((-0.025, -0.04, 0), (0.025, 0.02, 0.028), edge_m=0.005, steps=2)
    for x in (-apart, apart):
        parts.append(tube([(x, 0.02, 0.014), (x, 0.038, 0.014)], 0.0024, sides=8, material=1))
    return parts, [plain(colour, SATIN), plain(STEEL, METAL)]


def mice(rng: Rng) -> list[Blueprint]:
    """Computer mice."""
    return _family(rng, (0.06, 0.105, rng.uniform(0.028, 0.04)), _mouse, _plastics(rng))


def _mouse(colour: Colour, seed: int) -> Built:
    hump = np.random.default_rng(seed).uniform(1.6, 2.6)
    t = np.linspace(0, 1, 9)
    dome = revolved(
        [(float(np.cos(a) ** (1 / hump)), float(np.sin(a))) for a in t * np.pi / 2 * 0.999] + [(0.0, 1.0)]
    )
    wheel = tube([(-0.07, -0.55, 0.86), (0.07, -0.55, 0.86)], 0.09, sides=10, material=1)
    return [
        dome.stretched((1, 1.7, 1)),
        disc(1.0, 0, up=False).stretched((1, 1.7, 1)),
        wheel.stretched((1, 1, 0.9)),
    ], [
        plain(colour, SATIN),
        plain((40, 40, 42), SATIN),
    ]


def pens(rng: Rng) -> list[Blueprint]:
    """Pens and pencils, lying."""
    return _family(rng, (0.011, 0.145, 0.011), _pen, _plastics(rng))


def _pen(colour: Colour, seed: int) -> Built:
    cap = np.random.default_rng(seed).uniform(0.3, 0.6)
    parts = [
        tube([(0, 0, 0), (0, 0.012, 0), (0, 0.14 * cap, 0)], [0.0012, 0.0045, 0.005], sides=8, material=1)
    ]
    parts.append(tube([(0, 0.14 * cap, 0), (0, 0.145, 0)], [0.0055, 0.005], sides=8))
    return parts, [plain(colour, GLOSSY), plain(STEEL, METAL)]


def screwdrivers(rng: Rng) -> list[Blueprint]:
    return _family(rng, (0.03, rng.uniform(0.16, 0.26), 0.03), _screwdriver, _plastics(rng))


def _screwdriver(colour: Colour, seed: int) -> Built:
    grip = np.random.default_rng(seed).uniform(0.075, 0.11)
    y = np.array([0, 0.006, 0.3, 0.7, 0.92, 1.0]) * grip
    handle = tube([(0, a, 0) for a in y], [0.008, 0.013, 0.014, 0.0135, 0.009, 0.008], sides=8)
    return [
        handle,
        tube([(0, grip, 0), (0, 0.21, 0), (0, 0.22, 0)], [0.0032, 0.0032, 0.0045], sides=8, material=1),
    ], [
        plain(colour, GLOSSY),
        plain(STEEL, METAL),
    ]


def wrenches(rng: Rng) -> list[Blueprint]:
    return _family(rng, (rng.uniform(0.035, 0.05), rng.uniform(0.15, 0.25), 0.008), _wrench, list(METALS))


def _wrench(colour: Colour, seed: int) -> Built:
    """A flat bar, a ring at one end and a fork at the other."""
    rng = np.random.default_rng(seed)
    parts = box((-0.007, 0, 0), (0.007, 0.16, 0.006), edge_m=0.002)
    angle = np.linspace(0, 2 * np.pi, 20)
    parts.append(
        tube(
            np.stack([0.013 * np.cos(angle), -0.012 + 0.013 * np.sin(angle), 0 * angle + 0.003], 1),
            0.0045,
            sides=6,
        )
    )
    opening = np.linspace(-0.5, np.pi + 0.5, 14) + np.pi + rng.uniform(-0.3, 0.3)
    arc = np.stack([0.016 * np.cos(opening), 0.174 + 0.016 * np.sin(opening), 0 * opening + 0.003], 1)
    parts.append(tube(arc, 0.005, sides=6))
    return parts, [plain(colour, METAL)]


def spoons(rng: Rng) -> list[Blueprint]:
    return _family(rng, (rng.uniform(0.03, 0.045), rng.uniform(0.14, 0.2), 0.016), _spoon, list(METALS))


def _spoon(colour: Colour, seed: int) -> Built:
    long = np.random.default_rng(seed).uniform(0.11, 0.14)
    t = np.linspace(0, 1, 8)
    handle = tube(
        np.stack([0 * t, long * t, 0.008 + 0.006 * np.sin(2.6 * t)], 1), (0.003 + 0.003 * t).tolist(), sides=8
    ).stretched((1, 1, 0.5))
    bowl = [(float(np.sin(a)), -float(np.cos(a))) for a in np.linspace(0, np.pi / 2, 6)]
    hollow = [(0.9 * r, 0.85 * z) for r, z in reversed(bowl)]
    shell = revolved([*bowl, *hollow], segments=18).stretched((0.018, 0.027, 0.008))
    return [handle, shell.moved((0, -0.024, 0.009))], [plain(colour, METAL)]


def plates(rng: Rng) -> list[Blueprint]:
    side = rng.uniform(0.16, 0.26)
    return _family(rng, (side, side, rng.uniform(0.015, 0.035)), _plate, _plastics(rng))


def _plate(colour: Colour, seed: int) -> Built:
    rim = np.random.default_rng(seed).uniform(0.55, 0.75)
    profile = [(0.5, 0), (rim, 0.02), (1.0, 0.15), (1.0, 0.17), (rim, 0.045), (0.0, 0.04)]
    return [revolved(profile, segments=36), disc(0.5, 0, up=False, segments=36)], [plain(colour, GLOSSY)]


def tumblers(rng: Rng) -> list[Blueprint]:
    """Cups without handle or print."""
    side = rng.uniform(0.065, 0.085)
    return _family(rng, (side, side, rng.uniform(0.08, 0.15)), _tumbler, _plastics(rng))


def _tumbler(colour: Colour, seed: int) -> Built:
    foot = np.random.default_rng(seed).uniform(0.65, 0.98)
    profile = [(foot, 0), (1.0, 3.0), (0.94, 3.0), (foot - 0.06, 0.15), (0.0, 0.15)]
    return [revolved(profile), disc(foot, 0, up=False)], [plain(colour, GLOSSY)]


def papers(rng: Rng) -> list[Blueprint]:
    """A blank sheet or envelope, one corner lifted."""
    wide, deep = ((0.21, 0.297), (0.148, 0.21), (0.22, 0.11), (0.16, 0.115))[int(rng.integers(4))]
    tones = [rgb(0.11, tint, value) for tint, value in ((0.02, 0.97), (0.28, 0.86), (0.5, 0.55))]
    return _family(rng, (wide, deep, rng.uniform(0.006, 0.03)), _paper, [*tones, rgb(rng.random(), 0.6, 0.8)])


def _paper(colour: Colour, seed: int) -> Built:
    rng = np.random.default_rng(seed)
    side = 9
    y, x = (np.mgrid[:side, :side] / (side - 1)).reshape(2, -1)
    lift = np.clip(x * rng.uniform(0.3, 1.0) + y - rng.uniform(0.5, 0.9), 0, None) ** 2
    lift = 0.02 * lift / max(lift.max(), 1e-6) + 0.002 * np.sin(5 * x + rng.uniform(0, 6)) * y + 0.002
    corner = (np.arange(side - 1)[:, None] * side + np.arange(side - 1)).ravel()
    triangles = np.concatenate(
        [
            np.stack([corner, corner + 1, corner + side + 1], 1),
            np.stack([corner, corner + side + 1, corner + side], 1),
        ]
    )
    positions = np.stack([0.2 * x, 0.28 * y, lift], 1)
    normals = smooth_normals(positions, triangles)
    sheet = Part(positions=positions, normals=normals, uv=np.stack([x, y], 1), triangles=triangles)
    return [sheet], [plain(colour)]


def headphones(rng: Rng) -> list[Blueprint]:
    return _family(rng, (0.17, 0.19, 0.06), _headphone, _plastics(rng))


def _headphone(colour: Colour, seed: int) -> Built:
    """A bow and two cushions, lying."""
    thick = np.random.default_rng(seed).uniform(0.006, 0.011)
    angle = np.linspace(-0.15, np.pi + 0.15, 24)
    parts = [
        tube(np.stack([0.075 * np.cos(angle), 0.1 * np.sin(angle), 0 * angle + 0.03], 1), thick, sides=8)
    ]
    for x in (-0.072, 0.072):
        inward = -np.sign(x)
        cushion = [(x, -0.02, 0.03), (x + 0.006 * inward, -0.02, 0.03), (x + 0.024 * inward, -0.02, 0.03)]
        parts.append(tube(cushion, [0.026, 0.033, 0.031], sides=16, material=1))
    return parts, [plain(colour, SATIN), plain((34, 34, 36))]


EVERYDAY: dict[str, tuple[Callable[[Rng], list[Blueprint]], int]] = {
    "cable": (cables, 6),
    "charger": (chargers, 3),
    "mouse": (mice, 3),
    "pen": (pens, 3),
    "screwdriver": (screwdrivers, 3),
    "wrench": (wrenches, 3),
    "spoon": (spoons, 3),
    "plate": (plates, 3),
    "tumbler": (tumblers, 4),
    "paper": (papers, 5),
    "headphones": (headphones, 3),
}  # type -> (function that makes a family, number of families)

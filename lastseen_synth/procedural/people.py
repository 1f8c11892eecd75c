"""Procedural hands and people, as smooth unions of capsules.

Hands as in the packs: the wrist at the origin, fingers along +y, the back of the hand up (+z), the thumb of a
right hand at -x, a forearm of 42 cm behind; material 0 is the hand and 1 the forearm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lastseen_synth.assets import SKIN_TONES, Loaded, Point
from lastseen_synth.capsules import Capsule, ball, blended_surface, bounds, capsule
from lastseen_synth.meshes import Material
from lastseen_synth.procedural.blueprint import SATIN, Blueprint, Built, plain
from lastseen_synth.procedural.furniture_parts import FABRIC_M, STYLES, Rng, fabric_material
from lastseen_synth.procedural.patterns import rgb
from lastseen_synth.shapes import Part, merged, revolved, rotation
from lastseen_synth.texture import colour_texture

FOREARM_M = 0.42
# How far each finger bends at its three joints, from index to little finger; how the thumb stands.
POSES: dict[str, tuple[float, float]] = {
    # pose: bend of the fingers (0 straight, 1 fist), thumb across the palm (0 out, 1 in)
    "open": (0.05, 0.1),
    "relaxed": (0.3, 0.35),
    "grasp_wide": (0.42, 0.45),
    "grasp_medium": (0.58, 0.6),
    "grasp_tight": (0.82, 0.8),
    "pinch": (0.55, 0.85),
    "point": (0.9, 0.8),
}
# Knuckle (x, y), lengths of the three bones, radius at the knuckle; right hand, metres.
FINGERS = (
    ((-0.027, 0.092), (0.042, 0.026, 0.021), 0.0095),
    ((-0.006, 0.096), (0.046, 0.030, 0.022), 0.0098),
    ((0.015, 0.092), (0.042, 0.028, 0.021), 0.0092),
    ((0.033, 0.084), (0.033, 0.020, 0.018), 0.0080),
)


def _hand_capsules(pose: str) -> list[Capsule]:
    bend, across = POSES[pose]
    capsules = [
        capsule((0.0, -0.02, 0.0), (0.0, 0.02, 0.0), 0.023, 0.025),
        capsule((-0.012, 0.02, 0.0), (-0.022, 0.086, 0.002), 0.019, 0.0135),
        capsule((0.002, 0.02, 0.002), (-0.004, 0.09, 0.004), 0.018, 0.0135),
        capsule((0.012, 0.02, 0.0), (0.014, 0.086, 0.002), 0.018, 0.0130),
        capsule((0.016, 0.02, -0.003), (0.031, 0.078, 0.0), 0.018, 0.0120),
    ]
    for k, ((x, y), bones, radius) in enumerate(FINGERS):
        straight = pose == "point" and k == 0
        curl = 0.05 if straight else bend * (1 + 0.06 * k)
        fan = np.deg2rad((-7, -2, 4, 11)[k]) * (1 - bend)
        at, pitch = np.array([x, y, 0.002]), 0.0
        for bone, (long, share) in enumerate(zip(bones, (1.0, 1.25, 0.75))):
            pitch -= curl * share * np.pi / 2
            way = np.array([np.sin(fan) * np.cos(pitch), np.cos(fan) * np.cos(pitch), np.sin(pitch)])
            thin, thinner = radius * 0.92**bone, radius * 0.92 ** (bone + 1)
            capsules.append(capsule(_point(at), _point(at + long * way), thin, thinner))
            at = at + long * way
    root = np.array([-0.026, 0.028, -0.008])
    out = np.deg2rad(52 - 38 * across)
    for long, radius, turn in ((0.042, 0.0135, 0.0), (0.032, 0.0112, 0.35), (0.026, 0.0102, 0.6)):
        # Bones of the thumb turn back towards the fingers as it closes.
        angle, down = out - turn * across * 1.7, np.deg2rad(12 + (44 - 60 * turn) * across)
        way = np.array([-np.sin(angle) * np.cos(down), np.cos(angle) * np.cos(down), -np.sin(down)])
        capsules.append(capsule(_point(root), _point(root + long * way), radius, radius * 0.9))
        root = root + long * way
    return capsules


def _point(xyz: np.ndarray) -> Point:
    x, y, z = xyz.tolist()
    return x, y, z


def _grip(capsules: Sequence[Capsule]) -> Point:
    """Between palm, finger tips and thumb tip."""
    palm = np.array([-0.002, 0.075, -0.018])
    tips = np.mean([capsules[5 + 3 * k + 2].end for k in range(3)], 0)
    thumb = np.array(capsules[-1].end)
    return _point(0.45 * palm + 0.35 * tips + 0.2 * thumb + [0.0, 0.0, -0.012])


def hand(pose: str, *, left: bool) -> tuple[Point, Point, Point]:
    """lo_m, hi_m and grip_m of `load_hand`, without meshing it."""
    capsules = _hand_capsules(pose)
    low, high = bounds(capsules)
    low[1] = -FOREARM_M
    grip = np.array(_grip(capsules))
    # The forearm is wider than the wrist.
    low, high = np.minimum(low, [-0.046, 0, -0.04]), np.maximum(high, [0.046, 0, 0.04])
    if left:
        low[0], high[0] = -high[0], -low[0]
        grip[0] = -grip[0]
    return _point(low), _point(high), _point(grip)


def load_hand(pose: str, *, left: bool) -> Loaded:
    low, high, _ = hand(pose, left=False)
    fist = blended_surface(_hand_capsules(pose), cell_m=0.0058, blend_m=0.002, material=0)
    profile = [(0.0245, 0.0), (0.028, 0.03), (0.037, 0.16), (0.046, 0.3), (0.046, FOREARM_M - 0.012)]
    arm = (
        revolved(profile, segments=20, material=1)
        .stretched((1, 0.87, 1))
        .moved((0, -0.012, 0), turn=rotation("x", 90))
    )
    parts = [
        Part(
            positions=np.clip(fist.positions, low, high),
            normals=fist.normals,
            uv=fist.uv,
            triangles=fist.triangles,
        ),
        arm,
    ]
    if left:
        parts = [p.mirrored() for p in parts]
    white = colour_texture((255, 255, 255))
    tone = SKIN_TONES[1]
    return merged(parts), (
        Material(texture=white, tint=tone, specular=0.04, shininess=12.0),
        Material(texture=white, tint=tone, specular=0.04, shininess=12.0),
    )


def person(rng: Rng) -> Blueprint:
    """Standing, with a shirt, trousers or a skirt, shoes and hair; arms hang, or one is bent."""
    high, broad, bent, skirt = (
        rng.uniform(1.58, 1.88),
        rng.uniform(0.92, 1.1),
        bool(rng.random() < 0.5),
        bool(rng.random() < 0.3),
    )
    long_hair, tone = bool(rng.random() < 0.5), SKIN_TONES[int(rng.integers(len(SKIN_TONES)))]
    seed, shirt, trousers = int(rng.integers(3)), int(rng.integers(STYLES)), int(rng.integers(STYLES))
    hair, shoes = (
        rgb(0.08, rng.uniform(0.2, 0.7), rng.uniform(0.08, 0.6)),
        rgb(rng.random(), 0.3, rng.uniform(0.1, 0.7)),
    )

    body, scale = _body(bent=bent, skirt=skirt, long_hair=long_hair), high / 1.75

    def build() -> Built:
        parts = [
            blended_surface(capsules, cell_m=cell, blend_m=min(0.012, cell), material=min(k, 5))
            .tiled(FABRIC_M)
            .stretched((scale * broad, scale * broad, scale))
            for k, (capsules, cell) in enumerate(body)
        ]
        bare = Material(texture=colour_texture((255, 255, 255)), tint=tone, specular=0.03, shininess=12.0)
        return parts, [
            bare,
            fabric_material(seed, shirt),
            fabric_material(seed, trousers),
            plain(hair, SATIN),
            plain(shoes, SATIN),
            plain((30, 22, 18)),
        ]

    low, top = bounds([each for capsules, _ in body for each in capsules])
    wide, deep, _ = (top - low).tolist()
    return Blueprint(size_m=(wide * scale * broad, deep * scale * broad, high), build=build)


def _body(*, bent: bool, skirt: bool, long_hair: bool) -> list[tuple[list[Capsule], float]]:
    """Skin, shirt, trousers, hair, shoes and eyes of a figure of 1.75 m, and the cell to mesh each by."""
    shoulder, elbow = (0.185, 0.01, 1.42), (0.25, 0.03, 1.13)
    wrists = [(-0.26, -0.02, 0.88), (0.19, -0.2, 1.16) if bent else (0.26, -0.02, 0.88)]
    elbows = [(-elbow[0], elbow[1], elbow[2]), elbow]
    bare = [
        ball((0, -0.01, 1.63), 0.098, (0.86, 1.0, 1.2)),
        capsule((0, -0.09, 1.61), (0, -0.104, 1.6), 0.014, 0.016),  # nose
        capsule((0, 0.01, 1.45), (0, 0.0, 1.56), 0.055, 0.05),
    ]
    sleeves = []
    for (ex, ey, ez), (wx, wy, wz) in zip(elbows, wrists):
        side = 1.0 if ex > 0 else -1.0
        reach = np.array([wx - ex, wy - ey, wz - ez])
        palm = np.array([wx, wy, wz]) + reach / np.linalg.norm(reach) * 0.085
        bare += [
            capsule((ex, ey, ez), (wx, wy, wz), 0.042, 0.028),
            capsule((wx, wy, wz), _point(palm), 0.03, 0.034),
        ]
        sleeves.append(capsule((side * shoulder[0], shoulder[1], shoulder[2]), (ex, ey, ez), 0.066, 0.052))
    legs = []
    feet = []
    for side in (-1.0, 1.0):
        legs += [
            capsule((side * 0.09, 0, 0.92), (side * 0.1, 0, 0.5), 0.1, 0.072),
            capsule((side * 0.1, 0, 0.5), (side * 0.105, 0.02, 0.09), 0.07, 0.052),
        ]
        feet.append(capsule((side * 0.108, 0.035, 0.05), (side * 0.125, -0.13, 0.042), 0.05, 0.04))
    torso = [
        Capsule(
            start=(0, 0, 0.98),
            end=(0, 0.01, 1.36),
            start_radius=0.15,
            end_radius=0.165,
            flat=(1.05, 0.72, 1.0),
        ),
        capsule((-0.15, 0.01, 1.42), (0.15, 0.01, 1.42), 0.07),
        *sleeves,
    ]
    hips = [
        Capsule(
            start=(0, 0, 0.9), end=(0, 0, 1.0), start_radius=0.155, end_radius=0.145, flat=(1.05, 0.78, 1.0)
        )
    ]
    if skirt:
        bare += legs
        legs = [
            Capsule(
                start=(0, 0, 0.62),
                end=(0, 0, 0.95),
                start_radius=0.23,
                end_radius=0.15,
                flat=(1.0, 0.75, 0.3),
            )
        ]
    crown = [ball((0, 0.012, 1.665), 0.1, (0.93, 1.02, 0.95))]
    if long_hair:
        crown.append(capsule((0, 0.06, 1.62), (0, 0.085, 1.42), 0.075, 0.06))
    eyes = [ball((side * 0.032, -0.101, 1.635), 0.009) for side in (-1.0, 1.0)]
    layers = [(bare, 0.03), (torso, 0.045), (hips + legs, 0.045), (crown, 0.032), (feet, 0.032)]
    return [*layers, (eyes[:1], 0.006), (eyes[1:], 0.006)]

"""Room lighting: windows, sun and lamps, scaled to a target exposure, and their changes over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from lastseen_synth.floor_plan import FloorPlan, Hole, pose
from lastseen_synth.meshes import Material
from lastseen_synth.shadow import Lights
from lastseen_synth.shell import QuadMeshBuilder, Solid
from lastseen_synth.texture import colour_texture

WHITE_K = 4800  # white point of the camera
TARGET_MEAN = 0.2  # linear, mean over the surfaces of the room
LAMP_RADIUS_M = 0.35
ADAPTED = 0.75
MAX_LAMPS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class LightSource:
    """Lamps that are switched together, or daylight; with the ambient light they cause.

    | kind     | day or lamp                                             |
    | lamps    | numbers of its lamps in Lights.lamps_m                  |
    | has_sun  | whether the sun is part of it                           |
    | sky      | [3] its contribution to ambient light from above        |
    | ground   | [3] and from below                                      |
    """

    kind: Literal["day", "lamp"]
    lamps: tuple[int, ...]
    has_sun: bool
    sky: np.ndarray
    ground: np.ndarray


@dataclass(frozen=True, eq=False)
class Fixture:
    """A light before scaling: positions, colour, and its share of the room's light."""

    kind: Literal["day", "lamp"]
    positions_m: np.ndarray
    colour: np.ndarray
    share: float
    zone: int


def black_body(kelvin: float) -> np.ndarray:
    """[3] linear colour of a black body relative to WHITE_K, green = 1 (T. Helland's fit, made linear)."""
    return _planck(kelvin) / _planck(WHITE_K)


def _planck(kelvin: float) -> np.ndarray:
    t = kelvin / 100
    red = 255.0 if t <= 66 else 329.7 * (t - 60) ** -0.1332
    green = 99.47 * np.log(t) - 161.12 if t <= 66 else 288.12 * (t - 60) ** -0.0755
    blue = 255.0 if t >= 66 else 138.52 * np.log(max(t - 10, 1.1)) - 305.04
    colour = (np.clip([red, green, blue], 10, 255) / 255) ** 2.2
    return colour / colour[1]


def ceiling_lamp(
    plan: FloorPlan, zone: int, colour: np.ndarray, rng: np.random.Generator, *, office: bool, on: bool
) -> tuple[list[Solid], np.ndarray]:
    """Meshes of the ceiling lamps of a zone, and their light positions [lamps, 3]."""
    bounds, top = plan.zones[zone], plan.height_m
    wide, deep = bounds.x1_m - bounds.x0_m, bounds.y1_m - bounds.y0_m
    places = [(0.5, 0.5)]
    if bounds.area_m2 > 20:
        places = [(0.3, 0.5), (0.7, 0.5)] if wide > deep else [(0.5, 0.3), (0.5, 0.7)]
    style = "panel" if office else str(rng.choice(["disc", "pendant", "panel"], p=[0.45, 0.4, 0.15]))
    glow = Material(
        texture=colour_texture((255, 255, 255)),
        tint=tuple(np.clip(colour / colour.max(), 0.05, 1).tolist()),
        emission=1.8 if on else 0.0,
    )
    solids, lamps = [], []
    drop = rng.uniform(0.35, 0.7)
    for share_x, share_y in places:
        x = bounds.x0_m + wide * share_x + rng.normal(0, 0.05)
        y = bounds.y0_m + deep * share_y + rng.normal(0, 0.05)
        maker = QuadMeshBuilder()
        if style == "panel":
            half_x, half_y = rng.choice([0.3, 0.6]), 0.3 if rng.random() < 0.6 else 0.15
            maker.box((-half_x, -half_y, top - 0.03), (half_x, half_y, top - 0.001))
            low = top - 0.12
        elif style == "disc":
            radius = rng.uniform(0.14, 0.24)
            _round(maker, [(radius, top - 0.001), (radius, top - 0.06), (0.0, top - 0.08)])
            low = top - 0.2
        else:
            low, radius = top - drop, rng.uniform(0.11, 0.2)
            globe = [
                (radius * np.sin(a), low - radius * np.cos(a)) for a in np.linspace(0.01, np.pi - 0.1, 7)
            ]
            _round(maker, globe)
            maker.box((-0.004, -0.004, low + radius), (0.004, 0.004, top), 1)
        solids.append(
            replace(
                maker.solid(glow, Material(texture=colour_texture((40, 40, 40))), casts_shadow=False),
                transform=pose(x, y),
            )
        )
        lamps.append((x, y, low))
    return solids, np.array(lamps)


def _round(maker: QuadMeshBuilder, profile: Sequence[tuple[float, float]], sides: int = 14) -> None:
    """A body of revolution of (radius, z) rings, in flat strips."""
    angles = np.linspace(0, 2 * np.pi, sides + 1)
    circle = np.stack([np.cos(angles), np.sin(angles)], 1)
    for (r0, z0), (r1, z1) in pairwise(profile):
        for a, b in pairwise(circle):
            maker.face(
                np.array([[*r0 * a, z0], [*r0 * b, z0], [*r1 * b, z1], [*r1 * a, z1]]), np.zeros((4, 2))
            )


def daylight(plan: FloorPlan, rng: np.random.Generator) -> list[Fixture]:
    """Windows as point lights inside the room; outside, one would cast the window's outline on the ceiling,
    which the sky does not. One for each zone with windows, and one for the largest remaining window."""
    colour = black_body(rng.uniform(5500, 7000))
    windows = sorted(plan.holes("window"), key=lambda item: -_area_m2(item[1]))
    chosen = [next((w for w in windows if w[0].zone == zone), None) for zone in range(len(plan.zones))]
    chosen += [w for w in windows if w not in chosen][:1]
    fixtures = []
    for item in chosen:
        if item is not None:
            wall, hole = item
            x, y = wall.point((hole.from_m + hole.to_m) / 2, rng.uniform(0.2, 0.35))
            position = (x, y, hole.low_m + 0.4 * (hole.high_m - hole.low_m))
            share = rng.uniform(0.7, 1.3) * min(1.0, 0.4 + 0.5 * _area_m2(hole))
            fixtures.append(Fixture("day", np.array([position]), colour, share=share, zone=wall.zone))
    return fixtures


def _area_m2(hole: Hole) -> float:
    return (hole.to_m - hole.from_m) * (hole.high_m - hole.low_m)


def sun_through(plan: FloorPlan, rng: np.random.Generator) -> np.ndarray | None:
    """[3]: the way the light of a sun that shines into one of the windows travels."""
    windows = [wall for wall, _ in plan.holes("window")]
    if not windows:
        return None
    normal = windows[int(rng.integers(len(windows)))].normal
    azimuth = np.arctan2(normal[1], normal[0]) + rng.uniform(-0.9, 0.9)
    height = np.deg2rad(rng.uniform(15, 50))
    return np.array([np.cos(azimuth) * np.cos(height), np.sin(azimuth) * np.cos(height), -np.sin(height)])


def light_room(
    plan: FloorPlan,
    fixtures: Sequence[Fixture],
    *,
    reflectance: float,
    sun_direction: np.ndarray | None,
    sun_share: float,
    rng: np.random.Generator,
) -> tuple[Lights, tuple[LightSource, ...]]:
    """Scales lamps to their shares, derives ambient light from one diffuse bounce, and normalises
    exposure."""
    points, normals, zones = _surface_samples(plan)
    bounce = min(0.75, reflectance) / (1 - min(0.75, reflectance))
    lamps: list[np.ndarray] = []
    colours: list[np.ndarray] = []
    sources: list[LightSource] = []
    direct = np.zeros((len(points), 3))
    for fixture in fixtures:
        arrives = np.zeros(len(points))
        for position in fixture.positions_m:
            towards = position - points
            squared = np.maximum((towards**2).sum(1), 1e-6)
            cosine = np.maximum((towards * normals).sum(1), 0) / np.sqrt(squared)
            reaches = zones == fixture.zone
            arrives += cosine / (squared + LAMP_RADIUS_M**2) * reaches
        scale = fixture.share / max(float(arrives.mean()), 1e-3)
        numbers = tuple(range(len(lamps), len(lamps) + len(fixture.positions_m)))
        lamps += list(fixture.positions_m)
        colours += [fixture.colour * scale] * len(numbers)
        direct += arrives[:, None] * fixture.colour * scale
        ambient = fixture.share * fixture.colour * bounce
        sources.append(
            LightSource(
                kind=fixture.kind, lamps=numbers, has_sun=False, sky=0.8 * ambient, ground=0.6 * ambient
            )
        )
    sun_colour = np.array([1.0, 0.93, 0.8]) * sun_share
    if sun_direction is not None:
        # Indirect light of the patch that the sun hits.
        ambient = sun_colour * 0.03 * bounce
        sources.append(LightSource(kind="day", lamps=(), has_sun=True, sky=ambient, ground=1.3 * ambient))
    upward = (0.5 + 0.5 * normals[:, 2])[:, None]
    around = sum(s.ground + (s.sky - s.ground) * upward for s in sources)
    # Furniture shades about a sixth of the lamps' light.
    mean = reflectance * float((0.85 * direct + around).mean())
    # The camera's white balance removes most of the mean tint.
    cast = (direct + around).mean(0)
    exposure = TARGET_MEAN * rng.uniform(0.85, 1.15) / max(mean, 1e-6) * (cast.mean() / cast) ** ADAPTED
    sources = [replace(s, sky=s.sky * exposure, ground=s.ground * exposure) for s in sources]
    lights = Lights(
        lamps_m=torch.tensor(np.array(lamps).reshape(-1, 3), dtype=torch.float64),
        lamp_colours=torch.tensor(np.array(colours).reshape(-1, 3) * exposure, dtype=torch.float32),
        lamp_radius_m=LAMP_RADIUS_M,
        sun_direction=None if sun_direction is None else torch.tensor(sun_direction, dtype=torch.float64),
        sun_colour=None
        if sun_direction is None
        else torch.tensor(sun_colour * exposure, dtype=torch.float32),
        sky_colour=torch.tensor(sum(s.sky for s in sources), dtype=torch.float32),
        ground_colour=torch.tensor(sum(s.ground for s in sources), dtype=torch.float32),
    )
    return lights, tuple(sources)


def _surface_samples(plan: FloorPlan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sample points on floors, walls and ceilings, with normals and zones."""
    points: list[tuple[float, float, float]] = []
    normals: list[tuple[float, float, float]] = []
    zones: list[int] = []
    for number, zone in enumerate(plan.zones):
        for x in np.linspace(zone.x0_m, zone.x1_m, 7)[1:-1]:
            for y in np.linspace(zone.y0_m, zone.y1_m, 7)[1:-1]:
                for z, up in ((0.0, 1), (0.75, 1), (plan.height_m, -1)):
                    points.append((x, y, z))
                    normals.append((0, 0, up))
                    zones.append(number)
    for wall in plan.walls:
        for along in np.linspace(0, wall.length_m, 8)[1:-1]:
            for z in (0.4, 1.0, 1.6, 2.2):
                points.append((*wall.point(along, 0.0), z))
                normals.append((*wall.normal, 0))
                zones.append(wall.zone)
    return np.array(points), np.array(normals, float), np.array(zones)


def lights_over_time(
    lights: Lights, sources: Sequence[LightSource], times_s: np.ndarray, rng: np.random.Generator
) -> Lights:
    """The lights at each time: daylight varies with clouds, and a lamp may be switched on or off."""
    times = np.asarray(times_s, float)
    levels = np.ones((len(times), len(sources)))
    brightness = np.array([float(s.sky.sum()) for s in sources])
    clouds = _clouds(times, rng) if rng.random() < 0.6 else np.ones(len(times))
    for number, source in enumerate(sources):
        if source.kind == "day":
            levels[:, number] = clouds**2 if source.has_sun else 0.5 + 0.5 * clouds
        elif rng.random() < 0.2 and len(times) and brightness[number] < 0.7 * brightness.sum():
            moment = rng.uniform(times[0], times[-1])
            ramp = np.clip((times - moment) / 0.12, 0, 1)  # not instantaneous
            levels[:, number] = 1 - ramp if rng.random() < 0.5 else ramp
    lamp_levels = np.ones((len(times), len(lights.lamps_m)))
    for number, source in enumerate(sources):
        lamp_levels[:, list(source.lamps)] = levels[:, number : number + 1]
    device = lights.sky_colour.device

    def tensor(values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    sun_levels = [levels[:, n] for n, s in enumerate(sources) if s.has_sun]
    sun = lights.sun_colour
    return replace(
        lights,
        lamp_colours=lights.lamp_colours * tensor(lamp_levels)[:, :, None],
        sun_colour=sun * tensor(sun_levels[0])[:, None] if sun is not None and sun_levels else sun,
        sky_colour=tensor(levels @ np.array([s.sky for s in sources])),
        ground_colour=tensor(levels @ np.array([s.ground for s in sources])),
    )


def _clouds(times_s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[T] between about 0.4 and 1.1, smooth over tens of seconds."""
    phases = (times_s / rng.uniform(15, 70) + rng.random() for _ in range(2))
    slow, quick = (np.sin(2 * np.pi * phase) for phase in phases)
    return 0.78 + 0.2 * slow + 0.12 * quick

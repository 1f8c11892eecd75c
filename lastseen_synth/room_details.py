"""Room details: windows, doors, curtains, pictures, rugs and lamps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import ndimage

from lastseen_synth.assets import Asset, AssetLibrary, Picture
from lastseen_synth.floor_plan import FloorPlan, Footprint, Hole, Wall, pose
from lastseen_synth.furniture import Piece, mesh_of
from lastseen_synth.lighting import (
    MAX_LAMPS,
    Fixture,
    LightSource,
    black_body,
    ceiling_lamp,
    daylight,
    light_room,
    sun_through,
)
from lastseen_synth.meshes import Material
from lastseen_synth.shadow import Lights
from lastseen_synth.shell import REVEAL_M, Decor, QuadMeshBuilder, Solid, frame_of, one_of, plain
from lastseen_synth.texture import picture_texture

SKY_LIGHT = (
    1.7  # emission of the sky in a window on a sunny day; a white wall indoors has a radiance of about 0.5
)
POSTERS = ("wallpaper", "generated", "caltech101", "grocery")
WALL_HEIGHTS_M = (1.35, 1.75)


def add_details(
    library: AssetLibrary,
    plan: FloorPlan,
    decor: Decor,
    pieces: Sequence[Piece],
    rng: np.random.Generator,
    kind: str,
) -> tuple[list[Solid], Lights, tuple[LightSource, ...]]:
    """Windows, doors, pictures, rugs and lamps, and the lights they emit."""
    solids: list[Solid] = []
    windows = list(plan.holes("window"))
    night = not windows or rng.random() < 0.25
    sunny = not night and rng.random() < 0.45
    cloths = [s for s in library.surfaces if s.use == "fabric"]
    for wall, hole in windows:
        texture = picture_texture(sky_picture(rng, night=night), wrap=False)
        glow = 0.6 if night else SKY_LIGHT * rng.uniform(0.6, 1.2)
        sky = Material(texture=texture, emission=glow)
        if hole.filling is not None:
            solids += filled(wall, hole, hole.filling, sky, casts_shadow=False)
        else:
            solids += window(wall, hole, sky, decor.trim, rng)
        cloth = one_of(cloths, rng)
        if (
            cloth is not None
            and rng.random() < 0.5
            and not _behind(pieces, wall, hole.from_m, hole.to_m, 0.0)
        ):
            solids.append(curtains(wall, hole, Material(texture=cloth.texture()), rng))
    wood = one_of([s for s in library.surfaces if s.use == "wood"], rng)
    for wall, hole in plan.holes("door"):
        if hole.filling is not None:
            solids += filled(wall, hole, hole.filling, plain((25, 24, 22)), casts_shadow=True)
        else:
            leaf = decor.trim if wood is None or rng.random() < 0.5 else Material(texture=wood.texture())
            solids.append(door(wall, hole, leaf, decor.trim))
    _hang_pictures(solids, library, plan, pieces, rng)
    _lay_rugs(solids, library, plan, pieces, rng)

    fixtures = [] if night else daylight(plan, rng)
    lamp_kelvin = rng.uniform(2700, 4200) if kind not in ("office", "workshop") else rng.uniform(3500, 6000)
    lamps_on = night or rng.random() < 0.5
    for zone in range(len(plan.zones)):
        colour = black_body(lamp_kelvin * rng.uniform(0.92, 1.08))
        on = lamps_on or all(fixture.zone != zone for fixture in fixtures)
        fitting, positions = ceiling_lamp(plan, zone, colour, rng, office=kind == "office", on=on)
        solids += fitting
        if on:
            share = rng.uniform(0.7, 1.3) if night else rng.uniform(0.25, 0.7)
            fixtures.append(
                Fixture(kind="lamp", positions_m=positions, colour=colour, share=share, zone=zone)
            )
    for piece in pieces:
        if piece.asset.type == "lamp" and rng.random() < (0.8 if night else 0.3):
            top = np.array([[piece.footprint.x_m, piece.footprint.y_m, piece.high_m - 0.12]])
            colour = black_body(rng.uniform(2500, 3200))
            share = rng.uniform(0.15, 0.4)
            fixtures.append(
                Fixture(kind="lamp", positions_m=top, colour=colour, share=share, zone=piece.zone)
            )
    lights, sources = light_room(
        plan,
        fixtures[:MAX_LAMPS],
        reflectance=decor.reflectance,
        sun_direction=sun_through(plan, rng) if sunny else None,
        sun_share=rng.uniform(3.0, 8.0),
        rng=rng,
    )
    return solids, lights, sources


def _behind(pieces: Sequence[Piece], wall: Wall, from_m: float, to_m: float, low_m: float) -> bool:
    """Whether furniture stands at this section of a wall and is higher than `low_m`."""
    patch = wall.patch(from_m, to_m, 0.0, 0.15)
    return any(piece.high_m > low_m and patch.overlaps(piece.footprint) for piece in pieces)


def _hang_pictures(
    solids: list[Solid],
    library: AssetLibrary,
    plan: FloorPlan,
    pieces: Sequence[Piece],
    rng: np.random.Generator,
) -> None:
    pictures = [p for p in library.pictures if p.kind in POSTERS]
    if not pictures:
        return
    hung: list[tuple[int, float, float]] = []
    for _ in range(int(rng.integers(3, 18))):
        number = int(rng.integers(len(plan.walls)))
        wall = plan.walls[number]
        picture = _poster(pictures, rng)
        wide = rng.uniform(0.3, 1.25)
        high = min(wide * picture.height / picture.width, 1.1)
        wide = high * picture.width / picture.height
        along, z = rng.uniform(0, wall.length_m), rng.uniform(*WALL_HEIGHTS_M)
        from_m, to_m = along - wide / 2 - 0.05, along + wide / 2 + 0.05
        if from_m < 0.05 or to_m > wall.length_m - 0.05 or z + high / 2 > plan.height_m - 0.1:
            continue
        if any(from_m < hole.to_m + 0.1 and hole.from_m - 0.1 < to_m for hole in wall.holes):
            continue
        if _behind(pieces, wall, from_m, to_m, z - high / 2):
            continue
        if any(n == number and from_m < b and a < to_m for n, a, b in hung):
            continue
        hung.append((number, from_m, to_m))
        edge = plain([(20, 20, 20), (235, 232, 225), (120, 80, 45)][int(rng.integers(3))])
        shine = 0.15 if rng.random() < 0.4 else 0.0
        solids.append(
            hung_picture(wall, along, z, (wide, high), poster_material(picture, specular=shine), edge)
        )


def _poster(pictures: Sequence[Picture], rng: np.random.Generator) -> Picture:
    large = [p for p in pictures if p.kind in ("wallpaper", "generated")]
    choices = large if large and rng.random() < 0.7 else pictures
    return choices[int(rng.integers(len(choices)))]


def _lay_rugs(
    solids: list[Solid],
    library: AssetLibrary,
    plan: FloorPlan,
    pieces: Sequence[Piece],
    rng: np.random.Generator,
) -> None:
    cloths = [s for s in library.surfaces if s.use == "fabric"]
    if not cloths or rng.random() < 0.4:
        return
    anchors = [p for p in pieces if p.asset.type == "table" and p.wall is None] or list(pieces)
    if not anchors:
        return
    anchor = anchors[int(rng.integers(len(anchors)))]
    zone = plan.zones[anchor.zone]
    place = Footprint(
        x_m=anchor.footprint.x_m,
        y_m=anchor.footprint.y_m,
        half_x_m=rng.uniform(0.7, 1.4),
        half_y_m=rng.uniform(0.5, 1.0),
        yaw_rad=anchor.footprint.yaw_rad,
    )
    if zone.holds(place.corners(), 0.05):
        cloth = cloths[int(rng.integers(len(cloths)))]
        tint = rng.uniform(0.5, 1.3) * (1 + rng.uniform(-0.3, 0.3, 3))
        solids.append(rug(place, Material(texture=cloth.texture(), tint=tuple(tint.tolist())), cloth.metres))


def window(wall: Wall, hole: Hole, sky: Material, trim: Material, rng: np.random.Generator) -> list[Solid]:
    """Frame, bars and sill, and an emissive picture of the sky behind them that casts no shadow."""
    frame, parts, picture = frame_of(wall), QuadMeshBuilder(), QuadMeshBuilder()
    x0, x1, z0, z1 = hole.from_m, hole.to_m, hole.low_m, hole.high_m
    y0, y1, wide = -0.14, -0.08, float(rng.uniform(0.04, 0.07))
    for low, high in (
        ((x0, y0, z0), (x0 + wide, y1, z1)),
        ((x1 - wide, y0, z0), (x1, y1, z1)),
        ((x0 + wide, y0, z0), (x1 - wide, y1, z0 + wide)),
        ((x0 + wide, y0, z1 - wide), (x1 - wide, y1, z1)),
    ):
        parts.box(low, high, frame=frame)
    panes = max(1, round((x1 - x0) / rng.uniform(0.5, 1.1)))
    for k in range(1, panes):
        x = x0 + (x1 - x0) * k / panes
        parts.box((x - 0.03, y0, z0 + wide), (x + 0.03, y1, z1 - wide), frame=frame)
    if rng.random() < 0.4:
        z = z0 + (z1 - z0) * rng.uniform(0.55, 0.72)
        parts.box((x0 + wide, y0 + 0.01, z - 0.02), (x1 - wide, y1 - 0.01, z + 0.02), frame=frame)
    if z0 > 0.3:
        parts.box((x0 - 0.04, -0.08, z0 - 0.025), (x1 + 0.04, 0.03, z0), frame=frame)
    picture.quad((x1, -REVEAL_M, z0), (x0 - x1, 0, 0), (0, 0, z1 - z0), frame=frame)
    return [parts.solid(trim), picture.solid(sky, casts_shadow=False)]


def curtains(wall: Wall, hole: Hole, cloth: Material, rng: np.random.Generator) -> Solid:
    """A pair of curtains beside a window."""
    maker, frame = QuadMeshBuilder(), frame_of(wall)
    top, low = hole.high_m + 0.12, 0.03 if rng.random() < 0.6 else max(0.03, hole.low_m - 0.15)
    drawn = rng.uniform(0.12, 0.3) * (hole.to_m - hole.from_m)
    for start, end in ((hole.from_m - 0.15, hole.from_m + drawn), (hole.to_m - drawn, hole.to_m + 0.15)):
        x = np.linspace(max(start, 0.02), min(end, wall.length_m - 0.02), 17)
        y = 0.055 + 0.03 * np.sin(np.linspace(0, rng.uniform(3, 5) * 2 * np.pi, 17) + rng.uniform(0, 6))
        for xa, xb, ya, yb in zip(x, x[1:], y, y[1:]):
            maker.quad((xb, yb, low), (xa - xb, ya - yb, 0), (0, 0, top - low), tile_m=0.6, frame=frame)
    maker.box((hole.from_m - 0.2, 0.045, top), (hole.to_m + 0.2, 0.065, top + 0.02), 1, frame=frame)
    return maker.solid(cloth, plain((90, 85, 80)))


def door(wall: Wall, hole: Hole, leaf: Material, trim: Material) -> Solid:
    """A closed door with its frame and handle."""
    maker, frame = QuadMeshBuilder(), frame_of(wall)
    x0, x1, z1 = hole.from_m, hole.to_m, hole.high_m
    # Rotated texture: the grain of a door is vertical.
    maker.quad((x0, -0.03, 0), (0, 0, z1), (x1 - x0, 0, 0), 0, tile_m=0.9, frame=frame)
    for a, b in ((x0 - 0.07, x0 + 0.01), (x1 - 0.01, x1 + 0.07)):
        maker.box((a, -0.03, 0), (b, 0.015, z1 + 0.07), 1, frame=frame)
    maker.box((x0 + 0.01, -0.03, z1 - 0.01), (x1 - 0.01, 0.015, z1 + 0.07), 1, frame=frame)
    maker.box((x0 + 0.06, -0.03, 1.02), (x0 + 0.18, 0.03, 1.045), 2, frame=frame)
    maker.box((x0 + 0.06, -0.03, 0.92), (x0 + 0.09, -0.02, 1.1), 2, frame=frame)
    return maker.solid(leaf, trim, plain((170, 168, 160), specular=0.4, shininess=40.0))


def filled(wall: Wall, hole: Hole, filling: Asset, behind: Material, *, casts_shadow: bool) -> list[Solid]:
    """A door or window asset in its hole; `behind` is the material seen through its panes."""
    along = (hole.from_m + hole.to_m) / 2
    x, y = wall.point(along, 0.03 - filling.size_m[1] / 2)
    transform = pose(x, y, hole.low_m - filling.lo_m[2], wall.yaw_rad)
    back = QuadMeshBuilder()
    width, height = hole.to_m - hole.from_m, hole.high_m - hole.low_m
    back.quad((hole.to_m, -REVEAL_M, hole.low_m), (-width, 0, 0), (0, 0, height), frame=frame_of(wall))
    return [
        Solid(mesh=mesh_of(filling), materials=filling.load()[1], transform=transform),
        back.solid(behind, casts_shadow=casts_shadow),
    ]


def hung_picture(
    wall: Wall, along_m: float, z_m: float, size_m: tuple[float, float], picture: Material, edge: Material
) -> Solid:
    """A poster (no thicker than paper) or a framed picture; `edge` colours its frame."""
    maker, frame = QuadMeshBuilder(), frame_of(wall)
    half, up = size_m[0] / 2, size_m[1] / 2
    flip = frame @ np.diag([-1.0, -1.0, 1.0, 1.0])  # boxes show their front to -y: into the room
    flip[:, 3] = frame[:, 3]
    maker.box((-along_m - half, -0.02, z_m - up), (-along_m + half, 0, z_m + up), 1, frame=flip)
    rim = min(0.03, half / 6)
    maker.quad(
        (-along_m - half + rim, -0.021, z_m - up + rim),
        (2 * half - 2 * rim, 0, 0),
        (0, 0, 2 * up - 2 * rim),
        0,
        frame=flip,
    )
    return maker.solid(picture, edge)


def rug(place: Footprint, cloth: Material, tile_m: float) -> Solid:
    maker = QuadMeshBuilder()
    x, y = place.half_x_m, place.half_y_m
    maker.box((-x, -y, 0.0), (x, y, 0.006), 0, tile_m=tile_m)
    return replace(maker.solid(cloth), transform=pose(place.x_m, place.y_m, 0.0, place.yaw_rad))


def poster_material(picture: Picture, *, specular: float) -> Material:
    texture = picture_texture(picture.image(), wrap=False, max_side_px=384)
    return Material(texture=texture, specular=specular, shininess=60.0)


def sky_picture(rng: np.random.Generator, *, night: bool) -> np.ndarray:
    """uint8 [96, 128, 3]: a defocused outdoor view, sky above and dark shapes below."""
    rows = np.linspace(1, 0, 96)[:, None, None]
    horizon, clear = rng.uniform(0.15, 0.55), rng.random()
    zenith = np.array([0.35, 0.55, 0.95]) * clear + np.array([0.8, 0.83, 0.88]) * (1 - clear)
    sky = np.array([0.95, 0.95, 0.95]) + (zenith - 0.95) * np.clip(rows - horizon, 0, 1)
    clouds = ndimage.zoom(rng.normal(0, 0.06, (6, 8)), 16, order=1)[..., None]
    green, grey = np.array([0.25, 0.36, 0.16]), np.array([0.42, 0.38, 0.34])
    far, near = (green if rng.random() < 0.6 else grey for _ in range(2))
    grain = 0.4 + 0.9 * ndimage.zoom(rng.random((24, 32)), 4, order=1)[..., None]
    outlines = [
        horizon
        - k * 0.12
        + ndimage.zoom(rng.normal(0, 0.08, 16), 8, order=int(rng.integers(2)))[None, :, None]
        for k in range(2)
    ]
    picture = np.where(rows > outlines[0], sky + clouds, far * grain)
    picture = np.where(rows > outlines[1], picture, 0.8 * near * grain)
    if night:
        lamps = (rng.random((96, 128, 1)) > 0.995) & (rows < outlines[0])
        picture = picture * np.array([0.04, 0.05, 0.09]) + lamps * np.array([3.0, 2.2, 1.2])
    picture = ndimage.gaussian_filter(picture, (1.2, 1.2, 0))
    return (np.clip(picture, 0, 1) * 255).astype(np.uint8)

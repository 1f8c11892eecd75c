"""Random furnished rooms: walls, furniture, people, objects and lights.

furnish = floor plan -> furniture, people, details, lights -> things, look-alikes, spots -> clutter -> scene
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from lastseen.errors import SynthError
from lastseen_synth.assets import Asset, AssetLibrary
from lastseen_synth.clutter import (
    RoomBuilder,
    Spot,
    Stock,
    find_spots,
    moved_into_view,
    put_screens,
    put_thing,
    scatter,
    solid_of,
)
from lastseen_synth.floor_plan import (
    FloorPlan,
    Footprint,
    FreeSpace,
    draw_floor_plan,
    footprint_of,
    free_space,
    pose,
)
from lastseen_synth.furniture import Piece, mesh_of
from lastseen_synth.lighting import LightSource, lights_over_time
from lastseen_synth.line_of_sight import LineOfSight
from lastseen_synth.meshes import Material, MeshScene, SceneBuilder
from lastseen_synth.room_details import add_details
from lastseen_synth.room_types import MIN_FREE_M2, SHARE_OF_ROOMS, arrange
from lastseen_synth.shadow import Lights, ShadowMaps, static_shadow_maps
from lastseen_synth.shell import Decor, Solid, draw_decor, mean_colour, shell
from lastseen_synth.support_grid import floor_grid, support_grids
from lastseen_synth.texture import colour_texture

MAX_TRIANGLES = 60_000
FURNITURE_SHARE = 0.45  # of the triangles
SPOTS, MIN_SPOTS = 16, 12
ATTEMPTS = 8
TILED = {"bathroom": 1.0, "kitchen": 0.3}
LARGEST_M = {"bathroom": (4.0, 3.5), "kitchen": (5.5, 5.0), "bedroom": (5.5, 5.0)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """An asset in the room. `transform` [4, 4] float64: from its own coordinates to the room's."""

    instance: int
    asset: Asset
    transform: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Room:
    """A furnished room.

    | kind      | living, bedroom, kitchen, office, workshop, bathroom                     |
    | placed    | all assets in the room, furniture and people included                    |
    | things    | instance numbers of the requested things, in their order                 |
    | spots     | free places where a thing can be put later                               |
    | sources   | light sources that `light_changes` varies                                |
    | shadeless | instances that cast no shadow: lamp shades, the sky in a window          |
    | extras    | instances kept under the floor until they are posed: the wearer's hands  |
    """

    scene: MeshScene
    lights: Lights
    free: FreeSpace
    placed: tuple[Placed, ...]
    spots: tuple[Spot, ...]
    kind: str
    things: tuple[int, ...]
    sources: tuple[LightSource, ...]
    shadeless: tuple[int, ...]
    plan: FloorPlan
    extras: tuple[int, ...] = ()


def shadows_of(room: Room, *, moving: Sequence[int] = (), size_px: int = 384, blur_px: int = 4) -> ShadowMaps:
    """Static shadow maps of the room, without moving instances and those that cast no shadow."""
    hidden = (*moving, *room.shadeless, *room.extras)
    return static_shadow_maps(
        room.scene.geometry, room.lights, size_px=size_px, blur_px=blur_px, moving=hidden
    )


def light_changes(room: Room, times_s: np.ndarray, rng: np.random.Generator) -> Lights:
    """The room's lights at these times, with clouds and switched lamps."""
    return lights_over_time(room.lights, room.sources, times_s, rng)


def furnish(
    library: AssetLibrary,
    rng: np.random.Generator,
    *,
    things: Sequence[Asset],
    device: torch.device | str = "cpu",
    avoid: Sequence[Asset] = (),
    extras: Sequence[Asset] = (),
    max_triangles: int = MAX_TRIANGLES,
) -> Room:
    """A random room in which each of `things` rests on a surface where it can be seen.

    No other object in it is a twin of a thing or of an asset in `avoid` (queried things that are absent).
    `extras` are put out of sight, to be posed later.
    """
    twins = [t.twin for t in things if t.twin is not None]
    if len(set(twins)) < len(twins) or len({t.name for t in things}) < len(things):
        raise SynthError("two of the things are twins; a room can hold only one of them")
    for attempt in range(ATTEMPTS):
        fewest = MIN_SPOTS if things and attempt < ATTEMPTS - 2 else 0
        room = _try(library, rng, things, avoid, extras, max_triangles, fewest, device)
        if room is not None:
            return room
    names = ", ".join(thing.name for thing in things)
    raise SynthError(f"found no room for {names}: ask for fewer or smaller things, or add tables and shelves")


def _try(
    library: AssetLibrary,
    rng: np.random.Generator,
    things: Sequence[Asset],
    avoid: Sequence[Asset],
    extras: Sequence[Asset],
    max_triangles: int,
    fewest_spots: int,
    device: torch.device | str,
) -> Room | None:
    """One attempt; None if a thing found no place or there are too few free spots."""
    kind = str(rng.choice(list(SHARE_OF_ROOMS), p=list(SHARE_OF_ROOMS.values())))
    plan = draw_floor_plan(rng, library.kind("opening"), largest_m=LARGEST_M.get(kind, (7.0, 6.0)))
    tiled = rng.random() < TILED.get(kind, 0.0)
    decor = draw_decor(library, plan, rng, tiled_walls=tiled)
    pieces = arrange(plan, library, rng, kind=kind, max_triangles=int(FURNITURE_SHARE * max_triangles))
    people = _people(library, plan, pieces, rng)
    free = free_space(plan, _bodies(pieces, people))

    room = _with_furniture(plan, decor, pieces, people, free, rng, max_triangles)
    fittings, lights, sources = add_details(library, plan, decor, pieces, rng, kind)
    for solid in fittings:
        room.add(solid)

    placed = _with_objects(room, library, things, avoid, fewest_spots)
    if placed is None:
        return None
    numbers, spots = placed
    below = range(len(room.solids), len(room.solids) + len(extras))
    room.solids += [solid_of(asset, pose(0, 0, -10.0)) for asset in extras]
    builder = SceneBuilder()
    for solid in room.solids:
        builder.add(solid.mesh, solid.materials, solid.transform)
    return Room(
        scene=builder.build(device),
        lights=lights.to(device),
        free=free,
        placed=tuple(
            Placed(instance=number, asset=solid.asset, transform=solid.transform)
            for number, solid in enumerate(room.solids)
            if solid.asset is not None
        ),
        spots=tuple(spots),
        kind=kind,
        things=tuple(numbers),
        sources=sources,
        shadeless=tuple(n for n, solid in enumerate(room.solids) if not solid.casts_shadow),
        plan=plan,
        extras=tuple(below),
    )


def _with_furniture(
    plan: FloorPlan,
    decor: Decor,
    pieces: Sequence[Piece],
    people: Sequence[tuple[Footprint, Asset, Tensor]],
    free: FreeSpace,
    rng: np.random.Generator,
    max_triangles: int,
) -> RoomBuilder:
    """Shell, furniture and people, and the support grids of the furniture and the floor."""
    bodies = _bodies(pieces, people)
    room = RoomBuilder(
        solids=[], grids=[], line_of_sight=LineOfSight(), free=free, rng=rng, triangles_left=max_triangles
    )
    for solid in shell(plan, decor):
        room.add(solid)
    for piece in pieces:
        number = room.add(_solid(piece.asset, piece.transform))
        room.grids += support_grids(piece.asset, mesh_of(piece.asset), number, piece.transform, _use(piece))
    for _, asset, transform in people:
        room.add(_solid(asset, transform))
    for zone in plan.zones:
        room.grids.append(floor_grid(plan, zone, 0, free, bodies, pose(0, 0)))
    for piece in pieces:
        for grid in room.grids:
            if piece.low_m > grid.height_m:
                grid.limit_height(piece.footprint, piece.low_m)
    return room


def _with_objects(
    room: RoomBuilder,
    library: AssetLibrary,
    things: Sequence[Asset],
    avoid: Sequence[Asset],
    fewest_spots: int,
) -> tuple[list[int], list[Spot]] | None:
    """Puts screens, things, look-alikes and clutter; returns the things' instances and the free spots.

    None if a thing found no place or there are too few spots.
    """
    put_screens(room, library)
    numbers: list[int] = []
    stock = Stock(library, [*things, *avoid])
    for thing in things:
        found = put_thing(room, thing)
        if found is None:
            return None
        numbers.append(found)
    for number, thing in zip(numbers, things):
        for look_alike in _some(stock.look_alikes(thing), int(room.rng.integers(1, 4)), room.rng):
            if look_alike.name not in room.used_names and look_alike.twin not in room.used_twins:
                put_thing(room, look_alike, near=room.things[number][0] if room.rng.random() < 0.6 else None)
    spots = find_spots(room, SPOTS + len(things), [t.size_m for t in things])
    if len(spots) < fewest_spots:
        return None
    fullness = room.rng.uniform(0.25, 1.0)
    scatter(room, stock, int(30 + 110 * fullness), fullness)
    for number in numbers:
        moved = moved_into_view(room, number, spots)
        if moved is not None:
            old = room.solids[number]
            room.solids[number] = Solid(
                mesh=old.mesh, materials=old.materials, transform=moved, asset=old.asset
            )
    return numbers, spots


def _bodies(pieces: Sequence[Piece], people: Sequence[tuple[Footprint, Asset, Tensor]]) -> list[Footprint]:
    """Footprints of what a walking person would collide with."""
    return [p.footprint for p in pieces if p.low_m < 1.8] + [place for place, _, _ in people]


def _solid(asset: Asset, transform: Tensor) -> Solid:
    return Solid(mesh=mesh_of(asset), materials=_finish(asset), transform=transform, asset=asset)


@lru_cache(maxsize=1024)
def _finish(asset: Asset) -> tuple[Material, ...]:
    """Its materials with a default gloss, and with a minimum albedo."""
    materials = []
    for material in asset.load()[1]:
        darkest = max(0.0, 0.012 - float(mean_colour(material.texture).max()))
        texture = colour_texture((30, 30, 30)) if darkest > 0.006 else material.texture
        shine = material.specular or (0.05 if asset.kind == "furniture" else 0.0)
        materials.append(replace(material, texture=texture, specular=shine, shininess=20.0))
    return tuple(materials)


def _use(piece: Piece) -> str:
    kind = piece.asset.type
    if kind in ("shelf", "bed"):
        return kind
    if kind in ("chair", "sofa"):
        return "seat"
    if kind in ("counter", "sink", "appliance") or 0.8 < piece.support_z_m < 0.95:
        return "counter"
    return "table" if kind == "table" else "top"


def _people(
    library: AssetLibrary, plan: FloorPlan, pieces: Sequence[Piece], rng: np.random.Generator
) -> list[tuple[Footprint, Asset, Tensor]]:
    """People standing beside the walkways of one room in three, and pets in a few."""
    standing = [a for a in library.kind("person") if a.type == "person" and a.size_m[2] > 1.5]
    guests: list[Asset] = []
    if standing and rng.random() < 1 / 3:
        guests += _some(standing, int(rng.integers(1, 3)), rng)
    if rng.random() < 0.06:
        guests += _some(library.kind("animal"), 1, rng)
    bodies = [p.footprint for p in pieces if p.low_m < 1.8]
    found: list[tuple[Footprint, Asset, Tensor]] = []
    for guest in guests:
        free = free_space(plan, bodies)
        cells = free.cells_m()
        for _ in range(12):
            if not len(cells):
                break
            x, y = cells[int(rng.integers(len(cells)))]
            yaw = rng.uniform(0, 2 * math.pi)
            place = footprint_of(guest.lo_m, guest.hi_m, x, y, yaw)
            if any(place.overlaps(body) for body in (*bodies, *plan.ways(0.6))):
                continue
            if not any(zone.holds(place.corners(), 0.03) for zone in plan.zones):
                continue
            if free_space(plan, [*bodies, place]).area_m2 > max(MIN_FREE_M2, 0.7 * free.area_m2):
                bodies.append(place)
                found.append((place, guest, pose(x, y, -guest.lo_m[2], yaw)))
                break
    return found


def _some(items: Sequence[Asset], count: int, rng: np.random.Generator) -> list[Asset]:
    return [items[int(k)] for k in rng.permutation(len(items))[:count]]

"""Room types: which furniture each has, and furniture groups such as a table with chairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from lastseen_synth.assets import AssetLibrary
from lastseen_synth.floor_plan import FloorPlan, Footprint, free_space
from lastseen_synth.furniture import Arrangement, Piece, stand, wall_board
from lastseen_synth.shell import one_of

MIN_FREE_SHARE, MIN_FREE_M2 = 0.17, 1.8  # of the floor, for walking
# Expected number of pieces or groups per room type, for a room of 10 m2; the fraction is a probability.
FURNITURE_BY_ROOM_TYPE: dict[str, dict[str, float]] = {
    "living": {
        "sofa group": 1.0, "shelf": 1.3, "dining group": 0.5, "low_unit": 0.6, "armchair": 0.7,
        "cabinet": 0.6, "lamp": 0.6, "plant": 0.9, "wall_tv": 0.25, "music": 0.15, "hearth": 0.15,
        "desk group": 0.25, "bedside": 0.5, "odd": 0.4,
    },
    "bedroom": {
        "bed group": 1.0, "tall": 0.8, "desk group": 0.6, "shelf": 0.9, "cabinet": 0.7, "low_unit": 0.4,
        "armchair": 0.3, "plant": 0.4, "lamp": 0.4, "odd": 0.5,
    },
    "kitchen": {
        "counter run": 1.0, "dining group": 1.0, "shelf": 0.7, "cabinet": 0.4, "bench": 0.4, "plant": 0.3,
        "odd": 0.3,
    },
    "office": {
        "desk group": 1.8, "shelf": 1.8, "cabinet": 0.8, "dining group": 0.3, "plant": 0.6, "lamp": 0.3,
        "armchair": 0.3, "odd": 0.4,
    },
    "workshop": {
        "bench": 1.4, "shelf": 2.2, "desk group": 0.5, "cabinet": 0.8, "odd": 1.5, "stove": 0.5,
        "low_unit": 0.6,
    },
    "bathroom": {"bath": 2.6, "cabinet": 0.8, "stove": 0.6, "shelf": 0.8, "bedside": 0.6, "plant": 0.3},
}  # fmt: skip
SHARE_OF_ROOMS = {
    "living": 0.3, "bedroom": 0.2, "kitchen": 0.22, "office": 0.16, "workshop": 0.07, "bathroom": 0.05,
}  # fmt: skip
# Roles for walls that are still empty.
FILLERS = (
    "shelf", "shelf", "cabinet", "low_unit", "plant", "odd", "bedside", "armchair", "lamp", "desk", "tall",
)  # fmt: skip
WALL_TV_M = 1.0  # height of its lower edge


def arrange(
    plan: FloorPlan, library: AssetLibrary, rng: np.random.Generator, *, kind: str, max_triangles: int
) -> list[Piece]:
    """Furniture for a room type. Pieces that leave too little free floor are removed again."""
    room = Arrangement(plan, library, rng, max_triangles=max_triangles)
    area = sum(zone.area_m2 for zone in plan.zones)
    for step, often in FURNITURE_BY_ROOM_TYPE[kind].items():
        often *= min(2.4, 0.6 + area / 24)  # large rooms hold more of everything
        for _ in range(int(often) + int(rng.random() < often % 1)):
            _tried(room, GROUPS.get(step, _single(step)))
    for _ in range(int(0.5 * area)):
        _tried(room, _single(str(rng.choice(FILLERS))))
    woods = [s for s in library.surfaces if s.use == "wood"]
    for _ in range(int(rng.integers(4))):
        board = wall_board(one_of(woods, rng), rng)
        room.against_wall(board, low_m=rng.uniform(0.95, 1.45), access_m=0.0)
    return room.pieces


def _tried(room: Arrangement, step: Callable[[Arrangement], None]) -> None:
    before = len(room.pieces)
    step(room)
    while len(room.pieces) > before and not _walkable(room.plan, room.pieces):
        room.take_back()


def _walkable(plan: FloorPlan, pieces: Sequence[Piece]) -> bool:
    free = free_space(plan, [p.footprint for p in pieces if p.low_m < 1.8])
    if free.area_m2 < max(MIN_FREE_M2, MIN_FREE_SHARE * sum(zone.area_m2 for zone in plan.zones)):
        return False
    return all((free.holds(free_cells) > 0).any() for free_cells in _zone_cells(plan))


def _zone_cells(plan: FloorPlan) -> list[np.ndarray]:
    grids = []
    for zone in plan.zones:
        x, y = np.arange(zone.x0_m, zone.x1_m, 0.1), np.arange(zone.y0_m, zone.y1_m, 0.1)
        grids.append(np.stack(np.meshgrid(x, y), 2).reshape(-1, 2))
    return grids


def _single(role: str) -> Callable[[Arrangement], None]:
    def put(room: Arrangement) -> None:
        asset = room.pick(role)
        if asset is None:
            return
        if role == "wall_tv":
            room.against_wall(asset, low_m=WALL_TV_M)
        elif role in ("plant", "lamp"):
            room.against_wall(asset, access_m=0.0)
        elif role == "bench" and room.rng.random() < 0.4:
            room.in_the_room(asset, margin_m=0.7)
        else:
            room.against_wall(asset)

    return put


def _sofa_group(room: Arrangement) -> None:
    """A sofa, a low table in front of it, and a low unit at the opposite wall."""
    sofa_asset = room.pick("sofa")
    if sofa_asset is None:
        return
    sofa = room.against_wall(sofa_asset, access_m=0.0)
    if sofa is None:
        return
    place = sofa.footprint
    table = room.pick("low_table")
    if table is not None and room.rng.random() < 0.85:
        out = place.half_y_m + room.rng.uniform(0.3, 0.45) + table.size_m[1] / 2
        x, y = place.point(room.rng.normal(0, 0.1), -out)
        piece = stand(table, x, y, place.yaw_rad + room.rng.normal(0, 0.03), zone=sofa.zone)
        if room.fits(piece, near=True):
            room.add(piece)
    opposite = [
        number
        for number, wall in enumerate(room.plan.walls)
        if wall.zone == sofa.zone and sofa.wall is not None
        and abs(math.cos(wall.yaw_rad - place.yaw_rad) + 1) < 0.1
    ]  # fmt: skip
    unit = room.pick("low_unit")
    if unit is not None and opposite and room.rng.random() < 0.7:
        room.against_wall(unit, walls=opposite, access_m=0.4)


def _dining_group(room: Arrangement) -> None:
    table_asset, chair = room.pick("dining"), room.pick("chair")
    if table_asset is None:
        return
    table = (
        room.in_the_room(table_asset, margin_m=0.75)
        or room.in_the_room(table_asset, margin_m=0.45)
        or room.against_wall(table_asset, access_m=0.6)
    )
    if table is None or chair is None:
        return
    width, depth = table_asset.size_m[0], table_asset.size_m[1]
    for side in range(4):
        length = width if side % 2 == 0 else depth
        seats = max(1, int(length / 0.7)) if length > 0.55 else 0
        for k in range(seats):
            if room.rng.random() < 0.75:
                shift = ((k + 0.5) / seats - 0.5) * length + room.rng.normal(0, 0.03)
                room.seat(chair, table, side, shift, room.rng.uniform(0.02, 0.22))


def _desk_group(room: Arrangement) -> None:
    desk_asset, chair = room.pick("desk"), room.pick("chair")
    if desk_asset is None:
        return
    desk = room.against_wall(desk_asset, access_m=0.7)
    if desk is not None and chair is not None:
        room.seat(chair, desk, 0, room.rng.normal(0, 0.1), room.rng.uniform(0.03, 0.3))


def _bed_group(room: Arrangement) -> None:
    bed_asset = room.pick("bed")
    bed = room.against_wall(bed_asset, access_m=0.3) if bed_asset is not None else None
    if bed is None or bed.wall is None:
        return
    wall = room.plan.walls[bed.wall]
    middle = _along(wall.start, wall.direction, bed.footprint)
    for sign in (-1, 1):
        table = room.pick("bedside")
        if table is not None and room.rng.random() < 0.7:
            along = middle + sign * (bed.footprint.half_x_m + table.size_m[0] / 2 + 0.06)
            room.against_wall(table, walls=[bed.wall], along_m=along, access_m=0.0, tries=1)


def _along(start: tuple[float, float], direction: tuple[float, float], place: Footprint) -> float:
    return (place.x_m - start[0]) * direction[0] + (place.y_m - start[1]) * direction[1]


def _counter_run(room: Arrangement) -> None:
    """Cabinets side by side, a stove between them, a fridge at the end, cupboards above."""
    numbers = sorted(range(len(room.plan.walls)), key=lambda n: -_longest_free(room, n)[1])
    wall_number = numbers[int(room.rng.integers(min(2, len(numbers))))]
    start, length = _longest_free(room, wall_number)
    run = [room.pick("counter") for _ in range(7)]
    if room.rng.random() < 0.8:
        run.insert(int(room.rng.integers(1, 4)), room.pick("stove"))
    if room.rng.random() < 0.75:
        run.insert(0, room.pick("fridge"))
    along = start + 0.04
    for asset in run:
        if asset is None or along + asset.size_m[0] > start + min(length, 3.8):
            continue
        half = asset.size_m[0] / 2
        placed = room.against_wall(asset, walls=[wall_number], along_m=along + half, access_m=0.6, tries=1)
        along += asset.size_m[0] + 0.017 if placed is not None else 0.1
    upper = room.pick("upper")
    above = start + 0.7
    while upper is not None and above + upper.size_m[0] < along and room.rng.random() < 0.9:
        half = upper.size_m[0] / 2
        room.against_wall(upper, walls=[wall_number], along_m=above + half, low_m=1.42, tries=1)
        above += upper.size_m[0] + 0.017


def _longest_free(room: Arrangement, number: int) -> tuple[float, float]:
    """Start and length of the longest section of a wall without doors and passages."""
    wall = room.plan.walls[number]
    best, start = (0.0, 0.0), 0.0
    stops = sorted((h.from_m - 0.1, h.to_m + 0.1) for h in wall.holes if h.low_m < 0.85)
    for stop, after in [*stops, (wall.length_m, wall.length_m)]:
        if stop - start > best[1]:
            best = (start, stop - start)
        start = after
    return best


GROUPS: dict[str, Callable[[Arrangement], None]] = {
    "sofa group": _sofa_group,
    "dining group": _dining_group,
    "desk group": _desk_group,
    "bed group": _bed_group,
    "counter run": _counter_run,
}

"""Furniture: what a kind of room has in it, and where it stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from lastseen.synth.assets import Asset, Library
from lastseen.synth.layout import Footprint, Plan, footprint_of, free_space, pose

WALL_GAP_M = 0.02  # behind what stands at a wall: a skirting board
MIN_FREE_SHARE = 0.22  # of the floor, for walking
MAX_HEIGHT_M = 2.35


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """`wall` is the one at its back, or None."""

    asset: Asset
    footprint: Footprint
    transform: Tensor
    low_m: float
    zone: int
    wall: int | None = None

    @property
    def high_m(self) -> float:
        return self.low_m + self.asset.size_m[2]

    @property
    def support_z_m(self) -> float:
        return self.low_m + max((s.z_m for s in self.asset.supports), default=0.0)


def _top(asset: Asset) -> float:
    return max((s.z_m for s in asset.supports), default=0.0)


def _is(words: str) -> Callable[[Asset], bool]:
    return lambda asset: any(word in asset.name for word in words.split())


# Roles: which assets can play them. Types and sizes decide, so that any library can furnish a room.
ROLES: dict[str, Callable[[Asset], bool]] = {
    "sofa": lambda a: a.type == "sofa" and a.size_m[0] > 1.3 and a.size_m[2] > 0.5,
    "armchair": lambda a: a.type == "chair" and a.size_m[0] >= 0.65 and not _is("bench wheel seat")(a),
    "chair": lambda a: (
        a.type == "chair"
        and a.size_m[0] < 0.65
        and a.size_m[1] < 0.72
        and 0.7 < a.size_m[2] < 1.25
        and not _is("armchair baby child wheel bar")(a)
        and 0.35 < _top(a) < 0.6
    ),
    "dining": lambda a: a.type == "table" and 0.65 < _top(a) < 0.82 and _slab(a) and a.size_m[1] > 0.6,
    "desk": lambda a: a.type == "table" and 0.65 < _top(a) < 0.82 and a.size_m[1] < 0.9 and a.size_m[0] > 0.9,
    "low_table": lambda a: a.type == "table" and 0.3 < _top(a) < 0.6 and a.size_m[0] > 0.55,
    "bedside": lambda a: a.type in ("table", "cabinet") and 0.3 < _top(a) < 0.65 and a.size_m[0] < 0.62,
    "bench": lambda a: a.type in ("table", "counter") and _top(a) > 0.82 and a.size_m[2] < 1.8,
    "bed": lambda a: a.type == "bed" and a.size_m[1] > 1.7 and a.size_m[2] > 0.3,
    "shelf": lambda a: a.type == "shelf" and a.size_m[2] < MAX_HEIGHT_M and a.size_m[0] < 2.7,
    "low_unit": lambda a: a.type in ("shelf", "cabinet") and 0.4 < a.size_m[2] < 0.85 and a.size_m[0] > 0.75,
    "cabinet": lambda a: a.type == "cabinet" and 0.5 < a.size_m[2] < 1.6,
    "tall": lambda a: a.type == "cabinet" and a.size_m[2] >= 1.6,
    "counter": lambda a: (
        a.type in ("cabinet", "counter", "sink") and 0.8 < _top(a) < 0.92 and a.size_m[1] > 0.55
    ),
    "stove": lambda a: a.type == "appliance" and 0.7 < a.size_m[2] < 1.0,
    "fridge": lambda a: a.type == "appliance" and 1.1 < a.size_m[2] < 2.1 and a.size_m[0] > 0.5,
    "upper": lambda a: a.type == "wall" and 0.5 < a.size_m[2] < 0.9 and 0.25 < a.size_m[1] < 0.45,
    "bath": lambda a: a.type in ("bath", "sink") and a.size_m[2] > 0.4 and a.size_m[0] > 0.3,
    "plant": lambda a: a.type == "plant" and a.size_m[2] > 0.5,
    "lamp": lambda a: a.type == "lamp" and a.size_m[2] > 0.9,
    "radiator": lambda a: a.type == "radiator" and a.size_m[2] < 0.9,
    "music": lambda a: a.type == "instrument" and a.size_m[2] > 0.9,
    "odd": lambda a: a.type == "other" and a.size_m[2] > 0.4 and not _is("hanging fireplace screen")(a),
    "hearth": _is("fireplace"),
}
# Chance of each role in each kind of room; above 1: that many, and one more by chance.
PROGRAMMES: dict[str, tuple[tuple[str, float], ...]] = {
    "living": (
        ("sofa group", 1.0), ("shelf", 1.3), ("dining group", 0.5), ("low_unit", 0.6), ("armchair", 0.7),
        ("cabinet", 0.6), ("lamp", 0.6), ("plant", 0.9), ("music", 0.15), ("hearth", 0.15), ("desk group", 0.25),
        ("bedside", 0.5), ("odd", 0.4),
    ),
    "bedroom": (
        ("bed group", 1.0), ("tall", 0.8), ("desk group", 0.6), ("shelf", 0.9), ("cabinet", 0.7), ("low_unit", 0.4),
        ("armchair", 0.3), ("plant", 0.4), ("lamp", 0.4), ("odd", 0.5),
    ),
    "kitchen": (
        ("counter run", 1.0), ("dining group", 1.0), ("shelf", 0.7), ("cabinet", 0.4), ("bench", 0.4),
        ("plant", 0.3), ("odd", 0.3),
    ),
    "office": (
        ("desk group", 1.8), ("shelf", 1.8), ("cabinet", 0.8), ("dining group", 0.3), ("plant", 0.6), ("lamp", 0.3),
        ("armchair", 0.3), ("odd", 0.4),
    ),
    "workshop": (
        ("bench", 1.4), ("shelf", 2.2), ("desk group", 0.5), ("cabinet", 0.8), ("odd", 1.5), ("stove", 0.5),
        ("low_unit", 0.6),
    ),
    "bathroom": (("bath", 2.6), ("cabinet", 0.8), ("stove", 0.6), ("shelf", 0.8), ("bedside", 0.6), ("plant", 0.3)),
}  # fmt: skip
ROOM_KINDS = {"living": 0.3, "bedroom": 0.2, "kitchen": 0.22, "office": 0.16, "workshop": 0.07, "bathroom": 0.05}


def _slab(asset: Asset) -> bool:
    """A table with nothing on top of it."""
    return asset.size_m[2] - _top(asset) < 0.06


class Arrangement:
    """Furniture so far; every piece added keeps clear of the others, of the ways and of the walls."""

    def __init__(
        self, plan: Plan, library: Library, rng: np.random.Generator, *, max_triangles: int
    ) -> None:
        self.plan, self.rng = plan, rng
        self.pieces: list[Piece] = []
        self.triangles_left = max_triangles
        self._access: list[Footprint] = []
        self._ways = plan.ways(0.75)
        stock = [a for a in library.assets if a.kind == "furniture" or _stands(a)]
        self._stock = {role: [a for a in stock if fits(a)] for role, fits in ROLES.items()}

    def pick(self, role: str) -> Asset | None:
        """A random piece, rather one that is not here yet, and that the triangles left allow."""
        stock = self._stock[role]
        for _ in range(3):
            if not stock:
                return None
            asset = stock[int(self.rng.integers(len(stock)))]
            if len(asset.load()[0].triangles) <= self.triangles_left and asset.size_m[2] < self.plan.height_m:
                return asset
        return None

    def fits(self, piece: Piece, *, near: bool = False) -> bool:
        """`near`: it may stand where access is wanted, like a chair at a table."""
        place = piece.footprint
        if not self.plan.zones[piece.zone].holds(place.corners(), 0.01):
            return False
        if piece.low_m < 1.2 and any(place.overlaps(way) for way in self._ways):
            return False
        if piece.low_m < 1.2 and not near and any(place.overlaps(access) for access in self._access):
            return False
        return not any(
            piece.low_m < other.high_m and other.low_m < piece.high_m
            and place.grown(0.015).overlaps(other.footprint)
            for other in self.pieces
        )  # fmt: skip

    def add(self, piece: Piece, access_m: float = 0.0) -> Piece:
        self.pieces.append(piece)
        self.triangles_left -= len(piece.asset.load()[0].triangles)
        if access_m:
            self._access.append(front_of(piece, access_m))
        return piece

    def against_wall(
        self,
        asset: Asset,
        *,
        access_m: float = 0.55,
        low_m: float = 0.0,
        walls: Sequence[int] | None = None,
        along_m: float | None = None,
        tries: int = 30,
    ) -> Piece | None:
        """With its back to a wall; tall things not before windows."""
        numbers = list(range(len(self.plan.walls))) if walls is None else list(walls)
        half, depth = asset.size_m[0] / 2, asset.size_m[1]
        for _ in range(tries):
            number = int(self.rng.choice(numbers))
            wall = self.plan.walls[number]
            first, last = half + 0.03, wall.length_m - half - 0.03
            if last <= first:
                continue
            along = self.rng.uniform(first, last) if along_m is None else along_m
            if along_m is None and self.rng.random() < 0.35:
                along = first if self.rng.random() < 0.5 else last
            high = low_m + asset.size_m[2]
            if any(
                hole.from_m - 0.05 < along + half and along - half < hole.to_m + 0.05
                and hole.low_m < high and low_m < hole.high_m
                for hole in wall.holes
            ):  # fmt: skip
                continue
            x, y = wall.point(along, depth / 2 + WALL_GAP_M)
            piece = stand(asset, x, y, wall.yaw_rad, zone=wall.zone, wall=number, low_m=low_m)
            if not self.fits(piece):
                continue
            if access_m and low_m < 1.2:
                front = front_of(piece, access_m)
                if any(front.overlaps(other.footprint) for other in self.pieces):
                    continue
            return self.add(piece, access_m if low_m < 1.2 else 0.0)
        return None

    def in_the_room(self, asset: Asset, *, margin_m: float, tries: int = 25) -> Piece | None:
        """Away from the walls, more or less square to them."""
        for _ in range(tries):
            zone = self._zone()
            bounds = self.plan.zones[zone]
            x, y = self.rng.uniform(bounds.x0_m, bounds.x1_m), self.rng.uniform(bounds.y0_m, bounds.y1_m)
            yaw = self.rng.integers(4) * math.pi / 2 + self.rng.normal(0, 0.04)
            piece = stand(asset, x, y, yaw, zone=zone)
            if bounds.holds(piece.footprint.corners(), margin_m) and self.fits(piece):
                return self.add(piece)
        return None

    def _zone(self) -> int:
        areas = np.array([zone.area_m2 for zone in self.plan.zones])
        return int(self.rng.choice(len(areas), p=areas / areas.sum()))

    def seat(self, chair: Asset, table: Piece, side: int, shift_m: float, gap_m: float) -> Piece | None:
        """A chair that looks at a table's side: 0 front (-y), 1 right, 2 back, 3 left."""
        half = (table.footprint.half_x_m, table.footprint.half_y_m)[(side + 1) % 2]
        out = half + gap_m + chair.size_m[1] / 2
        local = ((shift_m, -out), (out, shift_m), (shift_m, out), (-out, shift_m))[side]
        x, y = table.footprint.point(*local)
        yaw = table.footprint.yaw_rad + (side + 2) * math.pi / 2 + self.rng.normal(0, 0.12)
        piece = stand(chair, x, y, yaw, zone=table.zone)
        return self.add(piece) if self.fits(piece, near=True) else None


def stand(
    asset: Asset,
    x_m: float,
    y_m: float,
    yaw_rad: float,
    *,
    zone: int,
    wall: int | None = None,
    low_m: float = 0.0,
) -> Piece:
    return Piece(
        asset=asset,
        footprint=footprint_of(asset.lo_m, asset.hi_m, x_m, y_m, yaw_rad),
        transform=pose(x_m, y_m, low_m - asset.lo_m[2], yaw_rad),
        low_m=low_m,
        zone=zone,
        wall=wall,
    )


def front_of(piece: Piece, depth_m: float) -> Footprint:
    """The floor before a piece (furniture looks to -y)."""
    place = piece.footprint
    x, y = place.point(0.0, -place.half_y_m - depth_m / 2 - 0.01)
    return Footprint(
        x_m=x, y_m=y, half_x_m=place.half_x_m * 0.9, half_y_m=depth_m / 2, yaw_rad=place.yaw_rad
    )


def _stands(asset: Asset) -> bool:
    """Small things that are furniture all the same: bedside tables, stools."""
    return asset.kind == "small" and asset.type in ("table", "cabinet", "chair") and min(asset.size_m) > 0.38


def arrange(
    plan: Plan, library: Library, rng: np.random.Generator, *, kind: str, max_triangles: int
) -> list[Piece]:
    """Furniture of a kind of room. What leaves too little floor to walk on is taken out again."""
    room = Arrangement(plan, library, rng, max_triangles=max_triangles)
    for step, often in PROGRAMMES[kind]:
        # Large rooms hold more of everything.
        often *= min(1.6, 0.55 + sum(z.area_m2 for z in plan.zones) / 35)
        for _ in range(int(often) + int(rng.random() < often % 1)):
            before = len(room.pieces)
            GROUPS.get(step, _single(step))(room)
            if len(room.pieces) > before and not _walkable(plan, room.pieces):
                for piece in room.pieces[before:]:
                    room.triangles_left += len(piece.asset.load()[0].triangles)
                del room.pieces[before:]
    return room.pieces


def _walkable(plan: Plan, pieces: Sequence[Piece]) -> bool:
    free = free_space(plan, [p.footprint for p in pieces if p.low_m < 1.8])
    if free.area_m2 < max(1.8, MIN_FREE_SHARE * sum(zone.area_m2 for zone in plan.zones)):
        return False
    return all((free.holds(free_cells) > 0).any() for free_cells in _zone_cells(plan))


def _zone_cells(plan: Plan) -> list[np.ndarray]:
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
        if role in ("plant", "lamp"):
            room.against_wall(asset, access_m=0.0)
        elif role == "bench" and room.rng.random() < 0.4:
            room.in_the_room(asset, margin_m=0.7)
        else:
            room.against_wall(asset)

    return put


def _sofa_group(room: Arrangement) -> None:
    """A sofa, a low table before it, and what it looks at on the other side."""
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
    middle = math.dist(wall.start, wall.point(0, 0)) + _along(wall.start, wall.direction, bed.footprint)
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
    """Start and length of the longest stretch of a wall without doors and passages."""
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

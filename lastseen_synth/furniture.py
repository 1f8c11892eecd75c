"""Furniture: which assets can play which role in a room, and where they can stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import Tensor

from lastseen_synth.assets import Asset, AssetLibrary, Credit, Support, Surface
from lastseen_synth.floor_plan import FloorPlan, Footprint, footprint_of, pose
from lastseen_synth.meshes import Material, Mesh
from lastseen_synth.shell import QuadMeshBuilder, plain
from lastseen_synth.simplify import simplified

WALL_GAP_M = 0.02  # between furniture and wall, for the skirting board
MAX_HEIGHT_M = 2.35
MAX_TRIANGLES = 1100  # of a chair or a plant


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A placed piece of furniture; `wall` is the number of the wall at its back, or None."""

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
    "wall_tv": lambda a: a.type == "wall" and "tv" in a.name,
    "bath": lambda a: a.type in ("bath", "sink") and a.size_m[2] > 0.4 and a.size_m[0] > 0.3,
    "plant": lambda a: a.type == "plant" and a.size_m[2] > 0.5,
    "lamp": lambda a: a.type == "lamp" and a.size_m[2] > 0.9,
    "radiator": lambda a: a.type == "radiator" and a.size_m[2] < 0.9,
    "music": lambda a: a.type == "instrument" and a.size_m[2] > 0.9,
    "odd": lambda a: a.type == "other" and a.size_m[2] > 0.4 and not _is("hanging fireplace screen")(a),
    "hearth": _is("fireplace"),
}


def _slab(asset: Asset) -> bool:
    """Whether its support is its highest part, as of a plain table."""
    return asset.size_m[2] - _top(asset) < 0.06


@lru_cache(maxsize=1024)
def mesh_of(asset: Asset) -> Mesh:
    """The rendered mesh. Furniture that objects are put on is not simplified, or they would float."""
    if asset.type in ("table", "shelf", "cabinet", "counter", "sink"):
        return asset.load()[0]
    large = asset.type in ("sofa", "bed") or asset.kind == "person"
    return simplified(asset.load()[0], 2 * MAX_TRIANGLES if large else MAX_TRIANGLES)


def wall_board(surface: Surface | None, rng: np.random.Generator) -> Asset:
    """A board on two brackets, to be hung on a wall."""
    half, depth, thick, drop = rng.uniform(0.25, 0.6), rng.uniform(0.18, 0.28), 0.025, 0.12
    maker = QuadMeshBuilder()
    maker.box((-half, -depth / 2, drop), (half, depth / 2, drop + thick), 0, tile_m=0.6)
    for x in (-0.7 * half, 0.7 * half):
        maker.box((x - 0.01, depth / 2 - 0.02, 0), (x + 0.01, depth / 2, drop), 1)
        maker.box((x - 0.01, -0.3 * depth, drop - 0.02), (x + 0.01, depth / 2 - 0.02, drop), 1)
    wood = plain((196, 170, 130)) if surface is None else Material(texture=surface.texture(), specular=0.03)
    loaded = (maker.mesh(), (wood, plain((60, 60, 62))))
    top = drop + thick
    return Asset(
        name=f"wall_board-{half:.3f}-{depth:.3f}",
        kind="furniture",
        type="shelf",
        split="train" if surface is None else surface.split,
        family="wall_board",
        lo_m=(-half, -depth / 2, 0.0),
        hi_m=(half, depth / 2, top),
        supports=(Support(z_m=top, x0_m=-half, y0_m=-depth / 2, x1_m=half, y1_m=depth / 2),),
        credit=Credit(
            title="wall board",
            author="the lastseen authors",
            licence="Apache-2.0",
            source="drawn by lastseen_synth.furniture",
        )
        if surface is None
        else surface.credit,
        loader=lambda: loaded,
    )


class Arrangement:
    """Furniture placed so far; pieces overlap neither each other nor walls nor walkways."""

    def __init__(
        self, plan: FloorPlan, library: AssetLibrary, rng: np.random.Generator, *, max_triangles: int
    ) -> None:
        self.plan, self.rng = plan, rng
        self.pieces: list[Piece] = []
        self.triangles_left = max_triangles
        self._access: list[Footprint] = []
        self._added: list[tuple[Piece, Footprint | None]] = []
        self._ways = plan.ways(0.75)
        stock = [a for a in library.assets if a.kind == "furniture" or _stands(a)]
        self._stock = {role: [a for a in stock if fits(a)] for role, fits in ROLES.items()}

    def pick(self, role: str) -> Asset | None:
        """A random asset for the role that fits the triangle budget and the ceiling; None if none is
        found."""
        stock = self._stock[role]
        for _ in range(3):
            if not stock:
                return None
            asset = stock[int(self.rng.integers(len(stock)))]
            if len(mesh_of(asset).triangles) <= self.triangles_left and asset.size_m[2] < self.plan.height_m:
                return asset
        return None

    def fits(self, piece: Piece, *, near: bool = False) -> bool:
        """`near`: it may stand in the access area of another piece, like a chair at a table."""
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
        access = front_of(piece, access_m) if access_m else None
        self.pieces.append(piece)
        self._added.append((piece, access))
        self.triangles_left -= len(mesh_of(piece.asset).triangles)
        if access is not None:
            self._access.append(access)
        return piece

    def take_back(self) -> None:
        piece, access = self._added.pop()
        self.pieces.remove(piece)
        self.triangles_left += len(mesh_of(piece.asset).triangles)
        if access is not None:
            self._access.remove(access)

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
        """Puts it with its back to a wall, not in front of doors and windows that it would cover."""
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
        """Puts it away from the walls, roughly parallel to them."""
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
        """Puts a chair that faces a side of a table: 0 front (-y), 1 right, 2 back, 3 left."""
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
    """The floor in front of a piece (furniture faces -y)."""
    place = piece.footprint
    x, y = place.point(0.0, -place.half_y_m - depth_m / 2 - 0.01)
    return Footprint(x_m=x, y_m=y, half_x_m=place.half_x_m * 0.9, half_y_m=depth_m / 2, yaw_rad=place.yaw_rad)


def _stands(asset: Asset) -> bool:
    """Assets of kind "small" that are used as furniture: bedside tables, stools."""
    return asset.kind == "small" and asset.type in ("table", "cabinet", "chair") and min(asset.size_m) > 0.38

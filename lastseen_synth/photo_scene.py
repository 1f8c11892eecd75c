"""Scenes in front of a backdrop: groups of props on furniture, on the ground or in mid-air.

The queried thing is placed by the same rule as all other props, so that its placement gives nothing away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lastseen_synth.backdrop import Backdrop
from lastseen_synth.geometry import Poses
from lastseen_synth.meshes import Material, Mesh, MeshScene, SceneBuilder
from lastseen_synth.object_pool import Brightness, ObjectPool, Prop
from lastseen_synth.shadow import Lights
from lastseen_synth.texture import colour_texture

FURNITURE_SHARE = 0.6  # of stands; the others are blocks and boards


@dataclass(frozen=True, kw_only=True)
class Contact:
    """Footprint of a prop on its support, for a contact shadow."""

    place_m: tuple[float, float, float]
    half_m: tuple[float, float]
    turn_rad: float
    height_m: float


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A prop that moves with the head, along `points_m` [K, 3] in camera coordinates at `times_s` [K]. `pose`
    [4, 4] rotates it and centres it at the origin, x right, y away from the viewer, z up."""

    instance: int
    times_s: np.ndarray
    points_m: np.ndarray
    pose: np.ndarray
    sway_rad: float

    def transforms(self, world_to_camera: Tensor, moments_s: Tensor) -> Tensor:
        """float64 [S, 4, 4] to world coordinates, at these moments [S] of the head."""
        times = moments_s.cpu().numpy()
        smooth = np.stack([np.interp(times, self.times_s, column) for column in self.points_m.T], 1)
        smooth += 0.006 * np.sin(times[:, None] * np.array([5.1, 6.7, 4.3]) + np.arange(3))
        local = np.tile(np.eye(4), (len(times), 1, 1))
        for matrix, moment in zip(local, times):
            matrix[:3, :3] = _UPRIGHT @ _turned(self.sway_rad * float(np.sin(1.7 * moment)))
        local = local @ self.pose
        local[:, :3, 3] += smooth
        return torch.linalg.inv(world_to_camera) @ torch.from_numpy(local).to(world_to_camera)


_UPRIGHT = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # x right, y away, z up -> x right, y down, z ahead


@dataclass(kw_only=True)
class PhotoScene:
    """A scene under construction.

    | contacts  | footprints of props on their supports                             |
    | points_m  | [3] each: centres of the props                                    |
    | thing     | instance of the queried thing, None if it is absent               |
    | thing_m   | [3]: position of it, or of its substitute                         |
    | nearest_m | distance to the nearest prop                                      |
    | names     | of all items, including photographs of the backdrop               |
    """

    backdrop: Backdrop
    lights: Lights
    builder: SceneBuilder = field(default_factory=SceneBuilder)
    contacts: list[Contact] = field(default_factory=list)
    points_m: list[np.ndarray] = field(default_factory=list)
    carried: list[Carried] = field(default_factory=list)
    thing: int | None = None
    thing_m: np.ndarray | None = None
    nearest_m: float = 5.0
    names: set[str] = field(default_factory=set)

    @cached_property
    def bright(self) -> Brightness:
        return Brightness.of(self.backdrop, self.lights)

    def scene(self, device: torch.device | str) -> MeshScene:
        return self.builder.build(device)

    def poses(self, world_to_camera: Tensor, moments_s: Tensor) -> Poses | None:
        """Poses of the carried props."""
        if not self.carried:
            return None
        transforms = [carried.transforms(world_to_camera, moments_s) for carried in self.carried]
        return Poses(instances=tuple(c.instance for c in self.carried), transforms=torch.stack(transforms, 1))

    def put(
        self, prop: Prop, place_m: np.ndarray, facing_rad: float, tilt_rad: tuple[float, float] = (0.0, 0.0)
    ) -> int:
        """Puts a prop on `place_m`, oriented for a viewer who looks along `facing_rad`."""
        turn = facing_rad - np.pi / 2 + prop.spin_rad
        transform = centred(prop, _turned(turn) @ _tilted(*tilt_rad))
        middle = place_m + np.array([0, 0, prop.size_m[2] / 2])
        transform[:3, 3] += middle
        self.points_m.append(middle)
        return self.builder.add(prop.mesh, prop.materials, torch.from_numpy(transform))

    def rest(self, prop: Prop, place_m: np.ndarray, facing_rad: float) -> int:
        """`put`, with a contact shadow."""
        width, depth, height = prop.size_m.tolist()
        self.add_contact(
            place_m, (width / 2, max(depth / 2, 0.01)), facing_rad - np.pi / 2 + prop.spin_rad, height
        )
        return self.put(prop, place_m, facing_rad)

    def add_contact(
        self, place_m: np.ndarray, half_m: tuple[float, float], turn_rad: float, height_m: float
    ) -> None:
        x, y, z = place_m.tolist()
        self.contacts.append(Contact(place_m=(x, y, z), half_m=half_m, turn_rad=turn_rad, height_m=height_m))

    def carry(self, prop: Prop, times_s: np.ndarray, points_m: np.ndarray, *, sway_rad: float) -> int:
        """Adds a prop that moves with the head; see `Carried`."""
        number = self.builder.add(prop.mesh, prop.materials)
        pose = centred(prop, _turned(prop.spin_rad))
        self.carried.append(
            Carried(instance=number, times_s=times_s, points_m=points_m, pose=pose, sway_rad=sway_rad)
        )
        return number


def centred(prop: Prop, rotation: np.ndarray) -> np.ndarray:
    """[4, 4]: rotated about its centre, which moves to the origin."""
    transform = np.eye(4)
    transform[:3, :3] = rotation
    transform[:3, 3] = -rotation @ (prop.low_m + prop.size_m / 2)
    return transform


def _turned(angle: float) -> np.ndarray:
    """About the vertical axis."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def _tilted(forward: float, sideways: float) -> np.ndarray:
    (cf, cs), (sf, ss) = np.cos([forward, sideways]), np.sin([forward, sideways])
    about_x = np.array([[1, 0, 0], [0, cf, -sf], [0, sf, cf]])
    return about_x @ np.array([[cs, 0, ss], [0, 1, 0], [-ss, 0, cs]])


@dataclass(frozen=True, kw_only=True)
class GroupPlace:
    """Place of a group of props relative to the centre of the backdrop. kind: stand, ground or air."""

    yaw_rad: float
    distance_m: float
    kind: str

    def local(self, right_m: float, back_m: float, z_m: float) -> np.ndarray:
        """World coordinates of a point: to the right, further away, up."""
        ahead = np.array([np.cos(self.yaw_rad), np.sin(self.yaw_rad)])
        right = np.array([ahead[1], -ahead[0]])
        return np.array([*(ahead * (self.distance_m + back_m) + right * right_m), z_m])

    def frame(self) -> np.ndarray:
        """[4, 4]: from x right, y away, z up around the spot's foot into the world."""
        matrix = np.eye(4)
        matrix[:3, :3] = _turned(self.yaw_rad - np.pi / 2)
        matrix[:3, 3] = self.local(0, 0, 0)
        return matrix


@dataclass(frozen=True, kw_only=True)
class _Footprint:
    """Extent of a group, in the axes of its place."""

    left_m: float
    right_m: float
    front_m: float
    back_m: float

    @property
    def width_m(self) -> float:
        return self.right_m - self.left_m

    @property
    def depth_m(self) -> float:
        return self.back_m - self.front_m

    @property
    def middle_m(self) -> float:
        return (self.left_m + self.right_m) / 2


def place_group(
    photo_scene: PhotoScene,
    pool: ObjectPool,
    spot: GroupPlace,
    props: Sequence[Prop],
    rng: np.random.Generator,
    *,
    hidden: tuple[int, Prop] | None = None,
) -> list[tuple[int, np.ndarray]]:
    """Put the props side by side at this spot: the instance and the middle [3] of each. `hidden`: the number
    of one of them, and what to put before it."""
    radii = [_radius(p) for p in props]
    gaps = rng.uniform(0.005, 0.5, len(props)) * np.array(radii)
    lefts = np.cumsum([0.0, *(2 * r + g for r, g in zip(radii, gaps))])
    centres = lefts[:-1] + radii - lefts[-1] * rng.uniform(0.3, 0.7)
    reach = max(radii)
    room_before = 2 * _radius(hidden[1]) + 0.02 if hidden else 0.0
    needs = _Footprint(
        left_m=float(centres[0] - radii[0]),
        right_m=float(centres[-1] + radii[-1]),
        front_m=-reach - room_before,
        back_m=reach,
    )
    spot = replace(spot, distance_m=max(spot.distance_m, 0.18 - needs.front_m))
    height_m = _support(photo_scene, pool, spot, needs, rng)
    placed = []
    for number, (prop, right, radius) in enumerate(zip(props, centres.tolist(), radii)):
        back = float(rng.uniform(-0.6, 0.6)) * (reach - radius)
        rise = height_m + (float(rng.normal(0, 0.1)) * spot.distance_m if spot.kind == "air" else 0.0)
        instance = _stand(photo_scene, spot, prop, spot.local(right, back, rise), rng)
        placed.append((instance, photo_scene.points_m[-1]))
        if hidden and number == hidden[0]:
            before = hidden[1]
            aside = float(rng.uniform(-1, 1)) * 0.8 * (radius + _radius(before))
            lift = float(rng.normal(0, 0.3)) * prop.size_m[2] if spot.kind == "air" else 0.0
            place = spot.local(right + aside, back - radius - _radius(before) - 0.01, rise + lift)
            _stand(photo_scene, spot, before, place, rng)
    photo_scene.nearest_m = min(photo_scene.nearest_m, spot.distance_m + needs.front_m)
    return placed


def _radius(prop: Prop) -> float:
    """Half its horizontal extent under any rotation; cards all face the viewer."""
    return float(np.hypot(*prop.size_m[:2]) if prop.cutout is None else prop.size_m[0]) / 2


def _stand(
    photo_scene: PhotoScene, spot: GroupPlace, prop: Prop, place_m: np.ndarray, rng: np.random.Generator
) -> int:
    if spot.kind == "air":
        forward, sideways = rng.normal(0, [0.2, 0.25]).tolist()
        return photo_scene.put(prop, place_m, spot.yaw_rad, (forward, sideways))
    return photo_scene.rest(prop, place_m, spot.yaw_rad)


def _support(
    photo_scene: PhotoScene, pool: ObjectPool, spot: GroupPlace, needs: _Footprint, rng: np.random.Generator
) -> float:
    """Adds the support of a group; returns its height."""
    eye = photo_scene.backdrop.eye_m
    if spot.kind == "ground":
        return 0.0
    if spot.kind == "air":
        return eye + float(rng.normal(-0.25, 0.2)) * spot.distance_m
    if rng.random() < FURNITURE_SHARE:
        for number in rng.permutation(len(pool.stands))[:12]:
            asset, top = pool.stands[number]
            if top.x1_m - top.x0_m < 0.8 * needs.width_m or top.y1_m - top.y0_m < 0.9 * needs.depth_m:
                continue
            if top.z_m > eye - 0.3 or asset.lo_m[1] + top.y0_m < -spot.distance_m:
                continue
            mesh, materials = asset.load()
            # The group stands at the front edge of the support; fronts face -y.
            shift = np.array([needs.middle_m - (top.x0_m + top.x1_m) / 2, needs.front_m - top.y0_m - 0.03, 0])
            frame = spot.frame()
            frame[:3, 3] += frame[:3, :3] @ shift
            photo_scene.builder.add(mesh, materials, torch.from_numpy(frame))
            (x0, y0, _), (x1, y1, _) = asset.lo_m, asset.hi_m
            foot = frame[:3, 3] + frame[:3, :3] @ np.array([(x0 + x1) / 2, (y0 + y1) / 2, 0])
            photo_scene.add_contact(foot, ((x1 - x0) / 2, (y1 - y0) / 2), spot.yaw_rad - np.pi / 2, 0.5)
            return top.z_m
    aside, before, behind = rng.uniform([0.03, 0.01, 0.02], [0.6, 0.08, 0.4]).tolist()
    height = eye - float(rng.uniform(0.25, 0.75)) * min(spot.distance_m, 1.4)
    bottom = 0.0 if rng.random() < 0.6 else height - float(rng.uniform(0.02, 0.07))  # a cabinet or a board
    corner = np.array([needs.left_m - aside, needs.front_m - before, bottom])
    size = np.array([needs.width_m + 2 * aside, needs.depth_m + before + behind, height - bottom])
    mesh, material = _block(corner, size, pool, rng)
    photo_scene.builder.add(mesh, (material,), torch.from_numpy(spot.frame()))
    if bottom == 0:
        right, back, _ = (corner + size / 2).tolist()
        foot = spot.local(right, back, 0)
        photo_scene.add_contact(
            foot, (float(size[0]) / 2, float(size[1]) / 2), spot.yaw_rad - np.pi / 2, height
        )
    return height


def _block(
    corner: np.ndarray, size: np.ndarray, pool: ObjectPool, rng: np.random.Generator
) -> tuple[Mesh, Material]:
    """A textured box in real-world texture scale."""
    surface = pool.surfaces[int(rng.integers(len(pool.surfaces)))] if pool.surfaces else None
    tile = surface.metres if surface else 1.0
    positions: list[np.ndarray] = []
    normals, uv, triangles = [], [], []
    for axis in range(3):
        a, b = (axis + 1) % 3, (axis + 2) % 3
        for side in (0, 1):
            square = np.zeros((4, 3))
            square[:, axis] = side * size[axis]
            square[:, a], square[:, b] = np.array([0, 1, 1, 0]) * size[a], np.array([0, 0, 1, 1]) * size[b]
            along, up = (a, b) if b == 2 or axis == 2 else (b, a)
            normal = np.zeros(3)
            normal[axis] = 2 * side - 1
            order = [[0, 1, 2], [0, 2, 3]] if side else [[0, 2, 1], [0, 3, 2]]
            triangles.append(np.array(order) + 4 * len(positions))
            positions.append(square + corner)
            normals.append(np.tile(normal, (4, 1)))
            uv.append(square[:, [along, up]] / tile)
    mesh = Mesh(
        positions_m=torch.from_numpy(np.concatenate(positions)),
        normals=torch.from_numpy(np.concatenate(normals)),
        uv=torch.from_numpy(np.concatenate(uv)),
        triangles=torch.from_numpy(np.concatenate(triangles)),
    )
    texture = surface.texture() if surface else colour_texture(rng.integers(60, 230, 3).tolist())
    red, green, blue = (rng.uniform(0.6, 1.0) * rng.uniform(0.9, 1.0, 3)).tolist()
    return mesh, Material(texture=texture, tint=(red, green, blue), specular=0.03)


def contact_shadow(contacts: Sequence[Contact], points_m: Tensor) -> Tensor:
    """float32 [B, 1, H, W]: light factor of contact shadows at points [B, 3, H, W]."""
    x, y, z = points_m.unbind(1)
    light = torch.ones_like(x)
    for contact in contacts:
        cx, cy, cz = contact.place_m
        cosine, sine = float(np.cos(contact.turn_rad)), float(np.sin(contact.turn_rad))
        dx, dy = x - cx, y - cy
        across = ((dx * cosine + dy * sine).abs() - 0.8 * contact.half_m[0]).clamp(min=0)
        along = ((dy * cosine - dx * sine).abs() - 0.8 * contact.half_m[1]).clamp(min=0)
        reach = 0.25 * min(contact.height_m, 2.5 * sum(contact.half_m)) + 0.01
        near = torch.exp(-(across.square() + along.square()) / (2 * reach**2) - ((z - cz) / 0.02).square())
        light = light * (1 - 0.6 * near)
    return light[:, None]

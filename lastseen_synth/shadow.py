"""Lights and shadow maps.

A lamp has a cube map of six faces, the sun one map from far away. Maps of static geometry are rendered once
per scene; moving instances get one map per frame and light, aimed at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from lastseen_synth.geometry import Cameras, Geometry, Poses, look_at
from lastseen_synth.raster import depth_test, project, spans_of, take, triangles_in_view

SUN_DISTANCE_M = 300.0  # nearly parallel light, within float32 precision
MAX_SLOPE = 8.0  # limit of the depth slope of a surface seen edge-on by the light


@dataclass(frozen=True, kw_only=True)
class Lights:
    """Colours are linear light, [..., 3] for all frames or [B, ..., 3] one by one, in units of the exposure.

    | lamps_m         | [L, 3] positions                                                         |
    | lamp_colours    | [L, 3] or [B, L, 3]: what arrives at 1 m                                  |
    | lamp_radius_m   | softens the fall-off close by; what is nearer to a lamp casts no shadow   |
    | sun_direction   | [3] the way its light travels, or None                                    |
    | sun_colour      | [3] or [B, 3]                                                             |
    | sky_colour      | [3] or [B, 3] ambient light on surfaces that face up                      |
    | ground_colour   | [3] or [B, 3] ambient light on surfaces that face down                    |
    """

    lamps_m: Tensor
    lamp_colours: Tensor
    sky_colour: Tensor
    ground_colour: Tensor
    lamp_radius_m: float = 0.1
    sun_direction: Tensor | None = None
    sun_colour: Tensor | None = None

    def __post_init__(self) -> None:
        if self.lamp_colours.shape[-2:] != self.lamps_m.shape:
            raise ValueError(
                f"{len(self.lamps_m)} lamps need colours [{len(self.lamps_m)}, 3], "
                f"got {list(self.lamp_colours.shape)}"
            )
        if (self.sun_direction is None) != (self.sun_colour is None):
            raise ValueError("a sun needs both sun_direction and sun_colour")

    def positions_m(self) -> Tensor:
        """[lamps and sun, 3] float64."""
        if self.sun_direction is None:
            return self.lamps_m.double()
        sun = -torch.nn.functional.normalize(self.sun_direction.double(), dim=0) * SUN_DISTANCE_M
        return torch.cat([self.lamps_m.double(), sun[None]])

    def colours(self) -> Tensor:
        """[lamps and sun, 3] or [B, lamps and sun, 3]."""
        if self.sun_colour is None:
            return self.lamp_colours
        lamps, sun = self.lamp_colours, self.sun_colour[..., None, :]
        frames = [c.shape[0] for c in (lamps, sun) if c.ndim == 3]
        if frames:
            lamps, sun = lamps.expand(frames[0], *lamps.shape[-2:]), sun.expand(frames[0], 1, 3)
        return torch.cat([lamps, sun], -2)

    def frames(self, start: int, stop: int) -> Lights:
        sun = self.sun_colour
        return replace(
            self,
            lamp_colours=self.lamp_colours[start:stop] if self.lamp_colours.ndim == 3 else self.lamp_colours,
            sun_colour=sun[start:stop] if sun is not None and sun.ndim == 2 else sun,
            sky_colour=self.sky_colour[start:stop] if self.sky_colour.ndim == 2 else self.sky_colour,
            ground_colour=self.ground_colour[start:stop]
            if self.ground_colour.ndim == 2
            else self.ground_colour,
        )

    def to(self, device: torch.device | str) -> Lights:
        return replace(
            self,
            lamps_m=self.lamps_m.to(device),
            lamp_colours=self.lamp_colours.to(device),
            sky_colour=self.sky_colour.to(device),
            ground_colour=self.ground_colour.to(device),
            sun_direction=None if self.sun_direction is None else self.sun_direction.to(device),
            sun_colour=None if self.sun_colour is None else self.sun_colour.to(device),
        )


@dataclass(frozen=True, kw_only=True)
class ShadowMaps:
    """N square maps of inverse depth.

    | inverse_depth | float32 [N * size * size], 0 where the light sees nothing                    |
    | views         | float32 [10, N]: world-to-map rotation, row after row, and focal length in px |
    | blur_px       | width of the box filter of the shadow test, 1 or more                         |
    """

    inverse_depth: Tensor
    views: Tensor
    size_px: int
    blur_px: int


def static_shadow_maps(
    geometry: Geometry, lights: Lights, *, size_px: int = 512, blur_px: int = 2, moving: Sequence[int] = ()
) -> ShadowMaps:
    """Shadow maps without the `moving` instances. Maps 6 i to 6 i + 5: lamp i; the last: sun."""
    if moving:
        geometry = geometry.only([i for i in range(geometry.instances) if i not in set(moving)])
    device = geometry.positions_m.device
    maps, views = [torch.zeros(0, size_px, size_px, device=device)], [torch.zeros(10, 0, device=device)]
    for lamp in lights.lamps_m.double():
        cameras = _cube_cameras(lamp, size_px, blur_px, lights.lamp_radius_m)
        maps.append(_inverse_depth(geometry, cameras))
        views.append(_views(cameras))
    if lights.sun_direction is not None:
        low, high = geometry.positions_m.amin(1), geometry.positions_m.amax(1)
        middle, radius = ((low + high) / 2)[None], (high - low).norm()[None] / 2
        sun = lights.positions_m()[-1:]
        cameras = _aimed_cameras(sun, middle, radius, size_px, blur_px, lights.lamp_radius_m)
        maps.append(_inverse_depth(geometry, cameras))
        views.append(_views(cameras))
    return ShadowMaps(
        inverse_depth=torch.cat(maps).flatten(), views=torch.cat(views, 1), size_px=size_px, blur_px=blur_px
    )


def moving_shadow_maps(
    geometry: Geometry, lights: Lights, poses: Poses, *, size_px: int = 192, blur_px: int = 2
) -> ShadowMaps:
    """Shadow maps of the posed instances only: map b * lights + l for light l in frame b.

    One map holds all instances, so its resolution is high if they are close together, as hand and object are.
    """
    moving = geometry.only(poses.instances)
    middles, radii = [], []
    for v0, v1 in pairwise(moving.vertex_start):
        low, high = moving.positions_m[:, v0:v1].amin(1), moving.positions_m[:, v0:v1].amax(1)
        middles.append((low + high) / 2)
        radii.append((high - low).norm() / 2)
    transforms = poses.transforms.to(moving.positions_m)
    middle = (transforms[:, :, :3, :3] @ torch.stack(middles)[:, :, None])[..., 0] + transforms[:, :, :3, 3]
    centre = middle.mean(1)
    radius = ((middle - centre[:, None]).norm(dim=2) + torch.stack(radii)).amax(1)
    positions = lights.positions_m()
    frames, count = len(transforms), len(positions)
    cameras = _aimed_cameras(
        positions.repeat(frames, 1),
        centre.repeat_interleave(count, 0),
        radius.repeat_interleave(count, 0),
        size_px,
        blur_px,
        lights.lamp_radius_m,
    )
    repeated = Poses(
        instances=tuple(range(moving.instances)), transforms=transforms.repeat_interleave(count, 0)
    )
    maps = _inverse_depth(moving, cameras, repeated)
    return ShadowMaps(inverse_depth=maps.flatten(), views=_views(cameras), size_px=size_px, blur_px=blur_px)


def _cube_focal_px(size_px: int, blur_px: int) -> float:
    return size_px / 2 - blur_px / 2 - 1  # wider than 90 degrees, so that the filter stays inside the map


def _cube_cameras(lamp_m: Tensor, size_px: int, blur_px: int, near_m: float) -> Cameras:
    """Six cameras along +x, +y, +z, -x, -y, -z, with the other two axes to the right and down.

    Half of them are mirrored, which does not matter to depth maps, and a look-up needs no rotation.
    """
    matrices = torch.zeros(6, 4, 4, dtype=torch.float64, device=lamp_m.device)
    for axis in range(3):
        right, down = (other for other in range(3) if other != axis)
        for face, sign in ((axis, 1.0), (axis + 3, -1.0)):
            matrices[face, 0, right] = matrices[face, 1, down] = matrices[face, 3, 3] = 1.0
            matrices[face, 2, axis] = sign
    matrices[:, :3, 3] = -(matrices[:, :3, :3] @ lamp_m)
    focal = torch.full((6,), _cube_focal_px(size_px, blur_px), dtype=torch.float64, device=lamp_m.device)
    return _square_cameras(matrices, focal, size_px, near_m)


def _aimed_cameras(
    eyes_m: Tensor, middles_m: Tensor, radii_m: Tensor, size_px: int, blur_px: int, near_m: float
) -> Cameras:
    """Cameras that just contain a sphere. A light inside the sphere gets the widest view of a single map."""
    sine = (radii_m / (middles_m - eyes_m).norm(dim=1).clamp(min=1e-6)).clamp(1e-6, 0.97)
    focal = (size_px / 2 - blur_px / 2 - 1) * (1 - sine**2).sqrt() / sine
    return _square_cameras(look_at(eyes_m, middles_m), focal, size_px, near_m)


def _square_cameras(world_to_camera: Tensor, focal_px: Tensor, size_px: int, near_m: float) -> Cameras:
    return Cameras(
        world_to_camera=world_to_camera,
        focal_px=focal_px[:, None].expand(-1, 2),
        centre_px=torch.full_like(focal_px, size_px / 2)[:, None].expand(-1, 2),
        width_px=size_px,
        height_px=size_px,
        near_m=near_m,
    )


def _views(cameras: Cameras) -> Tensor:
    return torch.cat([cameras.world_to_camera[:, :3, :3].flatten(1), cameras.focal_px[:, :1]], 1).T.float()


def _inverse_depth(geometry: Geometry, cameras: Cameras, poses: Poses | None = None) -> Tensor:
    triangles = triangles_in_view(geometry, project(geometry, cameras, poses), cameras)
    rows = spans_of(triangles, cameras)
    return depth_test(rows, len(cameras), cameras.height_px, cameras.width_px).inverse_depth


def lamp_light(maps: ShadowMaps, lamp: int, from_lamp: Tensor, normal: Tensor) -> Tensor:
    """Unshadowed share 0..1 [M] of a lamp's light at points `from_lamp` [3, M] relative to it.

    `normal` [3, M] is the geometric normal of the triangle.
    """
    depth, axis = from_lamp.abs().max(0)
    along_x, along_z = axis == 0, axis == 2
    behind = from_lamp.gather(0, axis[None])[0] < 0
    (x, y), (normal_x, normal_y) = (
        (torch.where(along_x, v[1], v[0]), torch.where(along_z, v[1], v[2])) for v in (from_lamp, normal)
    )
    number = (6 * lamp + axis + 3 * behind).int()
    focal = _cube_focal_px(maps.size_px, maps.blur_px)
    facing = (normal * from_lamp).sum(0)
    return _free_share(maps, number, focal, x, y, 1 / depth.clamp(min=1e-3), normal_x, normal_y, facing)


def sun_light(maps: ShadowMaps, from_sun: Tensor, normal: Tensor) -> Tensor:
    """As `lamp_light`. Points outside the sun's map are lit."""
    number = maps.views.shape[1] - 1
    numbers = torch.full_like(from_sun[0], number, dtype=torch.int32)
    return _aimed_light(maps, numbers, maps.views[:, number], from_sun, normal)


def moving_light(maps: ShadowMaps, number: Tensor, from_light: Tensor, normal: Tensor) -> Tensor:
    """As `lamp_light`, by map `number` int32 [M] of the moving instances."""
    return _aimed_light(maps, number, take(maps.views, number), from_light, normal)


def _aimed_light(
    maps: ShadowMaps, number: Tensor, view: Tensor, from_light: Tensor, normal: Tensor
) -> Tensor:
    *rotation, focal = view
    # Not a matmul: TF32 rounding of the sun's distance would be an error of metres.
    x, y, z, normal_x, normal_y = (
        v[0] * rotation[3 * i] + v[1] * rotation[3 * i + 1] + v[2] * rotation[3 * i + 2]
        for v, i in ((from_light, 0), (from_light, 1), (from_light, 2), (normal, 0), (normal, 1))
    )
    inverse = 1 / z.clamp(min=1e-3)
    facing = (normal * from_light).sum(0)
    free = _free_share(maps, number, focal, x, y, inverse, normal_x, normal_y, facing)
    reach = maps.size_px / 2 - maps.blur_px / 2 - 1
    shown = (torch.maximum(x.abs(), y.abs()) * inverse * focal <= reach) & (z > 1e-3)
    return free.where(shown, 1.0)


def _free_share(
    maps: ShadowMaps,
    number: Tensor,
    focal: Tensor | float,
    x: Tensor,
    y: Tensor,
    inverse: Tensor,
    normal_x: Tensor,
    normal_y: Tensor,
    facing: Tensor,
) -> Tensor:
    """Percentage-closer filtering: share of the texels around (x, y) / depth in map `number` without
    occluder.

    Each texel is compared with the depth of the surface's tangent plane there (receiver-plane bias), so
    slanted surfaces do not shadow themselves. On a plane, inverse depth is linear in the map's pixels.
    """
    size, blur = maps.size_px, maps.blur_px
    scale = inverse * focal
    start_u, start_v = (
        torch.addcmul(_like(c, size / 2 - blur / 2), c, scale).clamp(0, size - blur - 1) for c in (x, y)
    )
    column, row = start_u.int(), start_v.int()
    across, down = start_u - column, start_v - row
    steepest = inverse * (MAX_SLOPE / focal)
    plane = 1 / (torch.where(facing.abs() < 1e-6, 1e-6, facing) * focal)
    per_u, per_v = ((n * plane).clamp(-steepest, steepest) for n in (normal_x, normal_y))
    # Bias: half a texel for curvature within the filter, and 2 mm for contact.
    expected = inverse * (1 + 0.5 / focal + 0.002 * inverse)
    tap = torch.arange(blur + 1, device=x.device)[:, None]
    middle = tap + (0.5 - blur / 2)  # texel centres of the taps relative to (x, y), without the fraction
    expected = torch.addcmul(expected, per_v, middle - down)[:, None] + per_u * (middle - across)
    texel = (row + number * size) * size + column + (tap * size + tap.T)[..., None].int()
    seen = maps.inverse_depth.index_select(0, texel.flatten()).view(texel.shape)
    free = ((seen <= expected) * _box_weights(across, blur)).sum(1)
    return (free * _box_weights(down, blur)).sum(0)


def _like(tensor: Tensor, value: float) -> Tensor:
    return torch.full((), value, dtype=tensor.dtype, device=tensor.device)


def _box_weights(fraction: Tensor, blur_px: int) -> Tensor:
    """Overlap of a box `blur_px` wide, starting `fraction` into a texel, with it and the texels after it."""
    share = fraction / blur_px
    whole = _like(share, 1 / blur_px).expand(blur_px - 1, len(share))
    return torch.cat([(1 / blur_px - share)[None], whole, share[None]])

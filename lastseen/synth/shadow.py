"""Lights, and the maps that say what each of them sees: drawn by the rasteriser from where the light is.

A lamp has six maps, the faces of a cube around it; the sun one, seen from far away. Maps of what never moves
are drawn once per scene. What moves gets a map of its own per frame and light, aimed at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lastseen.synth.geometry import Cameras, Geometry, Poses, look_at
from lastseen.synth.raster import nearest, project, rows_of, take, triangles_in_view

SUN_DISTANCE_M = 300.0  # far enough to be parallel light, near enough for float32
MAX_SLOPE = 8.0  # tangent beyond which a surface counts as seen edge-on by the light


@dataclass(frozen=True, kw_only=True)
class Lights:
    """Colours are linear light, [..., 3] for all frames or [B, ..., 3] one by one, in units of the exposure.

    | lamps_m         | [L, 3] positions                                                         |
    | lamp_colours    | [L, 3] or [B, L, 3]: what arrives at 1 m                                  |
    | lamp_radius_m   | softens the fall-off close by; what is nearer to a lamp casts no shadow   |
    | sun_direction   | [3] the way its light travels, or None                                    |
    | sun_colour      | [3] or [B, 3]                                                             |
    | sky_colour      | [3] or [B, 3] ambient light on surfaces that look up                      |
    | ground_colour   | [3] or [B, 3] ambient light on surfaces that look down                    |
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

    | inverse_depth | float32 [N * size * size], 0 where the light sees nothing                      |
    | views         | float32 [10, N]: world-to-map rotation, row after row, and focal length in px |
    | blur_px       | half the width of the box over which "in the light" is averaged                |
    """

    inverse_depth: Tensor
    views: Tensor
    size_px: int
    blur_px: int


def static_shadow_maps(
    geometry: Geometry, lights: Lights, *, size_px: int = 512, blur_px: int = 1, moving: Sequence[int] = ()
) -> ShadowMaps:
    """What every light sees of all but the `moving` instances. Maps 6 i to 6 i + 5: lamp i; the last: sun."""
    if moving:
        geometry = geometry.only([i for i in range(geometry.instances) if i not in set(moving)])
    maps, views = [], []
    axes = torch.cat([torch.eye(3), -torch.eye(3)]).to(geometry.positions_m)
    for lamp in lights.lamps_m.double():
        # The faces are a little wider than 90 degrees, so that the blur never leaves its map.
        focal = axes.new_full((6,), size_px / 2 - blur_px - 1)
        cameras = _square_cameras(lamp.expand(6, 3), lamp + axes, focal, size_px, lights.lamp_radius_m)
        maps.append(_inverse_depth(geometry, cameras))
        views.append(_views(cameras))
    if lights.sun_direction is not None and geometry.instances:
        low, high = geometry.positions_m.amin(1), geometry.positions_m.amax(1)
        middle, radius = ((low + high) / 2)[None], (high - low).norm()[None] / 2
        cameras = _aimed_cameras(
            lights.positions_m()[-1:], middle, radius, size_px, blur_px, lights.lamp_radius_m
        )
        maps.append(_inverse_depth(geometry, cameras))
        views.append(_views(cameras))
    return ShadowMaps(
        inverse_depth=torch.cat(maps).flatten(), views=torch.cat(views, 1), size_px=size_px, blur_px=blur_px
    )


def moving_shadow_maps(
    geometry: Geometry, lights: Lights, poses: Poses, *, size_px: int = 192, blur_px: int = 1
) -> ShadowMaps:
    """What light l sees of the posed instances in frame b: map b * lights + l.

    One map holds them all, so it is sharp when they are close together, like a hand and what it carries.
    """
    moving = geometry.only(poses.instances)
    middles, radii = [], []
    for v0, v1 in zip(moving.vertex_start, moving.vertex_start[1:]):
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


def _aimed_cameras(
    eyes_m: Tensor, middles_m: Tensor, radii_m: Tensor, size_px: int, blur_px: int, near_m: float
) -> Cameras:
    """Views that just hold a sphere. A light inside the sphere gets a view as wide as a single map can be."""
    sine = (radii_m / (middles_m - eyes_m).norm(dim=1).clamp(min=1e-6)).clamp(max=0.97)
    focal = (size_px / 2 - blur_px - 1) * (1 - sine**2).sqrt() / sine
    return _square_cameras(eyes_m, middles_m, focal, size_px, near_m)


def _square_cameras(eyes_m: Tensor, targets_m: Tensor, focal: Tensor, size_px: int, near_m: float) -> Cameras:
    return Cameras(
        world_to_camera=look_at(eyes_m, targets_m),
        focal_px=focal[:, None].expand(-1, 2),
        centre_px=torch.full_like(focal, size_px / 2)[:, None].expand(-1, 2),
        width_px=size_px,
        height_px=size_px,
        near_m=near_m,
    )


def _views(cameras: Cameras) -> Tensor:
    return torch.cat([cameras.world_to_camera[:, :3, :3].flatten(1), cameras.focal_px[:, :1]], 1).T.float()


def _inverse_depth(geometry: Geometry, cameras: Cameras, poses: Poses | None = None) -> Tensor:
    triangles = triangles_in_view(geometry, project(geometry, cameras, poses), cameras)
    return nearest(
        rows_of(triangles, cameras), len(cameras), cameras.height_px, cameras.width_px
    ).inverse_depth


def cube_face(from_light: Tensor) -> Tensor:
    """Which of a lamp's six maps holds the direction [3, M]."""
    axis = from_light.abs().argmax(0)
    return axis + 3 * (from_light.gather(0, axis[None])[0] < 0)


def lit(maps: ShadowMaps, number: Tensor, from_light: Tensor, normal: Tensor) -> Tensor:
    """How much light arrives, 0..1 [M], at places `from_light` [3, M] away, according to map `number` [M].

    The surface goes on as a plane with its `normal` [3, M] (of the triangle, not smoothed): each texel is
    compared with that plane's depth there, so slanted surfaces neither shade themselves nor need much bias.
    Places that the map does not show count as lit.
    """
    size, blur = maps.size_px, maps.blur_px
    *rotation, focal = take(maps.views, number)
    (x, y, z), (nx, ny, _) = (_rotated(rotation, v) for v in (from_light, normal))
    inverse = 1 / z.clamp(min=1e-3)
    u, v = (x * inverse * focal + size / 2, y * inverse * focal + size / 2)
    shown = (z > 1e-3) & (u >= blur) & (u < size - blur) & (v >= blur) & (v < size - blur)
    column, row = (c.clamp(blur, size - blur - 1).long() for c in (u, v))
    across, along = u - column, v - row
    # On a plane, inverse depth is linear in the map's pixels.
    per_focal = 1 / focal
    steepest = MAX_SLOPE * inverse * per_focal
    plane = per_focal / _away_from_zero((normal * from_light).sum(0))
    per_u, per_v = ((n * plane).clamp(-steepest, steepest) for n in (nx, ny))
    # Half a texel for what is not flat within the blur, and 2 mm for what lies on it.
    expected = inverse * (1 + 0.5 * per_focal + 0.002 * inverse)
    reach = torch.arange(-blur, blur + 1, device=u.device)[:, None]
    expected = (expected + per_v * (reach + (0.5 - along)))[:, None] + (per_u * (reach + (0.5 - across)))[
        None
    ]
    texel = (number * size + row + reach)[:, None] * size + (column + reach)[None]
    seen = maps.inverse_depth.index_select(0, texel.flatten()).view(texel.shape)
    free = (seen <= expected).to(across.dtype)
    free = (free * _box_weights(across, blur)[None]).sum(1)
    free = (free * _box_weights(along, blur)).sum(0)
    return free.where(shown, 1.0)


def _rotated(rotation: Sequence[Tensor], vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, y, z = vector
    a, b, c, d, e, f, g, h, i = rotation
    return x * a + y * b + z * c, x * d + y * e + z * f, x * g + y * h + z * i


def _away_from_zero(value: Tensor) -> Tensor:
    return torch.where(value < 0, value.clamp(max=-1e-6), value.clamp(min=1e-6))


def _box_weights(fraction: Tensor, blur_px: int) -> Tensor:
    """Overlap of a box 2 * blur wide, centred `fraction` into a texel, with that texel and its neighbours."""
    whole = torch.ones_like(fraction).expand(2 * blur_px - 1, -1)
    return torch.cat([(1 - fraction)[None], whole, fraction[None]]) / (2 * blur_px)

"""Deferred shading: every visible surface point is shaded once, after rasterisation.

linear RGB = texture * (ambient + shadowed lamps and sun + emission) + highlights
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lastseen_synth.geometry import Cameras, Geometry, Poses
from lastseen_synth.meshes import (
    EMISSION,
    FACING,
    LEVELS,
    NORMAL,
    SHININESS,
    SIZE,
    SPECULAR,
    TINT,
    UV,
    WRAP,
    MeshScene,
)
from lastseen_synth.raster import (
    Budget,
    Projection,
    Triangles,
    ZBuffer,
    depth_test,
    pick,
    project,
    spans_of,
    take,
    triangles_in_view,
)
from lastseen_synth.shadow import Lights, ShadowMaps, lamp_light, moving_light, moving_shadow_maps, sun_light
from lastseen_synth.texture import sample


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """B frames.

    | rgb      | float32 [B, 3, H, W] linear light; `texture.linear_to_srgb` makes a picture of it |
    | depth_m  | float32 [B, H, W] along the optical axis, inf where there is nothing            |
    | instance | int32 [B, H, W] at pixel centres, -1 where there is nothing                     |
    """

    rgb: Tensor
    depth_m: Tensor
    instance: Tensor


def render(
    scene: MeshScene,
    cameras: Cameras,
    lights: Lights,
    *,
    shadows: ShadowMaps | None = None,
    poses: Poses | None = None,
    antialias: bool = False,
    background: Sequence[float] = (0.0, 0.0, 0.0),
    budget: Budget | None = None,
) -> Rendering:
    """`shadows`: static shadow maps rendered without the instances in `poses`; None: no shadows.

    Antialiasing averages 2 x 2 samples per pixel; ids and depth stay those of pixel centres.
    """
    budget = budget or Budget.of(scene.surface.device)
    step = budget.frames_per_pass
    behind = torch.as_tensor(background, dtype=torch.float32, device=scene.surface.device)
    parts = [
        _render_pass(
            scene,
            cameras.frames(i, i + step),
            lights.frames(i, i + step),
            shadows,
            poses.frames(i, i + step) if poses is not None else None,
            antialias,
            behind,
            budget,
        )
        for i in range(0, len(cameras), step)
    ]
    return Rendering(
        rgb=torch.cat([p.rgb for p in parts]),
        depth_m=torch.cat([p.depth_m for p in parts]),
        instance=torch.cat([p.instance for p in parts]),
    )


def _render_pass(
    scene: MeshScene,
    cameras: Cameras,
    lights: Lights,
    shadows: ShadowMaps | None,
    poses: Poses | None,
    antialias: bool,
    background: Tensor,
    budget: Budget,
) -> Rendering:
    frames, height, width = len(cameras), cameras.height_px, cameras.width_px
    projection = project(scene.geometry, cameras, poses)
    triangles = triangles_in_view(scene.geometry, projection, cameras)
    seen = depth_test(spans_of(triangles, cameras), frames, height, width, budget)
    if antialias:
        finer_rows = spans_of(triangles, cameras, samples=2)
        samples = four_samples(depth_test(finer_rows, frames, 2 * height, 2 * width, budget))
    else:
        samples = one_sample(seen)
    moving = None
    if shadows is not None and poses is not None and poses.instances and len(lights.positions_m()):
        moving = moving_shadow_maps(scene.geometry, lights, poses, blur_px=shadows.blur_px)
    planes = surface_planes(scene, projection, triangles, cameras)
    rgb = shade(
        scene, cameras, lights, triangles, planes, samples, shadows, moving, poses, background, budget
    )
    return Rendering(
        rgb=rgb, depth_m=1 / seen.inverse_depth, instance=instances(scene.geometry, triangles, seen)
    )


def instances(geometry: Geometry, triangles: Triangles, seen: ZBuffer) -> Tensor:
    """The id buffer: int32 [B, H, W], -1 for background."""
    if not len(triangles.face):
        return torch.full_like(seen.triangle, -1, dtype=torch.int32)
    owner = geometry.face_instance.index_select(0, triangles.face).int()
    return pick(owner, seen.triangle.clamp(min=0)).where(seen.triangle >= 0, -1)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """M points to shade; a pixel consists of up to S of them, one per triangle it shows.

    | slot       | int64 [M] sample number within the pixel * pixels of the batch + pixel |
    | triangle   | int32 [M]                                                              |
    | x_px, y_px | float32 [M] offset from the pixel's corner                             |
    | weight     | float32 [M] share of the pixel                                         |
    | shape      | S, B, H, W                                                             |
    """

    slot: Tensor
    triangle: Tensor
    x_px: Tensor
    y_px: Tensor
    weight: Tensor
    shape: tuple[int, int, int, int]


def one_sample(seen: ZBuffer) -> Samples:
    triangle = seen.triangle.flatten()
    slot = (triangle >= 0).nonzero()[:, 0]
    middle, whole = (torch.full((), value, device=slot.device) for value in (0.5, 1.0))
    return Samples(
        slot=slot,
        triangle=triangle.index_select(0, slot),
        x_px=middle.expand(len(slot)),
        y_px=middle.expand(len(slot)),
        weight=whole.expand(len(slot)),
        shape=(1, *seen.triangle.shape),
    )


def four_samples(seen: ZBuffer) -> Samples:
    """From twice the resolution. Sub-pixels of one triangle are shaded once, at their mean position."""
    frames, height, width = (len(seen.triangle), seen.triangle.shape[1] // 2, seen.triangle.shape[2] // 2)
    quad = seen.triangle.view(frames, height, 2, width, 2).permute(2, 4, 0, 1, 3).reshape(4, -1)
    same = quad[:, None] == quad
    earlier = torch.ones(4, 4, dtype=torch.bool, device=quad.device).tril(-1)[:, :, None]
    first = ~(same & earlier).any(1) & (quad >= 0)
    slot = first.flatten().nonzero()[:, 0]
    same = same.to(torch.uint8)
    count = pick(same.sum(1, dtype=torch.uint8), slot).float()
    right, low = (pick(same[:, a] + same[:, 3], slot).float() for a in (1, 2))
    return Samples(
        slot=slot,
        triangle=quad.flatten().index_select(0, slot),
        x_px=0.25 + 0.5 * right / count,
        y_px=0.25 + 0.5 * low / count,
        weight=count / 4,
        shape=(4, frames, height, width),
    )


def surface_planes(
    scene: MeshScene, projection: Projection, triangles: Triangles, cameras: Cameras
) -> Tensor:
    """float32 [13, K]: per triangle the screen-space planes (per x_px, per y_px, at 0, 0) of barycentric
    weights 1 and 2 over depth and of 1 over depth; then the unit normal of its visible side, and the sign (+1
    or -1) that turns its smooth normals to that side."""
    vertices = projection.outside.shape[1]
    vertex = take(scene.geometry.faces, triangles.face) + triangles.frame * vertices
    p0, p1, p2 = take(projection.relative_m.flatten(1), vertex.flatten()).view(3, 3, -1).unbind(1)
    normal = torch.linalg.cross(p1 - p0, p2 - p0, dim=0)
    volume = (p0 * normal).sum(0)
    volume = torch.where(volume == 0, 1e-30, volume)
    across = torch.stack([torch.linalg.cross(p2, p0, dim=0), torch.linalg.cross(p0, p1, dim=0), normal])
    rays = take(cameras.rays().flatten(1).T.contiguous(), triangles.frame).view(3, 3, -1)
    linear = ((across[:, :, None] * rays).sum(1) / volume).clamp(-1e18, 1e18)  # keeps float32 sums finite
    seen_side = -torch.sign(volume)
    unit = normal * (seen_side / normal.norm(dim=0).clamp(min=1e-30))
    turn = seen_side * scene.surface[FACING].index_select(0, triangles.face)
    return torch.cat([linear.flatten(0, 1), unit, turn[None]]).float()


def shade(
    scene: MeshScene,
    cameras: Cameras,
    lights: Lights,
    triangles: Triangles,
    planes: Tensor,
    samples: Samples,
    shadows: ShadowMaps | None,
    moving: ShadowMaps | None,
    poses: Poses | None,
    background: Tensor,
    budget: Budget,
) -> Tensor:
    """Linear RGB [B, 3, H, W]."""
    per_pixel, frames, height, width = samples.shape
    pixels = frames * height * width
    rgb = torch.zeros(3, per_pixel * pixels, device=planes.device)
    covered = torch.zeros(per_pixel * pixels, device=planes.device)
    covered.index_copy_(0, samples.slot, samples.weight)
    views = torch.cat([cameras.rays().flatten(1), cameras.positions_m()], 1).T.float().contiguous()
    for start in range(0, len(samples.slot), budget.max_samples):
        part = slice(start, start + budget.max_samples)
        slot, triangle = samples.slot[part], samples.triangle[part]
        pixel = slot.int() % pixels
        frame = pixel.div(height * width, rounding_mode="floor")
        row = pixel.div(width, rounding_mode="floor")
        x_px = (pixel - row * width) + samples.x_px[part]
        y_px = (row - frame * height) + samples.y_px[part]
        point = _surface_point(scene, views, triangles, planes, poses, triangle, frame, x_px, y_px)
        colour = _lit_colour(scene, lights, shadows, moving, point) * samples.weight[part]
        for channel, value in zip(rgb, colour):
            channel.index_copy_(0, slot, value)
    rgb = rgb.view(3, per_pixel, frames, height, width).sum(1)
    uncovered = 1 - covered.view(per_pixel, frames, height, width).sum(0)
    return (rgb + background[:, None, None, None] * uncovered).transpose(0, 1).contiguous()


@dataclass(frozen=True, kw_only=True)
class _SurfacePoint:
    """Shading inputs of M points, [M] or [3, M] each."""

    frame: Tensor
    world_m: Tensor
    ray: Tensor
    normal: Tensor
    flat_normal: Tensor
    albedo: Tensor
    emission: Tensor
    specular: Tensor
    shininess: Tensor


def _surface_point(
    scene: MeshScene,
    views: Tensor,
    triangles: Triangles,
    planes: Tensor,
    poses: Poses | None,
    triangle: Tensor,
    frame: Tensor,
    x_px: Tensor,
    y_px: Tensor,
) -> _SurfacePoint:
    face = triangles.face.index_select(0, triangle)
    a1, b1, c1, a2, b2, c2, az, bz, cz, *flat_normal, turn = take(planes, triangle)
    # The clamps matter only on slivers, whose planes are steep for float32.
    depth = 1 / torch.addcmul(torch.addcmul(cz, az, x_px), bz, y_px).clamp(min=1e-6)
    weight1 = (torch.addcmul(torch.addcmul(c1, a1, x_px), b1, y_px) * depth).clamp(0, 1)
    weight2 = (torch.addcmul(torch.addcmul(c2, a2, x_px), b2, y_px) * depth).clamp(0, 1)
    surface = take(scene.surface, face)
    uv0, uv1, uv2 = surface[UV].view(3, 2, -1)
    n0, n1, n2 = surface[NORMAL].view(3, 3, -1)
    normal = torch.addcmul(torch.addcmul(n0, n1, weight1), n2, weight2) * turn
    if poses is not None and poses.instances:
        normal = _pose_normals(scene, poses, face, frame, normal)
    normal = normal * (normal * normal).sum(0).clamp(min=1e-20).rsqrt()

    material = take(scene.materials, scene.face_material.index_select(0, face))
    uv = torch.addcmul(torch.addcmul(uv0, uv1, weight1), uv2, weight2)
    # Screen-space derivatives of the texture coordinates, in texels.
    texels = material[SIZE] * depth
    per_x = torch.addcmul(uv1 * (a1 - weight1 * az), uv2, a2 - weight2 * az) * texels
    per_y = torch.addcmul(uv1 * (b1 - weight1 * bz), uv2, b2 - weight2 * bz) * texels
    footprint = torch.maximum((per_x * per_x).sum(0), (per_y * per_y).sum(0))
    level = 0.5 * footprint.clamp(1.0, 1e12).log2()
    uv = torch.where(material[WRAP] > 0, uv - uv.floor(), uv.clamp(0, 1))
    first, last = material[LEVELS].int()
    albedo = sample(scene.textures, first, last, uv, level) * material[TINT]

    view = take(views, frame)
    ray = torch.addcmul(torch.addcmul(view[2:9:3], view[0:9:3], x_px), view[1:9:3], y_px)
    return _SurfacePoint(
        frame=frame,
        world_m=torch.addcmul(view[9:], ray, depth),
        ray=ray,
        normal=normal,
        flat_normal=torch.stack(flat_normal),
        albedo=albedo,
        emission=material[EMISSION],
        specular=material[SPECULAR],
        shininess=material[SHININESS],
    )


def _pose_normals(scene: MeshScene, poses: Poses, face: Tensor, frame: Tensor, normal: Tensor) -> Tensor:
    slot_of = torch.full((scene.geometry.instances,), -1, dtype=torch.int32, device=face.device)
    for slot, instance in enumerate(poses.instances):
        slot_of[instance] = slot
    slots = pick(slot_of, scene.geometry.face_instance.index_select(0, face))
    moved = (slots >= 0).nonzero()[:, 0]
    rotations = poses.transforms[:, :, :3, :3].to(normal).reshape(-1, 9).T.contiguous()
    number = pick(frame, moved) * len(poses.instances) + pick(slots, moved)
    turned = (take(rotations, number).view(3, 3, -1) * take(normal, moved)).sum(1)
    for component, value in zip(normal, turned):
        component.index_copy_(0, moved, value)
    return normal


def _lit_colour(
    scene: MeshScene,
    lights: Lights,
    shadows: ShadowMaps | None,
    moving: ShadowMaps | None,
    point: _SurfacePoint,
) -> Tensor:
    """Linear RGB [3, M]."""
    upward = 0.5 + 0.5 * point.normal[2]
    sky, ground = (_of_frame(c, point.frame) for c in (lights.sky_colour, lights.ground_colour))
    light = ground + (sky - ground) * upward + point.emission
    if scene.shiny:  # reflected view direction, for the Phong highlight
        along = (point.normal * point.ray).sum(0) * -2
        mirrored = torch.addcmul(point.ray, point.normal, along)
        mirrored = mirrored * (mirrored * mirrored).sum(0).rsqrt()
        highlight = torch.zeros_like(light)
    lamps, positions, colours = len(lights.lamps_m), lights.positions_m().float(), lights.colours()
    for number, position in enumerate(positions):
        from_light = point.world_m - position[:, None]
        squared = (from_light * from_light).sum(0).clamp(min=1e-12)
        inverse = -squared.rsqrt()
        strength = ((point.normal * from_light).sum(0) * inverse).clamp(min=0)
        if number < lamps:
            strength = strength / (squared + lights.lamp_radius_m**2)
        if shadows is not None and number < lamps:
            strength = strength * lamp_light(shadows, number, from_light, point.flat_normal)
        elif shadows is not None:
            strength = strength * sun_light(shadows, from_light, point.flat_normal)
        if moving is not None:
            map_number = point.frame * len(positions) + number
            strength = strength * moving_light(moving, map_number, from_light, point.flat_normal)
        colour = _of_frame(colours[..., number, :], point.frame)
        light.addcmul_(colour, strength)
        if scene.shiny:
            cosine = ((mirrored * from_light).sum(0) * inverse).clamp(min=0)
            highlight.addcmul_(colour, strength * cosine**point.shininess)
    if scene.shiny:
        return torch.addcmul(point.albedo * light, highlight, point.specular * (point.shininess + 8) / 8)
    return point.albedo * light


def _of_frame(colour: Tensor, frame: Tensor) -> Tensor:
    """A colour [3], or one per frame [B, 3], broadcast to points: [3, 1] or [3, M]."""
    return colour[:, None] if colour.ndim == 1 else take(colour.T.contiguous(), frame)

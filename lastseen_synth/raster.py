"""Batched triangle rasteriser in plain PyTorch: per-pixel triangle ids and depth.

project            vertices of all frames, float64
triangles_in_view  frustum culling and near-plane clipping
spans_of           triangles -> horizontal spans of pixels
depth_test         spans -> fragments -> z-buffer, by `scatter_reduce` amax on (inverse depth, span)

Work lists are flat over the batch; no Python loop runs over triangles or frames. The host synchronises with
the device four times: for the sizes of two triangle lists, of the spans and of the fragments.

Coverage: a pixel belongs to a triangle that contains its centre. Centres exactly on an edge belong to the
triangle right of (or below) that edge. The crossing of an edge with a row is computed from its upper end by
the same operations for both triangles, so that neighbours agree to the last bit: no cracks, no double hits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from lastseen_synth.geometry import Cameras, Geometry, Poses

_BEHIND, _LEFT, _RIGHT, _ABOVE, _BELOW = 1, 2, 4, 8, 16


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Batch sizes. They bound memory (about 100 bytes per fragment, 1 kB per shaded sample) and never change
    a result."""

    frames_per_pass: int
    max_fragments: int
    max_samples: int

    @classmethod
    def of(cls, device: torch.device) -> Budget:
        if device.type == "cuda":
            return cls(frames_per_pass=16, max_fragments=1 << 25, max_samples=1 << 22)
        return cls(
            frames_per_pass=1, max_fragments=1 << 18, max_samples=1 << 16
        )  # pieces that fit the caches


@dataclass(frozen=True, kw_only=True)
class Projection:
    """All vertices in all frames, float64 [B, V] each.

    | relative_m    | [3, B, V] world axes, camera at the origin         |
    | camera_m      | [3, B, V] camera axes                              |
    | x_px, y_px    | on the picture; meaningless behind the near plane  |
    | inverse_depth | 1 / metres along the optical axis; likewise        |
    | outside       | uint8 bits: behind, left, right, above, below      |
    """

    relative_m: Tensor
    camera_m: Tensor
    x_px: Tensor
    y_px: Tensor
    inverse_depth: Tensor
    outside: Tensor


@dataclass(frozen=True, kw_only=True)
class Triangles:
    """K visible triangles of all frames: frame, face [K] and x, y (px), inverse depth [3, K] float64."""

    frame: Tensor
    face: Tensor
    x_px: Tensor
    y_px: Tensor
    inverse_depth: Tensor


@dataclass(frozen=True, kw_only=True)
class Spans:
    """R horizontal runs of pixels.

    | triangle      | int32 [R]                                                           |
    | first_pixel   | int32 [R] flat over all pictures                                    |
    | length_px     | int32 [R] may be 0                                                  |
    | inverse_depth | float32 [R] at the first pixel's centre                             |
    | slope         | float32 [R] change of inverse depth per pixel                       |
    """

    triangle: Tensor
    first_pixel: Tensor
    length_px: Tensor
    inverse_depth: Tensor
    slope: Tensor


def take(table: Tensor, index: Tensor) -> Tensor:
    """table[:, index] for a table [C, N] and a flat index [M]: [C, M], one row after the other in memory."""
    if table.is_cuda:
        return table.index_select(1, index)
    out = table.new_empty(len(table), len(index))  # on the CPU a row at a time is eight times faster
    for row, target in zip(table, out):
        torch.index_select(row, 0, index, out=target)
    return out


def pick(values: Tensor, index: Tensor) -> Tensor:
    """values.flatten()[index], in the shape of `index`."""
    return values.flatten().index_select(0, index.flatten()).view(index.shape)


def project(geometry: Geometry, cameras: Cameras, poses: Poses | None = None) -> Projection:
    frames = len(cameras)
    world = geometry.positions_m[:, None, :]
    if poses is not None:
        world = world.repeat(1, frames, 1)
        for slot, instance in enumerate(poses.instances):
            mine = slice(*geometry.vertex_start[instance : instance + 2])
            world[:, :, mine] = _rotate(
                poses.transforms[:, slot].to(world), geometry.positions_m[:, None, mine]
            )
            world[:, :, mine] += poses.transforms[:, slot, :3, 3].to(world).T[:, :, None]
    relative = world - cameras.positions_m().T[:, :, None]
    camera = _rotate(cameras.world_to_camera, relative)
    x, y, z = camera
    fx, fy, cx, cy = (v[:, None] for v in (*cameras.focal_px.unbind(1), *cameras.centre_px.unbind(1)))
    # Multiplied by depth, "left of the picture" is a half-space: right for points behind the camera too.
    x_scaled, y_scaled = x * fx + z * cx, y * fy + z * cy
    inverse_depth = 1 / z.clamp(min=cameras.near_m)
    outside = (
        (z < cameras.near_m) * _BEHIND
        + (x_scaled < 0) * _LEFT
        + (x_scaled > z * cameras.width_px) * _RIGHT
        + (y_scaled < 0) * _ABOVE
        + (y_scaled > z * cameras.height_px) * _BELOW
    )
    return Projection(
        relative_m=relative,
        camera_m=camera,
        x_px=x * inverse_depth * fx + cx,
        y_px=y * inverse_depth * fy + cy,
        inverse_depth=inverse_depth,
        outside=outside.to(torch.uint8),
    )


def _rotate(matrices: Tensor, points: Tensor) -> Tensor:
    """[B, 4, 4] (its rotation) on [3, B or 1, V]. Not a matmul: equal points must give equal bits."""
    x, y, z = points
    rows = [matrices[:, i, :3, None].unbind(1) for i in range(3)]
    return torch.stack([x * a + y * b + z * c for a, b, c in rows])


def triangles_in_view(geometry: Geometry, projection: Projection, cameras: Cameras) -> Triangles:
    outside = projection.outside.index_select(1, geometry.faces.flatten())
    a, b, c = outside.view(len(cameras), *geometry.faces.shape).unbind(1)
    candidate = (a & b & c) == 0
    crosses = ((a | b | c) & _BEHIND) != 0
    frame, face = (candidate & ~crosses).nonzero(as_tuple=True)
    vertex = take(geometry.faces, face) + frame * geometry.positions_m.shape[1]
    whole = Triangles(
        frame=frame,
        face=face,
        x_px=pick(projection.x_px, vertex),
        y_px=pick(projection.y_px, vertex),
        inverse_depth=pick(projection.inverse_depth, vertex),
    )
    frame, face = (candidate & crosses).nonzero(as_tuple=True)
    if not len(frame):
        return whole
    cut = _cut_at_near_plane(geometry, projection, cameras, frame, face)
    return Triangles(
        frame=torch.cat([whole.frame, cut.frame]),
        face=torch.cat([whole.face, cut.face]),
        x_px=torch.cat([whole.x_px, cut.x_px], 1),
        y_px=torch.cat([whole.y_px, cut.y_px], 1),
        inverse_depth=torch.cat([whole.inverse_depth, cut.inverse_depth], 1),
    )


def _cut_at_near_plane(
    geometry: Geometry, projection: Projection, cameras: Cameras, frame: Tensor, face: Tensor
) -> Triangles:
    """Near-plane clipping: the part in front as two triangles, the second of which may be empty."""
    vertex = take(geometry.faces, face) + frame * geometry.positions_m.shape[1]
    front = (pick(projection.outside, vertex) & _BEHIND) == 0
    one_in_front = front.sum(0) == 1
    # Rotated to begin with the vertex that is alone on its side of the plane; its two edges are clipped.
    odd = (front == one_in_front).int().argmax(0)
    order = (odd + torch.arange(3, device=odd.device)[:, None]) % 3
    vertex = vertex.gather(0, order)
    x, y, z = take(projection.camera_m.flatten(1), vertex.flatten()).view(3, 3, -1)
    alone, others = slice(0, 1), slice(1, 3)

    def along(value: Tensor) -> tuple[Tensor, Tensor]:  # always from the front end to the back end of an edge
        near, far = value[alone].expand(2, -1), value[others]
        return torch.where(one_in_front, near, far), torch.where(one_in_front, far, near)

    z_front, z_back = along(z)
    share = (z_front - cameras.near_m) / (z_front - z_back)
    crossing_x, crossing_y = (p + share * (q - p) for p, q in (along(x), along(y)))
    (fx, fy), (cx, cy) = cameras.focal_px[frame].unbind(1), cameras.centre_px[frame].unbind(1)

    def corners(at_vertices: Tensor, at_crossings: Tensor) -> Tensor:
        odd_one, first, second = pick(at_vertices, vertex)
        on_first, on_second = at_crossings
        return torch.cat(
            [
                torch.where(one_in_front, torch.stack([odd_one, on_first, on_second]),
                            torch.stack([first, second, on_second])),
                torch.where(one_in_front, on_first.expand(3, -1), torch.stack([first, on_second, on_first])),
            ],
            1,
        )  # fmt: skip

    return Triangles(
        frame=frame.repeat(2),
        face=face.repeat(2),
        x_px=corners(projection.x_px, crossing_x / cameras.near_m * fx + cx),
        y_px=corners(projection.y_px, crossing_y / cameras.near_m * fy + cy),
        inverse_depth=corners(projection.inverse_depth, torch.full_like(crossing_x, 1 / cameras.near_m)),
    )


def spans_of(
    triangles: Triangles, cameras: Cameras, *, samples: int = 1, layer: Tensor | None = None
) -> Spans:
    """`samples` x `samples` sub-pixels per pixel; triangles go to picture `layer` [K] (None: their frame)."""
    width, height = cameras.width_px * samples, cameras.height_px * samples
    x, y, inverse = triangles.x_px * samples, triangles.y_px * samples, triangles.inverse_depth
    top, bottom = y.argmin(0), y.argmax(0)
    order = torch.stack([top, (3 - top - bottom).clamp(0, 2), bottom])
    (x0, x1, x2), (y0, y1, y2), (i0, i1, i2) = (v.gather(0, order) for v in (x, y, inverse))
    area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
    area = torch.where(area == 0, 1.0, area)
    per_x = ((i1 - i0) * (y2 - y0) - (i2 - i0) * (y1 - y0)) / area
    per_y = ((i2 - i0) * (x1 - x0) - (i1 - i0) * (x2 - x0)) / area
    # Per-triangle values that its spans need.
    known = torch.stack(
        [x0, y0, x1, y1, (x2 - x0) / (y2 - y0), (x1 - x0) / (y1 - y0), (x2 - x1) / (y2 - y1),
         i0, per_x, per_y, inverse.amin(0), inverse.amax(0)]
    )  # fmt: skip
    first_row = _first_centre_at_or_after(y0, height)
    count = _first_centre_at_or_after(y2, height) - first_row
    owner, step = _expand(count)
    row = pick(first_row, owner) + step
    x0, y0, x1, y1, slope02, slope01, slope12, i0, per_x, per_y, lowest, highest = take(known, owner)
    down = (row + 0.5) - y0
    on_long_edge = x0 + down * slope02
    below = (row + 0.5) - y1
    on_short_edge = torch.where(below < 0, x0 + down * slope01, x1 + below * slope12)
    start = _first_centre_at_or_after(torch.minimum(on_long_edge, on_short_edge), width)
    length = _first_centre_at_or_after(torch.maximum(on_long_edge, on_short_edge), width) - start
    # Clamped to the vertices' range: the depth plane of a sliver is nearly vertical.
    begin = i0 + per_x * (start + 0.5 - x0) + per_y * down
    steps = (length - 1).clamp(min=1)
    end = (begin + per_x * steps).clamp(lowest, highest)
    begin = begin.clamp(lowest, highest)
    picture = pick((triangles.frame if layer is None else layer).int(), owner)
    return Spans(
        triangle=owner,
        first_pixel=(picture * height + row) * width + start,
        length_px=length,
        inverse_depth=begin.float(),
        slope=((end - begin) / steps).float(),
    )


def _first_centre_at_or_after(position: Tensor, size: int) -> Tensor:
    return (position - 0.5).ceil().clamp(0, size).int()


def _expand(count: Tensor) -> tuple[Tensor, Tensor]:
    """Item i `count[i]` times: the item's number and which of its copies it is."""
    ends = count.cumsum(0, dtype=torch.int32)
    total = int(ends[-1]) if len(ends) else 0
    owner = torch.repeat_interleave(count, output_size=total)
    return owner, torch.arange(total, dtype=torch.int32, device=count.device) - pick(ends - count, owner)


def fragments(spans: Spans, budget: Budget | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(span, pixel, steps from the first pixel of the span) of all fragments, in chunks within the budget."""
    device = spans.length_px.device
    if not len(spans.length_px):
        return
    at_once = (budget or Budget.of(device)).max_fragments
    ends = spans.length_px.cumsum(0, dtype=torch.int32)
    before = ends - spans.length_px
    total = int(ends[-1])
    cuts, counted = [0], [0]
    if total > at_once:
        inner = torch.searchsorted(
            ends, torch.arange(at_once, total, at_once, dtype=torch.int32, device=device)
        )
        cuts, counted = [0, *inner.tolist()], [0, *before[inner].tolist()]
    cuts, counted = [*cuts, len(ends)], [*counted, total]
    for (start, stop), (done, upto) in zip(pairwise(cuts), pairwise(counted)):
        if upto == done:
            continue
        owner = torch.repeat_interleave(spans.length_px[start:stop], output_size=upto - done)
        if start:
            owner += start
        step = torch.arange(done, upto, dtype=torch.int32, device=device) - pick(before, owner)
        yield owner, pick(spans.first_pixel, owner) + step, step


@dataclass(frozen=True, kw_only=True)
class ZBuffer:
    """Per (sub-)pixel [B, H, W]: triangle (int32, -1: none) and inverse depth (0: none)."""

    triangle: Tensor
    inverse_depth: Tensor


def depth_test(
    spans: Spans, pictures: int, height_px: int, width_px: int, budget: Budget | None = None
) -> ZBuffer:
    keys = torch.full((pictures * height_px * width_px,), -1, dtype=torch.int64, device=spans.triangle.device)
    for span, pixel, step in fragments(spans, budget):
        inverse = pick(spans.inverse_depth, span) + pick(spans.slope, span) * step
        # Positive floats sort like their bits. Of equal depths the last span wins, deterministically.
        keys.scatter_reduce_(0, pixel.long(), (inverse.view(torch.int32).long() << 32) | span, "amax")
    hit = keys >= 0
    if len(spans.triangle):
        triangle = pick(spans.triangle, (keys & 0xFFFFFFFF).where(hit, 0)).where(hit, -1)
    else:
        triangle = keys.int()
    inverse = (keys >> 32).where(hit, 0).int().view(torch.float32)
    shape = (pictures, height_px, width_px)
    return ZBuffer(triangle=triangle.view(shape), inverse_depth=inverse.view(shape))

"""Frames per second of the rasteriser on a synthetic room, with a breakdown by stage.

PYTHONPATH=. python benchmarks/raster.py --device cuda --size 448 --triangles 50000 --frames 512 --batch 16
PYTHONPATH=. python benchmarks/raster.py --device cpu --size 96 --triangles 3000 --frames 4 --batch 2
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.profiler import profile

from lastseen_synth.geometry import Cameras, Poses, look_at
from lastseen_synth.meshes import Material, Mesh, MeshScene, SceneBuilder
from lastseen_synth.raster import Budget, depth_test, project, spans_of, triangles_in_view
from lastseen_synth.shade import four_samples, instances, one_sample, render, shade, surface_planes
from lastseen_synth.shadow import Lights, ShadowMaps, moving_shadow_maps, static_shadow_maps
from lastseen_synth.texture import Texture, linear_to_srgb, picture_texture
from lastseen_synth.visibility import unoccluded_pixels, visible_boxes

WIDTH_M, LENGTH_M, HEIGHT_M = 7.0, 6.0, 2.6
FURNITURE, OBJECTS = 40, 60


def grid(columns: int, rows: int, shape: Callable[[Tensor, Tensor], Tensor], tiles: float = 1.0) -> Mesh:
    """A sheet of `columns` x `rows` quads, bent: `shape` takes u, v in 0..1 to positions [.., 3]."""
    v, u = torch.meshgrid(
        torch.linspace(0, 1, rows + 1, dtype=torch.float64),
        torch.linspace(0, 1, columns + 1, dtype=torch.float64),
        indexing="ij",
    )
    step = 1e-4
    along, across = shape(u + step, v) - shape(u - step, v), shape(u, v + step) - shape(u, v - step)
    normals = torch.nn.functional.normalize(torch.linalg.cross(along, across, dim=-1), dim=-1)
    corner = (torch.arange(rows)[:, None] * (columns + 1) + torch.arange(columns)).flatten()
    a, b, c, d = corner, corner + 1, corner + columns + 2, corner + columns + 1
    return Mesh(
        positions_m=shape(u, v).flatten(0, 1),
        normals=normals.flatten(0, 1),
        uv=torch.stack([u, v], -1).flatten(0, 1) * tiles,
        triangles=torch.cat([torch.stack([a, b, c], 1), torch.stack([a, c, d], 1)]),
    )


def sheet(origin: Tensor, along: Tensor, across: Tensor, cells: int, tiles: float) -> Mesh:
    return grid(cells, cells, lambda u, v: origin + u[..., None] * along + v[..., None] * across, tiles=tiles)


def ball(radius_m: float, cells: int) -> Mesh:
    def shape(u: Tensor, v: Tensor) -> Tensor:
        a, b = u * 2 * math.pi, (v - 0.5) * math.pi
        return radius_m * torch.stack([a.cos() * b.cos(), a.sin() * b.cos(), 1 + b.sin()], -1)

    return grid(2 * cells, cells, shape)


def ring(radius_m: float, cells: int) -> Mesh:
    def shape(u: Tensor, v: Tensor) -> Tensor:
        a, b = u * 2 * math.pi, v * 2 * math.pi
        wide = 0.7 + 0.3 * b.cos()
        return radius_m * torch.stack([a.cos() * wide, a.sin() * wide, 0.3 + 0.3 * b.sin()], -1)

    return grid(2 * cells, cells, shape)


def block(size_m: tuple[float, float, float], cells: int) -> Mesh:
    """A box standing on z = 0, six sheets of its own vertices."""
    x, y, z = torch.diag(torch.tensor(size_m, dtype=torch.float64))
    low = -(x + y) / 2
    sides = [(low, y, x), (low + z, x, y), (low, x, z), (low + y, z, x), (low, z, y), (low + x, y, z)]
    sheets = [sheet(origin, along, across, cells, 1.0) for origin, along, across in sides]
    return Mesh(
        positions_m=torch.cat([s.positions_m for s in sheets]),
        normals=torch.cat([s.normals for s in sheets]),
        uv=torch.cat([s.uv for s in sheets]),
        triangles=torch.cat([s.triangles + n * len(sheets[0].uv) for n, s in enumerate(sheets)]),
    )


def noise_texture(rng: np.random.Generator, size_px: int, *, wrap: bool) -> Texture:
    """A base colour with blotches of several sizes, like nothing in particular."""
    picture = np.full((size_px, size_px, 3), rng.uniform(60, 200, 3))
    for cell in (8, 32, size_px // 2):
        blotch = rng.normal(0, 20, (size_px // cell, size_px // cell, 3))
        picture += np.kron(blotch, np.ones((cell, cell, 1)))
    return picture_texture(picture.clip(0, 255).astype(np.uint8), wrap=wrap)


def placed(x_m: float, y_m: float, z_m: float, turn: float) -> Tensor:
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[:2, :2] = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    matrix[:3, 3] = torch.tensor([x_m, y_m, z_m])
    return matrix


def room(triangles: int, device: str, texture_px: int, seed: int = 0) -> tuple[MeshScene, list[int]]:
    """A furnished box of about this many triangles, and the numbers of its small objects."""
    rng = np.random.default_rng(seed)
    builder = SceneBuilder()
    x, y, z = torch.diag(torch.tensor([WIDTH_M, LENGTH_M, HEIGHT_M], dtype=torch.float64))
    nowhere = torch.zeros(3, dtype=torch.float64)
    for origin, along, across in (
        (nowhere, x, y),
        (z, y, x),
        (nowhere, z, x),
        (y, x, z),
        (nowhere, y, z),
        (x, z, y),
    ):
        material = Material(texture=noise_texture(rng, texture_px, wrap=True))
        builder.add(sheet(origin, along, across, 4, 5.0), [material])
    each = max(12, (triangles - 6 * 32) // (FURNITURE + OBJECTS))
    box_cells, round_cells = math.ceil(math.sqrt(each / 12)), max(2, round(math.sqrt(each / 4)))
    tops = []
    for k in range(FURNITURE):
        material = Material(texture=noise_texture(rng, texture_px // 2, wrap=True))
        size = rng.uniform([0.4, 0.3, 0.4], [1.2, 0.8, 1.1])
        at = (rng.uniform(0.6, WIDTH_M - 0.6), rng.uniform(0.6, LENGTH_M - 0.6))
        shape = block(tuple(size), box_cells) if k % 4 else ball(float(size[1] / 2), round_cells)
        builder.add(shape, [material], placed(*at, 0.0, rng.uniform(0, 6.3)))
        tops.append((*at, float(size[2] if k % 4 else size[1])))
    objects = []
    for k in range(OBJECTS):
        material = Material(texture=noise_texture(rng, texture_px, wrap=False), specular=0.05)
        size_m = rng.uniform(0.05, 0.2)
        shapes = (
            ball(size_m, round_cells),
            block((size_m, 1.3 * size_m, size_m), box_cells),
            ring(size_m, round_cells),
        )
        top = tops[k % len(tops)]
        shift = rng.uniform(-0.2, 0.2, 2)
        pose = placed(top[0] + shift[0], top[1] + shift[1], top[2], rng.uniform(0, 6.3))
        objects.append(builder.add(shapes[k % 3], [material], pose))
    return builder.build(device), objects


def walk(frames: int, size_px: int, device: str) -> Cameras:
    """A head that walks in a circle, looking ahead and down."""
    turn = torch.linspace(0, 2 * math.pi, frames + 1, dtype=torch.float64)[:-1]
    middle = torch.tensor([WIDTH_M / 2, LENGTH_M / 2, 1.6], dtype=torch.float64)
    eyes = middle + torch.stack([2.2 * turn.cos(), 1.8 * turn.sin(), 0.03 * (9 * turn).sin()], 1)
    look = turn + 2.2 + 0.6 * (5 * turn).sin()
    ahead = torch.stack([look.cos(), look.sin(), -0.45 + 0.2 * (7 * turn).sin()], 1)
    matrices = look_at(eyes, eyes + ahead).to(device)
    return Cameras.pinhole(matrices, size_px, size_px, horizontal_fov_deg=90.0)


def carried(scene: MeshScene, cameras: Cameras, instance: int) -> Poses:
    """An object held half a metre in front of the camera."""
    v0, v1 = scene.geometry.vertex_start[instance : instance + 2]
    to_hand = torch.eye(4, dtype=torch.float64, device=cameras.world_to_camera.device)
    to_hand[:3, 3] = -scene.geometry.positions_m[:, v0:v1].mean(1)
    in_hand = torch.eye(4, dtype=torch.float64, device=to_hand.device)
    in_hand[:3, 3] = torch.tensor([0.1, 0.15, 0.5])
    to_world = torch.linalg.inv(cameras.world_to_camera)
    return Poses(instances=(instance,), transforms=(to_world @ in_hand @ to_hand)[:, None])


class Stopwatch:
    """Wall time of named stages; waits for the device at every change."""

    def __init__(self, device: str) -> None:
        self._cuda = torch.device(device).type == "cuda"
        self.seconds: dict[str, float] = {}

    def measure(self, name: str, work: Callable[[], Any]) -> Any:
        self._wait()
        start = time.perf_counter()
        result = work()
        self._wait()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return result

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()


def stages(
    scene: MeshScene,
    cameras: Cameras,
    lights: Lights,
    shadows: ShadowMaps,
    budget: Budget,
    antialias: bool,
    watch: Stopwatch,
) -> dict[str, float]:
    """What `render` does, stage by stage; returns counts per frame."""
    frames, size = len(cameras), cameras.width_px
    behind = torch.zeros(3, device=scene.surface.device)
    projection = watch.measure("transform", lambda: project(scene.geometry, cameras))
    triangles = watch.measure("cull", lambda: triangles_in_view(scene.geometry, projection, cameras))
    rows = watch.measure("rows", lambda: spans_of(triangles, cameras))
    seen = watch.measure("nearest", lambda: depth_test(rows, frames, size, size, budget))
    samples = watch.measure("samples", lambda: one_sample(seen))
    if antialias:
        fine = watch.measure("rows", lambda: spans_of(triangles, cameras, samples=2))
        finer = watch.measure("nearest", lambda: depth_test(fine, frames, 2 * size, 2 * size, budget))
        samples = watch.measure("samples", lambda: four_samples(finer))
    watch.measure("ids", lambda: instances(scene.geometry, triangles, seen))
    planes = watch.measure("planes", lambda: surface_planes(scene, projection, triangles, cameras))

    def shaded(maps: ShadowMaps | None) -> Tensor:
        return shade(scene, cameras, lights, triangles, planes, samples, maps, None, None, behind, budget)

    watch.measure("shade, no shadows", lambda: shaded(None))
    watch.measure("shade, with shadows", lambda: shaded(shadows))
    return {
        "triangles in view": len(triangles.frame) / frames,
        "rows": len(rows.triangle) / frames,
        "fragments": float(rows.length_px.sum()) / frames,
        "covered share": float((seen.triangle >= 0).float().mean()),
        "samples per pixel": len(samples.slot) / (frames * size * size),
    }


def lighting(lamps: int) -> Lights:
    places = [[1.5, 1.5, 2.4], [5.5, 1.5, 2.4], [3.5, 4.5, 2.4], [1.5, 4.5, 2.2], [5.5, 4.5, 2.2]]
    return Lights(
        lamps_m=torch.tensor(places[:lamps]),
        lamp_colours=torch.tensor([[1.4, 1.3, 1.1]]).repeat(lamps, 1),
        sky_colour=torch.tensor([0.25, 0.25, 0.28]),
        ground_colour=torch.tensor([0.15, 0.13, 0.12]),
        sun_direction=torch.tensor([0.4, 0.5, -0.8]),
        sun_colour=torch.tensor([0.5, 0.5, 0.45]),
    )


def print_speeds(scene: MeshScene, objects: list[int], lights: Lights, cameras: Cameras, shadows: ShadowMaps,
                 budget: Budget, device: str) -> None:  # fmt: skip
    hand = carried(scene, cameras, objects[0])
    free = static_shadow_maps(scene.geometry, lights, size_px=shadows.size_px, moving=hand.instances)
    ways: dict[str, tuple[ShadowMaps | None, Poses | None, bool]] = {
        "plain": (shadows, None, False),
        "antialiased": (shadows, None, True),
        "without shadows": (None, None, False),
        "one object carried": (free, hand, False),
    }
    step = budget.frames_per_pass

    def passes(way: str, frames: int) -> None:
        # Pass by pass, as a consumer would: pictures of all frames together may not fit the memory.
        maps, poses, antialias = ways[way]
        for i in range(0, frames, step):
            part = cameras.frames(i, i + step)
            moved = poses.frames(i, i + step) if poses is not None else None
            render(scene, part, lights, shadows=maps, poses=moved, antialias=antialias, budget=budget)

    for way in ways:
        passes(way, step)  # warm up
        watch = Stopwatch(device)
        watch.measure("all", partial(passes, way, len(cameras)))
        print(f"{way:20s} {len(cameras) / watch.seconds['all']:8.1f} frames/s")


def print_extras(scene: MeshScene, objects: list[int], lights: Lights, cameras: Cameras, budget: Budget,
                 device: str) -> None:  # fmt: skip
    ids = render(scene, cameras, lights, budget=budget).instance
    hand = carried(scene, cameras, objects[0])
    watch = Stopwatch(device)
    for _ in range(2):  # the first round warms up
        watch.seconds.clear()
        watch.measure(f"visible_boxes, {len(objects)} objects", lambda: visible_boxes(ids, objects))
        watch.measure(
            "alone_pixels, 4 objects",
            lambda: unoccluded_pixels(scene.geometry, cameras, objects[:4], budget=budget),
        )
        watch.measure("moving_shadow_maps", lambda: moving_shadow_maps(scene.geometry, lights, hand))
    for name, seconds in watch.seconds.items():
        print(f"{name:28s} {1e3 * seconds / len(cameras):7.3f} ms/frame")


def print_stages(scene: MeshScene, lights: Lights, cameras: Cameras, shadows: ShadowMaps, budget: Budget,
                 antialias: bool, device: str) -> None:  # fmt: skip
    step = budget.frames_per_pass
    print(f"\nstages, ms/frame at {step} frames per pass, antialias={antialias}")
    watch = Stopwatch(device)
    stages(scene, cameras.frames(0, step), lights, shadows, budget, antialias, watch)
    watch.seconds.clear()
    rounds = max(1, min(8, len(cameras) // step))
    for i in range(rounds):
        part = cameras.frames(i * step, (i + 1) * step)
        counts = stages(scene, part, lights, shadows, budget, antialias, watch)
    for name, seconds in watch.seconds.items():
        print(f"  {name:20s} {1e3 * seconds / (rounds * step):8.3f}")
    print("  per frame: " + ", ".join(f"{name} {value:,.2f}" for name, value in counts.items()))


def print_agreement(scene: MeshScene, lights: Lights, cameras: Cameras, shadows: ShadowMaps) -> None:
    """The same two frames on the CPU: ids must agree but for pixels that hang on a rounding error."""
    here = render(scene, cameras, lights, shadows=shadows)
    maps = replace(shadows, inverse_depth=shadows.inverse_depth.cpu(), views=shadows.views.cpu())
    there = render(scene.to("cpu"), cameras.to("cpu"), lights.to("cpu"), shadows=maps)
    other = (here.instance.cpu() != there.instance).sum()
    colours = (here.rgb.cpu() - there.rgb).abs().amax(1)
    print(
        f"\nagainst the CPU: {other} of {there.instance.numel():,} ids differ; colour differences: "
        f"median {colours.median():.1e}, above 0.01 in {(colours > 0.01).float().mean():.2%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=448, help="side of the frames, px")
    parser.add_argument("--frames", type=int, default=512, help="frames per measurement")
    parser.add_argument("--batch", type=int, default=16, help="frames per pass")
    parser.add_argument("--triangles", type=int, default=50_000)
    parser.add_argument("--lamps", type=int, default=3, help="besides the sun, at most 5")
    parser.add_argument("--texture", type=int, default=512, help="side of the textures, px")
    parser.add_argument("--shadow", type=int, default=512, help="side of the shadow maps, px")
    parser.add_argument("--samples", type=int, help="samples shaded at once")
    parser.add_argument("--fragments", type=int, help="fragments at once")
    parser.add_argument("--profile", action="store_true", help="list the kernels of one pass by their time")
    parser.add_argument("--picture", help="where to save the first frame")
    args = parser.parse_args()
    device, on_cuda = args.device, args.device.startswith("cuda")

    usual = Budget.of(torch.device(device))
    budget = Budget(
        frames_per_pass=args.batch,
        max_samples=args.samples or usual.max_samples,
        max_fragments=args.fragments or usual.max_fragments,
    )
    watch = Stopwatch(device)
    scene, objects = watch.measure("scene", lambda: room(args.triangles, device, args.texture))
    lights = lighting(args.lamps).to(device)
    for name in ("first", "static shadow maps"):
        shadows = watch.measure(name, lambda: static_shadow_maps(scene.geometry, lights, size_px=args.shadow))
    cameras = walk(max(args.frames, args.batch), args.size, device)
    first_pass = cameras.frames(0, args.batch)
    print(
        f"torch {torch.__version__}, {torch.cuda.get_device_name() if on_cuda else 'CPU'}: {args.size} px, "
        f"{scene.geometry.faces.shape[1]:,} triangles, {scene.geometry.positions_m.shape[1]:,} vertices, "
        f"{scene.textures.texels.shape[1]:,} texels, {args.lamps} lamps and a sun; "
        f"scene {watch.seconds['scene']:.2f} s, shadow maps {watch.seconds['static shadow maps']:.3f} s"
    )
    print_speeds(scene, objects, lights, cameras, shadows, budget, device)
    print_extras(scene, objects, lights, first_pass, budget, device)
    for antialias in (False, True):
        print_stages(scene, lights, cameras, shadows, budget, antialias, device)
    if on_cuda:
        print(f"\npeak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
        print_agreement(scene, lights, cameras.frames(0, 2), shadows)
    if args.picture:
        rgb = render(scene, cameras.frames(0, 1), lights, shadows=shadows, antialias=True).rgb[0]
        pixels = (linear_to_srgb(rgb) * 255).round().byte().permute(1, 2, 0)
        Image.fromarray(pixels.cpu().numpy()).save(args.picture)
    if args.profile:
        with profile() as report:
            render(scene, first_pass, lights, shadows=shadows, budget=budget)
            if on_cuda:
                torch.cuda.synchronize()
        key = "self_device_time_total" if on_cuda else "self_cpu_time_total"
        print(report.key_averages().table(sort_by=key, row_limit=40, max_name_column_width=60))


if __name__ == "__main__":
    main()

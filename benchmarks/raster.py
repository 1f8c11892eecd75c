"""Frames per second of the rasteriser on a synthetic room, with a breakdown by stage.

python benchmarks/raster.py --device cuda --size 448 --triangles 50000 --frames 512 --batch 16
python benchmarks/raster.py --device cpu --size 96 --triangles 3000 --frames 4 --batch 2
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lastseen.synth.geometry import Cameras, Poses, look_at
from lastseen.synth.meshes import Material, Mesh, MeshScene, SceneBuilder
from lastseen.synth.raster import Budget, fragments, nearest, project, rows_of, triangles_in_view
from lastseen.synth.shade import four_samples, instances, one_sample, render, shade, surface_planes
from lastseen.synth.shadow import Lights, moving_shadow_maps, static_shadow_maps
from lastseen.synth.texture import Texture, picture_texture
from lastseen.synth.truth import alone_pixels, visible_boxes

WIDTH_M, LENGTH_M, HEIGHT_M = 7.0, 6.0, 2.6
FURNITURE, OBJECTS = 40, 60


def grid(columns: int, rows: int, shape: Callable[[Tensor, Tensor], Tensor], tiles: float = 1.0) -> Mesh:
    """A sheet of `columns` x `rows` quads bent into a surface: `shape` takes u, v in 0..1 to positions [.., 3]."""
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
    sheets = [sheet(*side, cells, 1.0) for side in sides]
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
    for side in (
        (nowhere, x, y),
        (z, y, x),
        (nowhere, z, x),
        (y, x, z),
        (nowhere, y, z),
        (x, z, y),
    ):
        builder.add(sheet(*side, 4, 5.0), [Material(texture=noise_texture(rng, texture_px, wrap=True))])
    each = max(12, (triangles - 6 * 32) // (FURNITURE + OBJECTS))
    box_cells, round_cells = max(1, round(math.sqrt(each / 12))), max(2, round(math.sqrt(each / 4)))
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


def carried(cameras: Cameras, instance: int) -> Poses:
    """An object held half a metre in front of the camera."""
    inverse = torch.linalg.inv(cameras.world_to_camera)
    shift = torch.eye(4, dtype=torch.float64, device=inverse.device)
    shift[:3, 3] = torch.tensor([0.1, 0.15, 0.5])
    return Poses(instances=(instance,), transforms=(inverse @ shift)[:, None])


class Stopwatch:
    """Wall time of named stages; waits for the device at every change."""

    def __init__(self, device: str) -> None:
        self._cuda = torch.device(device).type == "cuda"
        self.seconds: dict[str, float] = {}

    def measure(self, name: str, work: Callable[[], object]) -> object:
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
    shadows,
    budget: Budget,
    antialias: bool,
    watch: Stopwatch,
) -> dict[str, float]:
    """What `render` does, stage by stage; returns counts per frame."""
    frames, size = len(cameras), cameras.width_px
    behind = torch.zeros(3, device=scene.surface.device)
    projection = watch.measure("transform", lambda: project(scene.geometry, cameras))
    triangles = watch.measure("cull", lambda: triangles_in_view(scene.geometry, projection, cameras))
    rows = watch.measure("rows", lambda: rows_of(triangles, cameras))
    seen = watch.measure("nearest", lambda: nearest(rows, frames, size, size, budget))
    samples = watch.measure("samples", lambda: one_sample(seen))
    if antialias:
        fine = watch.measure("rows", lambda: rows_of(triangles, cameras, samples=2))
        finer = watch.measure("nearest", lambda: nearest(fine, frames, 2 * size, 2 * size, budget))
        samples = watch.measure("samples", lambda: four_samples(finer))
    watch.measure("ids", lambda: instances(scene.geometry, triangles, seen))
    planes = watch.measure("planes", lambda: surface_planes(scene, projection, triangles, cameras))

    def shaded(maps):
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=448, help="side of the frames, px")
    parser.add_argument("--frames", type=int, default=512, help="frames per measurement")
    parser.add_argument("--batch", type=int, default=16, help="frames per pass")
    parser.add_argument("--triangles", type=int, default=50_000)
    parser.add_argument("--lamps", type=int, default=3, help="besides the sun")
    parser.add_argument("--texture", type=int, default=512, help="side of the textures, px")
    parser.add_argument("--shadow", type=int, default=512, help="side of the shadow maps, px")
    parser.add_argument("--samples", type=int, help="samples shaded at once")
    parser.add_argument("--fragments", type=int, help="fragments at once")
    parser.add_argument("--profile", action="store_true", help="also count the kernels of one pass")
    args = parser.parse_args()

    usual = Budget.of(torch.device(args.device))
    budget = replace(
        usual,
        frames_per_pass=args.batch,
        max_samples=args.samples or usual.max_samples,
        max_fragments=args.fragments or usual.max_fragments,
    )
    watch = Stopwatch(args.device)
    scene, objects = watch.measure("scene", lambda: room(args.triangles, args.device, args.texture))
    lamps = torch.tensor(
        [[1.5, 1.5, 2.4], [5.5, 1.5, 2.4], [3.5, 4.5, 2.4], [1.5, 4.5, 2.2], [5.5, 4.5, 2.2]]
    )
    lights = Lights(
        lamps_m=lamps[: args.lamps],
        lamp_colours=torch.tensor([[1.4, 1.3, 1.1]]).repeat(args.lamps, 1),
        sky_colour=torch.tensor([0.25, 0.25, 0.28]),
        ground_colour=torch.tensor([0.15, 0.13, 0.12]),
        sun_direction=torch.tensor([0.4, 0.5, -0.8]),
        sun_colour=torch.tensor([0.5, 0.5, 0.45]),
    ).to(args.device)
    build = lambda: static_shadow_maps(scene.geometry, lights, size_px=args.shadow)  # noqa: E731
    build()
    shadows = watch.measure("static shadow maps", build)
    cameras = walk(args.frames, args.size, args.device)
    print(f"{scene.geometry.faces.shape[1]:,} triangles, {scene.geometry.positions_m.shape[1]:,} vertices, "
          f"{scene.textures.texels.shape[1]:,} texels, {args.lamps} lamps and a sun, torch {torch.__version__}, "
          f"{torch.cuda.get_device_name() if args.device.startswith('cuda') else 'CPU'}")  # fmt: skip
    print(
        f"scene {watch.seconds['scene']:.2f} s, static shadow maps {watch.seconds['static shadow maps']:.3f} s"
    )

    warm = cameras.frames(0, args.batch)
    ways = {
        "plain": {},
        "antialiased": {"antialias": True},
        "without shadows": {"shadows": None},
        "one object carried": {"poses": carried(cameras, objects[0])},
    }
    for name, way in ways.items():
        options = {"shadows": shadows, "budget": budget, **way}
        poses = options.get("poses")
        first = {**options, "poses": poses.frames(0, args.batch)} if poses else options
        render(scene, warm, lights, **first)
        clock = Stopwatch(args.device)

        def passes(options=options, poses=poses):
            # Pass by pass, as a consumer would: pictures of all frames together may not fit the memory.
            for i in range(0, args.frames, args.batch):
                part = {**options, "poses": poses.frames(i, i + args.batch)} if poses else options
                render(scene, cameras.frames(i, i + args.batch), lights, **part)

        clock.measure("all", passes)
        print(f"{name:20s} {args.frames / clock.seconds['all']:8.1f} frames/s")

    ids = render(scene, warm, lights, budget=budget).instance
    extra = Stopwatch(args.device)
    for _ in range(2):  # the first round warms up
        extra.seconds.clear()
        extra.measure("visible_boxes, 60 objects", lambda: visible_boxes(ids, objects))
        extra.measure(
            "alone_pixels, 4 objects", lambda: alone_pixels(scene.geometry, warm, objects[:4], budget=budget)
        )
        extra.measure(
            "moving_shadow_maps",
            lambda: moving_shadow_maps(scene.geometry, lights, carried(warm, objects[0])),
        )
    for name, seconds in extra.seconds.items():
        print(f"{name:28s} {1e3 * seconds / len(warm):7.3f} ms/frame")

    for antialias in (False, True):
        print(f"\nstages, ms/frame at {args.batch} frames per pass, antialias={antialias}")
        clock = Stopwatch(args.device)
        stages(scene, warm, lights, shadows, budget, antialias, clock)
        clock.seconds.clear()
        rounds = max(1, min(8, args.frames // args.batch))
        for i in range(rounds):
            part = cameras.frames(i * args.batch, (i + 1) * args.batch)
            counts = stages(scene, part, lights, shadows, budget, antialias, clock)
        for name, seconds in clock.seconds.items():
            print(f"  {name:20s} {1e3 * seconds / (rounds * args.batch):8.3f}")
        print("  " + ", ".join(f"{name} {value:,.2f}" for name, value in counts.items()))
    if args.device.startswith("cuda"):
        print(f"\npeak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
    if args.profile:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if args.device.startswith("cuda"):
            activities.append(ProfilerActivity.CUDA)
        with profile(activities=activities) as report:
            render(scene, warm, lights, shadows=shadows, budget=budget)
        key = "cuda_time_total" if args.device.startswith("cuda") else "cpu_time_total"
        print(report.key_averages().table(sort_by=key, row_limit=40, max_name_column_width=60))


if __name__ == "__main__":
    main()

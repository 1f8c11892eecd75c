"""Quads, boxes, cameras and flat light for tests of the renderer."""

import torch

from lastseen_synth.geometry import Cameras, look_at
from lastseen_synth.meshes import Material, Mesh, SceneBuilder
from lastseen_synth.shadow import Lights
from lastseen_synth.texture import colour_texture

f64 = torch.float64


WHITE = Material(texture=colour_texture((255, 255, 255)))


GREY = Material(texture=colour_texture((128, 128, 128)))


def vec(*numbers):
    return torch.tensor(numbers, dtype=f64)


def quad(origin, along, across, *, tiles=1.0):
    origin, along, across = vec(*origin), vec(*along), vec(*across)
    normal = torch.nn.functional.normalize(torch.linalg.cross(along, across), dim=0)
    return Mesh(
        positions_m=torch.stack([origin, origin + along, origin + along + across, origin + across]),
        normals=normal.expand(4, 3),
        uv=torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=f64) * tiles,
        triangles=torch.tensor([[0, 1, 2], [0, 2, 3]]),
    )


def box(low, high):
    """Six sides of their own; normals outward."""
    (x0, y0, z0), (x1, y1, z1) = low, high
    dx, dy, dz = (x1 - x0, 0, 0), (0, y1 - y0, 0), (0, 0, z1 - z0)
    sides = [quad(low, dy, dx), quad(low, dx, dz), quad(low, dz, dy)]
    sides += [quad((x0, y0, z1), dx, dy), quad((x0, y1, z0), dz, dx), quad((x1, y0, z0), dy, dz)]
    return Mesh(
        positions_m=torch.cat([s.positions_m for s in sides]),
        normals=torch.cat([s.normals for s in sides]),
        uv=torch.cat([s.uv for s in sides]),
        triangles=torch.cat([s.triangles + 4 * n for n, s in enumerate(sides)]),
    )


def scene_of(*things):
    builder = SceneBuilder()
    for mesh, material in things:
        builder.add(mesh, [material])
    return builder.build()


def camera(eye, target, width=64, height=48, fov=80.0, near=0.05):
    eyes, targets = torch.tensor(eye, dtype=f64).view(-1, 3), torch.tensor(target, dtype=f64).view(-1, 3)
    return Cameras.pinhole(look_at(eyes, targets), width, height, horizontal_fov_deg=fov, near_m=near)


def daylight(ambient=1.0, **more):
    """Flat light unless told otherwise."""
    sky = torch.full((3,), ambient)
    return Lights(**{"lamps_m": torch.zeros(0, 3), "lamp_colours": torch.zeros(0, 3), "sky_colour": sky,
                     "ground_colour": sky, **more})  # fmt: skip

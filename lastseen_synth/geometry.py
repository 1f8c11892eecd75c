"""Triangle geometry, instance poses and pinhole cameras."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Triangles of all instances; each instance owns one unbroken range of vertices and of faces.

    | positions_m   | float64 [3, V] world, z up                         |
    | faces         | int64 [3, F] vertex numbers                        |
    | face_instance | int64 [F]                                          |
    | vertex_start  | I + 1 numbers: instance i owns vertices [i], [i+1) |
    | face_start    | I + 1 numbers, likewise                            |
    """

    positions_m: Tensor
    faces: Tensor
    face_instance: Tensor
    vertex_start: tuple[int, ...]
    face_start: tuple[int, ...]

    @property
    def instances(self) -> int:
        return len(self.face_start) - 1

    def to(self, device: torch.device | str) -> Geometry:
        return replace(
            self,
            positions_m=self.positions_m.to(device),
            faces=self.faces.to(device),
            face_instance=self.face_instance.to(device),
        )

    def only(self, instances: Sequence[int]) -> Geometry:
        """These instances alone, numbered 0, 1, ... in the order given."""
        positions, faces, owner = [], [], []
        vertex_start, face_start = [0], [0]
        for number, i in enumerate(instances):
            v0, v1, f0, f1 = *self.vertex_start[i : i + 2], *self.face_start[i : i + 2]
            positions.append(self.positions_m[:, v0:v1])
            faces.append(self.faces[:, f0:f1] + (vertex_start[-1] - v0))
            owner.append(torch.full_like(self.face_instance[f0:f1], number))
            vertex_start.append(vertex_start[-1] + v1 - v0)
            face_start.append(face_start[-1] + f1 - f0)
        return Geometry(
            positions_m=torch.cat([self.positions_m[:, :0], *positions], 1),
            faces=torch.cat([self.faces[:, :0], *faces], 1),
            face_instance=torch.cat([self.face_instance[:0], *owner]),
            vertex_start=tuple(vertex_start),
            face_start=tuple(face_start),
        )


@dataclass(frozen=True, kw_only=True)
class Poses:
    """Transforms [B, P, 4, 4] of the P moving `instances`, applied to their vertices in each of B frames."""

    instances: tuple[int, ...]
    transforms: Tensor

    def frames(self, start: int, stop: int) -> Poses:
        return replace(self, transforms=self.transforms[start:stop])


@dataclass(frozen=True, kw_only=True)
class Cameras:
    """B pinhole cameras: x right, y down, z forward; pixel (0, 0) covers [0, 1) x [0, 1).

    | world_to_camera | float64 [B, 4, 4], rigid            |
    | focal_px        | float64 [B, 2]  fx, fy              |
    | centre_px       | float64 [B, 2]  cx, cy              |
    | near_m          | nothing nearer than this is drawn   |
    """

    world_to_camera: Tensor
    focal_px: Tensor
    centre_px: Tensor
    width_px: int
    height_px: int
    near_m: float = 0.05

    @classmethod
    def pinhole(
        cls,
        world_to_camera: Tensor,
        width_px: int,
        height_px: int,
        *,
        horizontal_fov_deg: float,
        near_m: float = 0.05,
    ) -> Cameras:
        """Square pixels, optical axis in the middle of the picture."""
        world_to_camera = world_to_camera.double()
        half_angle = torch.tensor(horizontal_fov_deg, dtype=torch.float64).deg2rad() / 2
        focal = (width_px / 2 / half_angle.tan()).to(world_to_camera.device)
        middle = world_to_camera.new_tensor([width_px / 2, height_px / 2])
        frames = len(world_to_camera)
        return cls(
            world_to_camera=world_to_camera,
            focal_px=focal.expand(frames, 2),
            centre_px=middle.expand(frames, 2),
            width_px=width_px,
            height_px=height_px,
            near_m=near_m,
        )

    def __len__(self) -> int:
        return len(self.world_to_camera)

    def frames(self, start: int, stop: int) -> Cameras:
        return replace(
            self,
            world_to_camera=self.world_to_camera[start:stop],
            focal_px=self.focal_px[start:stop],
            centre_px=self.centre_px[start:stop],
        )

    def to(self, device: torch.device | str) -> Cameras:
        return replace(
            self,
            world_to_camera=self.world_to_camera.to(device),
            focal_px=self.focal_px.to(device),
            centre_px=self.centre_px.to(device),
        )

    def padded(self, margin_x_px: int, margin_y_px: int) -> Cameras:
        """The same cameras with a margin added on all four sides of the picture."""
        return replace(
            self,
            centre_px=self.centre_px + self.centre_px.new_tensor([margin_x_px, margin_y_px]),
            width_px=self.width_px + 2 * margin_x_px,
            height_px=self.height_px + 2 * margin_y_px,
        )

    def positions_m(self) -> Tensor:
        """[B, 3] in the world."""
        rotation, shift = self.world_to_camera[:, :3, :3], self.world_to_camera[:, :3, 3:]
        return -(rotation.transpose(1, 2) @ shift)[:, :, 0]

    def rays(self) -> Tensor:
        """[B, 3, 3]: (x_px, y_px, 1) -> direction in the world, of length 1 along the optical axis."""
        (fx, fy), (cx, cy) = self.focal_px.unbind(1), self.centre_px.unbind(1)
        right, down, ahead = self.world_to_camera[:, :3, :3].unbind(1)
        x_step, y_step = right / fx[:, None], down / fy[:, None]
        return torch.stack([x_step, y_step, ahead - x_step * cx[:, None] - y_step * cy[:, None]], 2)


def look_at(eyes_m: Tensor, targets_m: Tensor) -> Tensor:
    """World-to-camera matrices [..., 4, 4] of upright cameras at `eyes_m` [..., 3] looking at `targets_m`."""
    eyes, ahead = eyes_m.double(), torch.nn.functional.normalize((targets_m - eyes_m).double(), dim=-1)
    steep = ahead[..., 2:].abs() > 0.999  # vertical view: use another up axis
    _, y_axis, z_axis = torch.eye(3, dtype=torch.float64, device=eyes.device)
    up = torch.where(steep, y_axis, z_axis)
    right = torch.nn.functional.normalize(torch.linalg.cross(ahead, up), dim=-1)
    rotation = torch.stack([right, torch.linalg.cross(ahead, right), ahead], -2)
    matrix = torch.eye(4, dtype=torch.float64, device=eyes.device).repeat(*eyes.shape[:-1], 1, 1)
    matrix[..., :3, :3] = rotation
    matrix[..., :3, 3] = -(rotation @ eyes[..., None])[..., 0]
    return matrix

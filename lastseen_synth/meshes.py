"""Meshes, materials, and their assembly into the tensors of a scene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lastseen_synth.geometry import Geometry
from lastseen_synth.texture import Texture, TexturePack, pack


@dataclass(frozen=True, kw_only=True, eq=False)
class Mesh:
    """A triangle mesh.

    | positions_m | [V, 3]                                                |
    | normals     | [V, 3] smooth, unit length                            |
    | uv          | [V, 2] v = 0 is the bottom row of the picture         |
    | triangles   | [F, 3] vertex numbers                                 |
    | material    | [F] which of the materials given with it; None: all 0 |
    """

    positions_m: Tensor
    normals: Tensor
    uv: Tensor
    triangles: Tensor
    material: Tensor | None = None

    def __post_init__(self) -> None:
        vertices = len(self.positions_m)
        for name, columns in (("positions_m", 3), ("normals", 3), ("uv", 2)):
            got = tuple(getattr(self, name).shape)
            if got != (vertices, columns):
                raise ValueError(f"Mesh.{name} must be [{vertices}, {columns}], got {list(got)}")
        if self.triangles.ndim != 2 or self.triangles.shape[1] != 3:
            raise ValueError(f"Mesh.triangles must be [F, 3], got {list(self.triangles.shape)}")
        if (
            self.triangles.numel()
            and not 0 <= int(self.triangles.min()) <= int(self.triangles.max()) < vertices
        ):
            raise ValueError(f"Mesh.triangles names vertices outside 0..{vertices - 1}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Material:
    """Surface properties. `tint` multiplies the texture (linear); `emission` is radiance in the texture's
    colours (screens, windows); `specular` is the strength of the highlight."""

    texture: Texture
    tint: tuple[float, float, float] = (1.0, 1.0, 1.0)
    emission: float = 0.0
    specular: float = 0.0
    shininess: float = 32.0


# Rows of MeshScene.surface and MeshScene.materials.
UV, NORMAL, FACING = slice(0, 6), slice(6, 15), 15
LEVELS, SIZE, TINT = slice(0, 2), slice(2, 4), slice(8, 11)
WRAP, EMISSION, SPECULAR, SHININESS = range(4, 8)


@dataclass(frozen=True, kw_only=True)
class MeshScene:
    """Everything static about a scene, on one device.

    | surface       | float32 [16, F]: uv and normal of vertex 0 and their change to vertices 1 and 2;      |
    |               | FACING is +1 if the normals are on the counter-clockwise side, else -1                |
    | face_material | int64 [F]                                                                             |
    | materials     | float32 [11, materials]: numbers of the texture's first and last level, its width and |
    |               | height, wrap, emission, specular, shininess, tint                                     |
    | shiny         | whether any material has a highlight                                                  |
    """

    geometry: Geometry
    surface: Tensor
    face_material: Tensor
    materials: Tensor
    textures: TexturePack
    shiny: bool

    def to(self, device: torch.device | str) -> MeshScene:
        return replace(
            self,
            geometry=self.geometry.to(device),
            surface=self.surface.to(device),
            face_material=self.face_material.to(device),
            materials=self.materials.to(device),
            textures=self.textures.to(device),
        )

    def moved(self, instance: int, transform: Tensor) -> MeshScene:
        """The scene with this instance moved by `transform` [4, 4]."""
        v0, v1, f0, f1 = (
            *self.geometry.vertex_start[instance : instance + 2],
            *self.geometry.face_start[instance : instance + 2],
        )
        positions, surface = self.geometry.positions_m.clone(), self.surface.clone()
        transform = transform.to(positions)
        positions[:, v0:v1] = transform[:3, :3] @ positions[:, v0:v1] + transform[:3, 3:]
        rotation = transform[:3, :3].to(surface)
        normals = surface[NORMAL, f0:f1].view(3, 3, -1)
        surface[NORMAL, f0:f1] = torch.einsum("ij,kjf->kif", rotation, normals).flatten(0, 1)
        return replace(self, geometry=replace(self.geometry, positions_m=positions), surface=surface)


class SceneBuilder:
    """Collects instances; `build` makes the scene."""

    def __init__(self) -> None:
        self._positions: list[Tensor] = []
        self._faces: list[Tensor] = []
        self._surface: list[Tensor] = []
        self._face_material: list[Tensor] = []
        self._vertex_start, self._face_start = [0], [0]
        self._materials: list[Material] = []
        self._material_number: dict[int, int] = {}

    def add(self, mesh: Mesh, materials: Sequence[Material], transform: Tensor | None = None) -> int:
        """Place a mesh (`transform` [4, 4]: rotation, uniform scale, shift); returns its instance number."""
        positions, normals = mesh.positions_m.double(), mesh.normals.double()
        if transform is not None:
            transform = transform.double()
            positions = positions @ transform[:3, :3].T + transform[:3, 3]
            normals = normals @ transform[:3, :3].T
        normals = torch.nn.functional.normalize(normals, dim=1)
        triangles = mesh.triangles.long()
        local = torch.zeros(len(triangles)).long() if mesh.material is None else mesh.material.long()
        if len(local) and int(local.max()) >= len(materials):
            raise ValueError(f"the mesh uses material {int(local.max())}, but {len(materials)} were given")
        numbers = torch.tensor([self._number_of(m) for m in materials])
        uv0, uv1, uv2 = mesh.uv.double()[triangles].unbind(1)
        # Integer offsets of wrapped uv would only cost precision.
        uv0_in_tile = uv0 - uv0.floor() if all(m.texture.wrap for m in materials) else uv0
        n0, n1, n2 = normals[triangles].unbind(1)
        p0, p1, p2 = positions[triangles].unbind(1)
        winding = torch.linalg.cross(p1 - p0, p2 - p0)
        facing = torch.where(((n0 + n1 + n2) * winding).sum(1) < 0, -1.0, 1.0)
        rows = [uv0_in_tile, uv1 - uv0, uv2 - uv0, n0, n1 - n0, n2 - n0, facing[:, None]]
        self._surface.append(torch.cat(rows, 1).float())
        self._positions.append(positions)
        self._faces.append(triangles + self._vertex_start[-1])
        self._face_material.append(numbers[local])
        self._vertex_start.append(self._vertex_start[-1] + len(positions))
        self._face_start.append(self._face_start[-1] + len(triangles))
        return len(self._face_start) - 2

    def _number_of(self, material: Material) -> int:
        if id(material) not in self._material_number:
            self._material_number[id(material)] = len(self._materials)
            self._materials.append(material)
        return self._material_number[id(material)]

    def build(self, device: torch.device | str = "cpu") -> MeshScene:
        if not self._faces:
            raise ValueError("an empty scene cannot be rendered: add() something first")
        unique = list({id(m.texture): m.texture for m in self._materials}.values())
        textures, first_levels = pack([texture.to(device) for texture in unique])
        first_of = {id(texture): first for texture, first in zip(unique, first_levels)}
        rows = []
        for m in self._materials:
            first, (height, width) = first_of[id(m.texture)], m.texture.sizes[0]
            last = first + len(m.texture.sizes) - 1
            rows.append(
                [first, last, width, height, m.texture.wrap, m.emission, m.specular, m.shininess, *m.tint]
            )
        counts = torch.tensor(self._face_start).diff()
        geometry = Geometry(
            positions_m=torch.cat(self._positions).T.contiguous(),
            faces=torch.cat(self._faces).T.contiguous(),
            face_instance=torch.repeat_interleave(counts),
            vertex_start=tuple(self._vertex_start),
            face_start=tuple(self._face_start),
        )
        return MeshScene(
            geometry=geometry.to(device),
            surface=torch.cat(self._surface).T.contiguous().to(device),
            face_material=torch.cat(self._face_material).to(device),
            materials=torch.tensor(rows, dtype=torch.float32).T.contiguous().to(device),
            textures=textures,
            shiny=any(m.specular > 0 for m in self._materials),
        )

"""Mesh simplification by vertex clustering, for objects that are only background."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from scipy.sparse import csgraph

from lastseen_synth.meshes import Mesh

FINEST, COARSEST = 64, 4  # cells along the longest side


def simplified(mesh: Mesh, max_triangles: int) -> Mesh:
    """The finest clustering with at most `max_triangles`; the mesh itself if it has no more.

    Vertices are merged per texture chart, which keeps uv intact; positions are merged across charts, which
    avoids cracks.
    """
    if len(mesh.triangles) <= max_triangles:
        return mesh
    positions, triangles = mesh.positions_m.double().numpy(), mesh.triangles.numpy()
    charts = _charts(len(positions), triangles)
    low, high = COARSEST, FINEST
    best = _clustered(mesh, positions, charts, low)
    while high - low > 1:  # triangle counts grow with resolution, nearly always
        middle = (low + high) // 2
        candidate = _clustered(mesh, positions, charts, middle)
        if len(candidate.triangles) <= max_triangles:
            low, best = middle, candidate
        else:
            high = middle
    return best


def _charts(vertices: int, triangles: np.ndarray) -> np.ndarray:
    """[V] chart of every vertex: vertices are split at texture seams, so charts are connected components."""
    starts, ends = triangles[:, :2].T.ravel(), triangles[:, 1:].T.ravel()
    links = sparse.coo_array((np.ones(len(starts)), (starts, ends)), shape=(vertices, vertices))
    return csgraph.connected_components(links, directed=False)[1]


def _clustered(mesh: Mesh, positions: np.ndarray, charts: np.ndarray, cells: int) -> Mesh:
    low, high = positions.min(0), positions.max(0)
    size = max(float((high - low).max()) / cells, 1e-9)
    grid = np.floor((positions - low) / size + 0.5).astype(np.int64)
    cell_of = _numbered((grid[:, 0] * 4096 + grid[:, 1]) * 4096 + grid[:, 2])
    corner_of = _numbered(cell_of * (int(charts.max()) + 1) + charts)
    cell_middle = _means(positions, cell_of)
    # Cluster means shrink the mesh: stretch it back to its bounding box, so that it still touches the ground.
    inner_low, inner_high = cell_middle.min(0), cell_middle.max(0)
    stretch = (high - low) / np.maximum(inner_high - inner_low, 1e-9)
    cell_middle = (cell_middle - inner_low) * stretch + low
    first = np.full(int(corner_of.max()) + 1, -1)
    first[corner_of[::-1]] = np.arange(len(corner_of))[::-1]  # one vertex of each corner, to look up its cell
    triangles = mesh.triangles.numpy()
    by_cell = cell_of[triangles]
    kept = (
        (by_cell[:, 0] != by_cell[:, 1]) & (by_cell[:, 1] != by_cell[:, 2]) & (by_cell[:, 2] != by_cell[:, 0])
    )
    numbers = np.flatnonzero(kept)
    # Triangles that coincide after clustering are kept once.
    _, once = np.unique(np.sort(by_cell[numbers], 1), axis=0, return_index=True)
    numbers = numbers[np.sort(once)]
    normals = torch.from_numpy(_means(mesh.normals.double().numpy(), corner_of))
    return Mesh(
        positions_m=torch.from_numpy(cell_middle[cell_of[first]]),
        normals=torch.nn.functional.normalize(normals, dim=1),
        uv=torch.from_numpy(_means(mesh.uv.double().numpy(), corner_of)),
        triangles=torch.from_numpy(corner_of[triangles[numbers]]),
        material=None if mesh.material is None else mesh.material[torch.from_numpy(numbers)],
    )


def _numbered(keys: np.ndarray) -> np.ndarray:
    return np.unique(keys, return_inverse=True)[1].reshape(-1)


def _means(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    count = np.bincount(group)
    return np.stack([np.bincount(group, column) for column in values.T], 1) / count[:, None]

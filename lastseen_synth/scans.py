"""A user's own scans, as of Google Scanned Objects: a folder per scan with an OBJ file and its texture.

OBJ files must be in metres with z up.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from lastseen.errors import SynthError
from lastseen_synth.assets import Asset, AssetLibrary, Credit, Loaded, Split
from lastseen_synth.meshes import Material, Mesh
from lastseen_synth.shapes import smooth_normals
from lastseen_synth.texture import picture_texture

MAX_TRIANGLES = 50_000
SMALLEST_M, LARGEST_M = 0.005, 3.0
PICTURES = (".png", ".jpg", ".jpeg")
COLOURS = "black white red green blue yellow orange purple pink grey gray brown silver gold navy teal"
TRAILING = re.compile(rf"(?:[_\s-]+(?:{'|'.join(COLOURS.split())})+|[_\s-]*\d+)+$", re.IGNORECASE)


def read_scans(folder: str | os.PathLike[str]) -> AssetLibrary:
    """Sizes are read at once (about 20 ms per scan), faces and textures on first use.

    A family is a name without its trailing numbers and colours; one in ten is val, by SHA-256. Which scans
    look the same is unknown, so a whole family counts as twins.
    """
    here = Path(folder)
    if not here.is_dir():
        raise SynthError(f"{here} is not a folder; give the one that holds the scans' folders")
    assets = [_asset(obj) for scan in sorted(here.iterdir()) if scan.is_dir() and (obj := _obj_of(scan))]
    if not assets:
        raise SynthError(f"{here} has no scans; each should be a folder with model.obj and texture.png")
    return AssetLibrary(assets=tuple(assets))


def family_of(name: str) -> str:
    return TRAILING.sub("", name).lower() or name.lower()


def _obj_of(scan: Path) -> Path | None:
    """model.obj, or else the first OBJ file, here or in meshes/ (where the original archives have it)."""
    found = [path for place in (scan, scan / "meshes") for path in sorted(place.glob("*.obj"))]
    return min(found, key=lambda path: path.name != "model.obj", default=None)


def _asset(obj: Path) -> Asset:
    scan = obj.parent.parent if obj.parent.name == "meshes" else obj.parent
    low, high = _bounds(obj)
    size = high - low
    if not SMALLEST_M <= size.max() <= LARGEST_M:
        raise SynthError(f"{obj} is {size.max():.3g} m large; scale it to metres")
    family = family_of(scan.name)
    digest = hashlib.sha256(family.encode()).digest()
    split: Split = "val" if digest[0] % 10 == 0 else "train"
    half_x, half_y, height = float(size[0]) / 2, float(size[1]) / 2, float(size[2])
    return Asset(
        name=scan.name,
        kind="object",
        type="thing",
        split=split,
        family=family,
        twin=int.from_bytes(digest[1:8], "big"),  # far above the numbers that packs use
        lo_m=(-half_x, -half_y, 0.0),
        hi_m=(half_x, half_y, height),
        credit=Credit(
            title=scan.name,
            author="as its source says (Google LLC, if from Google Scanned Objects)",
            licence="as its source says (CC-BY-4.0, if from Google Scanned Objects)",
            source=f"scans in {scan.parent.name}",
        ),
        loader=partial(_load, obj, scan),
    )


def _bounds(obj: Path) -> tuple[np.ndarray, np.ndarray]:
    vertices = [line.split()[1:4] for line in _lines(obj) if line.startswith("v ")]
    if not vertices:
        raise SynthError(f"{obj} has no vertices; is it an OBJ file?")
    try:
        xyz = np.array(vertices, np.float64)
    except ValueError:
        raise SynthError(f"{obj} has a vertex that is not three numbers; export it again") from None
    if xyz.shape[1] != 3 or not np.isfinite(xyz).all():
        raise SynthError(f"{obj} has a vertex that is not three numbers; export it again")
    return xyz.min(0), xyz.max(0)


def _lines(obj: Path) -> list[str]:
    try:
        return obj.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise SynthError(f"{obj} cannot be read: {error.strerror or error}") from None


def _load(obj: Path, scan: Path) -> Loaded:
    mesh = read_obj(obj)
    if len(mesh.triangles) > MAX_TRIANGLES:
        warnings.warn(
            f"{obj} has {len(mesh.triangles)} triangles; decimate it, scenes with it will be slow",
            stacklevel=2,
        )
    return mesh, (Material(texture=picture_texture(_picture(obj, scan), wrap=False), specular=0.04),)


def _picture(obj: Path, scan: Path) -> np.ndarray:
    places = (scan, scan / "materials" / "textures", scan / "meshes")
    found = [
        p
        for place in places
        if place.is_dir()
        for p in sorted(place.iterdir())
        if p.suffix.lower() in PICTURES and p.is_file()
    ]
    if not found:
        raise SynthError(f"{scan} has no picture; put the texture of {obj.name} there as texture.png")
    path = min(found, key=lambda p: p.stem != "texture")  # archives also hold thumbnails
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise SynthError(f"{path} cannot be read as a picture; replace it with a PNG or JPEG file") from None


def read_obj(obj: Path) -> Mesh:
    """Recentred: the origin is the middle of the box in x and y, and its lowest point.

    Polygons are cut into fans; numbers may count from the end; objects, groups and materials are joined.
    """
    rows: dict[str, list[list[float]]] = {"v": [], "vt": [], "vn": []}
    columns = {"v": 3, "vt": 2, "vn": 3}
    corners: list[tuple[int, int, int]] = []
    for number, line in enumerate(_lines(obj), 1):
        word, *rest = line.split() or [""]
        try:
            if word in rows:
                row = [float(value) for value in rest[: columns[word]]]
                if len(row) < columns[word]:
                    raise ValueError
                rows[word].append(row)
            elif word == "f":
                polygon = [_corner(token, rows) for token in rest]
                if len(polygon) < 3:
                    raise ValueError
                for second, third in pairwise(polygon[1:]):
                    corners += [polygon[0], second, third]
        except ValueError:
            raise SynthError(
                f"{obj}, line {number}: cannot read {line.strip()[:60]!r}; export it again"
            ) from None
    if not corners:
        raise SynthError(f"{obj} has no faces; export it as a triangle mesh")
    # Checked at the end: a face may precede its vertices.
    if any(highest >= len(rows[k]) for highest, k in zip(np.max(corners, 0).tolist(), ("v", "vt", "vn"))):
        raise SynthError(f"{obj} has a face with a vertex that is not there; export it again")
    xyz, uv, vn = (np.array(rows[k], np.float64).reshape(-1, columns[k]) for k in ("v", "vt", "vn"))
    unique, vertex_of = np.unique(np.array(corners), axis=0, return_inverse=True)
    faces = np.array(corners)[:, 0].reshape(-1, 3)
    # Normals over shared positions, so that a texture seam does not show as a crease.
    smooth = smooth_normals(xyz, faces)[unique[:, 0]]
    given = np.concatenate([vn, np.zeros((1, 3))])[unique[:, 2]]  # -1 (none): the row of zeros
    length = np.linalg.norm(given, axis=1, keepdims=True)
    normals = np.where(length > 1e-6, given / np.maximum(length, 1e-6), smooth)
    middle = (xyz.min(0) + xyz.max(0)) / 2
    origin = np.array([middle[0], middle[1], xyz[:, 2].min()])
    return Mesh(
        positions_m=torch.from_numpy((xyz[unique[:, 0]] - origin).astype(np.float32)),
        normals=torch.from_numpy(normals.astype(np.float32)),
        uv=torch.from_numpy(np.concatenate([uv, np.zeros((1, 2))])[unique[:, 1]].astype(np.float32)),
        triangles=torch.from_numpy(vertex_of.reshape(-1, 3).astype(np.int64)),
    )


def _corner(token: str, rows: dict[str, list[list[float]]]) -> tuple[int, int, int]:
    """v, v/vt, v//vn or v/vt/vn -> indices from 0; -1 where there is none."""
    found = []
    for part, known in zip([*token.split("/"), "", ""][:3], (rows["v"], rows["vt"], rows["vn"])):
        number = int(part) if part else 0
        index = number - 1 if number >= 0 else len(known) + number
        if part and (number == 0 or index < 0):
            raise ValueError
        found.append(index)
    if found[0] < 0:
        raise ValueError
    return found[0], found[1], found[2]

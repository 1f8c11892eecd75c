"""Asset packs: NumPy archives of scanned objects, furniture, surfaces and photographs.

Names, sizes and splits are read at once; vertices and JPEG bytes on first use. Shared textures and materials
are decoded once, so that a scene stores them once.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from lastseen.errors import SynthError
from lastseen_synth.assets import Asset, AssetLibrary, Credit, Loaded, Picture, Point, Split, Support, Surface
from lastseen_synth.meshes import Material, Mesh
from lastseen_synth.supports import covered_share, shelf_boards
from lastseen_synth.texture import Texture, colour_texture, picture_texture

OBJECTS = ("objects_gso_a.npz", "objects_gso_b.npz")
ROOMS, IMAGES = "rooms.npz", "images.npz"
SPLITS: tuple[Split, Split] = ("train", "val")
GSO_SOURCE = (
    "Google Scanned Objects, github kevinzakka/mujoco_scanned_objects "
    "6ff8d275cebfd5b47e49685e3cfbe64b20e49a3c; decimated, textures re-packed"
)
GSO_AUTHOR = "Google LLC (L. Downs et al., ICRA 2022)"
# The renderer has no transparency: materials with less opacity than this are left out.
CLEAR, CLEAR_PANE = 0.15, 0.6
MAX_COVERED = 0.4  # of a support, by geometry close above it
# The catalogue's types are coarse; these words in a title override them.
TYPES_BY_TITLE = {
    "rug": ("carpet", "doormat", "bathmat", "tatami"),
    "curtain": ("curtain",),
    "wall": ("upper", "hood", "air conditioning", "water heater", "wall flat tv", "towel rack"),
    "inset": ("cooktop", "induction cooker"),
    "ceiling": ("ceiling",),
}


class Pack:
    """Arrays of one archive, each read on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrays: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            try:
                # Opened here: np.load leaves a damaged file open.
                with self.path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                    self._arrays[name] = archive[name]
            except KeyError:
                raise SynthError(f"{self.path} has no array {name!r}; get a fresh copy of the pack") from None
            except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
                raise SynthError(f"{self.path} is damaged or not a pack; get a fresh copy") from None
        return self._arrays[name]

    def words(self, name: str) -> list[str]:
        return self[name].tolist()

    def span(self, offsets: str, i: int) -> slice:
        return slice(*self[offsets][i : i + 2].tolist())

    def picture(self, jpegs: str, offsets: str, i: int) -> np.ndarray:
        jpeg = self[jpegs][self.span(offsets, i)].tobytes()
        try:
            return np.asarray(Image.open(io.BytesIO(jpeg), formats=("JPEG",)).convert("RGB"))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            raise SynthError(f"{self.path}: picture {i} is damaged; get a fresh copy of the pack") from None


def read_packs(folder: str | os.PathLike[str]) -> AssetLibrary:
    here = Path(folder)
    library = AssetLibrary()
    found = [name for name in (*OBJECTS, ROOMS, IMAGES) if (here / name).is_file()]
    if not found:
        raise SynthError(f"{here} has no packs; it should hold {', '.join((*OBJECTS, ROOMS, IMAGES))}")
    for name in found:
        pack = Pack(here / name)
        read = {ROOMS: _rooms, IMAGES: _images}.get(name, _objects)
        library += read(pack)
    return library


def _objects(pack: Pack) -> AssetLibrary:
    families, twins, shoes, splits = (pack[k].tolist() for k in ("family", "twin", "is_shoe", "split"))
    lows, highs = pack["lo"].tolist(), pack["hi"].tolist()
    return AssetLibrary(
        assets=tuple(
            Asset(
                name=name,
                kind="object",
                type="shoe" if shoes[i] else "thing",
                split=SPLITS[splits[i]],
                family=families[i],
                twin=twins[i],
                lo_m=_point(lows[i]),
                hi_m=_point(highs[i]),
                is_shoe=bool(shoes[i]),
                credit=Credit(title=name, author=GSO_AUTHOR, licence="CC-BY-4.0", source=GSO_SOURCE),
                loader=partial(_object, pack, i),
            )
            for i, name in enumerate(pack.words("name"))
        )
    )


def _object(pack: Pack, i: int) -> Loaded:
    vertices = pack.span("v_off", i)
    low, high = pack["lo"][i], pack["hi"][i]
    mesh = _mesh(
        low + pack["V"][vertices] / 65535.0 * (high - low),
        pack["N"][vertices] / 127.0,
        pack["UV"][vertices] / 65535.0,
        pack["F"][pack.span("f_off", i)],
    )
    atlas = picture_texture(pack.picture("tex_jpg", "tex_off", i), wrap=False)
    return mesh, (Material(texture=atlas, specular=0.04),)


def _rooms(pack: Pack) -> AssetLibrary:
    material = cache(partial(_room_material, pack, cache(partial(_room_texture, pack))))
    kinds, types, titles = (pack.words(f"mesh_{k}") for k in ("kind", "type", "title"))
    splits, lows, highs = (pack[f"mesh_{k}"].tolist() for k in ("split", "lo", "hi"))
    licences, authors, sources = (pack.words(f"mesh_{k}") for k in ("licence", "author", "source"))
    assets = []
    for i, name in enumerate(pack.words("mesh_name")):
        assets.append(
            Asset(
                name=name,
                kind=kinds[i],
                type=_type(titles[i], types[i]) if kinds[i] in ("furniture", "small") else types[i],
                split=SPLITS[splits[i]],
                family=name,
                lo_m=_point(lows[i]),
                hi_m=_point(highs[i]),
                supports=_supports(pack, i) if kinds[i] in ("furniture", "small") else (),
                grip_m=_point(pack["mesh_grip"][i].tolist()) if kinds[i] == "hand" else None,
                credit=Credit(
                    title=f"{titles[i]} ({name})",
                    author=authors[i],
                    licence=licences[i],
                    source=f"{_collection(sources[i])}; decimated, textures reduced",
                ),
                loader=partial(_room_asset, pack, i, kinds[i], material),
            )
        )
    return AssetLibrary(assets=tuple(assets), surfaces=_surfaces(pack))


def _type(title: str, catalogue_type: str) -> str:
    words = title.lower()
    matches = (name for name, keys in TYPES_BY_TITLE.items() if any(key in words for key in keys))
    return next(matches, catalogue_type)


def _supports(pack: Pack, i: int) -> tuple[Support, ...]:
    """The support that the pack lists, unless it is covered; of shelves, also the boards below."""
    z, x0, y0, x1, y1, _ = pack["mesh_surface"][i].tolist()
    is_shelf = pack["mesh_type"][i] == "shelf"
    if np.isnan(z) and not is_shelf:
        return ()
    positions, _, _, triangles, _ = _room_arrays(pack, i)
    supports = [] if np.isnan(z) else [Support(z_m=z, x0_m=x0, y0_m=y0, x1_m=x1, y1_m=y1)]
    supports = [s for s in supports if covered_share(s, positions, triangles, within_m=0.25) < MAX_COVERED]
    if is_shelf:
        top = supports[0].z_m if supports else np.inf
        supports += [board for board in shelf_boards(positions, triangles) if board.z_m < top - 0.05]
    return tuple(supports)


def _room_arrays(pack: Pack, i: int) -> tuple[np.ndarray, ...]:
    vertices, faces = pack.span("v_off", i), pack.span("f_off", i)
    low, high = pack["mesh_lo"][i], pack["mesh_hi"][i]
    return (
        low + pack["V"][vertices] / 65535.0 * (high - low),
        pack["N"][vertices] / 127.0,
        pack["UV"][vertices] * pack["uv_scale"][i],
        pack["F"][faces].astype(np.int64),
        pack["FM"][faces].astype(np.int64),
    )


def _room_asset(pack: Pack, i: int, kind: str, material: Callable[[int], Material]) -> Loaded:
    positions, normals, uv, triangles, numbers = _room_arrays(pack, i)
    seen = pack["mat_opacity"][numbers] >= (CLEAR_PANE if kind == "opening" else CLEAR)
    used, local = np.unique(numbers[seen], return_inverse=True)
    mesh = _mesh(positions, normals, uv, triangles[seen], local)
    if kind == "hand":  # hand and forearm share a colour in the pack; separate materials can be recoloured
        return mesh, tuple(replace(material(m)) for m in used.tolist())
    return mesh, tuple(material(m) for m in used.tolist())


def _room_material(pack: Pack, texture: Callable[[int], Texture], m: int) -> Material:
    t = int(pack["mat_tex"][m])
    return Material(texture=texture(t) if t >= 0 else colour_texture(pack["mat_rgb"][m].tolist()))


def _room_texture(pack: Pack, t: int) -> Texture:
    return picture_texture(pack.picture("tex_jpg", "tex_off", t), wrap=True)


def _surfaces(pack: Pack) -> tuple[Surface, ...]:
    uses, licences, authors, sources = (
        pack.words(f"surf_{k}") for k in ("use", "licence", "author", "source")
    )
    metres, splits = pack["surf_metres"].tolist(), pack["surf_split"].tolist()
    return tuple(
        Surface(
            name=name,
            use=uses[i],
            metres=metres[i],
            split=SPLITS[splits[i]],
            credit=Credit(title=name, author=authors[i], licence=licences[i], source=_collection(sources[i])),
            loader=partial(_surface, pack, i),
        )
        for i, name in enumerate(pack.words("surf_name"))
    )


def _surface(pack: Pack, i: int) -> Texture:
    return picture_texture(pack.picture("surf_jpg", "surf_off", i), wrap=True)


def _images(pack: Pack) -> AssetLibrary:
    kinds, licences, authors, sources = (pack.words(k) for k in ("kind", "licence", "author", "source"))
    widths, heights, splits = (pack[k].tolist() for k in ("width", "height", "split"))
    return AssetLibrary(
        pictures=tuple(
            Picture(
                name=name,
                kind=kinds[i],
                split=SPLITS[splits[i]],
                width=widths[i],
                height=heights[i],
                credit=Credit(
                    title=name, author=authors[i], licence=licences[i], source=_collection(sources[i])
                ),
                loader=partial(pack.picture, "jpg", "off", i),
            )
            for i, name in enumerate(pack.words("name"))
        )
    )


def _collection(source: str) -> str:
    """The collection of an item, without the item's path in it."""
    if source.startswith("github "):
        return " ".join(source.split()[:3])
    for path_starts in (": usr/", " /", ", texture ", " texture of ", " dist/", ": "):
        source = source.split(path_starts)[0]
    return source


def _mesh(
    positions: np.ndarray,
    normals: np.ndarray,
    uv: np.ndarray,
    triangles: np.ndarray,
    material: np.ndarray | None = None,
) -> Mesh:
    return Mesh(
        positions_m=torch.from_numpy(positions.astype(np.float32)),
        normals=torch.nn.functional.normalize(torch.from_numpy(normals.astype(np.float32)), dim=1),
        uv=torch.from_numpy(uv.astype(np.float32)),
        triangles=torch.from_numpy(triangles.astype(np.int64)),
        material=None if material is None else torch.from_numpy(material.astype(np.int64)),
    )


def _point(xyz: Sequence[float]) -> Point:
    x, y, z = xyz
    return x, y, z

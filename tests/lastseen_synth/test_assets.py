"""The asset library and the packs it is read from."""

import io
import math

import numpy as np
import pytest
from PIL import Image

from lastseen.errors import SynthError
from lastseen_synth.assets import (
    Asset,
    AssetLibrary,
    Credit,
    Picture,
    Surface,
    attribution,
    with_skin_and_sleeve,
)
from lastseen_synth.meshes import Material, SceneBuilder
from lastseen_synth.packs import read_packs
from lastseen_synth.shapes import box, merged
from lastseen_synth.texture import colour_texture

CREDIT = Credit(title="thing", author="Ann", licence="CC-BY-4.0", source="a shop")


def cube_asset(name="cube", split="train", kind="object", credit=CREDIT, **more):
    def load():
        cube_asset.loads += 1
        return merged(box((-0.1, -0.1, 0), (0.1, 0.1, 0.2))), (Material(texture=colour_texture((9, 9, 9))),)

    box_m = {"lo_m": (-0.1, -0.1, 0.0), "hi_m": (0.1, 0.1, 0.2)}
    return Asset(name=name, kind=kind, type="box", split=split, family=name, credit=credit, loader=load,
                 **box_m, **more)  # fmt: skip


cube_asset.loads = 0


def jpeg(colour, size=8):
    out = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(out, "JPEG", quality=95)
    return np.frombuffer(out.getvalue(), np.uint8)


def joined_bytes(blobs):
    offsets = np.cumsum([0, *(len(b) for b in blobs)]).astype(np.int64)
    return np.concatenate(blobs), offsets


def cube_arrays(count, low, high):
    """Vertices of `count` unit cubes as the packs store them."""
    mesh = merged(box((0, 0, 0), (1, 1, 1)))
    vertices, faces = len(mesh.positions_m), len(mesh.triangles)
    return {
        "V": np.tile((mesh.positions_m.numpy() * 65535).astype(np.uint16), (count, 1)),
        "N": np.tile((mesh.normals.numpy() * 127).astype(np.int8), (count, 1)),
        "F": np.tile(mesh.triangles.numpy().astype(np.uint16), (count, 1)),
        "v_off": np.arange(count + 1) * vertices,
        "f_off": np.arange(count + 1) * faces,
    }, mesh


def write_objects(folder, name="objects_gso_a.npz", names=("Shoe_Red", "Box")):
    count = len(names)
    arrays, mesh = cube_arrays(count, 0, 1)
    pictures, offsets = joined_bytes([jpeg((200, 30, 30)), jpeg((30, 30, 200))][:count])
    np.savez(
        folder / name,
        **arrays,
        UV=np.tile((mesh.uv.numpy() * 65535).astype(np.uint16), (count, 1)),
        name=np.array(names),
        family=np.array([n.lower() for n in names]),
        split=np.arange(count, dtype=np.uint8) % 2,
        twin=np.arange(count, dtype=np.int32) + 7,
        is_shoe=np.array([1, 0][:count], np.uint8),
        lo=np.tile(np.float32([-0.1, -0.15, 0]), (count, 1)),
        hi=np.tile(np.float32([0.1, 0.15, 0.1]), (count, 1)),
        tex_jpg=pictures,
        tex_off=offsets,
    )


def write_rooms(folder):
    kinds = ["furniture", "furniture", "hand", "opening"]
    arrays, mesh = cube_arrays(4, 0, 1)
    faces = len(mesh.triangles)
    numbers = np.zeros((4, faces), np.uint16)
    numbers[1, : faces // 2] = 1  # clear
    numbers[2, : faces // 2] = 2
    numbers[3, : faces // 2] = 3  # a pane
    texture, tex_off = joined_bytes([jpeg((120, 90, 40))])
    surfaces, surf_off = joined_bytes([jpeg((250, 250, 240)), jpeg((90, 60, 30))])
    nowhere = [np.nan] * 6
    np.savez(
        folder / "rooms.npz",
        **arrays,
        UV=np.tile((mesh.uv.numpy() * 100).astype(np.int16), (4, 1)),
        uv_scale=np.full(4, 0.02, np.float32),
        FM=numbers.ravel(),
        mesh_name=np.array(["table_1", "upper_1", "hand_right_open", "window_1"]),
        mesh_title=np.array(["Table", "Upper cabinet", "Hand", "Window"]),
        mesh_kind=np.array(kinds),
        mesh_type=np.array(["table", "cabinet", "open", "other"]),
        mesh_licence=np.array(["CC-BY-3.0", "CC-BY-3.0", "MIT", "CC0-1.0"]),
        mesh_author=np.array(["Ann", "Ann", "Bob", "Cyd"]),
        mesh_source=np.array(["Debian pack 1, Shop /x/a.obj", "Debian pack 1, Shop /x/b.obj",
                              "npm hands 1 dist/h.glb", "Debian pack 1, Free /y/c.obj"]),
        mesh_split=np.array([0, 1, 0, 0], np.uint8),
        mesh_lo=np.tile(np.float32([-0.5, -0.4, 0]), (4, 1)),
        mesh_hi=np.tile(np.float32([0.5, 0.4, 0.7]), (4, 1)),
        mesh_surface=np.float32([[0.7, -0.5, -0.4, 0.5, 0.4, 1.0], nowhere, nowhere, nowhere]),
        mesh_grip=np.float32([[np.nan] * 3, [np.nan] * 3, [0, 0.1, -0.03], [np.nan] * 3]),
        mat_rgb=np.uint8([[255, 255, 255], [0, 0, 0], [200, 150, 120], [9, 9, 9]]),
        mat_tex=np.int32([0, -1, -1, -1]),
        mat_opacity=np.float32([1, 0.1, 1, 0.5]),
        tex_jpg=texture,
        tex_off=tex_off,
        surf_name=np.array(["white", "brown"]),
        surf_use=np.array(["wall", "floor"]),
        surf_metres=np.float32([1.0, 2.0]),
        surf_split=np.uint8([0, 1]),
        surf_licence=np.array(["MIT", "MIT"]),
        surf_author=np.array(["Dan", "Dan"]),
        surf_source=np.array(["PyPI robots 1: a.png", "PyPI robots 1: b.png"]),
        surf_jpg=surfaces,
        surf_off=surf_off,
    )  # fmt: skip


def write_images(folder):
    pictures, offsets = joined_bytes([jpeg((10, 200, 10), 16)])
    np.savez(
        folder / "images.npz", kind=np.array(["pano"]), name=np.array(["lobby"]),
        licence=np.array(["CC0-1.0"]), author=np.array(["Eve"]),
        source=np.array(["github eve/halls abc123 hdr/hall.hdr"]), jpg=pictures,
        off=offsets, width=np.int32([16]), height=np.int32([16]), split=np.uint8([1]),
    )  # fmt: skip


@pytest.fixture
def packs(tmp_path):
    write_objects(tmp_path)
    write_rooms(tmp_path)
    write_images(tmp_path)
    return read_packs(tmp_path)


def named(library, name):
    return next(asset for asset in library.assets if asset.name == name)


def test_a_library_lists_kinds_and_splits_and_adds_up():
    hand = cube_asset("hand", kind="hand")
    library = AssetLibrary(assets=(cube_asset("a"), cube_asset("b", "val"))) + AssetLibrary(assets=(hand,))
    assert [a.name for a in library.kind("object")] == ["a", "b"]
    assert [a.name for a in library.split("train").assets] == ["a", "hand"]
    assert [a.name for a in library.split("val").assets] == ["b", "hand"]  # hands are in both


def test_an_asset_is_loaded_once_and_recoloured_without_loading_twice():
    asset = cube_asset()
    before = cube_asset.loads
    red = Material(texture=colour_texture((255, 0, 0)))
    other = asset.recoloured([red])
    assert other.load()[0] is asset.load()[0]
    assert other.load()[1] == (red,) and asset.load()[1] != (red,)
    assert cube_asset.loads == before + 1
    assert asset.size_m == pytest.approx((0.2, 0.2, 0.2))


def test_recolouring_needs_as_many_materials_as_there_are():
    with pytest.raises(ValueError, match="cube has 1 materials, got 0"):
        cube_asset().recoloured([]).load()


def test_attribution_names_every_item_once_by_source_licence_and_author():
    credits = [
        Credit(title="b", author="Bob", licence="CC-BY-4.0", source="a shop"),
        Credit(title="a", author="Bob", licence="CC-BY-4.0", source="a shop"),
        Credit(title="c", author="Ann", licence="CC-BY-4.0", source="a shop"),
        Credit(title="d", author="Ann", licence="Odd-1", source="a shop"),
    ]
    surface = Surface(name="s", use="wall", metres=1, split="train", credit=credits[2], loader=lambda: None)
    picture = Picture(
        name="p", kind="pano", split="val", width=1, height=1, credit=credits[3], loader=lambda: None
    )
    assets = [cube_asset(credit=credit) for credit in credits[:2]]
    assert attribution([*assets, surface, picture, *assets]) == (
        "- a shop ([CC-BY-4.0](https://creativecommons.org/licenses/by/4.0/))\n"
        "  - Ann: c\n"
        "  - Bob: a, b\n"
        "- a shop (Odd-1)\n"
        "  - Ann: d\n"
    )
    assert attribution([]) == ""


def test_scanned_objects_have_their_size_split_twin_and_picture(packs):
    shoe = named(packs, "Shoe_Red")
    assert (shoe.kind, shoe.type, shoe.split, shoe.family) == ("object", "shoe", "train", "shoe_red")
    assert (shoe.twin, shoe.is_shoe, named(packs, "Box").split) == (7, True, "val")
    mesh, (material,) = shoe.load()
    assert mesh.positions_m.min(0).values.tolist() == pytest.approx(shoe.lo_m, abs=1e-5)
    assert mesh.positions_m.max(0).values.tolist() == pytest.approx(shoe.hi_m, abs=1e-5)
    assert not material.texture.wrap
    assert material.texture.texels[0].float().mean() > 10 * material.texture.texels[2].float().mean()


def test_two_object_packs_are_one_library(tmp_path):
    write_objects(tmp_path)
    write_objects(tmp_path, "objects_gso_b.npz", names=("Cup",))
    assert [a.name for a in read_packs(tmp_path).assets] == ["Shoe_Red", "Box", "Cup"]


def test_furniture_has_tiling_textures_that_meshes_share(packs):
    table, window = named(packs, "table_1"), named(packs, "window_1")
    assert table.load()[1][0].texture.wrap
    assert table.load()[1][0] is window.load()[1][0]
    builder = SceneBuilder()
    for asset in (table, window):
        builder.add(*asset.load())
    assert builder.build().materials.shape[1] == 1


def test_the_flat_top_of_a_table_is_a_support_without_a_ceiling(packs):
    (top,) = named(packs, "table_1").supports
    assert (top.z_m, top.x0_m, top.y1_m) == pytest.approx((0.7, -0.5, 0.4))
    assert math.isinf(top.clearance_m)
    assert named(packs, "upper_1").supports == ()


def test_what_is_clear_is_left_out_and_window_panes_always(packs):
    whole = len(named(packs, "table_1").load()[0].triangles)
    for name in ("upper_1", "window_1"):
        mesh, materials = named(packs, name).load()
        assert len(mesh.triangles) == whole // 2 and len(materials) == 1


def test_titles_tell_what_hangs_on_a_wall(packs):
    assert named(packs, "upper_1").type == "wall"
    assert named(packs, "table_1").type == "table"


def test_a_hand_has_a_grip_and_two_materials_and_can_be_dressed(packs):
    hand = named(packs, "hand_right_open")
    assert hand.grip_m == pytest.approx((0, 0.1, -0.03))
    mesh, (skin, sleeve) = hand.load()
    assert skin is not sleeve and set(mesh.material.tolist()) == {0, 1}
    one, other = (with_skin_and_sleeve(hand, np.random.default_rng(seed)) for seed in (0, 1))
    assert one.load()[0] is mesh and one.grip_m == hand.grip_m
    assert one.load()[1][0].tint != other.load()[1][0].tint
    assert all(0 < value <= 1 for material in one.load()[1] for value in material.tint)


def test_surfaces_and_pictures_are_decoded_on_demand(packs):
    white, brown = packs.surfaces
    assert (white.use, brown.metres, brown.split) == ("wall", 2.0, "val")
    assert white.texture() is white.texture() and white.texture().wrap
    (hall,) = packs.pictures
    assert (hall.kind, hall.split) == ("pano", "val")
    assert hall.image().shape == (16, 16, 3) and hall.image().dtype == np.uint8


def test_credits_of_packs_group_by_collection(packs):
    text = attribution([*packs.assets, *packs.surfaces, *packs.pictures])
    assert "- Debian pack 1, Shop; decimated, textures reduced ([CC-BY-3.0]" in text
    assert "  - Ann: Table (table_1), Upper cabinet (upper_1)\n" in text
    assert "- PyPI robots 1 (MIT)\n  - Dan: brown, white\n" in text
    assert "- github eve/halls abc123 (" in text
    for credit in {item.credit for item in (*packs.assets, *packs.surfaces, *packs.pictures)}:
        assert text.count(credit.title) == 1


def test_some_packs_are_enough(tmp_path):
    write_images(tmp_path)
    library = read_packs(tmp_path)
    assert len(library.pictures) == 1 and library.assets == ()


def test_a_folder_without_packs_says_which_it_needs(tmp_path):
    with pytest.raises(SynthError, match=r"has no packs; it should hold objects_gso_a\.npz"):
        read_packs(tmp_path)
    with pytest.raises(SynthError, match="has no packs"):
        read_packs(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut off"])
def test_a_damaged_pack_is_named(tmp_path, content):
    (tmp_path / "rooms.npz").write_bytes(content)
    with pytest.raises(SynthError, match=r"rooms\.npz is damaged or not a pack") as error:
        read_packs(tmp_path)
    assert "\n" not in str(error.value)


def test_a_pack_that_lacks_an_array_or_has_a_bad_picture_is_named(tmp_path):
    np.savez(tmp_path / "images.npz", kind=np.array(["pano"]))
    with pytest.raises(SynthError, match=r"images\.npz has no array 'licence'"):
        read_packs(tmp_path)
    write_images(tmp_path)
    arrays = dict(np.load(tmp_path / "images.npz"))
    np.savez(tmp_path / "images.npz", **(arrays | {"jpg": arrays["jpg"] * 0}))
    with pytest.raises(SynthError, match="picture 0 is damaged"):
        read_packs(tmp_path).pictures[0].image()

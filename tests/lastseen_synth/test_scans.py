"""A user's own OBJ scans: reading, families, and errors in one line."""

import hashlib
import os

import pytest
import torch
from PIL import Image

from lastseen.errors import SynthError
from lastseen_synth.scans import family_of, read_obj, read_scans

SQUARE = "v 0 0 0\nv 2 0 0\nv 2 2 0\nv 0 2 0\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\nvn 0 0 2\n"


def obj(tmp_path, text, name="model.obj"):
    path = tmp_path / name
    path.write_text(text)
    return read_obj(path)


@pytest.mark.parametrize(
    "faces",
    [
        "f 1/1/1 2/2/1 3/3/1 4/4/1",
        "f 1/1 2/2 3/3 4/4",
        "f 1//1 2//1 3//1 4//1",
        "f 1 2 3 4",
        "f -4/-4/-1 -3/-3/-1 -2/-2/-1 -1/-1/-1",
        "o thing\ng part\nusemtl red\ns 1\nf 1/1/1 2/2/1 3/3/1\nf 1/1/1 3/3/1 4/4/1 # end",
    ],
)
def test_every_way_to_write_a_face_gives_the_same_square(tmp_path, faces):
    text = SQUARE + faces.replace(" # end", "") + "\n"
    mesh = obj(tmp_path, text)
    assert len(mesh.triangles) == 2
    corners = mesh.positions_m[mesh.triangles].double()
    across = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert across.tolist() == [[0, 0, 4], [0, 0, 4]]
    assert mesh.normals.tolist() == [[0, 0, 1]] * 4
    assert mesh.positions_m.min(0).values.tolist() == [-1, -1, 0]  # recentred
    if "/" in faces and "//" not in faces:
        expected = (mesh.positions_m[:, :2] + 1) / 2
        assert torch.equal(mesh.uv, expected)


def test_faces_may_come_before_their_vertices(tmp_path):
    assert len(obj(tmp_path, "f 1 2 3\n" + SQUARE).triangles) == 1


def test_a_seam_in_the_picture_is_no_crease_in_the_surface(tmp_path):
    roof = "v 0 0 0\nv 1 0 1\nv 2 0 0\nv 0 1 0\nv 1 1 1\nv 2 1 0\nvt 0 0\nvt 1 0\n"
    mesh = obj(tmp_path, roof + "f 1/1 2/1 5/1 4/1\nf 2/2 3/2 6/2 5/2\n")
    for y in (-0.5, 0.5):
        at_ridge = (mesh.positions_m - torch.tensor([0.0, y, 1.0])).norm(dim=1) < 1e-6
        one, other = mesh.normals[at_ridge]
        assert torch.equal(one, other) and abs(one[2]) > 0.9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v 0 0\n", "line 1: cannot read 'v 0 0'"),
        (SQUARE + "f 1 2\n", "line 10: cannot read 'f 1 2'"),
        (SQUARE + "f 1 2 x\n", "line 10: cannot read 'f 1 2 x'"),
        (SQUARE + "f 0 1 2\n", "line 10: cannot read 'f 0 1 2'"),
        (SQUARE + "f -9 1 2\n", "line 10: cannot read 'f -9 1 2'"),
        (SQUARE + "f /1 /2 /3\n", "line 10: cannot read"),
        (SQUARE + "f 1 2 9\n", "a vertex that is not there"),
        (SQUARE + "f 1/9 2/1 3/1\n", "a vertex that is not there"),
        (SQUARE, "has no faces"),
    ],
)
def test_a_bad_obj_file_is_named_in_one_line(tmp_path, text, message):
    with pytest.raises(SynthError) as error:
        obj(tmp_path, text)
    assert "model.obj" in str(error.value) and message in str(error.value) and "\n" not in str(error.value)


def write_scan(folder, name, obj_at="model.obj", picture_at="texture.png", scale=0.1):
    vertices = "".join(f"v {x * scale} {y * scale} {z * scale}\n" for x, y, z in
                       [(5, 5, 5), (7, 5, 5), (7, 8, 5), (5, 5, 9)])  # fmt: skip
    for path in (folder / name / obj_at, folder / name / picture_at):
        path.parent.mkdir(parents=True, exist_ok=True)
    (folder / name / obj_at).write_text(vertices + "vt 0.5 0.5\nf 1/1 2/1 3/1\nf 1/1 2/1 4/1\n")
    Image.new("RGB", (4, 4), (250, 0, 0)).save(folder / name / picture_at)


def test_scans_are_read_from_either_layout(tmp_path):
    write_scan(tmp_path, "Cup_Red")
    write_scan(tmp_path, "Plate", "meshes/model.obj", "materials/textures/texture.png")
    write_scan(tmp_path, "Vase", "thing.obj", "skin.JPG")
    Image.new("RGB", (4, 4)).save(tmp_path / "Cup_Red" / "a_thumbnail.png")
    (tmp_path / "notes.txt").write_text("not a scan")
    (tmp_path / "empty").mkdir()
    library = read_scans(tmp_path)
    assert [a.name for a in library.assets] == ["Cup_Red", "Plate", "Vase"]
    for asset in library.assets:
        mesh, (material,) = asset.load()
        assert asset.size_m == pytest.approx((0.2, 0.3, 0.4))
        assert mesh.positions_m.min(0).values.tolist() == pytest.approx(asset.lo_m, abs=1e-6)
        assert mesh.positions_m.max(0).values.tolist() == pytest.approx(asset.hi_m, abs=1e-6)
        assert material.texture.texels[0].min() > 0.8 and not material.texture.wrap


def test_the_family_of_a_scan_is_its_name_without_numbers_and_colours():
    assert family_of("Cup_Red") == family_of("Cup_Blue_2") == family_of("cup12") == "cup"
    assert family_of("Shoe_WhiteBlackSilver") == "shoe"
    assert family_of("Red") == "red"  # something must remain
    assert family_of("Infrared") == "infrared"  # a colour is a word of its own


def test_scans_of_a_family_share_a_split_and_a_twin_group(tmp_path):
    for name in ("Cup_Red", "Cup_2", "Plate"):
        write_scan(tmp_path, name)
    scans = {asset.name: asset for asset in read_scans(tmp_path).assets}
    red, two, plate = (scans[name] for name in ("Cup_Red", "Cup_2", "Plate"))
    assert (red.split, red.twin) == (two.split, two.twin)
    assert red.twin != plate.twin
    first_byte = hashlib.sha256(b"cup").digest()[0]
    assert red.split == ("val" if first_byte % 10 == 0 else "train")


def test_bad_folders_of_scans_say_what_to_do(tmp_path):
    with pytest.raises(SynthError, match="is not a folder"):
        read_scans(tmp_path / "nowhere")
    with pytest.raises(SynthError, match=r"has no scans; each should be a folder with model\.obj"):
        read_scans(tmp_path)
    write_scan(tmp_path, "Giant", scale=100)
    with pytest.raises(SynthError, match=r"model\.obj is 400 m large; scale it to metres"):
        read_scans(tmp_path)


def test_scans_with_missing_or_bad_parts_are_named(tmp_path):
    write_scan(tmp_path, "Cup")
    (tmp_path / "Cup" / "texture.png").write_bytes(b"no picture")
    (asset,) = read_scans(tmp_path).assets
    with pytest.raises(SynthError, match=r"texture\.png cannot be read as a picture"):
        asset.load()
    (tmp_path / "Cup" / "texture.png").unlink()
    with pytest.raises(SynthError, match=r"has no picture; put the texture of model\.obj there"):
        asset.load()
    (tmp_path / "Cup" / "model.obj").write_text("v 0 0 nan\n")
    with pytest.raises(SynthError, match="a vertex that is not three numbers"):
        read_scans(tmp_path)
    (tmp_path / "Cup" / "model.obj").write_text("# nothing\n")
    with pytest.raises(SynthError, match="has no vertices"):
        read_scans(tmp_path)


def test_a_texture_is_a_png_or_jpeg_whatever_its_name(tmp_path):
    """Pillow would run Ghostscript for this one."""
    write_scan(tmp_path, "Cup")
    Image.new("RGB", (8, 8)).save(tmp_path / "Cup" / "texture.png", "EPS")
    (asset,) = read_scans(tmp_path).assets
    with pytest.raises(SynthError, match=r"texture\.png cannot be read as a picture"):
        asset.load()
    os.mkfifo(tmp_path / "Cup" / "a.png")
    (tmp_path / "Cup" / "texture.png").unlink()
    with pytest.raises(SynthError, match="has no picture"):
        asset.load()

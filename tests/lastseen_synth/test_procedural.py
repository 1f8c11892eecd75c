from collections import defaultdict

import numpy as np
import pytest
import torch

from lastseen_synth.assets import attribution
from lastseen_synth.meshes import SceneBuilder
from lastseen_synth.procedural import OBJECTS, procedural_library
from lastseen_synth.procedural.packaged_goods import cartons
from lastseen_synth.procedural.packaging import Brand, front
from lastseen_synth.procedural.patterns import SURFACES
from lastseen_synth.procedural.people import POSES

pytestmark = pytest.mark.usefixtures("one_thread")


def families(assets):
    groups = defaultdict(list)
    for asset in assets:
        groups[asset.family].append(asset)
    return groups


@pytest.fixture(scope="module")
def shapes(drawn_library):
    """One of each family is enough: its members differ in pictures only."""
    return [group[0] for group in families(drawn_library.assets).values()]


def arrays(asset):
    mesh, _ = asset.load()
    return mesh.positions_m.double().numpy(), mesh.triangles.numpy(), mesh.normals.double().numpy()


def test_making_the_library_draws_nothing():
    library = procedural_library(5)
    assert not any("_loaded" in vars(asset) for asset in library.assets)
    assert not any("_texture" in vars(surface) for surface in library.surfaces)


def test_there_is_enough_of_everything(drawn_library):
    assert len(drawn_library.kind("object")) >= 160
    assert len(OBJECTS) >= 12
    assert len(drawn_library.pictures) >= 30
    assert {s.use for s in drawn_library.surfaces} == {"wall", "floor", "wood", "fabric", "counter", "metal"}
    assert len(
        {item.name for item in (*drawn_library.assets, *drawn_library.surfaces, *drawn_library.pictures)}
    ) == (len(drawn_library.assets) + len(drawn_library.surfaces) + len(drawn_library.pictures))


def test_both_splits_have_every_type_and_share_no_family(drawn_library):
    train, val = drawn_library.split("train"), drawn_library.split("val")
    for of in (lambda a: (a.kind, a.type), lambda a: (a.kind, a.family.split("-")[0])):
        assert {of(a) for a in train.assets} == {of(a) for a in val.assets}
    asked = {a.family for a in train.assets if a.kind != "hand"} & {
        a.family for a in val.assets if a.kind != "hand"
    }
    assert not asked
    assert {s.use for s in train.surfaces} == {s.use for s in val.surfaces}
    assert not {s.name for s in train.surfaces} & {s.name for s in val.surfaces}
    assert (
        train.pictures
        and val.pictures
        and len(train.pictures) + len(val.pictures) == len(drawn_library.pictures)
    )
    share = len(val.kind("object")) / len(drawn_library.kind("object"))
    assert 0.15 < share < 0.4


def test_a_shape_keeps_the_conventions(shapes):
    for asset in shapes:
        mesh, materials = asset.load()
        positions, triangles, normals = arrays(asset)
        within = 0.003 if asset.kind == "hand" else 1e-5
        assert positions.min(0) == pytest.approx(np.array(asset.lo_m), abs=within)
        assert positions.max(0) == pytest.approx(np.array(asset.hi_m), abs=within)
        if asset.kind != "hand":
            assert asset.lo_m[2] == 0.0
            assert asset.lo_m[0] == -asset.hi_m[0] and asset.lo_m[1] == -asset.hi_m[1]
        assert np.linalg.norm(normals, axis=1) == pytest.approx(1.0, abs=1e-4)
        a, b, c = (positions[triangles[:, k]] for k in range(3))
        across = np.cross(b - a, c - a)
        large = np.linalg.norm(across, axis=1) > 1e-10
        assert ((across * normals[triangles].mean(1)).sum(1) > 0)[large].mean() > 0.995
        if asset.type != "curtain":
            assert (a * np.cross(b, c)).sum() > 0  # outwards
        assert torch.isfinite(mesh.uv).all()
        assert set(mesh.material.tolist()) == set(range(len(materials)))
        assert len(triangles) < 10_000


def test_objects_have_the_size_of_things_that_one_picks_up(drawn_library):
    for asset in drawn_library.kind("object"):
        assert 0.04 <= max(asset.size_m) <= 0.31, asset.name
        assert min(asset.size_m) >= 0.006, asset.name


def heights(positions, triangles, x, y):
    """z of all faces on the vertical line through (x, y), and their normals' z."""
    a, b, c = (positions[triangles[:, k]] for k in range(3))
    ab, ac, ap = (b - a)[:, :2], (c - a)[:, :2], np.array([x, y]) - a[:, :2]
    area = ab[:, 0] * ac[:, 1] - ab[:, 1] * ac[:, 0]
    area = np.where(np.abs(area) < 1e-12, np.nan, area)
    u = (ap[:, 0] * ac[:, 1] - ap[:, 1] * ac[:, 0]) / area
    v = (ab[:, 0] * ap[:, 1] - ab[:, 1] * ap[:, 0]) / area
    hit = (u >= 0) & (v >= 0) & (u + v <= 1)
    return (a[:, 2] + u * (b - a)[:, 2] + v * (c - a)[:, 2])[hit], np.sign(area[hit])


def test_supports_lie_on_faces_that_look_up_with_free_height_above(drawn_library):
    for asset in (a for a in drawn_library.assets if a.supports):
        positions, triangles, _ = arrays(asset)
        rng = np.random.default_rng(0)
        for place in asset.supports:
            assert asset.lo_m[0] - 1e-6 <= place.x0_m < place.x1_m <= asset.hi_m[0] + 1e-6
            assert asset.lo_m[1] - 1e-6 <= place.y0_m < place.y1_m <= asset.hi_m[1] + 1e-6
            assert place.clearance_m > 0.1
            for _ in range(12):
                # Edges are rounded: a hand's breadth of a few millimetres is left out.
                x, y = rng.uniform(
                    (place.x0_m + 0.012, place.y0_m + 0.012), (place.x1_m - 0.012, place.y1_m - 0.012)
                )
                z, facing = heights(positions, triangles, x, y)
                floor = z[(facing > 0) & (np.abs(z - place.z_m) < 0.004)]
                assert len(floor), f"nothing to stand on at {x:.2f}, {y:.2f}, {place.z_m:.2f}"
                above = z[z > place.z_m + 0.004]
                assert not len(above) or above.min() > place.z_m + min(place.clearance_m, 0.3) - 0.004


def test_a_shelf_has_a_place_on_every_board(drawn_library):
    for shelf in (a for a in drawn_library.assets if a.type == "shelf"):
        assert len(shelf.supports) >= 3
        assert sum(np.isinf(place.clearance_m) for place in shelf.supports) == 1


def same(one, other):
    (mesh, materials), (mesh_2, materials_2) = one.load(), other.load()
    return (
        torch.equal(mesh.positions_m, mesh_2.positions_m)
        and torch.equal(mesh.triangles, mesh_2.triangles)
        and len(materials) == len(materials_2)
        and all(torch.equal(a.texture.texels, b.texture.texels) for a, b in zip(materials, materials_2))
    )


def test_the_same_seed_draws_the_same_things_in_any_order(drawn_library, shapes):
    again = {asset.name: asset for asset in procedural_library().assets}
    for asset in reversed(shapes[::9]):
        assert same(asset, again[asset.name]), asset.name
    for one, other in zip(drawn_library.surfaces[::20], procedural_library().surfaces[::20]):
        assert torch.equal(one.texture().texels, other.texture().texels)
    assert np.array_equal(drawn_library.pictures[3].image(), procedural_library().pictures[3].image())


def test_another_seed_draws_other_things_under_other_names(drawn_library):
    other = procedural_library(1)
    assert not {a.name for a in other.kind("object")} & {a.name for a in drawn_library.kind("object")}
    carton, carton_1 = (next(a for a in lib.assets if a.type == "carton") for lib in (drawn_library, other))
    assert carton.size_m != carton_1.size_m


def test_things_of_a_family_have_one_shape_and_different_pictures(drawn_library):
    for group in list(families(drawn_library.kind("object")).values())[::6]:
        assert len({asset.size_m for asset in group}) == 1
        assert len({asset.twin for asset in group}) == 1 and group[0].twin is None
        for k, one in enumerate(group):
            for other in group[k + 1 :]:
                colours = [
                    torch.stack([m.texture.texels.float().mean(1) for m in a.load()[1]]) for a in (one, other)
                ]
                assert (colours[0] - colours[1]).abs().max() > 0.03, f"{one.name} looks like {other.name}"


def test_a_carton_shows_its_front_upright_to_the_front():
    rng = np.random.default_rng(0)
    brand = Brand.line(rng, 1)[0]
    (plan,) = cartons(rng, [brand], small=False)
    mesh, materials = plan.load()
    used = mesh.triangles[mesh.material == 0].unique()
    assert (mesh.normals[used].mean(0) * torch.tensor([0.0, -1.0, 0.0])).sum() > 0.7
    wide, _, high = plan.size_m
    assert torch.allclose(mesh.uv[used, 0], mesh.positions_m[used, 0] / wide + 0.5, atol=1e-5)
    assert torch.allclose(mesh.uv[used, 1], mesh.positions_m[used, 2] / high, atol=1e-5)
    height, width = materials[0].texture.sizes[0]
    assert front(brand, (width, height)).shape == (height, width, 3)


def test_hands_come_in_both_sides_and_all_poses_with_a_grip(drawn_library):
    hands = {asset.name: asset for asset in drawn_library.kind("hand")}
    assert len(hands) == 2 * len(POSES)
    for pose in POSES:
        right, left = hands[f"drawn_hand_right_{pose}"], hands[f"drawn_hand_left_{pose}"]
        mesh, materials = right.load()
        assert len(materials) == 2 and right.type == pose
        flip = torch.tensor([-1.0, 1.0, 1.0])
        assert torch.equal(left.load()[0].positions_m, mesh.positions_m * flip)
        x, y, z = right.grip_m
        assert 0.05 < y < 0.14 and -0.09 < z < 0 and abs(x) < 0.04  # before the palm
        assert left.grip_m == (-x, y, z)
        arm = mesh.positions_m[mesh.triangles[mesh.material == 1].unique()]
        assert arm[:, 1].max() < 0 and arm[:, 1].min() == pytest.approx(-0.42)


def test_people_stand_as_high_as_people(drawn_library):
    for person in drawn_library.kind("person"):
        assert 1.5 < person.size_m[2] < 2.0 and person.size_m[0] < 0.9


def test_screens_and_lamps_give_light_of_their_own(drawn_library):
    for asset in drawn_library.kind("furniture"):
        glows = any(material.emission > 0 for material in asset.load()[1])
        assert glows == (asset.type in ("screen", "lamp")), asset.name


def test_a_surface_has_no_seam_where_it_repeats():
    for name in SURFACES:
        tile = SURFACES[name][2](np.random.default_rng(3)).astype(float)
        for axis in (0, 1):
            inside = np.abs(np.diff(tile, axis=axis)).mean((1 - axis, 2))
            seam = np.abs(tile.take(0, axis) - tile.take(-1, axis)).mean()
            assert seam <= 1.05 * inside.max() + 1.0


def test_pictures_have_the_size_they_say(drawn_library):
    for picture in drawn_library.pictures[:14]:
        image = picture.image()
        assert image.shape == (picture.height, picture.width, 3) and image.dtype == np.uint8
        assert image.std() > 8


def test_furniture_in_the_same_wood_shares_its_texture(drawn_library):
    builder, count = SceneBuilder(), 0
    tables = [a for a in drawn_library.assets if a.type in ("table", "shelf", "cabinet")]
    for asset in tables:
        mesh, materials = asset.load()
        builder.add(mesh, materials)
        count += sum(len(m.texture.sizes) > 1 for m in materials)
    unique = {id(m.texture) for a in tables for m in a.load()[1] if len(m.texture.sizes) > 1}
    assert len(unique) <= 21 < count
    assert builder.build().textures.levels.shape[1] < 21 * 9 + 3 * len(tables)


def test_everything_drawn_is_credited_to_this_project(drawn_library):
    text = attribution([*drawn_library.assets, *drawn_library.surfaces, *drawn_library.pictures])
    assert text.count("Apache-2.0") == 1
    assert text.count("the lastseen authors") == 1

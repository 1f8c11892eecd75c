"""Plain things: one colour, names and groups of their own, the same in every walk."""

from dataclasses import replace

import numpy as np
import pytest

from lastseen_synth.annotated_walk import (
    annotated_photo_walk,
    annotated_room_walk,
    appearance_group,
    appearance_groups,
)
from lastseen_synth.clutter import Stock
from lastseen_synth.cutouts import Cutout
from lastseen_synth.photo_walks import PhotoWalks
from lastseen_synth.plain_things import plain_colour, plain_variants, with_everyday_things, with_plain_things
from lastseen_synth.procedural import everyday_objects
from lastseen_synth.procedural.everyday import EVERYDAY
from lastseen_synth.texture import linear_to_srgb

pytestmark = pytest.mark.usefixtures("one_thread")


def plain_objects(library):
    return [a for a in library.kind("object") if plain_colour(a)]


def test_a_plain_variant_is_the_same_mesh_in_one_colour(train_library):
    for asset in train_library.kind("object")[::40]:
        for variant in plain_variants(asset):
            (mesh, materials), (own, _) = variant.load(), asset.load()
            assert mesh is own
            for material in materials:
                pixels = 255 * linear_to_srgb(material.texture.texels.float()).numpy()
                assert pixels.std(1).max() < 4
                assert np.abs(pixels.mean(1) - plain_colour(variant)).max() < 3


def test_a_glowing_part_keeps_glowing(train_library):
    asset = train_library.kind("object")[0]
    mesh, materials = asset.load()
    lit = replace(asset, loader=lambda: (mesh, tuple(replace(m, emission=1.0) for m in materials)))
    assert [m.emission for m in plain_variants(lit)[0].load()[1]] == [1.0] * len(materials)


def test_variants_differ_in_name_group_and_colour(train_library):
    assets = [
        *train_library.kind("object"),
        *(v for a in train_library.kind("object") for v in plain_variants(a)),
    ]
    assert len({a.name for a in assets}) == len(assets)
    for asset in train_library.kind("object"):
        one, other = plain_variants(asset)
        assert len({appearance_group(a) for a in (asset, one, other)}) == 3
        assert np.linalg.norm(np.subtract(plain_colour(one), plain_colour(other))) >= 70
        # The other colour and the printed ones are look-alikes, and may stand beside it.
        assert one.family == other.family == asset.family
    family = [a for a in assets if plain_colour(a) and a.family == assets[0].family]
    for a in family:
        for b in family:
            assert (a.twin == b.twin) == (plain_colour(a) == plain_colour(b))


def test_walks_share_the_variants_of_an_asset(train_library):
    one, other = (with_plain_things(train_library, np.random.default_rng(s), 0.35) for s in (1, 2))
    names = {a.name for a in plain_objects(one)}, {a.name for a in plain_objects(other)}
    assert names[0] != names[1]
    both = names[0] & names[1]
    assert len(both) > 5
    again = with_plain_things(train_library, np.random.default_rng(1), 0.35)
    assert [a.name for a in again.assets] == [a.name for a in one.assets]
    of = {a.name: a for a in other.assets}
    assert all(a is of[a.name] for a in one.assets if a.name in both)


def test_the_share_is_kept_and_none_changes_nothing(train_library):
    for share in (0.2, 0.35, 0.6):
        library = with_plain_things(train_library, np.random.default_rng(0), share)
        assert len(plain_objects(library)) / len(library.kind("object")) == pytest.approx(share, abs=0.02)
        assert [a for a in library.assets if a.kind != "object"] == [
            a for a in train_library.assets if a.kind != "object"
        ]
    rng = np.random.default_rng(0)
    assert with_plain_things(train_library, rng, 0.0) is train_library
    assert rng.random() == np.random.default_rng(0).random()
    with pytest.raises(ValueError, match=r"in \[0, 1\], got 1.5"):
        with_plain_things(train_library, rng, 1.5)


def test_what_may_be_confused_is_not_in_one_library(train_library):
    plain = plain_objects(with_plain_things(train_library, np.random.default_rng(3), 0.5))
    for n, a in enumerate(plain):
        for b in plain[:n]:
            sizes = np.divide(sorted(a.size_m), sorted(b.size_m))
            near = np.linalg.norm(np.subtract(plain_colour(a), plain_colour(b))) < 45
            assert a.family == b.family or not (near and (sizes > 1 / 1.2).all() and (sizes < 1.2).all())


def test_no_twin_of_an_absent_plain_thing_is_in_the_stock(train_library):
    library = with_plain_things(train_library, np.random.default_rng(0), 0.5)
    absent = plain_objects(library)[0]
    stock = Stock(library, [absent])
    assert appearance_group(absent) not in {appearance_group(a) for a in stock.assets}
    assert any(a.family == absent.family for a in stock.look_alikes(absent))


def test_everyday_things_are_added_once_and_only_to_their_split(train_library, val_library):
    known = with_everyday_things(train_library)
    assert known is with_everyday_things(train_library)
    more = {a.name for a in known.assets} - {a.name for a in train_library.assets}
    assert {name.split("-")[0] for name in more} == set(EVERYDAY)
    assert len({a.name for a in known.assets}) == len(known.assets)
    assert not more & {a.name for a in with_everyday_things(val_library).assets}
    assert not {a.type for a in train_library.assets} & set(EVERYDAY)


def test_everyday_things_have_the_size_they_say_and_unit_normals():
    for asset in everyday_objects():
        if asset.type in EVERYDAY and asset.name.endswith("a"):
            mesh, _ = asset.load()
            size = (mesh.positions_m.amax(0) - mesh.positions_m.amin(0)).numpy()
            np.testing.assert_allclose(size, asset.size_m, rtol=1e-4)
            np.testing.assert_allclose(mesh.normals.norm(dim=1).numpy(), 1, atol=1e-3)
            assert max(asset.size_m) < 0.4


def test_a_room_walk_shows_and_asks_for_plain_things(train_library, monkeypatch):
    monkeypatch.setattr("lastseen_synth.annotated_walk.QUERY_PICTURES", 2)
    library = with_plain_things(train_library, np.random.default_rng(0), 1.0)
    walk = annotated_room_walk(
        library, np.random.default_rng(1), size_px=(112, 84), seconds=5, max_triangles=40_000
    )
    plain = [k for k, name in enumerate(walk.names) if "@plain-" in name]
    assert plain
    groups = {a.name: appearance_group(a) for a in library.assets}
    assert walk.groups == tuple(groups[name] for name in walk.names)
    for picture in walk.query_pictures:
        colour = plain_colour(next(a for a in library.assets if a.name == walk.names[picture.thing]))
        x1, y1, x2, y2 = map(int, picture.box.expanded(0.4).xyxy)
        shown = picture.picture[y1:y2, x1:x2].reshape(-1, 3).astype(float)
        if colour and max(colour) - min(colour) > 80:  # the light changes brightness, not so much the hue
            assert np.median(shown, 0).argmax() == np.argmax(colour)


def test_a_plain_cutout_is_a_smooth_region_with_an_edge():
    picture = np.random.default_rng(0).integers(50, 130, (120, 120, 3)).astype(np.uint8)
    picture[35:85, 35:85] = 230
    (found,) = {c.inside.tobytes(): c for n in range(4) if (c := Cutout.draw_plain(picture, n))}.values()
    assert found.contrast < 15 < Cutout.draw(picture, np.random.default_rng(0)).contrast
    assert found.varied(np.random.default_rng(0)) is found
    picture[:85] = 230  # now a wall
    assert Cutout.draw_plain(picture, 0) is None


def test_a_plain_region_of_a_photograph_has_its_own_name_and_the_group_of_the_photograph(
    train_library, monkeypatch
):
    monkeypatch.setattr("lastseen_synth.photo_walks.SHAPE_SHARE", 0.0)
    walks = PhotoWalks(train_library, size=(112, 112), frames=4, plain_share=1.0)
    groups = appearance_groups(train_library)
    walk = annotated_photo_walk(walks, np.random.default_rng(0), groups=groups)
    assert walk.names[0].endswith("@plain")
    assert walk.groups == (groups[walk.names[0].removesuffix("@plain")],)
    assert walk.groups[0] in walk.present

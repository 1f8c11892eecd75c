"""Fully annotated walks: stored without loss, with patches, boxes and query pictures that agree."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from walks import GREEN, RED, Thing, moving, walk_of

from lastseen_synth.annotated_walk import (
    AnnotatedWalk,
    annotated_photo_walk,
    annotated_room_walk,
    appearance_groups,
    majority_per_patch,
    unique_instances,
)
from lastseen_synth.assets import Asset, AssetLibrary, Credit, Picture
from lastseen_synth.photo_walks import PhotoWalks
from lastseen_synth.rooms import Placed

pytestmark = pytest.mark.usefixtures("one_thread")

CREDIT = Credit(title="t", author="a", licence="CC0-1.0", source="s")
SIZE = (112, 84)


@pytest.fixture(scope="module")
def room(train_library):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lastseen_synth.annotated_walk.QUERY_PICTURES", 3)
        return annotated_room_walk(
            train_library, np.random.default_rng(1), size_px=SIZE, seconds=5, max_triangles=40_000
        )


def same(one: AnnotatedWalk, other: AnnotatedWalk) -> None:
    for name in ("source", "width", "height", "jpegs", "names", "groups", "present"):
        assert getattr(one, name) == getattr(other, name), name
    assert (one.others_px is None) == (other.others_px is None)
    if one.others_px is not None:
        np.testing.assert_array_equal(one.others_px, other.others_px)
    for name in ("boxes_px", "visible", "share", "patches"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_walk_comes_back_from_its_file_as_it_was(tmp_path, room):
    hidden = Thing(name="ö b", colour=GREEN, boxes=[None] * 4, group="twin 3")
    shown = Thing(name="a", colour=RED, boxes=moving((5, 5, 40, 30), (3, 2), 4), portraits=2)
    full, _ = walk_of([shown, hidden], also_present=["never seen"])
    bare, _ = walk_of([hidden])
    for number, walk in enumerate((full, replace(bare, present=()), room)):
        path = tmp_path / f"{number}.npz"
        walk.save(path)
        again = AnnotatedWalk.load(path)
        same(walk, again)
        np.testing.assert_array_equal(walk.frames(), again.frames())
        for a, b in zip(walk.query_pictures, again.query_pictures, strict=True):
            assert (a.thing, a.picture.shape) == (b.thing, b.picture.shape)
            assert b.box.xyxy == pytest.approx(a.box.xyxy)
            assert np.abs(a.picture.astype(int) - b.picture).mean() < 8  # JPEG
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.npz", "1.npz", "2.npz"]


def slow_patches(ids: np.ndarray) -> np.ndarray:
    frames, height, width = ids.shape
    patches = np.full((frames, height // 14, width // 14), -1, np.int16)
    for t, row, column in np.ndindex(patches.shape):
        cell = ids[t, row * 14 : row * 14 + 14, column * 14 : column * 14 + 14]
        for number in np.unique(cell):
            if (cell == number).sum() > 98:
                patches[t, row, column] = number
    return patches


def test_a_patch_is_of_what_covers_more_than_half_of_it():
    for seed in range(8):
        check_patches(seed)


def check_patches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(-1, 4, (3, 6, 8, 196)).astype(np.int16)
    for cell in ids.reshape(-1, 196):
        first = rng.integers(60, 140) if rng.random() < 0.5 else rng.integers(97, 100)  # just half, or not
        cell[:first] = rng.integers(-1, 4)
        rng.shuffle(cell)
    ids = np.ascontiguousarray(ids.reshape(3, 6, 8, 14, 14).swapaxes(2, 3).reshape(3, 84, 112))
    found = majority_per_patch(torch.from_numpy(ids))
    assert found.dtype == torch.int16
    expected = slow_patches(ids)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert len(np.unique(expected)) == 5


def asset(name: str, kind: str = "object", twin: int | None = None) -> Asset:
    return Asset(
        name=name,
        kind=kind,
        type="thing",
        split="train",
        family=name,
        twin=twin,
        lo_m=(0, 0, 0),
        hi_m=(1, 1, 1),
        credit=CREDIT,
        loader=lambda: None,
    )


def test_what_stands_in_a_room_twice_has_no_name():
    assets = [
        asset("mug"),
        asset("pen", "small"),
        asset("pen", "small"),  # two of one asset
        asset("red can", twin=1),
        asset("other red can", twin=1),  # two that look the same
        asset("cat", "animal", twin=2),
        asset("table", "furniture"),
        asset("hand", "hand"),
        asset("ann", "person"),
    ]
    placed = [Placed(instance=10 + n, asset=a, transform=torch.eye(4)) for n, a in enumerate(assets)]
    found = unique_instances(SimpleNamespace(placed=placed))
    assert [(number, a.name) for number, a in found] == [(10, "mug"), (15, "cat"), (18, "ann")]


def test_photographs_of_one_product_are_of_one_group():
    def picture(name: str, kind: str) -> Picture:
        return Picture(
            name=name, kind=kind, split="train", width=1, height=1, credit=CREDIT, loader=lambda: None
        )

    pictures = [
        picture("grocery/Juice/Tropicana/1.jpg", "grocery"),
        picture("grocery/Juice/Tropicana/2.jpg", "grocery"),
        picture("grocery/Juice/Bravo/1.jpg", "grocery"),
        picture("cats/1.jpg", "caltech101"),
        picture("cats/2.jpg", "caltech101"),
    ]
    assets = (asset("mug"), asset("red can", twin=1), asset("other red can", twin=1))
    groups = appearance_groups(AssetLibrary(assets=assets, pictures=tuple(pictures)))
    names = [p.name for p in pictures]
    assert groups[names[0]] == groups[names[1]]
    assert groups["red can"] == groups["other red can"]
    assert len(set(groups.values())) == 6


def test_a_walk_through_a_room_knows_where_its_things_are(room):
    frames, things = room.visible.shape
    assert (frames, len(room.jpegs), len(room.names), len(room.groups)) == (25, 25, things, things)
    assert room.frames().shape == (25, 84, 112, 3)
    assert things >= 3
    assert room.visible.any(0).all()  # what is never seen has no row
    np.testing.assert_array_equal(np.isfinite(room.boxes_px).all(-1), room.visible)
    boxes = room.boxes_px[room.visible]
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] <= SIZE).all()
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert (room.share[room.visible] >= 0.1).all()
    assert len(set(room.groups)) == things
    assert set(room.groups) <= set(room.present)
    assert len(room.present) > things  # furniture, at least


def test_all_other_things_of_a_room_have_boxes_too(room):
    """Furniture, and what stands in it twice: to whoever learns what a thing is, these are no background."""
    others = room.others_px
    there = np.isfinite(others).all(-1)
    assert others.shape[0] == len(room.jpegs) and others.shape[1] >= 3
    assert there.any(0).all()
    sides = others[there][:, 2:] - others[there][:, :2]
    assert (sides > 0).all() and (others[there] >= 0).all() and (others[there] <= (*SIZE, *SIZE)).all()
    for frame in range(len(room.jpegs)):
        own = room.boxes_px[frame][room.visible[frame]]
        assert not any((other == box).all() for other in others[frame][there[frame]] for box in own)


def test_patches_of_a_thing_are_in_its_box(room):
    assert room.patches.shape == (25, 6, 8)
    assert room.patches.max() < len(room.names)
    covered = 0
    for t, k in zip(*np.nonzero(room.visible), strict=True):
        rows, columns = np.nonzero(room.patches[t] == k)
        x1, y1, x2, y2 = room.boxes_px[t, k]
        # More than half of a patch is covered, so at least half of either side is in the box.
        assert (np.minimum(columns * 14 + 14, x2) - np.maximum(columns * 14, x1) >= 7).all()
        assert (np.minimum(rows * 14 + 14, y2) - np.maximum(rows * 14, y1) >= 7).all()
        covered += len(rows)
    assert covered > 50


def test_portraits_of_a_room_show_things_of_the_walk_whole(room):
    assert room.query_pictures
    for portrait in room.query_pictures:
        assert 0 <= portrait.thing < len(room.names)
        height, width = portrait.picture.shape[:2]
        x1, y1, x2, y2 = portrait.box.xyxy
        assert 0 <= x1 < x2 <= width
        assert 0 <= y1 < y2 <= height
        assert portrait.box.area > 0.15 * width * height


def test_a_walk_over_photographs_annotates_one_thing(train_library):
    walks = PhotoWalks(train_library, size=(112, 112), frames=4)
    groups = appearance_groups(train_library)
    walk = annotated_photo_walk(walks, np.random.default_rng(0), groups=groups)
    assert walk.frames().shape == (4, 112, 112, 3)
    assert walk.visible.shape == (4, 1)
    assert walk.visible.any()
    assert walk.groups == (groups[walk.names[0]],)
    assert walk.groups[0] in walk.present and len(walk.present) > 1  # not alone in the scene
    y, x = (np.mgrid[:8, :8] + 0.5) * 14
    for t in range(4):
        rows, columns = np.nonzero(walk.patches[t] == 0)
        if not walk.visible[t, 0]:
            assert len(rows) == 0
            continue
        x1, y1, x2, y2 = box = walk.boxes_px[t, 0]
        assert (box >= 0).all() and (box <= 112).all()
        outside = (x < x1) | (x > x2) | (y < y1) | (y > y2)
        assert not outside[rows, columns].any()
    (portrait,) = walk.query_pictures
    assert portrait.picture.shape == (112, 112, 3)
    assert 0 <= portrait.box.x1 < portrait.box.x2 <= 112
    absent = annotated_photo_walk(walks, np.random.default_rng(0), groups=groups, present=False)
    assert not absent.visible.any()
    assert absent.present and absent.groups[0] not in absent.present
    assert (absent.patches == -1).all()
    assert absent.query_pictures

"""Walks in which every thing is known: kept as they were, counted right, and rendered true."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from walks import BLUE, GREEN, RED, Thing, moving, walk_of

from lastseen.errors import SynthError
from lastseen.train import harvest as harvest_module
from lastseen.train.harvest import harvest
from lastseen_synth.assets import Asset, Credit, Library, Picture
from lastseen_synth.census import (
    Census,
    groups_of,
    nameable,
    patches_of,
    photo_census,
    room_census,
)
from lastseen_synth.library import open_library
from lastseen_synth.photos import PhotoWalks
from lastseen_synth.rooms import Placed

pytestmark = pytest.mark.usefixtures("one_thread")

CREDIT = Credit(title="t", author="a", licence="CC0-1.0", source="s")
SIZE = (112, 84)


@pytest.fixture(scope="module")
def library():
    return open_library("train")


@pytest.fixture(scope="module")
def room(library):
    return room_census(library, np.random.default_rng(1), size_px=SIZE, seconds=5, max_triangles=40_000)


def same(one: Census, other: Census) -> None:
    for name in ("source", "width", "height", "jpegs", "names", "groups", "present"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("boxes_px", "visible", "share", "patches"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_walk_comes_back_from_its_file_as_it_was(tmp_path, room):
    hidden = Thing(name="ö b", colour=GREEN, boxes=[None] * 4, group="twin 3")
    shown = Thing(name="a", colour=RED, boxes=moving((5, 5, 40, 30), (3, 2), 4), portraits=2)
    full, _ = walk_of([shown, hidden], also_present=["never seen"])
    bare, _ = walk_of([hidden])
    for number, census in enumerate((full, replace(bare, present=()), room)):
        path = tmp_path / f"{number}.npz"
        census.save(path)
        again = Census.load(path)
        same(census, again)
        np.testing.assert_array_equal(census.frames(), again.frames())
        for a, b in zip(census.portraits, again.portraits, strict=True):
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


@pytest.mark.parametrize("seed", range(8))
def test_a_patch_is_of_what_covers_more_than_half_of_it(seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(-1, 4, (3, 6, 8, 196)).astype(np.int16)
    for cell in ids.reshape(-1, 196):
        first = rng.integers(60, 140) if rng.random() < 0.5 else rng.integers(97, 100)  # just half, or not
        cell[:first] = rng.integers(-1, 4)
        rng.shuffle(cell)
    ids = np.ascontiguousarray(ids.reshape(3, 6, 8, 14, 14).swapaxes(2, 3).reshape(3, 84, 112))
    found = patches_of(torch.from_numpy(ids))
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
    found = nameable(SimpleNamespace(placed=placed))
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
    groups = groups_of(Library(assets=assets, pictures=tuple(pictures)))
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
    assert room.portraits
    for portrait in room.portraits:
        assert 0 <= portrait.thing < len(room.names)
        height, width = portrait.picture.shape[:2]
        x1, y1, x2, y2 = portrait.box.xyxy
        assert 0 <= x1 < x2 <= width
        assert 0 <= y1 < y2 <= height
        assert portrait.box.area > 0.15 * width * height


def test_a_walk_over_photographs_is_a_census_of_one_thing(library):
    walks = PhotoWalks(library, size=(112, 112), frames=4)
    groups = groups_of(library)
    census = photo_census(walks, np.random.default_rng(0), groups=groups)
    assert census.frames().shape == (4, 112, 112, 3)
    assert census.visible.shape == (4, 1)
    assert census.visible.any()
    assert census.groups == (groups[census.names[0]],)
    assert census.groups[0] in census.present and len(census.present) > 1  # not alone in the scene
    y, x = (np.mgrid[:8, :8] + 0.5) * 14
    for t in range(4):
        rows, columns = np.nonzero(census.patches[t] == 0)
        if not census.visible[t, 0]:
            assert len(rows) == 0
            continue
        x1, y1, x2, y2 = box = census.boxes_px[t, 0]
        assert (box >= 0).all() and (box <= 112).all()
        outside = (x < x1) | (x > x2) | (y < y1) | (y > y2)
        assert not outside[rows, columns].any()
    (portrait,) = census.portraits
    assert portrait.picture.shape == (112, 112, 3)
    assert 0 <= portrait.box.x1 < portrait.box.x2 <= 112
    absent = photo_census(walks, np.random.default_rng(0), groups=groups, present=False)
    assert not absent.visible.any()
    assert absent.present and absent.groups[0] not in absent.present
    assert (absent.patches == -1).all()
    assert absent.portraits


def noise_census(walks: object, rng: np.random.Generator, **_: object) -> Census:
    thing = Thing(
        name="a", colour=tuple(rng.integers(0, 255, 3).tolist()), boxes=[(9, 9, 60, 60)], portraits=1
    )
    return walk_of([thing], source="photo")[0]


def no_rendering() -> Library:
    """Runs in each process that makes walks."""
    harvest_module.photo_census = noise_census
    return open_library("train")


def test_a_stopped_harvest_goes_on_and_two_processes_write_what_one_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(harvest_module, "photo_census", photo_census)  # to be put back in the end
    one, two = tmp_path / "one", tmp_path / "two"
    seen = []
    paths = harvest(one, no_rendering, walks=0, photos=3, seed=7)
    assert [path.name for path in paths] == [f"photo-7-0000{n}.npz" for n in range(3)]
    before = [path.stat().st_mtime_ns for path in paths]
    grown = harvest(one, no_rendering, walks=0, photos=5, seed=7, progress=lambda *n: seen.append(n))
    assert seen == [(4, 5), (5, 5)]
    assert grown[:3] == paths
    assert [path.stat().st_mtime_ns for path in paths] == before
    assert len({path.read_bytes() for path in grown}) == 5
    others = harvest(two, no_rendering, walks=0, photos=5, seed=7, workers=2)
    assert [path.name for path in others] == [path.name for path in grown]
    for ours, theirs in zip(others, grown, strict=True):
        assert ours.read_bytes() == theirs.read_bytes()
    assert harvest(two, no_rendering, walks=0, photos=7, seed=7, minutes=0) == others


def test_a_draw_that_fails_is_drawn_again_and_a_hopeless_one_is_left_out(tmp_path, monkeypatch):
    draws = []

    def fails(walks, rng, **_):
        draws.append(float(rng.random()))
        if len(draws) != 2:
            raise SynthError("no place")
        return noise_census(walks, rng)

    monkeypatch.setattr(harvest_module, "photo_census", fails)
    found = harvest(tmp_path, partial(open_library, "train"), walks=0, photos=2)
    assert [path.name for path in found] == ["photo-0-00000.npz"]
    assert len(draws) == len(set(draws)) == 2 + harvest_module.TRIES


def test_nothing_is_opened_when_everything_is_there(tmp_path):
    census, _ = walk_of([Thing(name="a", colour=BLUE, boxes=[(0, 0, 50, 50)])])
    census.save(tmp_path / "room-0-00000.npz")

    def broken() -> Library:
        raise AssertionError("no library is needed")

    assert harvest(tmp_path, broken, walks=1, photos=0) == [tmp_path / "room-0-00000.npz"]

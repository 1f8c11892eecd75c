"""Rendering annotated walks into a folder: resumable, and the same however many processes do it."""

from functools import partial

import numpy as np
import pytest
from walks import BLUE, Thing, walk_of

from lastseen.errors import SynthError
from lastseen.train import harvest as harvest_module
from lastseen.train.harvest import harvest
from lastseen_synth.annotated_walk import AnnotatedWalk, annotated_photo_walk
from lastseen_synth.assets import AssetLibrary
from lastseen_synth.library import open_library

pytestmark = pytest.mark.usefixtures("one_thread")


def noise_walk(walks: object, rng: np.random.Generator, **_: object) -> AnnotatedWalk:
    thing = Thing(
        name="a", colour=tuple(rng.integers(0, 255, 3).tolist()), boxes=[(9, 9, 60, 60)], portraits=1
    )
    return walk_of([thing], source="photo")[0]


def no_rendering() -> AssetLibrary:
    """Runs in each process that makes walks."""
    harvest_module.annotated_photo_walk = noise_walk
    return open_library("train")


def test_a_stopped_harvest_goes_on_and_two_processes_write_what_one_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(
        harvest_module, "annotated_photo_walk", annotated_photo_walk
    )  # to be put back in the end
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
        return noise_walk(walks, rng)

    monkeypatch.setattr(harvest_module, "annotated_photo_walk", fails)
    found = harvest(tmp_path, partial(open_library, "train"), walks=0, photos=2)
    assert [path.name for path in found] == ["photo-0-00000.npz"]
    assert len(draws) == len(set(draws)) == 2 + harvest_module.TRIES


def test_nothing_is_opened_when_everything_is_there(tmp_path):
    walk, _ = walk_of([Thing(name="a", colour=BLUE, boxes=[(0, 0, 50, 50)])])
    walk.save(tmp_path / "room-0-00000.npz")

    def broken() -> AssetLibrary:
        raise AssertionError("no library is needed")

    assert harvest(tmp_path, broken, walks=1, photos=0) == [tmp_path / "room-0-00000.npz"]


def test_the_plain_share_is_that_of_the_library_of_a_walk(tmp_path, monkeypatch):
    library, seen = open_library("train"), []

    def looks(things, rng, **_):
        seen.append(things)
        return noise_walk(things, rng)

    monkeypatch.setattr(harvest_module, "annotated_room_walk", looks)
    harvest(tmp_path / "0", lambda: library, walks=1, photos=0, plain_share=0.0)
    harvest(tmp_path / "1", lambda: library, walks=2, photos=0)
    harvest(tmp_path / "2", lambda: library, walks=1, photos=0)
    assert seen[0] is library
    names = [[a.name for a in things.assets] for things in seen]
    assert names[1] == names[3] != names[2]
    assert 0.2 < np.mean(["@plain-" in a.name for a in seen[1].kind("object")]) < 0.4

"""Walks in rounds: which walks a step sees depends on the step alone; rendering goes on beside training."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from walks import BLUE, GREEN, RED, Thing, moving, walk_of

from lastseen.model import BackboneConfig, VQLoCConfig
from lastseen.train import harvest as harvest_module
from lastseen.train.augment import NO_AUGMENT
from lastseen.train.feature_store import SynthData
from lastseen.train.gallery import Gallery
from lastseen.train.rounds import Rounds, _Stopped
from lastseen.train.walk_questions import WalkQuestions, last_run
from lastseen.weights import make_model
from lastseen_synth.fresh_covers import fresh_variant, with_fresh_covers
from lastseen_synth.library import open_library
from lastseen_synth.photo_walks import PhotoWalks

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
MODEL = VQLoCConfig(
    backbone=BackboneConfig(dim=3, depth=1, heads=1),
    image_size=112,
    clip_length=8,
    dim=32,
    query_scales=(0.5,),
    masked_query=True,
)


class MeanColour(nn.Module):
    def forward(self, pictures):
        return F.avg_pool2d(pictures, 14)


def coloured_walk(walks, rng, **_):
    """Two things; the colour of the first is drawn, so that a batch tells which walks it is of."""
    things = [
        Thing(
            name="a", colour=tuple(rng.integers(0, 255, 3).tolist()), portraits=2, boxes=boxes(range(5, 25))
        ),
        Thing(name="b", colour=BLUE, portraits=1, boxes=moving((60, 40, 90, 80), (0, 0), 30, range(9, 30))),
    ]
    return walk_of(things, source="photo", seed=int(rng.integers(1000)))[0]


def boxes(seen):
    return moving((10, 12, 50, 52), (1, 0), 30, seen)


@pytest.fixture
def rendered(monkeypatch):
    """In place of rendering; the walks that were made, and an event that each waits for."""
    made, may_go_on = [], threading.Event()
    may_go_on.set()

    def walk(walks, rng, **more):
        may_go_on.wait(30)
        made.append(walks.region_seed)
        return coloured_walk(walks, rng)

    monkeypatch.setattr(harvest_module, "annotated_photo_walk", walk)
    return made, may_go_on


def rounds_in(folder, **changes):
    data = SynthData(
        folder=str(folder), walks=0, photos=2, photo_share=1.0, absent_share=0.0, cut_share=0.0,
        fast_share=0.0, augment=NO_AUGMENT, refresh_steps=None, round_steps=2, workers_beside=1,
        plain_share=0.0,
    )  # fmt: skip
    data = replace(data, **changes)
    return Rounds(data, MODEL, MeanColour(), batch=4, seed=3, device=CPU, last_step=6)


def test_each_round_has_walks_of_its_own_and_a_resumed_run_has_the_same(tmp_path, rendered):
    made, _ = rendered
    rounds = rounds_in(tmp_path / "one", fresh_share=0.5)
    batches = [rounds.batch(step) for step in range(6)]
    rounds.close()
    # The rest of a run needs no walks of the rounds before, and renders the same.
    resumed = rounds_in(tmp_path / "two", fresh_share=0.5)
    for step in (3, 4, 5):
        again = resumed.batch(step)
        assert torch.equal(again.clips, batches[step].clips) and torch.equal(
            again.queries, batches[step].queries
        )
    resumed.close()
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == ["round-0000", "round-0001", "round-0002"]
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == ["round-0001", "round-0002"]
    assert set(made) == {30_000, 30_001, 30_002}  # regions of photographs are of the round, too
    files = [path.read_bytes() for path in (tmp_path / "one").rglob("*.npz")]
    assert len(files) == len(set(files)) == 6


def test_the_next_round_is_rendered_while_this_one_is_trained_on(tmp_path, rendered):
    made, may_go_on = rendered
    rounds = rounds_in(tmp_path)
    rounds.batch(0)
    may_go_on.clear()
    rounds.batch(1)  # does not wait for the next round
    may_go_on.set()
    rounds.batch(2)
    assert len(made) >= 4
    rounds.close()
    alone = rounds_in(tmp_path / "alone", workers_beside=0)
    alone.batch(0)
    alone.close()
    assert [p.name for p in (tmp_path / "alone").iterdir()] == ["round-0000"]


def test_after_closing_no_walk_is_begun(tmp_path, rendered):
    rounds = rounds_in(tmp_path, photos=6)
    rounds.batch(0)
    rounds.close()
    with pytest.raises(_Stopped):
        rounds._render(5, 1)
    assert len(list((tmp_path / "round-0005").iterdir())) == 1  # the one that was under way


def test_a_swapped_row_asks_about_the_same_clip_with_another_picture(tmp_path, rendered):
    rounds = rounds_in(tmp_path, swap_share=0.7)
    swapped = 0
    for step in range(6):
        batch = rounds.batch(step)
        assert not batch.swapped[0::2].any()
        for row in batch.swapped.nonzero()[:, 0].tolist():
            assert torch.equal(batch.clips[row], batch.clips[row - 1])
            assert torch.equal(batch.boxes_unit[row], batch.boxes_unit[row - 1])
            assert not torch.equal(batch.queries[row], batch.queries[row - 1])
            assert not batch.unrelated[row, row - 1]  # one cannot be the other's negative
            swapped += 1
    rounds.close()
    assert 3 <= swapped <= 11
    assert rounds_in(tmp_path, swap_share=0.0).batch(0).swapped is None


@pytest.fixture(scope="module")
def gallery():
    green = Thing(name="green", colour=GREEN, portraits=1, boxes=boxes([*range(3, 9), *range(14, 27)]))
    red = Thing(name="red", colour=RED, portraits=1, boxes=boxes(range(12)))
    walks = [
        walk_of([green]),
        walk_of([red], seed=1),
        walk_of(
            [
                red,
            ],
            seed=2,
        ),
    ]
    frames = [torch.from_numpy(frames) for _, frames in walks]
    return Gallery.of([census for census, _ in walks], frames, MODEL.query_scales, MODEL.query_size)


def test_questions_about_walks_ask_for_the_last_time_and_for_things_that_are_not_there(gallery):
    assert gallery.views.shape[1:] == (1, 112, 112, 3)
    assert last_run(np.array([True, True, False, True, True, False])) == [3, 4]
    assert last_run(np.zeros(3, bool)) == []
    questions = WalkQuestions(gallery, MeanColour(), MODEL)
    truth = questions.walks[0].truths[0]
    assert (truth.first_frame, truth.last_frame) == (14, 26)
    assert truth.boxes[0].xyxy == tuple(gallery.walks[0].boxes_px[14, 0])
    assert [walk.truths.count(None) for walk in questions.walks] == [1, 1, 1]
    torch.manual_seed(0)
    model = make_model(MODEL)
    answered = questions.answer(model)
    assert [one.truth is None for one in answered] == [False, True] * 3
    assert all(len(one.evidence.logits) == 30 for one in answered)
    assert {"tap25", "stap25", "success", "auroc"} <= questions.metrics(model).keys()


def test_fresh_covers_are_other_things_with_another_seed():
    library = open_library("train")
    fresh = with_fresh_covers(library, np.random.default_rng(0), 1.0, seed=5)
    changed = [asset for asset in fresh.assets if asset.name.endswith("@cover-5")]
    assert changed and all(asset.kind == "object" and asset.twin is None for asset in changed)
    assert len(fresh.assets) == len(library.assets)
    asset = next(a for a in library.assets if f"{a.name}@cover-5" == changed[0].name)
    textures = [
        [material.texture.texels for material in made.load()[1]]
        for made in (asset, fresh_variant(asset, 5), fresh_variant(asset, 6), fresh_variant(asset, 5))
    ]
    same = [all(map(torch.equal, textures[1], other)) for other in (textures[2], textures[3])]
    assert same == [False, True]
    assert asset.load()[0] is fresh_variant(asset, 5).load()[0]  # the shape stays
    assert with_fresh_covers(library, np.random.default_rng(0), 0.0, seed=5).assets == library.assets
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        with_fresh_covers(library, np.random.default_rng(0), 2.0, seed=5)


def test_a_photographs_region_is_one_in_a_round_and_another_in_the_next():
    library = open_library("train")
    regions = []
    for seed in (1, 1, 2):
        walks = PhotoWalks(library, region_seed=seed)
        item = next(i for i in walks.pool.cutouts if walks._region(i) is not None)
        regions.append(walks._region(item).picture)
        assert walks._region_name(None, walks._region(item)) == f"@region-{seed}"
    assert np.array_equal(regions[0], regions[1])
    assert regions[0].shape != regions[2].shape or not np.array_equal(regions[0], regions[2])
    usual = PhotoWalks(library)
    assert usual._region(item) is None and usual._region_name(None, None) == ""

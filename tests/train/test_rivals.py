"""Training the rivals: what is drawn is what the walks show, losses fall, and a run goes on exactly."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from models import TINY
from walks import BLUE, CYAN, GREEN, RED, YELLOW, Thing, gallery_of, is_colour, moving, walk_of

from lastseen.baselines.cocoformer import CocoFormerConfig
from lastseen.baselines.detector import DetectorConfig
from lastseen.baselines.nfm import NFMConfig
from lastseen.baselines.siamrcnn import SAMPLED_PROPOSALS, SiamRCNNConfig
from lastseen.baselines.stark import StarkConfig
from lastseen.baselines.stored import make_rival
from lastseen.box import Box
from lastseen.errors import TrainError
from lastseen.model.inputs import MEAN, STD
from lastseen.train.feature_store import FeatureStore, SynthData
from lastseen.train.rival_data import LEAST_SIDE_PX, RivalData, rotated_query
from lastseen.train.rival_losses import _labels, pairs_loss, proposals_loss, sampled_of
from lastseen.train.rivals import RivalTraining, start_from, stepped_factor, train_detector, train_stark

pytestmark = pytest.mark.usefixtures("one_thread")
SIZE, FRAMES = 112, 40
SMALL = {
    "backbone": TINY,
    "image_size": SIZE,
    "query_size": 56,
    "channels": 16,
    "hidden": 16,
    "proposals": 30,
}


def walk_with(colour, other, seed, seen=range(5, 20)):
    things = [
        Thing(
            name=f"moving {seed}",
            colour=colour,
            boxes=moving((10, 10, 52, 52), (1, 0), FRAMES, seen),
            portraits=1,
        ),
        Thing(
            name=f"still {seed}",
            colour=other,
            boxes=moving((60, 40, 96, 75), (0, 0), FRAMES, range(25, 38)),
            portraits=1,
        ),
    ]
    census, frames = walk_of(things, seed=seed)
    others = np.full((FRAMES, 1, 4), np.nan, np.float32)
    others[:, 0] = (80, 2, 110, 30)  # a chair, say
    return replace(census, others_px=others), frames


@pytest.fixture(autouse=True)
def few_boxes(monkeypatch):
    """Small pictures need no thousand of them."""
    monkeypatch.setattr("lastseen.baselines.proposals.BEFORE_NMS", 150)
    monkeypatch.setattr("lastseen.train.rival_losses.TRAIN_PROPOSALS", 150)


@pytest.fixture(scope="module")
def gallery():
    return gallery_of(walk_with(RED, GREEN, 0), walk_with(BLUE, YELLOW, 1))


@pytest.fixture(scope="module")
def data(gallery):
    return RivalData(gallery, image_size=SIZE, query_size=56, photo_share=0.0)


def colours(pictures):
    mean, std = (torch.tensor(x)[:, None, None] for x in (MEAN, STD))
    return pictures * std + mean


def inside(picture, box, margin=0.1):
    """The middle of a box of a picture [3, s, s]."""
    (x1, y1, x2, y2), side = box.tolist(), picture.shape[-1]
    dx, dy = margin * (x2 - x1), margin * (y2 - y1)
    return picture[
        :,
        round((y1 + dy) * side) : round((y2 - dy) * side),
        round((x1 + dx) * side) : round((x2 - dx) * side),
    ]


def test_boxes_lie_where_the_things_are_after_scaling_and_mirroring(gallery):
    data = RivalData(gallery, image_size=SIZE, query_size=56, photo_share=0.0)
    for step in range(6):
        frames = data.frames(step, 2)
        for picture, things in zip(colours(frames.pictures), frames.things):
            assert 1 <= len(things) <= 3
            spread = [inside(picture, box).flatten(1).std(1).max() for box in things[:-1]]
            assert all(value < 0.12 for value in spread)  # one colour


def test_pairs_show_the_things_that_are_asked_for(data):
    pairs = data.pairs(3, 8, negatives=True)
    assert len(pairs.frames.pictures) == len(pairs.owner) >= 8
    assert pairs.owner[:8].tolist() == list(range(8))
    for query, picture, box in zip(colours(pairs.queries), colours(pairs.frames.pictures), pairs.truth):
        asked = query[:, 24:32, 24:32].flatten(1).median(1).values
        shown = inside(picture, box, 0.3).flatten(1).median(1).values
        assert torch.nn.functional.cosine_similarity(asked, shown, dim=0) > 0.97


def test_negative_frames_do_not_show_the_thing(gallery):
    """The moving thing is in view in 15 frames; 15 frames later it is not, and the still one may be."""
    data = RivalData(gallery, image_size=SIZE, query_size=56, photo_share=0.0, augmented=False)
    found = 0
    for step in range(6):
        pairs = data.pairs(step, 8, negatives=True)
        for owner, picture in zip(pairs.owner[8:].tolist(), colours(pairs.frames.pictures[8:])):
            box = pairs.truth[owner]
            shown = inside(colours(pairs.frames.pictures[owner]), box, 0.3).flatten(1).median(1).values
            there = is_colour(picture.permute(1, 2, 0), (shown * 255).tolist(), 0.1).float().mean()
            assert there < 0.01
            found += 1
    assert found > 8


def test_the_same_step_gives_the_same_pairs_and_another_one_others(data):
    first, again, other = (data.pairs(step, 4, negatives=False) for step in (0, 0, 1))
    assert torch.equal(first.frames.pictures, again.frames.pictures)
    assert torch.equal(first.queries, again.queries)
    assert not torch.equal(first.truth, other.truth)


def test_a_thing_that_is_too_small_or_hidden_is_ignored_and_not_background(gallery):
    small = Thing(name="dot", colour=CYAN, boxes=moving((50, 50, 53, 54), (0, 0), FRAMES), portraits=1)
    hidden = Thing(
        name="corner",
        colour=RED,
        boxes=moving((5, 5, 40, 40), (0, 0), FRAMES),
        portraits=1,
        share=[0.2] * FRAMES,
    )
    census, frames = walk_of([small, hidden])
    walk = replace(census, others_px=np.zeros((FRAMES, 0, 4), np.float32))
    data = RivalData(gallery_of((walk, frames)), image_size=SIZE, query_size=56, photo_share=0.0)
    found = data.frames(0, 3)
    assert [len(things) for things in found.things] == [0, 0, 0]
    assert [len(others) for others in found.ignored] == [2, 2, 2]
    assert LEAST_SIDE_PX > 4


def test_proposals_need_walks_whose_things_are_all_known(gallery):
    old = [replace(walk, others_px=None) for walk in gallery.walks]
    data = RivalData(
        gallery_of(*((walk, frames.numpy()) for walk, frames in zip(old, gallery.frames))),
        image_size=SIZE,
        query_size=56,
    )
    with pytest.raises(TrainError, match="render them again"):
        data.frames(0, 2)


def test_a_rotated_query_keeps_the_thing_in_the_middle_and_grey_beyond_its_margin():
    picture = torch.zeros(120, 160, 3, dtype=torch.uint8)
    picture[50:70, 60:100] = torch.tensor([200, 30, 30], dtype=torch.uint8)
    turned = rotated_query(picture, Box(60, 50, 100, 70), 72, 90.0, False)[0]
    red = turned[0] > 0.6
    rows, columns = red.any(1).nonzero().flatten(), red.any(0).nonzero().flatten()
    assert (len(rows), len(columns)) == (40, 20)  # 40 x 20 px, upright now, in a square of 72
    assert (turned[:, :, :9] == 125 / 255).all() and (turned[:, :, -9:] == 125 / 255).all()


# --- What counts --------------------------------------------------------------------------------------


def test_frames_of_walks_that_may_show_the_thing_count_as_neither(data):
    model = make_rival(SiamRCNNConfig(**SMALL))
    pairs = data.pairs(0, 6, negatives=True)
    scored = model.proposer(model.pyramid_of(pairs.frames.pictures))
    sampled = sampled_of(scored, pairs, torch.Generator().manual_seed(0))
    assert sampled.boxes.shape[1] == SAMPLED_PROPOSALS
    positive, negative = _labels(sampled, pairs, sampled.there)
    assert not (positive & negative).any()
    own = pairs.owner[None] == torch.arange(6)[:, None]
    neither = ~own & ~pairs.unrelated
    assert neither.any() and not (positive | negative)[neither].any()
    assert not positive[:, 6:].any()  # negative frames
    assert positive[own[:, : len(pairs.owner)]].any(-1).sum() >= 6  # the true box is among the sampled ones


def test_siamrcnn_learns_its_head_and_the_others_everything(data, tmp_path):
    for config, whole in ((SiamRCNNConfig, False), (NFMConfig, True), (CocoFormerConfig, True)):
        torch.manual_seed(0)
        model = make_rival(config(**SMALL))
        before = {name: value.clone() for name, value in model.state_dict().items()}
        out = tmp_path / config.kind
        assert train_detector(model, data, RivalTraining(steps=1, batch=2), out)
        changed = {
            name.split(".")[0]
            for name, value in model.state_dict().items()
            if not torch.equal(value, before[name])
        }
        assert ("backbone" in changed, "proposer" in changed, "pyramid" in changed) == (whole,) * 3
        assert "projector" in changed


def test_a_tenth_of_the_rate_is_for_the_detector(data, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "lastseen.train.rivals._train",
        lambda model, optimiser, *rest: seen.append(
            {g["factor"]: len(g["params"]) for g in optimiser.param_groups}
        ),
    )
    for config in (SiamRCNNConfig, NFMConfig):
        train_detector(make_rival(config(**SMALL)), data, RivalTraining(steps=1, batch=2), tmp_path)
    assert set(seen[0]) == {1.0} and set(seen[1]) == {1.0, 0.1}


def test_the_rate_warms_up_and_falls_twice():
    config = RivalTraining(steps=100, batch=1)
    factors = [stepped_factor(step, config) for step in (0, 9, 39, 40, 80)]
    assert factors == pytest.approx([0.1, 1, 1, 0.1, 0.01])


def test_proposals_learn_where_things_are(data, tmp_path):
    torch.manual_seed(0)
    model = make_rival(DetectorConfig(**SMALL))
    held_out, generator = data.frames(10_000, 4), torch.Generator().manual_seed(0)
    before = proposals_loss(model, held_out, generator.manual_seed(0))[0].item()
    assert train_detector(model, data, RivalTraining(steps=25, batch=4, lr=0.2), tmp_path / "run")
    assert proposals_loss(model, held_out, generator.manual_seed(0))[0].item() < 0.8 * before


def test_heads_learn_to_tell_things_apart(data, tmp_path):
    for config in (NFMConfig, CocoFormerConfig):
        torch.manual_seed(0)
        model = make_rival(config(**SMALL))
        held_out, generator = data.pairs(10_000, 2, negatives=True), torch.Generator()
        with torch.no_grad():
            before = pairs_loss(model, held_out, generator.manual_seed(0))[0].item()
        train_detector(model, data, RivalTraining(steps=4, batch=2), tmp_path / config.kind)
        with torch.no_grad():
            assert pairs_loss(model, held_out, generator.manual_seed(0))[0].item() < before


def test_a_run_that_was_stopped_ends_with_the_same_weights(data, tmp_path):
    config = RivalTraining(steps=4, batch=2, checkpoint_every=2)

    def fresh():
        torch.manual_seed(0)
        return make_rival(SiamRCNNConfig(**SMALL))

    whole, stopped, resumed = fresh(), fresh(), fresh()
    assert train_detector(whole, data, config, tmp_path / "whole")
    assert not train_detector(stopped, data, config, tmp_path / "parts", minutes=0)
    assert train_detector(resumed, data, config, tmp_path / "parts")
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], value, rtol=0, atol=0)
    with pytest.raises(TrainError, match="another config"):
        train_detector(fresh(), data, replace(config, lr=0.1), tmp_path / "parts")


def test_a_rival_begins_with_the_proposals_of_the_first_stage():
    torch.manual_seed(0)
    proposals, rival = make_rival(DetectorConfig(**SMALL)), make_rival(SiamRCNNConfig(**SMALL))
    start_from(rival, proposals.state_dict())
    for name, value in proposals.state_dict().items():
        same = torch.equal(rival.state_dict()[name], value)
        assert same == (not name.startswith("projector")), name
    with pytest.raises(TrainError, match="another model"):
        start_from(rival, {"pyramid.enlarge.bias": torch.zeros(1)})


def test_stark_learns_on_the_clips_of_the_feature_store(gallery, tmp_path):
    torch.manual_seed(0)
    small = {"encoder_layers": 1, "decoder_layers": 1, "encoder_hidden": 32, "decoder_hidden": 32}
    config = StarkConfig(backbone=TINY, image_size=SIZE, dim=32, clip_length=6, **small)
    model = make_rival(config)
    source = FeatureStore(gallery, SynthData(photo_share=0.0), config, model.backbone, 4, 0)
    training = RivalTraining(steps=15, batch=4, lr=2e-3, weight_decay=0.005, log_every=5)
    assert train_stark(model, source, training, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["centre"] + lines[-1]["size"] < lines[0]["centre"] + lines[0]["size"]

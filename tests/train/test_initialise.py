"""What a run starts from and what it is fed with: which weights learn, and data that fits the model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lastseen.errors import TrainError
from lastseen.train.batch import Batch, Listed
from lastseen.train.distributed import World
from lastseen.train.initialise import start_model
from lastseen.train.loop import Training, train
from lastseen.train.optimiser import OptimiserConfig, make_optimiser
from lastseen.train.recipes import tiny
from lastseen.train.toy import ToyClips
from lastseen.weights import load_model

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


def quick(**changes):
    return replace(tiny(), **{"batch": 2, "steps": 2, "log_every": 1, "checkpoint_every": 3, **changes})


def test_only_the_heads_learn_unless_the_backbone_is_asked_to():
    frozen = start_model(tiny())
    assert not any(p.requires_grad for p in frozen.backbone.parameters())
    assert all(p.requires_grad for n, p in frozen.named_parameters() if not n.startswith("backbone."))
    config = replace(tiny(), train_backbone_from_block=0)
    groups = make_optimiser(start_model(config), OptimiserConfig(lr=1.0)).param_groups
    assert {group["factor"] for group in groups} == {1.0, 0.1}
    assert {group["weight_decay"] for group in groups} == {0.05, 0.0}
    assert all(p.ndim > 1 for group in groups if group["weight_decay"] for p in group["params"])
    with pytest.raises(TrainError, match="0 to 0"):
        start_model(replace(tiny(), train_backbone_from_block=3))


BOXES = ("head.trunk.for_box", "head.box")


@pytest.fixture(scope="module")
def trained_before(tmp_path_factory):
    out = tmp_path_factory.mktemp("before") / "run"
    torch.set_num_threads(1)
    train(quick(), out, device="cpu")
    return str(out / "model")


def test_what_does_not_learn_stays_as_it_was_to_the_last_bit(tmp_path, trained_before):
    config = quick(start=trained_before, backbone=None, train_only=BOXES)
    train(config, tmp_path / "run", device="cpu")
    before, after = (
        load_file(Path(f) / "model.safetensors") for f in (trained_before, tmp_path / "run/model")
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith(BOXES) for name in changed)
    clip, query = torch.randn(1, 4, 3, 112, 112), torch.randn(1, 3, 112, 112)
    with torch.no_grad():
        one, other = (load_model(folder)(clip, query) for folder in (trained_before, tmp_path / "run/model"))
    assert torch.equal(one.logits, other.logits)
    assert not torch.equal(one.boxes, other.boxes)


def test_going_on_from_a_model_begins_with_its_weights(trained_before):
    config = quick(start=trained_before, backbone=None)
    begun, known = start_model(config), load_model(trained_before)
    assert all(torch.equal(value, begun.state_dict()[name]) for name, value in known.state_dict().items())
    assert all(p.requires_grad for n, p in begun.named_parameters() if not n.startswith("backbone."))


def test_a_start_that_does_not_fit_is_refused_in_one_line(trained_before):
    config = quick(start=trained_before, backbone=None)
    with pytest.raises(TrainError, match="leave backbone out"):
        start_model(replace(config, backbone="random"))
    with pytest.raises(TrainError, match="another shape: dim;"):
        start_model(replace(config, model=replace(config.model, dim=64)))
    with pytest.raises(TrainError, match=r"nothing in the model is called neck\.\.; its parts: .*head\.box"):
        start_model(replace(config, train_only=("neck",)))


def features_batch(config):
    side, channels = config.model.side, config.model.backbone.channels
    return Batch(
        clips=torch.randn(2, 3, channels, side, side, dtype=torch.float16),
        queries=torch.randn(2, channels, side, side, dtype=torch.float16),
        boxes_unit=torch.tensor([0.2, 0.2, 0.6, 0.6]).expand(2, 3, 4),
        visible=torch.ones(2, 3, dtype=torch.bool),
        unrelated=~torch.eye(2, dtype=torch.bool),
    )


def test_kept_features_train_a_model_with_a_frozen_backbone_only():
    config = quick()
    batch = features_batch(config)
    assert Training(config, World(), CPU).step(0, batch)["loss_total"] > 0
    with pytest.raises(TrainError, match="expected 4 clips in a batch, the data gives 2"):
        Training(replace(config, batch=4), World(), CPU).step(0, batch)
    thawed = replace(config, train_backbone_from_block=0)
    with pytest.raises(TrainError, match="needs pictures"):
        Training(thawed, World(), CPU).step(0, batch)
    with pytest.raises(TrainError, match=r"expected features of \[32, 8, 8\]"):
        Training(config, World(), CPU).step(
            0, replace(batch, clips=batch.clips[..., :4], queries=batch.queries[..., :4])
        )


def with_small_queries(config):
    model = replace(config.model, fusion="match", match_dim=16, mask_query=True, query_size=56)
    return replace(config, model=model)


def test_queries_of_a_size_of_their_own_are_learnt_from():
    config = with_small_queries(quick())
    pictures = ToyClips(config.data, config.model, 2, seed=0).batch(0)
    assert pictures.queries.shape == (2, 3, 56, 56)
    run = Training(config, World(), CPU)
    run.fit(pictures)
    assert run.step(0, pictures)["grad_norm"] > 0
    shares = replace(config, model=replace(config.model, query_shares=(1.0, 0.5, 0.25)))
    kept = replace(features_batch(config), queries=torch.randn(2, 3 * 32, 4, 4, dtype=torch.float16))
    assert Training(shares, World(), CPU).step(0, kept)["loss_total"] > 0
    with pytest.raises(TrainError, match=r"expected queries of \[96, 4, 4\], the data gives \[32, 8, 8\]"):
        Training(shares, World(), CPU).step(0, features_batch(config))
    with pytest.raises(
        TrainError, match=r"expected queries of \[3, 56, 56\], the data gives \[3, 112, 112\]"
    ):
        run.step(0, ToyClips(config.data, quick().model, 2, seed=0).batch(0))


def test_a_model_that_knows_what_is_behind_learns_from_data_that_tells():
    config = with_small_queries(quick())
    knowing = replace(config, model=replace(config.model, query_background=0.7))
    batch = replace(features_batch(config), queries=torch.randn(2, 32, 4, 4, dtype=torch.float16))
    with pytest.raises(TrainError, match="does not tell what is behind the thing"):
        Training(knowing, World(), CPU).step(0, batch)
    lengths = torch.ones(2, 1, 4, 4)
    losses = []
    for behind in (1.0, 0.5):
        lengths[:, :, 2:] = behind
        losses.append(Training(knowing, World(), CPU).step(0, replace(batch, lengths=lengths))["loss_total"])
    assert losses[0] != losses[1]
    whole = replace(batch, lengths=lengths)
    assert torch.equal(whole.rows(1, 2).lengths, lengths[1:])
    assert torch.equal(whole.to("cpu").lengths, lengths)


def test_a_batch_that_cannot_be_split_is_refused(tmp_path):
    config = quick(batch=3)
    with pytest.raises(TrainError, match="make it a multiple of 2"):
        train(config, tmp_path / "run", device="cpu")
    with pytest.raises(TrainError, match="no batch"):
        Listed([])
    with pytest.raises(ValueError, match=r"visible must be \[2, 3\]"):
        replace(features_batch(config), visible=torch.ones(2, 2) > 0)

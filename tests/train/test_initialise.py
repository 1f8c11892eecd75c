"""What a run starts from and what it is fed with: which weights learn, and data that fits the model."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lastseen.errors import TrainError
from lastseen.model import SimilarityConfig
from lastseen.train.batch import Batch, ListSource
from lastseen.train.distributed import World
from lastseen.train.fields import parse_setting, with_settings
from lastseen.train.initialise import initial_backbone, initial_model
from lastseen.train.loop import Training, train
from lastseen.train.optimiser import OptimiserConfig, make_optimiser
from lastseen.train.recipes import find_recipe, tiny, vqloc_synth
from lastseen.train.toy import ToyClips
from lastseen.weights import bundled_model, load_model

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


def quick(**changes):
    return replace(tiny(), **{"batch": 2, "steps": 2, "log_every": 1, "checkpoint_every": 3, **changes})


def test_only_the_heads_learn_unless_the_backbone_is_asked_to():
    frozen = initial_model(tiny())
    assert not any(p.requires_grad for p in frozen.backbone.parameters())
    assert all(p.requires_grad for n, p in frozen.named_parameters() if not n.startswith("backbone."))
    config = replace(tiny(), train_backbone_from_block=0)
    groups = make_optimiser(initial_model(config), OptimiserConfig(lr=1.0)).param_groups
    assert {group["factor"] for group in groups} == {1.0, 0.1}
    assert {group["weight_decay"] for group in groups} == {0.05, 0.0}
    assert all(p.ndim > 1 for group in groups if group["weight_decay"] for p in group["params"])
    with pytest.raises(TrainError, match="0 to 0"):
        initial_model(replace(tiny(), train_backbone_from_block=3))


def test_the_backbone_that_features_are_made_with_is_the_models():
    """Stored features are encoded apart from the model that learns from them."""
    made, within = initial_backbone(tiny()), initial_model(tiny()).backbone
    assert all(torch.equal(value, within.state_dict()[name]) for name, value in made.state_dict().items())
    recipe = vqloc_synth()
    bundled = initial_backbone(recipe)
    assert bundled.config == recipe.model.backbone == load_model(bundled_model()).config.backbone


BOXES = ("head.trunk.for_box", "head.box")


@pytest.fixture(scope="module")
def trained_before(tmp_path_factory):
    out = tmp_path_factory.mktemp("before") / "run"
    torch.set_num_threads(1)
    train(quick(), out, device="cpu")
    return str(out / "model")


def test_what_does_not_learn_stays_as_it_was_to_the_last_bit(tmp_path, trained_before):
    config = quick(init_from=trained_before, backbone=None, train_only=BOXES)
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
    config = quick(init_from=trained_before, backbone=None)
    begun, known = initial_model(config), load_model(trained_before)
    assert all(torch.equal(value, begun.state_dict()[name]) for name, value in known.state_dict().items())
    assert all(p.requires_grad for n, p in begun.named_parameters() if not n.startswith("backbone."))


def test_a_start_that_does_not_fit_is_refused_in_one_line(trained_before):
    config = quick(init_from=trained_before, backbone=None)
    with pytest.raises(TrainError, match="leave backbone out"):
        initial_model(replace(config, backbone="random"))
    with pytest.raises(TrainError, match="another shape: dim;"):
        initial_model(replace(config, model=replace(config.model, dim=64)))
    with pytest.raises(TrainError, match=r"no parameter's name begins with neck; its parts: .*head\.box"):
        initial_model(replace(config, train_only=("neck",)))


def features_batch(config):
    side, channels = config.model.side, config.model.backbone.channels
    return Batch(
        clips=torch.randn(2, 3, channels, side, side, dtype=torch.float16),
        queries=torch.randn(2, 1, channels, side, side, dtype=torch.float16),
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
    with pytest.raises(TrainError, match="needs pictures") as refused:
        Training(thawed, World(), CPU).step(0, batch)
    # The remedy works: what it says to set can be set, and then a step is taken.
    remedy = re.findall(r"\b[\w.]+=[\w.]+", str(refused.value))
    mended = with_settings(thawed, [parse_setting(text) for text in remedy])
    assert Training(mended, World(), CPU).step(0, batch)["loss_total"] > 0
    assert find_recipe(re.search(r"recipe (\w+)", str(refused.value))[1])
    with pytest.raises(TrainError, match=r"expected features of \[32, 8, 8\]"):
        Training(config, World(), CPU).step(
            0, replace(batch, clips=batch.clips[..., :4], queries=batch.queries[..., :4])
        )


def on_maps(config, **changes):
    model = SimilarityConfig(
        backbone=config.model.backbone,
        **{
            "image_size": 112,
            "clip_length": 4,
            "dim": 32,
            "query_size": 56,
            "skip_connection": False,
            **changes,
        },
    )
    return replace(config, model=model)


def test_similarity_maps_learn_from_pictures_and_from_features():
    config = on_maps(quick())
    pictures = ToyClips(config.data, config.model, 2, seed=0).batch(0)
    assert pictures.queries.shape == (2, 3, 3, 56, 56)
    run = Training(config, World(), CPU)
    assert run.step(0, pictures)["grad_norm"] > 0
    kept = replace(features_batch(config), queries=torch.randn(2, 3, 32, 4, 4, dtype=torch.float16))
    assert Training(config, World(), CPU).step(0, kept)["loss_total"] > 0
    for batch, wanted in (
        (features_batch(config), r"\[3, 32, 4, 4\], the data gives \[1, 32, 8, 8\]"),
        (
            ToyClips(config.data, quick().model, 2, seed=0).batch(0),
            r"\[3, 3, 56, 56\], the data gives \[1, 3, 112, 112\]",
        ),
    ):
        with pytest.raises(TrainError, match="expected queries of " + wanted):
            run.step(0, batch)


def test_where_the_thing_is_in_its_query_matters():
    config = on_maps(quick(), query_scales=(1.0,))
    batch = replace(features_batch(config), queries=torch.randn(2, 1, 32, 4, 4, dtype=torch.float16))
    box = torch.tensor([0.0, 0.0, 1.0, 0.5]).expand(2, 1, 4)
    losses = [
        Training(config, World(), CPU).step(0, replace(batch, query_boxes_unit=boxes))["loss_total"]
        for boxes in (None, box)
    ]
    assert losses[0] != losses[1]
    whole = replace(batch, query_boxes_unit=box)
    assert torch.equal(whole.rows(1, 2).query_boxes_unit, box[1:])
    assert torch.equal(whole.to("cpu").query_boxes_unit, box)
    with pytest.raises(ValueError, match=r"query_boxes_unit must be \[2, 1, 4\], got \[2, 4\]"):
        replace(batch, query_boxes_unit=box[:, 0])


def test_a_batch_that_cannot_be_split_is_refused(tmp_path):
    config = quick(batch=3)
    with pytest.raises(TrainError, match="make it a multiple of 2"):
        train(config, tmp_path / "run", device="cpu")
    with pytest.raises(TrainError, match="no batch"):
        ListSource([])
    with pytest.raises(ValueError, match=r"visible must be \[2, 3\]"):
        replace(features_batch(config), visible=torch.ones(2, 2) > 0)

"""First weights that compare: an untrained network tells where a copy of the query is."""

from dataclasses import replace

import pytest
import torch
from pasted import MODEL, pasted

from lastseen.model import VQLoC
from lastseen.train.batch import ListSource
from lastseen.train.compare_start import begin_by_comparing
from lastseen.train.initialise import initial_model
from lastseen.train.probe import average_precision, probe
from lastseen.train.recipes import tiny, vqloc_synth

pytestmark = pytest.mark.usefixtures("one_thread")


def with_statistics(model, batch):
    """One forward pass in training mode, as the first step is, so that the batch norms know their inputs."""
    model.train()
    for _ in range(30):
        with torch.no_grad():
            model.encode_together(batch.clips, batch.queries, batch.query_boxes_unit)
    return model.eval()


@pytest.mark.parametrize("layers", [1, 3])
def test_an_untrained_network_that_compares_finds_a_pasted_copy_and_the_usual_one_does_not(layers):
    training, unseen = ListSource([pasted(0)]), ListSource([pasted(1)])
    found = {}
    for compares in (False, True):
        torch.manual_seed(3)
        model = VQLoC.from_config(replace(MODEL, spatial_layers=layers))
        if compares:
            begin_by_comparing(model)
        model = with_statistics(model, training.batch(0))
        found[compares] = probe(model, training, unseen, batches=1, frames=4)
    assert found[True].patch_ap > 0.8 and found[True].frame_ap > 0.9
    assert found[False].patch_ap < 0.2 and found[False].frame_ap < 0.75


def test_it_is_another_draw_of_the_same_network():
    config = replace(tiny(), first_weights="compare")
    usual, comparing, again = (initial_model(c) for c in (tiny(), config, config))
    assert usual.config == comparing.config
    assert usual.state_dict().keys() == comparing.state_dict().keys()
    differ = {
        name.split(".")[0]
        for name, value in usual.state_dict().items()
        if not torch.equal(value, comparing.state_dict()[name])
    }
    # What follows is drawn as before.
    assert differ == {"reduce", "correspondence"}
    assert all(torch.equal(v, again.state_dict()[n]) for n, v in comparing.state_dict().items())
    conv = initial_model(replace(config, model=replace(config.model, fusion="conv")))
    assert torch.equal(conv.reduce[3].weight[:, :, 1, 1], torch.eye(32))


def test_only_vqloc_can_begin_by_comparing():
    with pytest.raises(ValueError, match="first_weights must be usual or compare, got 'best'"):
        replace(tiny(), first_weights="best")
    recipe = vqloc_synth()
    assert recipe.first_weights == "compare" and recipe.model.dim == 256


def test_average_precision_is_the_mean_precision_at_the_right_ones():
    scores, right = torch.tensor([0.9, 0.8, 0.7, 0.1]), torch.tensor([True, False, True, False])
    assert average_precision(scores, right) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(scores, right & False) == 0

"""The variants of both networks can be made, and differ in what their row says."""

import argparse
from dataclasses import replace

import torch
from ablations import BOTH, MAPS, PAPERS, VARIANTS, config_of

from lastseen.model import VQLoCConfig
from lastseen.train.initialise import initial_model
from lastseen.train.recipes import vqloc_synth
from lastseen.weights import make_model


def configs(network):
    arguments = argparse.Namespace(network=network, steps=40, batch=8, backbone=None)
    return {v.name: config_of(arguments, v) for v in VARIANTS if network in v.networks}


def test_every_variant_of_both_networks_can_be_made():
    for network in BOTH:
        made = configs(network)
        assert len(made) == sum(network in variant.networks for variant in VARIANTS)
        for config in made.values():
            with torch.device("meta"):
                make_model(config.model)
    assert len(configs(MAPS)) == 25


def test_the_papers_network_is_varied_in_its_four_tables_from_first_weights_that_compare():
    made = configs(PAPERS)
    tables = {v.table for v in VARIANTS if PAPERS in v.networks}
    assert tables == {"base", "window", "head", "resolution", "fusion", "start"}
    assert all(isinstance(config.model, VQLoCConfig) and config.model.dim == 256 for config in made.values())
    assert {name for name, config in made.items() if config.first_weights != "compare"} == {
        "first weights as usual"
    }
    assert {config.dense.steps for config in made.values()} == {10}
    first, second = made["the paper's, with ViT-S"], made["the same, another seed"]
    assert replace(second, seed=0) == first
    assert first.model == vqloc_synth().model and first.loss.score == "hnm"
    assert made["no anchors, BCE"].loss.score == "bce" and not made["no anchors, BCE"].model.anchors


def test_variants_share_the_first_weights_that_they_have_in_common():
    made = configs(PAPERS)
    small = {
        name: replace(
            made[name],
            backbone="random",
            model=replace(made[name].model, dim=32, image_size=112, backbone=replace(
                made[name].model.backbone, dim=32, depth=1, heads=2, registers=0, blocks=(0,)
            )),
        )
        for name in ("the paper's, with ViT-S", "9", "anchors, focal", "convolution")
    }  # fmt: skip
    one, *others = (initial_model(config).state_dict() for config in small.values())
    for other in others[:2]:
        assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert torch.equal(one["reduce.0.weight"][:, :, 1, 1], others[2]["reduce.0.weight"][:, :, 1, 1])

"""The patch-similarity prior is fitted before heads are trained."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from lastseen.model import SimilarityConfig
from lastseen.model.similarity_maps import similarity_maps
from lastseen.train.batch import Batch, ListSource
from lastseen.train.initialise import initial_model
from lastseen.train.loop import train
from lastseen.train.prior import fit_prior, logistic_fit
from lastseen.train.recipes import synth_small, tiny

FRAMES, CHANNELS, SIDE, QUERY_SIDE = 4, 32, 8, 4


def config(**changes):
    model = SimilarityConfig(
        backbone=tiny().model.backbone,
        image_size=112,
        clip_length=FRAMES,
        dim=32,
        query_size=56,
        skip_connection=False,
        query_scales=(1.0,),
        coverage_windows=(1.0,),
        background_cosine=None,
    )
    return replace(tiny(), model=model, steps=2, batch=4, checkpoint_every=1, **changes)


def clips(seed: int, noise: float = 1.5) -> Batch:
    """The first two frames of each clip show the query, weakened by noise; the others show noise."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(4, 1, CHANNELS, QUERY_SIDE, QUERY_SIDE, generator=generator)
    frames = torch.randn(4, FRAMES, CHANNELS, SIDE, SIDE, generator=generator)
    frames[:, :2, :, 2:6, 2:6] = queries + noise * frames[:, :2, :, 2:6, 2:6]
    visible = torch.tensor([[True, True, False, False]]).expand(4, -1)
    boxes = torch.tensor([0.25, 0.25, 0.75, 0.75]).expand(4, FRAMES, 4)
    unrelated = ~torch.eye(4, dtype=torch.bool)
    return Batch(clips=frames, queries=queries, boxes_unit=boxes, visible=visible, unrelated=unrelated)


def test_a_logistic_fit_weighs_what_tells_and_is_even_between_both_kinds():
    rng = np.random.default_rng(0)
    shown = rng.random(2000) < 0.2  # both kinds count alike, however many there are
    tells, hardly = np.where(shown, 0.3, 0.1), np.where(shown, 0.41, 0.4)
    values = np.stack([hardly, tells], 1) + rng.normal(0, 0.05, (2000, 2))
    scales, midpoints = logistic_fit(torch.from_numpy(values), torch.from_numpy(shown))
    assert scales[1] > 3 * scales[0] > 0
    logits = (np.array(scales) * (values - midpoints)).sum(1)
    assert (logits[shown] > 0).mean() > 0.95 and (logits[~shown] < 0).mean() > 0.95
    with pytest.raises(ValueError, match="with and without the thing"):
        logistic_fit(torch.from_numpy(values), torch.ones(2000, dtype=torch.bool))


def test_the_fitted_prior_says_which_frames_show_the_thing():
    model = initial_model(config())
    before = model.prior.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    fit_prior(model, ListSource([clips(0), clips(1)]), 2, nullcontext())
    assert all(model.prior.state_dict()[name] != value for name, value in before.items())
    batch = clips(2)
    features, query = model.encode_together(batch.clips, batch.queries)
    made = similarity_maps(features, query, (1.0,), (1.0,))
    logits = model.prior(torch.stack([made.best, made.covered], 2), 3072).amax(2)
    assert (logits[batch.visible] > 0).all() and (logits[~batch.visible] < 0).all()


def test_a_run_fits_its_prior_once_and_goes_on_with_it(tmp_path):
    fitted = config(prior_batches=1)
    whole = train(fitted, tmp_path / "whole", source=ListSource([clips(0)]), device="cpu")
    plain = train(config(), tmp_path / "plain", source=ListSource([clips(0)]), device="cpu")
    assert abs(whole.prior.midpoint - plain.prior.midpoint) > 0.02
    train(fitted, tmp_path / "parts", source=ListSource([clips(0)]), device="cpu", minutes=0)
    parts = train(fitted, tmp_path / "parts", source=ListSource([clips(0)]), device="cpu")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, parts.state_dict()[name]), name


def test_only_similarity_maps_have_a_prior_to_fit():
    assert synth_small().prior_batches > 0
    with pytest.raises(ValueError, match="prior_batches"):
        replace(tiny(), prior_batches=1)

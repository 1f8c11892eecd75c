"""Fit the patch-similarity prior before heads are trained.

How similar patches of one thing are, and of different ones, depends on the backbone: after contrastive
training half of the cosine may mean the same. The prior is four numbers on the scale of logits, which the
optimiser's rate for weights would hardly move.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from lastseen.model import SimilarityModel
from lastseen.model.similarity_maps import similarity_maps
from lastseen.train.batch import Source

LEAST_SCALE = 0.05  # of the prior, in logits per standard deviation: similarity never counts against a thing
WEIGHT_PENALTY = 1e-3


@torch.no_grad()
def fit_prior(
    model: SimilarityModel, source: Source, batches: int, precision: AbstractContextManager[Any]
) -> None:
    """Sets the prior such that its logit says whether a frame shows the thing, with even odds at 0.

    Logistic fit on the first batches of training clips, both kinds of frames counting alike.
    """
    prior = model.prior
    device = prior.scale.device
    values, shown = [], []
    for number in range(batches):
        batch = source.batch(number).to(device)
        with precision:
            features, query = model.encode_together(
                batch.clips, batch.queries, batch.query_boxes_unit, batch.query_shown_unit
            )
            made = similarity_maps(features, query, model.config.query_scales, model.config.coverage_windows)
        maps = [made.best] if made.covered is None else [made.best, made.covered]
        counts = torch.ones_like(batch.visible) if batch.known is None else batch.known
        values.append(torch.stack([best.flatten(2).amax(2) for best in maps], 2)[counts].float().cpu())
        shown.append(batch.visible[counts].cpu())
    scales, midpoints = logistic_fit(torch.cat(values), torch.cat(shown))
    prior.scale.fill_(scales[0])
    prior.midpoint.fill_(midpoints[0])
    if len(scales) > 1:
        prior.coverage_scale.fill_(scales[1])
        prior.coverage_midpoint.fill_(midpoints[1])


def logistic_fit(values: Tensor, shown: Tensor) -> tuple[list[float], list[float]]:
    """Values [n, k], shown bool [n] -> scales and midpoints of a logit sum(scale * (value - midpoint)).

    Each midpoint but the last is half-way between the means of both kinds; the last one has the rest.
    """
    x, y = values.double().numpy(), shown.numpy()
    if y.all() or not y.any():
        raise ValueError("a prior is fitted on frames with and without the thing")
    middle = (x[y].mean(0) + x[~y].mean(0)) / 2
    spread = x.std(0).clip(1e-6)
    z = (x - middle) / spread
    weight = np.where(y, 0.5 / y.sum(), 0.5 / (~y).sum())

    def cost(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        logits = z @ parameters[:-1] + parameters[-1]
        loss = (weight * (np.logaddexp(0, logits) - y * logits)).sum() + WEIGHT_PENALTY * (
            parameters**2
        ).sum()
        slope = weight * (1 / (1 + np.exp(-logits)) - y)
        return float(loss), np.append(slope @ z, slope.sum()) + 2 * WEIGHT_PENALTY * parameters

    bounds = [(LEAST_SCALE, None)] * x.shape[1] + [(None, None)]
    start = np.append(np.ones(x.shape[1]), 0.0)
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    scales = found[:-1] / spread
    middle[-1] -= found[-1] / scales[-1]
    return scales.tolist(), middle.tolist()

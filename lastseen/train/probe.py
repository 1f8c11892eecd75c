"""A small probe: does VQLoC's correspondence tell which patches, and which frames, show the query's thing?

A linear discriminant is fitted on clips of some walks and judged on others. It costs seconds, and moves long
before the answers do.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from lastseen.model import VQLoC
from lastseen.train.batch import Batch, Source
from lastseen.train.dense import dense_targets, some_frames

RIDGE = 1e-3  # of the mean variance, added to each channel's


class ProbeResult(NamedTuple):
    """Average precision over all patches, and over all frames by their best patch."""

    patch_ap: float
    frame_ap: float


@torch.no_grad()
def probe(
    model: VQLoC, fitted_on: Source, judged_on: Source, *, batches: int = 4, frames: int = 6
) -> ProbeResult:
    """`frames` of each clip of the first `batches`; the model is in inference mode afterwards."""
    model.eval()
    weights = linear_discriminant(model, fitted_on, batches, frames)
    patches, shows, best, visible = [], [], [], []
    for number in range(batches):
        vectors, inside, batch = _looked_at(model, judged_on, number, frames)
        score = vectors @ weights.to(vectors)
        counts = torch.ones_like(batch.visible) if batch.known is None else batch.known
        patches.append(score[counts].flatten())
        shows.append(inside[counts].flatten())
        best.append(score.flatten(2).amax(2)[counts])
        visible.append(batch.visible[counts])
    return ProbeResult(
        average_precision(torch.cat(patches), torch.cat(shows)),
        average_precision(torch.cat(best), torch.cat(visible)),
    )


def linear_discriminant(model: VQLoC, source: Source, batches: int, frames: int) -> Tensor:
    """[dim] along which patches of the thing are farthest from others, next to how both spread."""
    spread, means, total = torch.zeros(()), torch.zeros(2, 1), 0
    counts = torch.zeros(2, dtype=torch.double)
    for number in range(batches):
        vectors, inside, batch = _looked_at(model, source, number, frames)
        known = torch.ones_like(batch.visible) if batch.known is None else batch.known
        vectors, inside = vectors[known].flatten(0, 2), inside[known].flatten()
        groups = [vectors[~inside], vectors[inside]]
        spread = spread + (vectors.T @ vectors).double().cpu()
        means = means + torch.stack([group.double().sum(0).cpu() for group in groups])
        counts += torch.tensor([len(group) for group in groups])
        total += len(vectors)
    means = means / counts.clamp(min=1)[:, None]
    # Spread within the groups: that of all patches, less what the groups' means explain.
    within = spread / total - (means * (counts / total)[:, None]).T @ means
    ridge = RIDGE * within.diagonal().mean() * torch.eye(len(within), dtype=torch.double)
    return torch.linalg.solve(within + ridge, means[1] - means[0])


def _looked_at(model: VQLoC, source: Source, number: int, frames: int) -> tuple[Tensor, Tensor, Batch]:
    """Correspondence [b, t, h, w, dim] of a batch, which patches show the thing [b, t, h, w], the batch."""
    device = next(model.parameters()).device
    batch = some_frames(source.batch(number), frames, seed=0, step=number).to(device)
    with _precision(device):
        clips, queries = (x if device.type == "cuda" else x.float() for x in (batch.clips, batch.queries))
        features, query = model.encode_together(clips, queries, batch.query_boxes_unit)
        made = model.correspondence(features, query)
    inside = dense_targets(batch, model.config.side, None).shows
    return rearrange(made.float(), "b t c h w -> b t h w c"), inside, batch


def _precision(device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def average_precision(scores: Tensor, right: Tensor) -> float:
    """Mean precision at the places of the right ones, best score first; 0 without any."""
    ordered = right[scores.argsort(descending=True, stable=True)].double()
    places = torch.arange(1, len(ordered) + 1, device=ordered.device)
    precision = ordered.cumsum(0) / places
    return float((precision * ordered).sum() / ordered.sum().clamp(min=1))

"""Timeline of an episode: which thing is fixated when, and when it may be moved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lastseen_synth.walk import Walk

DWELL_S = (0.8, 9.0)
OCCURRENCES = (0.45, 0.35, 0.2)  # share of things that are looked at once, twice, three times
MOVED_SHARE, CARRIED_SHARE = 0.6, 0.35
VIEW_RAD = 1.05  # from the optical axis: outside the view of every lens


@dataclass(frozen=True, kw_only=True)
class Fixation:
    """The wearer looks at a thing; since `free_s` it has not been looked at.

    `moved`: it is at another place than before; `carried`: the hand brings it there just before.
    """

    thing: int
    start_s: float
    end_s: float
    free_s: float
    moved: bool
    carried: bool


def draw_fixations(
    things: int, duration_s: float, rng: np.random.Generator, *, can_carry: bool
) -> list[Fixation]:
    """One to three fixations per thing, in random order, about three seconds each, with pauses between."""
    order = [t for t in range(things) for _ in range(1 + rng.choice(3, p=OCCURRENCES))]
    order = [order[i] for i in rng.permutation(len(order))]
    dwell = np.clip(np.exp(rng.normal(np.log(2.3), 0.6, len(order))), *DWELL_S)
    most = max(1, int((duration_s - 4) / (dwell.mean() + 4)))
    order, dwell = order[:most], dwell[:most]
    slack = max(duration_s - 3 - dwell.sum(), 0.5)
    pauses = rng.dirichlet(np.full(len(order) + 1, 2.0)) * slack
    fixations: list[Fixation] = []
    since: dict[int, float | None] = dict.fromkeys(range(things))
    now = 1.5
    for thing, seconds, pause in zip(order, dwell, pauses):
        before, now = now, now + pause
        again = since[thing] is not None and now - float(since[thing] or 0.0) > 2.0
        moved = again and rng.random() < MOVED_SHARE
        carried = moved and can_carry and pause > 3.0 and rng.random() < CARRIED_SHARE
        free = max(before, now - rng.uniform(2.0, 4.5)) if carried else float(since[thing] or 0.0)
        fixations.append(
            Fixation(thing=thing, start_s=now, end_s=now + seconds, free_s=free, moved=moved, carried=carried)
        )
        now += seconds
        since[thing] = now
    return fixations


def unseen_moment(path: Walk, places_m: Tensor, start_s: float, end_s: float) -> float:
    """The time in this interval at which `places_m` [N, 3] are furthest out of view."""
    times = np.linspace(start_s, max(end_s - 0.6, start_s), 120)
    cameras = path.at(times)
    seen = torch.einsum("tij,nj->tni", cameras[:, :3, :3], places_m) + cameras[:, None, :3, 3]
    angle = torch.atan2(seen[..., :2].norm(dim=2), seen[..., 2]).min(1).values.numpy()
    return float(times[int(np.argmax(np.minimum(angle, 2 * VIEW_RAD)))])

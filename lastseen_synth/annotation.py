"""Annotation rules: when a thing counts as visible, and when it is queried."""

from __future__ import annotations

import numpy as np

Run = tuple[int, int]  # first and one past the last annotated frame

# Hysteresis: an occurrence begins when this share of the thing is visible at this size, and lasts while the
# lower thresholds hold, as an annotator would mark it. Sizes are sides of the box in units of the longer
# image side.
ENTER_SHARE, STAY_SHARE = 0.25, 0.1
ENTER_SIDE, STAY_SIDE = 0.05, 0.03
SHORTEST_ANSWER = 3  # frames of a response track
PAUSE = 3  # minimum number of frames between the response track and the query frame


def annotated_visibility(boxes_px: np.ndarray, share: np.ndarray, longer_px: float) -> np.ndarray:
    """Boxes [N, things, 4] (nan: not visible) and visible shares [N, things] -> bool [N, things]"""
    side = box_sides(boxes_px, longer_px)
    enough = (share >= ENTER_SHARE) & (side >= ENTER_SIDE)
    still = (share >= STAY_SHARE) & (side >= STAY_SIDE)
    seen = np.zeros_like(still)
    for thing in range(still.shape[1]):
        for first, last in runs_of(still[:, thing]):
            seen[first:last, thing] = enough[first:last, thing].any()
    return seen


def box_sides(boxes_px: np.ndarray, longer_px: float) -> np.ndarray:
    """[..., 4] -> [...] in units of the longer edge, 0 where there is no box"""
    area = (boxes_px[..., 2] - boxes_px[..., 0]) * (boxes_px[..., 3] - boxes_px[..., 1])
    return np.sqrt(np.nan_to_num(area)) / longer_px


def runs_of(visible: np.ndarray) -> list[Run]:
    """[N] bool -> runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], visible, [False]]).astype(int)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2])]


def draw_query(runs: list[Run], side: np.ndarray, rng: np.random.Generator) -> tuple[int, Run] | None:
    """Query frame and response track (the last run before it); `side` [N]: see box_sides.

    Frames are weighted by the largest box area in their response track: people ask about what they had in
    front of them, not about what they passed. None if no run is long enough.
    """
    ends = [first for first, _ in runs[1:]] + [len(side)]
    asked = [
        (moment, run)
        for run, end in zip(runs, ends)
        if run[1] - run[0] >= SHORTEST_ANSWER
        for moment in range(run[1] + PAUSE, end + 1)
    ]
    if not asked:
        return None
    chance = np.array([side[slice(*run)].max() ** 2 for _, run in asked])
    return asked[int(rng.choice(len(asked), p=chance / chance.sum()))]

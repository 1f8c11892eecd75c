"""Gaze of the wearer: fixations on points, joined by quick head turns along minimum-jerk curves.

During a fixation the head follows its target while the body moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

MAX_TURN_RAD_S = np.deg2rad(400.0)
PITCH_RANGE_RAD = (np.deg2rad(-72.0), np.deg2rad(40.0))
HANDS_PITCH_RAD = np.deg2rad(-35.0)
OUT_OF_VIEW_RAD = np.deg2rad(70.0)  # from the optical axis: outside the view of most wide lenses
WALKING_M_S = 0.25
Target = Callable[[slice], np.ndarray]  # samples -> yaw and pitch [n, 2] that the head should have


@dataclass(frozen=True, kw_only=True)
class Task:
    """Target of the gaze from `start_s` to `end_s`: a point, or (None) the wearer's hands."""

    start_s: float
    end_s: float
    point_m: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class Body:
    """The wearer at N equally spaced times. Angles are unwrapped.

    | eyes_m      | [N, 3]                                          |
    | heading_rad | [N] direction the body faces, from the x axis   |
    | ahead_rad   | [N] direction in which it will walk             |
    | speed_m_s   | [N] over the floor                      |
    """

    times_s: np.ndarray
    eyes_m: np.ndarray
    heading_rad: np.ndarray
    ahead_rad: np.ndarray
    speed_m_s: np.ndarray


def gaze(
    body: Body,
    tasks: Sequence[Task],
    rng: np.random.Generator,
    *,
    points_of_interest_m: np.ndarray,
    shunned_m: np.ndarray,
) -> np.ndarray:
    """Yaw and pitch [N, 2] of the head. Earlier tasks go first where tasks overlap.

    `shunned_m` [M, 3]: points kept out of view while no task targets them.
    """
    times = body.times_s
    step_s = float(times[1] - times[0])
    targets = _GazeTargets(body, points_of_interest_m, shunned_m, rng)
    angles = np.empty((len(times), 2))
    head = np.array([body.ahead_rad[0], -0.2])
    start = 0
    while start < len(times):
        now_s = times[start]
        task = next((t for t in tasks if t.start_s <= now_s < t.end_s), None)
        before = tasks[: tasks.index(task)] if task else tasks
        changes = [t.start_s for t in before if t.start_s > now_s] + ([task.end_s] if task else [])
        target = targets.target(start, task, head[0])
        turn = target(slice(start, start + 1))[0] - head
        turn[0] = _half_turn(turn[0])
        turn_s = _turn_duration_s(float(np.hypot(*turn)), rng)
        rest_s = float(np.clip(0.9 * np.exp(0.55 * rng.standard_normal()), 0.3, 2.2))
        stop = start + max(2, round(min([turn_s + rest_s, *(c - now_s for c in changes)]) / step_s))
        part = slice(start, min(stop, len(times)))
        wanted = target(part)
        wanted[:, 0] = np.unwrap(wanted[:, 0])
        wanted[:, 0] += head[0] + turn[0] - wanted[0, 0]  # the same direction, without whole turns
        left = 1 - minimum_jerk((times[part] - now_s) / turn_s)
        angles[part] = wanted - turn * left[:, None]
        head, start = angles[part][-1].copy(), part.stop
    angles[:, 1] = angles[:, 1].clip(*PITCH_RANGE_RAD)
    return np.stack([_held_back(column, MAX_TURN_RAD_S * step_s) for column in angles.T], 1)


def minimum_jerk(share: np.ndarray) -> np.ndarray:
    """0 to 1 while `share` goes from 0 to 1."""
    share = share.clip(0, 1)
    return share**3 * (10 + share * (6 * share - 15))


def _turn_duration_s(angle_rad: float, rng: np.random.Generator) -> float:
    """Larger turns are faster: a peak, 1.875 times the mean, of 160 degrees a second for 30, 360 for 90."""
    degrees = np.rad2deg(angle_rad)
    peak_deg_s = np.clip((50 + 3.5 * degrees) * rng.uniform(0.7, 1.3), 40, 390)
    return float(max(0.14, 1.875 * degrees / peak_deg_s))


def _held_back(angles: np.ndarray, most: float) -> np.ndarray:
    """Limits the change per sample to `most`."""
    held = angles.tolist()
    for i in range(1, len(held)):
        held[i] = min(max(held[i], held[i - 1] - most), held[i - 1] + most)
    return np.array(held)


class _GazeTargets:
    """Chooses the next gaze target."""

    def __init__(
        self,
        body: Body,
        points_of_interest_m: np.ndarray,
        shunned_m: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        self.body, self.points_m, self.shunned_m, self.rng = body, points_of_interest_m, shunned_m, rng
        self._half_second = round(0.5 / (body.times_s[1] - body.times_s[0]))

    def target(self, start: int, task: Task | None, head_yaw: float) -> Target:
        spread = np.deg2rad([7.5, 5.5])
        offset = (spread * self.rng.standard_normal(2)).clip(-2 * spread, 2 * spread)
        if task is not None and task.point_m is not None:
            return self._at(task.point_m, offset)
        if task is not None:
            return self._along(self.body.heading_rad, HANDS_PITCH_RAD, offset)
        return self._anything(start, offset, head_yaw)

    def _at(self, point_m: np.ndarray, offset_rad: np.ndarray) -> Target:
        def angles(part: slice) -> np.ndarray:
            return _angles(point_m - self.body.eyes_m[part]) + offset_rad

        return angles

    def _along(self, yaw_rad: np.ndarray, pitch_rad: float, offset_rad: np.ndarray) -> Target:
        def angles(part: slice) -> np.ndarray:
            yaw = yaw_rad[part]
            return np.stack([yaw, np.full_like(yaw, pitch_rad)], 1) + offset_rad

        return angles

    def _anything(self, start: int, offset_rad: np.ndarray, head_yaw: float) -> Target:
        """The way ahead, a point of interest or a random direction: the one that shows shunned points
        least."""
        body, rng = self.body, self.rng
        walking = body.speed_m_s[self._soon(start)] > WALKING_M_S
        candidates: list[Target] = []
        if walking:
            candidates.append(self._along(body.ahead_rad, np.deg2rad(rng.uniform(-26, -6)), offset_rad))
            if rng.random() < 0.6 and self._shown(start, candidates[0]) < 0.2:
                return candidates[0]
        heading = body.ahead_rad[start] if walking else body.heading_rad[start]
        reach = np.deg2rad(75.0 if walking else 110.0)
        eye = body.eyes_m[start]
        for point in self._interesting(eye, heading, reach):
            candidates.append(self._at(point, offset_rad))
        # Most head turns are small; the eyes cover the rest.
        around = np.concatenate([head_yaw + rng.normal(0, 0.2, 2), heading + rng.normal(0, reach / 2, 2)])
        for yaw in heading + _half_turn(around - heading).clip(-reach, reach):
            pitch = np.deg2rad(np.clip(rng.normal(-16, 14), -55, 20))
            distance_m = rng.uniform(1, 4)
            candidates.append(self._at(eye + distance_m * direction(yaw, pitch), offset_rad))
        costs = []
        for candidate in candidates:
            turn = candidate(slice(start, start + 1))[0, 0] - head_yaw
            costs.append(self._shown(start, candidate) + 0.3 * (1 - np.cos(turn)) + rng.uniform(0, 0.2))
        return candidates[int(np.argmin(costs))]

    def _interesting(self, eye_m: np.ndarray, heading: float, reach: float) -> np.ndarray:
        """Up to two of the points of interest at a distance of 0.7 to 5 m."""
        if not len(self.points_m):
            return self.points_m
        away = self.points_m - eye_m
        distance = np.hypot(*away[:, :2].T)
        turn = _half_turn(_angles(away)[:, 0] - heading)
        good = np.nonzero((distance > 0.7) & (distance < 5) & (np.abs(turn) < reach))[0]
        return self.points_m[self.rng.permutation(good)[:2]]

    def _shown(self, start: int, target: Target) -> float:
        """How much the shunned points are in view half a second later: 1 for each at the image centre."""
        if not len(self.shunned_m):
            return 0.0
        moment = self._soon(start)
        yaw, pitch = target(slice(moment, moment + 1))[0]
        away = self.shunned_m - self.body.eyes_m[moment]
        cosine = away @ direction(yaw, pitch) / np.linalg.norm(away, axis=1).clip(1e-9)
        return float((1 - np.arccos(cosine.clip(-1, 1)) / OUT_OF_VIEW_RAD).clip(0).sum())

    def _soon(self, start: int) -> int:
        return min(start + self._half_second, len(self.body.times_s) - 1)


def direction(yaw_rad: float, pitch_rad: float) -> np.ndarray:
    """Unit vector [3]."""
    flat = np.cos(pitch_rad)
    return np.array([flat * np.cos(yaw_rad), flat * np.sin(yaw_rad), np.sin(pitch_rad)])


def _half_turn(angles_rad: np.ndarray) -> np.ndarray:
    """The same directions, from -pi to pi."""
    return (angles_rad + np.pi) % (2 * np.pi) - np.pi


def _angles(away_m: np.ndarray) -> np.ndarray:
    """Yaw and pitch [N, 2] of directions [N, 3]."""
    flat = np.hypot(away_m[:, 0], away_m[:, 1])
    return np.stack([np.arctan2(away_m[:, 1], away_m[:, 0]), np.arctan2(away_m[:, 2], flat)], 1)

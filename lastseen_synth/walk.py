"""Head trajectory of a person who walks through a room and stops to look at things.

    walk(room.free, [Visit(start_s=4, end_s=7, target_m=mug, distance_m=0.9)], 20, rng).at([0.0, 0.1])

Planned at 120 Hz and stored as splines, so that poses are available at any time: motion blur and rolling
shutter need times between frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.interpolate import CubicSpline
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from lastseen_synth.gaze import Body, Task, gaze
from lastseen_synth.itinerary import Itinerary, Visit
from lastseen_synth.paths import Floor, Free

PLAN_HZ = 120.0
TURN_S = 0.3  # before a visit starts, the head starts to turn
PAD_S = 0.25  # by which the splines extend before the start and after the end


@dataclass(frozen=True, kw_only=True, eq=False)
class Walk:
    """Head and body poses as functions of time.

    | curves | t -> x, y, z of the eye (m), yaw, pitch, roll of the head, heading of the body (rad) |
    """

    duration_s: float
    curves: CubicSpline

    def at(self, times_s: np.ndarray | Tensor | Sequence[float]) -> Tensor:
        """World-to-camera matrices float64 [N, 4, 4] at any times."""
        values = self._values(times_s)
        (cy, cp, cr), (sy, sp, sr) = np.cos(values[:, 3:6].T), np.sin(values[:, 3:6].T)
        ahead = np.stack([cp * cy, cp * sy, sp], 1)
        level = np.stack([sy, -cy, np.zeros_like(sy)], 1)
        below = np.cross(ahead, level)
        right, down = cr[:, None] * level + sr[:, None] * below, cr[:, None] * below - sr[:, None] * level
        rotation = np.stack([right, down, ahead], 1)
        matrices = np.tile(np.eye(4), (len(values), 1, 1))
        matrices[:, :3, :3] = rotation
        matrices[:, :3, 3] = -(rotation @ values[:, :3, None])[..., 0]
        return torch.from_numpy(matrices)

    def body_to_world(self, times_s: np.ndarray | Tensor | Sequence[float]) -> Tensor:
        """Float64 [N, 4, 4] of the body: x ahead, y left, z up, origin on the floor."""
        values = self._values(times_s)
        cosine, sine = np.cos(values[:, 6]), np.sin(values[:, 6])
        matrices = np.tile(np.eye(4), (len(values), 1, 1))
        matrices[:, :2, 0] = np.stack([cosine, sine], 1)
        matrices[:, :2, 1] = np.stack([-sine, cosine], 1)
        matrices[:, :2, 3] = values[:, :2]
        return torch.from_numpy(matrices)

    def _values(self, times_s: np.ndarray | Tensor | Sequence[float]) -> np.ndarray:
        times = np.asarray(times_s, np.float64)
        return self.curves(times.clip(self.curves.x[0], self.curves.x[-1]))


def walk(
    free: Free,
    visits: Sequence[Visit],
    duration_s: float,
    rng: np.random.Generator,
    *,
    eye_height_m: float = 1.6,
    hands: Sequence[tuple[float, float]] = (),
    points_of_interest_m: npt.ArrayLike = (),
) -> Walk:
    """A random walk over the free cells that reaches every visit's target on time, if it can.

    A wearer who would be late walks faster, up to HURRY_M_S, or arrives late; the head turns to the target
    at the start of the visit and away at its end in either case. Of overlapping visits the earlier one is
    looked at first. Between visits the gaze avoids all targets.

    | hands                | intervals in which the wearer looks down at the object they carry |
    | points_of_interest_m | [N, 3] points they may glance at between visits                   |
    """
    visits = sorted(visits, key=lambda visit: visit.start_s)
    floor = Floor(free)
    times = np.arange(-PAD_S, duration_s + PAD_S + 1 / PLAN_HZ, 1 / PLAN_HZ)
    itinerary = Itinerary(floor, visits, times[0], times[-1], rng, eye_height_m=eye_height_m)
    ground = _smooth(itinerary.positions_m(times), 0.03)
    heights = eye_height_m - _smooth(itinerary.stoop_m(times), 0.1)
    ahead, heading = _headings(times, ground, visits, rng)
    body = Body(
        times_s=times,
        eyes_m=np.concatenate([ground, heights[:, None]], 1),
        heading_rad=heading,
        ahead_rad=ahead,
        speed_m_s=np.hypot(*np.gradient(ground, axis=0).T) * PLAN_HZ,
    )
    targets = np.array([visit.target_m for visit in visits], np.float64).reshape(-1, 3)
    tasks = [
        Task(start_s=v.start_s - TURN_S, end_s=v.end_s, point_m=point) for v, point in zip(visits, targets)
    ]
    tasks += [Task(start_s=start, end_s=end, point_m=None) for start, end in hands]
    interesting = np.asarray(points_of_interest_m, np.float64).reshape(-1, 3)
    head = _smooth(gaze(body, tasks, rng, points_of_interest_m=interesting, shunned_m=targets), 0.02)
    eyes, angles = _shaken(floor, body, head, rng)
    curves = CubicSpline(times, np.concatenate([eyes, angles, heading[:, None]], 1))
    return Walk(duration_s=duration_s, curves=curves)


def _smooth(values: np.ndarray, sigma_s: float) -> np.ndarray:
    return gaussian_filter1d(values, sigma_s * PLAN_HZ, axis=0, mode="nearest")


def _headings(
    times: np.ndarray, ground_m: np.ndarray, visits: Sequence[Visit], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Yaw [N] of the walking direction, and of the body, which follows more slowly."""
    soon = np.minimum(np.arange(len(times)) + round(0.9 * PLAN_HZ), len(times) - 1)
    step = ground_m[soon] - ground_m
    far = np.hypot(*step.T)
    yaw = np.where(far > 0.12, np.arctan2(step[:, 1], step[:, 0]), np.nan)
    for visit in visits:
        there = (visit.start_s <= times) & (times < visit.end_s) & (far < 0.45)
        away = np.asarray(visit.target_m)[:2] - ground_m[there]
        yaw[there] = np.arctan2(away[:, 1], away[:, 0])
    # While standing, the last direction is kept.
    if np.isnan(yaw).all():
        yaw[0] = rng.uniform(-np.pi, np.pi)
    known = np.nonzero(~np.isnan(yaw))[0]
    latest = known[(np.searchsorted(known, np.arange(len(yaw)), side="right") - 1).clip(0)]
    yaw = np.unwrap(yaw[latest])
    return _smooth(yaw, 0.12), _smooth(yaw, 0.3)


def _shaken(
    floor: Floor, body: Body, head_rad: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Eyes [N, 3] and yaw, pitch, roll [N, 3] with gait and tremor added."""
    times, eyes = body.times_s, body.eyes_m.copy()
    yaw, pitch = head_rad.T.copy()
    stride = _smooth((body.speed_m_s / 1.2).clip(0, 1.4), 0.08)
    step = np.cumsum(2 * np.pi * (1.35 + 0.4 * body.speed_m_s) * np.minimum(1, stride / 0.2)) / PLAN_HZ
    late = rng.uniform(-0.6, 0.6, size=6)  # phase between head and steps
    size = rng.uniform(0.5, 1.2, size=6) * stride[:, None]
    sway = 0.018 * size[:, 0] * np.sin(step / 2)
    sway *= (floor.clearance_at_m(eyes[:, :2]) / 0.1).clip(0, 1)
    eyes[:, 0] -= sway * np.sin(body.heading_rad)
    eyes[:, 1] += sway * np.cos(body.heading_rad)
    eyes[:, 2] += 0.018 * size[:, 1] * (np.cos(step + late[0]) + 0.25 * np.cos(2 * step + late[1]))
    degree = np.deg2rad(1.0)
    yaw += 0.7 * degree * size[:, 2] * np.sin(step / 2 + late[2])
    pitch += 0.7 * degree * size[:, 3] * (np.cos(step + late[3]) + 0.35 * np.cos(2 * step + late[4]))
    roll = 0.9 * degree * size[:, 4] * np.sin(step / 2 + late[5])
    eyes += 0.003 * np.stack([_noise(times, rng, 0.1, 0.6) for _ in range(3)], 1)
    eyes[:, 2] += 0.003 * np.sin(2 * np.pi * rng.uniform(0.2, 0.35) * times)  # breath
    for angle, drift in ((yaw, 0.4), (pitch, 0.4), (roll, 1.0)):
        angle += degree * (drift * _noise(times, rng, 0.1, 0.8) + 0.05 * _noise(times, rng, 3.0, 8.0))
    roll += degree * rng.normal(0, 1.5)  # the camera is not worn perfectly level
    return eyes, np.stack([yaw, pitch, roll], 1)


def _noise(times_s: np.ndarray, rng: np.random.Generator, low_hz: float, high_hz: float) -> np.ndarray:
    """[N] band-limited noise with an RMS of about 1."""
    frequencies = np.geomspace(low_hz, high_hz, 6) * rng.uniform(0.85, 1.15, size=6)
    phases = rng.uniform(0, 2 * np.pi, size=6)
    return np.sin(2 * np.pi * frequencies * times_s[:, None] + phases).sum(1) / np.sqrt(3)

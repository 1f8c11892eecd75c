"""Itinerary of the wearer: timed legs from visit to visit, with random strolls in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d

from lastseen_synth.gaze import minimum_jerk
from lastseen_synth.paths import Floor, ShortestPaths

SPEEDS_M_S = (0.7, 1.5)  # on free ground; lower near obstacles, where path costs are higher
HURRY_M_S = 1.8
SPEED_UP_S = 0.7  # from standing to walking


@dataclass(frozen=True, kw_only=True)
class Visit:
    """From `start_s` to `end_s` the wearer stands about `distance_m` from the target and looks at it.

    `facing_rad`: direction from the target in which it is visible, if it is not from all around: out of a
    shelf.
    """

    start_s: float
    end_s: float
    target_m: tuple[float, float, float]
    distance_m: float = 1.0
    facing_rad: float | None = None

    def __post_init__(self) -> None:
        if not self.end_s > self.start_s:
            raise ValueError(f"a visit must end after it starts, got {self.start_s} s to {self.end_s} s")


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A walk along `points_m` [N, 2] from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    points_m: np.ndarray

    def at(self, times_s: np.ndarray) -> np.ndarray:
        # Slower in bends: curvature adds to the length.
        steps = np.diff(self.points_m, axis=0)
        lengths = np.hypot(*steps.T)
        bend = np.zeros(len(self.points_m))
        turns = np.diff(np.unwrap(np.arctan2(*steps.T)))
        bend[1:-1] = np.abs(turns) / lengths.mean().clip(1e-6)
        bend = gaussian_filter1d(bend, 5, mode="nearest").clip(0, 3)
        weights = lengths * (1 + (bend[1:] + bend[:-1]) / 4)
        along = np.concatenate([[0], np.cumsum(weights)]) / weights.sum()
        share = _eased((times_s - self.start_s) / (self.end_s - self.start_s), self._ramp())
        return np.stack([np.interp(share, along, column) for column in self.points_m.T], 1)

    def _ramp(self) -> float:
        return min(0.5, SPEED_UP_S / (self.end_s - self.start_s))


def _eased(share: np.ndarray, ramp: float) -> np.ndarray:
    """0 to 1: accelerates during the first `ramp` of the time, decelerates during the last."""
    share = share.clip(0, 1)
    early, late = share.clip(0, ramp) / ramp, (1 - share).clip(0, ramp) / ramp

    def gained(x: np.ndarray) -> np.ndarray:  # the integral of minimum_jerk, which rises by 1/2 over a ramp
        return x**4 * (2.5 + x * (x - 3))

    steady = (share - ramp).clip(0, 1 - 2 * ramp)
    return (ramp * (gained(early) + 0.5 - gained(late)) + steady) / (1 - ramp)


class Itinerary:
    """Position and stoop of the wearer over time: legs with stops between them."""

    def __init__(
        self,
        floor: Floor,
        visits: Sequence[Visit],
        start_s: float,
        end_s: float,
        rng: np.random.Generator,
        *,
        eye_height_m: float,
    ) -> None:
        self.floor, self.rng, self.eye_height_m = floor, rng, eye_height_m
        self.legs: list[Leg] = []
        self.stoops: list[tuple[float, float, float]] = []
        self.now_s = start_s
        self.here = floor.shortest_paths(int(rng.integers(len(floor.centres_m))))
        self.pace_m_s = rng.uniform(*SPEEDS_M_S)
        self._go(visits, end_s)

    def _go(self, visits: Sequence[Visit], end_s: float) -> None:
        for number, visit in enumerate(visits):
            stand, stoop_m = self._stand(visit, is_first=number == 0)
            if number == 0:
                self._begin_near(stand, visit.start_s)
            # Arrival varies: some wearers look while still walking, some stop first.
            self._wander(visit.start_s + self.rng.uniform(-0.4, 0.5), stand)
            if stoop_m > 0:
                self.stoops.append((max(self.now_s, visit.start_s), visit.end_s, stoop_m))
            self._shift(visit)
            self.now_s = max(self.now_s, visit.end_s)
        while self.now_s < end_s:
            self._stroll(np.inf, None)

    def _begin_near(self, stand: int, start_s: float) -> None:
        """Starts at a random cell from which the first visit can be reached in time."""
        paths = self.floor.shortest_paths(stand)
        near = np.nonzero(paths.costs_m <= (start_s - self.now_s - SPEED_UP_S) * self.pace_m_s)[0]
        self.here = self.floor.shortest_paths(int(self.rng.choice(near))) if len(near) else paths

    def positions_m(self, times_s: np.ndarray) -> np.ndarray:
        places = np.empty((len(times_s), 2))
        places[:] = self.floor.centres_m[self.here.start] if not self.legs else self.legs[0].points_m[0]
        for leg in self.legs:
            part = times_s >= leg.start_s
            places[part] = leg.at(times_s[part])
        return places

    def stoop_m(self, times_s: np.ndarray) -> np.ndarray:
        depth = np.zeros_like(times_s)
        for start_s, end_s, most_m in self.stoops:
            down, up = (times_s - start_s) / 0.9, (times_s - end_s) / 0.9
            depth = np.maximum(depth, most_m * (minimum_jerk(down) - minimum_jerk(up)))
        return depth

    def _stand(self, visit: Visit, *, is_first: bool) -> tuple[int, float]:
        """The cell from which to look at the target, and the stoop there."""
        floor, target = self.floor, np.asarray(visit.target_m, np.float64)
        away = target - self._eyes_m(np.arange(len(floor.centres_m)))
        flat_m, distance_m = np.hypot(*away[:, :2].T), np.linalg.norm(away, axis=1)
        steep = np.arctan2(-away[:, 2], flat_m) - np.deg2rad(50)
        cost = np.abs(distance_m - visit.distance_m) + 3 * steep.clip(0) + 0.5 * (flat_m < 0.3)
        cost += (0.15 - floor.clearance_m).clip(0)
        cost += self._aside(visit)
        if not is_first:  # before the first visit the wearer may be anywhere
            late_s = self.here.costs_m / HURRY_M_S - max(visit.start_s - self.now_s, 0)
            cost += 0.5 * late_s.clip(0)
        good = np.nonzero(cost <= cost.min() + 0.12)[0]
        stand = int(self.rng.choice(good))
        stoop_m = 0.0
        if distance_m[stand] > visit.distance_m and self.rng.random() < 0.6:
            drop_m = float(-away[stand, 2])
            wanted = drop_m - np.sqrt(max(visit.distance_m**2 - flat_m[stand] ** 2, 0.04))
            stoop_m = float(np.clip(wanted, 0, 0.25 * self.eye_height_m))
        return stand, stoop_m

    def _aside(self, visit: Visit) -> np.ndarray:
        """[cells]: penalty for viewing direction, 0 in front of the target to 2 behind it."""
        if visit.facing_rad is None:
            return np.zeros(len(self.floor.centres_m))
        x, y = (self.floor.centres_m - visit.target_m[:2]).T
        return 1 - np.cos(np.arctan2(y, x) - visit.facing_rad)

    def _eyes_m(self, cells: np.ndarray) -> np.ndarray:
        return np.pad(self.floor.centres_m[cells], ((0, 0), (0, 1)), constant_values=self.eye_height_m)

    def _wander(self, arrive_s: float, goal: int) -> None:
        """Walks to the cell `goal` by `arrive_s`, with detours if there is time."""
        back = self.floor.shortest_paths(goal)
        while self._stroll(arrive_s, back):
            pass
        self._walk_to(goal, arrive_s)

    def _stroll(self, arrive_s: float, back: ShortestPaths | None) -> bool:
        """Walks to a random cell from which there is still time to get `back`, and stops there; False: no
        time."""
        total = len(self.here.costs_m)
        for place in self.rng.integers(total, size=12):
            cost_m = float(self.here.costs_m[place])
            return_s = 0.0 if back is None else self._lasts_s(float(back.costs_m[place]))
            spare_s = arrive_s - self.now_s - self._lasts_s(cost_m) - return_s
            if spare_s < 0.5 or (cost_m < 0.8 and total > 200):  # on a very small floor any distance will do
                continue
            self._walk_to(int(place), self.now_s + self._lasts_s(cost_m))
            self.now_s += min(spare_s, float(np.clip(self.rng.exponential(1.5), 0.3, 6)))
            self.pace_m_s = self.rng.uniform(*SPEEDS_M_S)
            return True
        if back is None:  # nowhere to go: wait
            self.now_s += 2
        return False

    def _lasts_s(self, cost_m: float) -> float:
        return cost_m / self.pace_m_s + SPEED_UP_S

    def _walk_to(self, goal: int, arrive_s: float) -> None:
        """At the usual pace, leaving just in time for `arrive_s`; at once and faster if already late."""
        cost_m = float(self.here.costs_m[goal])
        start_s = max(self.now_s, arrive_s - self._lasts_s(cost_m))
        self._take_leg(goal, start_s, max(arrive_s, start_s + cost_m / HURRY_M_S + SPEED_UP_S))

    def _take_leg(self, goal: int, start_s: float, end_s: float) -> None:
        if goal != self.here.start:
            self.legs.append(Leg(start_s=start_s, end_s=end_s, points_m=self.here.path_m(goal)))
            self.here, self.now_s = self.floor.shortest_paths(goal), end_s

    def _shift(self, visit: Visit) -> None:
        """Some wearers take a slow step or two while looking, to another cell at the same distance."""
        room_s = visit.end_s - self.now_s
        if room_s < 1.5 or self.rng.random() < 0.4:
            return
        target = np.asarray(visit.target_m[:2])
        distances = np.hypot(*(self.floor.centres_m - target).T)
        near = self.here.costs_m < self.rng.uniform(0.2, 0.35) * min(room_s, 4)
        same = np.abs(distances - distances[self.here.start]) < 0.25
        choices = np.nonzero(near & same & (distances > 0.3) & (self._aside(visit) < 0.5))[0]
        if len(choices):
            end_s = self.now_s + room_s * self.rng.uniform(0.6, 1.0)
            self._take_leg(int(self.rng.choice(choices)), self.now_s, end_s)

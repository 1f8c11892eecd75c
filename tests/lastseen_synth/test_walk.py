"""The head of a person walking about: where it is, where it looks, how fast it moves."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from lastseen.errors import SynthError
from lastseen_synth.paths import Floor, resampled
from lastseen_synth.walk import Visit, Walk, walk

RATE = 120.0


@dataclass(frozen=True)
class Free:
    origin_m: tuple[float, float]
    cell_m: float
    open: np.ndarray


def room(seed: int = 0) -> Free:
    """6 x 5 m with a few pieces of furniture."""
    rng = np.random.default_rng(seed)
    cells = np.zeros((50, 60), bool)
    cells[3:47, 3:57] = True
    for _ in range(5):
        row, column = rng.integers(3, 40), rng.integers(3, 50)
        cells[row : row + rng.integers(4, 13), column : column + rng.integers(4, 10)] = False
    return Free((-3.0, -2.5), 0.1, cells)


def two_rooms() -> Free:
    """With one narrow door between them."""
    cells = np.zeros((40, 90), bool)
    cells[2:38, 2:43] = cells[2:38, 47:88] = True
    cells[18:21, 43:47] = True
    return Free((0.0, 0.0), 0.1, cells)


VISITS = (
    Visit(start_s=4.0, end_s=7.0, target_m=(2.5, 2.0, 0.8), distance_m=1.0),
    Visit(start_s=12.0, end_s=16.0, target_m=(-2.5, -2.2, 1.2), distance_m=1.4),
    Visit(start_s=22.0, end_s=24.0, target_m=(-1.0, 2.3, 0.5), distance_m=0.9),
)


def sampled(taken: Walk, rate_hz: float = RATE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, eyes [N, 3] and world-to-camera rotations [N, 3, 3]."""
    times = np.arange(0, taken.duration_s, 1 / rate_hz)
    matrices = taken.at(times).numpy()
    rotation = matrices[:, :3, :3]
    return times, -(rotation.transpose(0, 2, 1) @ matrices[:, :3, 3:])[..., 0], rotation


def turns_deg_s(rotation: np.ndarray, rate_hz: float = RATE) -> np.ndarray:
    change = rotation[1:] @ rotation[:-1].transpose(0, 2, 1)
    cosine = (np.trace(change, axis1=1, axis2=2) - 1) / 2
    return np.rad2deg(np.arccos(cosine.clip(-1, 1))) * rate_hz


def off_axis_deg(eyes: np.ndarray, rotation: np.ndarray, target_m) -> np.ndarray:
    seen = (rotation @ (np.asarray(target_m) - eyes)[..., None])[..., 0]
    return np.rad2deg(np.arctan2(np.hypot(seen[:, 0], seen[:, 1]), seen[:, 2]))


@pytest.fixture(scope="module", params=range(3))
def taken(request) -> tuple[Free, Walk]:
    free = room(request.param)
    return free, walk(free, VISITS, 30.0, np.random.default_rng(request.param), hands=[(18.0, 20.0)])


def test_poses_are_rigid(taken):
    _, path = taken
    poses = path.at(np.arange(900) / 30)
    assert poses.shape == (900, 4, 4)
    assert poses.dtype == torch.float64
    rotation = poses[:, :3, :3]
    assert torch.allclose(rotation @ rotation.mT, torch.eye(3).double().expand(900, 3, 3), atol=1e-12)
    assert torch.allclose(torch.linalg.det(rotation), torch.ones(900).double())
    assert torch.equal(poses[30], path.at([1.0])[0])


def test_the_wearer_stays_where_a_person_can_be(taken):
    free, path = taken
    _, eyes, _ = sampled(path)
    floor = Floor(free)
    inside = floor.is_open(eyes[:, :2])
    assert inside.mean() > 0.995
    assert (floor.clearance_at_m(eyes[:, :2]) > 0.02).all()
    assert 1.1 < eyes[:, 2].min() < eyes[:, 2].max() < 1.7


def test_the_wearer_moves_as_people_do(taken):
    _, path = taken
    _, eyes, rotation = sampled(path)
    speed = np.linalg.norm(np.diff(eyes[:, :2], axis=0), axis=1) * RATE
    assert speed.max() < 2.2
    assert 0.4 < np.median(speed[speed > 0.3]) < 1.4
    assert 0.2 < (speed > 0.3).mean() < 0.9  # walks and stands
    assert np.linalg.norm(np.diff(eyes, 2, axis=0), axis=1).max() * RATE**2 < 15
    turns = turns_deg_s(rotation)
    assert 3 < np.median(turns) < 40  # mostly rests
    assert 150 < turns.max() < 450
    assert np.quantile(turns, 0.9) < 220


def test_walking_bobs_the_head_twice_a_second(taken):
    _, path = taken
    _, eyes, _ = sampled(path)
    speed = np.linalg.norm(np.diff(eyes[:, :2], axis=0), axis=1) * RATE
    height = eyes[:-1, 2] - np.convolve(np.pad(eyes[:-1, 2], 60, "edge"), np.full(121, 1 / 121), "valid")
    walking, standing = height[speed > 0.6], height[speed < 0.05]
    assert 0.004 < walking.std() < 0.03
    assert np.median(np.abs(standing)) < 0.5 * np.median(np.abs(walking))  # unless they stoop
    rises = np.sum((height[1:] > 0) & (height[:-1] <= 0) & (speed[1:] > 0.6)) / (len(walking) / RATE)
    assert 1.2 < rises < 2.6


def test_visits_are_looked_at_from_about_their_distance(taken):
    _, path = taken
    times, eyes, rotation = sampled(path)
    for visit in VISITS:
        during = (times >= visit.start_s) & (times < visit.end_s)
        off_axis = off_axis_deg(eyes[during], rotation[during], visit.target_m)
        assert (off_axis < 20).mean() > 0.7
        assert (off_axis < 40).mean() > 0.8
        assert off_axis.std() > 0.5  # not pinned to the middle
        distance = np.linalg.norm(eyes[during] - visit.target_m, axis=1)
        assert abs(np.median(distance) - visit.distance_m) < 0.8


def test_the_head_turns_away_after_a_visit(taken):
    _, path = taken
    times, eyes, rotation = sampled(path)
    for visit in VISITS:
        after = (times > visit.end_s) & (times < visit.end_s + 2.5)
        assert off_axis_deg(eyes[after], rotation[after], visit.target_m).max() > 45


def test_the_wearer_looks_down_at_their_hands(taken):
    _, path = taken
    times, _, rotation = sampled(path)
    pitch = np.rad2deg(np.arcsin(rotation[(times > 18.7) & (times < 20), 2, 2]))
    assert -50 < np.median(pitch) < -22
    body = path.body_to_world([19.5])[0]
    hands = (body @ torch.tensor([0.45, 0.0, 1.2, 1.0]).double())[:3]
    seen = path.at([19.5])[0] @ torch.cat([hands, torch.ones(1).double()])
    assert seen[2] > 0.2  # in front of the camera, for the body faces that way too


def test_poses_between_frames_are_on_the_way(taken):
    """What a shutter needs: no jumps however closely one looks."""
    _, path = taken
    times = np.linspace(5, 9, 20001)
    matrices = path.at(times).numpy()
    assert np.abs(np.diff(matrices, axis=0)).max() < 0.01
    speeds = np.diff(matrices[:, :3, :3], axis=0) / np.diff(times)[:, None, None]
    assert np.abs(np.diff(speeds, axis=0)).max() < 0.1  # rad/s from one 0.2 ms to the next: no kinks


def test_the_same_seed_takes_the_same_walk():
    first, again, other = (walk(room(), VISITS, 10.0, np.random.default_rng(s)) for s in (5, 5, 6))
    times = np.arange(300) / 30
    assert torch.equal(first.at(times), again.at(times))
    assert not torch.equal(first.at(times), other.at(times))


def test_who_is_late_looks_at_the_target_all_the_same():
    far = [
        Visit(start_s=2.0, end_s=4.0, target_m=(0.2, 2.0, 1.0)),
        Visit(start_s=4.5, end_s=7.5, target_m=(8.8, 2.0, 1.0)),
    ]
    path = walk(two_rooms(), far, 12.0, np.random.default_rng(0))
    times, eyes, rotation = sampled(path)
    near = [np.linalg.norm(eyes - visit.target_m, axis=1) < 1.5 for visit in far]
    assert times[near[0]].min() < 3
    assert times[near[1]].min() > 6
    during = (times >= 4.5) & (times < 7.5)
    assert (off_axis_deg(eyes[during], rotation[during], far[1].target_m) < 20).mean() > 0.6
    speed = np.linalg.norm(np.diff(eyes[:, :2], axis=0), axis=1) * RATE
    assert 1.2 < speed.max() < 2.4


def test_the_way_leads_through_the_door():
    floor = Floor(two_rooms())
    start, goal = (int(np.hypot(*(floor.centres_m - at).T).argmin()) for at in ([0.5, 0.5], [8.5, 3.5]))
    points = floor.shortest_paths(start).path_m(goal)
    assert np.allclose(points[0], floor.centres_m[start])
    assert np.allclose(points[-1], floor.centres_m[goal])
    assert floor.is_open(points).all()
    length = np.hypot(*np.diff(points, axis=0).T).sum()
    assert 8.5 < length < 9.8  # hardly longer than straight through the door
    turns = np.diff(np.unwrap(np.arctan2(*np.diff(points, axis=0).T)))
    assert np.abs(turns).max() < 0.4  # and smooth


@pytest.mark.parametrize(
    "cells", [np.ones((1, 1), bool), np.ones((1, 9), bool), np.eye(5, dtype=bool), np.ones((3, 3), bool)]
)
def test_even_a_closet_can_be_visited(cells):
    visits = [
        Visit(start_s=0.0, end_s=1.0, target_m=(0.05, 0.05, 0.0)),  # right under the wearer
        Visit(start_s=1.0, end_s=1.05, target_m=(2.0, 0.0, 1.6)),
        Visit(start_s=1.02, end_s=4.0, target_m=(0.0, 2.0, 3.0)),  # overlapping, overhead
    ]
    path = walk(Free((0.0, 0.0), 0.1, cells), visits, 5.0, np.random.default_rng(0), hands=[(0.5, 4.5)])
    assert torch.isfinite(path.at(np.arange(150) / 30)).all()
    _, _, rotation = sampled(path)
    assert turns_deg_s(rotation).max() < 600


def test_without_any_floor_there_is_no_walk():
    with pytest.raises(SynthError, match="nobody can stand"):
        walk(Free((0.0, 0.0), 0.1, np.zeros((4, 4), bool)), [], 5.0, np.random.default_rng(0))


def test_no_visits_is_a_stroll_and_gets_about():
    _, eyes, _ = sampled(walk(room(), [], 40.0, np.random.default_rng(1)))
    assert np.ptp(eyes[:, 0]) > 2


def test_a_thing_in_a_shelf_is_seen_from_its_front():
    visit = Visit(start_s=5.0, end_s=8.0, target_m=(1.5, 2.0, 1.0), distance_m=1.0, facing_rad=np.pi / 2)
    for seed in range(3):
        path = walk(Free((0.0, 0.0), 0.1, np.ones((40, 30), bool)), [visit], 9.0, np.random.default_rng(seed))
        times, eyes, _ = sampled(path)
        standing = (times > 6) & (times < 8)
        assert (eyes[standing, 1] > 2.3).all()


def test_resampling_keeps_the_ends_and_the_line():
    points = resampled(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), 0.1)
    assert len(points) == 21
    assert np.allclose(points[[0, 10, 20]], [[0, 0], [1, 0], [1, 1]])

"""Soft coverage is near that of the model, and its loss wants the thing found in one place."""

import math

import pytest
import torch

from lastseen.model.coverage import coverage
from lastseen.train.pairs import IGNORED, RIGHT, WRONG
from lastseen.train.soft_coverage import SHARPNESS, SIDES, coverage_loss, neighbouring_frames, soft_coverage

pytestmark = pytest.mark.usefixtures("one_thread")

# A sum of n exponentials is at most n times the largest.
MOST = sum(math.log(side**2) for side in SIDES) / len(SIDES) / SHARPNESS


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def of_model(cosine):
    """The coverage that the model computes [b, t, k, h, w] -> [b, t, h, w]"""
    return coverage(cosine, torch.ones(len(cosine), cosine.shape[2]), SIDES).mean(2)


def test_soft_coverage_is_the_models_from_above_within_its_bound():
    assert MOST < 0.22
    for kind in ("any", "high", "one place"):
        cosine = 2 * torch.rand(2, 3, 6, 14, 12, generator=generator()) - 1
        if kind == "high":
            cosine = 0.9 + 0.1 * cosine
        if kind == "one place":
            cosine = 0.1 * cosine
            cosine[..., 0, 5] = 0.9
        more = soft_coverage(cosine) - of_model(cosine)
        assert more.shape == (2, 3, 14, 12)
        assert more.min() > -1e-5
        assert more.max() < MOST + 1e-5
    # Near a single best patch, nothing is added to it.
    assert more[:, :, :2, 4:7].max() < 0.01


def test_soft_coverage_takes_any_number_of_dimensions_before():
    cosine = 2 * torch.rand(2, 3, 2, 4, 9, 9, generator=generator()) - 1
    found = soft_coverage(cosine)
    assert found.shape == (2, 3, 2, 9, 9)
    torch.testing.assert_close(found[1, 2, 0], soft_coverage(cosine[1, 2, :1])[0])


def test_the_frames_of_a_query_begin_with_the_one_that_shows_its_thing():
    labels = torch.full((2, 3, 5, 8, 8), WRONG, dtype=torch.int8)
    shown = torch.tensor([[0, 4, 2], [3, 1, 1]])
    for group in range(2):
        for query in range(3):
            labels[group, query, shown[group, query], 2:4, 2:4] = RIGHT
            labels[group, query, (shown[group, query] + 2) % 5, 2, 2] = RIGHT  # less of it
    frames = neighbouring_frames(labels, 3)
    assert torch.equal(frames[..., 0], shown)
    assert torch.equal(frames[..., 1], (shown + 1) % 5)
    assert frames.shape == (2, 3, 3)
    every = neighbouring_frames(labels, 99)
    assert torch.equal(every.sort(-1).values, torch.arange(5).expand(2, 3, 5))


def scene():
    """Logits and labels [1, 1, 2, 20, 20]: a thing of 2 x 2 patches and its border in one frame."""
    labels = torch.full((1, 1, 2, 20, 20), WRONG, dtype=torch.int8)
    labels[0, 0, 0, 3:7, 3:7] = IGNORED
    labels[0, 0, 0, 4:6, 4:6] = RIGHT
    return torch.randn(labels.shape, generator=generator()), labels


def loss_with(place, value, hardest=8):
    logits, labels = scene()
    logits[0, 0, *place] = value
    return coverage_loss(logits, labels, hardest).item()


def test_the_loss_falls_as_the_right_place_gets_surer_and_rises_for_a_wrong_one():
    falling = [loss_with((0, 4, 5), value) for value in (3.0, 4.0, 6.0, 9.0)]
    assert falling == sorted(falling, reverse=True) and falling[0] > falling[-1] + 0.03
    for frame in (0, 1):
        rising = [loss_with((frame, 15, 15), value) for value in (3.0, 4.0, 6.0, 9.0)]
        assert rising == sorted(rising) and rising[-1] > rising[0] + 0.5


def test_one_right_place_is_enough():
    logits, labels = scene()
    logits[labels == RIGHT] = -5.0
    logits[0, 0, 0, 4, 4] = 5.0
    others = logits.clone()
    others[0, 0, 0, 5, 5] = 4.0
    assert torch.equal(coverage_loss(logits, labels, 8), coverage_loss(others, labels, 8))


def test_places_whose_windows_reach_the_thing_do_not_count():
    """Within half of the largest window of what is not wrong: up to 4 patches from it."""
    plain = loss_with((1, 0, 0), -9.0)
    for row, column in ((3, 3), (0, 0), (7, 7), (10, 10), (10, 5)):
        assert loss_with((0, row, column), 9.0) == loss_with((0, row, column), -9.0), (row, column)
    assert loss_with((0, 11, 10), 9.0) > plain + 0.5
    assert loss_with((1, 5, 5), 9.0) > plain + 0.5  # the other frame does not show it


def test_a_thing_that_is_nowhere_is_only_to_be_refused_and_gradients_are_finite():
    logits, labels = scene()
    labels = torch.full_like(labels, WRONG)
    logits.requires_grad_()
    loss = coverage_loss(logits, labels, 8)
    expected = torch.nn.functional.softplus(logits.flatten().topk(8).values).mean()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert torch.isfinite(logits.grad).all()
    # And everywhere is near the thing: nothing is wrong.
    logits.grad = None
    loss = coverage_loss(logits, torch.full_like(labels, RIGHT), 8)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(logits.grad).all()

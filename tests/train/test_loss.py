"""Label assignment and losses: the published numbers, and what must hold for any box."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import GOLDEN

from lastseen.model import Predictions
from lastseen.model.head import corners, make_anchors
from lastseen.train.batch import Batch
from lastseen.train.loss import (
    LossConfig,
    Targets,
    assign,
    assign_published,
    box_terms,
    choose,
    count,
    focal,
    hard_negative_sum,
    iou,
    label,
    losses,
    negatives_wanted,
)

ANCHORS = corners(make_anchors(16, 448))


def case(number):
    golden = np.load(GOLDEN / "losses.npz")
    found = {k.split("/")[1]: golden[k] for k in golden.files if k.startswith(f"{number}/")}
    recipe = json.loads(str(found["recipe"]))
    rng = np.random.RandomState(recipe["rs"])
    shape = recipe["b"], recipe["t"], recipe["N"]
    refine = torch.from_numpy(rng.normal(0, 0.02, (*shape, 4)).astype(np.float32))
    logits = torch.from_numpy(rng.normal(-2, 1.5, shape).astype(np.float32))
    boxes = corners(refine + torch.from_numpy(golden["anchors_yxhw_448"]) / 448)
    truth = torch.from_numpy(found["gt_y1x1y2x2"])[..., [1, 0, 3, 2]]
    visible = torch.from_numpy(found["with_bbox"]) > 0
    return found, Predictions(boxes, logits), truth, visible, torch.from_numpy(found["before_query"])


def test_the_published_assignment_is_reproduced():
    for number in range(6):
        found, _, truth, visible, _ = case(number)
        positive = assign_published(truth, visible, ANCHORS)
        assert positive.flatten().nonzero()[:, 0].tolist() == found["positive_idx"].tolist()


def test_the_published_losses_are_reproduced():
    for number in [0, 1, 2, 4, 5]:
        found, predictions, truth, visible, counted = case(number)
        positive = assign_published(truth, visible, ANCHORS)
        targets = Targets(truth, positive, counted, visible.new_zeros(len(visible), 0))
        config = LossConfig(score="focal", score_weight=100)
        ours = losses(predictions, None, targets, count(targets, config), config)
        for name, value in (
            ("center", ours.centre),
            ("hw", ours.size),
            ("giou", ours.giou),
            ("prob_focal", ours.score),
        ):
            assert value.item() == pytest.approx(found[f"loss_{name}"].item(), rel=1e-5), name
        parts = ours.centre + ours.size + 0.3 * ours.giou + 100 * ours.score
        assert ours.total.item() == pytest.approx(parts.item())


def test_frames_after_the_question_do_not_count_and_without_a_thing_there_is_no_box_loss():
    """Case 3: nothing is visible and one of two frames is after the question.

    Then the published box terms are those of the batch's very first anchor, an accident of an empty
    list of positives. Ours are zero; that the published numbers are that anchor's is checked here too.
    """
    found, predictions, truth, visible, counted = case(3)
    targets = Targets(
        truth, assign_published(truth, visible, ANCHORS), counted, visible.new_zeros(len(visible), 0)
    )
    config = LossConfig(score="focal")
    ours = losses(predictions, None, targets, count(targets, config), config)
    assert (ours.centre, ours.size, ours.giou) == (0, 0, 0)
    assert ours.score.item() == pytest.approx(found["loss_prob_focal"].item(), rel=1e-5)
    every = focal(predictions.logits, targets.positive).mean().item()
    assert every != pytest.approx(found["loss_prob_focal"].item(), rel=1e-2)
    first = box_terms(predictions.boxes[0, 0, :1], truth[0, 0, None])[0].tolist()
    assert first == pytest.approx([found[f"loss_{k}"].item() for k in ("center", "hw", "giou")], rel=1e-5)


unit = st.floats(0, 1)


@settings(max_examples=60, deadline=None)
@given(unit, unit, st.floats(5 / 448, 1), st.floats(5 / 448, 1))
def test_every_visible_frame_has_a_positive_from_5_pixels_to_the_full_frame(x, y, width, height):
    x1, y1 = x * (1 - width), y * (1 - height)
    truth = torch.tensor([[[x1, y1, x1 + width, y1 + height]] * 2])
    visible = torch.tensor([[True, False]])
    positive = assign(truth, visible, ANCHORS)
    assert not positive[0, 1].any()
    overlap = iou(ANCHORS, truth[0, 0])
    above = overlap > 0.2
    if above.any():
        assert torch.equal(positive[0, 0], above)
        return
    assert positive[0, 0].sum() == 5
    chosen, rest = overlap[positive[0, 0]], overlap[~positive[0, 0]]
    assert chosen.min() >= rest.max()
    distance = (ANCHORS[:, :2] + ANCHORS[:, 2:] - truth[0, 0, :2] - truth[0, 0, 2:]).norm(dim=-1)
    tied = ~positive[0, 0] & (overlap == chosen.min())
    if tied.any():
        last = distance[positive[0, 0] & (overlap == chosen.min())].max()
        assert last <= distance[tied].min() + 1e-6


def test_a_thing_of_6_pixels_has_no_positive_by_the_published_rule_and_five_by_ours():
    truth = torch.tensor([[[0.5, 0.5, 0.5 + 6 / 448, 0.5 + 6 / 448], [0.2, 0.2, 0.6, 0.6]]])
    visible = torch.ones(1, 2, dtype=torch.bool)
    assert assign_published(truth, visible, ANCHORS).sum(-1)[0, 0] == 0
    assert assign(truth, visible, ANCHORS).sum(-1)[0, 0] == 5


def batch(visible, **fields):
    b, t = visible.shape
    return Batch(
        clips=torch.zeros(b, t, 3, 1, 1),
        queries=torch.zeros(b, 1, 3, 1, 1),
        boxes_unit=torch.tensor([0.3, 0.3, 0.6, 0.6]).expand(b, t, 4),
        visible=visible,
        unrelated=~torch.eye(b, dtype=torch.bool),
        **fields,
    )


def test_hard_negatives_are_the_hardest_of_the_query_and_three_to_a_positive():
    torch.manual_seed(0)
    visible = torch.tensor([[True, False], [False, False]])
    mined = torch.tensor([[True, True, False], [True, True, True]])
    config = LossConfig(least_negatives=7)
    targets = label(batch(visible), None, config, mined)
    assert targets.positive.shape == (2, 2, 1)
    # One positive: 3 negatives wanted, but at least 7, of the 1 + 2 there are; the absent clip has 2 + 3.
    assert negatives_wanted(targets, config).tolist() == [3, 5]
    config = LossConfig(least_negatives=2)
    assert negatives_wanted(targets, config).tolist() == [3, 2]
    logits = torch.tensor([[[0.5], [-1.0]], [[2.0], [-3.0]]], requires_grad=True)
    others = torch.tensor([[[1.0], [-2.0], [9.0]], [[0.1], [4.0], [-5.0]]], requires_grad=True)
    hard_negative_sum(logits, others, targets, choose(targets, config)).backward()
    # The positive pulls up; frames that do not count (9.0) and easy ones are left alone.
    assert logits.grad.flatten().sign().tolist() == [-1, 1, 1, 0]
    assert others.grad.flatten().sign().tolist() == [1, 1, 0, 0, 1, 0]


@pytest.mark.parametrize("score", ["bce", "focal", "hnm"])
@pytest.mark.parametrize("anchors", [None, ANCHORS], ids=["single box", "anchors"])
def test_the_shares_of_a_split_batch_add_up_to_the_whole(score, anchors):
    torch.manual_seed(1)
    visible = torch.tensor(
        [[True, False, True], [False, False, False], [True, True, True], [False, True, True]]
    )
    known = torch.ones_like(visible)
    known[3, 0] = False
    config = LossConfig(score=score, consistency_weight=0.5)
    whole = batch(visible, known=known, swapped=torch.tensor([False, True, False, True]))
    n = 1 if anchors is None else len(anchors)
    boxes = torch.rand(4, 3, n, 4).sort(-1).values
    logits, others = torch.randn(4, 3, n), torch.randn(4, 2, n)
    mined = torch.tensor([[True, True], [True, True], [False, False], [True, True]])

    def share(first, last, counts=None):
        targets = label(whole.rows(first, last), anchors, config, mined[first:last])
        own = count(targets, config)
        part = Predictions(boxes[first:last], logits[first:last])
        return own, losses(part, others[first:last], targets, own if counts is None else counts, config)

    counts, together = share(0, 4)
    assert torch.equal(counts, share(0, 2)[0] + share(2, 4)[0])
    parts = [share(0, 2, counts)[1], share(2, 4, counts)[1]]
    for name, value in zip(together._fields, together):
        assert torch.isclose(value, sum(getattr(part, name) for part in parts), rtol=1e-5), name
        assert value > 0


def test_two_pictures_of_one_thing_should_get_the_same_answer():
    visible = torch.ones(3, 2, dtype=torch.bool)
    known = torch.tensor([[True, True], [True, False], [True, True]])
    logits = torch.tensor([[[2.0, -9.0], [1.0, 0.0]], [[0.5, -30.0], [7.0, 7.0]], [[-3.0, 5.0], [4.0, 4.0]]])

    def consistency(swapped, logits):
        config = LossConfig(score="bce", consistency_weight=1.0)
        targets = label(batch(visible, known=known, swapped=swapped), ANCHORS[:2], config)
        counts = count(targets, config)
        found = losses(Predictions(torch.rand(3, 2, 2, 4), logits), None, targets, counts, config)
        return found.consistency * counts[1]

    none = torch.tensor([False, False, False])
    second = torch.tensor([False, True, False])
    assert consistency(none, logits) == consistency(None, logits) == 0
    # Only the frames that count in both, and next to nothing where both say no.
    expected = (torch.tensor(2.0).sigmoid() - torch.tensor(0.5).sigmoid()) * 1.5
    torch.testing.assert_close(consistency(second, logits).float(), expected, rtol=0.01, atol=0)
    same = logits.clone()
    same[1] = same[0]
    assert consistency(second, same) == 0


def test_an_empty_batch_of_boxes_gives_finite_gradients():
    visible = torch.zeros(2, 2, dtype=torch.bool)
    config = LossConfig()
    targets = label(batch(visible), ANCHORS, config)
    boxes = torch.rand(2, 2, 3072, 4, requires_grad=True)
    logits = torch.randn(2, 2, 3072, requires_grad=True)
    result = losses(Predictions(boxes, logits), None, targets, count(targets, config), config)
    result.total.backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad.count_nonzero() == 2 * 48
    assert not boxes.grad.any()


def test_an_unknown_score_loss_is_refused():
    with pytest.raises(ValueError, match="hnm, focal, bce"):
        LossConfig(score="hinge")

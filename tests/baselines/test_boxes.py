"""Overlaps, suppression, RoIAlign and anchors against slow and obvious ways to the same."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from lastseen.baselines.boxes import deltas_of, moved, nms, pairwise_iou, suppressed
from lastseen.baselines.proposals import (
    AnchorScores,
    anchors_of,
    best_proposals,
    label_anchors,
    proposal_loss,
)
from lastseen.baselines.roi_align import roi_align
from lastseen.box import Box

seeds = st.integers(0, 2**31)


def drawn_boxes(seed: int, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    low = torch.rand(count, 2, generator=generator) * 0.7
    return torch.cat([low, low + 0.02 + 0.28 * torch.rand(count, 2, generator=generator)], 1)


def greedy(boxes: torch.Tensor, iou: float) -> list[int]:
    """Box by box, of boxes in descending order of score."""
    kept: list[int] = []
    for number, box in enumerate(boxes.tolist()):
        if all(Box(*box).iou(Box(*boxes[other].tolist())) <= iou for other in kept):
            kept.append(number)
    return kept


@settings(deadline=None, max_examples=25)
@given(seeds, st.integers(0, 40), st.sampled_from([0.3, 0.5, 0.7]))
def test_suppression_keeps_what_a_slow_loop_keeps(seed, count, iou):
    boxes = drawn_boxes(seed, count)
    assert suppressed(boxes, iou).nonzero().flatten().tolist() == greedy(boxes, iou)


def test_a_long_chain_of_overlaps_is_suppressed_in_turn():
    """Each box covers the next one only: every second one is kept, which takes as many rounds as boxes."""
    low = torch.arange(60)[:, None] * 0.4
    boxes = torch.cat([low, torch.zeros(60, 1), low + 1, torch.ones(60, 1)], 1)
    assert suppressed(boxes, 0.4).tolist() == [True, False] * 30


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_suppression_does_not_depend_on_the_order_of_boxes(seed):
    boxes = drawn_boxes(seed, 30)
    generator = torch.Generator().manual_seed(seed)
    scores, order = torch.rand(30, generator=generator), torch.randperm(30, generator=generator)
    assert nms(boxes, scores, 0.5).tolist() == order[nms(boxes[order], scores[order], 0.5)].tolist()


def test_of_equal_boxes_the_best_scored_one_is_kept():
    boxes = drawn_boxes(0, 1).expand(5, 4)
    assert nms(boxes, torch.tensor([0.1, 0.9, 0.3, 0.9, 0.2]), 0.5).tolist() == [1]


def test_batches_are_suppressed_row_by_row():
    rows = torch.stack([drawn_boxes(seed, 20) for seed in range(3)])
    assert torch.equal(suppressed(rows, 0.5), torch.stack([suppressed(row, 0.5) for row in rows]))


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_deltas_move_anchors_onto_the_boxes_they_were_made_of(seed):
    boxes, anchors = drawn_boxes(seed, 10), drawn_boxes(seed + 1, 10)
    torch.testing.assert_close(moved(anchors, deltas_of(boxes, anchors)), boxes, rtol=1e-4, atol=1e-5)


def test_overlap_is_that_of_boxes():
    boxes, others = drawn_boxes(1, 5), drawn_boxes(2, 6)
    expected = [[Box(*a.tolist()).iou(Box(*b.tolist())) for b in others] for a in boxes]
    torch.testing.assert_close(pairwise_iou(boxes, others), torch.tensor(expected))


# --- RoIAlign ---------------------------------------------------------------------------------------


def slow_align(features: torch.Tensor, box: list[float], size: int, samples: int) -> torch.Tensor:
    """Point by point, of one picture [c, h, w]."""
    _, h, w = features.shape
    x1, y1, x2, y2 = box[0] * w, box[1] * h, box[2] * w, box[3] * h
    out = torch.zeros(features.shape[0], size, size)
    for row in range(size):
        for column in range(size):
            for i in range(samples):
                for j in range(samples):
                    y = y1 + (y2 - y1) * (row + (i + 0.5) / samples) / size - 0.5
                    x = x1 + (x2 - x1) * (column + (j + 0.5) / samples) / size - 0.5
                    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
                    low_y, low_x = int(y), int(x)
                    high_y, high_x = min(low_y + 1, h - 1), min(low_x + 1, w - 1)
                    dy, dx = y - low_y, x - low_x
                    top = features[:, low_y, low_x] * (1 - dx) + features[:, low_y, high_x] * dx
                    bottom = features[:, high_y, low_x] * (1 - dx) + features[:, high_y, high_x] * dx
                    out[:, row, column] += (top * (1 - dy) + bottom * dy) / samples**2
    return out


def test_roi_align_is_what_a_slow_loop_gives():
    features = torch.randn(2, 3, 9, 12, generator=torch.Generator().manual_seed(0))
    boxes = torch.stack([drawn_boxes(3, 4), torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(4, 4)])
    found = roi_align(features, boxes, 4)
    for picture, own in enumerate(boxes):
        for number, box in enumerate(own.tolist()):
            side = max((box[2] - box[0]) * 12, (box[3] - box[1]) * 9)
            samples = min(max(-int(-side // 4), 1), 4)
            expected = slow_align(features[picture], box, 4, samples)
            torch.testing.assert_close(found[picture, number], expected, rtol=1e-4, atol=1e-4)


def test_roi_align_of_the_whole_picture_is_its_mean_in_cells():
    features = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    found = roi_align(features, torch.tensor([[[0.0, 0.0, 1.0, 1.0]]]), 4)
    torch.testing.assert_close(found[0], F.avg_pool2d(features, 2))


def test_boxes_are_aligned_each_on_its_own():
    features = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    boxes = drawn_boxes(5, 6)[None]
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(
        roi_align(features, boxes[:, order], 3), roi_align(features, boxes, 3)[:, order]
    )


# --- Proposals --------------------------------------------------------------------------------------


def test_anchors_stand_in_the_middle_of_their_cells_with_the_official_sizes():
    anchors = anchors_of(4, 2, (64,)).view(4, 2, 3, 4)
    centre = (anchors[..., :2] + anchors[..., 2:]) / 2
    torch.testing.assert_close(centre[3, 1, 0], torch.tensor([0.75, 0.875]))
    sides = (anchors[0, 0, :, 2:] - anchors[0, 0, :, :2]) * 1333
    torch.testing.assert_close(sides.prod(1), torch.full((3,), 64.0**2), rtol=1e-4, atol=0)
    torch.testing.assert_close(sides[:, 1] / sides[:, 0], torch.tensor([0.5, 1.0, 2.0]))


def scored(logits: torch.Tensor, anchors: torch.Tensor) -> AnchorScores:
    deltas = torch.zeros(*logits.shape, 4)
    return AnchorScores(logits, deltas, anchors, (len(anchors),))


def test_proposals_come_by_descending_score_without_duplicates_and_missing_ones_are_marked():
    anchors = torch.tensor([[0.1, 0.1, 0.3, 0.3], [0.11, 0.1, 0.3, 0.3], [0.6, 0.6, 1.2, 0.9]])
    found = best_proposals(scored(torch.tensor([[1.0, 2.0, 0.0]]), anchors), 4)
    assert found.logits[0].tolist() == [2.0, 0.0, float("-inf"), float("-inf")]
    torch.testing.assert_close(
        found.boxes[0, :2], torch.tensor([[0.11, 0.1, 0.3, 0.3], [0.6, 0.6, 1.0, 0.9]])
    )


def test_every_thing_has_an_anchor_and_hidden_things_are_neither():
    anchors = torch.tensor([[0.0, 0.0, 0.2, 0.2], [0.5, 0.5, 0.7, 0.7], [0.8, 0.0, 1.0, 0.2]])
    thing = torch.tensor([[0.02, 0.0, 0.14, 0.12]])  # overlaps the first anchor by a third
    hidden = torch.tensor([[0.5, 0.5, 0.7, 0.7]])
    labels = label_anchors(anchors, [thing, torch.zeros(0, 4)], [hidden, torch.zeros(0, 4)])
    assert labels.positive.tolist() == [[True, False, False], [False] * 3]
    assert labels.negative.tolist() == [[False, False, True], [True] * 3]
    torch.testing.assert_close(moved(anchors[0], labels.targets[0, 0]), thing[0])


def test_right_objectness_and_deltas_cost_less_than_wrong_ones():
    anchors = anchors_of(6, 6, (256,))
    labels = label_anchors(anchors, [torch.tensor([[0.3, 0.3, 0.5, 0.5]])], [torch.zeros(0, 4)])
    right = torch.where(labels.positive, 8.0, -8.0)
    good = AnchorScores(right, labels.targets, anchors, (len(anchors),))
    generator = torch.Generator().manual_seed(0)
    cost = [
        proposal_loss(one, labels, generator)
        for one in (good, good._replace(logits=-right), good._replace(deltas=labels.targets + 1))
    ]
    assert cost[0] < 0.01 < min(cost[1:])

"""Augmentation moves boxes with the pixels, and depends on its generator alone."""

import math
from dataclasses import replace

import pytest
import torch

from lastseen.train.augment import (
    NO_AUGMENT,
    ROLL_ZOOM,
    AugmentConfig,
    Crop,
    augment_clip,
    augment_query,
    blurred,
    boxes_in_crop,
    degraded,
    draw_crop,
    hue_turned,
    jittered,
    luma,
    rolled,
)

EVERYTHING = AugmentConfig(hue=0.05, grey=0.5, blur=0.5, degrade=0.5, noise=0.5, query_jitter=True)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def clip_of(boxes, height=90, width=160):
    """A bright rectangle on dark ground in each frame, and its boxes in the unit square."""
    frames = torch.full((len(boxes), 3, height, width), 0.1)
    for frame, (x1, y1, x2, y2) in zip(frames, boxes):
        frame[:, y1:y2, x1:x2] = 1.0
    unit = torch.tensor(boxes, dtype=torch.float32) / torch.tensor([width, height, width, height])
    return frames, unit, torch.ones(len(boxes), dtype=torch.bool)


def bright_box(frame):
    """The extent of what is bright, in the unit square."""
    height, width = frame.shape[-2:]
    rows, columns = (frame.mean(0) > 0.55).nonzero(as_tuple=True)
    corners = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    return torch.tensor(corners) / torch.tensor([width, height, width, height])


def test_a_box_moves_with_its_pixels():
    for seed in range(30):
        frames, boxes, visible = clip_of([(60, 30, 90, 60), (20, 10, 70, 40), (100, 50, 150, 85)])
        config = replace(NO_AUGMENT, flip=0.5, crop_scale=0.66, crop_ratio=0.2)
        moved, where, seen, _ = augment_clip(frames, boxes, visible, config, generator(seed))
        assert moved.shape == frames.shape
        for frame, box, shown in zip(moved, where, seen):
            if shown:
                # Two pixels: the crop is enlarged, so an edge may blur over one.
                assert torch.allclose(bright_box(frame), box, atol=2 / 90), (bright_box(frame), box)


def ellipses_of(boxes, height=120, width=200):
    """`clip_of` with ellipses that touch the boxes' sides."""
    frames, unit, visible = clip_of(boxes, height, width)
    rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    for frame, (x1, y1, x2, y2) in zip(frames, boxes):
        x, y = (2 * columns - x1 - x2) / (x2 - x1), (2 * rows - y1 - y2) / (y2 - y1)
        frame[:] = torch.where(x**2 + y**2 <= 1, 1.0, 0.1)
    return frames, unit, visible


def test_an_ellipse_that_was_rolled_fills_its_box():
    sides = torch.tensor([200, 120, 200, 120])
    frames, boxes, _ = ellipses_of([(80, 40, 130, 60), (70, 30, 90, 80), (110, 50, 140, 80)])
    for degrees in (-35, -20, -3, 0, 10, 35, 90, 180):
        turned, where, left = rolled(frames, boxes, math.radians(degrees))
        assert turned.shape == frames.shape
        assert left.tolist() == pytest.approx([1, 1, 1])
        for frame, box in zip(turned, where):
            assert bright_box(frame) * sides == pytest.approx(box * sides, abs=2), degrees


def test_a_roll_by_nothing_only_enlarges_about_the_middle():
    frames, boxes, _ = ellipses_of([(80, 40, 130, 60)])
    turned, where, left = rolled(frames, boxes, 0.0)
    assert torch.allclose(where, (boxes - 0.5) * ROLL_ZOOM + 0.5)
    assert left.item() == pytest.approx(1)
    assert (turned > 0.55).sum().item() == pytest.approx(
        ROLL_ZOOM**2 * (frames > 0.55).sum().item(), rel=0.05
    )
    middle = torch.tensor([[0.4, 0.4, 0.6, 0.6]])
    for angle in (0.3, -0.3):  # what is in the middle stays there
        _, where, _ = rolled(frames, middle, angle)
        assert (where[:, :2] + where[:, 2:]) / 2 == pytest.approx(0.5 * torch.ones(1, 2))


def test_what_a_roll_takes_out_of_the_picture_is_not_left():
    frames = torch.zeros(3, 3, 100, 100)
    boxes = torch.tensor([[0.45, 0.45, 0.55, 0.55], [0.0, 0.4, 0.2, 0.6], [0.0, 0.0, 0.1, 0.1]])
    _, where, left = rolled(frames, boxes, math.pi / 4)
    assert left[0].item() == pytest.approx(1)
    assert left[2].item() == 0  # a corner leaves a square that is turned by 45 degrees
    assert (where >= 0).all() and (where <= 1).all()
    _, where, left = rolled(frames, boxes, 0.0)
    # From -0.075 to 0.155 after the zoom.
    assert left[1].item() == pytest.approx(0.155 / 0.23, abs=1e-3)
    assert where[1, 0].item() == 0
    # In a clip: the middle is always seen, the edge for the most part, of the corner a sliver or nothing.
    config = replace(NO_AUGMENT, roll=1.0, roll_degrees=60.0)
    ends = [augment_clip(frames, boxes, torch.ones(3) > 0, config, generator(seed)) for seed in range(60)]
    assert all(end.visible[0] for end in ends)
    assert sum(end.visible[1].item() for end in ends) > 40
    assert {(e.visible[2].item(), e.is_sliver[2].item()) for e in ends} == {(False, True), (False, False)}
    assert not any((e.visible & e.is_sliver).any() for e in ends)


def test_crop_and_roll_together_leave_the_product_of_what_each_leaves():
    """A third left by the crop, and of that a third by the roll, is a sliver and not two times enough."""
    config = replace(NO_AUGMENT, crop_scale=0.3, roll=1.0)
    frames, boxes = torch.zeros(1, 3, 100, 100), torch.tensor([[0.0, 0.0, 0.4, 0.4]])
    kinds = set()
    for seed in range(300):
        drawn = generator(seed)
        cut, kept = boxes_in_crop(boxes, draw_crop(100, 100, config, drawn), 100, 100)
        torch.rand((), generator=drawn)  # whether to roll
        angle = math.radians(config.roll_degrees * (2 * torch.rand((), generator=drawn).item() - 1))
        of_rest = rolled(frames, cut, angle)[2]
        clip = augment_clip(frames, boxes, torch.ones(1) > 0, config, generator(seed))
        left = (kept * of_rest).item()
        assert (clip.visible.item(), clip.is_sliver.item()) == (left >= 0.25, 0 < left < 0.25)
        kinds.add((min(kept.item(), of_rest.item()) >= 0.25, clip.visible.item()))
    assert kinds == {(True, True), (True, False), (False, False)}


def test_flips_and_crops_both_happen_and_are_one_draw_for_the_clip():
    frames, boxes, visible = clip_of([(60, 30, 90, 60)] * 3)
    config = replace(NO_AUGMENT, flip=0.5, crop_scale=0.66, crop_ratio=0.2)
    ends = [augment_clip(frames, boxes, visible, config, generator(seed))[1] for seed in range(20)]
    assert len({tuple(end[0].tolist()) for end in ends}) == 20
    assert all(torch.equal(end[0], end[1]) and torch.equal(end[1], end[2]) for end in ends)
    plain = replace(NO_AUGMENT, flip=0.5)
    ends = [augment_clip(frames, boxes, visible, plain, generator(seed))[1][0, 0] for seed in range(20)]
    assert len({round(float(end), 4) for end in ends}) == 2


def test_a_thing_of_which_less_than_a_quarter_is_left_is_not_visible():
    boxes = torch.tensor([[0.0, 0.0, 0.4, 0.4], [0.3, 0.0, 0.5, 0.2], [0.0, 0.0, 0.1, 0.1]])
    moved, left = boxes_in_crop(boxes, Crop(left=30, top=0, width=70, height=100), 100, 100)
    assert left.tolist() == pytest.approx([0.25, 1.0, 0.0])
    assert moved[0].tolist() == pytest.approx([0, 0, 1 / 7, 0.4])
    frames = torch.zeros(1, 3, 100, 100)
    corner, visible = torch.tensor([[0.0, 0.0, 0.02, 0.02]]), torch.tensor([True])
    config = replace(NO_AUGMENT, crop_scale=0.3)
    gone = [augment_clip(frames, corner, visible, config, generator(seed)) for seed in range(20)]
    assert sum(not clip.visible.item() for clip in gone) > 15
    assert all(torch.isfinite(clip.boxes_unit).all() for clip in gone)


def test_a_sliver_of_a_thing_is_neither_visible_nor_gone():
    frames = torch.zeros(3, 3, 100, 100)
    boxes = torch.tensor([[0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.1, 1.0], [0.0, 0.0, 0.02, 1.0]])
    visible = torch.tensor([True, True, False])
    config = replace(NO_AUGMENT, crop_scale=0.3)
    kinds = set()
    for seed in range(200):
        crop = draw_crop(100, 100, config, generator(seed))
        clip = augment_clip(frames, boxes, visible, config, generator(seed))
        _, left = boxes_in_crop(boxes, crop, 100, 100)
        assert torch.equal(clip.visible, visible & (left >= 0.25))
        assert torch.equal(clip.is_sliver, visible & (left > 0) & (left < 0.25))
        assert not (clip.visible & clip.is_sliver).any()
        kinds |= set(zip(clip.visible[:2].tolist(), clip.is_sliver[:2].tolist()))
    assert kinds == {(True, False), (False, True), (False, False)}


def test_crops_keep_to_their_scale_and_ratio():
    config = AugmentConfig()
    crops = [draw_crop(160, 90, config, generator(seed)) for seed in range(200)]
    areas = [crop.width * crop.height / (160 * 90) for crop in crops]
    ratios = [crop.width / crop.height / (160 / 90) for crop in crops]
    assert 0.6 < min(areas) < 0.72
    assert 0.9 < max(areas) <= 1
    assert 0.75 < min(ratios) < 0.85
    assert 1.15 < max(ratios) < 1.25
    assert all(0 <= c.left <= 160 - c.width and 0 <= c.top <= 90 - c.height for c in crops)


def test_the_same_generator_gives_the_same_clip_and_another_one_another():
    torch.manual_seed(0)
    frames, boxes, visible = (
        torch.rand(2, 3, 40, 60),
        torch.tensor([[0.2, 0.2, 0.5, 0.6]] * 2),
        torch.ones(2) > 0,
    )
    first, again, other = (
        augment_clip(frames, boxes, visible, EVERYTHING, generator(seed))[0] for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_pictures_stay_pictures_whatever_is_done_to_them():
    for seed in range(12):
        frames = torch.rand(2, 3, 40, 60, generator=generator(seed))
        boxes = torch.tensor([[0.2, 0.2, 0.5, 0.6]] * 2)
        config = replace(EVERYTHING, grey=1.0, blur=1.0, degrade=1.0, noise=1.0)
        clip, *_ = augment_clip(frames, boxes, torch.ones(2) > 0, config, generator(seed))
        query = augment_query(frames, config, generator(seed))
        for pictures in (clip, query):
            assert pictures.min() >= 0
            assert pictures.max() <= 1
        assert query.shape == frames.shape
        assert torch.equal(augment_query(frames, AugmentConfig(), generator(seed)), frames)


def test_nothing_asked_for_is_nothing_done():
    frames, boxes, visible = clip_of([(60, 30, 90, 60)])
    same, where, seen, is_sliver = augment_clip(frames, boxes, visible, NO_AUGMENT, generator(0))
    assert torch.allclose(same, frames, atol=1e-6)
    assert torch.equal(where, boxes)
    assert torch.equal(seen, visible)
    assert not is_sliver.any()


def test_each_colour_change_does_what_its_name_says():
    frames = torch.rand(2, 3, 40, 60, generator=generator(0)) * 0.5 + 0.2
    assert torch.allclose(jittered(frames, brightness=1.2), frames * 1.2)
    assert jittered(frames, contrast=0.5).std() < 0.6 * frames.std()
    grey = jittered(frames, saturation=0.0)
    assert torch.allclose(grey, luma(frames).expand_as(frames), atol=1e-6)
    turned = hue_turned(torch.tensor([0.9, 0.1, 0.1])[:, None, None], 1 / 3)
    assert turned.flatten().tolist() == pytest.approx([0.1, 0.9, 0.1], abs=1e-5)
    flat = torch.full((1, 3, 20, 20), 0.4)
    assert torch.allclose(blurred(flat, 1.5), flat, atol=1e-5)
    assert blurred(frames, 1.5).diff(dim=-1).abs().mean() < 0.3 * frames.diff(dim=-1).abs().mean()
    bad = degraded(frames, 0.5, 32)
    assert bad.unique().numel() <= 33
    assert bad.diff(dim=-1).abs().mean() < frames.diff(dim=-1).abs().mean()


def test_a_crop_scale_of_nothing_is_refused():
    with pytest.raises(ValueError, match="crop_scale"):
        AugmentConfig(crop_scale=0)

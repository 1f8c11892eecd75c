"""Walks in memory: which pictures of things there are to ask with, and which of them a clip may use."""

import numpy as np
import pytest
import torch
from walks import BLUE, GREEN, RED, Thing, gallery_of, is_colour, moving, walk_of

from lastseen.box import Box
from lastseen.errors import TrainError
from lastseen.train.gallery import (
    APART,
    LEAST_SIDE_PX,
    VIEW_PX,
    VIEWS_A_WALK,
    WAYS,
    Gallery,
    asked_with,
    good_frames,
)

pytestmark = pytest.mark.usefixtures("one_thread")

WIDE, TALL = (10, 20, 60, 50), (5, 5, 41, 60)


def growing(frames, start=20):
    """A little larger from frame to frame."""
    return [(2, 2, 2 + start + (t + 1) // 2, 2 + start + t // 2) for t in range(frames)]


def test_a_view_is_a_square_with_the_box_around_the_things_colour():
    for box in [WIDE, TALL, (70, 40, 111, 83), (0, 0, 40, 31)]:
        gallery = gallery_of(walk_of([Thing(name="a", colour=RED, boxes=[box])]))
        (number,) = gallery.views_of["a"]
        view, where = gallery.views[number, 0].float() / 255, gallery.view_boxes[number, 0]
        assert view.shape == (VIEW_PX, VIEW_PX, 3)
        red = is_colour(view, RED, 0.3)
        rows, columns = red.nonzero(as_tuple=True)
        found = torch.tensor([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / VIEW_PX
        # A pixel of the frame is several of the view, and borders are blurred.
        assert torch.allclose(found, where, atol=0.03), (found, where)
        x1, y1, x2, y2 = (found * VIEW_PX).int().tolist()
        assert red[y1 + 6 : y2 - 6, x1 + 6 : x2 - 6].all()
        # The longer side fills the square, unless the frame's border cut it off.
        assert (where[2:] - where[:2]).max() > 0.95


def test_a_portrait_is_a_view_and_has_no_frame():
    gallery = gallery_of(walk_of([Thing(name="a", colour=GREEN, boxes=[None], portraits=1)]))
    (number,) = gallery.views_of["a"]
    assert gallery.records[number].frame is None
    assert gallery.view_boxes[number, 0].tolist() == pytest.approx([0, 0.25, 1, 0.75], abs=0.02)
    assert is_colour(gallery.views[number, 0, VIEW_PX // 2, VIEW_PX // 2] / 255, GREEN)


def test_half_of_the_views_are_whole_pictures_and_the_rest_cuts():
    picture, box = torch.zeros(84, 112, 3, dtype=torch.uint8), Box(40, 30, 70, 50)
    rng, views = np.random.default_rng(0), 2000
    asked = [asked_with(picture, box, rng) for _ in range(views)]
    sizes = [tuple(part.shape[:2]) for part, _ in asked]
    whole, margin, tight = (sizes.count(size) / views for size in ((84, 112), (44, 54), (20, 30)))
    assert whole + margin + tight == 1
    assert whole == pytest.approx(WAYS[None], abs=0.04) and WAYS[None] == 0.5
    assert margin == pytest.approx(WAYS[0.4], abs=0.04)
    assert tight == pytest.approx(WAYS[0.0], abs=0.04)
    boxes = {tuple(part.shape[:2]): where for part, where in asked}
    assert boxes == {(84, 112): box, (44, 54): Box(12, 12, 42, 32), (20, 30): Box(0, 0, 30, 20)}


def test_nothing_is_shown_around_the_thing_of_a_tight_crop():
    """At every scale: what is beyond its box is a repeated edge, so none of it tells the background."""
    scales, box = (1.0, 0.5, 0.25), (40, 30, 80, 60)
    census, frames = walk_of([Thing(name="a", colour=RED, boxes=[box])])
    # A walk's number is the seed of its draws.
    gallery = Gallery.of([census] * 30, [torch.from_numpy(frames)] * 30, scales)
    kinds = set()
    for boxes, shown in zip(gallery.view_boxes, gallery.view_shown, strict=True):
        is_tight = torch.allclose(boxes, shown)
        kinds.add(is_tight)
        if is_tight:
            assert boxes[0].tolist() == [0, 0, 1, 1]  # the whole square
            longer = (boxes[:, 2:] - boxes[:, :2]).amax(1)
            assert longer.tolist() == pytest.approx(scales, abs=0.02)
        else:
            sides = [(b[:, 2:] - b[:, :2]).prod(1) for b in (boxes, shown)]
            assert (sides[1][1:] > 1.5 * sides[0][1:]).all()
    assert kinds == {True, False}


def test_good_frames_are_large_and_apart():
    census, _ = walk_of([Thing(name="a", colour=RED, boxes=growing(70))])
    frames = good_frames(census, 0)
    assert frames == [69, 69 - APART, 69 - 2 * APART]
    assert len(frames) == VIEWS_A_WALK
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sides = rng.integers(5, 60, 80)
        boxes = [(10, 10, 10 + side, 10 + side) if rng.random() < 0.7 else None for side in sides]
        census, _ = walk_of([Thing(name="a", colour=RED, boxes=boxes)])
        frames = good_frames(census, 0)
        assert frames[0] == max((t for t in range(80) if boxes[t]), key=lambda t: (sides[t], t == frames[0]))
        assert all(boxes[t] and sides[t] >= LEAST_SIDE_PX for t in frames)
        assert all(abs(a - b) >= APART for a in frames for b in frames if a != b)


def test_a_small_or_half_hidden_thing_is_not_asked_for_with_that_frame():
    census, _ = walk_of([Thing(name="a", colour=RED, boxes=growing(10, start=10))])
    assert good_frames(census, 0) == []
    share = [0.3] * 30 + [0.9] + [0.3] * 29
    census, _ = walk_of([Thing(name="a", colour=RED, boxes=growing(60, start=35), share=share)])
    assert good_frames(census, 0) == [30]
    census, _ = walk_of([Thing(name="a", colour=RED, boxes=[None] * 5)])
    assert good_frames(census, 0) == []


def test_a_clip_is_never_asked_with_its_own_frames_but_with_portraits_and_other_walks():
    frames = 100
    thing = Thing(name="a", colour=RED, boxes=growing(frames, start=31), portraits=1)
    elsewhere = Thing(name="a", colour=RED, boxes=growing(10, start=40))
    other = Thing(name="b", colour=BLUE, boxes=moving((60, 30, 100, 70), (0, 0), frames))
    gallery = gallery_of(walk_of([thing, other]), walk_of([elsewhere]))
    own = {gallery.records[n].frame for n in gallery.views_of["a"] if gallery.records[n].walk == 0}
    assert own == {None, 99, 84, 69}
    usable = [n for n in gallery.views_of["a"] if gallery.records[n].walk or gallery.records[n].frame is None]
    assert len(usable) == 2
    for first in range(frames):
        for length, stride in ((1, 1), (10, 1), (10, 3), (60, 1)):
            clip = list(range(first, min(first + length * stride, frames), stride))
            found = gallery.askable(0, 0, clip)
            assert set(usable) <= set(found) <= set(gallery.views_of["a"])
            for number in set(found) - set(usable):
                frame = gallery.records[number].frame
                assert frame < clip[0] - APART + 1 or frame > clip[-1] + APART - 1
            far = {f for f in own - {None} if f <= clip[0] - APART or f >= clip[-1] + APART}
            assert len(found) == 2 + len(far)  # nothing is withheld without need
    assert gallery.askable(0, 0) == gallery.views_of["a"]
    assert not set(gallery.askable(0, 1)) & set(gallery.views_of["a"])
    # The other walk's frames have nothing to do with these.
    assert {gallery.records[n].walk for n in gallery.askable(1, 0, range(10))} == {0}


def test_a_gallery_is_read_from_files_as_it_was_written(tmp_path):
    walks = [
        walk_of([Thing(name=name, colour=RED, boxes=[WIDE] * 3, portraits=1)], seed=seed)
        for seed, name in enumerate("ab")
    ]
    paths = [tmp_path / f"{census.names[0]}.npz" for census, _ in walks]
    for (census, _), path in zip(walks, paths, strict=True):
        census.save(path)
    gallery, expected = Gallery.open(paths, "cpu", threads=2), gallery_of(*walks)
    assert gallery.records == expected.records
    assert gallery.views_of == expected.views_of
    assert torch.equal(gallery.view_boxes, expected.view_boxes)
    for ours, theirs in ((gallery.frames, expected.frames), (gallery.views, expected.views)):
        for a, b in zip(ours, theirs, strict=True):
            assert (a.float() - b.float()).abs().mean() < 12  # JPEG
    assert all(walk.jpegs == () for walk in gallery.walks)  # not kept twice


def test_walks_without_anything_to_ask_for_are_one_clear_line():
    with pytest.raises(TrainError, match="no walks"):
        Gallery.open([], "cpu")
    with pytest.raises(TrainError, match="seen well enough"):
        gallery_of(walk_of([Thing(name="a", colour=RED, boxes=[(1, 1, 6, 6)] * 3)]))

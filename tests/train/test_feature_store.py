"""Training clips out of walks: what a batch says about its clips is what they show.

The backbone here gives the mean colour of each patch, so features can be looked at. Corners of frames tell
which walk and frame they are of, and a thing's blue tells in which frame a view of it was taken.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from walks import BLUE, GREEN, RED, YELLOW, Thing, gallery_of, is_colour, moving, walk_of

from lastseen.errors import TrainError
from lastseen.model import BackboneConfig, SimilarityConfig, VQLoCConfig
from lastseen.model.inputs import MEAN, STD, patches_inside
from lastseen.train.augment import NO_AUGMENT, AugmentConfig
from lastseen.train.feature_store import FeatureStore, SynthData
from lastseen.train.gallery import APART, VIEW_PX, Gallery

pytestmark = pytest.mark.usefixtures("one_thread")

MODEL = VQLoCConfig(
    backbone=BackboneConfig(dim=3, depth=1, heads=1), image_size=112, clip_length=8, padding=0.5
)
PLAIN = SynthData(cut_share=0.0, absent_share=0.0, fast_share=0.0, augment=NO_AUGMENT)
MOVED = replace(NO_AUGMENT, flip=0.5, crop_scale=0.66, crop_ratio=0.2)
FRAMES = 40


class MeanColour(nn.Module):
    def forward(self, pictures):
        return F.avg_pool2d(pictures, 14)


def store_of(walks, data=PLAIN, model=MODEL, batch=8, seed=0):
    return FeatureStore(gallery_of(*walks), data, model, MeanColour(), batch, seed)


def colours(features):
    """Features [.., 3, h, w] -> colours [.., h, w, 3] in [0, 1]"""
    mean, std = (torch.tensor(x)[:, None, None] for x in (MEAN, STD))
    return (features.float() * std + mean).movedim(-3, -1)


def rectangle(name, colour, seen=range(10, 25), start=(30, 10, 72, 52), step=(1, 0), frames=FRAMES, **more):
    return Thing(name=name, colour=colour, boxes=moving(start, step, frames, seen), portraits=1, **more)


def coded(number, walk):
    """Marks each frame's upper left patch with its walk and number, and red things with the number."""
    census, frames = walk
    for t, frame in enumerate(frames):
        frame[(frame == RED).all(-1)] = (RED[0], RED[1], 5 * t)
        frame[:14, :14] = (10 + 20 * number, 3 * t, 0)
    return census, frames


def codes(clip):
    """Walks and frames [t] of features [t, 3, h, w] of frames of 112 x 84."""
    corner = colours(clip)[:, 1, 0] * 255
    return ((corner[:, 0] - 10) / 20).round().int(), (corner[:, 1] / 3).round().int()


def equal(one, other):
    return all(
        torch.equal(getattr(one, name), getattr(other, name))
        for name in ("clips", "queries", "boxes_unit", "visible", "unrelated")
    )


@pytest.fixture(scope="module")
def two_walks():
    return [
        walk_of([rectangle("red", RED), rectangle("green", GREEN, range(20, 35), (5, 5, 50, 40))]),
        walk_of([rectangle("blue", BLUE, range(5, 20))], seed=1),
    ]


def test_a_batch_depends_on_the_seed_and_the_step_alone(two_walks):
    data = replace(
        PLAIN, absent_share=0.3, cut_share=0.5, fast_share=0.3, augment=AugmentConfig(), refresh_steps=2
    )
    first, later = store_of(two_walks, data), store_of(two_walks, data)
    wanted = [first.batch(step) for step in range(5)]
    for step in (4, 1, 3, 0, 2):
        assert equal(later.batch(step), wanted[step]), step
    assert not equal(wanted[0], wanted[1])
    assert not equal(store_of(two_walks, data, seed=1).batch(0), wanted[0])


@pytest.mark.parametrize(("size", "seed"), [((112, 84), 0), ((224, 126), 1), ((98, 112), 2)])
def test_boxes_are_where_the_thing_is_in_augmented_and_padded_frames(size, seed):
    scale = max(size) / 112
    start = tuple(round(scale * v) for v in (10, 12, 52, 50))
    things = [
        rectangle(name, colour, range(6, 30), start, (round(scale), 0), frames=36)
        for name, colour in (("red", RED), ("yellow", YELLOW))
    ]
    walks = [walk_of([thing], size=size, seed=n) for n, thing in enumerate(things)]
    batch = store_of(walks, replace(PLAIN, augment=MOVED, refresh_steps=1), seed=seed).batch(seed)
    side = MODEL.side
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    checked = 0
    for clip, query, boxes, visible in zip(batch.clips, batch.queries[:, 0], batch.boxes_unit, batch.visible):
        asked = colours(query)[side // 2, side // 2]
        colour = RED if is_colour(asked, RED) else YELLOW
        assert is_colour(asked, colour)
        for frame, box, shown in zip(colours(clip), boxes * side, visible):
            x1, y1, x2, y2 = box.tolist()
            # A tenth of a patch: crops are in whole pixels, and enlarging blurs.
            inside = (x >= x1 - 0.1) & (x + 1 <= x2 + 0.1) & (y >= y1 - 0.1) & (y + 1 <= y2 + 0.1)
            outside = (x >= x2 + 0.1) | (x + 1 <= x1 - 0.1) | (y >= y2 + 0.1) | (y + 1 <= y1 - 0.1)
            its = is_colour(frame, colour, 0.25)
            if shown:
                assert its[inside].all()
                assert not its[outside].any()
                assert ((frame - frame.mean(-1, keepdim=True)).abs().amax(-1)[outside] < 0.1).all()  # grey
                checked += int(inside.sum())
            else:
                assert its.float().mean() < 0.05  # a sliver may be left of what the crop cut off
    assert checked > 100


def test_a_thing_that_is_seen_is_visible_in_just_those_frames(two_walks):
    for step in range(4):
        batch = store_of(two_walks).batch(step)
        for clip, query, visible in zip(batch.clips, batch.queries[:, 0], batch.visible):
            asked = colours(query)[4, 4]
            shown = ((colours(clip) - asked).abs().amax(-1) < 0.15).flatten(1).any(1)
            assert torch.equal(shown, visible)
            assert visible.sum() >= 3


def test_absent_clips_do_not_show_the_thing(two_walks):
    batch = store_of(two_walks, replace(PLAIN, absent_share=1.0), batch=24).batch(0)
    assert not batch.visible.any()
    for clip, query in zip(batch.clips, batch.queries[:, 0]):
        assert not ((colours(clip) - colours(query)[4, 4]).abs().amax(-1) < 0.15).any()


def test_kinds_of_clips_are_as_frequent_as_asked_for():
    """Of photo walks, whose clip is the whole walk, either kind fits only some."""
    length = MODEL.clip_length
    seen = [rectangle(f"seen{n}", RED, range(length), frames=length) for n in range(9)]
    absent = rectangle("absent", YELLOW, range(0), frames=length)
    walks = [walk_of([thing], source="photo") for thing in seen]
    walks.append(walk_of([absent], source="photo"))
    walks.append(walk_of([rectangle("room", BLUE)]))
    data = replace(PLAIN, absent_share=0.3, photo_share=0.5)
    batch = store_of(walks, data, batch=400).batch(0)
    of_room = torch.stack([is_colour(colours(query)[4, 4], BLUE) for query in batch.queries[:, 0]])
    missing = ~batch.visible.any(1)
    assert of_room.float().mean().item() == pytest.approx(0.5, abs=0.08)
    assert missing[of_room].float().mean().item() == pytest.approx(0.3, abs=0.08)
    assert missing[~of_room].float().mean().item() == pytest.approx(0.3, abs=0.08)


def test_a_share_that_no_walk_can_give_is_one_clear_line_and_no_endless_search():
    always = walk_of([rectangle("a", RED, None, (5, 5, 47, 47))])
    with pytest.raises(TrainError, match=r"no clip of 8 frames fits data.absent_share=1.0 in these 1 walks"):
        store_of([always], replace(PLAIN, absent_share=1.0)).batch(0)
    with pytest.raises(TrainError, match="the walks have 5 frames, a clip has 8"):
        store_of([walk_of([rectangle("a", RED, frames=5)])])


def test_a_fast_clip_skips_every_other_frame():
    walks = [coded(0, walk_of([rectangle("red", RED)]))]
    for share, stride in ((0.0, 1), (1.0, 2)):
        batch = store_of(walks, replace(PLAIN, fast_share=share)).batch(0)
        for clip, boxes, visible in zip(batch.clips, batch.boxes_unit, batch.visible):
            _, frames = codes(clip)
            assert (frames.diff() == stride).all()
            assert visible.tolist() == [10 <= t < 25 for t in frames.tolist()]
            # The thing moves by a pixel a frame.
            lefts = (boxes[visible][:, 0] * 112).round().int()
            assert torch.equal(lefts, 30 + frames[visible])


def test_a_cut_clip_is_not_visible_in_the_part_from_another_walk():
    walks = [
        coded(0, walk_of([rectangle("red", RED, range(40))])),
        coded(1, walk_of([rectangle("blue", BLUE)], seed=1)),
        # Where the thing is, too, though it is never seen; and one that is too short for a long part.
        coded(2, walk_of([rectangle("green", GREEN)], also_present=["red"], seed=2)),
        coded(3, walk_of([rectangle("yellow", YELLOW, range(5), frames=5)], seed=3)),
    ]
    model = replace(MODEL, clip_length=12)
    batch = store_of(walks, replace(PLAIN, cut_share=1.0), model, batch=48).batch(0)
    partners, parts = set(), set()
    for clip, query, visible in zip(batch.clips, batch.queries[:, 0], batch.visible):
        if not is_colour(colours(query)[4, 4, :2], RED[:2]):
            continue
        of, frames = codes(clip)
        own = of == 0
        assert torch.equal(visible, own)
        assert own.any()
        if own.all():
            continue  # no other walk was found soon enough
        partners |= set(of[~own].tolist())
        parts.add(bool(own[0]))
        assert (own.int().diff().abs().sum()) == 1  # one cut
        assert 4 <= own.sum() <= 8
        assert (frames[~own].diff() == 1).all()
        assert (frames[own].diff() == 1).all()
    assert partners == {1, 3}
    assert parts == {True, False}


def test_only_clips_of_walks_without_the_thing_are_unrelated():
    walks = [
        coded(0, walk_of([rectangle("mug a", RED, group="twin 1")])),
        coded(1, walk_of([rectangle("mug b", GREEN, group="twin 1")], seed=1)),
        coded(2, walk_of([rectangle("jug", BLUE)], seed=2)),
        coded(3, walk_of([rectangle("pen", YELLOW)], also_present=["twin 1"], seed=3)),
    ]
    groups = {0: "twin 1", 1: "twin 1", 2: "jug", 3: "pen"}
    present = {0: {"twin 1"}, 1: {"twin 1"}, 2: {"jug"}, 3: {"pen", "twin 1"}}
    for cut_share in (0.0, 1.0):
        store = store_of(walks, replace(PLAIN, cut_share=cut_share), batch=24)
        batch = store.batch(0)
        shown = [set(codes(clip)[0].tolist()) for clip in batch.clips]
        asked = [owner_of(query) for query in batch.queries[:, 0]]
        assert set(asked) == set(groups)
        for i, j in np.ndindex(24, 24):
            certain = all(groups[asked[i]] not in present[walk] for walk in shown[j])
            assert batch.unrelated[i, j].item() == certain
        if cut_share:
            assert any(len(walks_of) == 2 for walks_of in shown)


def owner_of(query):
    """The walk of the thing that a query shows."""
    middle = colours(query)[4, 4]
    if is_colour(middle[:2], RED[:2]):
        return 0
    (found,) = [n for n, colour in ((1, GREEN), (2, BLUE), (3, YELLOW)) if is_colour(middle, colour)]
    return found


def test_a_clip_is_never_asked_about_with_its_own_frames_or_near_ones():
    growing = [
        (20, 20, 45 + (t + 1) // 2, 45 + t // 2) for t in range(50)
    ]  # views are of frames 49, 34 and 19
    walks = [
        coded(0, walk_of([Thing(name="a", colour=RED, boxes=growing)])),
        coded(1, walk_of([Thing(name="a", colour=RED, boxes=[(20, 20, 60, 60)] * 10)], seed=1)),
    ]
    taken = set()
    for step in range(6):
        batch = store_of(walks).batch(step)
        for clip, query in zip(batch.clips, batch.queries[:, 0]):
            of, frames = codes(clip)
            view = round(colours(query)[4, 4, 2].item() * 255 / 5)
            taken.add((int(of[0]), view))
            if (of == 0).all() and view >= 10:  # the other walk has no such frames
                assert view <= frames[0] - APART or view >= frames[-1] + APART
            else:
                assert (of == 0).all() or view >= 10
    assert len({view for walk, view in taken if walk == 0}) > 2
    assert {walk for walk, _ in taken} == {0, 1}


def test_query_boxes_are_where_the_thing_is(two_walks):
    """Portraits here show a thing twice as wide as high, and frames the thing from border to border."""
    shares = []
    for step in range(3):
        batch = store_of(two_walks).batch(step)
        assert batch.query_boxes_unit.shape == batch.query_shown_unit.shape == (8, 1, 4)
        inside = patches_inside(batch.query_boxes_unit[:, 0], MODEL.query_side)[:, 0] > 0
        for query, its in zip(batch.queries[:, 0], inside):
            assert ((colours(query) - colours(query)[4, 4]).abs().amax(-1) < 0.1)[its].all()
            shares.append(its.float().mean().item())
    assert min(shares) <= 0.5


@pytest.mark.parametrize(("query_size", "pooled"), [(224, 14), (112, 28)])
def test_views_are_kept_at_the_size_of_queries(two_walks, query_size, pooled):
    """And at the size of the gallery's they are not resized on the way."""
    scales = (1.0, 0.5)
    walks, frames = zip(*two_walks)
    gallery = Gallery.of(walks, [torch.from_numpy(f) for f in frames], scales)
    small = SimilarityConfig(
        backbone=MODEL.backbone, image_size=112, clip_length=8, query_scales=scales, query_size=query_size
    )
    store = FeatureStore(gallery, PLAIN, small, MeanColour(), 8, 0)
    batch = store.batch(0)
    side = query_size // 14
    assert batch.clips.shape == (8, 8, 3, 8, 8)
    assert batch.queries.shape == (8, 2, 3, side, side)
    assert store.views.shape == (len(gallery.views), 2, 3, side, side)
    kept = F.avg_pool2d(gallery.views.flatten(0, 1).movedim(-1, 1).float() / 255, pooled)
    found = colours(store.views).flatten(0, 1).movedim(-1, 1)
    assert (found - kept).abs().mean() < (1e-3 if query_size == VIEW_PX else 0.02)
    boxes = batch.query_boxes_unit[:, 1]  # the thing is in the middle, and half as wide
    torch.testing.assert_close((boxes[:, :2] + boxes[:, 2:]) / 2, torch.full((8, 2), 0.5), rtol=0, atol=0.02)
    torch.testing.assert_close(
        (boxes[:, 2:] - boxes[:, :2]).amax(1), torch.full((8,), 0.5), rtol=0, atol=0.02
    )


def test_walks_are_augmented_anew_in_every_round(two_walks):
    store = store_of(two_walks, replace(PLAIN, augment=AugmentConfig(query_jitter=True), refresh_steps=2))
    seen = []
    for step in range(4):
        store.batch(step)
        seen.append((store.features.clone(), store.views.clone(), [b.copy() for b in store.boxes]))
    for part in range(2):
        assert torch.equal(seen[0][part], seen[1][part])
        assert torch.equal(seen[2][part], seen[3][part])
        assert not torch.equal(seen[0][part], seen[2][part])
    assert not np.array_equal(seen[0][2][0], seen[2][2][0], equal_nan=True)
    same = store_of(two_walks, replace(PLAIN, augment=AugmentConfig(), refresh_steps=None))
    same.batch(0)
    before = same.features.clone()
    same.batch(10_000)
    assert torch.equal(before, same.features)


def test_a_thing_can_be_asked_for_with_another_frame_of_the_same_walk():
    boxes = moving((20, 20, 62, 62), (0, 0), 50)
    walks = [coded(n, walk_of([Thing(name="a", colour=RED, boxes=boxes)], seed=n)) for n in (0, 1)]
    other = walks[1][1]
    other[other == RED[0]] -= 40  # darker there, so that pictures tell from which walk they are
    gallery = gallery_of(*walks)
    for same_walk_query_share in (0.0, 1.0):
        store = FeatureStore(
            gallery, replace(PLAIN, same_walk_query_share=same_walk_query_share), MODEL, MeanColour(), 32, 0
        )
        batch = store.batch(0)
        at_home, could_be = [], []
        for clip, query in zip(batch.clips, batch.queries[:, 0]):
            (view,) = [n for n, known in enumerate(store.views) if torch.equal(known[0], query)]
            of, frames = codes(clip)
            others = gallery.askable(int(of[0]), 0, frames.tolist())
            at_home.append(gallery.is_from(view, int(of[0])))
            could_be.append(any(gallery.is_from(other, int(of[0])) for other in others))
        assert sum(could_be) > 20
        assert at_home == could_be if same_walk_query_share else 5 < sum(at_home) < sum(could_be)

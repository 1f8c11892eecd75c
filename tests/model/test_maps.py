"""Similarity maps: where a query's patches are in a frame, and what of a query counts as the thing."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from lastseen.box import Box
from lastseen.model import BackboneConfig, VQLoC, VQLoCConfig
from lastseen.model.inputs import (
    box_in_crop,
    normalised,
    patches_inside,
    picture_in_crop,
    places_in_crops,
    query_crop,
)
from lastseen.model.similarity import (
    BEHIND,
    MAPS,
    MatchFusion,
    MatchingReduce,
    lengths_of_patches,
    similarity_maps,
)

TINY = BackboneConfig(dim=32, depth=2, heads=2)


@torch.no_grad()
def test_similarity_maps_are_highest_where_the_querys_patch_is():
    generator = torch.Generator().manual_seed(0)
    frames = F.normalize(torch.randn(1, 2, 16, 8, 8, generator=generator), dim=2)
    query = F.normalize(torch.randn(1, 16, 8, 8, generator=generator), dim=1)
    query[..., 2:4, 2:4] = frames[0, 1, :, 5, 6][None, :, None, None]
    maps = similarity_maps(frames, query)
    assert maps.shape == (1, 2, MAPS + 2, 8, 8)
    likest, below, to_peak = maps[0, :, 0], maps[0, :, -4], maps[0, :, -3]
    assert likest.flatten().argmax() == 64 + 5 * 8 + 6
    assert likest[1, 5, 6].item() == pytest.approx(1, abs=1e-4)
    assert below[1, 5, 6] == 0
    assert below.max() == 0
    assert to_peak[1, 5, 6].item() == pytest.approx(1, abs=1e-4)
    query[..., 2:4, 2:4] = 0  # not the thing's: now that patch does not count
    assert similarity_maps(frames, query)[0, 1, 0, 5, 6] < 0.9


@torch.no_grad()
def test_a_thing_that_fills_a_small_picture_is_compared_patch_by_patch():
    generator = torch.Generator().manual_seed(0)
    frames = F.normalize(torch.randn(1, 1, 16, 32, 32, generator=generator), dim=2)
    likest = {}
    for side in (16, 32, 64):
        query = F.normalize(torch.randn(1, 16, side, side, generator=generator), dim=1)
        query[0, :, 4, 7] = frames[0, 0, :, 20, 9]
        maps = similarity_maps(frames, query)
        assert maps.shape == (1, 1, MAPS + 2, 32, 32)
        likest[side] = maps[0, 0, 0, 20, 9].item()
    assert likest[16] == pytest.approx(1, abs=1e-4)
    assert max(likest[32], likest[64]) < 0.95  # there it is one of 4 or of 16 that are averaged


@torch.no_grad()
def test_a_fitted_projection_keeps_similarities():
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(8, 64, generator=generator)
    features = torch.einsum("nkhw,kc->nchw", torch.randn(4, 8, 8, 8, generator=generator), basis)
    reduce = MatchingReduce(64, 0, 16)

    def similarities(vectors):
        unit = F.normalize(vectors.flatten(2), dim=1)
        return unit.transpose(1, 2) @ unit

    before = (similarities(reduce(features)) - similarities(features)).abs().max()
    reduce.fit(features)
    after = (similarities(reduce(features)) - similarities(features)).abs().max()
    assert after < 1e-4 < before


def test_maps_are_jittered_in_training_only():
    fusion = MatchFusion(16)
    frames, query = (F.normalize(torch.randn(shape), dim=-3) for shape in ((2, 3, 8, 8, 8), (2, 8, 8, 8)))
    fusion.eval()
    assert torch.equal(fusion(frames, query)[0], fusion(frames, query)[0])
    fusion.train()
    assert not torch.equal(fusion(frames, query)[0], fusion(frames, query)[0])


ON_MAPS = VQLoCConfig(
    backbone=BackboneConfig(dim=32, depth=1, heads=2), clip_length=4, dim=16, fusion="match", match_dim=8
)


def test_heads_on_maps_begin_with_what_likeness_says():
    """Untrained, the best candidate is on the likest patch, and its logit grows with the likeness."""
    model = VQLoC.from_config(replace(ON_MAPS, fine=True)).eval()
    query = F.normalize(torch.randn(1, 8, 32, 32), dim=1)
    frames = F.normalize(torch.randn(1, 4, 8, 32, 32), dim=2) * 0.3
    for time, (row, column, length) in enumerate([(3, 5, 0.8), (20, 9, 0.9), (31, 31, 1.0), (0, 0, 0.7)]):
        frames[0, time, :, row, column] = length * F.normalize(F.avg_pool2d(query, 2)[0, :, 2, 2], dim=0)
    with torch.no_grad():
        boxes, logits = model.localize(frames, query).best()
    assert logits[0].tolist() == pytest.approx([1.8, 3.0, 4.2, 0.6], abs=0.05)
    centres = (boxes[0, :, :2] + boxes[0, :, 2:]) / 2 * 32
    for centre, place in zip(centres.tolist(), [(5.5, 3.5), (9.5, 20.5), (31.5, 31.5), (0.5, 0.5)]):
        assert centre == pytest.approx(place, abs=1.1)


@pytest.mark.parametrize("say", [1.0, 0.25, 0.0])
def test_heads_choose_the_candidate_and_have_their_say_in_how_sure_it_is(say):
    torch.manual_seed(0)
    model = VQLoC.from_config(replace(ON_MAPS, heads_say=say)).eval()
    torch.nn.init.normal_(model.head.score.weight, std=0.3)
    frames, query = (F.normalize(torch.randn(shape), dim=-3) for shape in ((1, 4, 8, 32, 32), (1, 8, 32, 32)))
    with torch.no_grad():
        seen, likest = model.correspondence(frames, query)
        own = model.head(*model.propagation(seen))
        alike = model.likeness(likest, own.logits.shape[-1], 16)
        boxes, logits = model.localize(frames, query).best()
    both = own.logits + alike
    choice = both.argmax(-1)
    assert not torch.equal(choice, alike.argmax(-1))
    assert torch.equal(boxes, own.boxes.take_along_dim(choice[..., None, None], 2).squeeze(2))
    wanted = alike.amax(-1) + say * (both.amax(-1) - alike.amax(-1))
    assert logits == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_a_query_crop_shows_the_thing_where_it_says(share):
    """Also at a corner of the picture, where the square reaches out of it."""
    for x1, y1, x2, y2 in ((40, 30, 60, 70), (0, 0, 12, 20), (150, 90, 160, 120)):
        picture = torch.zeros(120, 160, 3, dtype=torch.uint8)
        picture[y1:y2, x1:x2] = 255
        box = Box(x1, y1, x2, y2)
        crop = query_crop(picture, box, 112, share)
        assert crop.shape == (1, 3, 112, 112)
        a, b, c, d = (box_in_crop(picture, box, share) * 112).tolist()
        # Repeated edges may be white, too: the thing's own place must be.
        assert crop[0, 0, round(b) + 2 : round(d) - 2, round(a) + 2 : round(c) - 2].min() > 0.8
        if share < 1:
            assert max(c - a, d - b) == pytest.approx(112 * share, abs=3)


def test_patches_inside_a_box_are_those_whose_middle_is_in_it():
    boxes = torch.tensor([[0.0, 0.0, 0.5, 1.0], [0.3, 0.3, 0.31, 0.31]])
    inside = patches_inside(boxes, 4)
    assert inside[0, 0].tolist() == [[1, 1, 0, 0]] * 4
    assert inside[1].sum() == 1
    assert inside[1, 0, 1, 1] == 1


THE_MIDDLE, EVERYTHING = torch.tensor([[0.25, 0.25, 0.75, 0.75]]), torch.tensor([[0.0, 0.0, 1.0, 1.0]])


def pictured(likeness):
    """Features [1, 3, 8, 8] of a picture whose middle has patches so like all that is around them: [4, 4]"""
    features = torch.zeros(1, 3, 8, 8)
    features[:, 0] = 1.0
    features[0, 0, 2:6, 2:6], features[0, 1, 2:6, 2:6] = likeness, (1 - likeness**2).sqrt()
    return features


def kept_of(likeness, pictures=EVERYTHING, background=0.7):
    """Which patches of the middle count as the thing: [4, 4]"""
    lengths = lengths_of_patches(pictured(likeness), patches_inside(THE_MIDDLE, 8), pictures, background)
    assert set(lengths.unique().tolist()) <= {1.0, BEHIND}
    return (lengths == 1)[0, 0, 2:6, 2:6]


def test_what_is_behind_the_thing_does_not_count_as_the_thing():
    likeness = torch.full((4, 4), 0.9)
    likeness[:, 1:3] = 0.2  # a post in the middle of its box
    assert kept_of(likeness).tolist() == [[False, True, True, False]] * 4
    assert kept_of(likeness, background=0.95).all()


def test_a_thing_that_is_all_like_its_surroundings_keeps_what_is_least():
    likeness = torch.linspace(0.8, 0.95, 16).view(4, 4)
    assert kept_of(likeness).flatten().tolist() == [True] * 7 + [False] * 9


def test_repeated_edges_tell_nothing_about_surroundings():
    likeness = torch.full((4, 4), 0.9)
    likeness[:, 1:3] = 0.2
    assert kept_of(likeness, THE_MIDDLE).all()
    picture = torch.zeros(60, 100, 3, dtype=torch.uint8)
    shown = picture_in_crop(picture, Box(0, 20, 20, 40), 0.5)  # a square of 40 px from (-10, 10) on
    assert shown.tolist() == [0.25, 0.0, 1.0, 1.0]


def test_what_is_behind_tells_when_and_not_where():
    side, generator = 8, torch.Generator().manual_seed(0)
    frames = F.normalize(torch.randn(1, 1, 16, 8, 8, generator=generator), dim=2)
    query = torch.zeros(1, 16, side, side)
    its, behind = frames[0, 0, :, 2, 2], frames[0, 0, :, 6, 6]
    query[0, :, : side // 2] = its[:, None, None]
    query[0, :, side // 2 :] = behind[:, None, None]
    plain = similarity_maps(frames, query)
    assert plain[0, 0, 0, 6, 6].item() == pytest.approx(1, abs=1e-4)
    torch.testing.assert_close(similarity_maps(frames, query, knows_behind=True)[:, :, :-1], plain)
    query[0, :, side // 2 :] *= BEHIND
    maps = similarity_maps(frames, query, knows_behind=True)[0, 0]
    assert maps.shape[0] == MAPS + 2 + 1
    assert maps[0, 2, 2].item() == pytest.approx(1, abs=1e-4)
    assert maps[0, 6, 6] < 0.9
    torch.testing.assert_close(maps[-1], plain[0, 0, 0])


def test_background_is_of_a_query_that_is_masked():
    with pytest.raises(ValueError, match="query_background needs mask_query"):
        replace(ON_MAPS, mask_query=False, query_background=0.7)
    with pytest.raises(ValueError, match="query_size of at most 224, got 448"):
        replace(ON_MAPS, mask_query=True, query_background=0.7)


@torch.no_grad()
def test_a_model_that_knows_what_is_behind_asks_for_the_same_picture_otherwise():
    plain = VQLoC.from_config(replace(ON_MAPS, mask_query=True, query_size=224)).eval()
    knowing = VQLoC.from_config(replace(plain.config, query_background=-1.0)).eval()
    knowing.load_state_dict(plain.state_dict())
    picture = torch.randint(0, 256, (200, 300, 3), dtype=torch.uint8)
    views = [model.encode_view(picture, Box(100, 60, 160, 180)) for model in (plain, knowing)]
    lengths = [view.norm(dim=0) for view in views]
    assert torch.equal(lengths[0] > 0.1, lengths[1] > 0.1)
    of_its_own = (lengths[1] > 0.75).sum() / (lengths[1] > 0.1).sum()
    assert 0.39 < of_its_own < 0.45  # the least that is kept
    frames = F.normalize(torch.randn(4, 8, 32, 32), dim=1)
    when = [model.correspondence(frames[None], view[None])[1] for model, view in zip((plain, knowing), views)]
    torch.testing.assert_close(*when)


@torch.no_grad()
def test_training_asks_with_what_inference_asks_with():
    config = replace(ON_MAPS, mask_query=True, query_size=224, query_shares=(1.0, 0.5), query_background=0.1)
    model = VQLoC.from_config(config).eval()
    picture, box = torch.randint(0, 256, (200, 300, 3), dtype=torch.uint8), Box(100, 60, 160, 180)
    wanted = model.encode_view(picture, box)
    crops = torch.cat([query_crop(picture, box, 224, share) for share in config.query_shares])
    features = model.backbone(normalised(crops))
    places, shown = places_in_crops(picture, box, config.query_shares)
    inside = patches_inside(places, config.query_side)
    lengths = inside * lengths_of_patches(features, inside, shown, 0.1)
    assert set(lengths.unique().tolist()) == {0.0, BEHIND, 1.0}
    clips = torch.randn(1, 2, config.backbone.channels, config.side, config.side)
    queries = (features * inside).flatten(0, 1)[None]
    _, query = model.encode_together(clips, queries, lengths[:, 0][None])
    torch.testing.assert_close(query[0], wanted)

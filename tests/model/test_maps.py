"""The similarity-map model: its maps, and what of a query counts as the thing."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from models import SMALL_MAPS, query_of, random_model

from lastseen.box import Box
from lastseen.model import BackboneConfig, EncodedQuery, SimilarityConfig, SimilarityModel
from lastseen.model.encoded_query import background_patches
from lastseen.model.inputs import (
    box_in_crop,
    normalised,
    patches_inside,
    picture_in_crop,
    query_crop,
    query_crops,
)
from lastseen.model.similarity_maps import COMMON_MAPS, SimilarityFusion, similarity_maps


def unit(*shape, seed=0):
    return F.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-3)


@torch.no_grad()
def test_similarity_maps_are_highest_where_the_querys_patch_is():
    frames, query = unit(1, 2, 16, 8, 8), unit(1, 1, 16, 8, 8, seed=1)
    query[..., 2:4, 2:4] = frames[0, 1, :, 5, 6][None, None, :, None, None]
    maps, similarity, _ = similarity_maps(frames, query_of(query))
    assert maps.shape == (1, 2, COMMON_MAPS + 2, 8, 8)
    best, below, to_peak = maps[0, :, 0], maps[0, :, -4], maps[0, :, -3]
    assert torch.equal(similarity[0], best)  # without background they are the same
    assert best.flatten().argmax() == 64 + 5 * 8 + 6
    assert best[1, 5, 6].item() == pytest.approx(1, abs=1e-4)
    assert below[1, 5, 6] == 0
    assert below.max() == 0
    assert to_peak[1, 5, 6].item() == pytest.approx(1, abs=1e-4)
    query[..., 2:4, 2:4] = 0  # not on the thing: now that patch does not count
    assert similarity_maps(frames, query_of(query))[0][0, 1, 0, 5, 6] < 0.9


@torch.no_grad()
def test_a_thing_that_fills_a_small_picture_is_compared_patch_by_patch():
    frames, best = unit(1, 1, 16, 32, 32), {}
    for side in (16, 32, 64):
        query = unit(1, 1, 16, side, side, seed=side)
        query[0, 0, :, 4, 7] = frames[0, 0, :, 20, 9]
        maps, *_ = similarity_maps(frames, query_of(query))
        assert maps.shape == (1, 1, COMMON_MAPS + 2, 32, 32)
        best[side] = maps[0, 0, 0, 20, 9].item()
    assert best[16] == pytest.approx(1, abs=1e-4)
    assert max(best[32], best[64]) < 0.95  # there it is one of 4 or of 16 that are averaged


def test_maps_are_jittered_in_training_only():
    fusion = SimilarityFusion(16, (1.0,))
    frames, query = unit(2, 3, 8, 8, 8), query_of(unit(2, 1, 8, 8, 8))
    for training in (False, True):
        fusion.train(training)
        same = [torch.equal(*pair) for pair in zip(fusion(frames, query), fusion(frames, query))]
        assert same == [not training] * 2


ON_MAPS = SimilarityConfig(
    backbone=BackboneConfig(dim=8, depth=1, heads=1),
    clip_length=4,
    dim=16,
    query_scales=(1.0,),
    query_size=448,
    background_cosine=None,
)


def test_an_untrained_head_scores_by_the_similarity_prior():
    """The best candidate is on the most similar patch, and its logit grows with the cosine."""
    model = SimilarityModel.from_config(ON_MAPS).eval()
    query, frames = unit(1, 1, 8, 32, 32), unit(1, 4, 8, 32, 32, seed=1) * 0.3
    for time, (row, column, length) in enumerate([(3, 5, 0.8), (20, 9, 0.9), (31, 31, 1.0), (0, 0, 0.7)]):
        frames[0, time, :, row, column] = length * F.normalize(F.avg_pool2d(query[0], 2)[0, :, 2, 2], dim=0)
    with torch.no_grad():
        boxes, logits = model.localize(frames, query_of(query)).best()
    assert logits[0].tolist() == pytest.approx([1.8, 3.0, 4.2, 0.6], abs=0.05)
    centres = (boxes[0, :, :2] + boxes[0, :, 2:]) / 2 * 32
    for centre, place in zip(centres.tolist(), [(5.5, 3.5), (9.5, 20.5), (31.5, 31.5), (0.5, 0.5)]):
        assert centre == pytest.approx(place, abs=1.1)


@torch.no_grad()
def test_the_head_chooses_the_candidate_and_its_weight_scales_the_score():
    torch.manual_seed(0)
    model = SimilarityModel.from_config(ON_MAPS).eval()
    torch.nn.init.normal_(model.head.score.weight, std=0.3)
    frames, query = unit(1, 4, 8, 32, 32), query_of(unit(1, 1, 8, 32, 32, seed=1))
    fused, similarity = model.correspondence(frames, query)
    own = model.head(*model.propagation(fused))
    prior = model.prior(similarity, own.logits.shape[-1])
    both = own.logits + prior
    choice = both.argmax(-1)
    assert not torch.equal(choice, prior.argmax(-1))
    for weight in (1.0, 0.25, 0.0):
        model.config = replace(ON_MAPS, head_score_weight=weight)
        boxes, logits = model.localize(frames, query).best()
        assert torch.equal(boxes, own.boxes.take_along_dim(choice[..., None, None], 2).squeeze(2))
        wanted = prior.amax(-1) + weight * (both.amax(-1) - prior.amax(-1))
        assert logits == pytest.approx(wanted, abs=1e-5)


def test_a_query_crop_shows_the_thing_where_it_says():
    """Also at a corner of the picture, where the square reaches out of it."""
    for x1, y1, x2, y2 in ((40, 30, 60, 70), (0, 0, 12, 20), (150, 90, 160, 120)):
        picture = torch.zeros(120, 160, 3, dtype=torch.uint8)
        picture[y1:y2, x1:x2] = 255
        box = Box(x1, y1, x2, y2)
        for scale in (1.0, 0.5, 0.25):
            crop = query_crop(picture, box, 112, scale)
            assert crop.shape == (1, 3, 112, 112)
            a, b, c, d = (box_in_crop(picture, box, scale) * 112).tolist()
            # Repeated edges may be white, too: the thing's own place must be.
            assert crop[0, 0, round(b) + 2 : round(d) - 2, round(a) + 2 : round(c) - 2].min() > 0.8
            if scale < 1:
                assert max(c - a, d - b) == pytest.approx(112 * scale, abs=3)


def steps(picture):
    """Mean absolute difference of neighbouring pixels of [.., h, w], along both sides."""
    return max(picture.diff(dim=side).abs().mean().item() for side in (-1, -2))


def test_beyond_the_picture_a_crop_is_smooth_and_the_picture_itself_is_unchanged():
    """Noise, so that repeated edges would be sharp streaks."""
    picture = torch.randint(
        0, 256, (60, 60, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    size, own = 120, picture.permute(2, 0, 1) / 255
    crop = query_crop(picture, Box(0, 0, 60, 60), size, 0.5)[0]  # 120 px around a picture of 60 px
    assert torch.equal(crop[:, 30:90, 30:90], own)
    streak = own[:, 0].diff(dim=-1).abs().mean().item()  # as wide as the blur, beyond the upper edge
    for beyond in (crop[:, :20], crop[:, 100:], crop[:, :, :20], crop[:, :, 100:]):
        assert steps(beyond) < 0.1 * streak
        assert 0.3 < beyond.mean() < 0.7  # of the picture's colours, not black
    # Only on one side: the thing at the picture's left edge.
    crop = query_crop(picture, Box(0, 20, 20, 40), size, 0.5)[0]  # the square is 40 px from (-10, 10)
    expected = F.interpolate(own[None, :, 10:50, :30], (120, 90), mode="bilinear", antialias=True)[0]
    torch.testing.assert_close(crop[:, :, 30:], expected)
    assert steps(crop[:, :, :20]) < 0.3 * steps(crop[:, :, 30:])


def test_a_crop_inside_the_picture_is_that_part_of_it():
    picture = torch.randint(0, 256, (100, 100, 3), dtype=torch.uint8)
    for scale, box in ((0.5, Box(30, 30, 70, 70)), (1.0, Box(10, 10, 90, 90))):
        crop = query_crop(picture, box, 80, scale)[0]
        assert torch.equal(crop, picture[10:90, 10:90].permute(2, 0, 1) / 255)


def test_patches_inside_a_box_are_those_whose_middle_is_in_it():
    boxes = torch.tensor([[0.0, 0.0, 0.5, 1.0], [0.3, 0.3, 0.31, 0.31]])
    inside = patches_inside(boxes, 4)
    assert inside[0, 0].tolist() == [[1, 1, 0, 0]] * 4
    assert inside[1].sum() == 1
    assert inside[1, 0, 1, 1] == 1


THE_MIDDLE, EVERYTHING = torch.tensor([[0.25, 0.25, 0.75, 0.75]]), torch.tensor([[0.0, 0.0, 1.0, 1.0]])


def kept_of(similarity, shown=EVERYTHING, cosine=0.7):
    """Which patches of the middle are not background, if they are so similar to all around them: [4, 4]"""
    features = torch.zeros(1, 3, 8, 8)
    features[:, 0] = 1.0
    features[0, 0, 2:6, 2:6], features[0, 1, 2:6, 2:6] = similarity, (1 - similarity**2).sqrt()
    inside = patches_inside(THE_MIDDLE, 8)
    background = background_patches(features, inside, shown, cosine)
    assert background.dtype == torch.bool and background.shape == inside.shape
    assert not background[inside == 0].any()
    assert torch.equal(background, background_patches(features, inside > 0, shown, cosine))
    return ~background[0, 0, 2:6, 2:6]


def test_patches_that_look_like_the_surroundings_are_background():
    similarity = torch.full((4, 4), 0.9)
    similarity[:, 1:3] = 0.2  # a post in the middle of its box
    assert kept_of(similarity).tolist() == [[False, True, True, False]] * 4
    assert kept_of(similarity, cosine=0.95).all()


def test_a_thing_that_looks_like_its_surroundings_keeps_the_least_similar_patches():
    similarity = torch.linspace(0.8, 0.95, 16).view(4, 4)
    assert kept_of(similarity).flatten().tolist() == [True] * 7 + [False] * 9


def test_repeated_edges_are_not_surroundings():
    similarity = torch.full((4, 4), 0.9)
    similarity[:, 1:3] = 0.2
    assert kept_of(similarity, THE_MIDDLE).all()
    picture = torch.zeros(60, 100, 3, dtype=torch.uint8)
    shown = picture_in_crop(picture, Box(0, 20, 20, 40), 0.5)  # a square of 40 px from (-10, 10) on
    assert shown.tolist() == [0.25, 0.0, 1.0, 1.0]


@torch.no_grad()
def test_background_counts_for_the_prior_and_not_for_the_maps():
    frames, query = unit(1, 1, 16, 8, 8), torch.zeros(1, 1, 16, 8, 8)
    query[0, 0, :, :4] = frames[0, 0, :, 2, 2][:, None, None]
    query[0, 0, :, 4:] = frames[0, 0, :, 6, 6][:, None, None]
    plain, *_ = similarity_maps(frames, query_of(query))
    assert plain[0, 0, 0, 6, 6].item() == pytest.approx(1, abs=1e-4)
    background = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    background[..., 4:, :] = True
    masked = EncodedQuery(query, torch.ones_like(background), background)
    maps, similarity, _ = similarity_maps(frames, masked)
    assert maps[0, 0, 0, 2, 2].item() == pytest.approx(1, abs=1e-4)
    assert maps[0, 0, 0, 6, 6] < 0.9
    torch.testing.assert_close(similarity[0, 0], plain[0, 0, 0])


@torch.no_grad()
def test_background_of_a_query_does_not_change_which_frames_are_similar():
    plain = random_model(replace(SMALL_MAPS, background_cosine=None))
    knowing = random_model(replace(SMALL_MAPS, background_cosine=-1.0))
    picture = torch.randint(0, 256, (200, 300, 3), dtype=torch.uint8)
    one, other = (model.encode_query(picture, Box(100, 60, 160, 180)) for model in (plain, knowing))
    assert torch.equal(one.vectors, other.vectors) and torch.equal(one.on_thing, other.on_thing)
    assert not one.background.any()
    assert not (other.background & ~other.on_thing).any()
    shares = (other.background.sum((1, 2)) / other.on_thing.sum((1, 2))).tolist()
    assert all(0.45 <= share <= 0.6 for share in shares)  # the rest is the least that is kept
    frames = unit(1, 4, 32, 16, 16)
    found = [model.correspondence(frames, q.as_batch())[1] for model, q in ((plain, one), (knowing, other))]
    torch.testing.assert_close(*found)


@torch.no_grad()
def test_a_mask_says_which_patches_are_background():
    model = random_model(replace(SMALL_MAPS, background_cosine=-1.0))
    picture, box = torch.randint(0, 256, (200, 300, 3), dtype=torch.uint8), Box(100, 60, 160, 180)
    mask = torch.zeros(200, 300, dtype=torch.bool)
    mask[60:120] = True  # the upper half of the box
    guessed, known = model.encode_query(picture, box), model.encode_query(picture, box, mask)
    assert torch.equal(guessed.vectors, known.vectors)
    for background, on_thing in zip(known.background, known.on_thing):
        rows = on_thing.any(1).nonzero().flatten()
        upper, lower = rows[: len(rows) // 2], rows[(len(rows) + 1) // 2 :]
        assert not background[upper].any() and torch.equal(background[lower], on_thing[lower])
    mask[68:] = False  # so little of the box that it is not trusted
    assert torch.equal(model.encode_query(picture, box, mask).background, guessed.background)


@torch.no_grad()
def test_training_uses_the_query_that_inference_uses():
    model = random_model(SMALL_MAPS)
    config = model.config
    picture, box = torch.randint(0, 256, (200, 300, 3), dtype=torch.uint8), Box(100, 60, 160, 180)
    wanted = model.encode_query(picture, box)
    assert wanted.background.any() and not wanted.on_thing.all()
    crops, boxes, shown = query_crops(picture, box, config.query_size, config.query_scales)
    pictures = normalised(crops)[None]
    features = model.backbone(normalised(crops))[None]
    frames = torch.randn(1, 2, 3, config.image_size, config.image_size)
    kept = torch.randn(1, 2, config.backbone.channels, config.side, config.side)
    for clips, queries in ((frames, pictures), (kept, features)):
        _, query = model.encode_together(clips, queries, boxes[None], shown[None])
        found = query.row(0)
        torch.testing.assert_close(found.vectors, wanted.vectors, rtol=0, atol=0)
        assert torch.equal(found.on_thing, wanted.on_thing)
        assert torch.equal(found.background, wanted.background)


def test_an_encoded_query_moves_as_a_whole():
    query = query_of(unit(2, 1, 4, 2, 2))
    half = query.to(dtype=torch.float16)
    assert half.vectors.dtype == torch.float16 and half.on_thing.dtype == torch.bool
    one = half.row(1)
    assert one.vectors.shape == (1, 4, 2, 2) and one.background.shape == (1, 2, 2)
    assert torch.equal(one.as_batch().vectors, half.vectors[1:])
    plain = EncodedQuery(torch.zeros(2, 3)).to(torch.device("cpu"), torch.float64)
    assert plain.vectors.dtype == torch.float64 and plain.as_batch().row(0).on_thing is None

"""Properties of VQLoC that hold for any weights, checked on small random ones."""

import re
from dataclasses import replace

import pytest
import torch
from models import SMALL, TINY, randomised

from lastseen.box import Box
from lastseen.model import VIT_B, VIT_S, Predictions, VQLoC, VQLoCConfig
from lastseen.model.propagation import SpatioTemporalTransformer


@pytest.fixture(scope="module")
def model() -> VQLoC:
    return randomised(VQLoC.from_config(SMALL))


def clip_and_query(time: int, batch: int = 1, size: int = 112) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    clip = torch.randn(batch, time, 3, size, size, generator=generator)
    return clip, torch.randn(batch, 3, size, size, generator=generator)


@torch.no_grad()
def test_a_frame_outside_the_radius_cannot_change_the_output(model):
    clip, query = clip_and_query(20)
    changed = clip.clone()
    changed[:, 15] += 3
    before, after = model(clip, query).logits, model(changed, query).logits
    reach = 2 * 3  # radius times layers
    torch.testing.assert_close(before[:, : 15 - reach], after[:, : 15 - reach], rtol=0, atol=0)
    assert not torch.equal(before[:, 15 - reach], after[:, 15 - reach])
    assert model.context == reach


@torch.no_grad()
def test_padding_never_changes_real_frames(model):
    clip, query = clip_and_query(9, batch=2)
    junk = torch.full((2, 5, 3, 112, 112), 7.0)
    plain = model(clip, query)
    padded = model(torch.cat([clip, junk], 1), query, lengths=torch.tensor([9, 9]))
    torch.testing.assert_close(padded.logits[:, :9], plain.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(padded.boxes[:, :9], plain.boxes, rtol=1e-5, atol=1e-5)
    unmasked = model(torch.cat([clip, junk], 1), query)
    assert not torch.allclose(unmasked.logits[:, 8], plain.logits[:, 8], atol=1e-3)


@torch.no_grad()
def test_each_clip_of_a_batch_has_its_own_length(model):
    clip, query = clip_and_query(8, batch=2)
    both = model(clip, query, lengths=torch.tensor([8, 5]))
    short = model(clip[1:, :5], query[1:])
    torch.testing.assert_close(both.logits[1, :5], short.logits[0], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_encode_then_localize_equals_forward(model):
    clip, query = clip_and_query(6)
    features = model.encode(clip[0])[None]
    split = model.localize(features, model.encode_query(query))
    whole = model(clip, query)
    torch.testing.assert_close(split.logits, whole.logits, rtol=0, atol=0)
    torch.testing.assert_close(split.boxes, whole.boxes, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("radius", [0, 1, 2, 3, 4, None])
def test_local_attention_equals_a_dense_mask(radius):
    """The windowed computation against the paper's: full attention with far frames masked out."""
    module = randomised(SpatioTemporalTransformer(32, radius=radius, side=8, layers=2))
    frames = torch.randn(2, 7, 32, 8, 8, generator=torch.Generator().manual_seed(2))
    tokens = frames.flatten(3).permute(0, 1, 3, 2).flatten(1, 2) + module.positions[:, : 7 * 64]
    number = torch.arange(7).repeat_interleave(64)
    far = (number[:, None] - number).abs() > (radius if radius is not None else 99)
    for layer in module.layers:
        attention = layer.attention
        q, k, v = (
            x.unflatten(-1, (8, 4)).transpose(1, 2)
            for x in (attention.query(tokens), attention.key(tokens), attention.value(tokens))
        )
        weights = (q @ k.transpose(-1, -2) / 2).masked_fill(far, float("-inf")).softmax(-1)
        mixed = attention.out((weights @ v).transpose(1, 2).flatten(2))
        tokens = layer.attention_norm(tokens + mixed)
        tokens = layer.feed_norm(tokens + layer.feed_forward(tokens))
    dense = tokens.view(2, 7, 8, 8, 32).permute(0, 1, 4, 2, 3)
    torch.testing.assert_close(module(frames)[0], dense, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("time", [1, 2, 5, 29, 30])
def test_any_clip_length_up_to_thirty_works(model, time):
    clip, query = clip_and_query(time)
    predictions = model(clip, query)
    assert predictions.logits.shape == (1, time, 3072)
    assert predictions.boxes.shape == (1, time, 3072, 4)


@torch.no_grad()
def test_a_clip_of_31_frames_is_refused(model):
    with pytest.raises(ValueError, match="at most 30 frames, got 31"):
        model(*clip_and_query(31))


@torch.no_grad()
@pytest.mark.parametrize(
    ("changes", "candidates"),
    [
        ({"fusion": "conv"}, 3072),
        ({"spatial_layers": 3}, 3072),
        ({"attention_radius": 3}, 3072),
        ({"attention_radius": 4}, 3072),
        ({"attention_radius": None}, 3072),
        ({"anchors": False}, 1),
        ({"image_size": 224}, 3072),
        ({"backbone": TINY.using(0, 1, final_norm=False)}, 3072),
        ({"match_dim": 16}, 3072),
        ({"match_dim": 16, "fusion": "match", "mask_query": True}, 3072),
        ({"match_dim": 16, "fusion": "match", "query_shares": (1.0, 0.5, 0.25)}, 3072),
        ({"match_dim": 16, "fusion": "match", "query_shares": (1.0, 0.25), "query_size": 56}, 3072),
        ({"match_dim": 16, "fine": True, "image_size": 224}, 3072),
        ({"fine": True, "anchors": False, "image_size": 224}, 1),
        ({"match_dim": 16, "fusion": "match", "fine": True, "image_size": 672}, 3072),
    ],
)
def test_every_variant_of_the_ablations_can_be_plugged_in(changes, candidates):
    config = VQLoCConfig(**{"backbone": TINY, "image_size": 112, "dim": 32, **changes})
    variant = randomised(VQLoC.from_config(config))
    clip, query = clip_and_query(3, size=config.image_size)
    query = query.repeat(1, len(config.query_shares), 1, 1)[..., : config.query_px, : config.query_px]
    predictions = variant(clip, query)
    assert predictions.logits.shape == (1, 3, candidates)
    assert torch.isfinite(predictions.boxes).all()
    features = variant.encode(clip[0])[None]
    split = variant.localize(features, variant.encode_query(query))
    torch.testing.assert_close(split.logits, predictions.logits, rtol=0, atol=0)
    assert VQLoCConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image_size": 560}, "grid of 40 must be 8 times twos and threes"),
        ({"image_size": 336, "fine": True}, "grid of 16 times twos and threes, got 24"),
        ({"image_size": 112, "fine": True}, "grid of 16 times twos and threes, got 8"),
    ],
)
def test_a_frame_that_cannot_be_shrunk_to_the_small_grid_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        VQLoC.from_config(VQLoCConfig(**{"backbone": TINY, "dim": 32, **changes}))


def test_the_model_has_the_papers_number_of_trained_parameters():
    for backbone, millions in ((VIT_B, 14.9), (VIT_S, 14.1)):
        with torch.device("meta"):
            model = VQLoC.from_config(VQLoCConfig(backbone=backbone))
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert trained / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(("clip_length", "context"), [(30, 6), (13, 6), (12, 5), (4, 1), (1, 0)])
def test_clips_overlap_by_less_than_they_are_long(clip_length, context):
    model = VQLoC.from_config(VQLoCConfig(backbone=TINY, image_size=112, dim=32, clip_length=clip_length))
    assert model.context == context
    assert clip_length - 2 * model.context > 0


def test_best_takes_the_likeliest_candidate_of_each_frame():
    logits = torch.tensor([[[0.0, 2.0, 1.0], [5.0, -1.0, 0.0]]])
    boxes = torch.arange(24.0).view(1, 2, 3, 4)
    best = Predictions(boxes, logits).best()
    assert best.logits.tolist() == [[2.0, 5.0]]
    assert best.boxes.tolist() == [[[4, 5, 6, 7], [12, 13, 14, 15]]]


def test_a_misspelt_config_field_is_an_error():
    with pytest.raises(TypeError):
        VQLoCConfig(attention_raduis=3)
    with pytest.raises(ValueError, match="attention_raduis"):
        VQLoCConfig.from_dict({**SMALL.to_dict(), "attention_raduis": 3})


SMALL_QUERY = replace(SMALL, fusion="match", match_dim=16, query_shares=(1.0, 0.5), query_size=56)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fusion": "attention", "query_shares": (1.0,)}, 'needs fusion "match"'),
        ({"query_size": 60}, "query_size must be a multiple of 28, got 60"),
        ({"query_size": 42}, "query_size must be a multiple of 28, got 42"),
        ({"query_size": 0}, "query_size must be a multiple of 28, got 0"),
    ],
)
def test_a_size_of_queries_that_cannot_be_is_one_clear_line(changes, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        replace(SMALL_QUERY, **changes)


def test_a_config_of_before_queries_had_a_size_is_that_of_the_frames():
    assert (SMALL.query_px, SMALL.query_side) == (112, 8)
    assert (SMALL_QUERY.query_px, SMALL_QUERY.query_side, SMALL_QUERY.side) == (56, 4, 8)
    old = {name: value for name, value in SMALL.to_dict().items() if name != "query_size"}
    assert VQLoCConfig.from_dict(old) == SMALL
    assert replace(SMALL, query_size=112).query_side == SMALL.query_side


@torch.no_grad()
@pytest.mark.parametrize(("image_size", "query_size"), [(112, 56), (448, 224), (112, 224)])
def test_a_querys_pictures_have_a_size_of_their_own(image_size, query_size):
    config = replace(SMALL_QUERY, image_size=image_size, query_size=query_size, mask_query=True)
    model = randomised(VQLoC.from_config(config))
    picture = torch.randint(0, 255, (60, 90, 3), dtype=torch.uint8)
    sizes = []
    model.backbone.register_forward_pre_hook(lambda _, pictures: sizes.append(tuple(pictures[0].shape)))
    query = model.encode_view(picture, Box(20, 10, 60, 50))
    assert sizes == [(2, 3, query_size, query_size)]
    assert query.shape == (2 * 16, query_size // 14, query_size // 14)
    # Half of the second picture's side is the thing's; the rest is nothing.
    assert (query[16:].norm(dim=0) > 0).float().mean() == pytest.approx(0.25, abs=0.01)
    features = model.encode_frames(picture[None].repeat(2, 1, 1, 1))
    assert features.shape == (2, 16, image_size // 14, image_size // 14)
    assert model.localize_clip(features, query).logits.shape == (1, 2, 3072)


@torch.no_grad()
def test_frames_and_queries_of_two_sizes_are_encoded_as_each_alone():
    model = randomised(VQLoC.from_config(SMALL_QUERY)).train()
    clips, queries = torch.randn(2, 3, 3, 112, 112), torch.randn(2, 6, 56, 56)
    features, query = model.encode_together(clips, queries)
    assert features.shape == (2, 3, 16, 8, 8)
    torch.testing.assert_close(features.flatten(0, 1), model.encode(clips.flatten(0, 1)))
    torch.testing.assert_close(query, model.encode_query(queries))


@torch.no_grad()
def test_pictures_as_they_come_go_through_the_same_model(model):
    frames = torch.randint(0, 255, (2, 60, 90, 3), dtype=torch.uint8)
    features = model.encode_frames(frames)
    query = model.encode_view(frames[0], Box(20, 10, 60, 50))
    assert features.shape == (2, 32, 8, 8)
    assert model.localize_clip(features, query).logits.shape == (1, 2, 3072)

"""Properties of the models that hold for any weights, checked on small random ones."""

import re
from dataclasses import replace

import pytest
import torch
from models import SMALL, SMALL_MAPS, TINY, random_model, random_query, randomised

from lastseen.box import Box
from lastseen.model import (
    VIT_B,
    VIT_S,
    Predictions,
    SimilarityModel,
    TrainingFreeConfig,
    TrainingFreeModel,
    VQLoC,
    VQLoCConfig,
)
from lastseen.model.head import SingleBoxHead
from lastseen.model.inputs import letterboxed
from lastseen.model.propagation import SpatioTemporalTransformer
from lastseen.weights import bundled_model, load_model


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
@pytest.mark.parametrize("radius", [0, 2, 4, None])
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
def test_any_clip_length_up_to_thirty_works(model):
    for time in (1, 2, 5, 29, 30):
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
        ({"attention_radius": None}, 3072),
        ({"anchors": False}, 1),
        ({"image_size": 224}, 3072),
        ({"backbone": TINY.using(0, 1, final_norm=False)}, 3072),
        ({"query_scales": (0.25,), "masked_query": True}, 3072),
        ({"fusion": "conv", "query_scales": (0.5,), "masked_query": True}, 3072),
        ({"query_scales": (1.0, 0.5, 0.25)}, 3072),
        ({"query_scales": (1.0, 0.25), "query_size": 56}, 3072),
        ({"background_cosine": None, "skip_connection": False}, 3072),
        ({"query_size": 448, "anchors": False}, 1),
        ({"image_size": 672}, 3072),
    ],
)
def test_encode_then_localize_equals_forward_in_every_variant(changes, candidates):
    of_maps = changes == {"image_size": 672} or changes == {"query_scales": (1.0, 0.5, 0.25)}
    base = SMALL if set(changes) <= set(SMALL.to_dict()) and not of_maps else SMALL_MAPS
    config = replace(base, **changes)
    check_composition(random_model(config), candidates)
    assert type(config).from_dict(config.to_dict()) == config


@torch.no_grad()
def test_encode_then_localize_equals_forward_in_the_bundled_model():
    check_composition(load_model(bundled_model()), 3072)


def check_composition(model, candidates):
    config = model.config
    clip, queries = clip_and_query(3, size=config.image_size)[0], random_query(config)
    one_crop = config.query_scales == (1.0,) and not isinstance(model, SimilarityModel)
    whole = model(clip, queries[:, 0] if one_crop else queries)
    assert whole.logits.shape == (1, 3, candidates)
    assert torch.isfinite(whole.boxes).all()
    features = model.encode(clip[0])
    query = model.encode_query_pictures(queries)
    split = model.localize(features[None], query)
    torch.testing.assert_close(split.logits, whole.logits, rtol=0, atol=0)
    torch.testing.assert_close(split.boxes, whole.boxes, rtol=0, atol=0)
    # In other batches, or with other strides, convolutions may round differently.
    for other in (
        model.localize_clip(features, query.row(0)),
        model.localize(*model.encode_together(clip, queries)),
    ):
        torch.testing.assert_close(other.logits, whole.logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("config", "changes", "said"),
    [
        (SMALL, {"image_size": 560}, "grid of 40 must be 8 times twos and threes"),
        (SMALL_MAPS, {"image_size": 336}, "grid of 16 times twos and threes, got 24"),
        (SMALL_MAPS, {"image_size": 112}, "grid of 16 times twos and threes, got 8"),
    ],
)
def test_a_frame_that_cannot_be_shrunk_to_the_small_grid_is_refused(config, changes, said):
    with pytest.raises(ValueError, match=said):
        random_model(replace(config, **changes))


def test_the_model_has_the_papers_number_of_trained_parameters():
    for backbone, millions in ((VIT_B, 14.9), (VIT_S, 14.1)):
        with torch.device("meta"):
            model = VQLoC.from_config(VQLoCConfig(backbone=backbone))
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert trained / 1e6 == pytest.approx(millions, abs=0.06)


def test_clips_overlap_by_less_than_they_are_long():
    for clip_length, context in ((30, 6), (13, 6), (12, 5), (4, 1), (1, 0)):
        model = VQLoC.from_config(replace(SMALL, clip_length=clip_length))
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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"query_size": 60}, "query_size must be a multiple of 28, got 60"),
        ({"query_size": 42}, "query_size must be a multiple of 28, got 42"),
        ({"query_size": 0}, "query_size must be a multiple of 28, got 0"),
        ({"query_scales": (0.5,)}, "query_scales must begin with 1"),
        ({"head_score_weight": 1.5}, "head_score_weight must be 0 to 1"),
    ],
)
def test_a_value_out_of_range_is_one_clear_line(changes, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        replace(SMALL_MAPS, **changes)


def test_the_papers_query_is_as_large_as_a_frame():
    assert (SMALL.query_size, SMALL.query_side, SMALL.query_scales) == (112, 8, (1.0,))
    assert (SMALL_MAPS.query_size, SMALL_MAPS.query_side, SMALL_MAPS.side) == (112, 8, 16)


@torch.no_grad()
@pytest.mark.parametrize(("image_size", "query_size"), [(224, 112), (448, 224), (224, 448)])
def test_query_crops_have_a_size_of_their_own(image_size, query_size):
    model = random_model(replace(SMALL_MAPS, image_size=image_size, query_size=query_size))
    picture = torch.randint(0, 255, (60, 90, 3), dtype=torch.uint8)
    sizes = []
    model.backbone.register_forward_pre_hook(lambda _, pictures: sizes.append(tuple(pictures[0].shape)))
    query = model.encode_query(picture, Box(20, 10, 60, 50))
    assert sizes == [(2, 3, query_size, query_size)]
    side = query_size // 14
    assert query.vectors.shape == (2, 32, side, side)
    assert query.on_thing.shape == query.background.shape == (2, side, side)
    # Half of the second crop's side is the thing's; the rest is masked.
    assert query.on_thing[1].float().mean() == pytest.approx(0.25, abs=0.01)
    assert torch.equal(query.vectors.norm(dim=1) > 0, query.on_thing)
    features = model.encode_frames(picture[None].repeat(2, 1, 1, 1))
    assert features.shape == (2, 32, image_size // 14, image_size // 14)
    assert model.localize_clip(features, query).logits.shape == (1, 2, 3072)


def test_a_head_without_anchors_learns_where_the_thing_is():
    """From a mean over the grid it could not: all places look alike then."""
    torch.manual_seed(0)
    places = torch.tensor([[1, 1], [6, 2], [3, 6], [5, 5]])
    frames = torch.zeros(len(places), 1, 8, 8, 8)
    frames[torch.arange(len(places)), 0, :, places[:, 0], places[:, 1]] = 1.0
    head = SingleBoxHead(8).train()
    head.trunk.dropout.p = 0.0
    untrained = head(frames)
    expected = torch.tensor([0.25, 0.25, 0.75, 0.75]).expand(len(places), 1, 1, 4)
    torch.testing.assert_close(untrained.boxes, expected, rtol=0, atol=1e-3)
    assert untrained.logits.abs().max() < 1e-3
    truth = torch.cat([places.flip(1) / 8, (places.flip(1) + 1) / 8], 1)[:, None, None]
    optimiser = torch.optim.Adam(head.parameters(), lr=3e-3)
    for _ in range(80):
        optimiser.zero_grad()
        (head(frames).boxes - truth).abs().mean().backward()
        optimiser.step()
    middles = [(boxes[..., :2] + boxes[..., 2:]) / 2 for boxes in (head(frames).boxes, truth)]
    assert (middles[0] - middles[1]).abs().max() < 0.5 / 8


@torch.no_grad()
@pytest.mark.parametrize("scales", [(0.25,), (0.5, 0.25)])
def test_a_masked_query_is_its_box_alone_at_every_scale(scales):
    config = replace(SMALL, image_size=224, query_scales=scales, masked_query=True)
    model = random_model(config)
    picture = torch.randint(0, 255, (60, 90, 3), dtype=torch.uint8)
    frames = torch.randint(0, 255, (2, 60, 90, 3), dtype=torch.uint8)
    features, query = model.encode_frames(frames), model.encode_query(picture, Box(40, 20, 60, 40))
    assert query.on_thing.flatten(1).sum(1).tolist() == [round(16 * scale) ** 2 for scale in scales]
    assert model.query_vectors(query).shape == (int(query.on_thing.sum()), config.dim)
    before = model.localize_clip(features, query).logits
    vectors = query.vectors.clone()
    vectors.movedim(1, -1)[~query.on_thing] = 7.0
    after = model.localize_clip(features, replace(query, vectors=vectors)).logits
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    vectors.movedim(1, -1)[query.on_thing] = 7.0
    assert not torch.equal(model.localize_clip(features, replace(query, vectors=vectors)).logits, before)


def test_how_a_query_is_shown_is_part_of_a_models_identity_unless_it_is_the_papers():
    """An index made before a model's config said so is still its own."""
    model = random_model(SMALL)
    assert "query_scales" not in repr(model.config)
    other = random_model(replace(SMALL, query_scales=(0.25,), masked_query=True))
    assert model.state_dict().keys() == other.state_dict().keys()
    assert model.fingerprint() != other.fingerprint()
    for changes, says in (
        ({"query_scales": ()}, "query_scales must be above 0"),
        ({"fusion": "conv", "query_scales": (1.0, 0.5)}, "takes one query scale"),
    ):
        with pytest.raises(ValueError, match=says):
            replace(SMALL, **changes)


@torch.no_grad()
def test_every_model_keeps_the_protocol():
    frames = torch.randint(0, 255, (2, 60, 90, 3), dtype=torch.uint8)
    free = TrainingFreeModel(random_model(SMALL).backbone, TrainingFreeConfig(longer_edge=112))
    titles = {
        random_model(SMALL): "VQLoC (cross-attention, ViT/14 of width 32, 112 px)",
        random_model(SMALL_MAPS): "similarity-map model (ViT/14 of width 32, 2 blocks, 224 px)",
        free.eval(): "training-free patch matching (ViT/14 of width 32, block 2 of 2, 112 px)",
    }
    for model, title in titles.items():
        assert model.title == title
        features, query = model.encode_frames(frames), model.encode_query(frames[0], Box(20, 10, 60, 50))
        letterbox = model.letterbox(90, 60)
        assert torch.equal(model.encode(letterboxed(frames, letterbox, model.padding)), features)
        predictions = model.localize_clip(features, query)
        assert predictions.logits.shape[:2] == (1, 2)
        vectors, asked = model.frame_vectors(features), model.query_vectors(query)
        assert vectors.shape[1] == asked.shape[1] and asked.ndim == 2
        for one in (vectors.norm(dim=1), asked.norm(dim=1)):
            torch.testing.assert_close(one, torch.ones_like(one))
        assert model.fingerprint() == model.fingerprint()
    assert len({model.fingerprint() for model in titles}) == 3
    changed = random_model(replace(SMALL, padding=0.5))
    assert changed.fingerprint() != random_model(SMALL).fingerprint()
    changed = random_model(SMALL)
    changed.head.score.bias.add_(1)
    assert changed.fingerprint() != random_model(SMALL).fingerprint()

"""What makes each rival that method and no other."""

import json
import math

import numpy as np
import pytest
import torch
from models import GOLDEN, TINY, randomised
from scipy.signal import find_peaks, medfilt
from scipy.special import expit

from lastseen.baselines.cocoformer import (
    CocoFormer,
    CocoFormerConfig,
    SetHead,
    frame_labels,
    removed_positives,
)
from lastseen.baselines.detector import packed, query_square, unpacked
from lastseen.baselines.nfm import negative_frame
from lastseen.baselines.peaks import PeakRule
from lastseen.baselines.proposals import Proposals
from lastseen.baselines.siamrcnn import (
    HARD_NEGATIVES,
    SiamRCNN,
    SiamRCNNConfig,
    comparison_loss,
    sampled_proposals,
)
from lastseen.baselines.stark import Stark, StarkConfig, joined, sine_positions, soft_argmax
from lastseen.baselines.stored import make_rival
from lastseen.box import Box
from lastseen.model import EncodedQuery
from lastseen.model.head import Predictions

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"backbone": TINY, "image_size": 112, "query_size": 56, "channels": 16, "hidden": 16}
STARK = StarkConfig(
    backbone=TINY,
    image_size=112,
    dim=32,
    clip_length=4,
    encoder_layers=2,
    decoder_layers=2,
    encoder_hidden=32,
    decoder_hidden=32,
)
FRAMES, COUNT = 5, 12


@pytest.fixture(scope="module")
def siamrcnn() -> SiamRCNN:
    return randomised(SiamRCNN(SiamRCNNConfig(**SMALL, proposals=COUNT)))


@pytest.fixture(scope="module")
def cocoformer() -> CocoFormer:
    return randomised(CocoFormer(CocoFormerConfig(**SMALL, proposals=COUNT)))


@pytest.fixture(scope="module")
def features() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    low = torch.rand(FRAMES, COUNT, 2, generator=generator) * 0.5
    proposals = Proposals(torch.cat([low, low + 0.3], -1), torch.randn(FRAMES, COUNT, generator=generator))
    return packed(proposals, torch.randn(FRAMES, COUNT, 16, generator=generator))


def query() -> EncodedQuery:
    return EncodedQuery(torch.randn(16, generator=torch.Generator().manual_seed(1)))


def scores(model: torch.nn.Module, features: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model.localize_clip(features, query()).logits[0].sigmoid()


def without(features: torch.Tensor, number: int) -> torch.Tensor:
    return torch.cat([features[:, :, :number], features[:, :, number + 1 :]], 2)


# --- SiamRCNN and NFM -------------------------------------------------------------------------------


def test_permuting_frames_permutes_the_scores_of_siamrcnn(siamrcnn, features):
    order = [3, 0, 4, 1, 2]
    torch.testing.assert_close(scores(siamrcnn, features[order]), scores(siamrcnn, features)[order])


def test_removing_a_proposal_changes_no_other_score_of_siamrcnn(siamrcnn, features):
    kept = [n for n in range(COUNT) if n != 4]
    torch.testing.assert_close(scores(siamrcnn, without(features, 4)), scores(siamrcnn, features)[:, kept])


def test_proposals_of_siamrcnn_do_not_depend_on_the_query(siamrcnn):
    """They are features, which are made before any query is known: two questions find the same boxes."""
    frames = torch.randint(0, 255, (2, 84, 112, 3), dtype=torch.uint8)
    with torch.inference_mode():
        kept = siamrcnn.encode_frames(frames)
        found = [
            siamrcnn.localize_clip(kept, siamrcnn.encode_query(frames[n], Box(10, 10, 60, 50)))
            for n in range(2)
        ]
    assert torch.equal(found[0].boxes, found[1].boxes)
    assert not torch.equal(found[0].logits, found[1].logits)


def test_score_of_siamrcnn_is_bilinear_in_query_and_proposal(siamrcnn):
    compare, x, y = siamrcnn.compare, torch.randn(3, 16), torch.randn(2, 16)
    expected = torch.einsum("ni,ij,bj->nb", x, compare.weight, y) + compare.bias
    torch.testing.assert_close(compare(x, y), expected)


def test_query_and_proposals_go_through_one_projector(siamrcnn):
    """A query that fills its square is the proposal of the whole square."""
    crop = torch.randn(1, 3, 56, 56, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        pyramid = siamrcnn.pyramid_of(crop)
        whole = siamrcnn.vectors_of(pyramid, torch.tensor([[[0.0, 0.0, 1.0, 1.0]]]))[0]
        same = siamrcnn.query_vectors_of(crop)
    assert torch.cosine_similarity(whole, same).item() > 0.95  # pooled by bilinear samples and by means


def test_hard_negatives_are_the_hardest_whatever_the_number_of_positives():
    """In the published code positives shift the places of the negatives that are learned from."""
    logits = torch.linspace(-3, 3, 200).flip(0)[None].clone().requires_grad_(True)
    positive = torch.zeros(1, 200, dtype=torch.bool)
    positive[0, :10] = True
    comparison_loss(logits, positive, ~positive).backward()
    learned = logits.grad[0].nonzero().flatten().tolist()
    assert learned == list(range(10 + HARD_NEGATIVES))


def test_a_pair_that_is_neither_right_nor_wrong_is_not_learned_from():
    logits = torch.zeros(2, 30, requires_grad=True)
    positive, negative = torch.zeros(2, 2, 30, dtype=torch.bool)
    positive[0, 3] = negative[1, 7] = True
    comparison_loss(logits, positive, negative).backward()
    assert logits.grad.nonzero().tolist() == [[0, 3], [1, 7]]


def test_a_tenth_of_the_sampled_proposals_is_positive_and_the_true_box_is_one():
    truth = torch.tensor([0.2, 0.2, 0.6, 0.6])
    near = truth + 0.02 * torch.rand(50, 4)
    far = torch.tensor([0.7, 0.7, 0.9, 0.9]) + 0.02 * torch.rand(150, 4)
    proposals = torch.cat([near, far]).expand(3, -1, 4)
    there = torch.ones(3, 200, dtype=torch.bool)
    there[1, 50:] = False  # a frame with few proposals, all of them right
    generator = torch.Generator().manual_seed(0)
    boxes, exists, is_right = sampled_proposals(proposals, there, truth.expand(2, 4), generator)
    assert boxes.shape == (3, 64, 4)
    assert exists.sum(1).tolist() == [64, 6, 64]
    assert is_right.sum(1).tolist() == [6, 6, 0]  # the third frame does not show the thing
    assert torch.equal(boxes[0, 0], truth) and torch.equal(boxes[1, 0], truth)
    wrong = boxes[0][exists[0] & ~is_right[0]]
    assert len(wrong) == 58 and (wrong >= 0.7).all()


def test_a_negative_frame_is_one_track_later_and_before_the_question():
    assert negative_frame(12, 10, 14, 100) == 17
    assert negative_frame(12, 10, 14, 17) is None


def test_the_query_keeps_sixteen_pixels_of_its_surroundings_in_a_grey_square():
    picture = torch.zeros(200, 300, 3, dtype=torch.uint8)
    picture[50:60, 100:140] = 255
    crop = query_square(picture, Box(100, 50, 140, 60), 252)  # 72 x 42 px of the picture, in 252 x 147
    assert crop.shape == (1, 3, 252, 252)
    assert (crop[0, :, :50] == 125 / 255).all() and (crop[0, :, 200:] == 125 / 255).all()
    white = crop[0, 0] > 0.9
    assert white.any(0).nonzero().flatten()[[0, -1]].tolist() == pytest.approx([56, 196], abs=2)


# --- CocoFormer -------------------------------------------------------------------------------------


def test_permuting_proposals_permutes_the_scores_of_cocoformer_and_leaves_its_frame_logit(cocoformer):
    vectors, asked = torch.randn(3, COUNT, 16), torch.randn(3, 16)
    there = torch.ones(3, COUNT, dtype=torch.bool)
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        of_proposals, of_frames = cocoformer.set_head(vectors, asked, there)
        permuted, same = cocoformer.set_head(vectors[:, order], asked, there)
    torch.testing.assert_close(permuted, of_proposals[:, order])
    torch.testing.assert_close(same, of_frames)


def test_removing_a_proposal_changes_the_other_scores_of_cocoformer(cocoformer, features):
    kept = [n for n in range(COUNT) if n != 4]
    change = (scores(cocoformer, without(features, 4)) - scores(cocoformer, features)[:, kept]).abs()
    assert (change > 1e-5).all()


def test_score_of_cocoformer_is_the_mean_of_proposal_and_frame(cocoformer, features):
    _, objectness, vectors = unpacked(features)
    with torch.inference_mode():
        of_proposals, of_frames = cocoformer.set_head(
            vectors, query().vectors.expand(FRAMES, -1), objectness > -torch.inf
        )
    expected = (of_proposals.sigmoid() + of_frames.sigmoid()[:, None]) / 2
    torch.testing.assert_close(scores(cocoformer, features), expected)


def test_proposals_that_do_not_exist_say_nothing(cocoformer):
    vectors, asked = torch.randn(2, COUNT, 16), torch.randn(2, 16)
    there = torch.ones(2, COUNT, dtype=torch.bool)
    there[:, 9:] = False
    changed = torch.where(there[..., None], vectors, 7.0)
    with torch.inference_mode():
        before, after = (cocoformer.set_head(one, asked, there)[1] for one in (vectors, changed))
        alone = cocoformer.set_head(vectors, asked, torch.zeros_like(there))[1]
    assert torch.equal(before, after)
    assert alone.isfinite().all()


def test_a_frame_without_positives_has_frame_label_0():
    positive = torch.tensor([[True, False, True], [False, False, False], [False, True, False]])
    kept = torch.tensor([[False, True, False], [True, True, True], [True, True, True]])
    assert frame_labels(positive, kept).tolist() == [False, False, True]


def test_of_half_of_the_frames_all_positives_are_taken_out_and_nothing_else():
    positive = torch.zeros(400, 8, dtype=torch.bool)
    positive[:, :2] = True
    kept = removed_positives(positive, torch.Generator().manual_seed(0))
    assert kept[:, 2:].all()
    assert torch.equal(kept[:, 0], kept[:, 1])
    assert 160 < kept[:, 0].sum() < 240


def test_the_set_head_has_as_many_weights_as_was_planned():
    assert sum(p.numel() for p in SetHead(512).parameters()) == pytest.approx(4e6, rel=0.25)


def test_the_head_of_siamrcnn_has_the_seven_million_weights_of_the_original():
    with torch.device("meta"):
        model = make_rival(SiamRCNNConfig(backbone=TINY))
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    assert counts["projector"] + counts["compare"] == pytest.approx(7.1e6, rel=0.01)


# --- STARK ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stark() -> Stark:
    return randomised(Stark(STARK))


def test_swapping_the_halves_of_the_encoder_changes_nothing_but_the_order(stark):
    frame, asked = torch.randn(2, 16, 32), torch.randn(2, 16, 32)
    with torch.inference_mode():
        ahead, behind = joined(frame, asked), joined(asked, frame)
        for layer in stark.encoder:
            ahead, behind = layer(ahead), layer(behind)
    torch.testing.assert_close(ahead, torch.cat([behind[:, 16:], behind[:, :16]], 1))


def test_without_positions_the_places_of_tokens_say_nothing_and_with_them_they_do(stark):
    features, asked = torch.randn(1, 3, 32, 4, 4), torch.randn(1, 32, 4, 4)
    mirrored = features.flip(-1)
    with torch.inference_mode():
        found, other = (stark.localize(one, asked).boxes for one in (features, mirrored))
        torch.testing.assert_close(found, other)
        placed = randomised(Stark(StarkConfig(**{**vars(STARK), "positions": True})))
        found, other = (placed.localize(one, asked).boxes for one in (features, mirrored))
    assert (found - other).abs().max() > 1e-4


def test_a_frames_embedding_reads_that_frames_tokens_only(stark):
    state, memory = torch.randn(1, 4, 32), torch.randn(1, 4, 16, 32)
    changed = memory.clone()
    changed[:, 2] += 1
    layer = stark.decoder[0]
    with torch.inference_mode():
        difference = (layer(state, memory) - layer(state, changed)).abs().amax(-1)[0]
    assert (difference > 1e-4).tolist() == [False, False, True, False]


def test_an_untrained_stark_answers_with_the_middle_of_the_picture():
    found = Stark(STARK).eval().localize(torch.randn(1, 4, 32, 4, 4), torch.randn(1, 32, 4, 4))
    assert isinstance(found, Predictions)
    expected = torch.tensor([0.25, 0.25, 0.75, 0.75]).expand(1, 4, 1, 4)
    torch.testing.assert_close(found.boxes, expected, atol=1e-3, rtol=0)


def test_a_corner_is_the_expected_place_under_its_map():
    maps = torch.full((1, 1, 4, 8), -50.0)
    maps[0, 0, 1, 2] = maps[0, 0, 1, 3] = 10.0
    torch.testing.assert_close(soft_argmax(maps), torch.tensor([[3 / 8, 1.5 / 4]]))


def test_every_place_has_its_own_position():
    places = sine_positions(6, 7, 32)
    distance = torch.cdist(places, places) + torch.eye(42) * 9
    assert distance.min() > 1e-2


# --- The peak rule ----------------------------------------------------------------------------------


def test_the_peak_rule_is_scipys_with_the_published_constants_on_the_golden_signals():
    golden = json.loads((GOLDEN / "postprocess.json").read_text())
    signals = [expit(np.array(case["logits"])) for case in golden["cases"] if len(case["logits"]) >= 5]
    seen = 0
    for signal in signals:
        for least in (0.25, 0.5):
            smoothed = medfilt(signal, 5)
            peaks, _ = find_peaks(smoothed, distance=25, width=3, prominence=0.2)
            expected = [int(peak) for peak in peaks if smoothed[peak] >= least]
            rule = PeakRule(least_score=least)
            assert rule.peaks(rule.smoothed(signal)).tolist() == expected
            assert rule.last(rule.smoothed(signal)) == (expected[-1] if expected else None)
            seen += len(expected)
    assert seen > 3


def test_zeros_behind_the_end_cost_a_thing_that_is_in_view_there_its_peak():
    scores = np.array([0.1] * 40 + [0.9] * 2)
    assert PeakRule().last(PeakRule().smoothed(scores)) is None
    assert math.isclose(PeakRule().smoothed(np.array([0.1] * 40 + [0.9] * 5))[-3], 0.9)

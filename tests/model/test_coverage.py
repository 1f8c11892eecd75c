"""Coverage of a query in windows: as a loop over windows says, and highest where all of the thing is."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from models import SMALL_MAPS, query_of, random_model, random_query

from lastseen.box import Box
from lastseen.engine.half import half_precision
from lastseen.model import EncodedQuery
from lastseen.model.coverage import WINDOW_SIDES, coverage, window_sides
from lastseen.model.similarity import SimilarityPrior
from lastseen.model.similarity_maps import COMMON_MAPS, similarity_maps
from lastseen.weights import bundled_model, load_model, read_config, save_model

pytestmark = pytest.mark.usefixtures("one_thread")

WINDOWS = (0.5, 1.0, 2.0)
COVERING = replace(SMALL_MAPS, coverage_windows=WINDOWS)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def cosines(*shape, seed=0):
    return 2 * torch.rand(shape, generator=generator(seed)) - 1


def unit(*shape, seed=0):
    return F.normalize(torch.randn(shape, generator=generator(seed)), dim=-3)


def coverage_of_loop(cosine, weights, side):
    """The definition, place by place: [b, t, k, h, w], [b, k] -> [b, t, h, w]"""
    shares, reach = weights / weights.sum(1, keepdim=True), side // 2
    found = torch.empty(*cosine.shape[:2], *cosine.shape[3:])
    for row in range(cosine.shape[3]):
        for column in range(cosine.shape[4]):
            rows = slice(max(0, row - reach), row + reach + 1)
            columns = slice(max(0, column - reach), column + reach + 1)
            best = cosine[..., rows, columns].amax((3, 4))
            found[..., row, column] = (best * shares[:, None]).sum(2)
    return found


# 5 x 7 is smaller than half of the largest window, 20 x 26 larger than it.
@pytest.mark.parametrize("size", [(1, 1), (5, 7), (20, 26)])
def test_coverage_is_that_of_a_loop_over_windows_also_at_borders(size):
    cosine, weights = cosines(2, 2, 3, *size), torch.rand(2, 3, generator=generator(1))
    found = coverage(cosine, weights, WINDOW_SIDES)
    assert found.shape == (2, 2, len(WINDOW_SIDES), *size)
    for number, side in enumerate(WINDOW_SIDES):
        torch.testing.assert_close(found[:, :, number], coverage_of_loop(cosine, weights, side))


def test_sides_may_be_any_of_the_windows_and_the_same_twice():
    cosine, weights = cosines(1, 1, 2, 12, 12), torch.ones(1, 2)
    every = dict(zip(WINDOW_SIDES, coverage(cosine, weights, WINDOW_SIDES).unbind(2), strict=True))
    for sides in ((1,), (9,), (3, 3, 17), (1, 5, 33)):
        found = coverage(cosine, weights, sides)
        assert torch.equal(found, torch.stack([every[side] for side in sides], 2))


def test_patches_count_by_their_weights_and_only_the_ratio_of_weights_counts():
    cosine = cosines(1, 2, 3, 9, 9)
    first = coverage(cosine[:, :, :1], torch.ones(1, 1), (3, 9))
    assert torch.equal(coverage(cosine, torch.tensor([[2.0, 0.0, 0.0]]), (3, 9)), first)
    weights = torch.tensor([[1.0, 2.0, 5.0]])
    torch.testing.assert_close(coverage(cosine, weights, (3,)), coverage(cosine, 1e-3 * weights, (3,)))
    assert not coverage(cosine, torch.zeros(1, 3), (3,)).any()  # a query without any patch


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_coverage_of_half_precision_cosines_is_the_same_within_rounding(dtype, tolerance):
    cosine, weights = cosines(1, 2, 64, 16, 16), torch.rand(1, 64, generator=generator(1))
    found = coverage(cosine.to(dtype), weights, WINDOW_SIDES)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, coverage(cosine, weights, WINDOW_SIDES), rtol=0, atol=tolerance)


def test_windows_are_the_nearest_to_the_things_size():
    assert window_sides(16, WINDOWS) == [9, 17, 33]
    assert window_sides(8.1, WINDOWS) == [5, 9, 17]
    assert window_sides(0.5, WINDOWS) == [1, 1, 1]
    assert window_sides(100, (4.0,)) == [33]


# --- in the maps ---


@torch.no_grad()
def test_there_is_a_map_for_each_window_and_scale_and_one_of_their_mean():
    frames, query = unit(1, 2, 8, 16, 16), query_of(unit(1, 2, 8, 8, 8, seed=1))
    plain = similarity_maps(frames, query, (1.0, 0.5))
    made = similarity_maps(frames, query, (1.0, 0.5), WINDOWS)
    assert plain.covered is None
    assert plain.maps.shape[2] == COMMON_MAPS + 2 * 2
    assert made.maps.shape[2] == COMMON_MAPS + 2 * 2 + 2 * 3 + 1
    assert torch.equal(made.maps[:, :, : plain.maps.shape[2]], plain.maps)  # those come first, as they were
    torch.testing.assert_close(made.maps[:, :, -1], made.maps[:, :, -7:-1].mean(2))
    assert torch.equal(made.covered, made.maps[:, :, -1])
    assert torch.equal(made.best, plain.best)


@torch.no_grad()
def test_coverage_is_highest_where_all_patches_are_and_not_at_copies_of_one():
    """A thing of 6 x 6 patches in one frame; one of its patches many times in the other."""
    for seed in range(5):
        thing = unit(1, 1, 24, 6, 6, seed=seed)
        frames = unit(1, 2, 24, 24, 24, seed=100 + seed)
        frames[0, 0, :, 10:16, 4:10] = thing[0, 0]
        frames[0, 1, :, ::4, ::4] = thing[0, 0, :, 2, 3][:, None, None]
        made = similarity_maps(frames, query_of(thing), (1.0,), WINDOWS)
        assert made.best[0, 1].max().item() == pytest.approx(1, abs=1e-4)  # the best cosine is fooled
        row, column = divmod(int(made.covered[0, 0].argmax()), 24)
        assert 10 <= row < 16 and 4 <= column < 10
        assert made.covered[0, 0].max() > made.covered[0, 1].max() + 0.1


@torch.no_grad()
def test_a_thing_at_the_border_is_covered_as_well_as_in_the_middle():
    thing = unit(1, 1, 64, 6, 6)
    for row, column in ((0, 0), (1, 2), (18, 0), (18, 18), (9, 9)):
        frames = torch.zeros(1, 1, 64, 24, 24)
        frames[0, 0, :, row : row + 6, column : column + 6] = thing[0, 0]
        made = similarity_maps(frames, query_of(thing), (1.0,), (1.0, 2.0))
        around = made.covered[0, 0, row : row + 6, column : column + 6]
        assert around.max().item() == pytest.approx(1, abs=0.15)
        assert around[2:4, 2:4].min() > 0.8


@torch.no_grad()
def test_background_patches_count_in_coverage_only_if_there_are_no_others():
    query, frames = unit(1, 1, 24, 8, 8), unit(1, 1, 24, 16, 16, seed=1)
    frames[0, 0, :, 4:12, 4:12] = query[0, 0]
    everything = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    left = everything.clone()
    left[..., 4:] = False
    changed = query.clone()
    changed[..., :4] = unit(1, 1, 24, 8, 4, seed=2)

    def covered(vectors, background):
        return similarity_maps(frames, EncodedQuery(vectors, everything, background), (1.0,), WINDOWS).covered

    assert (covered(query, left) - covered(changed, left)).abs().max() < 0.01
    assert (covered(query, ~everything) - covered(changed, ~everything)).abs().max() > 0.1
    torch.testing.assert_close(covered(query, everything), covered(query, ~everything))


def test_the_prior_grows_with_coverage_at_its_place():
    prior = SimilarityPrior(4, coverage=True)
    similarity = torch.full((1, 1, 2, 8, 8), 0.4)
    similarity[0, 0, 1, 6, 2] = 0.6  # in the cell (3, 1)
    logits = prior(similarity, 16).view(4, 4)
    assert logits.argmax() == 3 * 4 + 1
    assert (logits[3, 1] - logits[0, 0]).item() == pytest.approx(prior.coverage_scale.item() * 0.2, rel=1e-4)


# --- in the model ---


@torch.inference_mode()
def test_a_model_with_coverage_is_loaded_as_it_was_saved(tmp_path):
    model = random_model(COVERING)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.config == COVERING
    assert again.fingerprint() == model.fingerprint()
    features = unit(4, COVERING.backbone.channels, COVERING.side, COVERING.side)
    query = model.encode_query_pictures(random_query(COVERING)).row(0)
    found, expected = (one.localize_clip(features, query).logits for one in (again, model))
    assert torch.equal(found, expected)


def test_a_config_of_before_coverage_has_none():
    config = load_model(bundled_model()).config.to_dict()
    old = {name: value for name, value in config.items() if name != "coverage_windows"}
    assert read_config(old).coverage_windows == ()
    assert read_config({**old, "coverage_windows": list(WINDOWS)}).coverage_windows == WINDOWS
    plain = random_model(SMALL_MAPS)
    assert not any("coverage" in name for name in plain.state_dict())  # as files of before have them


@pytest.mark.parametrize("wrong", [(0.0,), (1.0, -1.0), (5.0,)])
def test_windows_out_of_range_are_one_clear_line(wrong):
    with pytest.raises(ValueError, match="coverage_windows must be above 0, 4 at most"):
        replace(SMALL_MAPS, coverage_windows=wrong)


@torch.inference_mode()
def test_coverage_moves_the_logits_of_a_model():
    model = random_model(COVERING)
    features = unit(3, COVERING.backbone.channels, COVERING.side, COVERING.side)
    query = model.encode_query_pictures(random_query(COVERING)).row(0)
    before = model.localize_clip(features, query).logits
    model.prior.coverage_scale.add_(5.0)
    assert (model.localize_clip(features, query).logits - before).abs().min() > 1e-3


@torch.inference_mode()
def test_half_precision_agrees_with_the_whole_model():
    """Exact in float32; in bfloat16 the best boxes are much the same."""
    model = random_model(COVERING)
    picture = torch.randint(0, 256, (90, 120, 3), dtype=torch.uint8, generator=generator())
    query = model.encode_query(picture, Box(20, 10, 60, 50))
    features = unit(5, COVERING.backbone.channels, COVERING.side, COVERING.side)
    expected = model.localize_clip(features, query)
    same = half_precision(model, torch.float32).localize_clip(features, query)
    torch.testing.assert_close(same.logits, expected.logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(same.boxes, expected.boxes, rtol=1e-4, atol=1e-4)
    half = half_precision(model, torch.bfloat16)
    rounded = half.localize_clip(features.bfloat16(), query.to(dtype=torch.bfloat16))
    difference = (rounded.logits.float() - expected.logits).abs()
    assert difference.mean() < 0.05 * expected.logits.std()

"""Hard negatives: from unrelated clips only, from the own group only, however the batch is split."""

import numpy as np
import pytest
import torch

from lastseen.model import VQLoC
from lastseen.train.mining import MiningConfig, choose_partners, localize_with_partners
from lastseen.train.recipes import tiny


def test_partners_are_unrelated_and_of_the_same_group():
    rng = np.random.default_rng(0)
    config = MiningConfig(pairs_per_query=2, mined_frames=3, group=4)
    for step in range(50):
        unrelated = torch.from_numpy(rng.random((12, 12)) < 0.5)
        partners = choose_partners(unrelated, 8, config, seed=1, step=step)
        for row in range(12):
            group = range(row // 4 * 4, row // 4 * 4 + 4)
            possible = {other for other in group if unrelated[row, other] and other != row}
            chosen = partners.clips[row][partners.usable[row]].tolist()
            assert len(set(chosen)) == len(chosen) == min(2, len(possible))
            assert set(chosen) <= possible
        assert partners.frames.min() >= 0
        assert partners.frames.max() < 8
        assert (partners.frames.diff(dim=-1) == 1).all()


def test_partners_change_from_step_to_step_but_not_with_the_split():
    unrelated = ~torch.eye(8, dtype=torch.bool)
    config = MiningConfig(mined_frames=2, group=4)
    steps = [choose_partners(unrelated, 30, config, seed=3, step=step) for step in range(4)]
    assert any(not torch.equal(steps[0].clips, other.clips) for other in steps[1:])
    half = choose_partners(unrelated[4:, 4:], 30, config, seed=3, step=0, first_row=4)
    assert torch.equal(half.clips + 4, steps[0].clips[4:])
    assert torch.equal(half.frames, steps[0].frames[4:])


def test_mined_logits_are_those_of_the_query_on_the_other_clip():
    torch.manual_seed(0)
    config = tiny().model
    model = VQLoC.from_config(config).eval()
    for layer in (model.head.score, model.head.box):
        torch.nn.init.normal_(layer.weight, std=0.1)
    clips, queries = torch.randn(4, 4, 3, 112, 112), torch.randn(4, 1, 3, 112, 112)
    unrelated = ~torch.eye(4, dtype=torch.bool)
    partners = choose_partners(unrelated, 4, MiningConfig(pairs_per_query=2, mined_frames=2), seed=0, step=0)
    with torch.no_grad():
        features, query = model.encode_together(clips, queries)
        predictions, mined = localize_with_partners(model, features, query, partners)
        assert mined.shape == (4, 4, 3072)
        plain = model(clips, queries[:, 0])
        assert torch.allclose(predictions.logits, plain.logits, atol=1e-5)
        assert torch.allclose(predictions.boxes, plain.boxes, atol=1e-5)
        for row in range(4):
            for pair in range(2):
                run = features[partners.clips[row, pair], partners.frames[row, pair]]
                alone = model.localize(run[None], query.row(row).as_batch()).logits[0]
                assert torch.allclose(mined[row, 2 * pair : 2 * pair + 2], alone, atol=1e-5)


def test_backbone_features_stand_in_for_pictures():
    torch.manual_seed(0)
    model = VQLoC.from_config(tiny().model).eval()
    clips, queries = torch.randn(2, 3, 3, 112, 112), torch.randn(2, 1, 3, 112, 112)
    with torch.no_grad():
        kept = model.backbone(clips.flatten(0, 1)).unflatten(0, (2, 3)), model.backbone(queries[:, 0])
        features, query = model.encode_together(kept[0], kept[1][:, None])
        same_features, same_query = model.encode_together(clips, queries)
    assert torch.allclose(features, same_features, atol=1e-6)
    assert torch.allclose(query.vectors, same_query.vectors, atol=1e-6)


def test_no_pairs_is_no_mining_and_an_impossible_number_is_refused():
    assert choose_partners(torch.ones(2, 2) > 0, 4, MiningConfig(pairs_per_query=0), seed=0, step=0) is None
    with pytest.raises(ValueError, match="0 to 3 in groups of 4"):
        MiningConfig(pairs_per_query=4)

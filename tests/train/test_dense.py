"""Dense supervision: what its targets say, that it learns, and that it leaves nothing in a saved model."""

import json
from dataclasses import replace

import pytest
import torch
from pasted import MODEL, SIDE, pasted
from safetensors.torch import load_file

from lastseen.errors import TrainError
from lastseen.train import checkpoint as checkpoints
from lastseen.train.batch import ListSource
from lastseen.train.checkpoint import RunFolder
from lastseen.train.dense import DenseConfig, dense_count, dense_loss, dense_targets, some_frames
from lastseen.train.distributed import World
from lastseen.train.loop import train
from lastseen.train.loss import LossConfig
from lastseen.train.mining import MiningConfig
from lastseen.train.optimiser import OptimiserConfig
from lastseen.train.recipes import tiny, vqloc_synth
from lastseen.train.training import Training
from lastseen.weights import load_model, make_model

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


def config_of(**changes):
    """The recipe's stages, small: features of noise with pasted things."""
    recipe = vqloc_synth()
    made = replace(
        tiny(),
        model=replace(MODEL, dim=32, clip_length=4),
        first_weights=recipe.first_weights,
        steps=6,
        batch=4,
        log_every=1,
        checkpoint_every=2,
        dense=DenseConfig(steps=3, weight=1.0, frames=2, warmup_steps=1),
        loss=replace(recipe.loss, consistency_weight=0.5),
        optimiser=OptimiserConfig(lr=1e-3, warmup_steps=1),
    )
    return replace(made, **changes)


def source():
    swapped = torch.tensor([False, True, False, False])
    return ListSource([replace(pasted(seed, rows=4), swapped=swapped) for seed in range(6)])


def test_patches_inside_the_box_are_the_target_and_other_clips_show_nothing():
    batch = replace(
        pasted(0, rows=2), known=torch.tensor([[True, True, True, False], [False, True, True, True]])
    )
    mined = torch.tensor([[True], [False]])
    targets = dense_targets(batch, SIDE, mined)
    assert targets.shows.shape == (2, 5, SIDE, SIDE)
    for row in range(2):
        for frame in range(4):
            x1, y1, x2, y2 = (batch.boxes_unit[row, frame] * SIDE).int().tolist()
            expected = torch.zeros(SIDE, SIDE, dtype=torch.bool)
            if batch.visible[row, frame] and batch.known[row, frame]:
                expected[y1:y2, x1:x2] = True
            assert torch.equal(targets.shows[row, frame], expected), (row, frame)
    assert targets.counted.tolist() == [[True, True, True, False, True], [False, True, True, True, False]]
    assert not targets.shows[:, 4].any()


def test_shares_of_the_dense_loss_add_up_and_frames_that_do_not_count_have_no_say():
    batch = replace(
        pasted(0, rows=4), known=torch.rand(4, 4, generator=torch.Generator().manual_seed(1)) < 0.7
    )
    config, logits = DenseConfig(), torch.randn(4, 4, SIDE, SIDE)
    whole = dense_targets(batch, SIDE, None)
    halves = [dense_targets(batch.rows(first, first + 2), SIDE, None) for first in (0, 2)]
    count = dense_count(whole)
    assert count == sum(map(dense_count, halves)) == batch.known.sum() * SIDE**2
    loss = dense_loss(logits, whole, count, config)
    parts = [dense_loss(logits[2 * n : 2 * n + 2], half, count, config) for n, half in enumerate(halves)]
    torch.testing.assert_close(sum(parts), loss)
    changed = torch.where(batch.known[..., None, None], logits, 9.0)
    assert dense_loss(changed, whole, count, config) == loss
    more = dense_loss(logits, whole, count, DenseConfig(positive_weight=12.0))
    assert more > loss


def test_some_frames_are_the_same_however_a_batch_is_split():
    batch = pasted(0, rows=4, frames=6)
    whole = some_frames(batch, 3, seed=1, step=2)
    part = some_frames(batch.rows(2, 4), 3, seed=1, step=2, first_row=2)
    assert torch.equal(whole.clips[2:], part.clips) and torch.equal(whole.boxes_unit[2:], part.boxes_unit)
    assert whole.clips.shape[1] == 3 and whole.visible.any() and not whole.visible.all()
    assert not torch.equal(some_frames(batch, 3, seed=1, step=3).visible, whole.visible)


def test_the_warm_up_learns_the_correspondence_alone_and_its_loss_falls():
    config = config_of(steps=20, dense=DenseConfig(steps=12, frames=4, warmup_steps=2, peak_lr=1e-2))
    run = Training(config, World(), CPU)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    batch = pasted(0, rows=4)
    curve = [run.step(number, batch)["loss_total"] for number in range(12)]
    assert curve[-1] < 0.7 * curve[0]
    changed = {
        name.split(".")[0]
        for name, value in run.model.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert changed == {"reduce", "correspondence"}
    run.step(12, batch)
    assert not torch.equal(run.model.state_dict()["head.score.bias"], before["head.score.bias"])


def test_each_stage_has_its_own_rate():
    config = config_of(steps=110, dense=DenseConfig(steps=10, warmup_steps=2, peak_lr=1.0))
    run = Training(replace(config, optimiser=OptimiserConfig(lr=0.5, warmup_steps=20)), World(), CPU)
    assert [run.rate(number) for number in (0, 1, 2, 6)] == [0.5, 1.0, 1.0, 0.5]
    assert run.rate(10) == pytest.approx(0.5 / 20)
    assert run.rate(30) == 0.5 and run.rate(70) == pytest.approx(0.25)


def test_the_term_beside_the_papers_losses_is_logged_and_counts():
    without, beside = (
        Training(config_of(dense=DenseConfig(weight=weight), dropout=0.0), World(), CPU)
        for weight in (0.0, 2.0)
    )
    batch = source().batch(0)
    plain, more = without.step(0, batch), beside.step(0, batch)
    assert "loss_dense" not in plain and more["loss_dense"] > 0
    assert more["loss_total"] == pytest.approx(plain["loss_total"] + 2 * more["loss_dense"], rel=1e-5)
    assert plain["loss_consistency"] == more["loss_consistency"]


@pytest.mark.parametrize("stopped_after", [1, 3, 5])
def test_a_run_in_stages_goes_on_to_the_same_bits_from_parts_of_a_checkpoint(
    tmp_path, monkeypatch, stopped_after
):
    """In the middle of the warm-up, at its end, and in the middle of the paper's losses."""
    monkeypatch.setattr(checkpoints, "PART_BYTES", 40_000)
    config, (whole, stopped, other) = config_of(), (tmp_path / name for name in ("whole", "stopped", "other"))
    train(config, whole, source=source(), device="cpu")

    class Stops(ListSource):
        def batch(self, step):
            if step == stopped_after:
                raise KeyboardInterrupt
            return super().batch(step)

    each = replace(config, checkpoint_every=1)
    with pytest.raises(KeyboardInterrupt):
        train(each, stopped, source=Stops(source()._batches), device="cpu")
    assert RunFolder(stopped).numbers()[-1] == stopped_after
    # As it is moved to another machine: file by file.
    newest = stopped / "checkpoints" / f"{stopped_after:08d}"
    assert len(list(newest.glob("model*.safetensors"))) > 1
    (other / "checkpoints" / newest.name).mkdir(parents=True)
    for file in [stopped / "config.json", stopped / "log.jsonl", *newest.iterdir()]:
        (other / file.relative_to(stopped)).write_bytes(file.read_bytes())
    train(each, other, source=source(), device="cpu")
    ours, theirs = (RunFolder(run).latest()[1].tensors for run in (other, whole))
    assert ours.keys() == theirs.keys() == {"model", "ema", "optimizer", "dense"}
    for group in ours:
        assert ours[group].keys() == theirs[group].keys()
        assert all(torch.equal(ours[group][name], theirs[group][name]) for name in ours[group]), group
    lines = [(run / "log.jsonl").read_text().splitlines() for run in (other, whole)]
    losses = [[json.loads(line)["loss_total"] for line in of_run] for of_run in lines]
    assert losses[0] == losses[1]


def test_a_saved_model_has_the_keys_of_the_papers_network(tmp_path):
    config = config_of(steps=4)
    train(config, tmp_path / "run", source=source(), device="cpu")
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert (
        saved.keys()
        == make_model(replace(config.model, query_scales=(1.0,), masked_query=False)).state_dict().keys()
    )
    stored = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert stored["query_scales"] == [0.25] and stored["masked_query"] is True
    assert load_model(tmp_path / "run" / "model").config == config.model


def test_parts_hold_every_tensor_once_and_no_more_than_they_should(monkeypatch):
    monkeypatch.setattr(checkpoints, "PART_BYTES", 100)
    tensors = {name: torch.zeros(count) for name, count in zip("abcdef", (10, 10, 10, 40, 5, 20))}
    parts = checkpoints.in_parts(tensors)
    assert [list(part) for part in parts] == [["a", "b"], ["c"], ["d"], ["e", "f"]]
    assert checkpoints.in_parts({}) == [{}]


def test_a_checkpoint_with_a_part_missing_is_named_as_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "PART_BYTES", 40_000)
    config = config_of(steps=4)
    train(config, tmp_path / "run", source=source(), device="cpu")
    (tmp_path / "run" / "checkpoints" / "00000004" / "ema-1.safetensors").unlink()
    with pytest.raises(TrainError, match=r"00000004 is damaged .*ema-1"):
        train(replace(config, steps=4), tmp_path / "run", source=source(), device="cpu")


def test_dense_supervision_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"dense\.steps are of the 6 steps; leave some, got 6"):
        config_of(dense=DenseConfig(steps=6))
    with pytest.raises(ValueError, match="peak_lr above 0"):
        DenseConfig(peak_lr=0.0)
    alone = config_of(mining=MiningConfig(group=1, pairs_per_query=0), loss=LossConfig(score="bce"))
    assert Training(alone, World(), CPU).step(0, source().batch(0))["loss_total"] > 0

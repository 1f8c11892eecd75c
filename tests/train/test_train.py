"""Training: it learns, it goes on exactly where it was killed, and mistakes are one line."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lastseen.errors import LastSeenError, OutputError, TrainError
from lastseen.model import SimilarityConfig
from lastseen.train import checkpoint as checkpoints
from lastseen.train.batch import ListSource
from lastseen.train.checkpoint import Checkpoint, RunFolder
from lastseen.train.distributed import World
from lastseen.train.fields import parse_setting, with_settings
from lastseen.train.gallery import VIEW_PX
from lastseen.train.initialise import initial_model
from lastseen.train.loop import Training, train
from lastseen.train.loss import iou
from lastseen.train.optimiser import (
    OptimiserConfig,
    RunningAverage,
    lr_factor,
    optimiser_tensors,
    restore_optimiser,
)
from lastseen.train.pairs import QUERY_PX, QUERY_SIDE, SIZE_PX
from lastseen.train.recipes import RECIPES, find_recipe, synth_small, tiny, vqloc_base, vqloc_small
from lastseen.train.toy import ToyClips, ToyData
from lastseen.weights import load_model

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


def quick(**changes):
    return replace(tiny(), **{"batch": 2, "steps": 2, "log_every": 1, "checkpoint_every": 3, **changes})


def losses_of(out):
    return [json.loads(line)["loss_total"] for line in (out / "log.jsonl").read_text().splitlines()]


def test_a_tiny_model_learns_two_clips_by_heart(tmp_path):
    optimiser = OptimiserConfig(lr=3e-3, warmup_steps=10)
    config = quick(steps=70, optimiser=optimiser, dropout=0.0, ema_decay=0.9, checkpoint_every=1000)
    batch = ToyClips(ToyData(absent_share=0.0), config.model, 2, seed=11).batch(0)
    shown = batch.visible
    assert 2 <= (~shown).sum() <= 6
    model = train(config, tmp_path / "run", source=ListSource([batch]), device="cpu")
    curve = losses_of(tmp_path / "run")
    assert curve[-1] < 0.25 * curve[0]
    with torch.no_grad():
        best = load_model(tmp_path / "run" / "model")(batch.clips, batch.queries[:, 0]).best()
        again = model(batch.clips, batch.queries[:, 0]).best()
    assert torch.equal(best.logits, again.logits)
    assert iou(best.boxes, batch.boxes_unit)[shown].min() > 0.5
    assert best.logits[shown].min() > best.logits[~shown].max() + 1


RUN = """
import sys, time, torch
torch.set_num_threads(1)
from dataclasses import replace
from lastseen.train.loop import train
from lastseen.train.recipes import tiny
from lastseen.train.toy import ToyClips

class Stalling(ToyClips):
    def batch(self, step):
        if step == 4:  # one step past the checkpoint: that one must be lost and done again
            time.sleep(600)
        return super().batch(step)

config = replace(tiny(), batch=2, steps=6, log_every=1, checkpoint_every=3)
source = Stalling(config.data, config.model, config.batch, config.seed)
train(config, sys.argv[1], source=source, device="cpu")
"""


def said_so_far(out):
    return (out / "log.jsonl").read_text() if (out / "log.jsonl").exists() else ""


def test_a_run_that_was_killed_goes_on_to_the_same_bits(tmp_path):
    config = quick(steps=6)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(config, whole, device="cpu")
    process = subprocess.Popen([sys.executable, "-c", RUN, killed], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while '"step": 4' not in said_so_far(killed) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert RunFolder(killed).numbers() == [3]
    train(config, killed, device="cpu")
    for file in ("model/model", "checkpoints/00000006/model", "checkpoints/00000006/optimizer"):
        ours, theirs = load_file(killed / f"{file}.safetensors"), load_file(whole / f"{file}.safetensors")
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), file
    steps = [json.loads(line)["step"] for line in (killed / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert losses_of(killed) == losses_of(whole)
    assert config.dropout > 0  # otherwise nothing random would have had to be repeated


def test_a_checkpoint_that_is_interrupted_leaves_the_one_before_it(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run", keep=1)
    folder.claim({"a": 1})
    folder.save(1, Checkpoint({"model": {"x": torch.ones(3)}}, {}))

    def broken(tensors, path):
        Path(path).write_bytes(b"half")
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "save_file", broken)
        with pytest.raises(OutputError, match="no space left"):
            folder.save(2, Checkpoint({"model": {"x": torch.zeros(3)}}, {}))
    # What a kill would have left: a folder under a temporary name.
    (folder.checkpoints / ".00000002.abc.part").mkdir()
    again = RunFolder(tmp_path / "run", keep=1)
    again.claim({"a": 1})
    step, found = again.latest()
    assert step == 1
    assert torch.equal(found.tensors["model"]["x"], torch.ones(3))
    again.save(2, Checkpoint({"model": {"x": torch.zeros(3)}}, {}))
    assert [path.name for path in again.checkpoints.iterdir()] == ["00000002"]


def test_a_folder_of_another_run_or_of_something_else_is_refused(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim(replace(tiny(), seed=9).to_dict())
    folder.claim(tiny().to_dict())  # nothing came of the first one
    folder.save(1, Checkpoint({"model": {"x": torch.ones(3)}}, {}))
    other = replace(tiny(), steps=7, optimiser=OptimiserConfig(lr=1.0))
    with pytest.raises(TrainError, match=r"optimiser.lr, optimiser.warmup_steps, steps differ"):
        train(other, tmp_path / "run", device="cpu")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(OutputError, match="not a training run"):
        train(tiny(), tmp_path / "mine", device="cpu")
    (folder.checkpoints / "00000001" / "state.json").write_text("{")
    with pytest.raises(TrainError, match="damaged"):
        train(tiny(), tmp_path / "run", device="cpu")


def test_a_budget_of_time_stops_with_a_checkpoint_and_a_model(tmp_path):
    config = quick(steps=50, checkpoint_every=100)
    train(config, tmp_path / "run", device="cpu", minutes=0)
    assert RunFolder(tmp_path / "run").numbers() == [1]
    assert load_model(tmp_path / "run" / "model").config == config.model


def test_accumulated_turns_give_the_gradient_of_the_whole_batch():
    """Batch norms aside: they see a turn at a time, so they are frozen here."""
    config = quick(batch=4, dropout=0.0)
    batch = ToyClips(config.data, config.model, 4, seed=0).batch(0)
    gradients = []
    for accumulate in (1, 2):
        run = Training(replace(config, accumulate=accumulate), World(), CPU)
        for module in run.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        run.optimiser.zero_grad = lambda set_to_none=True: None
        run.step(0, batch)
        gradients.append({name: p.grad for p, name in run.names.items()})
    for name in gradients[0]:
        assert torch.allclose(gradients[0][name], gradients[1][name], atol=1e-5), name


def test_every_variant_of_the_model_and_the_loss_takes_a_step():
    for score, anchors, fusion in (("bce", False, "conv"), ("focal", True, "attention")):
        config = quick()
        model = replace(config.model, anchors=anchors, fusion=fusion)
        config = replace(config, model=model, loss=replace(config.loss, score=score))
        batch = ToyClips(config.data, config.model, 2, seed=0).batch(0)
        assert Training(config, World(), CPU).step(0, batch)["grad_norm"] > 0


def test_the_rate_climbs_to_its_peak_and_falls_to_nothing():
    rates = [lr_factor(step, warmup_steps=10, steps=110) for step in range(111)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1
    assert rates[60] == pytest.approx(0.5)
    assert rates[109] == pytest.approx(0.01)
    assert rates[110] == 0
    assert lr_factor(0, warmup_steps=0, steps=4) == 1


def test_the_running_average_is_the_mean_with_fading_weights():
    average = RunningAverage({"x": torch.zeros(1), "n": torch.tensor(0)}, decay=0.9)
    for step in range(3):
        average.update({"x": torch.ones(1), "n": torch.tensor(step)}, step=1000)
    assert average.tensors["x"].item() == pytest.approx(1 - 0.9**3)
    assert average.tensors["n"] == 2
    early = RunningAverage({"x": torch.zeros(1)}, decay=0.9)
    early.update({"x": torch.ones(1)}, step=0)
    assert early.tensors["x"].item() == pytest.approx(0.9)  # the random start counts for a tenth only


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimiser_goes_on_exactly_where_it_was_fused_or_not(fused):
    start, gradients = torch.randn(5, 3), torch.randn(4, 5, 3)

    def taught(weight, optimiser, part):
        for gradient in part:
            weight.grad = gradient.clone()
            optimiser.step()

    def fresh(values):
        weight = nn.Parameter(values.clone())
        return weight, torch.optim.AdamW([weight], lr=0.1, fused=fused or None)

    whole, optimiser = fresh(start)
    taught(whole, optimiser, gradients)
    first, before = fresh(start)
    taught(first, before, gradients[:2])
    second, after = fresh(first.detach())
    restore_optimiser(after, {second: "w"}, optimiser_tensors(before, {first: "w"}))
    taught(second, after, gradients[2:])
    assert torch.equal(second, whole)


def test_gradients_that_are_not_finite_end_the_run_before_anything_is_kept(tmp_path):
    config = quick(steps=3, log_every=100, checkpoint_every=1)
    batch = ToyClips(config.data, config.model, 2, seed=0).batch(0)
    broken = replace(
        batch, boxes_unit=torch.full_like(batch.boxes_unit, torch.nan), visible=batch.visible | True
    )
    with pytest.raises(TrainError, match="gradients of step 1 are not finite; begin again in a new folder"):
        train(config, tmp_path / "run", source=ListSource([batch, broken]), device="cpu")
    assert RunFolder(tmp_path / "run").numbers() == [1]
    run = Training(config, World(), CPU)
    assert run.step(0, broken) is None  # a GPU is not asked at once ...
    with pytest.raises(TrainError, match="gradients of step 0 are not finite"):
        run.step(1, batch)  # ... but before more is learnt


def test_recipes_are_complete_configs_and_say_what_they_are():
    assert set(RECIPES) >= {"synth_small", "vqloc_base", "vqloc_small", "tiny"}
    for recipe in RECIPES.values():
        assert recipe.about
        assert json.loads(json.dumps(recipe.make().to_dict()))
    base = vqloc_base()
    assert (base.steps, base.batch, base.loss.score) == (60_000, 24, "hnm")
    assert (base.optimiser.lr, base.optimiser.weight_decay, base.optimiser.warmup_steps) == (1e-4, 0.05, 1000)
    with pytest.raises(TrainError, match="unknown recipe 'huge'; choose one of backbone_small"):
        find_recipe("huge")


def test_a_saved_model_has_the_head_score_weight_of_its_recipe(tmp_path):
    recipe = synth_small()
    assert (recipe.model.head_score_weight, recipe.trained_model().head_score_weight) == (1.0, 0.25)
    with pytest.raises(ValueError, match="head_score_weight"):
        replace(tiny(), head_score_weight=0.5)  # which needs similarity maps
    maps = SimilarityConfig(
        backbone=tiny().model.backbone, image_size=112, clip_length=4, dim=32, skip_connection=False
    )
    config = replace(tiny(), model=maps, head_score_weight=0.5, steps=1)
    assert train(config, tmp_path / "run", device="cpu").config.head_score_weight == 0.5
    assert load_model(tmp_path / "run" / "model").config.head_score_weight == 0.5


def test_heads_and_backbone_are_trained_with_the_same_query_crops():
    model, stage = synth_small().model, find_recipe("backbone_small").make().stage
    assert model.query_size == QUERY_PX == VIEW_PX
    assert (model.query_side, model.image_size) == (QUERY_SIDE, SIZE_PX)
    assert model.query_scales == stage.query_scales


def test_the_bundled_backbone_is_cut_to_the_depth_that_is_used():
    model = initial_model(synth_small())
    assert len(model.backbone.blocks) == 8
    assert model.config.backbone.blocks == (7,)
    assert len(initial_model(vqloc_small()).backbone.blocks) == 12
    with pytest.raises(TrainError, match=r"\(bundled\) has width 384"):
        initial_model(vqloc_base())


def test_settings_are_typed_by_the_fields_they_set():
    config = with_settings(
        synth_small(),
        [
            parse_setting(text)
            for text in (
                "optimiser.lr=3e-4",
                "model.attention_radius=4",
                "model.backbone.blocks=5,7",
                "data.refresh_steps=none",
                "data.assets=packs/a=b",
                "data.augment.query_jitter=false",
                "steps=10_000",
            )
        ],
    )
    assert config.optimiser.lr == 3e-4
    assert config.model.attention_radius == 4
    assert config.model.backbone.blocks == (5, 7)
    assert config.data.refresh_steps is None
    assert config.data.assets == "packs/a=b"
    assert config.data.augment.query_jitter is False
    assert config.steps == 10_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("optimiser.lrr=1", "did you mean optimiser.lr"),
        ("lr=1", "did you mean optimiser.lr"),
        ("weight_decay=1", "did you mean optimiser.weight_decay"),
        ("optimiser=1", "has fields of its own"),
        ("steps.more=1", "'steps' is a single value"),
        ("steps=many", "expected a whole number"),
        ("steps=1.5", "expected a whole number"),
        ("steps=0", "at least 1"),
        ("optimiser.lr=fast", "expected a number"),
        ("bf16=perhaps", "expected true or false"),
        ("loss.score=hinge", "hnm, focal, bce"),
        ("model.image_size=100", "multiple of 14"),
        ("steps", "expected field=value"),
        ("zzz=1", "unknown field 'zzz'"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(text, says):
    with pytest.raises(LastSeenError) as problem:
        with_settings(tiny(), [parse_setting(text)])
    assert says in str(problem.value)
    assert "\n" not in str(problem.value)


def test_missing_tensorboard_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(TrainError, match=r"pip install 'lastseen\[tensorboard\]'"):
        train(quick(tensorboard=True), tmp_path / "run", device="cpu")


def test_training_does_not_disturb_the_callers_randomness(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(quick(steps=1), tmp_path / "run", device="cpu")
    assert torch.equal(torch.rand(3), expected)


def test_nothing_of_training_imports_a_decoder():
    code = (
        "import sys, lastseen.train.loop, lastseen.train.files_data\n"
        "assert not {'av', 'tensorboard'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""Teaching a backbone to match: it learns, only where it should, and goes on exactly where it was."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from walks import BLUE, CYAN, GREEN, PURPLE, RED, YELLOW, Thing, gallery_of, moving, walk_of

from lastseen.cli import main
from lastseen.errors import TrainError
from lastseen.model import Backbone, BackboneConfig
from lastseen.model.inputs import MEAN, STD
from lastseen.train import backbone_stage
from lastseen.train.backbone_stage import (
    BackboneStageConfig,
    PatchScorer,
    draw_pairs,
    patch_loss,
    patch_precision,
    sampled_tokens,
    save_backbone,
    score_loss,
    train_backbone,
)
from lastseen.train.checkpoint import RunFolder
from lastseen.train.pairs import IGNORED, RIGHT, WRONG, Pairs, WalkPairs
from lastseen.weights import load_backbone

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = BackboneStageConfig(
    depth=2,
    first_block=1,
    steps=6,
    groups=1,
    frames=8,
    lr=2e-3,
    warmup_steps=2,
    tokens=4,
    hardest=16,
    log_every=2,
    checkpoint_every=4,
)
SIDE, QUERY_SIDE = 6, 4


class Squares:
    """A source of small pairs: coloured squares on grey noise, asked for with their colour alone, smaller."""

    def draw(self, groups, rng, per_group=3):
        frames = torch.from_numpy(
            rng.uniform(0.3, 0.6, (groups, 3, 1, 14 * SIDE, 14 * SIDE)).astype("float32")
        )
        frames = frames.repeat(1, 1, 3, 1, 1)
        colours = torch.from_numpy(rng.permuted(np.tile(np.eye(3, dtype="float32"), (groups, 1, 1)), axis=1))
        labels = torch.zeros(groups, 3, 3, SIDE, SIDE, dtype=torch.int8)
        for group in range(groups):
            for place in range(3):
                row, column = rng.integers(0, SIDE - 1, 2)
                part = (slice(14 * row, 14 * row + 28), slice(14 * column, 14 * column + 28))
                frames[group, place, :, part[0], part[1]] = colours[group, place, :, None, None]
                labels[group, place, place, row : row + 2, column : column + 2] = RIGHT
        queries = colours[..., None, None].expand(-1, -1, -1, 14 * QUERY_SIDE, 14 * QUERY_SIDE)
        on_thing = torch.ones(groups, 3, QUERY_SIDE, QUERY_SIDE, dtype=torch.bool)
        return Pairs(frames=frames, queries=queries, on_thing=on_thing, labels=labels)


def tiny_backbone(**changes):
    torch.manual_seed(0)
    return Backbone(BackboneConfig(**{"dim": 32, "depth": 2, "heads": 2, **changes}))


def state_of(backbone):
    return {name: value.clone() for name, value in backbone.state_dict().items()}


def test_the_loss_falls_and_the_right_patches_come_first():
    """On one batch, again and again; its light changes from step to step."""
    config = replace(QUICK, steps=40, first_block=0)
    backbone = tiny_backbone(final_norm=False)
    matcher = PatchScorer()
    optimiser = torch.optim.Adam([*backbone.parameters(), *matcher.parameters()], lr=2e-3)
    pairs = [Squares().draw(4, np.random.default_rng(0))]
    losses, hits = [], []
    for step in range(config.steps):
        loss, right = patch_loss(backbone, matcher, pairs, config, np.random.default_rng(step))
        optimiser.zero_grad()
        torch.autograd.backward([loss])
        optimiser.step()
        losses.append(loss.item())
        hits.append(right.item())
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:3])
    assert np.mean(hits[-5:]) > 0.7


def test_training_makes_a_backbone_better_at_what_it_is_trained_on(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim({})
    config = replace(QUICK, steps=40, groups=2, first_block=0, log_every=1)
    train_backbone(config, Squares(), None, start=tiny_backbone(), folder=folder)
    lines = [json.loads(line) for line in folder.log.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 41))
    losses = [line["loss"] for line in lines]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


def test_only_blocks_from_the_first_that_learns_change():
    start = tiny_backbone(depth=4)
    before = state_of(start)
    trained = train_backbone(replace(QUICK, depth=3, first_block=1, steps=2), Squares(), None, start=start)
    assert len(trained.blocks) == 3
    assert trained.config.blocks == (2,)
    assert not trained.config.final_norm
    assert not trained.training
    assert not any(p.requires_grad for p in trained.parameters())
    for name, value in trained.state_dict().items():
        changed = not torch.equal(value, before[name])
        assert changed == name.startswith(("blocks.1.", "blocks.2.")), name
    assert all(torch.equal(value, before[name]) for name, value in start.state_dict().items())
    for first in (3, -1):
        with pytest.raises(TrainError, match="first_block must be 0 to 2"):
            train_backbone(replace(QUICK, depth=3, first_block=first), Squares(), None, start=start)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    folders = [RunFolder(tmp_path / name) for name in ("whole", "stopped")]
    for folder in folders:
        folder.claim({"any": "config"})
    whole = train_backbone(QUICK, Squares(), None, start=tiny_backbone(), folder=folders[0])
    for done in (1, 2, 3):  # no time at all: one step each
        train_backbone(QUICK, Squares(), None, start=tiny_backbone(), folder=folders[1], minutes=0)
        assert folders[1].numbers()[-1] == done
    again = train_backbone(QUICK, Squares(), None, start=tiny_backbone(), folder=folders[1])
    ours, theirs = again.state_dict(), whole.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    for name in ("model", "optimizer"):
        one, other = (load_file(f.checkpoints / "00000006" / f"{name}.safetensors") for f in folders)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one), name
    assert folders[0].log.read_text() == folders[1].log.read_text()
    # A run that is over gives its backbone again, and does nothing.
    finished = train_backbone(QUICK, Squares(), None, start=tiny_backbone(), folder=folders[0])
    assert all(torch.equal(value, theirs[name]) for name, value in finished.state_dict().items())
    assert whole.blocks[1].mlp.fc1.weight.ne(tiny_backbone().blocks[1].mlp.fc1.weight).any()


def without_gradients(monkeypatch):
    """Every step has a loss that does not depend on the weights."""

    def loss(backbone, scorer, *_):
        parameters = [*backbone.parameters(), *scorer.parameters()]
        return sum(0.0 * p.sum() for p in parameters if p.requires_grad), torch.zeros(())

    monkeypatch.setattr(backbone_stage, "patch_loss", loss)


def moved_by(run, distance):
    """All weights that learn, moved away from where they are."""
    with torch.no_grad():
        for parameter in run._trained:
            parameter.add_(distance)


def test_without_gradients_weights_go_back_towards_the_start(monkeypatch):
    without_gradients(monkeypatch)
    config = replace(QUICK, lr=0.1, weight_decay=0.0, pull_to_start=2.0, warmup_steps=1, steps=100)
    start = tiny_backbone()
    run = backbone_stage._Run(config, start.shortened(2))
    moved_by(run, 0.5)
    away = [0.5]
    for number in range(3):
        run.step(number, [], np.random.default_rng(0))
        away.append((run.backbone.blocks[1].mlp.fc1.weight - start.blocks[1].mlp.fc1.weight).mean().item())
    rates = [1.0, 1.0, 98 / 99]  # of the learning rate in these steps
    expected = 0.5 * np.cumprod([1, *(1 - 2 * 0.1 * rate for rate in rates)])
    assert away == pytest.approx(expected.tolist(), rel=1e-3)
    assert torch.equal(run.backbone.blocks[0].mlp.fc1.weight, start.blocks[0].mlp.fc1.weight)  # frozen
    free = backbone_stage._Run(replace(config, pull_to_start=0.0), start.shortened(2))
    moved_by(free, 0.5)
    before = state_of(free.backbone)
    free.step(0, [], np.random.default_rng(0))
    assert all(torch.equal(value, before[name]) for name, value in free.backbone.state_dict().items())


def test_a_resumed_run_is_pulled_towards_where_it_began(tmp_path, monkeypatch):
    """Not towards the weights of the checkpoint."""
    without_gradients(monkeypatch)
    config = replace(QUICK, lr=0.1, weight_decay=0.0, pull_to_start=2.0, warmup_steps=0, steps=4)
    folder = RunFolder(tmp_path / "run")
    folder.claim({})
    stopped = backbone_stage._Run(config, tiny_backbone().shortened(2))
    moved_by(stopped, 0.5)
    stopped.step(0, [], np.random.default_rng(0))
    folder.save(1, stopped.checkpoint())
    # 0.5 was reduced to 0.4 by that step; lr falls by a quarter with each, to 3, 2 and 1 quarters.
    ended = train_backbone(config, Squares(), None, start=tiny_backbone(), folder=folder)
    away = ended.blocks[1].mlp.fc1.weight - tiny_backbone().blocks[1].mlp.fc1.weight
    torch.testing.assert_close(away, torch.full_like(away, 0.4 * 0.85 * 0.9 * 0.95), rtol=1e-3, atol=0)


def test_pairs_drawn_in_advance_are_those_drawn_in_order():
    def draw(step):
        return backbone_stage._drawn(Squares(), None, QUICK, step)

    for steps in (range(7), range(3, 5), range(0)):
        in_advance = list(backbone_stage._in_advance(draw, steps))
        assert len(in_advance) == len(steps)
        for step, ((pairs,), rng) in zip(steps, in_advance, strict=True):
            (expected,), same = draw(step)
            for name in ("frames", "queries", "on_thing", "labels"):
                assert torch.equal(getattr(pairs, name), getattr(expected, name))
            assert rng.integers(2**31) == same.integers(2**31)


def test_a_mistake_in_drawing_is_raised_at_its_step():
    def draw(step):
        if step == 2:
            raise TrainError("no such walk")
        return step

    drawn = backbone_stage._in_advance(draw, range(9))
    assert [next(drawn), next(drawn)] == [0, 1]
    with pytest.raises(TrainError, match="no such walk"):
        next(drawn)


def test_drawing_is_not_far_ahead_of_training():
    """Pairs of a step are large."""
    asked = []
    drawn = backbone_stage._in_advance(asked.append, range(100))
    for _ in range(5):
        next(drawn)
    assert len(asked) <= 5 + 3
    drawn.close()


def test_a_saved_backbone_is_read_again_and_gives_the_same_features(tmp_path):
    backbone = tiny_backbone(dim=128, depth=2, heads=2, registers=4, final_norm=False).eval()
    save_backbone(backbone, tmp_path / "b.safetensors")
    again = load_backbone(tmp_path / "b.safetensors", final_norm=False)
    assert replace(again.config, blocks=backbone.config.blocks) == backbone.config
    pictures = torch.randn(1, 3, 56, 56, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = again(pictures), backbone(pictures)
    assert F.cosine_similarity(ours, theirs, dim=1).min() > 0.999  # it was rounded to fp16
    assert [path.name for path in tmp_path.iterdir()] == ["b.safetensors"]


def test_walks_and_photographs_come_in_their_shares():
    class Counted:
        def __init__(self):
            self.groups = 0

        def draw(self, groups, rng, per_group=3):
            self.groups += groups
            return groups

    walks, photos = Counted(), Counted()
    config = replace(QUICK, groups=8, photo_share=0.25)
    for step in range(200):
        drawn = draw_pairs(walks, photos, config, np.random.default_rng(step))
        assert sum(drawn) == 8 and min(drawn) > 0
    assert walks.groups + photos.groups == 1600
    assert photos.groups / 1600 == pytest.approx(0.25, abs=0.04)
    assert draw_pairs(walks, None, config, np.random.default_rng(0)) == [8]
    assert draw_pairs(walks, photos, replace(config, photo_share=1.0), np.random.default_rng(0)) == [8]


def test_patches_that_do_not_count_have_no_say_in_the_loss():
    labels = torch.tensor([[[RIGHT, RIGHT, WRONG, WRONG, IGNORED]]], dtype=torch.int8)
    logits = torch.tensor([[[2.0, 1.0, -1.0, 0.5, 9.0]]])
    loss, hits = score_loss(logits, labels, 2)
    changed = logits.clone()
    changed[..., 4] = -3
    assert torch.equal(score_loss(changed, labels, 2)[0], loss)
    assert hits == 1  # the best of those that count
    found, refused = F.softplus(-logits[0, 0, :2]).mean(), F.softplus(logits[0, 0, 2:4]).mean()
    assert loss.item() == pytest.approx((found + refused).item())
    # Fewer wrong ones than are asked for, and a thing that is nowhere.
    few, _ = score_loss(logits, labels, 4)
    assert few.item() == pytest.approx((found + refused / 2).item())
    nowhere, _ = score_loss(logits, torch.full_like(labels, WRONG), 1)
    assert nowhere.item() == pytest.approx(F.softplus(torch.tensor(9.0)).item())


def test_only_the_things_own_patches_stand_for_a_query():
    features = torch.arange(36.0).view(1, 1, SIDE, SIDE)
    on_thing = torch.zeros(1, SIDE, SIDE, dtype=torch.bool)
    on_thing[0, 1, 2:4] = True
    tokens = sampled_tokens(features, on_thing, 50, torch.Generator().manual_seed(0))
    assert set(tokens.flatten().tolist()) == {8.0, 9.0}


# --- Walks ---------------------------------------------------------------------------------------------


def walks():
    """Two walks of three things each, at the size that pairs are made of."""
    places = ((20, 20, 90, 90), (150, 40, 260, 110), (60, 150, 120, 230))
    return [
        walk_of(
            [
                Thing(name=f"{seed}{n}", colour=colour, boxes=moving(place, (4, 2), 10), portraits=1)
                for n, (colour, place) in enumerate(zip(colours, places, strict=True))
            ],
            size=(448, 336),
            seed=seed,
        )
        for seed, colours in enumerate(((RED, GREEN, BLUE), (YELLOW, PURPLE, CYAN)))
    ]


class Hue(nn.Module):
    """Features that tell things exactly: the direction of a patch's colour, or grey."""

    def forward(self, pictures):
        mean, std = (torch.tensor(x)[:, None, None] for x in (MEAN, STD))
        colour = ((pictures[..., 6::14, 6::14] + pictures[..., 7::14, 7::14]) / 2) * std + mean
        chroma = colour - colour.mean(1, keepdim=True)
        grey = chroma.norm(dim=1, keepdim=True) < 0.1
        return torch.cat([chroma.masked_fill(grey, 0), grey.float()], 1)


class Noise(nn.Module):
    def forward(self, pictures):
        generator = torch.Generator().manual_seed(0)
        rows, columns = (side // 14 for side in pictures.shape[-2:])
        return torch.randn(len(pictures), 64, rows, columns, generator=generator)


def test_precision_is_one_for_features_that_tell_things_and_low_for_noise():
    pairs = WalkPairs(gallery_of(*walks()))
    known = patch_precision(Hue(), pairs, groups=2)
    assert known == {"ap": pytest.approx(1), "best_is_right": 1}
    noise = patch_precision(Noise(), pairs, groups=2)
    assert noise["ap"] < 0.15
    assert noise["best_is_right"] < 0.3


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["lastseen", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
        return done.value.code or 0, *capsys.readouterr()

    return call


def test_the_command_trains_a_backbone_on_walks_that_are_there(run, tmp_path):
    (tmp_path / "walks").mkdir()
    for number, (census, _) in enumerate(walks()):
        census.save(tmp_path / "walks" / f"room-0-{number:05d}.npz")
    start = tiny_backbone(dim=64, heads=1)
    save_backbone(start, tmp_path / "start.safetensors")
    settings = {
        "data.folder": tmp_path / "walks",
        "data.walks": 2,
        "data.photos": 0,
        "backbone": tmp_path / "start.safetensors",
        "stage.depth": 1,
        "stage.first_block": 0,
        "stage.steps": 2,
        "stage.groups": 1,
        "stage.photo_share": 0,
        "stage.log_every": 1,
    }
    given = [f"--set={name}={value}" for name, value in settings.items()]
    command = ["train", tmp_path / "out", "--recipe", "backbone_small", "--device", "cpu", *given]
    status, out, err = run(*command, "--minutes", 0)
    file = tmp_path / "out" / "backbone.safetensors"
    assert (status, out) == (0, f"{file}: the backbone after 1 steps of 2; the same command goes on\n"), err
    status, out, err = run(*command)
    assert (status, out) == (0, f"{file}: the backbone after 2 steps\n")
    assert "step 2/2" in err and "step 1/2" not in err
    trained = load_backbone(file)
    assert trained.config.depth == 1
    assert not torch.equal(trained.blocks[0].attn.qkv.weight, start.half().float().blocks[0].attn.qkv.weight)
    assert torch.equal(trained.patch_embed.proj.weight, start.patch_embed.proj.weight)
    # What does not fit is one line.
    status, _, err = run(*command[:2], "--recipe", "backbone_small", *given, "--set=stage.lr=1")
    assert status and "another config (stage.lr differ)" in err and err.count("\n") == 1
    status, _, err = run("train", tmp_path / "deep", *command[2:], "--set=stage.depth=5")
    assert status and "the backbone has 2 blocks, stage.depth is 5" in err and err.count("\n") == 1

"""The training loop: steps, logs, checkpoints. The same command goes on where an earlier one stopped.

Going on is exact: weights, optimiser and averages are restored from the checkpoint, and all that is random
(data, partners, dropout) is a function of the seed and the step, so nothing else needs to be remembered.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lastseen.engine.devices import best_device, checked_device
from lastseen.errors import TrainError
from lastseen.model import Predictions, SimilarityModel, TrainedModel
from lastseen.model.head import AnchorHead, corners
from lastseen.train.batch import Batch, Source
from lastseen.train.checkpoint import Checkpoint, RunFolder
from lastseen.train.distributed import World, joined, with_shared_norms
from lastseen.train.initialise import freeze_norms_of_frozen_parts, initial_model, open_source, rows_of
from lastseen.train.log import RunLog
from lastseen.train.loss import Chosen, Losses, Targets, choose, count, iou, label, losses
from lastseen.train.mining import Partners, choose_partners, localize_with_partners
from lastseen.train.optimiser import (
    RunningAverage,
    lr_factor,
    make_optimiser,
    optimiser_tensors,
    restore_optimiser,
    set_lr,
    trained,
)
from lastseen.train.prior import fit_prior
from lastseen.train.recipes import TrainConfig
from lastseen.weights import make_model

Turn = tuple[Batch, Partners | None, Targets, Chosen]


def train(
    config: TrainConfig,
    out: str | os.PathLike[str],
    *,
    source: Source | None = None,
    device: str | torch.device | None = None,
    minutes: float | None = None,
) -> TrainedModel:
    """Train, or go on training, in the folder `out`; returns the model with averaged weights.

    `source` takes the place of the config's data. `minutes` is a budget: training stops when it is used up,
    with a checkpoint from which the same call goes on.
    """
    where = best_device() if device is None else checked_device(device)
    with joined(where) as (world, where), _own_randomness(where):
        _check_split(config, world)
        folder = RunFolder(out, keep=config.keep)
        folder.check(config.to_dict())
        run = Training(config, world, where)
        start = run.restore(folder)
        if start < config.steps:
            source = source or open_source(config, where)
            if start == 0:
                run.fit_prior(source)
            source = rows_of(source, *world.rows(config.batch), config.batch)
            if world.is_first:
                folder.claim(config.to_dict())
            world.wait()
            _go(run, source, folder, start, minutes)
        model = run.averaged()
        model.config = config.trained_model()
        if world.is_first:
            folder.write_model(model)
        world.wait()
        return model


def run_training(
    config: TrainConfig, out: Path, *, device: str | None = None, minutes: float | None = None
) -> str | None:
    """Train for the command line; returns what to tell the user."""
    train(config, out, device=device, minutes=minutes)
    if int(os.environ.get("RANK", "0")):
        return None
    folder = RunFolder(out)
    done = folder.numbers()[-1]
    rest = "" if done == config.steps else f" of {config.steps}; the same command goes on"
    return f"{folder.model}: the model after {done} steps{rest}"


class Training:
    """Everything that changes from step to step: weights, optimiser, running average."""

    def __init__(self, config: TrainConfig, world: World, device: torch.device) -> None:
        self.config, self.world, self.device = config, world, device
        self.model = initial_model(config).to(device).train()
        self.model.backbone.eval()
        freeze_norms_of_frozen_parts(self.model)
        if world.size > 1:
            with_shared_norms(self.model)
            world.copy_from_first(self.model)
        head = self.model.head
        self.anchors = corners(head.anchors) if isinstance(head, AnchorHead) else None
        self.optimiser = make_optimiser(self.model, config.optimiser)
        self.names: dict[Tensor, str] = {p: name for name, p in trained(self.model).items()}
        frozen = {name for name, weight in self.model.named_parameters() if not weight.requires_grad}
        # Taken once: training changes these tensors in place.
        self._changing = {
            name: value for name, value in self.model.state_dict().items() if name not in frozen
        }
        self._norm: tuple[int, Tensor] | None = None  # of a step's gradients, not yet looked at
        self.average = RunningAverage(self.changing(), config.ema_decay)

    def changing(self) -> dict[str, Tensor]:
        """Trained weights, and the batch norms' statistics: what a checkpoint holds."""
        return self._changing

    def fit_prior(self, source: Source) -> None:
        """Before the first step, if the config says so; every process fits the same."""
        if self.config.prior_batches:
            assert isinstance(self.model, SimilarityModel)
            fit_prior(self.model, source, self.config.prior_batches, self._precision())
            self.average = RunningAverage(self.changing(), self.config.ema_decay)

    def step(self, number: int, batch: Batch) -> dict[str, float] | None:
        """Learn from one batch (this process's rows); the step's numbers where they are to be logged."""
        config, world = self.config, self.world
        self._check(batch)
        _seed(config.seed, number, world.rank)
        batch = batch.to(self.device)
        turns = self._turns(number, batch)
        self._check_gradients()
        counts = world.total(torch.stack([count(turn[2], config.loss) for turn in turns]).sum(0))
        parts = []
        for part, partners, targets, chosen in turns:
            with self._precision():
                predictions, mined = self._predict(part, partners)
            share = losses(predictions, mined, targets, counts, config.loss, chosen)
            torch.autograd.backward([share.total])
            parts.append(torch.stack([value.detach() for value in share]))
        world.add_gradients(self.names)
        norm = torch.nn.utils.clip_grad_norm_(list(self.names), config.optimiser.clip_norm or torch.inf)
        self._norm = number, norm
        factor = lr_factor(number, warmup_steps=config.optimiser.warmup_steps, steps=config.steps)
        set_lr(self.optimiser, config.optimiser.lr * factor)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.average.update(self.changing(), number)
        if (number + 1) % config.log_every and number + 1 != config.steps:
            return None
        self._check_gradients()
        values = Losses(*world.total(torch.stack(parts).sum(0)))
        numbers = {f"loss_{name}": value.item() for name, value in values._asdict().items()}
        if part.visible.any():
            numbers["iou"] = best_iou(predictions, part)
        return {**numbers, "lr": config.optimiser.lr * factor, "grad_norm": norm.item()}

    def _check_gradients(self) -> None:
        """Of the step before: reading this step's norm now would leave the GPU idle until the next step."""
        if self._norm is None:
            return
        (number, norm), self._norm = self._norm, None
        if not torch.isfinite(norm):
            raise TrainError(
                f"the gradients of step {number} are not finite; begin again in a new folder "
                "with a lower optimiser.lr"
            )

    def _turns(self, number: int, batch: Batch) -> list[Turn]:
        config = self.config
        length = len(batch) // config.accumulate
        first = self.world.rows(config.batch)[0]
        on_gpu = self.device.type == "cuda"
        turns = []
        for begin in range(0, len(batch), length):
            part = batch.rows(begin, begin + length)
            partners = (
                choose_partners(
                    part.unrelated,
                    part.clips.shape[1],
                    config.mining,
                    seed=config.seed,
                    step=number,
                    first_row=first + begin,
                )
                if config.loss.score == "hnm"
                else None
            )
            mined = None if partners is None else partners.mined.to(self.device, non_blocking=on_gpu)
            targets = label(part, self.anchors, config.loss, mined)
            turns.append((part, partners, targets, choose(targets, config.loss)))
        return turns

    def _predict(self, batch: Batch, partners: Partners | None) -> tuple[Predictions, Tensor | None]:
        mixed = torch.is_autocast_enabled(self.device.type)
        weights = next(iter(self.names))
        clips, queries = (x if mixed else x.to(weights.dtype) for x in (batch.clips, batch.queries))
        features, query = self.model.encode_together(
            clips, queries, batch.query_boxes_unit, batch.query_shown_unit
        )
        return localize_with_partners(self.model, features, query, partners)

    def _precision(self) -> AbstractContextManager[object]:
        if self.config.bf16 and self.device.type == "cuda":
            return torch.autocast("cuda", torch.bfloat16)
        return nullcontext()

    def _check(self, batch: Batch) -> None:
        config = self.config.model
        first, last = self.world.rows(self.config.batch)
        if len(batch) != last - first:
            raise TrainError(f"expected {last - first} clips in a batch, the data gives {len(batch)}")
        if not batch.has_pictures and self.config.train_backbone_from_block is not None:
            raise TrainError(
                "a backbone that is trained needs pictures, and this data gives stored features; set "
                "train_backbone_from_block=none, and train the backbone first with the recipe backbone_small"
            )
        if batch.has_pictures:
            kind, channels, side, query_side = "pictures", 3, config.image_size, config.query_size
        else:
            kind, channels, side, query_side = (
                "features",
                config.backbone.channels,
                config.side,
                config.query_side,
            )
        for what, given, wanted in (
            (kind, batch.clips.shape[2:], [channels, side, side]),
            ("queries", batch.queries.shape[1:], [len(config.query_scales), channels, *2 * [query_side]]),
        ):
            if list(given) != wanted:
                raise TrainError(f"expected {what} of {wanted}, the data gives {list(given)}")

    # --- what is kept ---

    def checkpoint(self) -> Checkpoint:
        self._check_gradients()
        return Checkpoint(
            {
                "model": self.changing(),
                "ema": self.average.tensors,
                "optimizer": optimiser_tensors(self.optimiser, self.names),
            },
            {"seed": self.config.seed, "frozen_sha256": self._frozen_fingerprint()},
        )

    def restore(self, folder: RunFolder) -> int:
        """Number of steps that are done."""
        found = folder.latest()
        if found is None:
            return 0
        step, (tensors, state) = found
        if state["frozen_sha256"] != self._frozen_fingerprint():
            raise TrainError(f"{folder.root} was trained on another backbone; give the file it began with")
        self.model.load_state_dict({**self.model.state_dict(), **tensors["model"]})
        self.average.restore(tensors["ema"])
        restore_optimiser(self.optimiser, self.names, tensors["optimizer"])
        return step

    def averaged(self) -> TrainedModel:
        """A model of its own with the averaged weights."""
        self._check_gradients()
        model = make_model(self.config.model)
        model.load_state_dict({**self.model.state_dict(), **self.average.tensors})
        return model.to(self.device).eval()

    def _frozen_fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name, parameter in sorted(self.model.named_parameters()):
            if not parameter.requires_grad:
                digest.update(name.encode() + parameter.detach().cpu().numpy().tobytes())
        return digest.hexdigest()


def _go(run: Training, source: Source, folder: RunFolder, start: int, minutes: float | None) -> None:
    config, world = run.config, run.world
    log = None
    if world.is_first:
        log = RunLog(folder.log, steps=config.steps, start=start, tensorboard=config.tensorboard)
        if 0 < start < config.steps:
            log.say(f"going on after step {start}")
    began = logged = time.monotonic()
    for number in range(start, config.steps):
        numbers = run.step(number, source.batch(number))
        done = number + 1
        now = time.monotonic()
        if numbers is not None and log is not None:
            steps = min(config.log_every, done - start)
            log.write(done, {**numbers, "clips_per_s": steps * config.batch / (now - logged)})
            logged = now
        over = minutes is not None and world.agree(now - began > 60 * minutes, run.device)
        if world.is_first and (over or done == config.steps or done % config.checkpoint_every == 0):
            folder.save(done, run.checkpoint())
        if over:
            break
    if log is not None:
        log.close()


def best_iou(predictions: Predictions, batch: Batch) -> float:
    """Mean overlap of the likeliest boxes with the truth, where there is one."""
    boxes = predictions.best().boxes.detach().float()
    return iou(boxes, batch.boxes_unit)[batch.visible].mean().item()


def _check_split(config: TrainConfig, world: World) -> None:
    parts = world.size * config.accumulate
    group = config.mining.group if config.mining.pairs_per_query and config.loss.score == "hnm" else 1
    if config.batch % (parts * group):
        raise TrainError(
            f"a batch of {config.batch} cannot be split over {world.size} processes and {config.accumulate} "
            f"turns in groups of {group} (mining.group); make it a multiple of {parts * group}"
        )


def _seed(seed: int, step: int, rank: int) -> None:
    """Dropout's randomness is a function of the step, so a checkpoint need not hold it."""
    torch.manual_seed(int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1))


def _own_randomness(device: torch.device) -> AbstractContextManager[object]:
    """Seeds set inside do not reach the caller."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])

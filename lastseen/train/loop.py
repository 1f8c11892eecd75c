"""The training loop: steps, logs, checkpoints. The same command goes on where an earlier one stopped.

Going on is exact: weights, optimiser and averages are restored from the checkpoint, and all that is random
(data, partners, dropout) is a function of the seed and the step, so nothing else needs to be remembered.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

from lastseen.engine.devices import best_device, checked_device
from lastseen.errors import TrainError
from lastseen.model import TrainedModel
from lastseen.train.batch import Source
from lastseen.train.checkpoint import RunFolder
from lastseen.train.distributed import World, joined
from lastseen.train.initialise import open_source, rows_of
from lastseen.train.log import RunLog
from lastseen.train.recipes import TrainConfig
from lastseen.train.rounds import Rounds
from lastseen.train.training import Training

Watch = Callable[[TrainedModel], Mapping[str, float]]


def train(
    config: TrainConfig,
    out: str | os.PathLike[str],
    *,
    source: Source | None = None,
    device: str | torch.device | None = None,
    minutes: float | None = None,
    watch: Watch | None = None,
    watch_every: int = 1000,
) -> TrainedModel:
    """Train, or go on training, in the folder `out`; returns the model with averaged weights.

    `source` takes the place of the config's data. `minutes` is a budget: training stops when it is used up,
    with a checkpoint from which the same call goes on. `watch` judges the averaged model every `watch_every`
    steps; what it says is a line of the log.
    """
    where = best_device() if device is None else checked_device(device)
    with joined(where) as (world, where), _own_randomness(where):
        _check_split(config, world)
        folder = RunFolder(out, keep=config.keep)
        folder.check(config.to_dict())
        run = Training(config, world, where)
        start = run.restore(folder)
        if start < config.steps:
            with _opened(source, config, where) as whole:
                if start == 0:
                    run.fit_prior(whole)
                rows = rows_of(whole, *world.rows(config.batch), config.batch)
                if world.is_first:
                    folder.claim(config.to_dict())
                world.wait()
                _go(run, rows, folder, start, minutes, watch, watch_every)
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


@contextmanager
def _opened(source: Source | None, config: TrainConfig, device: torch.device) -> Iterator[Source]:
    """The source, or that of the config; what renders in the background ends with training."""
    source = open_source(config, device) if source is None else source
    try:
        yield source
    finally:
        if isinstance(source, Rounds):
            source.close()


def _go(
    run: Training,
    source: Source,
    folder: RunFolder,
    start: int,
    minutes: float | None,
    watch: Watch | None,
    watch_every: int,
) -> None:
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
        if watch is not None and log is not None and (done % watch_every == 0 or done == config.steps):
            log.write(done, watch(run.averaged()))
            logged = time.monotonic()
        over = minutes is not None and world.agree(now - began > 60 * minutes, run.device)
        if world.is_first and (over or done == config.steps or done % config.checkpoint_every == 0):
            folder.save(done, run.checkpoint())
        if over:
            break
    if log is not None:
        log.close()


def _check_split(config: TrainConfig, world: World) -> None:
    parts = world.size * config.accumulate
    group = config.mining.group if config.mining.pairs_per_query and config.loss.score == "hnm" else 1
    if config.batch % (parts * group):
        raise TrainError(
            f"a batch of {config.batch} cannot be split over {world.size} processes and {config.accumulate} "
            f"turns in groups of {group} (mining.group); make it a multiple of {parts * group}"
        )


def _own_randomness(device: torch.device) -> AbstractContextManager[object]:
    """Seeds set inside do not reach the caller."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])

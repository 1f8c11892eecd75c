"""Training the rivals: the proposals once, then each rival with the same number of clips.

    proposals -> siamrcnn (head alone), nfm and cocoformer (everything, the detector at a tenth of the rate)
    stark, stark-positions: on whole clips, on stored features

A clip is one draw of a query and a walk. A run goes on exactly where it stopped: what is drawn depends on the
seed and the step, and weights and momentum are in the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lastseen.baselines.cocoformer import CocoFormer
from lastseen.baselines.detector import RivalDetector
from lastseen.baselines.nfm import DETECTOR_LR_FACTOR
from lastseen.baselines.siamrcnn import SiamRCNN
from lastseen.baselines.stark import Stark
from lastseen.baselines.stored import Rival
from lastseen.errors import TrainError
from lastseen.train.batch import Source
from lastseen.train.checkpoint import Checkpoint, RunFolder
from lastseen.train.log import RunLog
from lastseen.train.optimiser import lr_factor, optimiser_tensors, restore_optimiser, set_lr, trained
from lastseen.train.rival_data import RivalData
from lastseen.train.rival_losses import is_head_only, pairs_loss, proposals_loss, stark_loss

StepLoss = Callable[[int, torch.Generator], tuple[Tensor, dict[str, Tensor]]]
DROPS = (0.4, 0.8)  # shares of the steps after which a detector's rate falls to a tenth


@dataclass(frozen=True, kw_only=True)
class RivalTraining:
    """The originals' by default, but for the number of steps and the warm-up, which is shorter with it."""

    steps: int
    batch: int  # clips of a step
    lr: float = 0.02
    weight_decay: float = 1e-4
    clip_norm: float = 20.0
    seed: int = 0
    log_every: int = 50
    checkpoint_every: int = 500

    @property
    def warmup_steps(self) -> int:
        return min(1000, max(1, self.steps // 10))


def train_detector(
    model: RivalDetector,
    data: RivalData,
    config: RivalTraining,
    out: Path,
    *,
    minutes: float | None = None,
) -> bool:
    """The proposals of a plain RivalDetector, or a rival with its head. Whether all steps are done."""
    if type(model) is RivalDetector:
        freeze(model, keep=("pyramid", "proposer"))

        def loss(step: int, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
            return proposals_loss(model, data.frames(step, config.batch), generator)
    else:
        assert isinstance(model, SiamRCNN | CocoFormer)
        rival = model
        freeze(rival, keep=("projector", "compare") if is_head_only(rival) else ())

        def loss(step: int, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
            pairs = data.pairs(step, config.batch, negatives=not is_head_only(rival))
            return pairs_loss(rival, pairs, generator)

    groups: dict[float, list[nn.Parameter]] = {}
    whole = type(model) is not RivalDetector and not is_head_only(model)
    for name, parameter in trained(model).items():
        in_detector = whole and name.split(".")[0] in ("backbone", "pyramid", "proposer")
        groups.setdefault(DETECTOR_LR_FACTOR if in_detector else 1.0, []).append(parameter)
    optimiser = torch.optim.SGD(
        [{"params": parameters, "factor": factor} for factor, parameters in groups.items()],
        lr=config.lr,
        momentum=0.9,
        weight_decay=config.weight_decay,
    )
    return _train(model, optimiser, loss, config, out, stepped_factor, minutes)


def train_stark(
    model: Stark, source: Source, config: RivalTraining, out: Path, *, minutes: float | None = None
) -> bool:
    """Clips are stored features of the frozen backbone (`FeatureStore`)."""
    device = next(model.parameters()).device

    def loss(step: int, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return stark_loss(model, source.batch(step).to(device))

    freeze(model, keep=("reduce", "encoder", "frames", "decoder", "output", "corner"))
    parameters = list(trained(model).values())
    optimiser = torch.optim.AdamW(
        [{"params": parameters, "factor": 1.0}], lr=config.lr, weight_decay=config.weight_decay
    )
    return _train(model, optimiser, loss, config, out, linear_factor, minutes)


def start_from(model: RivalDetector, proposals: Mapping[str, Tensor]) -> None:
    """Backbone, pyramid and proposer of the first stage; the head and the projector are new."""
    own = model.state_dict()
    taken = {
        name: value
        for name, value in proposals.items()
        if name.split(".")[0] in ("backbone", "pyramid", "proposer")
    }
    missing = [
        name
        for name in own
        if name.split(".")[0] in ("backbone", "pyramid", "proposer") and name not in taken
    ]
    if missing:
        raise TrainError(f"the proposals' weights are of another model: no {missing[0]} in them")
    model.load_state_dict({**own, **taken})


def freeze(model: nn.Module, keep: tuple[str, ...]) -> None:
    """Train the named parts alone; all if none is named."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not keep or name.split(".")[0] in keep)


def stepped_factor(step: int, config: RivalTraining) -> float:
    """Share of the rate at a step: linear warm-up, then a tenth of it after each of DROPS."""
    warm = min(1.0, (step + 1) / config.warmup_steps)
    return warm * 0.1 ** sum(step >= share * config.steps for share in DROPS)


def linear_factor(step: int, config: RivalTraining) -> float:
    return lr_factor(step, warmup_steps=config.warmup_steps, steps=config.steps)


def _train(
    model: Rival,
    optimiser: torch.optim.Optimizer,
    loss: StepLoss,
    config: RivalTraining,
    out: Path,
    factor: Callable[[int, RivalTraining], float],
    minutes: float | None,
) -> bool:
    device = next(model.parameters()).device
    names: dict[Tensor, str] = {parameter: name for name, parameter in trained(model).items()}
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    folder = RunFolder(out, keep=1)
    described: dict[str, Any] = {"model": model.config.to_dict(), "training": asdict(config)}
    folder.check(described)
    start = 0
    if (found := folder.latest()) is not None:
        start, (tensors, _) = found
        model.load_state_dict({**model.state_dict(), **tensors["model"]})
        restore_optimiser(optimiser, names, tensors["optimizer"])
    if start >= config.steps:
        model.eval()
        return True
    folder.claim(described)
    log = RunLog(folder.log, steps=config.steps, start=start)
    model.train()
    model.backbone.eval()
    began = time.monotonic()
    done = start
    for step in range(start, config.steps):
        generator = torch.Generator(device).manual_seed(config.seed * 1_000_003 + step)
        with torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext():
            total, numbers = loss(step, generator)
        torch.autograd.backward([total])
        norm = torch.nn.utils.clip_grad_norm_(list(names), config.clip_norm)
        set_lr(optimiser, config.lr * factor(step, config))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        done = step + 1
        if done % config.log_every == 0 or done == config.steps:
            values = {name: float(value) for name, value in numbers.items()}
            if not torch.isfinite(norm):
                raise TrainError(f"the gradients of step {step} are not finite; begin again with a lower lr")
            log.write(done, {**values, "grad_norm": float(norm), "s": time.monotonic() - began})
        over = minutes is not None and time.monotonic() - began > 60 * minutes
        if over or done == config.steps or done % config.checkpoint_every == 0:
            changing = {name: value for name, value in model.state_dict().items() if name not in frozen}
            tensors = {"model": changing, "optimizer": optimiser_tensors(optimiser, names)}
            folder.save(done, Checkpoint(tensors, {}))
        if over:
            break
    log.close()
    model.eval()
    return done == config.steps

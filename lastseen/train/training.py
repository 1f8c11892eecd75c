"""What changes from step to step of a run: weights, optimiser, averages; and how a step changes them.

A run of VQLoC may begin with a warm-up (`TrainConfig.dense`), in which the correspondence alone learns which
patches show the thing; the paper's losses follow.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from lastseen.errors import TrainError
from lastseen.model import EncodedQuery, Predictions, SimilarityModel, TrainedModel, VQLoC
from lastseen.model.head import AnchorHead, corners
from lastseen.train.batch import Batch, Source
from lastseen.train.checkpoint import Checkpoint, RunFolder
from lastseen.train.dense import (
    DenseHead,
    DenseTargets,
    dense_count,
    dense_loss,
    dense_targets,
    some_frames,
)
from lastseen.train.distributed import World, with_shared_norms
from lastseen.train.initialise import freeze_norms_of_frozen_parts, initial_model
from lastseen.train.loss import Chosen, Targets, choose, count, iou, label, losses
from lastseen.train.mining import (
    MiningConfig,
    Partners,
    choose_partners,
    localize_with_partners,
    with_partners,
)
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
DENSE = "dense"  # of names of the auxiliary head's weights


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
        self.dense: DenseHead | None = None
        self._correspondence: list[Tensor] = []  # of the forward pass that is under way
        if config.dense.is_used:
            self.dense = DenseHead(config.model.dim).to(device)
            assert isinstance(self.model, VQLoC)
            self.model.correspondence.register_forward_hook(self._keep_correspondence)
        beside = {} if self.dense is None else {DENSE: self.dense}
        self.optimiser = make_optimiser(self.model, config.optimiser, beside)
        self.names: dict[Tensor, str] = {p: name for name, p in trained(self.model, beside).items()}
        frozen = {name for name, weight in self.model.named_parameters() if not weight.requires_grad}
        # Taken once: training changes these tensors in place.
        self._changing = {
            name: value for name, value in self.model.state_dict().items() if name not in frozen
        }
        self._norm: tuple[int, Tensor] | None = None  # of a step's gradients, not yet looked at
        self._last: tuple[Predictions, Batch] | None = None  # of the last turn with the paper's losses
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
        backward = self._backward_dense if number < config.dense.steps else self._backward
        shares = backward(number, batch)
        # The same weights have a gradient in all processes: which ones depends on the stage alone.
        world.add_gradients([weight for weight in self.names if weight.grad is not None])
        norm = torch.nn.utils.clip_grad_norm_(list(self.names), config.optimiser.clip_norm or torch.inf)
        self._norm = number, norm
        rate = self.rate(number)
        set_lr(self.optimiser, rate)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.average.update(self.changing(), number)
        if (number + 1) % config.log_every and number + 1 != config.steps:
            return None
        self._check_gradients()
        values = zip(shares, world.total(torch.stack(list(shares.values()))).tolist())
        numbers = {f"loss_{name}": value for name, value in values}
        if self._last is not None and self._last[1].visible.any():
            numbers["iou"] = best_iou(*self._last)
        return {**numbers, "lr": rate, "grad_norm": norm.item()}

    def rate(self, number: int) -> float:
        """The learning rate of a step: each stage warms up and falls to nothing."""
        dense, optimiser = self.config.dense, self.config.optimiser
        if number < dense.steps:
            return dense.peak_lr * lr_factor(number, warmup_steps=dense.warmup_steps, steps=dense.steps)
        done, steps = number - dense.steps, self.config.steps - dense.steps
        return optimiser.lr * lr_factor(done, warmup_steps=optimiser.warmup_steps, steps=steps)

    def _backward(self, number: int, batch: Batch) -> dict[str, Tensor]:
        """Gradients of the paper's losses, with the dense term if there is one; this process's shares."""
        config = self.config
        turns = self._turns(number, batch)
        self._check_gradients()
        counts = self.world.total(torch.stack([count(turn[2], config.loss) for turn in turns]).sum(0))
        beside = [self._dense_targets(part, partners) for part, partners, *_ in turns if config.dense.weight]
        patches = self._patches(beside)
        shares: list[dict[str, Tensor]] = []
        for place, (part, partners, targets, chosen) in enumerate(turns):
            with self._precision():
                predictions, mined = self._predict(part, partners)
            share = losses(predictions, mined, targets, counts, config.loss, chosen)._asdict()
            if config.dense.weight:
                share["dense"] = self._dense_loss(self._correspondence.pop(), beside[place], patches)
                share["total"] = share["total"] + config.dense.weight * share["dense"]
            torch.autograd.backward([share["total"]])
            shares.append({name: value.detach() for name, value in share.items()})
        self._last = predictions, part
        return _sum(shares)

    def _backward_dense(self, number: int, batch: Batch) -> dict[str, Tensor]:
        """Gradients of the warm-up: single frames of each clip, and of another one, with the clip's query."""
        config, frames = self.config, self.config.dense.frames
        mining = MiningConfig(
            pairs_per_query=min(1, config.mining.group - 1), mined_frames=frames, group=config.mining.group
        )
        turns = []
        for begin, part in self._parts(batch):
            row = self.world.rows(config.batch)[0] + begin
            some = some_frames(part, frames, seed=config.seed, step=number, first_row=row)
            time = some.clips.shape[1]
            partners = choose_partners(
                some.unrelated, time, mining, seed=config.seed, step=number, first_row=row
            )
            turns.append((some, partners, self._dense_targets(some, partners)))
        self._check_gradients()
        patches = self._patches([turn[2] for turn in turns])
        shares = []
        for part, partners, targets in turns:
            with self._precision():
                features, query = self._encoded(part)
                self.model.correspondence(with_partners(features, partners)[0], query)
            loss = self._dense_loss(self._correspondence.pop(), targets, patches)
            torch.autograd.backward([loss])
            shares.append({"total": loss.detach()})
        self._last = None
        return _sum(shares)

    def _dense_targets(self, batch: Batch, partners: Partners | None) -> DenseTargets:
        mined = None if partners is None else partners.mined.to(self.device)
        return dense_targets(batch, self.config.model.side, mined)

    def _patches(self, targets: list[DenseTargets]) -> Tensor:
        """How many patches the dense loss of the whole step is a mean over."""
        if not targets:
            return torch.ones((), device=self.device)
        return self.world.total(torch.stack([dense_count(part) for part in targets]).sum())

    def _dense_loss(self, correspondence: Tensor, targets: DenseTargets, patches: Tensor) -> Tensor:
        assert self.dense is not None
        with self._precision():
            logits = self.dense(correspondence)
        return dense_loss(logits, targets, patches, self.config.dense)

    def _keep_correspondence(self, _module: nn.Module, _given: object, made: Tensor) -> None:
        self._correspondence = [made]

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

    def _parts(self, batch: Batch) -> list[tuple[int, Batch]]:
        """The turns' rows, and which row of this process's is their first."""
        length = len(batch) // self.config.accumulate
        return [(begin, batch.rows(begin, begin + length)) for begin in range(0, len(batch), length)]

    def _turns(self, number: int, batch: Batch) -> list[Turn]:
        config = self.config
        first = self.world.rows(config.batch)[0]
        on_gpu = self.device.type == "cuda"
        turns = []
        for begin, part in self._parts(batch):
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

    def _encoded(self, batch: Batch) -> tuple[Tensor, EncodedQuery]:
        mixed = torch.is_autocast_enabled(self.device.type)
        weights = next(iter(self.names))
        clips, queries = (x if mixed else x.to(weights.dtype) for x in (batch.clips, batch.queries))
        return self.model.encode_together(clips, queries, batch.query_boxes_unit, batch.query_shown_unit)

    def _predict(self, batch: Batch, partners: Partners | None) -> tuple[Predictions, Tensor | None]:
        return localize_with_partners(self.model, *self._encoded(batch), partners)

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
        tensors = {
            "model": self.changing(),
            "ema": self.average.tensors,
            "optimizer": optimiser_tensors(self.optimiser, self.names),
        }
        if self.dense is not None:
            tensors[DENSE] = self.dense.state_dict()
        state = {"seed": self.config.seed, "frozen_sha256": self._frozen_fingerprint()}
        return Checkpoint(tensors, state)

    def restore(self, folder: RunFolder) -> int:
        """Number of steps that are done."""
        found = folder.latest()
        if found is None:
            return 0
        step, (tensors, state) = found
        if state["frozen_sha256"] != self._frozen_fingerprint():
            raise TrainError(f"{folder.root} was trained on another backbone; give the file it began with")
        self.model.load_state_dict({**self.model.state_dict(), **tensors["model"]})
        if self.dense is not None:
            self.dense.load_state_dict(dict(tensors[DENSE]))
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


def best_iou(predictions: Predictions, batch: Batch) -> float:
    """Mean overlap of the likeliest boxes with the truth, where there is one."""
    boxes = predictions.best().boxes.detach().float()
    return iou(boxes, batch.boxes_unit)[batch.visible].mean().item()


def _seed(seed: int, step: int, rank: int) -> None:
    """Dropout's randomness is a function of the step, so a checkpoint need not hold it."""
    torch.manual_seed(int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1))


def _sum(shares: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([share[name] for share in shares]).sum(0) for name in shares[0]}

"""Recipes: functions that return a complete config. What is trained, on what and for how long, in one place.

`RECIPES` names them for the command line, each with the function that runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lastseen.errors import TrainError
from lastseen.model import VIT_S, BackboneConfig, VQLoCConfig
from lastseen.train.backbone_stage import MatchingConfig
from lastseen.train.feature_store import SynthData
from lastseen.train.files_data import FilesData
from lastseen.train.loss import LossConfig
from lastseen.train.mining import MiningConfig
from lastseen.train.optimiser import OptimiserConfig
from lastseen.train.toy import ToyData

RANDOM = "random"


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All that decides about a training run; two runs of one config are the same run."""

    model: VQLoCConfig
    data: FilesData | SynthData | ToyData
    steps: int
    batch: int  # clips in a step, over all processes
    accumulate: int = 1  # turns in which a step is computed, to save memory
    seed: int = 0
    backbone: str | None = None  # a weights file; none: the bundled one; "random": untrained
    start: str | None = None  # a model folder to go on from, its backbone too; none: new heads
    train_only: tuple[str, ...] = ()  # what learns, by the beginnings of its names; none: all heads
    train_backbone_from_block: int | None = None  # none: all frozen, as in the paper
    heads_say: float | None = None  # the trained model's, if other than while it was trained
    loss: LossConfig = field(default_factory=LossConfig)
    mining: MiningConfig = field(default_factory=MiningConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    dropout: float = 0.2  # in the head
    ema_decay: float = 0.999  # of the running average of the weights, which is what is saved in the end
    bf16: bool = True  # mixed precision; on GPUs only
    log_every: int = 50  # steps
    checkpoint_every: int = 1000  # steps
    keep: int = 2  # checkpoints
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate", "log_every", "checkpoint_every", "keep"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1 or not 0 <= self.ema_decay < 1:
            raise ValueError(f"dropout and ema_decay must be in [0, 1), got {self.dropout}, {self.ema_decay}")
        self.trained_model()  # says if heads_say is not possible

    def trained_model(self) -> VQLoCConfig:
        """What the trained model is."""
        return self.model if self.heads_say is None else replace(self.model, heads_say=self.heads_say)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "data": {"kind": type(self.data).__name__, **asdict(self.data)}}


@dataclass(frozen=True, kw_only=True)
class BackboneRun:
    """Teaching a backbone to match, before heads are trained on it."""

    matching: MatchingConfig = MatchingConfig()
    data: SynthData = SynthData()
    backbone: str | None = None  # a weights file to begin with; none: the bundled one

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def vqloc_base() -> TrainConfig:
    """The paper's model and schedule: ViT-B/14 at 448 px on annotated videos. Needs a ViT-B/14 file."""
    return TrainConfig(model=VQLoCConfig(), data=FilesData(), steps=60_000, batch=24)


def vqloc_small() -> TrainConfig:
    """The same with ViT-S/14, the bundled backbone: a third of the cost."""
    return TrainConfig(model=VQLoCConfig(backbone=_bundled()), data=FilesData(), steps=60_000, batch=24)


def synth_small() -> TrainConfig:
    """Heads on the synthetic world, on top of what backbone_small made (--set backbone=FILE)."""
    return TrainConfig(
        model=VQLoCConfig(
            backbone=_bundled(depth=8, blocks=(7,), final_norm=False),
            fusion="match",
            match_dim=384,  # all: a projection to 128 lost answers (experiments/LOG.md)
            query_shares=(1.0, 0.5, 0.25),
            query_size=224,
            mask_query=True,
            query_background=0.7,  # boxes on real video are less wide (experiments/LOG.md)
            fine=True,
            dim=128,
        ),
        data=SynthData(photo_share=0.5),
        heads_say=0.25,  # best in rendered and in real video: docs/results.md
        steps=20_000,
        batch=64,
        optimiser=OptimiserConfig(lr=8e-4, warmup_steps=200),
    )


def backbone_small() -> BackboneRun:
    """The bundled backbone's first eight blocks, taught to match on the synthetic world and photographs."""
    return BackboneRun()


def tiny() -> TrainConfig:
    """A model of seconds on toy data, to try the command and for tests; it learns nothing of use."""
    return TrainConfig(
        model=VQLoCConfig(
            backbone=BackboneConfig(dim=32, depth=1, heads=2), image_size=112, clip_length=4, dim=32
        ),
        data=ToyData(),
        backbone=RANDOM,
        steps=20,
        batch=4,
        mining=MiningConfig(group=2, mined_frames=2),
        optimiser=OptimiserConfig(lr=1e-3, warmup_steps=5),
        log_every=5,
        checkpoint_every=10,
    )


def _bundled(
    depth: int = VIT_S.depth, blocks: tuple[int, ...] = (-1,), final_norm: bool = True
) -> BackboneConfig:
    """The bundled backbone's shape, perhaps without its last blocks."""
    return BackboneConfig(
        dim=VIT_S.dim, depth=depth, heads=VIT_S.heads, registers=4, blocks=blocks, final_norm=final_norm
    )


@dataclass(frozen=True)
class Recipe:
    """`run(config, out, device=, minutes=)` returns what to tell the user, None for nothing."""

    make: Callable[[], Any]
    run: Callable[..., str | None]

    @property
    def about(self) -> str:
        return (self.make.__doc__ or "").splitlines()[0]


def _run_training(
    config: TrainConfig, out: Path, *, device: str | None = None, minutes: float | None = None
) -> str | None:
    from lastseen.train.loop import run_training

    return run_training(config, out, device=device, minutes=minutes)


def _run_matching(
    config: BackboneRun, out: Path, *, device: str | None = None, minutes: float | None = None
) -> str | None:
    from lastseen.train.teach import run_matching

    return run_matching(config.matching, config.data, config.backbone, config.to_dict(), out, device, minutes)


RECIPES = {
    "backbone_small": Recipe(backbone_small, _run_matching),
    **{make.__name__: Recipe(make, _run_training) for make in (synth_small, vqloc_base, vqloc_small, tiny)},
}


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise TrainError(f"unknown recipe {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]

"""Recipes: functions that return a complete config. What is trained, on what and for how long, in one place.

`RECIPES` names them for the command line, each with the function that runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lastseen.errors import TrainError
from lastseen.model import VIT_S, BackboneConfig, SimilarityConfig, TrainedConfig, VQLoCConfig
from lastseen.train.backbone_stage import BackboneStageConfig
from lastseen.train.dense import DenseConfig
from lastseen.train.feature_store import SynthData
from lastseen.train.files_data import FilesData
from lastseen.train.loss import LossConfig
from lastseen.train.mining import MiningConfig
from lastseen.train.optimiser import OptimiserConfig
from lastseen.train.toy import ToyData

# Of `backbone`, in place of a file: untrained, or the one of the bundled model, which was trained here.
RANDOM, BUNDLED_MODEL = "random", "bundled-model"
USUAL, COMPARE = "usual", "compare"  # of `first_weights`


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that determines a training run; two runs of one config give the same weights."""

    model: VQLoCConfig | SimilarityConfig
    data: FilesData | SynthData | ToyData
    steps: int
    batch: int  # clips in a step, over all processes
    accumulate: int = 1  # turns in which a step is computed, to save memory
    seed: int = 0
    backbone: str | None = None  # a weights file; none: DINOv2's, bundled; "bundled-model"; "random"
    first_weights: str = USUAL  # or "compare": VQLoC begins by telling what looks like the query
    init_from: str | None = (
        None  # a model folder with the initial weights, backbone included; none: random heads
    )
    train_only: tuple[
        str, ...
    ] = ()  # prefixes of parameter names that are trained; none: all but the backbone
    train_backbone_from_block: int | None = None  # none: all frozen, as in the paper
    head_score_weight: float | None = None  # of the saved model, if another than in training
    prior_batches: int = 0  # on which a similarity-map model's prior is fitted before the first step
    loss: LossConfig = field(default_factory=LossConfig)
    mining: MiningConfig = field(default_factory=MiningConfig)
    dense: DenseConfig = field(default_factory=DenseConfig)  # of VQLoC only
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
        if self.prior_batches < 0 or (self.prior_batches and not isinstance(self.model, SimilarityConfig)):
            raise ValueError("prior_batches is of similarity-map models only, 0 or more")
        if self.first_weights not in (USUAL, COMPARE):
            raise ValueError(f"first_weights must be {USUAL} or {COMPARE}, got {self.first_weights!r}")
        if not isinstance(self.model, VQLoCConfig) and (self.first_weights == COMPARE or self.dense.is_used):
            raise ValueError("first_weights=compare and dense supervision are of VQLoC only")
        if self.dense.steps >= self.steps:
            raise ValueError(f"dense.steps are of the {self.steps} steps; leave some, got {self.dense.steps}")
        if not 0 <= self.dropout < 1 or not 0 <= self.ema_decay < 1:
            raise ValueError(f"dropout and ema_decay must be in [0, 1), got {self.dropout}, {self.ema_decay}")
        self.trained_model()

    def trained_model(self) -> TrainedConfig:
        """The config of the model that is saved in the end."""
        if self.head_score_weight is None:
            return self.model
        if not isinstance(self.model, SimilarityConfig):
            raise ValueError("head_score_weight is of similarity-map models only; leave it out")
        return replace(self.model, head_score_weight=self.head_score_weight)

    def to_dict(self) -> dict[str, Any]:
        data = {"kind": type(self.data).__name__, **asdict(self.data)}
        return {**asdict(self), "model": self.model.to_dict(), "data": data}


@dataclass(frozen=True, kw_only=True)
class BackboneRun:
    """A run of the backbone stage, before heads are trained on its result."""

    stage: BackboneStageConfig = BackboneStageConfig()
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
    """The similarity-map model on the synthetic world, with backbone_small's file (--set backbone=FILE)."""
    return TrainConfig(
        model=SimilarityConfig(
            backbone=_bundled(depth=8, blocks=(7,), final_norm=False), coverage_windows=(0.5, 1.0, 2.0)
        ),
        data=SynthData(photo_share=0.5),
        prior_batches=8,
        head_score_weight=0.25,  # best in rendered and in real video: docs/results.md
        steps=20_000,
        batch=64,
        optimiser=OptimiserConfig(lr=8e-4, warmup_steps=200),
    )


def vqloc_synth() -> TrainConfig:
    """The paper's network, heads 256 wide, on the synthetic world and the bundled model's backbone."""
    return TrainConfig(
        model=VQLoCConfig(
            backbone=_bundled(depth=8, blocks=(7,), final_norm=False),
            # A thing that fills 448 px and is 40 px in the frame is another thing to a patch.
            query_scales=(0.25,),
            masked_query=True,
        ),
        data=SynthData(
            walks=70,
            photos=90,
            photo_share=0.5,
            same_walk_query_share=0.3,
            swap_share=0.5,
            round_steps=2500,
            workers_beside=3,
            fresh_share=0.5,
        ),
        backbone=BUNDLED_MODEL,
        first_weights=COMPARE,
        steps=20_500,
        batch=32,
        dense=DenseConfig(steps=500, weight=1.0),
        loss=LossConfig(consistency_weight=0.1),
        optimiser=OptimiserConfig(lr=3e-4, warmup_steps=300),
        checkpoint_every=500,
    )


def backbone_small() -> BackboneRun:
    """The bundled backbone's first eight blocks, trained on patch correspondences (synthetic, photos)."""
    return BackboneRun()


def tiny() -> TrainConfig:
    """A model that trains in seconds on toy data, to try the command and for tests."""
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
    """The bundled backbone's shape, optionally without its last blocks."""
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


def _run_backbone_stage(
    config: BackboneRun, out: Path, *, device: str | None = None, minutes: float | None = None
) -> str | None:
    from lastseen.train.run_backbone_stage import run_backbone_stage

    return run_backbone_stage(
        config.stage, config.data, config.backbone, config.to_dict(), out, device, minutes
    )


RECIPES = {
    "backbone_small": Recipe(backbone_small, _run_backbone_stage),
    **{
        make.__name__: Recipe(make, _run_training)
        for make in (synth_small, vqloc_synth, vqloc_base, vqloc_small, tiny)
    },
}


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise TrainError(f"unknown recipe {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]

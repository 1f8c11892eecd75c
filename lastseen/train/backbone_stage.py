"""The backbone stage: contrastive training on patch correspondences, before heads are trained.

The paper freezes DINOv2. Our smaller backbone, trained for minutes on true correspondences across views,
sizes and lighting, tells one thing from others far better, and without its last blocks.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from safetensors.torch import save_file
from torch import Tensor, nn

from lastseen.errors import TrainError
from lastseen.files import whole_file
from lastseen.model import Backbone
from lastseen.model.inputs import normalised
from lastseen.train.checkpoint import Checkpoint, RunFolder
from lastseen.train.log import RunLog
from lastseen.train.optimiser import adamw, lr_factor, optimiser_tensors, restore_optimiser, set_lr
from lastseen.train.pairs import IGNORED, RIGHT, WRONG, Pairs, PhotoPairs, WalkPairs, photometric_jitter
from lastseen.train.soft_coverage import coverage_loss, neighbouring_frames, soft_coverage

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class BackboneStageConfig:
    depth: int = 8  # blocks that are kept
    first_block: int = 2  # that is trained; those before it are frozen
    steps: int = 1500
    groups: int = 2  # in a step; every query of a group is compared with all frames of the group
    frames: int = 32  # of a group, each with two queries: enough for hard negatives
    photo_share: float = 0.35  # of groups made of photographs
    lr: float = 8e-5
    weight_decay: float = 0.01
    warmup_steps: int = 50
    clip_norm: float = 1.0
    query_scales: tuple[float, ...] = (1.0, 0.5, 0.25)  # the thing's share of the side of each query crop
    tokens: int = 24  # of a query that each patch is compared with
    hardest: int = 192  # wrong patches of each query that count
    coverage_weight: float = 1.0  # of the coverage loss
    coverage_frames: int = 8  # of a group that coverage of a query is computed in, its own among them
    pull_to_start: float = 2.0  # decay towards the initial weights, so that what they know is not unlearnt
    seed: int = 0
    log_every: int = 50
    checkpoint_every: int = 500


class PatchScorer(nn.Module):
    """Logits of patches from their cosines with a query's patches: soft maximum plus cosine with the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.bias = nn.Parameter(torch.tensor(-8.0))
        self.coverage_scale = nn.Parameter(torch.tensor(math.log(20.0)))
        self.coverage_bias = nn.Parameter(torch.tensor(-10.0))

    def forward(self, frames: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors [G, n, c] of patches and [G, q, k, c] of queries -> logits [G, q, n] and cosines
        [G, q, n, k]"""
        sharpness = 15.0
        cosine = torch.einsum("gnc,gqkc->gqnk", frames, queries)
        best = torch.logsumexp(sharpness * cosine.float(), -1) - math.log(queries.shape[2])
        mean = F.normalize(queries.float().mean(2), dim=-1).to(frames.dtype)
        to_mean = torch.einsum("gnc,gqc->gqn", frames, mean).float()
        return self.scale.exp() * (best / sharpness + to_mean) + self.bias, cosine

    def covered(self, cosine: Tensor, near: Tensor, shape: torch.Size) -> Tensor:
        """Cosines [G, q, f h w, k] and some frames near [G, q, n] of each query -> logits of their coverage
        [G, q, n, h, w]; `shape` is [.., f, h, w]"""
        frames, rows, columns = shape[-3:]
        chosen = rearrange(cosine, "g q (f s) k -> g q f s k", f=frames).take_along_dim(
            near[..., None, None], 2
        )
        maps = rearrange(chosen, "g q n (h w) k -> g q n k h w", h=rows, w=columns)
        return self.coverage_scale.exp() * soft_coverage(maps) + self.coverage_bias


def train_backbone(
    config: BackboneStageConfig,
    walks: WalkPairs,
    photos: PhotoPairs | None,
    *,
    start: Backbone,
    device: torch.device | str = "cpu",
    folder: RunFolder | None = None,
    minutes: float | None = None,
) -> Backbone:
    """`start` shortened to `depth` blocks and trained; with a folder, resumed from its last checkpoint."""
    run = _Run(config, start.shortened(config.depth).to(device))
    done = run.restore(folder) if folder else 0
    log = RunLog(folder.log, steps=config.steps, start=done) if folder else None
    began = time.monotonic()
    drawn = _in_advance(partial(_drawn, walks, photos, config), range(done, config.steps))
    while done < config.steps:
        loss, right = run.step(done, *next(drawn))
        done += 1
        over = minutes is not None and time.monotonic() - began > 60 * minutes
        if log and (done % config.log_every == 0 or done == config.steps):
            log.write(done, {"loss": loss.item(), "right": right.item(), "lr": run.lr})
        if folder and (over or done == config.steps or done % config.checkpoint_every == 0):
            folder.save(done, run.checkpoint())
        if over:
            break
    return run.backbone.eval().requires_grad_(False)


def _drawn(
    walks: WalkPairs, photos: PhotoPairs | None, config: BackboneStageConfig, step: int
) -> tuple[list[Pairs], np.random.Generator]:
    rng = np.random.default_rng([config.seed, step])
    return draw_pairs(walks, photos, config, rng), rng


def _in_advance(draw: Callable[[int], T], steps: Iterable[int]) -> Iterator[T]:
    """What `draw` returns for each step, drawn by a thread while the step before is computed."""
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[Future[T]] = deque()
        for step in steps:
            waiting.append(pool.submit(draw, step))
            if len(waiting) > 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _Run:
    """Everything that changes from step to step."""

    def __init__(self, config: BackboneStageConfig, backbone: Backbone) -> None:
        if not 0 <= config.first_block < config.depth:
            raise TrainError(f"first_block must be 0 to {config.depth - 1}, got {config.first_block}")
        self.config, self.backbone = config, backbone.train().requires_grad_(False)
        for block in backbone.blocks[config.first_block :]:
            block.requires_grad_(True)
        self.scorer = PatchScorer().to(backbone.pos_embed.device)
        both = nn.ModuleDict({"backbone": backbone, "scorer": self.scorer})
        self.learning = {name: p for name, p in both.named_parameters() if p.requires_grad}
        groups: list[dict[str, Any]] = [
            {"params": [p for p in backbone.parameters() if p.requires_grad], "factor": 1.0},
            # Numbers that set the scale of all logits: they must converge first.
            {"params": list(self.scorer.parameters()), "factor": 125.0, "weight_decay": 0.0},
        ]
        self.optimiser = adamw(groups, lr=config.lr, weight_decay=config.weight_decay)
        self.lr = 0.0
        self._trained: list[Tensor] = [p for p in backbone.parameters() if p.requires_grad]
        self._start = [p.detach().clone() for p in self._trained]

    def step(self, number: int, pairs: list[Pairs], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        config = self.config
        self.lr = config.lr * lr_factor(number, warmup_steps=config.warmup_steps, steps=config.steps)
        set_lr(self.optimiser, self.lr)
        loss, right = patch_loss(self.backbone, self.scorer, pairs, config, rng)
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward([loss])
        torch.nn.utils.clip_grad_norm_(self.learning.values(), config.clip_norm)
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self._trained, self._start, self.lr * config.pull_to_start)
        return loss.detach(), right

    def checkpoint(self) -> Checkpoint:
        names: dict[Tensor, str] = {p: name for name, p in self.learning.items()}
        memory = optimiser_tensors(self.optimiser, names)
        return Checkpoint({"model": self.learning, "optimizer": memory}, {"seed": self.config.seed})

    def restore(self, folder: RunFolder) -> int:
        found = folder.latest()
        if found is None:
            return 0
        step, (tensors, _) = found
        with torch.no_grad():
            for name, parameter in self.learning.items():
                parameter.copy_(tensors["model"][name])
        names: dict[Tensor, str] = {p: name for name, p in self.learning.items()}
        restore_optimiser(self.optimiser, names, tensors["optimizer"])
        return step


def draw_pairs(
    walks: WalkPairs, photos: PhotoPairs | None, config: BackboneStageConfig, rng: np.random.Generator
) -> list[Pairs]:
    of_photos = int(rng.binomial(config.groups, config.photo_share)) if photos else 0
    drawn = []
    if of_photos and photos:
        drawn.append(photos.draw(of_photos, rng, config.frames))
    if of_photos < config.groups:
        drawn.append(walks.draw(config.groups - of_photos, rng, config.frames))
    return drawn


def patch_loss(
    backbone: nn.Module,
    scorer: PatchScorer,
    drawn: list[Pairs],
    config: BackboneStageConfig,
    rng: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """The loss, and the share of queries whose best patch is on the thing."""
    device = drawn[0].frames.device
    generator = torch.Generator(device).manual_seed(int(rng.integers(2**31)))
    frames, queries = (
        torch.cat([getattr(p, name).flatten(0, 1) for p in drawn]) for name in ("frames", "queries")
    )
    on_thing, labels = (torch.cat([getattr(p, name) for p in drawn]) for name in ("on_thing", "labels"))
    groups, per_group = labels.shape[:2]
    frames, queries = (normalised(photometric_jitter(pictures, generator)) for pictures in (frames, queries))
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        unit = [
            F.normalize(features.float(), dim=1).to(features.dtype)
            for features in (backbone(frames), backbone(queries))
        ]
        patches = unit[0].flatten(2).transpose(1, 2).reshape(groups, -1, unit[0].shape[1])
        tokens = sampled_tokens(unit[1], on_thing.flatten(0, 1), config.tokens, generator)
        tokens = tokens.view(groups, per_group, config.tokens, -1)
        logits, cosine = scorer(patches, tokens)
        loss, right = score_loss(logits, labels.flatten(2), config.hardest)
        if config.coverage_weight:
            near = neighbouring_frames(labels, config.coverage_frames)
            covered = scorer.covered(cosine, near, labels.shape)
            chosen = labels.take_along_dim(near[..., None, None], 2)
            loss = loss + config.coverage_weight * coverage_loss(covered, chosen, config.hardest)
    return loss, right


def score_loss(logits: Tensor, labels: Tensor, hardest: int) -> tuple[Tensor, Tensor]:
    """Logits and labels [G, q, n] -> loss of right patches and of the hardest wrong ones, hit rate"""
    right = labels == RIGHT
    found = (F.softplus(-logits) * right).sum(-1) / right.sum(-1).clamp(min=1)
    wrong = logits.masked_fill(labels != WRONG, -torch.inf).topk(hardest, -1).values
    refused = F.softplus(wrong).mean(-1)
    best = logits.masked_fill(labels == IGNORED, -torch.inf).argmax(-1, keepdim=True)
    there = right.any(-1)
    hits = (right.gather(-1, best).squeeze(-1) & there).sum() / there.sum()
    return (found * there + refused).mean(), hits


def sampled_tokens(features: Tensor, on_thing: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` of the thing's patches of each query [n, c, h, w], drawn with replacement."""
    chance = on_thing.flatten(1).float() + 1e-8
    chosen = torch.multinomial(chance, count, replacement=True, generator=generator)
    return features.flatten(2).transpose(1, 2).take_along_dim(chosen[..., None], 1)


@torch.no_grad()
def patch_precision(
    backbone: nn.Module, source: WalkPairs | PhotoPairs, *, groups: int = 8, seed: int = 0
) -> dict[str, float]:
    """Mean AP over patches of 8 frames, and how often the best of them is right; without jitter."""
    rng = np.random.default_rng(seed)
    precision, hits = [], []
    for _ in range(groups):
        pairs = source.draw(1, rng)
        device = pairs.frames.device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            frames, queries = (
                F.normalize(backbone(normalised(pictures)).float(), dim=1)
                for pictures in (pairs.frames[0], pairs.queries[0])
            )
        patches = frames.flatten(2).transpose(1, 2).flatten(0, 1)
        for query, on_thing, labels in zip(queries, pairs.on_thing[0], pairs.labels[0]):
            tokens = query[:, on_thing].T
            score = (patches @ tokens.T).amax(1) + patches @ F.normalize(tokens.mean(0), dim=0)
            flat = labels.flatten()
            counts = flat != IGNORED
            right = (flat[counts] == RIGHT)[score[counts].argsort(descending=True)]
            if right.any():
                rank = torch.arange(1, len(right) + 1, device=device)
                precision.append((right.cumsum(0) / rank)[right].mean().item())
                hits.append(right[0].item())
    return {"ap": float(np.mean(precision)), "best_is_right": float(np.mean(hits))}


def save_backbone(backbone: Backbone, path: str | Path) -> None:
    """fp16, with DINOv2's own names: what `load_backbone` reads."""
    state = {name: value.half().contiguous().cpu() for name, value in backbone.state_dict().items()}
    with whole_file(path) as building:
        save_file(state, building)

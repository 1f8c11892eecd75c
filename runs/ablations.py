"""The paper's four ablations, and the levers from rendered to real video, with small equal budgets.

    python runs/ablations.py --walks walks --val val --real real_dev --backbone FILE --out runs/ablations
    python runs/ablations.py --only levers --steps 200 --walks .. --val .. --backbone .. --out runs/levers
    python runs/ablations.py --network vqloc --steps 1500 --walks .. --val-walks unseen --out runs/papers
    python runs/ablations.py --network vqloc --table --out runs/papers

All but the last go on where they stopped. The last judges what they kept, and needs no GPU.
Every variant is trained for the same number of steps on the same clips and judged on the same unseen
episodes; walks as of `lastseen train`, episodes as of `lastseen synth --split val`. ViT-B has no row: its
weights are not in the package. `--real`: real video that is judged too, with the rule of the episodes.
`--val-walks`: rendered walks of the val split in place of episodes; no video file is decoded then.

`--network maps` varies our similarity-map model with `head_score_weight=1`; its table of fusions has the
paper's network, which begins as it is usually drawn and learns nothing in so few steps. `--network vqloc`
varies the paper's own network by the recipe `vqloc_synth`: every variant has the first weights that compare,
where they apply, and a warm-up of a quarter of the steps. Two seeds of its first row say what chance is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from lastseen.datasets.vq2d import load_absent, load_vq2d
from lastseen.evaluate.calibration import fit_rule, load_answered, save_answered
from lastseen.evaluate.encoded import EncodedSet, cross_fitted, report
from lastseen.evaluate.metrics import Report
from lastseen.model import SimilarityConfig, VQLoCConfig
from lastseen.train.augment import NO_AUGMENT
from lastseen.train.feature_store import FeatureStore, SynthData
from lastseen.train.gallery import Gallery
from lastseen.train.initialise import initial_backbone
from lastseen.train.loop import train
from lastseen.train.loss import LossConfig
from lastseen.train.recipes import COMPARE, USUAL, TrainConfig, synth_small, vqloc_synth
from lastseen.train.walk_questions import WalkQuestions
from lastseen_synth.annotated_walk import AnnotatedWalk

FOCAL, BCE = LossConfig(score="focal", score_weight=100.0), LossConfig(score="bce")
VQLOC_ONLY = ("fusion", "spatial_layers")
MAPS, PAPERS = "maps", "vqloc"  # what is varied
BOTH = (MAPS, PAPERS)
WARM_UP_SHARE = 0.25  # of the steps of the paper's network
METRICS = ("tap25", "stap25", "recovery", "success")


class Variant(NamedTuple):
    """`paper`: tAP25, stAP25, recovery %, success % of its table; "base" stands for a row of every table.

    A lever changes the recipe as it ships: `data`, or which walks: the emptier or the fuller half.
    """

    table: str
    name: str
    model: Mapping[str, Any] = MappingProxyType({})  # with "fusion" it is the paper's model, else ours
    loss: LossConfig = LossConfig()
    paper: tuple[float, ...] | None = None
    data: Mapping[str, Any] = MappingProxyType({})
    walks: str = "all"
    times: int = 1  # the steps of the others
    networks: tuple[str, ...] = (MAPS,)
    seed: int = 0
    first_weights: str = COMPARE  # of the paper's network


JITTER = SynthData().augment
PLAIN = replace(NO_AUGMENT, flip=JITTER.flip, crop_scale=JITTER.crop_scale, query_jitter=True)
SAME_LIGHT = replace(JITTER, query_jitter=False)
HOME = {"same_walk_query_share": 0.7}
STRETCHED = replace(JITTER, crop_scale=0.35, crop_ratio=0.5)

VARIANTS = [
    Variant("base", "ViT-S, 448 px, maps, window 5, anchors, mining", paper=(0.31, 0.22, 47.05, 55.89)),
    Variant("window", "7", {"attention_radius": 3}, paper=(0.27, 0.19, 36.97, 50.21), networks=BOTH),
    Variant("window", "9", {"attention_radius": 4}, paper=(0.27, 0.18, 37.98, 51.08), networks=BOTH),
    Variant("window", "global", {"attention_radius": None}, paper=(0.08, 0.03, 12.49, 15.73), networks=BOTH),
    Variant("head", "no anchors, BCE", {"anchors": False}, BCE, (0.17, 0.10, 34.23, 47.60), networks=BOTH),
    Variant("head", "anchors, BCE", {}, BCE, (0.12, 0.07, 40.23, 42.27), networks=BOTH),
    Variant("head", "anchors, focal", {}, FOCAL, (0.29, 0.19, 38.58, 53.12), networks=BOTH),
    Variant(
        "resolution",
        "224 px (paper: ViT-B)",
        {"image_size": 224},
        paper=(0.22, 0.10, 32.18, 45.84),
        networks=BOTH,
    ),
    Variant("resolution", "672 px", {"image_size": 672}),
    Variant("fusion", "attention", {"fusion": "attention"}, paper=(0.29, 0.19, 38.58, 53.12)),
    Variant("fusion", "convolution", {"fusion": "conv"}, paper=(0.22, 0.13, 32.27, 44.95), networks=BOTH),
    Variant(
        "fusion",
        "attention, 3 layers",
        {"fusion": "attention", "spatial_layers": 3},
        paper=(0.29, 0.20, 37.91, 53.74),
        networks=BOTH,
    ),
    Variant("fusion", "attention, four times the steps", {"fusion": "attention"}, times=4),
    Variant("levers", "our recipe"),
    Variant("levers", "asked with frames of the same walk", data=HOME),
    Variant("levers", "the same, background not masked", {"background_cosine": None}, data=HOME),
    Variant("levers", "rooms with few things", walks="sparse"),
    Variant("levers", "rooms with many things", walks="crowded"),
    Variant("levers", "crops that enlarge and stretch more", data={"augment": STRETCHED}),
    Variant("levers", "rooms alone", data={"photo_share": 0.0}),
    Variant("levers", "photographs alone", data={"photo_share": 1.0}),
    Variant("levers", "the thing in every clip, no cuts", data={"absent_share": 0.0, "cut_share": 0.0}),
    Variant("levers", "half of the clips without the thing", data={"absent_share": 0.5}),
    Variant("levers", "no jitter of colours, blur or noise", data={"augment": PLAIN}),
    Variant("levers", "query in the same light", data={"augment": SAME_LIGHT}),
    # Files are named by place in this list: new ones at the end.
    Variant("base", "the paper's, with ViT-S", paper=(0.31, 0.22, 47.05, 55.89), networks=(PAPERS,)),
    Variant("base", "the same, another seed", seed=1, networks=(PAPERS,)),
    Variant("start", "first weights as usual", first_weights=USUAL, networks=(PAPERS,)),
    Variant("start", "a query that fills its crop", {"query_scales": (1.0,)}, networks=(PAPERS,)),
    Variant("start", "three scales of the query", {"query_scales": (1.0, 0.5, 0.25)}, networks=(PAPERS,)),
]


def config_of(arguments: argparse.Namespace, variant: Variant) -> TrainConfig:
    steps = variant.times * arguments.steps
    if arguments.network == PAPERS:
        return papers_config(arguments, variant, steps)
    small = synth_small()
    assert isinstance(small.data, SynthData) and isinstance(small.model, SimilarityConfig)
    ours = replace(small.model, **{k: v for k, v in variant.model.items() if k not in VQLOC_ONLY})
    return replace(
        small,
        model=papers_model(ours, variant) if "fusion" in variant.model else ours,
        prior_batches=0 if "fusion" in variant.model else small.prior_batches,
        data=replace(small.data, refresh_steps=None, **variant.data),
        head_score_weight=small.head_score_weight if variant.table == "levers" else None,
        loss=variant.loss,
        steps=steps,
        batch=arguments.batch,
        backbone=str(arguments.backbone),
        checkpoint_every=steps,
        optimiser=replace(small.optimiser, warmup_steps=min(100, steps // 5)),
    )


def papers_config(arguments: argparse.Namespace, variant: Variant, steps: int) -> TrainConfig:
    """The recipe of the paper's network with what varies; its query swap and dense term stay."""
    recipe = vqloc_synth()
    assert isinstance(recipe.data, SynthData)
    return replace(
        recipe,
        model=replace(recipe.model, **variant.model),
        data=replace(recipe.data, round_steps=None),
        first_weights=variant.first_weights,
        dense=replace(recipe.dense, steps=round(WARM_UP_SHARE * steps)),
        loss=replace(variant.loss, consistency_weight=recipe.loss.consistency_weight),
        steps=steps,
        seed=variant.seed,
        batch=arguments.batch,
        backbone=str(arguments.backbone) if arguments.backbone else recipe.backbone,
        checkpoint_every=steps,
        optimiser=replace(recipe.optimiser, warmup_steps=min(100, steps // 5)),
    )


def papers_model(ours: SimilarityConfig, variant: Variant) -> VQLoCConfig:
    """VQLoC with our backbone and sizes, asked as in the paper."""
    shared = {field.name for field in fields(VQLoCConfig)} & {field.name for field in fields(ours)}
    shared -= {"query_scales"}
    own = {name: variant.model[name] for name in VQLOC_ONLY if name in variant.model}
    return VQLoCConfig(**{name: getattr(ours, name) for name in shared}, **own)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="judge what was answered")
    parser.add_argument("--network", choices=BOTH, default=MAPS, help="what is varied")
    for name in ("walks", "val", "val-walks", "real", "backbone"):
        parser.add_argument(f"--{name}", type=Path)
    tables = sorted({variant.table for variant in VARIANTS})
    parser.add_argument("--only", nargs="+", choices=tables, default=tables)
    parser.add_argument("--episodes", type=int, help="of --val; all unless given")
    parser.add_argument("--most-walks", type=int, help="all unless given")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    if arguments.table:
        print_table(arguments.out)
    elif not (arguments.val or arguments.val_walks):
        parser.error("give --val or --val-walks: what variants are judged on")
    else:
        train_all(arguments)


def walks_of(arguments: argparse.Namespace) -> dict[str, list[Path]]:
    """All, and the halves of the rooms with fewer and with more things in them; photographs are in each."""
    paths = sorted(arguments.walks.glob("*.npz"))
    every = 1 if arguments.most_walks is None else max(1, len(paths) // arguments.most_walks)
    paths = paths[::every][: arguments.most_walks]
    censuses = {path: AnnotatedWalk.load(path) for path in paths}
    photos = [path for path in paths if censuses[path].source == "photo"]
    rooms = [path for path in paths if censuses[path].source == "room"]
    rooms.sort(key=lambda path: len(censuses[path].names))
    half = len(rooms) // 2
    return {"all": paths, "sparse": photos + rooms[:half], "crowded": photos + rooms[half:]}


Judged = EncodedSet | WalkQuestions
Opened = tuple[FeatureStore, list[Judged]]


def opener(arguments: argparse.Namespace) -> Callable[[TrainConfig, str], Opened]:
    """Features of walks and questions, kept from one variant to the next that needs the same."""
    device = torch.device(arguments.device)
    walks = walks_of(arguments)
    galleries: dict[Any, Gallery] = {}
    stores: dict[Any, FeatureStore] = {}
    judged: dict[Any, list[Judged]] = {}

    def encoded(root: Path, config: TrainConfig, episodes: int | None) -> EncodedSet:
        annotations, absent = load_vq2d(root / "annotations.json"), load_absent(root / "absent.json")
        annotations = replace(annotations, videos=annotations.videos[:episodes])
        return EncodedSet.of(
            annotations, root / "videos", absent, initial_backbone(config), config.model, device
        )

    def unseen(config: TrainConfig) -> WalkQuestions:
        paths = sorted(arguments.val_walks.glob("*.npz"))
        model = config.model
        gallery = Gallery.open(paths, device, scales=model.query_scales, view_px=model.query_size)
        return WalkQuestions(gallery, initial_backbone(config), model)

    def opened(config: TrainConfig, which: str) -> Opened:
        model, data = config.model, config.data
        assert isinstance(data, SynthData)
        seen = model.image_size, model.query_size, model.query_scales, model.padding
        made = seen, data.augment, which
        if made not in stores:
            stores.clear()  # one set of features at a time fits the memory
            views = which, model.query_scales, model.query_size
            if views not in galleries:
                galleries.clear()
                galleries[views] = Gallery.open(
                    walks[which], device, scales=model.query_scales, view_px=model.query_size
                )
            gallery = galleries[views]
            stores[made] = FeatureStore(gallery, data, model, initial_backbone(config), config.batch, 0)
        if seen not in judged:
            judged.clear()
            judged[seen] = [
                encoded(arguments.val, config, arguments.episodes) if arguments.val else unseen(config)
            ]
            if arguments.real:
                judged[seen].append(encoded(arguments.real, config, None))
        store = stores[made]
        store.model, store.data, store.seed = model, data, config.seed
        return store, judged[seen]

    return opened


def train_all(arguments: argparse.Namespace) -> None:
    arguments.out.mkdir(parents=True, exist_ok=True)
    opened = opener(arguments)
    for number, variant in enumerate(VARIANTS):
        done = (arguments.out / f"{number:02d}.txt").exists()
        if done or variant.table not in arguments.only or arguments.network not in variant.networks:
            continue
        config = config_of(arguments, variant)
        began = time.monotonic()
        store, judged = opened(config, variant.walks)
        store.batch(0)
        ready = time.monotonic()
        trained = train(config, arguments.out / f"{number:02d}", source=store, device=arguments.device)
        seconds = time.monotonic() - ready
        for kind, questions in zip(("val", "real"), judged):
            save_answered(questions.answer(trained), arguments.out / f"{number:02d}-{kind}.json.gz")
        (arguments.out / f"{number:02d}.txt").write_text(f"{seconds:.0f}\n")
        print(
            f"{variant.table}, {variant.name}: {ready - began:.0f} s to encode, {config.steps} steps in "
            f"{seconds:.0f} s, {time.monotonic() - ready - seconds:.0f} s to answer",
            flush=True,
        )


def print_table(out: Path) -> None:
    named = "| tAP25 | stAP25 | recovery % | success % | AUROC "
    print(f"| table | variant {named}| s | paper {named.replace(' |', ', real |')}|\n" + "|---" * 14 + "|")
    for number, variant in enumerate(VARIANTS):
        val, real = (out / f"{number:02d}-{kind}.json.gz" for kind in ("val", "real"))
        if not val.exists():
            continue
        answered = load_answered(val)
        ours, carried = _row(cross_fitted(answered, draws=0)), " | " * 4
        if real.exists():
            carried = _row(report(load_answered(real), fit_rule(answered), draws=0))
        theirs = "" if variant.paper is None else " / ".join(f"{v:g}" for v in variant.paper)
        seconds = (out / f"{number:02d}.txt").read_text().strip()
        print(f"| {variant.table} | {variant.name} | {ours} | {seconds} | {theirs} | {carried} |", flush=True)


def _row(report: Report) -> str:
    values = [*(report.value(name) for name in METRICS), report.auroc.value]
    return " | ".join("" if v is None else f"{v:.{d}f}" for v, d in zip(values, (3, 3, 1, 1, 3)))


if __name__ == "__main__":
    main()

"""The paper's own network, trained on the synthetic world: recipe `vqloc_synth`, over several machines.

    python runs/train_vqloc.py --packs packs --walks walks --out runs/vqloc --workers 10 --stop-after 1500
    python runs/checkpoint_parts.py runs/vqloc 0 FOLDER      then 1, 2, ..: a checkpoint in small pieces
    python runs/train_vqloc.py --packs packs --out runs/vqloc --model-only --set real_dev

The first command, given again, goes on where it stopped, on this machine or, with the pieces put together in
runs/vqloc/checkpoints, on another: walks that are missing are rendered again, by their seeds. Trailing
`field=value` change the recipe; they must be the same each time. Lines of OUT/log.jsonl with "patch_ap" judge
the averaged model on unseen rendered walks: the probe (`lastseen/train/probe.py`), and questions about whole
walks under the rule of a model that has none. No video file is decoded for that.

The third needs no training and writes OUT/model. Each `--set` is answered without refinement in three ways,
OUT/NAME@WAY.json.gz, for runs/fit_rule.py, and a table of it, each half of its videos by a rule fitted on the
other, is printed. That decodes videos.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from train_synth import encode_set, keep_answers, say

from lastseen.errors import LastSeenError
from lastseen.evaluate.asking import WAYS
from lastseen.evaluate.encoded import cross_fitted
from lastseen.model import TrainedModel, VQLoC
from lastseen.train.augment import NO_AUGMENT
from lastseen.train.checkpoint import RunFolder
from lastseen.train.distributed import World
from lastseen.train.feature_store import FeatureStore, SynthData, library_of
from lastseen.train.fields import parse_setting, with_settings
from lastseen.train.gallery import Gallery
from lastseen.train.harvest import harvest
from lastseen.train.initialise import initial_backbone
from lastseen.train.loop import Watch, train
from lastseen.train.probe import probe
from lastseen.train.recipes import TrainConfig, vqloc_synth
from lastseen.train.rounds import Rounds
from lastseen.train.training import Training
from lastseen.train.walk_questions import METRICS, WalkQuestions

BEGAN = time.monotonic()
UNSEEN_SEED = 99
PROBE_CLIPS, PROBE_BATCHES = 16, 4


def config_of(arguments: argparse.Namespace) -> TrainConfig:
    """The recipe with the settings; what depends on the machine alone is not in it, so that others go on."""
    config = vqloc_synth()
    assert isinstance(config.data, SynthData)
    data = replace(config.data, folder="walks", assets=None)
    return with_settings(replace(config, data=data), [parse_setting(text) for text in arguments.settings])


def on_this_machine(config: TrainConfig, arguments: argparse.Namespace) -> SynthData:
    assert isinstance(config.data, SynthData)
    return replace(
        config.data,
        folder=str(arguments.walks),
        assets=str(arguments.packs) if arguments.packs else None,
        workers=arguments.workers,
        workers_beside=arguments.beside,
    )


def watch_unseen(config: TrainConfig, data: SynthData, arguments: argparse.Namespace) -> Watch:
    """Judges a model on unseen walks: the probe on clips of them, and questions about the whole walks."""
    device = torch.device(arguments.device)
    paths = harvest(
        Path(data.folder) / "unseen",
        partial(library_of, data, "val"),
        walks=arguments.unseen,
        photos=arguments.unseen,
        seconds=data.seconds,
        seed=UNSEEN_SEED,
        device=device,
        workers=data.workers,
    )
    plain = replace(data, augment=NO_AUGMENT, refresh_steps=None, swap_share=0.0)
    scales, view_px, backbone = config.model.query_scales, config.model.query_size, initial_backbone(config)

    def opened(some: list[Path]) -> Gallery:
        return Gallery.open(some, device, scales=scales, view_px=view_px)

    fitted_on, judged_on = (
        FeatureStore(opened(half), plain, config.model, backbone, PROBE_CLIPS, UNSEEN_SEED)
        for half in (paths[0::2], paths[1::2])
    )
    questions = None
    if arguments.questions:
        questions = WalkQuestions(opened(paths), backbone, config.model, things=arguments.questions)
        say(len(paths), "unseen walks,", sum(len(walk.truths) for walk in questions.walks), "questions")

    def watch(model: TrainedModel) -> Mapping[str, float]:
        assert isinstance(model, VQLoC)
        found = probe(model, fitted_on, judged_on, batches=PROBE_BATCHES)
        return {**found._asdict(), **(questions.metrics(model) if questions else {})}

    return watch


def latest_model(config: TrainConfig, arguments: argparse.Namespace) -> TrainedModel:
    """The averaged model of the newest checkpoint, also written to OUT/model."""
    folder = RunFolder(arguments.out)
    folder.check(config.to_dict())
    run = Training(config, World(), torch.device(arguments.device))
    if not run.restore(folder):
        raise LastSeenError(f"{arguments.out} has no checkpoint: train first")
    model = run.averaged()
    folder.write_model(model)
    return model


def answer_sets(model: TrainedModel, config: TrainConfig, arguments: argparse.Namespace) -> None:
    backbone = initial_backbone(config)
    print(f"| set | {' | '.join(METRICS)} | AUROC |\n" + "|---" * (2 + len(METRICS)) + "|")
    for root in arguments.set:
        encoded = encode_set(root, backbone, config, arguments.device)
        for way in WAYS:
            asked = encoded.asked_as(way, backbone, config.model)
            keep_answers({f"{root.name}@{way}": asked}, model, arguments.out)
            found = cross_fitted(asked.answer(model))
            cells = [found.value(name) for name in METRICS] + [found.auroc.value]
            shown = " | ".join("" if cell is None else f"{cell:.3f}" for cell in cells)
            print(f"| {root.name}@{way} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--walks", type=Path, default=Path("walks"), help="rounds of walks are kept here")
    parser.add_argument("--packs", type=Path)
    parser.add_argument("--workers", type=int, default=1, help="that render while nothing is trained")
    parser.add_argument("--beside", type=int, default=3, help="that render while the model trains; 0: none")
    parser.add_argument("--stop-after", type=float, metavar="S", help="seconds from the start of the command")
    parser.add_argument("--unseen", type=int, default=8, help="unseen rooms, and as many photo walks")
    parser.add_argument("--questions", type=int, default=6, help="about each of them; 0: the probe alone")
    parser.add_argument("--watch-every", type=int, default=500, help="steps")
    parser.add_argument(
        "--model-only", action="store_true", help="of the newest checkpoint; train no further"
    )
    parser.add_argument("--set", type=Path, action="append", default=[], help="answered in the end")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("settings", nargs="*", metavar="field=value")
    arguments = parser.parse_args()
    try:
        config = config_of(arguments)
        made = latest_model if arguments.model_only else train_on
        model = made(config, arguments)
        if arguments.set:
            answer_sets(model, config, arguments)
    except LastSeenError as error:
        sys.exit(f"{error}")


def train_on(config: TrainConfig, arguments: argparse.Namespace) -> TrainedModel:
    device = torch.device(arguments.device)
    data = on_this_machine(config, arguments)
    watch = watch_unseen(config, data, arguments) if arguments.unseen else None
    source = Rounds(
        data, config.model, initial_backbone(config), config.batch, config.seed, device, config.steps
    )
    minutes = None
    if arguments.stop_after is not None:
        minutes = max(0.0, arguments.stop_after - (time.monotonic() - BEGAN)) / 60
    model = train(
        config,
        arguments.out,
        source=source,
        device=device,
        minutes=minutes,
        watch=watch,
        watch_every=arguments.watch_every,
    )
    done = RunFolder(arguments.out).numbers()[-1]
    say(f"{done} of {config.steps} steps; {arguments.out}/model is the averaged model")
    return model


if __name__ == "__main__":
    main()

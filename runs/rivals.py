"""The paper's rivals, trained with the same number of clips of the same rendered walks (docs/rivals.md).

    python runs/rivals.py --walks walks --packs packs --out runs/rivals --workers 11
    python runs/rivals.py --walks walks --out runs/rivals --size 896 --only proposals siamrcnn --minutes 8
    python runs/rivals.py --walks walks --out runs/rivals --size 896 --begin-with 448 --clips 0
    python runs/rivals.py --out runs/rivals --parts FOLDER       and, elsewhere, --join FOLDER

A run that was stopped goes on where it was. Stages, in this order: proposals (on a frozen backbone),
siamrcnn, nfm, cocoformer, stark, stark-positions; each makes OUT/NAME-SIZE, a folder for --weights, in half
precision. `--parts` puts finished folders into pieces below 16 MiB; `--join` makes folders of pieces again.
Answers and the table: runs/rivals_answers.py.

Detectors trained at 448 px run at 896 px as well (`--begin-with 448`): anchors are shares of the picture.

Rooms of seed 0 of the val split choose thresholds; seeds 1 and 2 and real_dev choose nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lastseen.baselines.detector import RivalDetector
from lastseen.baselines.stark import Stark, StarkConfig
from lastseen.baselines.stored import DETECTORS, AfterPeak, Rival, RivalConfig, make_rival, save_rival
from lastseen.model import Backbone, BackboneConfig
from lastseen.tensors import read_state
from lastseen.train.feature_store import FeatureStore, SynthData
from lastseen.train.gallery import Gallery
from lastseen.train.harvest import harvest
from lastseen.train.rival_data import RivalData
from lastseen.train.rivals import RivalTraining, start_from, train_detector, train_stark
from lastseen.weights import bundled_model, load_model
from lastseen_synth.library import open_library

STAGES = ("proposals", "siamrcnn", "nfm", "cocoformer", "stark", "stark-positions")
ROOMS, PHOTOS = 110, 130  # walks: those of the bundled model (runs/train_synth.py)
CLIPS = 96_000  # of each rival: 1,500 steps of 64, as the bundled model's heads
BATCH = 64
PROPOSAL_STEPS, PROPOSAL_BATCH = 2000, 32
STARK_LR, STARK_DECAY = 1e-4, 0.005  # the originals'
PHOTO_SHARE = 0.5
REFRESH_STEPS = 700
LEAST_SCORES = {"cocoformer": 0.25}  # of a peak, as published; the others' is 0.5
PART_BYTES = 15 * 2**20
FILES = ("config.json", "procedure.json", "model.safetensors")
BEGAN = time.monotonic()


def say(*words: object) -> None:
    print(f"{time.monotonic() - BEGAN:6.0f} s ", *words, flush=True)


def load_start(path: Path | None) -> Backbone:
    """The backbone that all rivals begin with: the bundled model's, or that of another model folder."""
    backbone = load_model(path or bundled_model()).backbone
    assert isinstance(backbone, Backbone)
    return backbone


def config_of(name: str, backbone: BackboneConfig, size: int, toy: bool) -> RivalConfig:
    if name.startswith("stark"):
        small: dict[str, Any] = (
            {"dim": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_hidden": 32, "decoder_hidden": 32}
            if toy
            else {}
        )
        return StarkConfig(backbone=backbone, image_size=size, positions=name == "stark-positions", **small)
    kind = DETECTORS["detector" if name == "proposals" else name][0]
    return kind(
        backbone=backbone,
        image_size=size,
        **({"query_size": 56, "channels": 16, "hidden": 16, "proposals": 20} if toy else {}),
    )


def train_stage(name: str, arguments: argparse.Namespace, gallery: Gallery, start: Backbone) -> bool:
    """Whether the stage is finished; its folder is made then."""
    size, out = arguments.size, arguments.out
    folder = out / f"{name}-{size}"
    if (folder / "model.safetensors").exists():
        return True
    torch.manual_seed(0)
    model = make_rival(config_of(name, start.config, size, arguments.toy))
    model.backbone.load_state_dict(start.state_dict())
    if isinstance(model, RivalDetector) and name != "proposals":
        start_from(model, read_state(out / f"proposals-{size}" / "model.safetensors"))
    if arguments.begin_with:
        model.load_state_dict(
            {**model.state_dict(), **read_state(out / f"{name}-{arguments.begin_with}" / "model.safetensors")}
        )
    model.to(arguments.device)
    training = training_of(name, arguments)
    run = out / "training" / folder.name
    if isinstance(model, Stark):
        data = SynthData(photo_share=PHOTO_SHARE, refresh_steps=REFRESH_STEPS)
        source = FeatureStore(gallery, data, model.config, model.backbone, training.batch, 0)  # type: ignore
        done = train_stark(model, source, training, run, minutes=arguments.minutes)
    else:
        query_size = model.config.query_size
        frames = RivalData(gallery, image_size=size, query_size=query_size, photo_share=PHOTO_SHARE)
        done = train_detector(model, frames, training, run, minutes=arguments.minutes)
    if done:
        after = AfterPeak(least_score=LEAST_SCORES.get(name, AfterPeak.least_score))
        save_rival(halved(model), after, folder)
    say(folder.name, "trained" if done else "stopped; the same command goes on")
    return done


def training_of(name: str, arguments: argparse.Namespace) -> RivalTraining:
    made = RivalTraining(
        steps=arguments.clips // arguments.batch,
        batch=arguments.batch,
        checkpoint_every=arguments.checkpoint_every,
    )
    if name == "proposals":
        batch = min(PROPOSAL_BATCH, arguments.batch)
        return replace(made, steps=arguments.proposal_steps if arguments.clips else 0, batch=batch)
    return replace(made, lr=STARK_LR, weight_decay=STARK_DECAY) if name.startswith("stark") else made


def halved(model: Rival) -> Rival:
    """In half precision, but for the statistics and biases, which are few."""
    for value in model.state_dict().values():
        assert not value.is_floating_point() or value.isfinite().all()
    for parameter in model.cpu().parameters():
        if parameter.ndim > 1:
            parameter.data = parameter.data.half()
    return model


# --- Pieces -------------------------------------------------------------------------------------------


def split(folder: Path, out: Path, wanted: slice = slice(None)) -> None:
    """OUT/FOLDER.000, .001, ..: a finished folder as one archive, in pieces. A line of JSON in front of the
    first one tells what all of them make. `wanted`: these pieces alone."""
    out.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in FILES:
            archive.add(folder / name, name)
    content = buffer.getvalue()
    about = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    content = json.dumps(about).encode() + b"\n" + content
    for number, first in list(enumerate(range(0, len(content), PART_BYTES)))[wanted]:
        (out / f"{folder.name}.{number:03d}").write_bytes(content[first : first + PART_BYTES])


def join(parts: Path, out: Path) -> None:
    """The folders of all pieces in PARTS; one whose pieces are not whole is named and left out."""
    for name in sorted({path.stem for path in parts.glob("*.[0-9][0-9][0-9]")}):
        pieces = sorted(parts.glob(f"{name}.[0-9][0-9][0-9]"))
        head, _, content = b"".join(path.read_bytes() for path in pieces).partition(b"\n")
        if pieces[0].suffix != ".000" or json.loads(head)["sha256"] != hashlib.sha256(content).hexdigest():
            say(name, "is not whole: a piece is missing or damaged")
            continue
        building = out / f".{name}.part"
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for one in FILES:
                file = archive.extractfile(one)
                assert file is not None
                (building / one).write_bytes(file.read())
        shutil.rmtree(out / name, ignore_errors=True)
        building.rename(out / name)
        say(out / name)


def finished(out: Path, size: int) -> Iterator[Path]:
    for name in STAGES:
        folder = out / f"{name}-{size}"
        if (folder / "model.safetensors").exists():
            yield folder


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--walks", type=Path, help="folder of walks; missing ones are rendered")
    made.add_argument("--packs", type=Path, help="asset packs; things are drawn at run time without")
    made.add_argument("--start", type=Path, help="a model folder whose backbone is taken; default: bundled")
    made.add_argument("--size", type=int, default=448, help="px of the input: 448 or 896")
    made.add_argument("--only", nargs="+", choices=STAGES, default=list(STAGES))
    made.add_argument(
        "--begin-with", type=int, metavar="SIZE", help="weights of another size; --clips 0: as they are"
    )
    made.add_argument("--minutes", type=float, help="budget of each stage")
    made.add_argument("--clips", type=int, default=CLIPS)
    made.add_argument("--batch", type=int, default=BATCH)
    made.add_argument("--proposal-steps", type=int, default=PROPOSAL_STEPS)
    made.add_argument("--checkpoint-every", type=int, default=500)
    made.add_argument("--rooms", type=int, default=ROOMS)
    made.add_argument("--photos", type=int, default=PHOTOS)
    made.add_argument("--seconds", type=float, default=50.0, help="of a walk through a room")
    made.add_argument("--workers", type=int, default=1, help="at most 11 on one GPU of 141 GB")
    made.add_argument("--device", default="cuda")
    made.add_argument("--toy", action="store_true", help="small models, to see that all of it runs")
    made.add_argument(
        "--parts", type=Path, metavar="FOLDER", help="put finished rivals into pieces, and stop"
    )
    made.add_argument(
        "--pieces",
        type=int,
        nargs=2,
        default=(0, None),
        metavar="N",
        help="the first one and the stop, of --parts",
    )
    made.add_argument("--join", type=Path, metavar="FOLDER", help="make folders of these pieces, and stop")
    return made


def main() -> None:
    arguments = parser().parse_args()
    if arguments.join:
        return join(arguments.join, arguments.out)
    if arguments.parts:
        for folder in finished(arguments.out, arguments.size):
            if folder.name.rsplit("-", 1)[0] in arguments.only:
                split(folder, arguments.parts, slice(*arguments.pieces))
        return None
    if arguments.walks is None:
        raise SystemExit("--walks FOLDER is needed to train")
    if arguments.workers > 11 and arguments.device.startswith("cuda"):
        raise SystemExit("more than 11 processes that render do not fit into the GPU's memory")
    paths = harvest(
        arguments.walks,
        partial(open_library, "train", arguments.packs),
        walks=arguments.rooms,
        photos=arguments.photos,
        seconds=arguments.seconds,
        device=arguments.device,
        workers=arguments.workers,
    )
    gallery = Gallery.open(paths, arguments.device)
    say(len(paths), "walks,", sum(map(len, gallery.frames)), "frames,", len(gallery.views), "views")
    start = toy_backbone() if arguments.toy else load_start(arguments.start)
    for name in arguments.only:
        if not train_stage(name, arguments, gallery, start):
            break
    return None


def toy_backbone() -> Backbone:
    torch.manual_seed(0)
    return Backbone(BackboneConfig(dim=32, depth=2, heads=2)).eval()


if __name__ == "__main__":
    main()

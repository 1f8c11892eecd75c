"""Detections as the originals' authors published them: {ret_bboxes, ret_scores} of one question, a pickle.

A pickle can run code. Of these, nothing is made but boxes, numbers and lists of them: any other name is
refused.
"""

from __future__ import annotations

import _codecs
import gzip
import io
import pickle
import zipfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lastseen.errors import PredictionsError
from lastseen.files import regular_bytes

MOST_BYTES = 2**30
SUFFIXES = (".pt", ".pth", ".pkl", ".pt.gz", ".pkl.gz")
GZIP = b"\x1f\x8b"


# Where a pickle finds NumPy's numbers and arrays.
MULTIARRAY: Any = import_module("numpy._core.multiarray")


class PublishedBox:
    """Stands for vq2d.structures.BBox: a box with x1, y1, x2, y2 and its frame number."""


def no_bytes() -> bytes:
    """The content of an empty array; bytes itself would also make gigabytes of zeros."""
    return b""


ALLOWED: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _codecs.encode,  # how older pickles hold bytes
    ("builtins", "bytes"): no_bytes,
    ("__builtin__", "bytes"): no_bytes,
    ("vq2d.structures", "BBox"): PublishedBox,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    **{(f"numpy.{core}.multiarray", "scalar"): MULTIARRAY.scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): MULTIARRAY._reconstruct for core in ("core", "_core")},
}


@dataclass(frozen=True)
class Detections:
    """The best box of each frame and its score; a frame without boxes has score 0.

    | boxes_px | [T, 4] in pixels of the annotated frame size |
    | scores   | [T] in [0, 1]                                |
    """

    boxes_px: np.ndarray
    scores: np.ndarray


def detections_file(folder: Path, annotation_uid: str, query_set: str) -> Path:
    """ANNOTATION_QUERYSET.pt, or another of SUFFIXES."""
    for suffix in SUFFIXES:
        path = folder / f"{annotation_uid}_{query_set}{suffix}"
        if path.is_file():
            return path
    raise PredictionsError(
        f"{folder} has no detections for annotation {annotation_uid}, query set {query_set}; expected "
        f"{annotation_uid}_{query_set}.pt"
    )


def read_detections(path: Path) -> Detections:
    try:
        data = _unpickled(regular_bytes(path, MOST_BYTES))
        frames, scores = data["ret_bboxes"], data["ret_scores"]
        if len(frames) != len(scores):
            raise ValueError("as many lists of boxes as of scores are expected")
        return _best_of(frames, scores)
    except pickle.UnpicklingError as error:
        words = (str(error).splitlines() or ["damaged"])[0]
        raise PredictionsError(f"{path} is refused: {words[:120]}") from None
    except OSError as error:
        raise PredictionsError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception:  # readers of damaged pickles raise anything
        raise PredictionsError(
            f"{path} holds no detections, or is damaged: expected {{ret_bboxes, ret_scores}}, a list a frame"
        ) from None


def _best_of(frames: Any, scores: Any) -> Detections:
    best = np.zeros((len(frames), 4)), np.zeros(len(frames))
    for number, (boxes, of_boxes) in enumerate(zip(frames, scores)):
        values = np.asarray(of_boxes, np.float64).reshape(-1)
        if len(values) != len(boxes):
            raise ValueError("as many scores as boxes are expected")
        if len(values):
            chosen = boxes[int(values.argmax())]
            best[0][number] = [float(getattr(chosen, side)) for side in ("x1", "y1", "x2", "y2")]
            best[1][number] = float(values.max())
    if not (np.isfinite(best[0]).all() and ((best[1] >= 0) & (best[1] <= 1)).all()):
        raise ValueError("boxes and scores must be numbers, scores in [0, 1]")
    return Detections(*best)


def _unpickled(content: bytes) -> Any:
    if content.startswith(GZIP):
        with gzip.open(io.BytesIO(content)) as file:
            content = file.read(MOST_BYTES)
    if zipfile.is_zipfile(io.BytesIO(content)):  # made by torch.save
        allowed = [(what, ".".join(name)) for name, what in ALLOWED.items()]
        numbers = [type(np.dtype(name)) for name in ("float32", "float64", "int64", "int32")]
        with torch.serialization.safe_globals([*allowed, (no_bytes, "bytes"), *numbers]):
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return _Restricted(io.BytesIO(content)).load()


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which detections do not need")
        return ALLOWED[module, name]

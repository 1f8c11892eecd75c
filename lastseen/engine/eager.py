"""The PyTorch engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Box
from lastseen.engine.half import HalfBackbone, half_precision
from lastseen.engine.upload import Upload
from lastseen.errors import LastSeenError
from lastseen.model import EncodedQuery, Model, Predictions


class Engine:
    """torch-fp32; the others override parts of it."""

    name = "torch-fp32"
    rounding = "torch float32"  # stands in fingerprints: never change it
    group_padding = False  # whether one patch stands for several of padding (lastseen.model.padding)

    def __init__(self, model: Model, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.model, self.device, self.dtype = model, device, dtype
        self._upload = Upload(device) if device.type == "cuda" else None

    def encode_pictures(self, pictures: Sequence[np.ndarray], batch: int) -> Tensor:
        """Up to `batch` pictures [h, w, 3] of one size -> features [n, c, rows, columns] on the device.

        The work is that of a full batch: a frame's features do not depend on how many came with it.
        """
        if self._upload is None:
            frames = torch.from_numpy(np.stack(pictures))
            return self.encode_frames(_filled(frames, batch))[: len(pictures)]
        with self._upload.sent(pictures) as frames:
            return self.encode_frames(_filled(frames, batch))[: len(pictures)]

    def is_prepared(self, width: int, height: int, batch: int) -> bool:
        """Whether pictures of this size can be encoded at once; `prepare` may take long the first time."""
        return True

    def prepare(self, width: int, height: int, batch: int) -> None:
        """Make what encoding pictures of this size needs."""

    def encode_frames(self, frames: Tensor) -> Tensor:
        """[n, h, w, 3] uint8 on the device -> features"""
        return self.model.encode_frames(frames, self.group_padding)

    def encode_query(self, picture: Tensor, box: Box, mask: Tensor | None = None) -> EncodedQuery:
        """A query's picture [h, w, 3] uint8, the thing's box in it and, if known, its mask [h, w] bool; its
        vectors in float32"""
        mask = None if mask is None else mask.to(self.device)
        return self.model.encode_query(picture.to(self.device), box, mask).to(dtype=torch.float32)

    def localize_clip(self, features: Tensor, query: EncodedQuery) -> Predictions:
        features = features.to(self.device, self.dtype)
        return self.model.localize_clip(features, query.to(dtype=self.dtype))

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        """Several overlapping clips at once."""
        features = features.to(self.device, self.dtype)
        return self.model.localize_run(features, query.to(dtype=self.dtype), context, first)


class GroupedEngine(Engine):
    """torch-fp32-grouped"""

    name = "torch-fp32-grouped"
    rounding = "torch float32, padding in groups"
    group_padding = True


class Float16Engine(Engine):
    """torch-fp16; on CPUs, which are slow at it, float32 is computed, whose results round to the same."""

    name = "torch-fp16"
    rounding = "torch float16"

    def __init__(self, model: Model, device: torch.device) -> None:
        if device.type == "cpu":
            super().__init__(model, device)
        else:
            super().__init__(half_precision(model, torch.float16), device, torch.float16)


class GroupedFloat16Engine(Float16Engine):
    """torch-fp16-grouped"""

    name = "torch-fp16-grouped"
    rounding = "torch float16, padding in groups"
    group_padding = True


class BFloat16Engine(Float16Engine):
    """torch-bf16"""

    name = "torch-bf16"
    rounding = "torch bfloat16"

    def __init__(self, model: Model, device: torch.device) -> None:
        Engine.__init__(self, half_precision(model, torch.bfloat16), device, torch.bfloat16)
        if device.type == "cpu":
            self.group_padding, self.rounding = True, f"{self.rounding}, padding in groups"


class CompiledEngine(Float16Engine):
    """torch-fp16-compiled: each block of the backbone, and runs of clips of one length."""

    def __init__(self, model: Model, device: torch.device) -> None:
        if device.type != "cuda":
            raise LastSeenError(
                f"engine torch-fp16-compiled is for GPUs; on the {device.type} take torch-fp32"
            )
        super().__init__(model, device)
        compile_parts(self.model)
        self._run: Callable[..., Predictions] = torch.compile(self.model.localize_run, dynamic=False)
        self._length: int | None = None

    def encode_query(self, picture: Tensor, box: Box, mask: Tensor | None = None) -> EncodedQuery:
        with torch.compiler.set_stance("force_eager"):  # a batch of another size, not worth compiling
            return super().encode_query(picture, box, mask)

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        # The first full run sets the length; the end of a video has another, not worth compiling.
        if first == context and self._length is None:
            self._length = len(features)
        if first != context or len(features) != self._length:
            return super().localize_run(features, query, context, first)
        features = features.to(self.device, self.dtype)
        return self._run(features, query.to(dtype=self.dtype), context, first)


def compile_parts(model: Any) -> None:
    """All blocks share one compiled function, so that start-up takes seconds."""
    assert isinstance(model.backbone, HalfBackbone)
    for block in model.backbone.blocks:
        block.compile(dynamic=False)


def _filled(frames: Tensor, batch: int) -> Tensor:
    missing = batch - len(frames)
    return torch.cat([frames, frames[-1:].expand(missing, -1, -1, -1)]) if missing else frames

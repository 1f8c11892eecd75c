"""Engines: what computes a model's numbers, and how exactly.

    torch-fp32             the model as it is: the reference, and what the paper's numbers are made with
    torch-bf16             half precision, less memory traffic (lastseen.model.quick); the default on GPUs
    torch-bf16-compiled    the same through torch.compile: pays its start-up back on long videos only

An engine's `rounding` is part of what an Index is bound to: features of another would not be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Box, Letterbox
from lastseen.errors import LastSeenError
from lastseen.model import Predictions, VQLoC
from lastseen.model.inputs import letterboxed, letterboxed_by_products
from lastseen.model.patch_match import PatchMatcher
from lastseen.model.quick import QuickBackbone, quick

VARIABLE = "LASTSEEN_ENGINE"


class Model(Protocol):
    """What Localizer needs of a model; VQLoC and PatchMatcher have it."""

    @property
    def title(self) -> str: ...
    @property
    def config(self) -> Any: ...
    @property
    def clip_length(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def padding(self) -> float: ...
    def state_dict(self) -> dict[str, Tensor]: ...
    def letterbox(self, width: int, height: int) -> Letterbox: ...
    def encode(self, frames: Tensor) -> Tensor: ...
    def encode_frames(self, frames: Tensor) -> Tensor: ...
    def encode_view(self, picture: Tensor, box: Box) -> Tensor: ...
    def localize_clip(self, features: Tensor, query: Tensor) -> Predictions: ...
    def localize_run(self, features: Tensor, query: Tensor, context: int, first: int) -> Predictions: ...


class Engine:
    """torch-fp32, and what the others change of it."""

    rounding = "torch float32"
    dtype = torch.float32

    def __init__(self, model: Model, device: torch.device) -> None:
        self.model, self.device = model, device
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

    def encode_frames(self, frames: Tensor) -> Tensor:
        """[n, h, w, 3] uint8 on the device -> features"""
        return self.model.encode_frames(frames)

    def encode_view(self, picture: Tensor, box: Box) -> Tensor:
        """A query's picture [h, w, 3] uint8 and the thing's box in it -> its features, float32"""
        return self.model.encode_view(picture.to(self.device), box).float()

    def localize_clip(self, features: Tensor, view: Tensor) -> Predictions:
        return self.model.localize_clip(features.to(self.device, self.dtype), view.to(self.dtype))

    def localize_run(self, features: Tensor, view: Tensor, context: int, first: int) -> Predictions:
        """Several whole clips at once: `VQLoC.localize_run`."""
        features = features.to(self.device, self.dtype)
        return self.model.localize_run(features, view.to(self.dtype), context, first)


class QuickEngine(Engine):
    """torch-bf16"""

    rounding = "torch bfloat16"
    dtype = torch.bfloat16

    def __init__(self, model: Model, device: torch.device) -> None:
        assert isinstance(model, VQLoC | PatchMatcher)
        super().__init__(quick(model, self.dtype), device)

    def encode_frames(self, frames: Tensor) -> Tensor:
        letterbox = self.model.letterbox(frames.shape[2], frames.shape[1])
        resize = letterboxed_by_products if frames.is_cuda else letterboxed
        return self.model.encode(resize(frames, letterbox, self.model.padding))


class CompiledEngine(QuickEngine):
    """torch-bf16-compiled: each block of the backbone, and runs of clips of one length."""

    def __init__(self, model: Model, device: torch.device) -> None:
        if device.type != "cuda":
            raise LastSeenError(
                f"engine torch-bf16-compiled is for GPUs; on the {device.type} take torch-bf16"
            )
        super().__init__(model, device)
        compile_parts(self.model)
        self._run: Callable[..., Predictions] = torch.compile(self.model.localize_run, dynamic=False)
        self._length: int | None = None

    def localize_run(self, features: Tensor, view: Tensor, context: int, first: int) -> Predictions:
        # The first full run sets the length; the end of a video has another, not worth compiling for.
        if first == context and self._length is None:
            self._length = len(features)
        if first != context or len(features) != self._length:
            return super().localize_run(features, view, context, first)
        features = features.to(self.device, self.dtype)
        return self._run(features, view.to(self.dtype), context, first)


def compile_parts(model: Any) -> None:
    """All blocks share one compiled function, so that start-up takes seconds."""
    assert isinstance(model.backbone, QuickBackbone)
    for block in model.backbone.blocks:
        block.compile(dynamic=False)


ENGINES: dict[str, type[Engine]] = {
    "torch-fp32": Engine,
    "torch-bf16": QuickEngine,
    "torch-bf16-compiled": CompiledEngine,
}


def make_engine(name: str, model: Model, device: torch.device) -> Engine:
    if name not in ENGINES:
        raise LastSeenError(f"engine {name} is unknown; choose one of {', '.join(ENGINES)}")
    return ENGINES[name](model, device)


def default_engine(device: torch.device, paper: bool) -> str:
    """The paper's numbers are float32's; else half precision where it costs nothing but digits."""
    return "torch-bf16" if device.type == "cuda" and not paper else "torch-fp32"


class Upload:
    """Pictures to a GPU through two page-locked buffers: while one batch is computed the next one is sent."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers: list[Tensor | None] = [None, None]
        self._done = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        self._turn = 0

    @contextmanager
    def sent(self, pictures: Sequence[np.ndarray]) -> Iterator[Tensor]:
        """[n, h, w, 3] on the GPU. What is done with it inside `with` is waited for two turns later: that
        keeps the program from running ahead of the GPU by more than it has memory for."""
        turn, self._turn = self._turn, 1 - self._turn
        self._done[turn].synchronize()
        buffer = self._buffer(turn, (len(pictures), *pictures[0].shape))
        for row, picture in zip(buffer, pictures):
            row.copy_(torch.from_numpy(np.require(picture, requirements=["C", "W"])))  # uses several cores
        computing = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            frames = buffer.to(self._device, non_blocking=True)
        computing.wait_stream(self._stream)
        frames.record_stream(computing)
        yield frames
        self._done[turn].record(computing)

    def _buffer(self, turn: int, shape: tuple[int, ...]) -> Tensor:
        held, size = self._buffers[turn], int(np.prod(shape))
        if held is None or held.numel() < size:
            held = self._buffers[turn] = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        return held[:size].view(shape)


def _filled(frames: Tensor, batch: int) -> Tensor:
    missing = batch - len(frames)
    return torch.cat([frames, frames[-1:].expand(missing, -1, -1, -1)]) if missing else frames

"""Copy pictures to the GPU while it computes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


class Upload:
    """Double buffering in pinned memory: the next batch is copied while the current one is computed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers: list[Tensor | None] = [None, None]
        self._done = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        self._turn = 0
        self._lock = threading.Lock()  # the web server has several threads

    @contextmanager
    def sent(self, pictures: Sequence[np.ndarray]) -> Iterator[Tensor]:
        """Pictures as [n, h, w, 3] on the GPU. A buffer is reused only after the work inside its `with` is
        done, so the program is at most two batches ahead of the GPU."""
        with self._lock:
            turn, self._turn = self._turn, 1 - self._turn
            self._done[turn].synchronize()
            buffer = self._buffer(turn, (len(pictures), *pictures[0].shape))
            for row, picture in zip(buffer, pictures):
                row.copy_(
                    torch.from_numpy(np.require(picture, requirements=["C", "W"]))
                )  # copy_ is multi-threaded
            computing = torch.cuda.current_stream(self._device)
            with torch.cuda.stream(self._stream):
                frames = buffer.to(self._device, non_blocking=True)
            computing.wait_stream(self._stream)
            frames.record_stream(computing)
            try:
                yield frames
            finally:
                self._done[turn].record(computing)

    def _buffer(self, turn: int, shape: tuple[int, ...]) -> Tensor:
        held, size = self._buffers[turn], int(np.prod(shape))
        if held is None or held.numel() < size:
            held = self._buffers[turn] = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        return held[:size].view(shape)

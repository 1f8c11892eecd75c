"""Walks rendered in rounds while a model trains, so that things do not come back.

A round is a folder of walks of its own, used for `round_steps` steps; meanwhile other processes render the
next one. Which walks a step sees depends on the seed and the step alone, however long rendering takes.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import torch

from lastseen.model import Backbone, TrainedConfig
from lastseen.train.batch import Batch
from lastseen.train.feature_store import FeatureStore, SynthData, harvested
from lastseen.train.gallery import Gallery

SEEDS_A_RUN = 10_000  # rounds of runs with other seeds are other rounds


class _Stopped(Exception):
    """Raised in the thread that renders, to end it."""


class Rounds:
    """A source of batches whose walks change from round to round; `close` it when training stops."""

    def __init__(
        self,
        data: SynthData,
        model: TrainedConfig,
        backbone: Backbone,
        batch: int,
        seed: int,
        device: torch.device,
        last_step: int | None = None,
    ) -> None:
        assert data.round_steps is not None
        self.data, self.model, self.backbone, self.size, self.seed = data, model, backbone, batch, seed
        self.device, self.every = device, data.round_steps
        self.last_round = None if last_step is None else (last_step - 1) // self.every
        self._opened: tuple[int, FeatureStore] | None = None
        self._stop = Event()
        self._thread = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[list[Path]]] | None = None

    def batch(self, step: int) -> Batch:
        return self._store(step // self.every).batch(step)

    def close(self) -> None:
        """Ends what renders in the background; files of walks that are done are kept."""
        self._stop.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._opened = None

    def _store(self, number: int) -> FeatureStore:
        if self._opened is None or self._opened[0] != number:
            self._opened = None  # its memory is needed
            paths = self._rendered(number)
            scales, view_px = self.model.query_scales, self.model.query_size
            gallery = Gallery.open(paths, self.device, scales=scales, view_px=view_px)
            store = FeatureStore(gallery, self.data, self.model, self.backbone, self.size, self.seed)
            self._opened = number, store
            if self.data.workers_beside and (self.last_round is None or number < self.last_round):
                ahead = self._thread.submit(self._render, number + 1, self.data.workers_beside)
                self._ahead = number + 1, ahead
        return self._opened[1]

    def _rendered(self, number: int) -> list[Path]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == number:
            return ahead[1].result()
        return self._render(number, self.data.workers)

    def _render(self, number: int, workers: int) -> list[Path]:
        folder = str(Path(self.data.folder) / f"round-{number:04d}")
        data = replace(self.data, folder=folder, workers=workers)
        return harvested(data, SEEDS_A_RUN * self.seed + number, self.device, self._go_on)

    def _go_on(self, _done: int, _of: int) -> None:
        if self._stop.is_set():
            raise _Stopped

"""Frames and features of a video for refinement: decoded and encoded again, and cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Box, Letterbox
from lastseen.masks import BoxMask
from lastseen.model import EncodedQuery, Model
from lastseen.query import Footage
from lastseen.refine.window import Window
from lastseen.video import Video

OpenVideo = Callable[[], Video]
ReadFeatures = Callable[[int, int], Tensor]  # frames [start, stop) -> [n, channels, rows, columns]


class Encoder(Protocol):
    """The part of Localizer that is used here."""

    model: Model
    fps: float
    device: torch.device
    batch: int

    def encoded(self, video: Video, start: int, end: int) -> Iterator[Tensor]: ...
    def encode_pictures(self, pictures: Sequence[np.ndarray]) -> Tensor: ...
    def localize_clip(
        self, features: Tensor, queries: list[EncodedQuery]
    ) -> tuple[np.ndarray, np.ndarray]: ...
    def segment(self, pictures: Sequence[np.ndarray], boxes: Sequence[Box]) -> list[BoxMask]: ...


class VideoFeatures:
    """Features of any frames of a video file before `end`, encoded in batches; recent ones are cached."""

    def __init__(self, encoder: Encoder, video: OpenVideo, end: int, held_frames: int) -> None:
        self.encoder, self.video, self.end, self.held_frames = encoder, video, end, held_frames
        self._held: OrderedDict[int, Tensor] = OrderedDict()  # by batch number

    def read(self, start: int, stop: int) -> Tensor:
        """Frames [start, stop) -> [n, channels, rows, columns]"""
        size = self.encoder.batch
        first, last = start // size, (stop - 1) // size
        missing = [number for number in range(first, last + 1) if number not in self._held]
        if missing:
            begin, end = missing[0], min(self.end, (missing[-1] + 1) * size)
            made = self.encoder.encoded(self.video(), begin * size, end)
            for number, features in enumerate(made, begin):
                self._held[number] = features.cpu()
        for number in range(first, last + 1):
            self._held.move_to_end(number)
        joined = torch.cat([self._held[number] for number in range(first, last + 1)])
        while len(self._held) * size > max(self.held_frames, (last - first + 1) * size):
            self._held.popitem(last=False)
        return joined[start - first * size : stop - first * size]


@dataclass(eq=False)
class VideoAccess:
    """FrameAccess for one query and one video; the evidence begins at frame `first`."""

    encoder: Encoder
    footage: Footage
    query: list[EncodedQuery]  # its views
    features: ReadFeatures  # frames are numbered from the beginning of the video
    video: OpenVideo
    first: int = 0
    _zoomed: dict[tuple[int, int, bytes], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    @property
    def letterbox(self) -> Letterbox:
        return self.encoder.model.letterbox(self.footage.width, self.footage.height)

    @property
    def clip_length(self) -> int:
        return self.encoder.model.clip_length

    def vectors(self, start: int, stop: int) -> Tensor:
        features = self.features(self.first + start, self.first + stop).to(self.encoder.device)
        return self.encoder.model.frame_vectors(features)

    def localize(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """Cached by window, since an index search refines the same video repeatedly."""
        if window.key not in self._zoomed:
            features = self._encoded(window)
            if not len(features):
                return np.empty((0, 4)), np.empty(0)
            boxes, logits = self.encoder.localize_clip(features, self.query)
            boxes_px = window.shortened(len(logits)).to_px(boxes)
            self._zoomed[window.key] = (
                boxes_px.clip(0, [self.footage.width, self.footage.height] * 2),
                logits,
            )
        return self._zoomed[window.key]

    def pictures(self, start: int, stop: int) -> Generator[np.ndarray, None, None]:
        fps = self.encoder.fps
        start, stop = self.first + start, self.first + stop
        with closing(self.video().frames(fps, start_s=start / fps, end_s=stop / fps)) as frames:
            for frame in frames:
                yield frame.image

    def segment(self, pictures: Sequence[np.ndarray], boxes: Sequence[Box]) -> list[BoxMask]:
        return self.encoder.segment(pictures, boxes)

    def _encoded(self, window: Window) -> Tensor:
        """Features of the window's crops, encoded in batches, since frames may be large."""
        parts = []
        with closing(self.pictures(window.start, window.stop)) as frames:
            crops = window.crops(frames)
            while pictures := list(islice(crops, self.encoder.batch)):
                parts.append(self.encoder.encode_pictures(pictures))
        return torch.cat(parts) if parts else torch.empty(0)

"""Localizer: a video and a query in, the moment the thing was last seen out."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Box, Letterbox
from lastseen.errors import LastSeenError, QueryError
from lastseen.model import Predictions, VQLoC
from lastseen.model.patch_match import PatchMatcher
from lastseen.query import Query
from lastseen.track import FramePredictions, ResponseTrack, TrackRule, all_tracks, paper_track
from lastseen.video import Video
from lastseen.weights import load_model, load_patch_matcher

# Fitted on the answers to the development set of real video: docs/results.md.
TRAINING_FREE_RULE = TrackRule(slope=2.1, offset=-1.8)

Progress = Callable[[int, int], None]  # frames done, frames in all


class Model(Protocol):
    """What Localizer needs of a model; VQLoC and PatchMatcher have it."""

    @property
    def title(self) -> str: ...
    @property
    def clip_length(self) -> int: ...
    @property
    def context(self) -> int: ...
    def state_dict(self) -> dict[str, Tensor]: ...
    def letterbox(self, width: int, height: int) -> Letterbox: ...
    def encode_frames(self, frames: Tensor) -> Tensor: ...
    def encode_view(self, picture: Tensor, box: Box) -> Tensor: ...
    def localize_clip(self, features: Tensor, query: Tensor) -> Predictions: ...


class Localizer:
    """Finds things in videos with one model.

    `paper=True` follows the paper to the letter: clips side by side, the last padded with its last
    frame, always an answer, always score 1. Otherwise clips overlap by what a frame can see, so that
    none is blind at a border, the score is a confidence, and None means "not seen".
    """

    def __init__(
        self,
        model: Model,
        *,
        rule: TrackRule = TrackRule(),
        fps: float = 5.0,
        paper: bool = False,
        device: str | torch.device = "cpu",
        batch: int = 4,
    ) -> None:
        self.model = model
        self.rule = rule
        self.fps = fps
        self.paper = paper
        self.device = torch.device(device)
        self.batch = batch  # frames encoded at a time

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        paper: bool = False,
        device: str | torch.device | None = None,
        threshold: float | None = None,
    ) -> Localizer:
        """The bundled model, or one from a folder that `lastseen convert` wrote.

        The package holds no trained heads yet: the bundled model is the training-free localizer.
        """
        where = best_device() if device is None else checked_device(device)
        batch = 32 if where.type == "cuda" else 4
        model: PatchMatcher | VQLoC = load_patch_matcher() if path is None else load_model(path)
        rule = TRAINING_FREE_RULE if path is None else TrackRule()
        if threshold is not None:
            rule = replace(rule, threshold=threshold)
        return cls(model.to(where), rule=rule, paper=paper, device=where, batch=batch)

    def at(self, fps: float) -> Localizer:
        """The same localizer at another sampling rate."""
        return (
            self
            if fps == self.fps
            else Localizer(
                self.model, rule=self.rule, fps=fps, paper=self.paper, device=self.device, batch=self.batch
            )
        )

    def fingerprint(self) -> str:
        """Equal for equal answers: model, weights, rule and mode."""
        digest = hashlib.sha256(repr((self.model.title, self.rule, self.fps, self.paper)).encode())
        for name, value in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(value.detach().cpu().float().numpy().tobytes())
        return digest.hexdigest()

    def locate(self, video: Video, query: Query, progress: Progress | None = None) -> ResponseTrack | None:
        """When and where the thing was last seen before the question, or None if it was not."""
        tracks = self.locate_all(video, query, progress)
        return tracks[-1] if tracks else None

    def locate_all(self, video: Video, query: Query, progress: Progress | None = None) -> list[ResponseTrack]:
        """Every time the thing was seen before the question, in time order."""
        return self.tracks(self.predict(video, [query], progress)[0])

    def tracks(self, predictions: FramePredictions) -> list[ResponseTrack]:
        if self.paper:
            return [paper_track(predictions, query_frame=len(predictions))]
        return all_tracks(predictions, self.rule)

    def best_guess(self, predictions: FramePredictions) -> ResponseTrack:
        """The answer if there must be one, whatever its score."""
        if self.paper:
            return paper_track(predictions, query_frame=len(predictions))
        return all_tracks(predictions, replace(self.rule, threshold=0.0))[-1]

    @torch.inference_mode()
    def predict(
        self, video: Video, queries: Sequence[Query], progress: Progress | None = None
    ) -> list[FramePredictions]:
        """A box and a logit on every frame for every query; the video is decoded and encoded once."""
        ends = [self._frames_searched(video, query) for query in queries]
        views = [[self._encode_view(v.picture, v.box) for v in query.views] for query in queries]
        letterbox = self.model.letterbox(video.width, video.height)
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in queries]
        for start, features, first, last in self._clips(video, max(ends), progress):
            for parts, end, query_views in zip(found, ends, views):
                # Search stops at asked_at: later frames must not even be seen by earlier ones.
                visible, kept_to = features[: max(0, end - start)], min(last, end - start)
                if kept_to > first:
                    boxes, logits = self._best(visible, query_views)
                    parts.append((boxes[first:kept_to], logits[first:kept_to]))
        return [
            FramePredictions(
                fps=self.fps,
                boxes_px=letterbox.to_px(np.concatenate([boxes for boxes, _ in parts])),
                logits=np.concatenate([logits for _, logits in parts]),
            )
            for parts in found
        ]

    def _frames_searched(self, video: Video, query: Query) -> int:
        total = video.frame_count(self.fps)
        if query.asked_at is None:
            return total
        if not query.asked_at > 0:
            raise QueryError(f"asked at {query.asked_at:g} s: the video starts at 0 s, ask after that")
        if query.asked_at > video.duration_s + 1 / self.fps:
            raise QueryError(
                f"asked at {query.asked_at:g} s, past the end of {video.path} ({video.duration_s:.2f} s); "
                "leave the time out to search all of it"
            )
        return min(total, math.ceil(query.asked_at * self.fps - 1e-6))

    def _clips(
        self, video: Video, end: int, progress: Progress | None
    ) -> Iterator[tuple[int, Tensor, int, int]]:
        """(number of the clip's first frame, its features, first and one past the last frame to keep)"""
        length = self.model.clip_length
        context = 0 if self.paper else self.model.context
        start = first = 0
        clip: Tensor | None = None
        for features in self._encoded(video, end, progress):
            clip = features if clip is None else torch.cat([clip, features])
            while len(clip) >= length:
                yield start, clip[:length], first, length - context
                step = length - 2 * context
                start, first, clip = start + step, context, clip[step:]
        if clip is not None and len(clip) > first:
            yield start, clip, first, len(clip)

    def _encoded(self, video: Video, end: int, progress: Progress | None) -> Iterator[Tensor]:
        batch: list[np.ndarray] = []
        for frame in video.frames(self.fps, end_s=end / self.fps):
            batch.append(frame.image)
            if len(batch) == self.batch or frame.index == end - 1:
                yield self.model.encode_frames(torch.from_numpy(np.stack(batch)).to(self.device))
                batch = []
                if progress:
                    progress(frame.index + 1, end)
        if batch:
            yield self.model.encode_frames(torch.from_numpy(np.stack(batch)).to(self.device))

    def _encode_view(self, picture: np.ndarray, box: Box) -> Tensor:
        return self.model.encode_view(torch.from_numpy(np.ascontiguousarray(picture)).to(self.device), box)

    def _best(self, features: Tensor, views: list[Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """The best candidate of the best view on each frame: boxes [t, 4] in the unit square, logits [t]."""
        time = len(features)
        if self.paper and time < self.model.clip_length:
            missing = self.model.clip_length - time
            features = torch.cat([features, features[-1:].expand(missing, *features.shape[1:])])
        answers = [self.model.localize_clip(features, view).best() for view in views]
        logits = torch.stack([answer.logits[0, :time] for answer in answers])
        boxes = torch.stack([answer.boxes[0, :time] for answer in answers])
        best = logits.argmax(0)
        frames = torch.arange(time, device=best.device)
        return boxes[best, frames].float().cpu().numpy(), logits[best, frames].float().cpu().numpy()


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def checked_device(name: str | torch.device) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise LastSeenError(f"device {name} cannot be used: {str(error).splitlines()[0]}; try cpu") from None
    return device

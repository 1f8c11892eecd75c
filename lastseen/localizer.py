"""Localizer: a video and a query in, the moment the thing was last seen out."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

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
from lastseen.weights import load_model, load_patch_matcher, load_rule

# Fitted on the answers to the development set of real video: docs/results.md.
TRAINING_FREE_RULE = TrackRule(slope=2.1, offset=-1.8)

ENGINE = "torch float32"  # what computes features; another one rounds differently

Progress = Callable[[int, int], None]  # frames done, frames in all


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
    def state_dict(self) -> dict[str, Tensor]: ...
    def letterbox(self, width: int, height: int) -> Letterbox: ...
    def encode_frames(self, frames: Tensor) -> Tensor: ...
    def encode_view(self, picture: Tensor, box: Box) -> Tensor: ...
    def localize_clip(self, features: Tensor, query: Tensor) -> Predictions: ...


class Footage(Protocol):
    """What a question is asked of: a Video, or one in an Index."""

    @property
    def path(self) -> Path: ...
    @property
    def duration_s(self) -> float: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    def frame_count(self, fps: float) -> int: ...


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
        feature_dtype: torch.dtype | None = None,
    ) -> None:
        self.model = model
        self.rule = rule
        self.fps = fps
        self.paper = paper
        self.device = torch.device(device)
        self.batch = batch  # frames encoded at a time
        # Features are rounded to this before anything looks at them, so that those an Index kept give the
        # same answers as fresh ones. The paper's are not rounded.
        self.feature_dtype = feature_dtype or (torch.float32 if paper else torch.float16)

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
        rule = TRAINING_FREE_RULE if path is None else load_rule(path)
        if threshold is not None:
            rule = replace(rule, threshold=threshold)
        return cls(model.to(where), rule=rule, paper=paper, device=where, batch=batch)

    def at(self, fps: float) -> Localizer:
        """The same localizer at another sampling rate."""
        if fps == self.fps:
            return self
        return Localizer(
            self.model,
            rule=self.rule,
            fps=fps,
            paper=self.paper,
            device=self.device,
            batch=self.batch,
            feature_dtype=self.feature_dtype,
        )

    def fingerprint(self) -> str:
        """Equal for equal answers: features, rule and mode."""
        return hashlib.sha256(repr((self.feature_fingerprint(), self.rule, self.paper)).encode()).hexdigest()

    def feature_fingerprint(self) -> str:
        """Equal for equal features: model, weights, sampling rate, engine and rounding; not the rule."""
        backbone = getattr(getattr(self.model, "backbone", None), "config", None)
        made_by = self.model.title, self.model.config, backbone, self.fps, ENGINE, str(self.feature_dtype)
        digest = hashlib.sha256(repr(made_by).encode())
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

    def predict(
        self, video: Video, queries: Sequence[Query], progress: Progress | None = None
    ) -> list[FramePredictions]:
        """A box and a logit on every frame for every query; the video is decoded and encoded once."""
        ends = [self.frames_searched(video, query) for query in queries]
        views = [self.encode_query(query) for query in queries]
        return self.predict_encoded(video, self.encoded(video, 0, max(ends), progress), views, ends)

    @torch.inference_mode()
    def predict_encoded(
        self,
        footage: Footage,
        features: Iterable[Tensor],
        queries: Sequence[list[Tensor]],
        ends: Sequence[int],
    ) -> list[FramePredictions]:
        """As `predict`, from features of `encoded` in pieces of any length and views of `encode_query`;
        each query is searched for in the frames before its end."""
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in queries]
        for start, clip, first, last in self.clips(features):
            for parts, end, views in zip(found, ends, queries):
                # Search stops at asked_at: later frames must not even be seen by earlier ones.
                visible, kept_to = clip[: max(0, end - start)], min(last, end - start)
                if kept_to > first:
                    boxes, logits = self.localize_clip(visible, views)
                    parts.append((boxes[first:kept_to], logits[first:kept_to]))
        letterbox = self.model.letterbox(footage.width, footage.height)
        return [
            FramePredictions(
                fps=self.fps,
                boxes_px=letterbox.to_px(np.concatenate([boxes for boxes, _ in parts])),
                logits=np.concatenate([logits for _, logits in parts]),
            )
            for parts in found
        ]

    def frames_searched(self, footage: Footage, query: Query) -> int:
        """How many frames come before the question."""
        total = footage.frame_count(self.fps)
        if query.asked_at is None:
            return total
        if not query.asked_at > 0:
            raise QueryError(f"asked at {query.asked_at:g} s: the video starts at 0 s, ask after that")
        if query.asked_at > footage.duration_s + 1 / self.fps:
            raise QueryError(
                f"asked at {query.asked_at:g} s, past the end of {footage.path} "
                f"({footage.duration_s:.2f} s); leave the time out to search all of it"
            )
        return min(total, math.ceil(query.asked_at * self.fps - 1e-6))

    def clips(self, features: Iterable[Tensor]) -> Iterator[tuple[int, Tensor, int, int]]:
        """(number of the clip's first frame, its features, first and one past the last frame to keep)"""
        length = self.model.clip_length
        context = 0 if self.paper else self.model.context
        start = first = 0
        clip: Tensor | None = None
        for piece in features:
            clip = piece if clip is None else torch.cat([clip, piece])
            while len(clip) >= length:
                yield start, clip[:length], first, length - context
                step = length - 2 * context
                start, first, clip = start + step, context, clip[step:]
        if clip is not None and len(clip) > first:
            yield start, clip, first, len(clip)

    def encoded(
        self, video: Video, start: int, end: int, progress: Progress | None = None
    ) -> Iterator[Tensor]:
        """Features of the frames [start, end), a batch at a time; `start` is a multiple of `batch`.

        Frame n has the same place in a batch of the same size wherever encoding begins and ends, so its
        features are the same to the last bit.
        """
        if start % self.batch:
            raise ValueError(f"start must be a multiple of {self.batch}, got {start}")
        pictures: list[np.ndarray] = []
        for frame in video.frames(self.fps, start_s=start / self.fps, end_s=end / self.fps):
            pictures.append(frame.image)
            if len(pictures) == self.batch or frame.index == end - 1:
                yield self.encode_pictures(pictures)
                pictures = []
                if progress:
                    progress(frame.index + 1, end)
        if pictures:
            yield self.encode_pictures(pictures)

    @torch.inference_mode()
    def encode_pictures(self, pictures: Sequence[np.ndarray]) -> Tensor:
        """Up to `batch` pictures [h, w, 3] of one size -> features [n, c, rows, columns], rounded."""
        missing = self.batch - len(pictures)
        full = np.stack([*pictures, *[pictures[-1]] * missing])
        features = self.model.encode_frames(torch.from_numpy(full).to(self.device))
        return features[: len(pictures)].to(self.feature_dtype)

    @torch.inference_mode()
    def encode_query(self, query: Query) -> list[Tensor]:
        """The features of each view."""
        pictures = [torch.from_numpy(np.ascontiguousarray(view.picture)) for view in query.views]
        return [
            self.model.encode_view(picture.to(self.device), view.box)
            for picture, view in zip(pictures, query.views)
        ]

    @torch.inference_mode()
    def localize_clip(self, features: Tensor, views: list[Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """The best candidate of the best view on each frame: boxes [t, 4] in the unit square, logits [t]."""
        time = len(features)
        features = features.to(self.device).float()
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

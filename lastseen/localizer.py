"""Localizer: a video and a query in, the moment the thing was last seen out."""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from lastseen.clips import Clip, cut
from lastseen.ends import Eye, Features
from lastseen.engine import DEFAULT, Engine, default_engine, make_engine
from lastseen.engine.devices import best_device, checked_device
from lastseen.errors import LastSeenError, QueryError
from lastseen.model import EncodedQuery, Model, Predictions, TrainedModel, TrainingFreeModel
from lastseen.query import Footage, Query
from lastseen.second_look import Looks, Sighting, likeliest, replaced
from lastseen.track import FramePredictions, ResponseTrack, TrackRule, all_tracks, paper_track
from lastseen.video import Video
from lastseen.weights import bundled_model, load_model, load_rule, load_training_free

TRAINING_FREE = "training-free"  # instead of a folder: no heads, patches are compared
# Fitted on the answers to the development set of real video: docs/results.md.
TRAINING_FREE_RULE = TrackRule(slope=2.1, offset=-1.8)

FRAMES_KEPT = 64  # of those that an answer looks at again: 50 MB
CLIPS_AT_ONCE = 16  # on a GPU; the CPU takes them one by one, which is as fast there

Progress = Callable[[int, int], None]  # frames done, frames in all


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
        engine: str = DEFAULT,
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
        self.engine: Engine = make_engine(engine, model, self.device)
        self._fingerprints: dict[float, str] = {}  # by rate: weights are read once, not for every question
        self.clips_at_once = CLIPS_AT_ONCE if self.device.type == "cuda" else 1

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        paper: bool = False,
        device: str | torch.device | None = None,
        threshold: float | None = None,
        looks: int | None = None,
        engine: str | None = None,
    ) -> Localizer:
        """The bundled model, one from a folder that `lastseen train` or `lastseen convert` wrote, or
        "training-free": plain matching on the bundled backbone.

        `engine` is one of `lastseen.engine.ENGINES`; by default float16 on a GPU, else float32. `looks`: how
        many sightings are looked at again, enlarged; by default as many as the model's rule was fitted with.
        """
        where = best_device() if device is None else checked_device(device)
        batch = 64 if where.type == "cuda" else 4
        model: TrainedModel | TrainingFreeModel
        if path is not None and os.fspath(path) == TRAINING_FREE:
            model, rule = load_training_free(), TRAINING_FREE_RULE
        else:
            folder = bundled_model() if path is None else path
            model, rule = load_model(folder), load_rule(folder)
        if threshold is not None:
            rule = replace(rule, threshold=threshold)
        if looks is not None:
            rule = replace(rule, looks=looks)
        engine = engine or default_engine(where, paper)
        return cls(model.to(where), rule=rule, paper=paper, device=where, batch=batch, engine=engine)

    @property
    def looks(self) -> int:
        """How many sightings are looked at again, enlarged."""
        return 0 if self.paper else self.rule.looks

    def at(self, fps: float) -> Localizer:
        """The same localizer at another sampling rate."""
        if fps == self.fps:
            return self
        other = copy.copy(self)
        other.fps = fps
        return other

    def fingerprint(self) -> str:
        """Equal for equal answers: features, rule and mode."""
        return hashlib.sha256(repr((self.feature_fingerprint(), self.rule, self.paper)).encode()).hexdigest()

    def feature_fingerprint(self) -> str:
        """Equal for equal features: model, weights, sampling rate, engine and rounding; not the rule."""
        if self.fps in self._fingerprints:
            return self._fingerprints[self.fps]
        made_by = self.model.fingerprint(), self.fps, self.engine.rounding, str(self.feature_dtype)
        self._fingerprints[self.fps] = hashlib.sha256(repr(made_by).encode()).hexdigest()
        return self._fingerprints[self.fps]

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
        """A box and a logit on every frame for every query; the video is decoded and encoded once, and what
        is looked at again a second time."""
        ends = [self.frames_searched(video, query) for query in queries]
        views = [self.encode_query(query) for query in queries]
        found = self.predict_encoded(video, self.encoded(video, 0, max(ends), progress), views, ends)
        seen = [self.look_again(video, view, predictions) for view, predictions in zip(views, found)]
        features = self.features_of(video, max(ends))
        return [self.follow(video, predictions, features) for predictions in seen]

    def look_again(
        self,
        video: Video,
        views: list[EncodedQuery],
        predictions: FramePredictions,
        first: int = 0,
        known: Looks | None = None,
    ) -> FramePredictions:
        """The likeliest sightings of a first look again, enlarged. The predictions begin at frame `first`;
        `known` are looks that need not be repeated, and gets the others."""
        if not self.looks or not len(predictions):
            return predictions
        known = {} if known is None else known
        sightings = likeliest(predictions, self.rule, video.width, video.height, self.model.clip_length)
        for sighting in sightings:
            if sighting.key not in known:
                features = self._enlarged(video, sighting, first)
                if len(features):
                    boxes, logits = self.localize_clip(features, views)
                    boxes_px = sighting.shortened(len(logits)).to_px(boxes)
                    known[sighting.key] = boxes_px.clip(0, [video.width, video.height] * 2), logits
        looks = [(sighting, known[sighting.key]) for sighting in sightings if sighting.key in known]
        return replaced(predictions, [(sighting.shortened(len(look[1])), look) for sighting, look in looks])

    def doubt(self, footage: Footage, predictions: FramePredictions, features: Features) -> FramePredictions:
        """Less of sightings that are unlike the surest one."""
        least, trusted = self.rule.like_surest, replace(predictions, doubts=())
        if self.paper or least is None or not len(predictions):
            return trusted
        return self._eye(footage, trusted, features).doubted(self._sightings(trusted), least)

    def follow(self, footage: Footage, predictions: FramePredictions, features: Features) -> FramePredictions:
        """Every track that is not in doubt to its ends, where the thing is no longer like itself: the last
        step of an answer."""
        least, sure = self.rule.like_itself, self.doubt(footage, predictions, features)
        if self.paper or least is None or not len(predictions):
            return sure
        return self._eye(footage, sure, features).followed(self._sightings(sure), least)

    def _eye(self, footage: Footage, predictions: FramePredictions, features: Features) -> Eye:
        return Eye(predictions, self.model.letterbox(footage.width, footage.height), features)

    def _sightings(self, predictions: FramePredictions) -> list[ResponseTrack]:
        """All tracks, and the best guess if it is none of them."""
        guess = self.best_guess(predictions)
        return [*(t for t in self.tracks(predictions) if t.first_frame != guess.first_frame), guess]

    def features_of(self, video: Video, end: int) -> Features:
        """What `follow` asks for: features of a few frames before `end`, made again and kept for a while."""

        @lru_cache(max(2, FRAMES_KEPT // self.batch))
        def batch(start: int) -> Tensor:
            return torch.cat(list(self.encoded(video, start, min(start + self.batch, end))))

        def read(start: int, stop: int) -> Tensor:
            begin = start - start % self.batch
            parts = [batch(at) for at in range(begin, stop, self.batch)]
            return torch.cat(parts)[start - begin : stop - begin]

        return read

    def _enlarged(self, video: Video, sighting: Sighting, first: int) -> Tensor:
        """Features of its windows, a batch at a time: frames may be large."""
        start, stop = first + sighting.start, first + sighting.stop
        parts = []
        with closing(video.frames(self.fps, start_s=start / self.fps, end_s=stop / self.fps)) as frames:
            windows = sighting.cut(frame.image for frame in frames)
            while pictures := list(islice(windows, self.batch)):
                parts.append(self.encode_pictures(pictures))
        return torch.cat(parts) if parts else torch.empty(0)

    @torch.inference_mode()
    def predict_encoded(
        self,
        footage: Footage,
        features: Iterable[Tensor],
        queries: Sequence[list[EncodedQuery]],
        ends: Sequence[int],
    ) -> list[FramePredictions]:
        """As `predict`, from features of `encoded` in pieces of any length and views of `encode_query`;
        each query is searched for in the frames before its end."""
        found = [_Found(end, self.device) for end in ends]
        here = (piece.to(self.device) for piece in features)  # once, not for each query
        for start, run, first, last in self.clips(here, self.clips_at_once):
            for one, end, views in zip(found, ends, queries):
                if start + first < end:
                    for part in self._localized(run, views, first, last, end - start):
                        one.add(part)
        letterbox = self.model.letterbox(footage.width, footage.height)
        return [
            FramePredictions(
                fps=self.fps,
                boxes_px=letterbox.to_px(one.boxes[: one.count].cpu().numpy()),
                logits=self._finite(one.logits[: one.count].cpu().numpy()),
            )
            for one in found
        ]

    def _finite(self, logits: np.ndarray) -> np.ndarray:
        if np.isnan(logits).any():
            raise LastSeenError(
                f"{self.engine.rounding} cannot hold the numbers that these weights make; "
                "choose another engine: torch-bf16 or torch-fp32"
            )
        return logits

    def _localized(
        self, run: Tensor, views: list[EncodedQuery], first: int, last: int, end: int
    ) -> Iterator[Predictions]:
        """The best candidates of a run's frames from `first` to `last`, as if the video ended at `end`."""
        length = self.model.clip_length
        if length < len(run) <= end:
            yield self._best(
                [self.engine.localize_run(run, view, self._context, first).best() for view in views]
            )
            return
        for at in range(0, max(1, len(run) - length + 1), length - 2 * self._context):
            # Search stops at asked_at: later frames must not even be seen by earlier ones.
            visible = run[at : min(at + length, end)]
            kept_to = min(last - at, length - self._context if at + length < len(run) else length, end - at)
            if kept_to > first:
                best = self._best_of_clip(visible, views)
                yield Predictions(best.boxes[first:kept_to], best.logits[first:kept_to])
            first = self._context

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

    @property
    def _context(self) -> int:
        return 0 if self.paper else self.model.context

    def clips(self, features: Iterable[Tensor], at_once: int = 1) -> Iterator[Clip]:
        """Features in pieces of any length -> clips, or runs of so many, as the model reads them."""
        return cut(features, self.model.clip_length, self._context, at_once)

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
        span = {"start_s": start / self.fps, "end_s": end / self.fps}
        with closing(video.frames(self.fps, **span, ahead=self.batch)) as frames:
            for frame in frames:
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
        return self.engine.encode_pictures(pictures, self.batch).to(self.feature_dtype)

    @torch.inference_mode()
    def encode_query(self, query: Query) -> list[EncodedQuery]:
        """The features of each view."""
        return [
            self.engine.encode_query(torch.from_numpy(np.ascontiguousarray(view.picture)), view.box)
            for view in query.views
        ]

    @torch.inference_mode()
    def localize_clip(self, features: Tensor, views: list[EncodedQuery]) -> tuple[np.ndarray, np.ndarray]:
        """The best candidate of the best view on each frame: boxes [t, 4] in the unit square, logits [t]."""
        best = self._best_of_clip(features, views)
        return best.boxes.cpu().numpy(), self._finite(best.logits.cpu().numpy())

    def _best_of_clip(self, features: Tensor, views: list[EncodedQuery]) -> Predictions:
        time = len(features)
        if self.paper and time < self.model.clip_length:
            missing = self.model.clip_length - time
            features = torch.cat([features, features[-1:].expand(missing, *features.shape[1:])])
        return self._best([self.engine.localize_clip(features, view).best() for view in views], time)

    def _best(self, answers: Sequence[Predictions], time: int | None = None) -> Predictions:
        """Of the best candidates [1, t, ..] for each view the best: boxes [t, 4], logits [t]."""
        logits = torch.stack([answer.logits[0, :time] for answer in answers])
        boxes = torch.stack([answer.boxes[0, :time] for answer in answers])
        best = logits.argmax(0)
        frames = torch.arange(logits.shape[1], device=best.device)
        return Predictions(boxes[best, frames].float(), logits[best, frames].float())


class _Found:
    """Boxes and logits in the order of frames. All of the memory is taken at once: many small pieces between
    a clip's large ones would keep the heap from being used again, and hours of video would show it."""

    def __init__(self, frames: int, device: torch.device) -> None:
        self.boxes, self.logits = torch.empty(frames, 4, device=device), torch.empty(frames, device=device)
        self.count = 0

    def add(self, part: Predictions) -> None:
        place = slice(self.count, self.count + len(part.logits))
        self.boxes[place], self.logits[place] = part.boxes, part.logits
        self.count = place.stop

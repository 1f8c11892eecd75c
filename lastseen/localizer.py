"""Localizer: a video and a query in, the moment the thing was last seen out."""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lastseen.access import VideoAccess, VideoFeatures
from lastseen.answer import Answer, ScoreCurve, VideoInfo
from lastseen.box import Box
from lastseen.clips import Clip, FrameBuffer, cut
from lastseen.engine import DEFAULT, Engine, default_engine, make_engine
from lastseen.engine.devices import best_device, checked_device
from lastseen.errors import LastSeenError, QueryError
from lastseen.masks import BoxMask, MobileSamSegmenter, Segmenter, load_mobile_sam
from lastseen.model import EncodedQuery, Model, Predictions, TrainedModel, TrainingFreeModel
from lastseen.procedure import Procedure, Published, Standard
from lastseen.query import Footage, Query
from lastseen.refine import Mask
from lastseen.rule import Rule
from lastseen.sighting import Confidence, Evidence
from lastseen.track import FramePredictions, ResponseTrack
from lastseen.video import Video
from lastseen.video.unreadable import Unreadable
from lastseen.weights import bundled_model, load_model, load_rule, load_training_free

TRAINING_FREE = "training-free"  # in place of a folder: patch matching without trained heads
# Fitted on the development set of real video: docs/results.md.
TRAINING_FREE_RULE = Rule(confidence=Confidence(slope=2.1, offset=-1.8))

FRAMES_HELD = 64  # cache of frames that refinement encodes again: 50 MB
SEGMENTED_AT_ONCE = 16  # on a GPU
CLIPS_AT_ONCE = 16  # on a GPU; one by one on the CPU, which is as fast there

Progress = Callable[[int, int], None]  # frames done, total frames


class Localizer:
    """Finds things in videos with one model and one procedure (`lastseen.procedure`)."""

    def __init__(
        self,
        model: Model,
        *,
        procedure: Procedure = Standard(),
        fps: float = 5.0,
        device: str | torch.device = "cpu",
        batch: int = 4,
        feature_dtype: torch.dtype | None = None,
        engine: str = DEFAULT,
        segmenter: Segmenter | None = None,
    ) -> None:
        self.model = model
        self.procedure = procedure
        self.fps = fps
        self.device = torch.device(device)
        self.batch = batch  # frames encoded at a time
        self.feature_dtype = feature_dtype or procedure.feature_dtype
        self.engine: Engine = make_engine(engine, model, self.device)
        self._segmenter = segmenter
        self._fingerprints: dict[float, str] = {}  # by fps; cached, since hashing the weights is slow
        self._on_step: Callable[[], None] = _do_nothing
        self.clips_at_once = CLIPS_AT_ONCE if self.device.type == "cuda" else 1

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        paper: bool = False,
        device: str | torch.device | None = None,
        threshold: float | None = None,
        skip: Collection[str] = (),
        engine: str | None = None,
        masks: bool = False,
    ) -> Localizer:
        """The bundled model, one from a folder that `lastseen train` or `lastseen convert` wrote, or
        "training-free": plain matching on the bundled backbone.

        `paper` follows the paper's procedure. `threshold` is the least confidence that counts as seen,
        `skip` names refinement steps to leave out; both default to the model's rule.
        `engine` is one of `lastseen.engine.ENGINES`; by default the fastest here (`default_engine`).
        `masks` takes the boxes of an answer from masks; `lastseen models add mobile-sam` gets what it needs.
        """
        if masks and paper:
            raise LastSeenError("masks refine boxes, and the paper's procedure refines nothing: choose one")
        where = best_device() if device is None else checked_device(device)
        batch = 64 if where.type == "cuda" else 4
        model: TrainedModel | TrainingFreeModel
        if path is not None and os.fspath(path) == TRAINING_FREE:
            model, rule = load_training_free(), TRAINING_FREE_RULE
        else:
            folder = bundled_model() if path is None else path
            model, rule = load_model(folder), load_rule(folder)
        if threshold is not None:
            rule = replace(rule, confidence=replace(rule.confidence, threshold=threshold))
        if masks:
            rule = rule.with_mask()
        rule = rule.without(skip)
        procedure = Published() if paper else Standard(rule)
        engine = engine or default_engine(where, paper, model)
        made = cls(model.to(where), procedure=procedure, device=where, batch=batch, engine=engine)
        if any(step.name == Mask.name for step in made.rule.refinement):
            made.load_segmenter()  # at once: missing weights must not show after a long search
        return made

    @property
    def rule(self) -> Rule:
        return self.procedure.rule

    def with_rule(self, rule: Rule) -> Localizer:
        """The same localizer with another rule."""
        other = copy.copy(self)
        other.procedure = Standard(rule)
        return other

    def with_callback(self, on_step: Callable[[], None]) -> Localizer:
        """The same localizer, calling `on_step` before each step of its work; an exception stops the work."""
        other = copy.copy(self)
        other._on_step = on_step
        return other

    def at(self, fps: float) -> Localizer:
        """The same localizer at another sampling rate."""
        if fps == self.fps:
            return self
        other = copy.copy(self)
        other.fps = fps
        return other

    def fingerprint(self) -> str:
        """Hash of what determines answers: features and procedure."""
        return hashlib.sha256(repr((self.feature_fingerprint(), self.procedure)).encode()).hexdigest()

    def feature_fingerprint(self) -> str:
        """Hash of what determines features: model, weights, sampling rate, engine, rounding; not the rule."""
        if self.fps in self._fingerprints:
            return self._fingerprints[self.fps]
        made_by = self.model.fingerprint(), self.fps, self.engine.rounding, str(self.feature_dtype)
        self._fingerprints[self.fps] = hashlib.sha256(repr(made_by).encode()).hexdigest()
        return self._fingerprints[self.fps]

    def locate(self, video: Video, query: Query, progress: Progress | None = None) -> ResponseTrack | None:
        """When and where the thing was last seen before `query.asked_at`; None if it was not seen."""
        return self.ask(video, query, progress).last

    def locate_all(self, video: Video, query: Query, progress: Progress | None = None) -> list[ResponseTrack]:
        """All sightings before `query.asked_at`, in time order."""
        return list(self.ask(video, query, progress).sightings)

    def ask(self, video: Video, query: Query, progress: Progress | None = None) -> Answer:
        """The full answer: all sightings, or else the best guess, and the score curve."""
        return self.ask_many(video, [query], progress)[0]

    def ask_many(
        self, video: Video, queries: Sequence[Query], progress: Progress | None = None
    ) -> list[Answer]:
        """As `ask`; the video is decoded and encoded once for all queries."""
        encoded = [self.encode_query(query) for query in queries]
        ends = [self.frames_searched(video, query) for query in queries]
        unreadable = Unreadable(video, max(ends))
        pieces = self.encoded(video, 0, max(ends), progress, unreadable)
        predictions = self.predict_encoded(video, pieces, encoded, ends)
        refined = self.refine_encoded(video, encoded, predictions)
        missing_s = (unreadable.count + max(ends) - max(map(len, predictions))) / self.fps
        said = zip(queries, predictions, refined)
        return [self.answer(video, *of_query, unreadable_s=missing_s) for of_query in said]

    def refine(
        self, video: Video, queries: Sequence[Query], predictions: Sequence[FramePredictions]
    ) -> list[Evidence]:
        """Refine the output of `predict`; a few frames are decoded and encoded again."""
        return self.refine_encoded(video, [self.encode_query(query) for query in queries], predictions)

    def refine_encoded(
        self, video: Video, queries: Sequence[list[EncodedQuery]], predictions: Sequence[FramePredictions]
    ) -> list[Evidence]:
        features = VideoFeatures(self, lambda: video, max(map(len, predictions)), FRAMES_HELD)
        return [
            self.procedure.refine(of_query, VideoAccess(self, video, query, features.read, lambda: video))
            for query, of_query in zip(queries, predictions)
        ]

    def answer(
        self,
        video: VideoInfo,
        query: Query | None,
        predictions: FramePredictions,
        evidence: Evidence,
        *,
        first: int = 0,
        skipped: Collection[str] = (),
        unreadable_s: float = 0.0,
    ) -> Answer:
        """The Answer made from refined evidence, which begins at frame `first` of the video."""
        seen, guess = self.procedure.tracks(evidence)
        extraction, shown = self.rule.extraction, evidence.delayed(first)
        scores = extraction.scores(shown)
        searched = np.concatenate([np.zeros(first, bool), np.isfinite(predictions.logits)])
        return Answer(
            video=video,
            query=query,
            sightings=tuple(track.delayed(first) for track in seen),
            best_guess=None if seen or guess is None else guess.delayed(first),
            curve=ScoreCurve(
                fps=evidence.fps,
                boxes_px=shown.boxes_px,
                scores=scores,
                smooth=extraction.smooth(scores),
                searched=searched,
            ),
            model=self.model.title,
            threshold=self.rule.confidence.threshold,
            steps=tuple(step.name for step in self.rule.refinement if step.name not in skipped),
            unreadable_s=unreadable_s,
            searched_to_s=len(shown) / shown.fps,
        )

    def predict(
        self, video: Video, queries: Sequence[Query], progress: Progress | None = None
    ) -> list[FramePredictions]:
        """The model's output before refinement: a box and a logit for every frame, for each query."""
        ends = [self.frames_searched(video, query) for query in queries]
        encoded = [self.encode_query(query) for query in queries]
        pieces = self.encoded(video, 0, max(ends), progress, Unreadable(video, max(ends)))
        return self.predict_encoded(video, pieces, encoded, ends)

    @torch.inference_mode()
    def predict_encoded(
        self,
        footage: Footage,
        features: Iterable[Tensor],
        queries: Sequence[list[EncodedQuery]],
        ends: Sequence[int],
    ) -> list[FramePredictions]:
        """As `predict`, from features (`encoded`) in pieces of any length and encoded views (`encode_query`);
        each query is searched for in the frames before its entry in `ends`."""
        found = [FrameBuffer(end, self.device) for end in ends]
        here = (piece.to(self.device) for piece in features)  # moved once for all queries
        for start, run, first, last in self.clips(here, self.clips_at_once):
            for one, end, views in zip(found, ends, queries):
                if start + first < end:
                    for part in self._localized(run, views, first, last, end - start):
                        one.add(part.boxes, part.logits)
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
        """Best predictions for frames `first` to `last` of a run, as if the video ended at `end`."""
        length = self.model.clip_length
        if length < len(run) <= end:
            yield self._best(
                [self.engine.localize_run(run, view, self._context, first).best() for view in views]
            )
            return
        for at in range(0, max(1, len(run) - length + 1), length - 2 * self._context):
            # The search ends at asked_at: earlier frames must not attend to later ones.
            visible = run[at : min(at + length, end)]
            kept_to = min(last - at, length - self._context if at + length < len(run) else length, end - at)
            if kept_to > first:
                best = self._best_of_clip(visible, views)
                yield Predictions(best.boxes[first:kept_to], best.logits[first:kept_to])
            first = self._context

    def frames_searched(self, footage: Footage, query: Query) -> int:
        """Number of frames before `query.asked_at`."""
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
        return self.procedure.context(self.model.context)

    def clips(self, features: Iterable[Tensor], at_once: int = 1) -> Iterator[Clip]:
        """Features in pieces of any length -> clips, or runs of `at_once` clips, as input to the model."""
        for clip in cut(features, self.model.clip_length, self._context, at_once):
            self._on_step()
            yield clip

    def encoded(
        self,
        video: Video,
        start: int,
        end: int,
        progress: Progress | None = None,
        unreadable: Unreadable | None = None,
    ) -> Iterator[Tensor]:
        """Features of the frames [start, end), a batch at a time; `start` is a multiple of `batch`.

        A frame has the same position in a batch of the same size wherever encoding begins and ends, so its
        features are bit-identical. `unreadable` counts those that could not be decoded.
        """
        if start % self.batch:
            raise ValueError(f"start must be a multiple of {self.batch}, got {start}")
        pictures: list[np.ndarray] = []
        span = {"start_s": start / self.fps, "end_s": end / self.fps}
        with closing(video.frames(self.fps, **span, ahead=self.batch)) as frames:
            for frame in frames:
                pictures.append(frame.image)
                if unreadable:
                    unreadable.add(frame)
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
        self._on_step()
        return self.engine.encode_pictures(pictures, self.batch).to(self.feature_dtype)

    @torch.inference_mode()
    def encode_query(self, query: Query) -> list[EncodedQuery]:
        """Features of each view. If the rule has masks, the thing is known by one in its picture."""
        step = next((step for step in self.rule.refinement if isinstance(step, Mask)), None)
        encoded = []
        for view in query.views:
            mask = step.of_view(view, self.segment) if step and view.mask is None else view.mask
            picture, known = (
                None if pixels is None else torch.from_numpy(np.ascontiguousarray(pixels))
                for pixels in (view.picture, mask)
            )
            assert picture is not None
            encoded.append(self.engine.encode_query(picture, view.box, known))
        return encoded

    def segment(self, pictures: Sequence[np.ndarray], boxes: Sequence[Box]) -> list[BoxMask]:
        """Masks of what boxes show, in square pictures [side, side, 3]."""
        self._on_step()
        return self.load_segmenter().masks(pictures, boxes)

    def load_segmenter(self) -> Segmenter:
        """The segmenter, loaded when it is needed first; WeightsError if its weights are missing."""
        if self._segmenter is None:
            batch = SEGMENTED_AT_ONCE if self.device.type == "cuda" else 1
            self._segmenter = MobileSamSegmenter(load_mobile_sam(), device=self.device, batch=batch)
        return self._segmenter

    @torch.inference_mode()
    def localize_clip(self, features: Tensor, views: list[EncodedQuery]) -> tuple[np.ndarray, np.ndarray]:
        """The prediction of the best view for each frame: boxes [t, 4] in the unit square, logits [t]."""
        self._on_step()
        best = self._best_of_clip(features, views)
        return best.boxes.cpu().numpy(), self._finite(best.logits.cpu().numpy())

    def _best_of_clip(self, features: Tensor, views: list[EncodedQuery]) -> Predictions:
        time = len(features)
        features = self.procedure.clip(features, self.model.clip_length)
        return self._best([self.engine.localize_clip(features, view).best() for view in views], time)

    def _best(self, of_views: Sequence[Predictions], time: int | None = None) -> Predictions:
        """For each frame the prediction of the view with the highest logit: boxes [t, 4], logits [t]."""
        logits = torch.stack([predictions.logits[0, :time] for predictions in of_views])
        boxes = torch.stack([predictions.boxes[0, :time] for predictions in of_views])
        best = logits.argmax(0)
        frames = torch.arange(logits.shape[1], device=best.device)
        return Predictions(boxes[best, frames].float(), logits[best, frames].float())


def _do_nothing() -> None:
    pass

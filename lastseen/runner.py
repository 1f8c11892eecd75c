"""ModelRunner: runs one model on frames, features and queries. Localizer asks questions with it."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor

from lastseen.answer import Answer, ScoreCurve, VideoInfo
from lastseen.box import Box
from lastseen.clips import Clip, FrameBuffer, cut
from lastseen.engine import DEFAULT, Engine, make_engine
from lastseen.errors import LastSeenError
from lastseen.masks import BoxMask, MobileSamSegmenter, Segmenter, load_mobile_sam
from lastseen.model import EncodedQuery, Model, Predictions
from lastseen.model.token_basis import TokenBasis
from lastseen.procedure import Procedure, Standard
from lastseen.progress import ENCODED, LOCALIZED, PREPARING, SEGMENTED, Speeds, Tracker
from lastseen.query import Footage, Query
from lastseen.refine import Mask
from lastseen.rule import Rule
from lastseen.sighting import Evidence
from lastseen.track import FramePredictions
from lastseen.video import Video
from lastseen.video.unreadable import Unreadable

SEGMENTED_AT_ONCE = 16  # on a GPU
CLIPS_AT_ONCE = 16  # on a GPU; one by one on the CPU, which is as fast there

SoFar = Callable[[Callable[[], list[FramePredictions]]], None]


class ModelRunner:
    """One model, the engine that computes it, and the procedure by which videos are cut into clips."""

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
        token_basis: TokenBasis | None = None,
    ) -> None:
        self.model = model
        self.procedure = procedure
        self.fps = fps
        self.device = torch.device(device)
        self.batch = batch  # frames encoded at a time
        self.feature_dtype = feature_dtype or procedure.feature_dtype
        self.engine: Engine = make_engine(engine, model, self.device)
        self._segmenter = segmenter
        self.token_basis = token_basis  # for small features of an index
        self._fingerprints: dict[float, str] = {}  # by fps; cached, since hashing the weights is slow
        self._on_step: Callable[[], None] = _do_nothing
        self.speeds = Speeds()  # shared by copies: a later question can tell its time at once
        self._tracker = Tracker()
        self.clips_at_once = CLIPS_AT_ONCE if self.device.type == "cuda" else 1

    @property
    def rule(self) -> Rule:
        return self.procedure.rule

    def with_rule(self, rule: Rule) -> Self:
        """The same localizer with another rule."""
        other = copy.copy(self)
        other.procedure = Standard(rule)
        return other

    def with_callback(self, on_step: Callable[[], None]) -> Self:
        """The same localizer, calling `on_step` before each step of its work; an exception stops the work."""
        other = copy.copy(self)
        other._on_step = on_step
        return other

    def tracked_by(self, tracker: Tracker) -> Self:
        """The same localizer, counting its work in a tracker."""
        other = copy.copy(self)
        other._tracker = tracker
        return other

    def at(self, fps: float) -> Self:
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

    @torch.inference_mode()
    def predict_encoded(
        self,
        footage: Footage,
        features: Iterable[Tensor],
        queries: Sequence[list[EncodedQuery]],
        ends: Sequence[int],
        so_far: SoFar | None = None,
    ) -> list[FramePredictions]:
        """As `predict`, from features (`encoded`) in pieces of any length and encoded views (`encode_query`);
        each query is searched for in the frames before its entry in `ends`.

        `so_far` is called after each clip with a function that gives the predictions until then.
        """
        found = [FrameBuffer(end, self.device) for end in ends]
        here = (piece.to(self.device) for piece in features)  # moved once for all queries
        for start, run, first, last in self.clips(here, self.clips_at_once):
            for one, end, views in zip(found, ends, queries):
                if start + first < end:
                    for part in self._localized(run, views, first, last, end - start):
                        one.add(part.boxes, part.logits)
                        self._tracker.did(LOCALIZED, len(part.logits))
            if so_far is not None:
                so_far(partial(self._predictions, footage, found))
        return self._predictions(footage, found)

    def _predictions(self, footage: Footage, found: Sequence[FrameBuffer]) -> list[FramePredictions]:
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

    @property
    def clip_step(self) -> int:
        """Frames from the beginning of a clip to that of the next one."""
        return self.model.clip_length - 2 * self._context

    @property
    def _context(self) -> int:
        return self.procedure.context(self.model.context)

    def clips(self, features: Iterable[Tensor], at_once: int = 1) -> Iterator[Clip]:
        """Features in pieces of any length -> clips, or runs of `at_once` clips, as input to the model."""
        for clip in cut(features, self.model.clip_length, self._context, at_once):
            self._step()
            yield clip

    def encoded(
        self,
        video: Video,
        start: int,
        end: int,
        unreadable: Unreadable | None = None,
    ) -> Iterator[Tensor]:
        """Features of the frames [start, end), a batch at a time; `start` is a multiple of `batch`.

        A frame has the same position in a batch of the same size wherever encoding begins and ends, so its
        features are bit-identical. `unreadable` counts those that could not be decoded.
        """
        if start % self.batch:
            raise ValueError(f"start must be a multiple of {self.batch}, got {start}")
        pictures: list[np.ndarray] = []
        last: tuple[list[np.ndarray], Tensor] | None = None
        start_s, end_s = start / self.fps, end / self.fps
        with closing(video.frames(self.fps, start_s, end_s, ahead=self.batch)) as frames:
            for frame in frames:
                pictures.append(frame.image)
                if unreadable:
                    unreadable.add(frame)
                if len(pictures) == self.batch or frame.index == end - 1:
                    last = pictures, self._encode_unless_same(pictures, last)
                    yield last[1]
                    pictures = []
                    self._tracker.tell()  # what was encoded has arrived: work may be stopped here
        if pictures:
            yield self._encode_unless_same(pictures, last)

    def _encode_unless_same(
        self, pictures: list[np.ndarray], last: tuple[list[np.ndarray], Tensor] | None
    ) -> Tensor:
        """As `encode_pictures`. Pictures of a batch that are those of the batch before, to the bit, have its
        features: a still, a pause, a screen on which nothing happens."""
        if last is not None and len(last[0]) == len(pictures) and all(map(np.array_equal, pictures, last[0])):
            self._step()
            self._tracker.did(ENCODED, len(pictures))
            return last[1]
        return self.encode_pictures(pictures)

    @torch.inference_mode()
    def encode_pictures(self, pictures: Sequence[np.ndarray]) -> Tensor:
        """Up to `batch` pictures [h, w, 3] of one size -> features [n, c, rows, columns], rounded."""
        self._step()
        height, width = pictures[0].shape[:2]
        if not self.engine.is_prepared(width, height, self.batch):
            with self._tracker.aside(PREPARING, "networks"):
                self.engine.prepare(width, height, self.batch)
        features = self.engine.encode_pictures(pictures, self.batch).to(self.feature_dtype)
        self._tracker.did(ENCODED, len(pictures))
        return features

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

    def segment(self, pictures: Sequence[np.ndarray], boxes: Sequence[Box]) -> list[BoxMask]:
        """Masks of what boxes show, in square pictures [side, side, 3]."""
        self._step()
        masks = self.load_segmenter().masks(pictures, boxes)
        self._tracker.did(SEGMENTED, len(pictures))
        return masks

    def load_segmenter(self) -> Segmenter:
        """The segmenter, loaded when it is needed first; WeightsError if its weights are missing."""
        if self._segmenter is None:
            batch = SEGMENTED_AT_ONCE if self.device.type == "cuda" else 1
            self._segmenter = MobileSamSegmenter(load_mobile_sam(), device=self.device, batch=batch)
        return self._segmenter

    @torch.inference_mode()
    def localize_clip(self, features: Tensor, views: list[EncodedQuery]) -> tuple[np.ndarray, np.ndarray]:
        """The prediction of the best view for each frame: boxes [t, 4] in the unit square, logits [t]."""
        self._step()
        best = self._best_of_clip(features, views)
        found = best.boxes.cpu().numpy(), self._finite(best.logits.cpu().numpy())
        self._tracker.did(LOCALIZED, len(features))
        return found

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

    def _step(self) -> None:
        self._tracker.tell()
        self._on_step()


def _do_nothing() -> None:
    pass

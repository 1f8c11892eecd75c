"""Search state of one query in one indexed video: clips processed, their predictions, the resulting answer.

Predictions of a clip are bit-identical to those of a search of the video alone: clips are cut the same way
and their features are the same. Frames on which the model did not run have logit -inf.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from lastseen.access import VideoAccess
from lastseen.answer import Answer
from lastseen.errors import VideoError
from lastseen.index.entry import IndexedVideo
from lastseen.index.fine import FineFeatures
from lastseen.localizer import Localizer
from lastseen.model import EncodedQuery
from lastseen.progress import Work
from lastseen.query import Query
from lastseen.refine import Extend, Mask, Zoom
from lastseen.refine.plan import expected
from lastseen.refine.step import Scale
from lastseen.rule import Rule
from lastseen.sighting import Evidence
from lastseen.track import FramePredictions

MIN_THRESHOLD_RATIO = 0.4  # best guesses above this share of the threshold are refined: they may pass then
# Run on the final answer only: they change the extent or the boxes of sightings, not whether there are any.
LAST_STEPS = frozenset({Extend.name, Mask.name})


@dataclass(frozen=True, eq=False)
class Draft:
    """The provisional answer for one video."""

    answer: Answer
    evidence: Evidence

    @property
    def zoomed(self) -> bool:
        return Zoom.name in self.answer.steps

    @property
    def seen_at(self) -> float:
        return seen_at(self.answer)


def seen_at(answer: Answer) -> float:
    """When the thing was last seen (or guessed to be) in an indexed video, in seconds since 1970."""
    assert isinstance(answer.video, IndexedVideo)
    return answer.video.began_at + (answer.shown[-1].end if answer.shown else 0.0)


def no_predictions(frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes and logits of frames on which the model did not run."""
    return np.zeros((frames, 4), np.float32), np.full(frames, -np.inf, np.float32)


def _with_neighbours_boxes(boxes: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Frames without a prediction get the box of the nearest one that has one: a single such frame may be
    amid a sighting."""
    there = np.flatnonzero(np.isfinite(logits))
    if len(there) in (0, len(logits)):
        return boxes
    frames = np.arange(len(logits))
    after = np.searchsorted(there, frames).clip(max=len(there) - 1)
    before = (after - 1).clip(min=0)
    nearer = np.where(frames - there[before] < there[after] - frames, before, after)
    return np.asarray(boxes[there[nearer]])


@dataclass(frozen=True, eq=False, kw_only=True)
class Outline:
    """What is known of a case before the model runs: which video, and how it is cut into clips. Enough to
    decide what to run next, also on another machine than the one that has the features."""

    key: str  # of the video, unique in a search
    video: IndexedVideo
    end: int  # one past the last frame that is searched
    clips: Sequence[tuple[int, int, int, int]]  # start and stop; first and last frame that it predicts
    stored: bool  # whether features of all tokens are kept
    rule: Rule
    fps: float
    clip_length: int
    batch: int

    def clip_end(self, clip: int) -> float:
        """When the clip ends, in seconds since 1970."""
        return self.video.began_at + (self.video.first + self.clips[clip][3]) / self.fps

    def work(self, evidence: Evidence | None, steps: Collection[str]) -> Work:
        """What the named refinement steps are expected to take; None: before the first pass."""
        scale = Scale(self.end - self.video.first, self.clip_length, self.batch, self.stored)
        chosen = [step for step in self.rule.refinement if step.name in steps]
        return expected(chosen, evidence, self.rule.extract, scale)

    def may_be_seen(self, draft: Draft) -> bool:
        guess = draft.answer.best_guess
        least = MIN_THRESHOLD_RATIO * self.rule.confidence.threshold
        return draft.answer.found or (guess is not None and guess.score >= least)


class Case:
    def __init__(
        self,
        localizer: Localizer,
        fine: FineFeatures,
        query: Query,
        encoded: list[EncodedQuery],
        end: int,
        key: str,
    ) -> None:
        self.localizer, self.fine, self.query, self.encoded = localizer, fine, query, encoded
        self.first, self.end = fine.video.first, end
        # Cut frame numbers instead of features, to learn which frames are in which clip.
        cut = localizer.clips([torch.arange(max(0, end - self.first))])
        self.clips = [
            (start, start + len(rows), start + first, start + last) for start, rows, first, last in cut
        ]
        self.outline = Outline(
            key=key,
            video=fine.video,
            end=end,
            clips=self.clips,
            stored=fine.stored,
            rule=localizer.rule,
            fps=localizer.fps,
            clip_length=localizer.model.clip_length,
            batch=localizer.batch,
        )
        self.done: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # boxes and logits by clip
        self._of_all_frames: FramePredictions | None = None
        # The ends of a track are final once the model ran on this many frames on either side.
        gaps = [step.max_gap_frames for step in localizer.rule.refinement if isinstance(step, Extend)]
        self._margin = max(gaps, default=0) + 1
        self._access = VideoAccess(localizer, fine.video, encoded, fine.read, fine.opened, self.first)

    # --- the model ---

    def run(self, clip: int) -> None:
        """Run the model on a clip, once."""
        if clip not in self.done:
            start, stop, first, last = self.clips[clip]
            boxes, logits = no_predictions(stop - start)
            for at, end in self.fine.readable(self.first + start, self.first + stop):
                there = slice(at - self.first - start, end - self.first - start)
                features = self.fine.read(at, end)
                boxes[there], logits[there] = self.localizer.localize_clip(features, self.encoded)
            boxes = _with_neighbours_boxes(boxes, logits)
            self.done[clip] = boxes[first - start : last - start], logits[first - start : last - start]

    def run_around(self, every: bool) -> None:
        """Run on further clips until both ends of the last sighting (or of each) are as in a full search."""
        while missing := self._missing(every, Evidence.of(self.predictions())):
            for clip in missing:
                self.run(clip)

    def set_predictions(self, parts: Sequence[tuple[int, FramePredictions]]) -> None:
        """Take the predictions of an exhaustive search: of runs of frames, each with its first frame."""
        if [(at, len(part)) for at, part in parts] == [(self.first, self.end - self.first)]:
            self._of_all_frames = parts[0][1]
            return
        boxes, logits = no_predictions(self.end - self.first)
        for at, part in parts:
            there = slice(at - self.first, at - self.first + len(part))
            boxes[there], logits[there] = part.boxes_px, part.logits
        boxes = _with_neighbours_boxes(boxes, logits)
        self._of_all_frames = FramePredictions(fps=self.localizer.fps, boxes_px=boxes, logits=logits)

    def predictions(self) -> FramePredictions:
        """Predictions for the frames from `first` on."""
        if self._of_all_frames is not None:
            return self._of_all_frames
        count = self.end - self.first
        boxes, logits = no_predictions(count)
        for clip, (some_boxes, some_logits) in self.done.items():
            _, _, first, last = self.clips[clip]
            boxes[first:last], logits[first:last] = some_boxes, some_logits
        letterbox = self.localizer.model.letterbox(self.fine.video.width, self.fine.video.height)
        return FramePredictions(fps=self.localizer.fps, boxes_px=letterbox.to_px(boxes), logits=logits)

    @property
    def has_predictions(self) -> bool:
        """Whether the model ran on any frame."""
        return any(np.isfinite(logits).any() for _, logits in self.done.values())

    # --- the answer ---

    def unrefined(self) -> Draft:
        return self._draft({step.name for step in self.localizer.rule.refinement})

    def checked(self, draft: Draft, every: bool) -> Draft:
        """Refined by the steps that decide whether the thing was seen; no zoom if the file is missing."""
        if draft.zoomed:
            return draft
        zooms = any(step.name == Zoom.name for step in self.localizer.rule.refinement)
        if not zooms or self.fine.can_open():
            try:
                return self._run_until_complete(every, LAST_STEPS)
            except (VideoError, OSError):
                pass  # the file was removed after can_open() checked it: refine without zoom
        draft = self._run_until_complete(every, LAST_STEPS | {Zoom.name})
        return replace(draft, answer=replace(draft.answer, video_missing=True))

    def extended(self, draft: Draft, every: bool) -> Draft:
        """Refined by all steps but masks; the model is run on further clips if extended sightings reach into
        them."""
        skip = self._left_out(draft)
        while True:
            refined = self._draft(skip | {Mask.name})
            missing = self._missing(every, refined.evidence)
            if not missing:
                return replace(
                    refined, answer=replace(refined.answer, video_missing=draft.answer.video_missing)
                )
            for clip in missing:
                self.run(clip)
            self._run_until_complete(every, LAST_STEPS | skip)

    def masked(self, draft: Draft) -> Answer:
        """The answer with boxes by masks, if the rule has them and the video file is there."""
        if all(step.name != Mask.name for step in self.localizer.rule.refinement):
            return draft.answer
        if self.fine.can_open():
            try:
                refined = self._draft(self._left_out(draft)).answer
                return replace(refined, video_missing=draft.answer.video_missing)
            except (VideoError, OSError):
                pass  # the file was removed after can_open() checked it
        return replace(draft.answer, video_missing=True)

    @staticmethod
    def _left_out(draft: Draft) -> frozenset[str]:
        return frozenset() if draft.zoomed else frozenset({Zoom.name})

    def _draft(self, skip: Collection[str]) -> Draft:
        predictions = self.predictions()
        evidence = self.localizer.procedure.refine(predictions, self._access, skip)
        video, query = self.fine.video, self.query
        return Draft(
            self.localizer.answer(
                video,
                query,
                predictions,
                evidence,
                first=self.first,
                skipped=skip,
                unreadable_s=video.unreadable / self.localizer.fps,
            ),
            evidence,
        )

    def _run_until_complete(self, every: bool, skip: Collection[str]) -> Draft:
        """Run the model on all clips that the sightings reach into, until no clip is missing."""
        while True:
            draft = self._draft(skip)
            missing = self._missing(every, draft.evidence)
            if not missing:
                return draft
            for clip in missing:
                self.run(clip)

    def _missing(self, every: bool, evidence: Evidence) -> list[int]:
        """Clips not yet run: those of the last sighting (or of each), their neighbours, the best frame's."""
        if self._of_all_frames is not None:
            return []
        best = int(evidence.logits.argmax())
        tracks, _ = self.localizer.procedure.tracks(evidence)
        shown = {
            clip
            for track in tracks[0 if every else -1 :]
            for clip in self._around(track.first_frame, track.last_frame)
        }
        # Candidate ranking puts neighbours of a better clip later; next to a sighting they are run at once.
        beside = {clip + step for clip in shown for step in (-1, 1)} & set(range(len(self.clips)))
        return sorted((shown | beside | self._around(best, best)) - self.done.keys())

    def _around(self, start: int, to: int) -> set[int]:
        """The clips that contain the frames from `start` to `to`, with a margin on both sides."""
        low, high = start - self._margin, to + self._margin
        return {n for n, (_, _, first, last) in enumerate(self.clips) if first <= high and last > low}

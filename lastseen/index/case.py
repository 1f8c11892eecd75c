"""One query to one indexed video: on which clips the model ran, what it said, and what that comes to.

A clip gets the boxes and logits that it gets when its video is searched alone, bit by bit: clips are cut the
same way and their features are the same. Frames on which the model did not run have logit -inf.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import torch

from lastseen.access import VideoAccess
from lastseen.answer import Answer
from lastseen.errors import VideoError
from lastseen.index.catalogue import IndexedVideo
from lastseen.index.fine import FineFeatures
from lastseen.localizer import Localizer
from lastseen.model import EncodedQuery
from lastseen.query import Query
from lastseen.refine import Extend, Zoom
from lastseen.sighting import Evidence
from lastseen.track import FramePredictions

HOPE = 0.4  # of the threshold: refinement may find that a guess above this was a sighting
LAST_STEPS = frozenset(
    {Extend.name}
)  # run on the answer alone: they change when it ends, not whether it is one


@dataclass(frozen=True, eq=False)
class Draft:
    """What one video says so far."""

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
    return answer.video.recorded_at + (answer.shown[-1].end if answer.shown else 0.0)


class Case:
    def __init__(
        self, localizer: Localizer, fine: FineFeatures, query: Query, encoded: list[EncodedQuery], end: int
    ) -> None:
        self.localizer, self.fine, self.query, self.encoded = localizer, fine, query, encoded
        self.first, self.end = fine.video.first, end
        # Row numbers instead of features: the same cutting tells which frames are in which clip.
        cut = localizer.clips([torch.arange(max(0, end - self.first))])
        self.clips = [
            (start, start + len(rows), start + first, start + last) for start, rows, first, last in cut
        ]
        self.done: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # boxes and logits by clip
        self._of_all_frames: FramePredictions | None = None
        # The model must have run on so many frames around a track for its ends to be known.
        gaps = [step.max_gap_frames for step in localizer.rule.refinement if isinstance(step, Extend)]
        self._margin = max(gaps, default=0) + 1
        self._access = VideoAccess(localizer, fine.video, encoded, fine.read, fine.opened, self.first)

    # --- the model ---

    def run(self, clip: int) -> None:
        """Run the model on a clip, once."""
        if clip not in self.done:
            start, stop, first, last = self.clips[clip]
            features = self.fine.read(self.first + start, self.first + stop)
            boxes, logits = self.localizer.localize_clip(features, self.encoded)
            self.done[clip] = boxes[first - start : last - start], logits[first - start : last - start]

    def run_around(self, every: bool) -> None:
        """Run on until the last sighting (or each) ends on both sides, as when all is searched."""
        while missing := self._missing(every, Evidence.of(self.predictions())):
            for clip in missing:
                self.run(clip)

    def set_predictions(self, predictions: FramePredictions) -> None:
        """Of all frames, by an exhaustive search."""
        self._of_all_frames = predictions

    def predictions(self) -> FramePredictions:
        """Of the frames from `first` on."""
        if self._of_all_frames is not None:
            return self._of_all_frames
        count = self.end - self.first
        boxes, logits = np.zeros((count, 4), np.float32), np.full(count, -np.inf, np.float32)
        for clip, (some_boxes, some_logits) in self.done.items():
            _, _, first, last = self.clips[clip]
            boxes[first:last], logits[first:last] = some_boxes, some_logits
        letterbox = self.localizer.model.letterbox(self.fine.video.width, self.fine.video.height)
        return FramePredictions(fps=self.localizer.fps, boxes_px=letterbox.to_px(boxes), logits=logits)

    def clip_end(self, clip: int) -> float:
        """In seconds since 1970."""
        return self.fine.video.recorded_at + (self.first + self.clips[clip][3]) / self.localizer.fps

    # --- what it comes to ---

    def unrefined(self) -> Draft:
        return self._draft({step.name for step in self.localizer.rule.refinement})

    def checked(self, draft: Draft, every: bool) -> Draft:
        """After the steps that decide whether it was seen; without zoom if the video's file is not there."""
        if draft.zoomed:
            return draft
        zooms = any(step.name == Zoom.name for step in self.localizer.rule.refinement)
        if not zooms or self.fine.can_open():
            try:
                return self._settled(every, LAST_STEPS)
            except (VideoError, OSError):
                pass  # it went away just now
        draft = self._settled(every, LAST_STEPS | {Zoom.name})
        return replace(draft, answer=replace(draft.answer, video_missing=True))

    def final(self, draft: Draft, every: bool) -> Answer:
        """After all steps; sightings may now reach into clips on which the model did not run yet."""
        skip = frozenset() if draft.zoomed else frozenset({Zoom.name})
        while True:
            refined = self._draft(skip)
            missing = self._missing(every, refined.evidence)
            if not missing:
                return replace(refined.answer, video_missing=draft.answer.video_missing)
            for clip in missing:
                self.run(clip)
            self._settled(every, LAST_STEPS | skip)

    def may_be_seen(self, draft: Draft) -> bool:
        guess = draft.answer.best_guess
        least = HOPE * self.localizer.rule.confidence.threshold
        return draft.answer.found or (guess is not None and guess.score >= least)

    def _draft(self, skip: Collection[str]) -> Draft:
        predictions = self.predictions()
        evidence = self.localizer.procedure.refine(predictions, self._access, skip)
        video, query = self.fine.video, self.query
        return Draft(
            self.localizer.answer(video, query, predictions, evidence, first=self.first, skipped=skip),
            evidence,
        )

    def _settled(self, every: bool, skip: Collection[str]) -> Draft:
        """The model run, too, on all clips that the sightings reach into."""
        while True:
            draft = self._draft(skip)
            missing = self._missing(every, draft.evidence)
            if not missing:
                return draft
            for clip in missing:
                self.run(clip)

    def _missing(self, every: bool, evidence: Evidence) -> list[int]:
        """The clips that hold the last sighting (or each), their neighbours, and the best frame."""
        if self._of_all_frames is not None:
            return []
        best = int(evidence.logits.argmax())
        tracks, _ = self.localizer.procedure.tracks(evidence)
        shown = {
            clip
            for track in tracks[0 if every else -1 :]
            for clip in self._around(track.first_frame, track.last_frame)
        }
        # Neighbours of a better clip wait in the queue; where the thing was seen, they come at once.
        beside = {clip + step for clip in shown for step in (-1, 1)} & set(range(len(self.clips)))
        return sorted((shown | beside | self._around(best, best)) - self.done.keys())

    def _around(self, start: int, to: int) -> set[int]:
        """The clips that hold the frames from `start` to `to` and a margin on both sides."""
        low, high = start - self._margin, to + self._margin
        return {n for n, (_, _, first, last) in enumerate(self.clips) if first <= high and last > low}

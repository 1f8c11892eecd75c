"""Search state of one query in one video: clips processed, their predictions, the resulting answer.

Predictions of a clip are bit-identical to those of a search of the video alone: clips are cut the same way
and their features are the same. Frames on which the model did not run have logit -inf.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import torch

from lastseen.access import VideoAccess
from lastseen.answer import Answer
from lastseen.errors import VideoError
from lastseen.model import EncodedQuery
from lastseen.query import Query
from lastseen.refine import Extend, Mask, Zoom
from lastseen.runner import ModelRunner
from lastseen.search.outline import LAST_STEPS, Draft, Outline, SourceFacts
from lastseen.search.source import Source
from lastseen.sighting import Evidence
from lastseen.track import FramePredictions


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


class Case:
    def __init__(
        self, localizer: ModelRunner, source: Source, query: Query, encoded: list[EncodedQuery], end: int
    ) -> None:
        self.localizer, self.source, self.query, self.encoded = localizer, source, query, encoded
        self.first, self.end = source.first, end
        # Cut frame numbers instead of features, to learn which frames are in which clip.
        cut = localizer.clips([torch.arange(max(0, end - self.first))])
        self.clips = [
            (start, start + len(rows), start + first, start + last) for start, rows, first, last in cut
        ]
        self.outline = Outline(
            source=SourceFacts.of(source),
            end=end,
            clips=self.clips,
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
        self._access = VideoAccess(localizer, source.video, encoded, source.read, source.opened, self.first)

    # --- the model ---

    def run(self, clip: int) -> None:
        """Run the model on a clip, once."""
        if clip not in self.done:
            start, stop, first, last = self.clips[clip]
            boxes, logits = no_predictions(stop - start)
            for at, end in self.source.readable(self.first + start, self.first + stop):
                there = slice(at - self.first - start, end - self.first - start)
                features = self.source.read(at, end)
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
        letterbox = self.localizer.model.letterbox(self.source.video.width, self.source.video.height)
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
        if not zooms or self.source.can_open():
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
        if self.source.can_open():
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
        return Draft(
            self.localizer.answer(
                self.source.video,
                self.query,
                predictions,
                evidence,
                first=self.first,
                skipped=skip,
                unreadable_s=self.source.unreadable / self.localizer.fps,
            ),
            evidence,
            self.source.began_at,
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

"""What the jobs do: read videos into the index, and ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from lastseen.box import Box
from lastseen.errors import IndexStoreError
from lastseen.formats.answer import Answer
from lastseen.index import Index, IndexedVideo
from lastseen.index.record import BUSY, add_file
from lastseen.index.search import Finding, search
from lastseen.localizer import Localizer
from lastseen.model import EncodedQuery
from lastseen.query import Query, read_picture
from lastseen.render.curve import score_curve
from lastseen.web.jobs import Job, Jobs
from lastseen.web.media import Entry, Missing, Shelf, video_id

# Up to so many frames (2 minutes) the exact model looks at every one: the curve has no gaps then.
LOOK_EVERYWHERE = 600
SMALL = 1024  # pixels


@dataclass(frozen=True)
class Look:
    """One view of the thing: a picture that was uploaded, or a moment of a video; and where it is in it."""

    picture: str | None = None
    video: str | None = None
    time_s: float = 0.0
    box: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class Question:
    looks: tuple[Look, ...]
    videos: tuple[str, ...] = ()  # none: all
    before_s: float | None = None  # of each video


@dataclass(frozen=True, eq=False)
class Found:
    """What a question found, the latest sighting first."""

    findings: tuple[Finding, ...]
    thing: np.ndarray  # [h, w, 3], small, for pictures of the answer
    frames: int  # searched, in all
    seconds: float
    incomplete: tuple[str, ...]  # names of videos of which only a part has been read

    @property
    def found(self) -> bool:
        return any(finding.tracks for finding in self.findings)


class _Asking(Localizer):
    """A localizer that asks before each step whether its work is still wanted."""

    def __init__(self, inner: Localizer, fingerprint: str, check: Callable[[], None]) -> None:
        self.__dict__.update(inner.__dict__)
        self._inner, self._fingerprint, self._check = inner, fingerprint, check

    def feature_fingerprint(self) -> str:
        return self._fingerprint

    def encode_pictures(self, pictures: Sequence[np.ndarray]) -> Tensor:
        self._check()
        return self._inner.encode_pictures(pictures)

    def clips(self, features: Iterable[Tensor], at_once: int = 1) -> Iterator[tuple[int, Tensor, int, int]]:
        for clip in self._inner.clips(features, at_once):
            self._check()
            yield clip

    def localize_clip(self, features: Tensor, views: list[EncodedQuery]) -> tuple[np.ndarray, np.ndarray]:
        self._check()
        return self._inner.localize_clip(features, views)


class Work:
    """Starts jobs."""

    def __init__(self, shelf: Shelf, jobs: Jobs, localizer: Localizer) -> None:
        self.shelf, self.jobs, self.localizer = shelf, jobs, localizer
        self._fingerprint = localizer.feature_fingerprint()  # once: it reads all weights
        with shelf.index() as index:
            index.bind(localizer)

    def read(self, entry: Entry) -> Job:
        """Read a video into the index, or go on with it; the job that does so already, if there is one."""
        running = self.jobs.at_work_on(entry.id)
        if running is not None:
            return running

        def work(job: Job) -> str:
            with self.shelf.index() as index:
                return video_id(self._read(index, job, entry).source)

        return self.jobs.submit("index", entry.name, work, (entry.id,))

    def find(self, question: Question) -> Job:
        for look in question.looks:  # mistakes are told at once, not by the job
            self._view(look)
        names = [self.shelf.entry(id).name for id in question.videos]
        is_read_now = any(self.jobs.at_work_on(id) for id in question.videos)
        return self.jobs.submit(
            "find",
            ", ".join(names) or "all videos",
            lambda job: self._find(job, question),
            question.videos,
            urgent=not is_read_now,
        )

    def _read(self, index: Index, job: Job, entry: Entry) -> IndexedVideo:
        if entry.path is None:
            raise Missing(f"{entry.name}: a stream cannot be read again")
        self.shelf.file(entry.id)
        job.begin(f"Reading {entry.name}")
        localizer = _Asking(self.localizer, self._fingerprint, job.check)
        recording = add_file(index, localizer, entry.path, progress=job.progress)
        if recording.outcome == BUSY:
            raise IndexStoreError(f"{entry.name}: another process is reading it; wait for that")
        if recording.video.path != entry.path:  # the same bytes are there under another name
            self.shelf.discard(entry.path)
        return recording.video

    def _find(self, job: Job, question: Question) -> Found:
        query = Query.joined([self._view(look) for look in question.looks], question.before_s)
        localizer = _Asking(self.localizer, self._fingerprint, job.check)
        with self.shelf.index() as index:
            videos = [self._whole(index, job, id) for id in question.videos] or index.videos()
            videos = [video for video in videos if video.frames > video.first]
            if not videos:
                raise IndexStoreError("there is nothing to search yet; add a video first")
            job.begin("Searching")
            frames = sum(video.frames - video.first for video in videos)
            findings = search(
                index,
                localizer,
                {"thing": query},
                videos=videos,
                every=True,
                exhaustive=frames <= LOOK_EVERYWHERE,
                progress=job.progress,
            )["thing"]
        return Found(
            tuple(findings),
            _small(query.views[0].crop),
            frames,
            frames / localizer.fps,
            tuple(video.name for video in videos if not video.complete),
        )

    def _whole(self, index: Index, job: Job, id: str) -> IndexedVideo:
        entry = self.shelf.entry(id)
        if entry.indexed is None or not (entry.indexed.complete or entry.path is None):
            return self._read(index, job, entry)
        return entry.indexed

    def _view(self, look: Look) -> Query:
        box = Box(*look.box) if look.box else None
        if look.picture is not None:
            return Query.from_array(read_picture(self.shelf.picture(look.picture)), box)
        if look.video is None or box is None:
            raise Missing("a view is a picture, or a video with a time and a box")
        return Query.from_video(self.shelf.opened(look.video), look.time_s, box)


def _small(picture: np.ndarray) -> np.ndarray:
    """Answers are kept for a while, photographs of 50 megapixels are not."""
    step = max(1, max(picture.shape[:2]) // SMALL)
    return picture[::step, ::step].copy()


def answer_of(finding: Finding, model: str) -> Answer:
    """Every occurrence, as `lastseen find --all` gives it."""
    return Answer(finding.video, finding.tracks, model, finding.guess)


def curve_of(finding: Finding, localizer: Localizer) -> dict[str, Any]:
    """The score over time for the page: times, scores (None where the exact model did not look), peaks."""
    predictions, first = finding.predictions, finding.video.first
    if first:  # frames that were dropped count as not looked at
        predictions = replace(
            predictions,
            boxes_px=np.concatenate([np.zeros((first, 4), np.float32), predictions.boxes_px]),
            logits=np.concatenate([np.full(first, -np.inf, np.float32), predictions.logits]),
            spans=tuple((start + first, end + first) for start, end in predictions.spans),
        )
    shown = finding.tracks or ((finding.guess,) if finding.guess else ())
    curve = score_curve(predictions, finding.video.duration_s, shown, rule=localizer.rule)
    looked = np.isfinite(predictions.logits)
    group = max(1, -(-len(looked) // max(1, len(curve.times_s))))
    seen = [bool(looked[i * group : (i + 1) * group].any()) for i in range(len(curve.times_s))]
    return {
        "duration": finding.video.duration_s,
        "searched": curve.searched_s,
        "times": [round(float(t), 3) for t in curve.times_s],
        "scores": [round(float(score), 4) if was else None for score, was in zip(curve.smooth, seen)],
        "peaks": [{"time": round(t, 3), "score": round(s, 4)} for t, s in curve.peaks],
    }

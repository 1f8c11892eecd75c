"""What the jobs do: index videos, and search the index."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from lastseen.answer import Answer
from lastseen.box import Box
from lastseen.errors import IndexStoreError, LastSeenError
from lastseen.files import one_line
from lastseen.index import Index, IndexedVideo
from lastseen.index.questions import Look, Question
from lastseen.index.record import BUSY, add_file
from lastseen.index.search import search
from lastseen.localizer import Localizer
from lastseen.progress import READING, SEARCHING
from lastseen.query import Query, View
from lastseen.render.curve import score_curve
from lastseen.video import Video
from lastseen.web.errors import Missing, TooLarge
from lastseen.web.jobs import Job, Jobs
from lastseen.web.kept import Asked, keep, look_of, picture_of, question_of
from lastseen.web.media import Entry, Shelf, video_id

log = logging.getLogger("lastseen")
# Up to this many frames (2 minutes) the exact model runs on all, so that the score curve has no gaps.
EXHAUSTIVE_FRAMES = 600
BOX_BYTES = 200  # of a Box of four Python floats
MOST_PIXELS = 300 * 10**6  # of all views of a question; a gigabyte in memory
SMALL = 1024  # longer side in pixels, about, of the query kept with a result


@dataclass(frozen=True)
class Picture:
    """One view of the thing: an uploaded picture or a frame of a video, and the thing's box in it."""

    upload: str | None = None
    video: str | None = None
    time_s: float = 0.0
    box: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class Request:
    pictures: tuple[Picture, ...]
    videos: tuple[str, ...] = ()  # empty: all
    before_s: float | None = None  # seconds from the start of each video
    client: str = ""  # the address it comes from


@dataclass(frozen=True, eq=False)
class Result:
    """The answers to a request, latest sighting first."""

    answers: tuple[Answer, ...]
    frames: int  # number searched
    seconds: float
    incomplete: tuple[str, ...]  # names of videos that are only partly indexed
    question: Question
    preliminary: bool = False  # what the first pass says

    @property
    def found(self) -> bool:
        return any(answer.found for answer in self.answers)

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, about: the score and the box of every frame searched, and the tracks."""
        curves = (answer.curve for answer in self.answers)
        arrays = (getattr(curve, field.name) for curve in curves if curve for field in fields(curve))
        boxes = sum(len(track.boxes) for answer in self.answers for track in answer.shown)
        return sum(getattr(array, "nbytes", 0) for array in arrays) + boxes * BOX_BYTES


class Work:
    """Starts jobs."""

    def __init__(self, shelf: Shelf, jobs: Jobs, localizer: Localizer) -> None:
        self.shelf, self.jobs, self.localizer = shelf, jobs, localizer
        with shelf.index() as index:
            index.bind(localizer)

    def read(self, entry: Entry) -> Job:
        """Start or resume indexing a video; returns the existing job if there is one."""
        running = self.jobs.at_work_on(entry.id)
        if running is not None:
            return running

        def work(job: Job) -> str:
            with self.shelf.index() as index:
                return video_id(self._read(index, job, entry).source)

        return self.jobs.submit("index", entry.name, work, (entry.id,))

    def find(self, request: Request) -> Job:
        pixels, looks, pictures = 0, [], []
        for number, picture in enumerate(request.pictures):  # errors are reported at once, not by the job
            view = self._view(picture).views[0]
            pixels += view.picture.size // 3
            looks.append(self._look(number, picture, view))
            pictures.append(picture_of(view))
        if pixels > MOST_PIXELS:
            raise TooLarge("the pictures of this question are too large together; scale them down")
        names = [entry.name for entry in self.shelf.entries_of(request.videos)]
        asked = Asked(tuple(looks), tuple(pictures), request.before_s, not request.videos)
        is_read_now = any(self.jobs.at_work_on(id) for id in request.videos)
        return self.jobs.submit(
            "find",
            ", ".join(names) or "all videos",
            lambda job: self._find(job, request),
            request.videos,
            urgent=not is_read_now,
            client=request.client,
            asked=asked,
        )

    def _read(self, index: Index, job: Job, entry: Entry) -> IndexedVideo:
        if entry.path is None:
            raise Missing(f"{entry.name}: a stream cannot be read again")
        self.shelf.file(entry.id)
        job.begin(READING, entry.name)
        localizer = self.localizer.with_callback(job.check)
        recording = add_file(index, localizer, entry.path, progress=job.progress)
        if recording.outcome == BUSY:
            raise IndexStoreError(f"{entry.name}: another process is reading it; wait for that")
        if recording.video.path != entry.path:  # the same content is indexed under another path
            self.shelf.discard(entry.path)
        return recording.video

    def _find(self, job: Job, request: Request) -> Result | None:
        """None: the result is kept in the index, and read from there."""
        query = Query.joined([self._view(picture) for picture in request.pictures], request.before_s)
        thing = Query.from_array(_small(query.views[0].crop))
        localizer = self.localizer.with_callback(job.check)
        with self.shelf.index() as index:
            videos = [self._whole(index, job, id) for id in request.videos] or index.videos()
            videos = [video for video in videos if video.frames > video.first]
            if not videos:
                raise IndexStoreError("there is nothing to search yet; add a video first")
            job.begin(SEARCHING)
            frames = sum(video.frames - video.first for video in videos)

            def result(found: Sequence[Answer], preliminary: bool = False) -> Result:
                answers = tuple(replace(answer, query=thing) for answer in found)
                seconds, threshold = frames / localizer.fps, localizer.rule.confidence.threshold
                about = job.id, job.asked, answers, videos, frames, seconds, threshold
                incomplete = tuple(video.name for video in videos if not video.complete)
                return Result(answers, frames, seconds, incomplete, question_of(*about), preliminary)

            answers = search(
                index,
                localizer,
                {"thing": query},
                videos=videos,
                every=True,
                exhaustive=frames <= EXHAUSTIVE_FRAMES,
                progress=job.progress,
                preliminary=lambda _, so_far: job.answer_so_far(result(so_far, preliminary=True)),
            )["thing"]
            there = {video.id for video in index.videos()}
        if gone := [video.name for video in videos if video.id not in there]:
            raise Missing(f"{', '.join(gone)}: removed during the search; ask again")
        final = result(answers)
        if self._is_kept(job, final.question, final.answers):
            return None
        job.result_bytes = final.size_bytes
        return final

    def _is_kept(self, job: Job, question: Question, answers: Sequence[Answer]) -> bool:
        """Whatever goes wrong with keeping it, the question is answered."""
        try:
            with self.shelf.index() as index:
                keep(index, question, job.asked, answers, self._opened, self.jobs.limits)
        except (LastSeenError, OSError, MemoryError) as error:
            why = getattr(error, "strerror", None) or error
            log.warning("a question about %s is answered, but not kept: %s", one_line(job.title), why)
            return False
        except Exception:
            log.exception("a question about %s is answered, but not kept", one_line(job.title))
            return False
        return True

    def _opened(self, video: IndexedVideo) -> Video:
        return self.shelf.opened(video_id(video.source))

    def _look(self, number: int, picture: Picture, view: View) -> Look:
        if picture.upload is not None or picture.video is None:
            return look_of(number, view, None, None, 0.0)
        entry = self.shelf.entry(picture.video)
        return look_of(number, view, entry.indexed, str(entry.path), picture.time_s)

    def _whole(self, index: Index, job: Job, id: str) -> IndexedVideo:
        entry = self.shelf.entry(id)
        if entry.indexed is None or not (entry.indexed.complete or entry.path is None):
            return self._read(index, job, entry)
        return entry.indexed

    def _view(self, picture: Picture) -> Query:
        box = Box(*picture.box) if picture.box else None
        if picture.upload is not None:
            return Query.from_array(self.shelf.pictures.read(picture.upload), box)
        if picture.video is None or box is None:
            raise Missing("a view is a picture, or a video with a time and a box")
        return Query.from_video(self.shelf.opened(picture.video), picture.time_s, box)


def _small(picture: np.ndarray) -> np.ndarray:
    """A reduced copy: results stay in memory, large photographs should not."""
    step = max(1, max(picture.shape[:2]) // SMALL)
    return picture[::step, ::step].copy()


def curve_dict(answer: Answer) -> dict[str, Any]:
    """The score over time for the page: times, scores (None where the model did not run), peaks."""
    assert answer.curve is not None
    curve, searched = score_curve(answer), answer.curve.searched
    group = max(1, -(-len(searched) // max(1, len(curve.times_s))))
    ran = [bool(searched[i * group : (i + 1) * group].any()) for i in range(len(curve.times_s))]
    return {
        "duration": answer.video.duration_s,
        "searched": curve.searched_s,
        "times": [round(float(t), 3) for t in curve.times_s],
        "scores": [round(float(score), 4) if was else None for score, was in zip(curve.smooth, ran)],
        "peaks": [{"time": round(t, 3), "score": round(s, 4)} for t, s in curve.peaks],
    }

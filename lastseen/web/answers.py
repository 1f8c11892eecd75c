"""Routes for searches: find, jobs and their progress, answers and their files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi import Request as WebRequest
from fastapi.responses import FileResponse, Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask
from starlette.types import Receive, Scope, Send

from lastseen.answer import Answer
from lastseen.errors import LastSeenError, OutputError, QueryError
from lastseen.formats import FORMATS, format_answer
from lastseen.formats.answer_json import answer_dict
from lastseen.index.answers import left_out
from lastseen.index.entry import IndexedVideo
from lastseen.render import write_filmstrip, write_picture, write_report, write_video
from lastseen.web.errors import Missing, TooMany, from_system
from lastseen.web.history import History
from lastseen.web.jobs import Job, Jobs
from lastseen.web.media import Shelf, safe_name, video_id
from lastseen.web.turns import Turns
from lastseen.web.work import Picture, Request, Result, Work, curve_dict

EVENTS_S = 0.1  # interval at which jobs are polled
QUIET_S = 15.0  # after this long without an event a comment keeps the connection alive
Number = Annotated[float, Field(allow_inf_nan=False)]


class LookAt(BaseModel):
    """A picture by the id that its upload gave, or a moment of a video; `box` is where the thing is in it."""

    picture: str | None = None
    video: str | None = None
    time: Number = Field(0.0, ge=0, description="Seconds; of the video.")
    box: tuple[Number, Number, Number, Number] | None = Field(None, description="x1 y1 x2 y2 in pixels.")


class Ask(BaseModel):
    looks: list[LookAt] = Field(min_length=1, max_length=8, description="Views of the same thing.")
    videos: list[str] = Field(default=[], max_length=1000, description="Where to search; none: everywhere.")
    before: Number | None = Field(None, gt=0, description="Search only before this second of each video.")


class JobInfo(BaseModel):
    """`done` of `total` of a phase, counted in `unit`; `left`: seconds until all phases are done, if that can
    be told. `answered`: there is an answer to fetch, while the job is running a preliminary one."""

    id: str
    kind: Literal["index", "find"]
    title: str
    videos: list[str]
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    phase: str
    step: str
    done: int
    total: int
    unit: str
    left: float | None
    answered: bool
    message: str


class Seen(BaseModel):
    """`answer` keeps the schema lastseen/answer@1, every occurrence in it; `curve` is for drawing.

    `date_source`, of the dates: recorded (somebody said it), container (the file's metadata) or file time.
    `steps` are the refinement steps that were run; `left_out` says in words what was not done because the
    video file is missing, and how much of the video could not be decoded.
    """

    video: str
    name: str
    recorded_at: str | None  # None: the date in the file is none
    date_source: str
    seen_at: str | None
    still_in_view: bool  # when what was searched ends
    answer: dict[str, Any]
    steps: list[str]
    left_out: str
    curve: dict[str, Any]


class Answers(BaseModel):
    """The videos in which the thing was seen, the latest first; if in none, the one with the best guess.

    `preliminary`: what the first pass says, while the job is looking closer.
    """

    preliminary: bool
    found: bool
    threshold: float
    seconds: float
    frames: int
    pictures: int  # that it was asked with
    incomplete: list[str]
    answers: list[Seen]


SAID = ("id", "kind", "title", "state", "phase", "step", "done", "total", "unit", "answered", "message")


def job_info(job: Job) -> JobInfo:
    return JobInfo.model_validate(
        {
            **{name: getattr(job, name) for name in SAID},
            "videos": list(job.videos),
            "left": job.left_s,
        }
    )


def local_time(video: IndexedVideo, time_s: float, unit: str) -> str | None:
    """Date and time of a moment; None if the video claims to be from a year that no calendar has."""
    try:
        return video.time_of(time_s).isoformat(timespec=unit)
    except (LastSeenError, ValueError, OverflowError, OSError):
        return None


def described(found: Result) -> Answers:
    return Answers(
        preliminary=found.preliminary,
        found=found.found,
        threshold=found.question.threshold,
        seconds=found.seconds,
        frames=found.frames,
        pictures=len(found.question.looks),
        incomplete=list(found.incomplete),
        answers=[_seen(answer) for answer in found.answers],
    )


def _seen(answer: Answer) -> Seen:
    video = answer.video
    assert isinstance(video, IndexedVideo)
    end = answer.shown[-1].end if answer.shown else 0.0
    dates = [local_time(video, time, "milliseconds") for time in (0.0, end)]
    return Seen(
        video=video_id(video.source),
        name=video.name,
        recorded_at=dates[0],
        date_source=video.date_source,
        seen_at=dates[1],
        still_in_view=answer.still_in_view,
        answer=answer_dict(answer),
        steps=list(answer.steps),
        left_out=left_out(answer),
        curve=curve_dict(answer),
    )


def answer_routes(shelf: Shelf, jobs: Jobs, work: Work, history: History, turns: Turns) -> APIRouter:
    routes = APIRouter(prefix="/api", tags=["answers"])
    streams = [0]  # open now

    def known(id: str) -> Job:
        job = jobs.find(id)
        if job is None:
            raise Missing("no such job; it may have been long ago")
        return job

    def answer(id: str, number: int) -> Answer:
        answers = history.result(id).answers
        if number >= len(answers):
            raise Missing(f"there are {len(answers)} answers, from 0")
        return answers[number]

    @routes.post("/find", status_code=202)
    async def find(ask: Ask, request: WebRequest) -> JobInfo:
        """Ask when a thing was last seen. The job's answer is at /api/jobs/ID/answers."""
        pictures = tuple(Picture(look.picture, look.video, look.time, look.box) for look in ask.looks)
        client = request.client.host if request.client else ""
        asked = Request(pictures, tuple(dict.fromkeys(ask.videos)), ask.before, client)
        return job_info(await turns.picture(lambda: work.find(asked)))

    @routes.get("/jobs")
    def list_jobs() -> list[JobInfo]:
        return [job_info(job) for job in jobs.all()]

    @routes.get("/jobs/{id}")
    def job_state(id: str) -> JobInfo:
        return job_info(known(id))

    @routes.post("/jobs/{id}/cancel")
    def cancel_job(id: str) -> JobInfo:
        """What was read into the index until then stays there."""
        job = known(id)
        jobs.cancel(job)
        return job_info(job)

    @routes.get("/events", response_class=StreamingResponse)
    async def events(
        job: Annotated[str | None, Query(description="Only this job, until it ends.")] = None,
    ) -> StreamingResponse:
        """Server-sent events: a job's state, whenever it changes."""
        if job is not None:
            known(job)
        return _EventStream(_changes(jobs, job), streams, jobs.limits.streams)

    @routes.get("/jobs/{id}/answers")
    def answers(id: str) -> Answers:
        return described(history.result(id))

    @routes.get("/jobs/{id}/answers/{number}", response_class=Response)
    def answer_file(
        id: str,
        number: Annotated[int, Field(ge=0)],
        format: Annotated[str, Query(description=f"One of {', '.join(FORMATS)}.")] = "json",
    ) -> Response:
        """An answer for other programs: by default what `lastseen find --all --json` prints."""
        one = answer(id, number)
        if format not in FORMATS:
            raise QueryError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
        text = format_answer(one, format)
        kind = "application/json" if format == "json" else "text/plain; charset=utf-8"
        name = safe_name(f"{one.video.path.stem}{FORMATS[format].endings[0]}")
        return Response(
            text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{_ascii(name)}"'}
        )

    @routes.get("/jobs/{id}/answers/{number}/{drawn}", response_class=FileResponse)
    async def drawn_file(
        id: str,
        number: Annotated[int, Field(ge=0)],
        drawn: Literal["picture.jpg", "filmstrip.jpg", "film.mp4", "report.html"],
    ) -> FileResponse:
        """An answer for people."""
        one = answer(id, number)
        if not one.shown:
            raise Missing("there is nothing to draw: not even a guess")
        draw: dict[str, Callable[[Path, Answer], None]] = {
            "picture.jpg": write_picture,
            "filmstrip.jpg": write_filmstrip,
            "film.mp4": write_video,
            "report.html": write_report,
        }
        path = shelf.arriving(f"{one.video.path.stem}-{drawn}")

        def write() -> FileResponse:
            video = shelf.opened(video_id(str(one.video.path)))
            shelf.check_room(0)
            try:
                draw[drawn](path, replace(one, video=video))
            except OutputError as error:
                if isinstance(error.__context__, OSError):
                    raise from_system(error.__context__) from None
                raise
            done = BackgroundTask(shelf.abandoned, path)
            return FileResponse(path, filename=path.name, background=done, stat_result=path.stat())

        try:
            return await (turns.frame if drawn.endswith(".jpg") else turns.drawing)(write)
        except BaseException:
            shelf.abandoned(path)
            raise

    return routes


class _EventStream(StreamingResponse):
    """One of at most `most` streams: each holds a connection for as long as its page is open."""

    def __init__(self, events: AsyncIterator[str], is_open: list[int], most: int) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._is_open, self._most = is_open, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_open[0] >= self._most:
            raise TooMany("too many event streams are open; close a page, or ask for /api/jobs instead")
        self._is_open[0] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._is_open[0] -= 1


async def _changes(jobs: Jobs, only: str | None) -> AsyncIterator[str]:
    sent: dict[str, int] = {}
    silent_s = 0.0
    yield "retry: 1000\n\n"
    while not jobs.closed:
        known = jobs.all()
        changed = [job for job in known if only in (None, job.id) and sent.get(job.id) != job.version]
        for job in changed:
            sent[job.id] = job.version
            yield f"data: {job_info(job).model_dump_json()}\n\n"
            if only is not None and job.finished:
                return
        if only is not None and all(job.id != only for job in known):
            return  # finished, and forgotten since
        if len(sent) > 2 * len(known):
            sent = {job.id: sent[job.id] for job in known if job.id in sent}
        silent_s = 0.0 if changed else silent_s + EVENTS_S
        if silent_s >= QUIET_S:
            silent_s = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(EVENTS_S)


def _ascii(name: str) -> str:
    return name.encode("ascii", "replace").decode().replace("?", "_")

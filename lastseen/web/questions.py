"""Routes for questions: those that are being answered, and those that are kept with the index."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from lastseen.index import Index, IndexedVideo
from lastseen.index.questions import THUMBNAIL, Look, Question, picture_file
from lastseen.video.dates import local
from lastseen.web.answers import Answers, described, local_time
from lastseen.web.errors import Busy, Missing
from lastseen.web.history import History
from lastseen.web.jobs import DONE, Job
from lastseen.web.kept import still_there, with_box
from lastseen.web.media import Shelf, video_id
from lastseen.web.turns import Turns


class QuestionInfo(BaseModel):
    """`words` is the answer in one line, about `video`; `kept` says that it survives the server's end."""

    id: str
    asked_at: str
    looks: int
    words: str
    found: bool
    video: str | None
    name: str | None  # of the video
    seen_at: str | None  # the end of the last sighting
    date_source: str | None
    videos: list[str]  # that were searched; none: all
    has_thumbnail: bool
    kept: bool
    state: str  # waiting, running or done


class LookInfo(BaseModel):
    """A picture that it was asked with; `box` is in pixels of its whole size."""

    video: str | None
    time: float
    box: tuple[float, float, float, float] | None
    width: int
    height: int


class AskedInfo(BaseModel):
    looks: list[LookInfo]
    before: float | None


class QuestionDetails(QuestionInfo):
    asked: AskedInfo
    answers: Answers | None  # None while there are none


@dataclass(frozen=True)
class _Shown:
    """A question with what is known of it at this moment."""

    question: Question
    job: Job | None  # None: it is kept in the index
    videos: dict[int, IndexedVideo]

    @property
    def info(self) -> QuestionInfo:
        question, job = self.question, self.job
        line = next((line for line in question.lines if line.video in self.videos), None)
        video = self.videos[line.video] if line else None
        searched = [] if question.everywhere else self.searched
        return QuestionInfo(
            id=question.id,
            asked_at=local(question.asked_at).isoformat(timespec="milliseconds"),
            looks=len(question.looks),
            words=line.words if line else "Not seen" if self.is_answered else "",
            found=question.found,
            video=None if video is None else video_id(video.source),
            name=None if video is None else video.name,
            seen_at=local_time(video, line.end_s, "milliseconds") if video and line and line.found else None,
            date_source=None if video is None else video.date_source,
            videos=searched,
            has_thumbnail=job is None and question.thumbnail is not None,
            kept=job is None,
            state=DONE if job is None else job.state,
        )

    @property
    def is_answered(self) -> bool:
        return self.job is None or self.job.answered

    @property
    def searched(self) -> list[str]:
        if self.job is not None:
            return list(self.job.videos)
        return [video_id(self.videos[id].source) for id in self.question.videos if id in self.videos]

    @property
    def asked(self) -> AskedInfo:
        looks = [self._look(look) for look in self.question.looks]
        return AskedInfo(looks=looks, before=self.question.before_s)

    def _look(self, look: Look) -> LookInfo:
        known = self.videos.get(look.video or 0)
        source = known.source if known else look.source
        return LookInfo(
            video=source and video_id(source),
            time=look.time_s,
            box=look.box,
            width=look.width,
            height=look.height,
        )


def question_routes(shelf: Shelf, history: History, turns: Turns) -> APIRouter:
    routes = APIRouter(prefix="/api/questions", tags=["questions"])

    def every(index: Index) -> list[_Shown]:
        videos = index.videos()
        kept = [_Shown(one, None, still_there(videos, one)) for one in history.kept(index)]
        known, there = {one.question.id for one in kept}, {video.id: video for video in videos}
        asked = [_Shown(history.asked(job), job, there) for job in history.unkept(index)]
        return [one for one in asked if one.question.id not in known] + kept

    def one(index: Index, id: str) -> _Shown:
        videos = index.videos()
        if (question := history.find(index, id)) is not None:
            return _Shown(question, None, still_there(videos, question))
        job = next((job for job in history.unkept(index) if job.id == id), None)
        if job is None:
            raise Missing("no such question; it may have been forgotten")
        return _Shown(history.asked(job), job, {video.id: video for video in videos})

    @routes.get("")
    def list_questions() -> list[QuestionInfo]:
        """What was asked, the newest first."""
        with shelf.index() as index:
            shown = every(index)
        shown.sort(key=lambda one: one.question.asked_at, reverse=True)
        return [one.info for one in shown]

    @routes.get("/{id}")
    def show_question(id: str) -> QuestionDetails:
        """What was asked, and the answers if there are any yet."""
        with shelf.index() as index:
            shown = one(index, id)
        answers = None
        with suppress(Busy):  # there was a preliminary answer, but the job failed meanwhile
            answers = described(history.result(id)) if shown.is_answered else None
        return QuestionDetails(**shown.info.model_dump(), asked=shown.asked, answers=answers)

    @routes.delete("/{id}", status_code=204)
    def forget_question(id: str) -> None:
        """Forget a question, its pictures and its answers."""
        history.forget(id)

    @routes.get("/{id}/pictures/{number}.jpg", response_class=Response)
    async def question_picture(
        id: str,
        number: Annotated[int, Field(ge=0)],
        box: Annotated[bool, Query(description="Draw the box into it.")] = False,
    ) -> Response:
        """A picture that it was asked with, as JPEG of at most 640 pixels."""

        def picture() -> bytes:
            with shelf.index() as index:
                shown = one(index, id)
                if number >= len(shown.question.looks):
                    raise Missing(f"it was asked with {len(shown.question.looks)} pictures, from 0")
                look = shown.question.looks[number]
                if shown.job is not None:
                    content = shown.job.asked.pictures[number]
                else:
                    content = history.file(index, shown.question, picture_file(look.number))
            return with_box(content, look) if box else content

        return _jpeg(await turns.frame(picture))

    @routes.get("/{id}/thumbnail.jpg", response_class=Response)
    def question_thumbnail(id: str) -> Response:
        """The end of the last sighting, or of the best guess, as JPEG of at most 480 pixels."""
        with shelf.index() as index:
            shown = one(index, id)
            if not shown.info.has_thumbnail:
                raise Missing("this question has no thumbnail")
            return _jpeg(history.file(index, shown.question, THUMBNAIL))

    return routes


def _jpeg(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, no-cache"})

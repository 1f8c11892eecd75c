"""Questions and their results: read from the index where they are kept, else from the jobs in memory."""

from __future__ import annotations

import logging

from lastseen.errors import IndexStoreError
from lastseen.files import one_line
from lastseen.index import Index
from lastseen.index.questions import Question
from lastseen.web.errors import Busy, Missing
from lastseen.web.jobs import DONE, RUNNING, WAITING, Job, Jobs
from lastseen.web.kept import Asked, answers_in, question_of, still_there
from lastseen.web.media import Shelf
from lastseen.web.work import Result

log = logging.getLogger("lastseen")
FORGOTTEN = "the question was forgotten with a video that it was about; ask again"


class History:
    def __init__(self, shelf: Shelf, jobs: Jobs) -> None:
        self.shelf, self.jobs = shelf, jobs
        self._said: set[str] = set()  # damaged questions that the log tells of

    def kept(self, index: Index) -> list[Question]:
        """Questions in the index, the newest first; of a damaged one the log has a line."""
        sound, damaged = index.questions.read()
        for id, why in damaged.items():
            self._say(id, why)
        return sound

    def find(self, index: Index, id: str) -> Question | None:
        try:
            return index.questions.find(id)
        except IndexStoreError as error:
            raise self._damaged(id, error) from None

    def result(self, id: str) -> Result:
        """The final one, or while the job is running the first pass's."""
        job = self.jobs.find(id)
        so_far = None if job is None else job.preliminary  # taken first: it goes when the question is kept
        with self.shelf.index() as index:
            question = self.find(index, id)
            if question is not None:
                return self.result_of(index, question)
            if isinstance(so_far, Result):
                return so_far
            if job is None:
                raise Missing("no such job; it may have been long ago")
            if job.kind != "find":
                raise Missing("this job asked nothing")
            if job.state != DONE:
                raise Busy(f"there is no answer: the job is {job.state}")
            if not self.is_known(index, job):
                raise Missing(FORGOTTEN)
            assert isinstance(job.result, Result)
            return job.result

    def result_of(self, index: Index, question: Question) -> Result:
        try:
            answers = answers_in(index, question)
        except (IndexStoreError, OSError) as error:
            now = self.find(index, question.id)
            if now is not None and now != question:  # one of its videos was removed meanwhile
                return self.result_of(index, now)
            raise self._damaged(question.id, error) from None
        videos = still_there(index.videos(), question)
        incomplete = tuple(videos[id].name for id in question.incomplete if id in videos)
        return Result(answers, question.frames, question.seconds, incomplete, question)

    def file(self, index: Index, question: Question, name: str) -> bytes:
        try:
            content = index.questions.file(question, name)
        except (IndexStoreError, OSError) as error:
            raise self._damaged(question.id, error) from None
        if content is None:
            raise Missing("this is not kept of the question")
        return content

    def asked(self, job: Job) -> Question:
        """What is known of a question that is not in the index."""
        for result in (job.result, job.preliminary):
            if isinstance(result, Result):
                return result.question
        assert isinstance(job.asked, Asked)
        return question_of(job.id, job.asked, (), (), 0, 0.0, 0.0)

    def unkept(self, index: Index) -> list[Job]:
        """Questions that are being answered, or could not be kept."""
        asked = [job for job in self.jobs.all() if job.kind == "find"]
        return [job for job in asked if job.state in (WAITING, RUNNING) or self.is_known(index, job)]

    def is_known(self, index: Index, job: Job) -> bool:
        """Whether a finished job still has its answer. It has none once it is kept in the index; one that
        could not be kept is forgotten with any of its videos."""
        if not isinstance(job.result, Result):
            return False
        if job.result.question.needs <= {video.id for video in index.videos()}:
            return True
        self.jobs.forget(job)
        return False

    def forget(self, id: str) -> None:
        job = self.jobs.find(id)
        if job is not None and job.kind == "find" and not job.finished:
            raise Busy("it is being answered; cancel that first")
        with self.shelf.index() as index:
            was_kept = index.questions.remove(id)
        if job is not None and job.kind == "find":
            self.jobs.forget(job)
        elif not was_kept:
            raise Missing("no such question; it may have been forgotten")

    def _damaged(self, id: str, error: Exception) -> Missing:
        with self.shelf.index() as index:  # a question that is removed while it is read is not damaged
            if not (index.questions.folder / id).is_dir():
                return Missing(FORGOTTEN)
        self._say(id, str(error))
        return Missing("what was kept of this question is damaged; ask again")

    def _say(self, id: str, why: str) -> None:
        if id not in self._said:
            self._said.add(id)
            log.warning("the kept question %s is left out: %s", id, one_line(why))

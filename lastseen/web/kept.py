"""What is kept of a question: its pictures from when it is asked, its answers from when they are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lastseen.answer import Answer
from lastseen.box import Box
from lastseen.errors import IndexStoreError, LastSeenError
from lastseen.index import Index, IndexedVideo
from lastseen.index.kept_answer import packed, unpacked
from lastseen.index.questions import THING, THUMBNAIL, Line, Look, Note, Question, answer_file, picture_file
from lastseen.query import Query, View
from lastseen.render.still import decoded, draw_answer, jpeg
from lastseen.video import Video
from lastseen.web.limits import Limits
from lastseen.words import headline

PICTURE_PX, THUMBNAIL_PX = 640, 480  # longer sides of what is kept


@dataclass(frozen=True)
class Asked:
    """A question, known while its job is."""

    looks: tuple[Look, ...]
    pictures: tuple[bytes, ...]  # of the looks
    before_s: float | None
    everywhere: bool
    at: float = field(default_factory=time.time)


def look_of(number: int, view: View, video: IndexedVideo | None, source: str | None, time_s: float) -> Look:
    height, width = view.picture.shape[:2]
    box = view.box.xyxy
    return Look(
        number=number,
        width=width,
        height=height,
        box=None if box == (0, 0, width, height) else box,
        video=None if video is None else video.id,
        source=source,
        time_s=time_s,
    )


def picture_of(view: View) -> bytes:
    return jpeg(view.picture, PICTURE_PX)


def question_of(
    id: str,
    asked: Asked,
    answers: Sequence[Answer],
    videos: Sequence[IndexedVideo],
    frames: int,
    seconds: float,
    threshold: float,
) -> Question:
    return Question(
        id=id,
        asked_at=asked.at,
        looks=asked.looks,
        before_s=asked.before_s,
        everywhere=asked.everywhere,
        videos=tuple(video.id for video in videos),
        incomplete=tuple(video.id for video in videos if not video.complete),
        frames=frames,
        seconds=seconds,
        threshold=threshold,
        lines=tuple(map(_line, answers)),
        notes=tuple(_note(answer, text, videos) for answer in answers for text in answer.damage),
    )


def keep(
    index: Index,
    question: Question,
    asked: Asked,
    answers: Sequence[Answer],
    opened: Callable[[IndexedVideo], Video],
    limits: Limits,
) -> None:
    """Write it to the index. IndexStoreError or OSError says why it cannot be."""
    if index.catalogue.read_only is not None:
        raise IndexStoreError(index.catalogue.read_only)
    files = {picture_file(number): picture for number, picture in enumerate(asked.pictures)}
    files |= {answer_file(_indexed(answer).id): packed(answer) for answer in answers}
    if answers and answers[0].query is not None:
        files[THING] = jpeg(answers[0].query.views[0].crop, PICTURE_PX)
    if answers and (thumbnail := _thumbnail(answers[0], opened)) is not None:
        files[THUMBNAIL] = thumbnail
        question = replace(question, thumbnail=_indexed(answers[0]).id)
    index.questions.keep(
        question,
        files,
        lambda: [video.id for video in index.videos()],
        most=limits.questions_kept,
        most_bytes=limits.questions_kept_bytes,
    )


def answers_in(index: Index, question: Question) -> tuple[Answer, ...]:
    """The kept answers, with what the index says of their videos now. IndexStoreError if they are damaged."""
    videos, store, query = still_there(index.videos(), question), index.questions, None
    if (thing := store.file(question, THING)) is not None:
        query = Query.from_array(decoded(thing))
    answers = []
    for line in question.lines:
        content = store.file(question, answer_file(line.video))
        if line.video in videos and content is not None:
            damage = tuple(note.text for note in question.notes if note.answer == line.video)
            answer = unpacked(content, videos[line.video])
            answers.append(replace(answer, query=query, damage=damage))
    return tuple(answers)


def still_there(videos: Sequence[IndexedVideo], question: Question) -> dict[int, IndexedVideo]:
    """The videos by number, without those that have the number of another one in the question."""
    identities = {line.video: line.identity for line in question.lines}
    return {video.id: video for video in videos if identities.get(video.id) in (None, video.identity)}


def with_box(picture: bytes, look: Look) -> bytes:
    """The kept picture with the thing's box drawn into it."""
    if look.box is None:
        return picture
    pixels = decoded(picture)
    height, width = pixels.shape[:2]
    return jpeg(draw_answer(pixels, Box(*look.box).scaled(width / look.width, height / look.height)))


def _thumbnail(answer: Answer, opened: Callable[[IndexedVideo], Video]) -> bytes | None:
    """The end of the last sighting, or of the best guess; None if the video's file is not there."""
    if not answer.shown:
        return None
    track = answer.shown[-1]
    with suppress(LastSeenError, OSError):
        frame = opened(_indexed(answer)).frame_at(track.end)
        return jpeg(draw_answer(frame.image, track.last_box), THUMBNAIL_PX)
    return None


def _line(answer: Answer) -> Line:
    video = _indexed(answer)
    return Line(
        video=video.id,
        identity=video.identity,
        found=answer.found,
        words=headline(answer),
        end_s=answer.shown[-1].end if answer.shown else 0.0,
    )


def _note(answer: Answer, text: str, videos: Sequence[IndexedVideo]) -> Note:
    """Notes begin with the name of the video that they are about."""
    about = max(
        (video for video in videos if text.startswith(f"{video.name}:")),
        key=lambda video: len(video.name),
        default=_indexed(answer),
    )
    return Note(answer=_indexed(answer).id, video=about.id, text=text)


def _indexed(answer: Answer) -> IndexedVideo:
    assert isinstance(answer.video, IndexedVideo)
    return answer.video

"""Run a localizer on an annotated set of videos. Can be interrupted and resumed.

Each clip is decoded and encoded once for all its questions. Finished clips are recorded in a journal beside
the output, one line each; the challenge file is written when all are done.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lastseen.box import Box
from lastseen.datasets import AbsentQuestion, Annotations, ClipAnnotation, Question, VideoSection, VisualCrop
from lastseen.datasets.vq2d import find_videos
from lastseen.errors import AnnotationError, OutputError
from lastseen.evaluate.challenge import build_predictions, write_predictions
from lastseen.files import check_apart, check_writable
from lastseen.localizer import Localizer
from lastseen.progress import EVALUATING, Pace, Tell
from lastseen.query import Query
from lastseen.track import ResponseTrack
from lastseen.video import Video

AnswerClip = Callable[
    [ClipAnnotation, VideoSection, Sequence[Question | AbsentQuestion]], list[ResponseTrack]
]


def run_benchmark(
    localizer: Localizer,
    annotations: Annotations,
    videos: str | Path,
    out: str | Path,
    *,
    absent: Sequence[AbsentQuestion] = (),
    progress: Tell | None = None,
) -> dict[str, Any]:
    """Localize every question's thing, write the challenge file `out` and return its content.

    No threshold applies: every question gets the best guess with its score, since the metrics rank by score
    and a low one costs nothing.
    """
    answer, made_by = partial(answer_clip, localizer), localizer.fingerprint()
    return run_answers(answer, made_by, annotations, videos, out, absent=absent, progress=progress)


def run_answers(
    answer: AnswerClip,
    made_by: str,
    annotations: Annotations,
    videos: str | Path,
    out: str | Path,
    *,
    absent: Sequence[AbsentQuestion] = (),
    progress: Tell | None = None,
) -> dict[str, Any]:
    """The same, whoever answers the questions of a clip; `made_by` identifies who does."""
    out = Path(out)
    check_writable(out, (".json",))
    check_writable(_journal_of(out))
    check_apart([("", out), ("", _journal_of(out))], [annotations.path])
    if out.exists():
        raise OutputError(f"{out} exists; remove it or choose another name (nothing was run)")
    sections = find_videos(annotations, videos)
    by_clip = _absent_by_clip(absent, sections, annotations)
    journal = _Journal(_journal_of(out), _fingerprint(made_by, annotations, absent))
    answers: dict[tuple[str, str], ResponseTrack] = {}
    absent_scores: dict[str, float] = {}
    pace = Pace(progress, EVALUATING, "clips")
    for number, (clip, section) in enumerate(sections):
        if number not in journal.done:
            questions, absent_questions = clip.questions, by_clip.get(clip.clip_uid or "", [])
            tracks = answer(clip, section, [*questions, *absent_questions])
            journal.add(number, _entry(questions, absent_questions, tracks))
        entry = journal.done[number]
        for uid, query_set, track in entry["answers"]:
            answers[uid, query_set] = ResponseTrack.from_dict(track)
        absent_scores.update(entry["absent"])
        pace(number + 1, len(sections))
    predictions = build_predictions(annotations, answers, absent_scores)
    write_predictions(predictions, out)
    journal.path.unlink()
    return predictions


def _journal_of(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


def answer_clip(
    localizer: Localizer,
    clip: ClipAnnotation,
    section: VideoSection,
    questions: Sequence[Question | AbsentQuestion],
) -> list[ResponseTrack]:
    """The best guess for each question, in pixels of the annotated frame size."""
    video = open_section(section)
    queries = [query_of(question, video, clip.fps) for question in questions]
    guesses = [
        answer.shown[-1] for answer in localizer.at(clip.fps).ask_many(video, queries, exhaustive=True)
    ]
    scales = [to_annotated_px(question, video) for question in questions]
    return [
        replace(guess, boxes=tuple(box.scaled(*scale) for box in guess.boxes))
        for guess, scale in zip(guesses, scales)
    ]


def open_section(section: VideoSection) -> Video:
    return Video(section.path, start_s=section.start_s or 0.0, end_s=section.end_s)


def query_of(question: Question | AbsentQuestion, video: Video, fps: float) -> Query:
    """The question as a Query: a frame of the video with the thing's box, or a picture file."""
    crop = question.crop
    # A query frame may be one past the last frame of the video.
    asked_at = min(question.query_frame / fps, video.duration_s)
    if crop.frame is not None and crop.frame / fps < video.duration_s:
        factors = video.width / crop.original_width, video.height / crop.original_height
        box = crop.box.scaled(*factors).clipped(video.width, video.height)
        return Query.from_video(video, crop.frame / fps, box, asked_at)
    if crop.image is None or crop.image_box is None:
        raise AnnotationError(
            f"{video.path}: frame {crop.frame}, the picture of {question.object_title!r}, is past its end"
        )
    return _from_image(crop, crop.image, crop.image_box).asked(asked_at)


def _from_image(crop: VisualCrop, image: Path, image_box: Box) -> Query:
    whole = Query.from_image(image).views[0]
    height, width = whole.picture.shape[:2]
    return Query.from_array(whole.picture, image_box.clipped(width, height))


def to_annotated_px(question: Question | AbsentQuestion, video: Video) -> tuple[float, float]:
    """Scale factors of x and y from pixels of the video file to pixels of the annotated frame size.

    An absent thing has no boxes in the video, so the size of its picture does not matter.
    """
    if isinstance(question, AbsentQuestion):
        return 1.0, 1.0
    return question.original_width / video.width, question.original_height / video.height


def _entry(
    questions: Sequence[Question], absent: Sequence[AbsentQuestion], tracks: Sequence[ResponseTrack]
) -> dict[str, Any]:
    return {
        "answers": [[*question.key, track.to_dict()] for question, track in zip(questions, tracks)],
        "absent": {q.query_uid: track.score for q, track in zip(absent, tracks[len(questions) :])},
    }


def _absent_by_clip(
    absent: Sequence[AbsentQuestion],
    sections: Sequence[tuple[ClipAnnotation, VideoSection]],
    annotations: Annotations,
) -> dict[str, list[AbsentQuestion]]:
    known = {clip.clip_uid for clip, _ in sections}
    by_clip: dict[str, list[AbsentQuestion]] = {}
    for question in absent:
        if question.clip_uid not in known:
            raise AnnotationError(
                f"absent query {question.query_uid} is about clip {question.clip_uid}, "
                f"which is not in {annotations.path}; give the absent file of the same set"
            )
        by_clip.setdefault(question.clip_uid, []).append(question)
    return by_clip


def _fingerprint(made_by: str, annotations: Annotations, absent: Sequence[AbsentQuestion]) -> str:
    """Identifies model and questions: a journal is resumed only with the same ones."""
    parts = [
        hashlib.sha256(annotations.path.read_bytes()).hexdigest(),
        made_by,
        *(question.query_uid for question in absent),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class _Journal:
    """Finished clips, one JSON line each, synced to disk before the next clip begins."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self.done: dict[int, dict[str, Any]] = {}
        head = json.dumps({"fingerprint": fingerprint}) + "\n"
        if not path.exists():
            self._append(head)
            return
        lines = path.read_bytes().splitlines(keepends=True)
        if not lines or lines[0].decode(errors="replace") != head:
            raise OutputError(
                f"{path} is from another run (other annotations or model); remove it, or choose another name"
            )
        # Cut off a partial last line, left by a run that was killed while writing it.
        whole = [line for line in lines if line.endswith(b"\n")]
        if len(whole) < len(lines):
            os.truncate(path, sum(map(len, whole)))
        for line in whole[1:]:
            entry = json.loads(line)
            self.done[entry["clip"]] = entry

    def add(self, clip: int, entry: dict[str, Any]) -> None:
        self._append(json.dumps({"clip": clip, **entry}) + "\n")
        self.done[clip] = entry

    def _append(self, line: str) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {error.strerror}") from None

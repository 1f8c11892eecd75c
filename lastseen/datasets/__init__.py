"""Types for annotation files: questions, their true answers and the videos they refer to.

    Annotations - VideoAnnotation - ClipAnnotation - QuestionGroup - Question - VisualCrop
    (the file's tree in the file's order, which the challenge file must repeat)

Frame numbers count sampled frames (5 per second) of the clip from 0. Boxes are in pixels of original_width x
original_height; a video file of another size is scaled to that first. A question whose response track is
missing is unanswered (the test file); one whose track is empty is about a thing that is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lastseen.box import Box
from lastseen.track import ResponseTrack


@dataclass(frozen=True, kw_only=True)
class VisualCrop:
    """The picture of the thing: a box on a frame of the clip, or an image file that shows it."""

    frame: int | None  # None: that frame is not in the clip, only `image` shows it
    box: Box
    original_width: int
    original_height: int
    image: Path | None = None
    image_box: Box | None = None  # where the thing is inside `image`


@dataclass(frozen=True, kw_only=True)
class Question:
    annotation_uid: str
    query_set: str
    query_frame: int  # search [0, query_frame)
    object_title: str
    crop: VisualCrop
    original_width: int  # of the frames that `truth` and `occurrences` are drawn on
    original_height: int
    truth: ResponseTrack | None
    truth_known: bool
    occurrences: tuple[ResponseTrack, ...] = ()  # all in the clip, also after the question (EgoTracks)
    object_uid: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.annotation_uid, self.query_set

    @property
    def is_absent(self) -> bool:
        return self.truth_known and self.truth is None


@dataclass(frozen=True, kw_only=True)
class AbsentQuestion:
    """A question about a thing that is nowhere in the clip; the right answer is "not seen"."""

    query_uid: str
    clip_uid: str
    query_frame: int
    object_title: str
    crop: VisualCrop
    object_uid: str | None = None


@dataclass(frozen=True, kw_only=True)
class QuestionGroup:
    """One entry of a clip's `annotations`; it has no questions if all its query sets are invalid."""

    annotation_uid: str
    query_sets: tuple[str, ...]  # as in the file, the invalid ones included
    questions: tuple[Question, ...]  # of the valid query sets

    @property
    def invalid_count(self) -> int:
        return len(self.query_sets) - len(self.questions)


@dataclass(frozen=True, kw_only=True)
class ClipAnnotation:
    video_uid: str
    clip_uid: str | None  # null in the file: only the source video can be used
    video_start_sec: float
    video_end_sec: float
    fps: float
    groups: tuple[QuestionGroup, ...]

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(question for group in self.groups for question in group.questions)


@dataclass(frozen=True, kw_only=True)
class VideoAnnotation:
    video_uid: str
    clips: tuple[ClipAnnotation, ...]


@dataclass(frozen=True, kw_only=True)
class Annotations:
    version: str
    path: Path
    videos: tuple[VideoAnnotation, ...]

    @property
    def clips(self) -> tuple[ClipAnnotation, ...]:
        return tuple(clip for video in self.videos for clip in video.clips)

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(question for clip in self.clips for question in clip.questions)

    @property
    def invalid_count(self) -> int:
        return sum(group.invalid_count for clip in self.clips for group in clip.groups)


@dataclass(frozen=True, kw_only=True)
class VideoSection:
    """A video file and the part of it that a clip covers; None and None mean the whole file."""

    path: Path
    start_s: float | None = None
    end_s: float | None = None

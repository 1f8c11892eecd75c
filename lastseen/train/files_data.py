"""Training clips from annotated videos on disk: VQ2D response tracks or EgoTracks occurrences.

A clip is `clip_length` frames at the annotation's rate (5 a second). It shows part of an occurrence at a
random phase or, in a share of the clips, none of it. Pictures become tensors exactly as at inference. A
video is opened when it is first needed.

Only certain labels count. A VQ2D response track is the *last* occurrence before the question: between its
end and the question the thing is certainly absent, but before it earlier occurrences may be unlabelled, and
after the question nothing is labelled at all. EgoTracks labels every occurrence, so all its frames count.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.datasets import ClipAnnotation, Question, VideoSection
from lastseen.datasets.egotracks import known_occurrences
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.errors import TrainError
from lastseen.evaluate.benchmark import query_of
from lastseen.model import TrainedConfig
from lastseen.model.inputs import normalised, padded, query_crops, resized
from lastseen.train.augment import AugmentConfig, augment_clip, augment_query
from lastseen.train.batch import Batch, unrelated_by_name
from lastseen.video import Video

LEAST_SHOWN = 3  # frames of the occurrence in a clip, where it has so many


@dataclass(frozen=True, kw_only=True)
class FilesData:
    annotations: str = ""  # a VQ2D or EgoTracks file
    videos: str = ""  # the folder of its clips or source videos
    absent_share: float = 0.1  # of clips that certainly do not show their thing
    workers: int = 4  # threads that decode ahead
    augment: AugmentConfig = field(default_factory=AugmentConfig)


class Example(NamedTuple):
    clip: ClipAnnotation
    section: VideoSection
    question: Question

    @property
    def labelled(self) -> tuple[float, float]:
        """The frames [first, end) in which the thing is known to be visible or known to be absent."""
        if self.question.occurrences or self.question.truth is None:
            return 0, np.inf
        return self.question.truth.first_frame, self.question.query_frame


class Sample(NamedTuple):
    """One row of a batch."""

    clip: Tensor
    query: Tensor
    query_boxes_unit: Tensor
    query_shown_unit: Tensor
    boxes_unit: Tensor
    visible: Tensor
    known: Tensor
    example: Example


class VideoClips:
    """A source of batches; row i of step s is the same whoever asks for it, and decoded ahead."""

    def __init__(
        self,
        examples: Sequence[Example],
        data: FilesData,
        model: TrainedConfig,
        size: int,
        seed: int,
        rows: tuple[int, int] | None = None,
    ) -> None:
        self.examples, self.data, self.model, self.size, self.seed = examples, data, model, size, seed
        self.first, self.last = rows or (0, size)
        self._pool = ThreadPoolExecutor(max(1, data.workers), thread_name_prefix="clips")
        self._ahead: dict[int, list[Future[Sample]]] = {}
        self._videos: dict[VideoSection, Video] = {}
        self._shown = _things_by_video(examples)

    @classmethod
    def open(cls, data: FilesData, model: TrainedConfig, size: int, seed: int) -> VideoClips:
        if not data.annotations or not data.videos:
            raise TrainError("this recipe reads videos: give --annotations FILE and --videos FOLDER")
        annotations = load_vq2d(data.annotations)
        examples = [
            Example(clip, section, question)
            for clip, section in find_videos(annotations, data.videos)
            for question in clip.questions
            if known_occurrences(question)
        ]
        if not examples:
            raise TrainError(f"{data.annotations}: no question in it has a known answer to learn from")
        return cls(examples, data, model, size, seed)

    def share(self, first: int, last: int) -> VideoClips:
        return VideoClips(self.examples, self.data, self.model, self.size, self.seed, (first, last))

    def batch(self, step: int) -> Batch:
        samples = [future.result() for future in self._asked(step)]
        self._ahead = {step + 1: self._asked(step + 1)}
        asked = [_name(sample.example) for sample in samples]
        shown = [self._shown[sample.example.clip.video_uid] for sample in samples]
        return Batch(
            clips=torch.stack([sample.clip for sample in samples]),
            queries=torch.stack([sample.query for sample in samples]),
            query_boxes_unit=torch.stack([sample.query_boxes_unit for sample in samples]),
            query_shown_unit=torch.stack([sample.query_shown_unit for sample in samples]),
            boxes_unit=torch.stack([sample.boxes_unit for sample in samples]),
            visible=torch.stack([sample.visible for sample in samples]),
            known=torch.stack([sample.known for sample in samples]),
            unrelated=unrelated_by_name(shown, asked),
        )

    def _asked(self, step: int) -> list[Future[Sample]]:
        if step in self._ahead:
            return self._ahead[step]
        numbers = range(step * self.size + self.first, step * self.size + self.last)
        return [self._pool.submit(self.sample, number) for number in numbers]

    def sample(self, number: int) -> Sample:
        """Sample `number` of the endless row; each round through the examples has its own order."""
        turn, place = divmod(number, len(self.examples))
        order = np.random.default_rng([self.seed, 0, turn]).permutation(len(self.examples))
        example = self.examples[order[place]]
        rng = np.random.default_rng([self.seed, 1, number])
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        video = self._video(example.section)
        time = self.model.clip_length
        start = draw_start(example, video.frame_count(example.clip.fps), time, self.data.absent_share, rng)
        frames, boxes_px, visible, known = _read(example, video, start, time)
        letterbox = Letterbox.square(video.width, video.height, self.model.image_size)
        content = resized(frames, letterbox.content_width, letterbox.content_height)
        sides = np.array([video.width, video.height] * 2)
        unit = torch.from_numpy(boxes_px / sides).float()
        content, unit, visible, is_sliver = augment_clip(content, unit, visible, self.data.augment, generator)
        view = query_of(example.question, video, example.clip.fps).views[0]
        picture, size, scales = torch.from_numpy(view.picture), self.model.query_size, self.model.query_scales
        crops, query_boxes, query_shown = query_crops(picture, view.box, size, scales)
        boxes = letterbox.to_unit(unit.numpy() * sides)
        return Sample(
            clip=normalised(padded(content, letterbox, self.model.padding)),
            query=normalised(augment_query(crops, self.data.augment, generator)),
            query_boxes_unit=query_boxes,
            query_shown_unit=query_shown,
            boxes_unit=torch.from_numpy(boxes).float(),
            visible=visible,
            known=known & ~is_sliver,
            example=example,
        )

    def _video(self, section: VideoSection) -> Video:
        # Looking at a file takes a while; two threads that do so at once do no harm.
        if section not in self._videos:
            start, end = section.start_s or 0.0, section.end_s
            self._videos[section] = Video(section.path, start_s=start, end_s=end)
        return self._videos[section]


def draw_start(
    example: Example, frames: int, time: int, absent_share: float, rng: np.random.Generator
) -> int:
    """The clip's first frame. The clip shows part of an occurrence or, with a chance of `absent_share`, only
    frames in which the thing is certainly absent, if there are that many in a row.
    """
    first_labelled, end_labelled = example.labelled
    end = int(max(time, min(frames, end_labelled)))
    starts = np.arange(end - time + 1)
    spans = [(track.first_frame, track.last_frame) for track in known_occurrences(example.question)]
    shown = np.array(
        [
            np.clip(np.minimum(starts + time - 1, last) - np.maximum(starts, first) + 1, 0, None)
            for first, last in spans
        ]
    )
    is_labelled = (starts >= first_labelled) & (starts + time <= min(frames, end_labelled))
    without = starts[(shown.sum(0) == 0) & is_labelled]
    if len(without) and rng.random() < absent_share:
        return int(rng.choice(without))
    chosen = shown[rng.integers(len(spans))]
    fitting = starts[chosen >= max(1, min(LEAST_SHOWN, chosen.max()))]
    if not len(fitting):  # this occurrence is past the end of the video: take any other
        fitting = starts[shown.sum(0) > 0] if shown.any() else starts
    return int(rng.choice(fitting))


def _read(example: Example, video: Video, start: int, time: int) -> tuple[Tensor, np.ndarray, Tensor, Tensor]:
    """Frames [t, h, w, 3] uint8, boxes [t, 4] in pixels of the video, visible [t], known [t].

    A video that ends early repeats its last frame, which is not known.
    """
    fps, question = example.clip.fps, example.question
    images = [frame.image for frame in video.frames(fps, start / fps, (start + time) / fps)]
    if not images:
        raise TrainError(f"{video.path}: no frame at {start / fps:.1f} s; copy it again")
    read = len(images)
    images += [images[-1]] * (time - read)
    factors = video.width / question.original_width, video.height / question.original_height
    boxes, visible = np.zeros((time, 4)), torch.zeros(time, dtype=torch.bool)
    for track in known_occurrences(question):
        for number, box in enumerate(track.boxes, track.first_frame - start):
            inside = box.scaled(*factors).clipped(video.width, video.height)
            if 0 <= number < read and inside.area > 0:
                boxes[number], visible[number] = inside.xyxy, True
    numbers = torch.arange(time)
    first_labelled, end_labelled = example.labelled
    known = (numbers < read) & (start + numbers >= first_labelled) & (start + numbers < end_labelled)
    return torch.from_numpy(np.stack(images)), boxes, visible & known, known


def _name(example: Example) -> str:
    """The thing's own id if the file has one; otherwise no thing is assumed to be in two videos."""
    return example.question.object_uid or f"{example.clip.video_uid}/{'/'.join(example.question.key)}"


def _things_by_video(examples: Sequence[Example]) -> dict[str, frozenset[str]]:
    """The things that each video is known to show; clips of one video are thus never unrelated."""
    shown: dict[str, set[str]] = {}
    for example in examples:
        shown.setdefault(example.clip.video_uid, set()).add(_name(example))
    return {uid: frozenset(names) for uid, names in shown.items()}

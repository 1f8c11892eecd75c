"""An annotated set, encoded once by a backbone, to evaluate many heads on.

Models with the same backbone share its features; what comes after is the smaller part of the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.datasets import AbsentQuestion, Annotations, Question
from lastseen.datasets.vq2d import find_videos
from lastseen.evaluate.asking import asked_as
from lastseen.evaluate.benchmark import query_of, to_annotated_px
from lastseen.evaluate.calibration import Answered, best_guess, fit_rule
from lastseen.evaluate.metrics import AbsentScore, Outcome, Report, ScoredTrack, evaluate
from lastseen.localizer import Localizer
from lastseen.model import Backbone, TrainedConfig, TrainedModel
from lastseen.model.inputs import letterboxed, normalised, query_crops
from lastseen.query import Query
from lastseen.rule import Rule
from lastseen.sighting import Evidence
from lastseen.video import Video

AT_ONCE = 64  # frames per batch
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedClip:
    """One video with its questions.

    | features         | float16 [frames, channels, side, side]                              |
    | queries          | float16 [questions, scales, channels, q side, q side]               |
    | query_boxes_unit | [questions, scales, 4] the thing's box in the crop                  |
    | query_shown_unit | same shape: the part of the crop inside the picture; rest is padding |
    """

    video: Video
    video_uid: str
    questions: tuple[Question | AbsentQuestion, ...]
    asked: tuple[Query, ...]
    features: Tensor
    queries: Tensor
    query_boxes_unit: Tensor
    query_shown_unit: Tensor


class EncodedSet:
    """Clips encoded with one backbone, input size, query scales and padding, for models that share these."""

    def __init__(self, clips: Sequence[EncodedClip]) -> None:
        self.clips = list(clips)

    @classmethod
    @torch.inference_mode()
    def of(
        cls,
        annotations: Annotations,
        videos: str | Path,
        absent: Sequence[AbsentQuestion],
        backbone: Backbone,
        config: TrainedConfig,
        device: torch.device | str,
    ) -> EncodedSet:
        backbone = backbone.to(device).eval()
        clips = []
        sections = find_videos(annotations, videos)
        opened = [Video(s.path, start_s=s.start_s or 0.0, end_s=s.end_s) for _, s in sections]
        decoded = in_advance(_decoded, [(video, clip.fps) for video, (clip, _) in zip(opened, sections)])
        for (clip, _), video, frames in zip(sections, opened, decoded):
            absent_questions = [question for question in absent if question.clip_uid == clip.clip_uid]
            questions: list[Question | AbsentQuestion] = [
                *(q for q in clip.questions if q.truth),
                *absent_questions,
            ]
            asked = tuple(query_of(question, video, clip.fps) for question in questions)
            clips.append(
                EncodedClip(
                    video=video,
                    video_uid=clip.video_uid,
                    questions=tuple(questions),
                    asked=asked,
                    features=_features(frames, backbone, config, device),
                    **_encoded_queries(asked, backbone, config, device),
                )
            )
        return cls(clips)

    @torch.inference_mode()
    def asked_as(self, way: str, backbone: Backbone, config: TrainedConfig) -> EncodedSet:
        """The same videos with the questions asked in another way (`lastseen.evaluate.asking`)."""
        clips = []
        for clip in self.clips:
            asked = tuple(asked_as(query, way) for query in clip.asked)
            device = clip.features.device
            clips.append(replace(clip, **_encoded_queries(asked, backbone.to(device).eval(), config, device)))
        return EncodedSet(clips)

    @torch.inference_mode()
    def answer(self, model: TrainedModel, *, fps: float = 5.0) -> list[Answered]:
        """The model's predictions for every question, boxes in pixels of the annotated size."""
        model = model.eval()
        answered = []
        for clip in self.clips:
            device = clip.features.device
            localizer = Localizer(model, fps=fps, device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                made = zip(clip.queries, clip.query_boxes_unit, clip.query_shown_unit)
                views = [
                    [model.encode_query_features(query[None].float(), box[None], shown[None]).row(0)]
                    for query, box, shown in made
                ]
                pieces = (model.encode_features(part.float()) for part in torch.split(clip.features, AT_ONCE))
                ends = [localizer.frames_searched(clip.video, query) for query in clip.asked]
                found = localizer.predict_encoded(clip.video, pieces, views, ends)
            for question, predictions in zip(clip.questions, found):
                factors = np.array(to_annotated_px(question, clip.video) * 2)
                evidence = Evidence.of(predictions)
                evidence = replace(evidence, boxes_px=evidence.boxes_px * factors)
                truth = question.truth if isinstance(question, Question) else None
                answered.append(Answered(video_uid=clip.video_uid, evidence=evidence, truth=truth))
        return answered


def report(answered: Sequence[Answered], rule: Rule, *, draws: int = 1000) -> Report:
    """Metrics of the best guesses under a rule."""
    return _report(list(answered), [rule] * len(answered), draws)


def cross_fitted(answered: Sequence[Answered], rule: Rule = Rule(), *, draws: int = 1000) -> Report:
    """Two-fold cross-fitting: each half of the videos is scored under a rule fitted on the other half."""
    videos = sorted({one.video_uid for one in answered})
    halves = [set(videos[0::2]), set(videos[1::2])]
    rules = [fit_rule([one for one in answered if one.video_uid not in half], rule) for half in halves]
    chosen = [rules[0] if one.video_uid in halves[0] else rules[1] for one in answered]
    return _report(list(answered), chosen, draws)


def _report(answered: list[Answered], rules: list[Rule], draws: int) -> Report:
    outcomes, absent = [], []
    for one, rule in zip(answered, rules):
        guess = best_guess(one, rule)
        if one.truth is None:
            absent.append(AbsentScore(video_uid=one.video_uid, score=guess.score))
        else:
            scored = ScoredTrack(track=guess, score=guess.score)
            outcomes.append(Outcome(video_uid=one.video_uid, truth=one.truth, answers=(scored,)))
    return evaluate(outcomes, absent, draws=draws)


def _encoded_queries(
    asked: Sequence[Query], backbone: Backbone, config: TrainedConfig, device: torch.device | str
) -> dict[str, Any]:
    """The fields of EncodedClip that depend on the queries' first views."""
    views = [query.views[0] for query in asked]
    made = [
        query_crops(
            torch.from_numpy(view.picture.copy()).to(device), view.box, config.query_size, config.query_scales
        )
        for view in views
    ]
    crops, boxes, shown = (torch.stack(each).to(device) for each in zip(*made))
    queries = _encoded(backbone, normalised(crops.flatten(0, 1)))
    return {
        "queries": queries.view(*crops.shape[:2], *queries.shape[1:]),
        "query_boxes_unit": boxes,
        "query_shown_unit": shown,
    }


def _decoded(video: Video, fps: float) -> np.ndarray:
    return np.stack([frame.image for frame in video.frames(fps)])


def _features(
    frames: np.ndarray, backbone: Backbone, config: TrainedConfig, device: torch.device | str
) -> Tensor:
    height, width = frames.shape[1:3]
    letterbox = Letterbox.square(width, height, config.image_size)
    parts = []
    for first in range(0, len(frames), AT_ONCE):
        part = torch.from_numpy(frames[first : first + AT_ONCE]).to(device)
        parts.append(_encoded(backbone, letterboxed(part, letterbox, config.padding)))
    return torch.cat(parts)


def in_advance(work: Callable[..., T], cases: Sequence[tuple[Any, ...]], ahead: int = 6) -> Iterator[T]:
    """Results of `work` in order, computed up to `ahead` in advance by threads: decode while encoding."""
    with ThreadPoolExecutor(ahead) as pool:
        waiting: deque[Future[T]] = deque()
        for case in cases:
            waiting.append(pool.submit(work, *case))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _encoded(backbone: Backbone, pictures: Tensor) -> Tensor:
    device = pictures.device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        return torch.cat([backbone(part).half() for part in torch.split(pictures, AT_ONCE)])

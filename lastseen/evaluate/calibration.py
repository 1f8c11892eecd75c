"""Confidence: a rule fitted so that a score says how often such an answer is right, and "not seen" is one.

Fitted on videos with known answers, for which the synthetic world is good: questions about things that are
there and about things that are not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import logit

from lastseen.datasets import AbsentQuestion, Annotations, Question
from lastseen.datasets.vq2d import find_videos
from lastseen.errors import AnnotationError
from lastseen.evaluate.benchmark import predict_clip
from lastseen.evaluate.metrics import compare
from lastseen.files import whole_file
from lastseen.localizer import Localizer
from lastseen.track import FramePredictions, ResponseTrack, TrackRule, all_tracks

RIGHT_STIOU = 0.25
GAINS = (0.5, 0.7, 1.0, 1.4, 2.0)
BOX_MEDIANS = (1, 3, 5)
SHIFTS = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0)
BINS = 10


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What the model said to a question; `truth` is None if the thing is not there."""

    video_uid: str
    predictions: FramePredictions
    truth: ResponseTrack | None


def answer_all(
    localizer: Localizer,
    annotations: Annotations,
    videos: str | Path,
    absent: Sequence[AbsentQuestion] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[Answered]:
    answered = []
    sections = find_videos(annotations, videos)
    for number, (clip, section) in enumerate(sections, 1):
        asides = [question for question in absent if question.clip_uid == clip.clip_uid]
        questions: list[Question | AbsentQuestion] = [*(q for q in clip.questions if q.truth), *asides]
        truths = [*(q.truth for q in clip.questions if q.truth), *(None for _ in asides)]
        for frames, truth in zip(predict_clip(localizer, clip, section, questions), truths):
            answered.append(Answered(video_uid=clip.video_uid, predictions=frames, truth=truth))
        if progress:
            progress(number, len(sections))
    return answered


def save_answered(answered: Sequence[Answered], path: str | Path) -> None:
    """Answers as they are before scores become tracks (JSON, packed with gzip), to be judged elsewhere."""
    rows = [
        {
            "video": one.video_uid,
            "fps": one.predictions.fps,
            "boxes_px": np.round(one.predictions.boxes_px, 2).tolist(),
            "logits": np.round(one.predictions.logits, 4).tolist(),
            "spans": one.predictions.spans,
            "doubts": one.predictions.doubts,
            "truth": one.truth.to_dict() if one.truth else None,
        }
        for one in answered
    ]
    with whole_file(path) as building:
        building.write_bytes(gzip.compress(json.dumps(rows).encode()))


def load_answered(path: str | Path) -> list[Answered]:
    rows = json.loads(gzip.decompress(Path(path).read_bytes()))
    return [
        Answered(
            video_uid=row["video"],
            predictions=FramePredictions(
                fps=row["fps"],
                boxes_px=np.array(row["boxes_px"]),
                logits=np.array(row["logits"]),
                spans=tuple((first, last) for first, last in row.get("spans", ())),
                doubts=tuple((first, last, loss) for first, last, loss in row.get("doubts", ())),
            ),
            truth=ResponseTrack.from_dict(row["truth"]) if row["truth"] else None,
        )
        for row in rows
    ]


def fit_rule(answered: Sequence[Answered], rule: TrackRule = TrackRule()) -> TrackRule:
    """Gain, shift and smoothing of boxes that answer best (by the ranked share of right answers), then slope
    and offset so that the score is the chance to be right."""
    if not any(one.truth for one in answered):
        raise AnnotationError("a rule cannot be fitted: no question has a true answer")
    candidates = [replace(rule, gain=gain, shift=float(shift)) for gain in GAINS for shift in SHIFTS]

    def quality(candidate: TrackRule) -> float:
        return _average_precision(*outcome(answered, candidate))

    # Neighbours vouch for each other: the best of a smoothed grid does not hang on a single question.
    grid = np.pad(np.reshape(list(map(quality, candidates)), (len(GAINS), len(SHIFTS))), 1, mode="edge")
    smooth = sum(grid[y : y + len(GAINS), x : x + len(SHIFTS)] for y in range(3) for x in range(3))
    chosen = candidates[int(np.argmax(smooth))]
    chosen = max((replace(chosen, box_median=frames) for frames in BOX_MEDIANS), key=quality)
    slope, offset = fit_confidence(*outcome(answered, replace(chosen, slope=1.0, offset=0.0)))
    return replace(chosen, slope=slope, offset=offset)


def outcome(answered: Sequence[Answered], rule: TrackRule) -> tuple[np.ndarray, np.ndarray]:
    """The score of each best guess, and whether it is right; about an absent thing nothing is."""
    scores, right = [], []
    for one in answered:
        guess = all_tracks(one.predictions, replace(rule, threshold=0.0))[-1]
        scores.append(guess.score)
        right.append(one.truth is not None and compare(one.truth, guess).stiou >= RIGHT_STIOU)
    return np.array(scores), np.array(right, bool)


def fit_confidence(scores: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Slope (not negative, so that the order stays) and offset of a logistic fit, held near 1 and 0 by a
    weak prior: a handful of answers must not make anybody certain."""
    x = logit(np.clip(scores, 1e-6, 1 - 1e-6))

    def cost(parameters: np.ndarray) -> float:
        slope, offset = np.exp(parameters[0]), parameters[1]
        z = slope * x + offset
        surprise = np.logaddexp(0, z) - right * z
        return float(surprise.sum() + 0.5 * (parameters[0] ** 2 + 0.1 * offset**2))

    found = minimize(cost, np.zeros(2), method="Nelder-Mead").x
    return float(np.exp(found[0])), float(found[1])


def calibration_error(scores: np.ndarray, right: np.ndarray) -> float:
    """Mean distance between score and share of right answers, over bins of equally many answers."""
    order = np.argsort(scores, kind="stable")
    parts = [part for part in np.array_split(order, min(BINS, len(order))) if len(part)]
    return float(sum(abs(scores[p].mean() - right[p].mean()) * len(p) for p in parts) / len(order))


def held_out(answered: Sequence[Answered], rule: TrackRule, folds: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rightness as on unseen videos: each fold's rule is fitted on the others."""
    videos = sorted({one.video_uid for one in answered})
    scores, right = [], []
    for fold in range(min(folds, len(videos))):
        own = set(videos[fold::folds])
        rest = [one for one in answered if one.video_uid not in own]
        if not any(one.truth for one in rest):
            continue
        part = outcome([one for one in answered if one.video_uid in own], fit_rule(rest, rule))
        scores.append(part[0])
        right.append(part[1])
    return np.concatenate(scores), np.concatenate(right)


def _average_precision(scores: np.ndarray, right: np.ndarray) -> float:
    ranked = right[np.argsort(-scores, kind="stable")]
    precision = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    best_after = np.maximum.accumulate(precision[::-1])[::-1]
    return float((best_after * ranked).sum() / max(1, len(ranked)))

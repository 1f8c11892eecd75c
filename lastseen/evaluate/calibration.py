"""Confidence: a rule fitted so that a score says how often such an answer is right, and "not seen" is one.

Fitted on videos with known answers, for which the synthetic world is good: questions about things that are
there and about things that are not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logit

from lastseen.datasets import AbsentQuestion, Annotations, ClipAnnotation, Question, VideoSection
from lastseen.datasets.vq2d import find_videos
from lastseen.errors import AnnotationError
from lastseen.evaluate.benchmark import open_section, query_of, to_annotated_px
from lastseen.evaluate.metrics import compare
from lastseen.files import whole_file
from lastseen.localizer import Localizer
from lastseen.progress import EVALUATING, Pace, Tell
from lastseen.rule import Rule
from lastseen.sighting import Evidence, Extraction
from lastseen.track import FramePredictions, ResponseTrack
from lastseen.video import Video

RIGHT_STIOU = 0.25
# Small ones are for logits of a wide range: saturated scores tell neither peaks nor ends apart.
GAINS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
SHIFTS = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0)
# Fitted one after the other, under what was fitted before. Of equally good ones the first, the paper's.
OTHERS: dict[str, tuple[Any, ...]] = {
    "extent_ratio": (0.7, 0.6, 0.8, 0.85, 0.9, 0.95),
    "peak_ratio": (0.8, 0.7, 0.9),
    "box_median_frames": (3, 1, 5),
}
BINS = 10
THRESHOLDS = tuple(hundredths / 100 for hundredths in range(5, 96))


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The evidence on a question, boxes in pixels of the annotated size; `truth` is None if the thing is not
    there. Refined evidence can be judged only by the rule that refined it."""

    video_uid: str
    evidence: Evidence
    truth: ResponseTrack | None
    refined_by: str | None = None  # extraction and refinement; None: as the model said
    plain: bool = False  # a thing with little texture (lastseen.evaluate.asking)


def rule_key(rule: Rule) -> str:
    """Equal for rules that refine alike."""
    return json.dumps({name: rule.to_dict()[name] for name in ("extraction", "refinement")})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question with what the model said, and where it was asked."""

    clip: ClipAnnotation
    section: VideoSection
    question: Question | AbsentQuestion
    predictions: FramePredictions

    @property
    def truth(self) -> ResponseTrack | None:
        return self.question.truth if isinstance(self.question, Question) else None


def predict_all(
    localizer: Localizer,
    annotations: Annotations,
    videos: str | Path,
    absent: Sequence[AbsentQuestion] = (),
    progress: Tell | None = None,
) -> list[list[Asked]]:
    """What the model says to all questions with known answers, by clip."""
    asked = []
    sections = find_videos(annotations, videos)
    pace = Pace(progress, EVALUATING, "clips")
    for number, (clip, section) in enumerate(sections, 1):
        asides = [question for question in absent if question.clip_uid == clip.clip_uid]
        questions: list[Question | AbsentQuestion] = [*(q for q in clip.questions if q.truth), *asides]
        if questions:
            video = open_section(section)
            queries = [query_of(question, video, clip.fps) for question in questions]
            said = localizer.at(clip.fps).predict(video, queries)
            asked.append(
                [
                    Asked(clip=clip, section=section, question=question, predictions=predictions)
                    for question, predictions in zip(questions, said)
                ]
            )
        pace(number, len(sections))
    return asked


def unrefined(asked: Sequence[Sequence[Asked]]) -> list[Answered]:
    answered = []
    for together in asked:
        video = open_section(together[0].section)
        answered += [_answered(one, Evidence.of(one.predictions), video, None) for one in together]
    return answered


def refined(localizer: Localizer, asked: Sequence[Sequence[Asked]]) -> list[Answered]:
    """By the localizer's rule."""
    answered = []
    for together in asked:
        clip, video = together[0].clip, open_section(together[0].section)
        queries = [query_of(one.question, video, clip.fps) for one in together]
        found = localizer.at(clip.fps).refine(video, queries, [one.predictions for one in together])
        key = rule_key(localizer.rule)
        answered += [_answered(one, evidence, video, key) for one, evidence in zip(together, found)]
    return answered


def _answered(one: Asked, evidence: Evidence, video: Video, refined_by: str | None) -> Answered:
    factors = np.array(to_annotated_px(one.question, video) * 2)
    return Answered(
        video_uid=one.clip.video_uid,
        evidence=replace(evidence, boxes_px=evidence.boxes_px * factors),
        truth=one.truth,
        refined_by=refined_by,
    )


def save_answered(answered: Sequence[Answered], path: str | Path) -> None:
    """Evidence before it becomes tracks (JSON, packed with gzip), to be judged elsewhere."""
    rows = [
        {
            "video": one.video_uid,
            "fps": one.evidence.fps,
            "boxes_px": np.round(one.evidence.boxes_px, 2).tolist(),
            "logits": np.round(one.evidence.logits, 4).tolist(),
            "extents": one.evidence.extents,
            "penalties": one.evidence.penalties,
            "refined_by": one.refined_by,
            "plain": one.plain,
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
            evidence=Evidence(
                fps=row["fps"],
                boxes_px=np.array(row["boxes_px"]),
                logits=np.array(row["logits"]),
                extents=tuple((first, last) for first, last in row["extents"]),
                penalties=tuple((first, last, loss) for first, last, loss in row["penalties"]),
            ),
            truth=ResponseTrack.from_dict(row["truth"]) if row["truth"] else None,
            refined_by=row["refined_by"],
            plain=row.get("plain", False),
        )
        for row in rows
    ]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    rule: Rule
    error_before: float  # calibration error of the rule there was
    error_held_out: float  # of confidences fitted on other videos


def calibrate(
    localizer: Localizer,
    annotations: Annotations,
    videos: str | Path,
    absent: Sequence[AbsentQuestion] = (),
    progress: Tell | None = None,
) -> Calibration:
    """The extraction is fitted on what the model said, then everything is refined under it, and the
    confidence and its threshold are fitted on that: no number is fitted on evidence that another rule
    refined."""
    asked = predict_all(localizer, annotations, videos, absent, progress)
    before = calibration_error(*outcome(refined(localizer, asked), localizer.rule))
    rule = replace(localizer.rule, extraction=fit_extraction([unrefined(asked)], localizer.rule))
    answered = refined(localizer.with_rule(rule), asked)
    return Calibration(
        rule=fit_threshold(answered, fit_confidence(answered, rule)),
        error_before=before,
        error_held_out=calibration_error(*held_out(answered, rule)),
    )


def fit_rule(answered: Sequence[Answered], rule: Rule = Rule()) -> Rule:
    """Extraction and confidence of answers without refinement."""
    return fit_confidence(answered, replace(rule, extraction=fit_extraction([answered], rule)))


def fit_extraction(sets: Sequence[Sequence[Answered]], rule: Rule, *, workers: int = 1) -> Extraction:
    """The extraction that answers best, by the ranked share of right answers, averaged over the sets: each
    counts alike, however many questions it has. Gain and shift are fitted first, then OTHERS."""
    if not any(one.truth for answered in sets for one in answered):
        raise AnnotationError("a rule cannot be fitted: no question has a true answer")
    candidates = [
        replace(rule.extraction, gain=gain, shift=float(shift)) for gain in GAINS for shift in SHIFTS
    ]
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        each = pool.map if pool else map
        quality = partial(_quality, sets, rule)
        # Neighbours vouch for each other: the best of a smoothed grid does not hang on a single question.
        grid = np.reshape(list(each(quality, candidates)), (len(GAINS), len(SHIFTS)))
        grid = np.pad(grid, 1, mode="edge")
        smooth = sum(grid[y : y + len(GAINS), x : x + len(SHIFTS)] for y in range(3) for x in range(3))
        chosen = candidates[int(np.argmax(smooth))]
        for name, values in OTHERS.items():
            changed = [replace(chosen, **{name: value}) for value in values]
            chosen = changed[int(np.argmax(list(each(quality, changed))))]
        return chosen


def _quality(sets: Sequence[Sequence[Answered]], rule: Rule, candidate: Extraction) -> float:
    changed = replace(rule, extraction=candidate)
    return float(np.mean([_average_precision(*outcome(answered, changed)) for answered in sets]))


def fit_confidence(answered: Sequence[Answered], rule: Rule) -> Rule:
    """The rule with slope and offset such that a score is the probability to be right."""
    plain = replace(rule, confidence=replace(rule.confidence, slope=1.0, offset=0.0))
    slope, offset = fit_logistic(*outcome(answered, plain))
    return replace(rule, confidence=replace(rule.confidence, slope=slope, offset=offset))


def fit_threshold(answered: Sequence[Answered], rule: Rule) -> Rule:
    """The rule with the threshold at which the larger of two shares is least: present things that count as
    not seen, and absent ones that count as seen. Without absent things the threshold stays."""
    if all(one.truth for one in answered):
        return rule
    rules = [replace(rule, confidence=replace(rule.confidence, threshold=value)) for value in THRESHOLDS]
    worse = [max(share for share in mistaken(answered, one) if share is not None) for one in rules]
    best = [one for one, share in zip(rules, worse) if share <= min(worse) + 1e-9]
    return best[len(best) // 2]


def mistaken(answered: Sequence[Answered], rule: Rule) -> tuple[float | None, float | None]:
    """Share of the present things that count as not seen, and of absent ones that count as seen; None
    without any."""
    seen: dict[bool, list[bool]] = {True: [], False: []}
    for one in answered:
        seen[one.truth is not None].append(best_guess(one, rule).score >= rule.confidence.threshold)
    present, absent = seen[True], seen[False]
    return (1 - float(np.mean(present)) if present else None), (float(np.mean(absent)) if absent else None)


def outcome(answered: Sequence[Answered], rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """The score of each best guess, and whether it is right; about an absent thing nothing is."""
    scores, right = [], []
    for one in answered:
        guess = best_guess(one, rule)
        scores.append(guess.score)
        right.append(one.truth is not None and compare(one.truth, guess).stiou >= RIGHT_STIOU)
    return np.array(scores), np.array(right, bool)


def best_guess(one: Answered, rule: Rule) -> ResponseTrack:
    if one.refined_by not in (None, rule_key(rule)):
        raise ValueError("this evidence was refined by another rule; refine the predictions under this one")
    guess = rule.tracks(one.evidence)[1]
    assert guess is not None
    return guess


def fit_logistic(scores: np.ndarray, right: np.ndarray) -> tuple[float, float]:
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


def held_out(answered: Sequence[Answered], rule: Rule, folds: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rightness as on unseen videos: each fold's confidence is fitted on the others."""
    videos = sorted({one.video_uid for one in answered})
    scores, right = [], []
    for fold in range(min(folds, len(videos))):
        own = set(videos[fold::folds])
        rest = [one for one in answered if one.video_uid not in own]
        if not any(one.truth for one in rest):
            continue
        part = outcome([one for one in answered if one.video_uid in own], fit_confidence(rest, rule))
        scores.append(part[0])
        right.append(part[1])
    return np.concatenate(scores), np.concatenate(right)


def _average_precision(scores: np.ndarray, right: np.ndarray) -> float:
    ranked = right[np.argsort(-scores, kind="stable")]
    precision = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    best_after = np.maximum.accumulate(precision[::-1])[::-1]
    return float((best_after * ranked).sum() / max(1, len(ranked)))

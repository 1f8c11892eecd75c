"""The official VQ2D metrics, and ours: hit rates, confidence intervals, size classes, present/absent AUROC.

    Outcome  --measure-->  Measurements  --evaluate-->  Report
    one question           arrays, once                 every metric with its 95 % interval

Where the official code raises or depends on chance, ours is defined:
- Equal scores: the earlier question (and of one question the earlier answer) ranks first.
- An area of zero, or a union that is not positive, gives an IoU of 0.
- An answer without boxes ranks by its score and is wrong; a question without any answer is missed.
- A question without a true track cannot be scored here; the scores of absent things make an AUROC.
Recovery and success look at a question's best-scored answer only, tAP and stAP at all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any

import numpy as np

from lastseen.errors import PredictionsError
from lastseen.track import ResponseTrack

SCHEMA = "lastseen/report@1"
THRESHOLDS = (0.25, 0.5, 0.75, 0.95)
SIZE_CLASSES = {"small": (-math.inf, 64.0**2), "medium": (64.0**2, 192.0**2), "large": (192.0**2, math.inf)}

# name -> label and decimals; recovery and success are percentages, as in the official printout
METRICS = {
    "tap25": ("tAP @ 0.25", 3),
    "tap": ("tAP @ 0.25:0.95", 3),
    "stap25": ("stAP @ 0.25", 3),
    "stap": ("stAP @ 0.25:0.95", 3),
    "recovery": ("recovery %", 1),
    "success": ("success %", 1),
    "hit_t25": ("hit rate, tIoU >= 0.25", 3),
    "hit_st25": ("hit rate, stIoU >= 0.25", 3),
    "tap25_unranked": ("tAP @ 0.25, scores ignored", 3),
    "stap25_unranked": ("stAP @ 0.25, scores ignored", 3),
}


@dataclass(frozen=True, kw_only=True)
class ScoredTrack:
    """One prediction for a question."""

    track: ResponseTrack | None  # None: "not seen"
    score: float

    def __post_init__(self) -> None:
        _check_score(self.score)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One answered question: its true track and its answers."""

    video_uid: str
    truth: ResponseTrack
    answers: tuple[ScoredTrack, ...]
    crop_area: float = math.nan  # of the visual crop, in pixels; only for filtering by it

    def __post_init__(self) -> None:
        if self.truth is None:
            raise PredictionsError("a question without a true track has no IoU; score it as AbsentScore")
        fps = self.truth.fps
        if wrong := [a.track.fps for a in self.answers if a.track and a.track.fps != fps]:
            raise PredictionsError(f"an answer counts frames at {wrong[0]} fps, the annotations at {fps} fps")


@dataclass(frozen=True, kw_only=True)
class AbsentScore:
    """The score of the answer to a question about an absent thing; video_uid may be unknown (None)."""

    video_uid: str | None
    score: float

    def __post_init__(self) -> None:
        _check_score(self.score)


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Overlap of an answer with the truth. Volumes are box areas summed over frames."""

    tiou: float
    stiou: float
    frame_ious: np.ndarray  # [frames of the truth]
    truth_volume: float
    answer_volume: float


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """The numbers behind the metrics: of Q questions, and of their A answers in the same order."""

    video: np.ndarray  # [Q] index
    track_area: np.ndarray  # [Q] largest box of the truth
    crop_area: np.ndarray  # [Q]
    true_frames: np.ndarray  # [Q]
    recovered_frames: np.ndarray  # [Q] by the best-scored answer
    best_tiou: np.ndarray  # [Q] of the best-scored answer
    best_stiou: np.ndarray  # [Q]
    best_score: np.ndarray  # [Q] 0 without an answer
    question: np.ndarray  # [A] index
    score: np.ndarray  # [A]
    tiou: np.ndarray  # [A]
    stiou: np.ndarray  # [A]

    def __len__(self) -> int:
        return len(self.video)

    def where(self, keep: np.ndarray) -> Measurements:
        """Only the questions with keep[q], e.g. measured.where(measured.track_area < 64**2)."""
        answers = keep[self.question]
        new_index = np.cumsum(keep) - 1
        kept = {name: getattr(self, name)[keep] for name in _OF_QUESTIONS}
        kept |= {name: getattr(self, name)[answers] for name in _OF_ANSWERS}
        return Measurements(**{**kept, "question": new_index[kept["question"]]})


_OF_ANSWERS = ("question", "score", "tiou", "stiou")
_OF_QUESTIONS = tuple(field.name for field in fields(Measurements) if field.name not in _OF_ANSWERS)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number and its 95 % interval; None where there is nothing to compute it from."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """Groups are "all" and the size classes; metrics are those of METRICS."""

    questions: Mapping[str, int]
    videos: int
    metrics: Mapping[str, Mapping[str, Estimate]]
    auroc: Estimate
    absent: int
    draws: int
    seed: int

    def value(self, metric: str, group: str = "all") -> float | None:
        return self.metrics[group][metric].value

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "videos": self.videos,
            "absent_questions": self.absent,
            "bootstrap": {"draws": self.draws, "seed": self.seed, "clusters": "videos", "level": 0.95},
            "groups": {
                group: {"questions": self.questions[group]} | {name: asdict(e) for name, e in metrics.items()}
                for group, metrics in self.metrics.items()
            },
            "auroc_present_absent": asdict(self.auroc),
        }

    def to_text(self) -> str:
        """One line per metric: over all questions with its interval, then each size class."""
        lines = (
            f"{label:<28}{value:>8}{interval:>18}" + "".join(f"{size:>9}" for size in sizes)
            for label, value, interval, *sizes in self._rows()
        )
        return "\n".join(line.rstrip() for line in lines)

    def _rows(self) -> Iterator[list[str]]:
        groups = list(self.metrics)
        yield ["metric", "all", "95 % interval", *groups[1:]]
        yield ["questions", str(self.questions["all"]), "", *(str(self.questions[g]) for g in groups[1:])]
        for name, (label, decimals) in METRICS.items():
            every = self.metrics["all"][name]
            sizes = (_number(self.metrics[group][name].value, decimals) for group in groups[1:])
            yield [label, _number(every.value, decimals), _interval(every, decimals), *sizes]
        if self.absent:
            label = f"AUROC, {self.absent} absent things"
            yield [label, _number(self.auroc.value, 3), _interval(self.auroc, 3)]


def compare(truth: ResponseTrack, answer: ResponseTrack | None) -> Overlap:
    true_px, answer_px = _boxes_px(truth), _boxes_px(answer)
    answer_first = answer.first_frame if answer else truth.first_frame
    first = max(truth.first_frame, answer_first)
    common = max(0, min(truth.first_frame + len(true_px), answer_first + len(answer_px)) - first)
    in_truth = slice(first - truth.first_frame, first - truth.first_frame + common)
    in_answer = slice(first - answer_first, first - answer_first + common)
    a, b = true_px[in_truth], answer_px[in_answer]
    overlaps = np.maximum(np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2]), 0.0).prod(axis=1)
    frame_ious = np.zeros(len(true_px))
    frame_ious[in_truth] = _ratio(overlaps, _areas(a) + _areas(b) - overlaps)
    truth_volume, answer_volume, volume = map(_total, (_areas(true_px), _areas(answer_px), overlaps))
    return Overlap(
        tiou=common / (len(true_px) + len(answer_px) - common),
        stiou=float(_ratio(np.array(volume), np.array(answer_volume + truth_volume - volume))),
        frame_ious=frame_ious,
        truth_volume=truth_volume,
        answer_volume=answer_volume,
    )


def measure(outcomes: Sequence[Outcome]) -> Measurements:
    videos = _video_indices(outcomes)
    per_question, per_answer = [], []
    for index, outcome in enumerate(outcomes):
        overlaps = [compare(outcome.truth, answer.track) for answer in outcome.answers]
        scores = [answer.score for answer in outcome.answers]
        best = overlaps[int(np.argmax(scores))] if scores else compare(outcome.truth, None)
        area = max(box.area for box in outcome.truth.boxes)
        recovered = int((best.frame_ious >= 0.5).sum())
        about = (videos[outcome.video_uid], area, outcome.crop_area, len(best.frame_ious), recovered)
        per_question.append((*about, best.tiou, best.stiou, max(scores, default=0.0)))
        per_answer += [(index, score, o.tiou, o.stiou) for score, o in zip(scores, overlaps, strict=True)]
    questions = np.array(per_question, float).reshape(-1, len(_OF_QUESTIONS)).T
    answers = np.array(per_answer, float).reshape(-1, len(_OF_ANSWERS)).T
    columns = dict(zip(_OF_QUESTIONS + _OF_ANSWERS, (*questions, *answers), strict=True))
    indices = {name: columns[name].astype(int) for name in ("video", "question")}
    return Measurements(**{**columns, **indices})


def score(measured: Measurements) -> dict[str, float | None]:
    """Every metric of these questions; None for all of them if there are no questions."""
    values = _values(measured, np.ones((1, len(measured))))
    return {name: None if np.isnan(value[0]) else float(value[0]) for name, value in values.items()}


def auroc(present: Sequence[float] | np.ndarray, absent: Sequence[float] | np.ndarray) -> float | None:
    """How often a present thing scores higher than an absent one (ties count half)."""
    if not len(present) or not len(absent):
        return None
    weights = np.ones((1, len(present))), np.ones((1, len(absent)))
    return float(_auroc(np.asarray(present, float), np.asarray(absent, float), *weights)[0])


def evaluate(
    outcomes: Sequence[Outcome], absent: Sequence[AbsentScore] = (), *, draws: int = 1000, seed: int = 0
) -> Report:
    """All metrics of all questions and of each size class, with intervals from resampling whole videos.

    Questions about one video share its difficulties, so videos are drawn, not questions. With a single
    video, or with draws=0, there are no intervals.
    """
    if not outcomes:
        raise PredictionsError("there is nothing to score: no question has a true track")
    measured = measure(outcomes)
    videos = _video_indices(outcomes)
    draws = draws if len(videos) > 1 else 0
    equal = np.full(len(videos), 1 / len(videos))
    counts = np.random.default_rng(seed).multinomial(len(videos), equal, draws).astype(float)
    groups = {"all": np.ones(len(measured), bool)} | {
        name: (low <= measured.track_area) & (measured.track_area < high)
        for name, (low, high) in SIZE_CLASSES.items()
    }
    parts = {name: measured.where(keep) for name, keep in groups.items()}
    return Report(
        questions={name: len(part) for name, part in parts.items()},
        videos=len(videos),
        metrics={name: _estimates(part, counts) for name, part in parts.items()},
        auroc=_auroc_estimate(measured, absent, videos, counts),
        absent=len(absent),
        draws=draws,
        seed=seed,
    )


def _estimates(measured: Measurements, counts: np.ndarray) -> dict[str, Estimate]:
    # Chunks bound the memory: a draw needs one number per answer.
    size = max(1, 2_000_000 // max(1, len(measured.question)))
    chunks = [counts[i : i + size][:, measured.video] for i in range(0, len(counts), size)]
    drawn = [_values(measured, chunk) for chunk in chunks]
    return {
        name: _estimate(value, np.concatenate([values[name] for values in drawn]) if drawn else np.empty(0))
        for name, value in score(measured).items()
    }


def _auroc_estimate(
    measured: Measurements, absent: Sequence[AbsentScore], videos: Mapping[str, int], counts: np.ndarray
) -> Estimate:
    scores = np.array([one.score for one in absent], float)
    where = [videos.get(one.video_uid or "", -1) for one in absent]
    if not absent or -1 in where:
        counts = counts[:0]  # an absent question of an unknown video cannot be resampled with its video
    drawn = _auroc(measured.best_score, scores, counts[:, measured.video], counts[:, np.array(where, int)])
    return _estimate(auroc(measured.best_score, scores), drawn)


def _estimate(value: float | None, drawn: np.ndarray) -> Estimate:
    # A draw without a question of this group has no value; it is left out.
    drawn = drawn[~np.isnan(drawn)]
    if value is None or not len(drawn):
        return Estimate(value=value)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Estimate(value=value, low=float(low), high=float(high))


def _values(measured: Measurements, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Every metric, [D], for D weightings [D, Q] of the questions; a weight is a number of draws."""
    questions = weights.sum(axis=1)
    temporal, unranked_t = _average_precisions(measured, measured.tiou, weights)
    spatial, unranked_st = _average_precisions(measured, measured.stiou, weights)
    return {
        "tap25": temporal[0],
        "tap": temporal.mean(axis=0),
        "stap25": spatial[0],
        "stap": spatial.mean(axis=0),
        "recovery": 100 * _share(weights @ measured.recovered_frames, weights @ measured.true_frames),
        "success": 100 * _share(weights @ (measured.best_stiou >= 0.05), questions),
        "hit_t25": _share(weights @ (measured.best_tiou >= 0.25), questions),
        "hit_st25": _share(weights @ (measured.best_stiou >= 0.25), questions),
        "tap25_unranked": unranked_t,
        "stap25_unranked": unranked_st,
    }


def _average_precisions(
    measured: Measurements, ious: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """AP at each threshold, [4, D], and the AP at the first threshold if all scores were equal, [D].

    With equal scores the curve has a single step: AP is precision times recall, whatever the order.
    A question drawn w times stands w times in the ranking, one copy behind the other; the copies of a hit
    only raise the precision, so taking them in one step leaves the interpolated curve as it is.
    """
    order = np.argsort(-measured.score, kind="stable")
    question, ious = measured.question[order], ious[order]
    questions = weights.sum(axis=1)
    ranked = weights[:, question].cumsum(axis=1)
    precisions, unranked = [], np.zeros(len(weights))
    for threshold in THRESHOLDS:
        over = np.flatnonzero(ious >= threshold)
        # A second answer that matches the same truth is a false positive.
        hits = np.sort(over[np.unique(question[over], return_index=True)[1]])
        gains = weights[:, question[hits]]
        precision = _ratio(gains.cumsum(axis=1), ranked[:, hits])
        envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        precisions.append(_share((gains * envelope).sum(axis=1), questions))
        if threshold == THRESHOLDS[0]:
            answers = ranked[:, -1] if len(order) else np.zeros(len(weights))
            unranked = _share(gains.sum(axis=1), questions) * _ratio(gains.sum(axis=1), answers)
    return np.stack(precisions), unranked


def _auroc(
    present: np.ndarray, absent: np.ndarray, present_weights: np.ndarray, absent_weights: np.ndarray
) -> np.ndarray:
    """[D] for D weightings, [D, P] and [D, A]."""
    order = np.argsort(absent)
    below, up_to = (np.searchsorted(absent[order], present, side) for side in ("left", "right"))
    beaten = np.pad(absent_weights[:, order].cumsum(axis=1), ((0, 0), (1, 0)))
    wins = (present_weights * (beaten[:, below] + beaten[:, up_to]) / 2).sum(axis=1)
    return _share(wins, present_weights.sum(axis=1) * absent_weights.sum(axis=1))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, 0 where the whole is zero."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, NaN where the whole is zero (no questions)."""
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)


def _boxes_px(track: ResponseTrack | None) -> np.ndarray:
    return np.array([box.xyxy for box in (track.boxes if track else ())], float).reshape(-1, 4)


def _areas(boxes_px: np.ndarray) -> np.ndarray:
    # Signed, as in the official code: a box inverted along one axis has a negative area.
    return (boxes_px[:, 2] - boxes_px[:, 0]) * (boxes_px[:, 3] - boxes_px[:, 1])


def _total(values: np.ndarray) -> float:
    # Summed sequentially, as in the official code: at a threshold the last bit can decide.
    return float(sum(values.tolist()))


def _video_indices(outcomes: Sequence[Outcome]) -> dict[str, int]:
    return {uid: i for i, uid in enumerate(dict.fromkeys(outcome.video_uid for outcome in outcomes))}


def _check_score(score: Any) -> None:
    if isinstance(score, bool) or not isinstance(score, Real) or not math.isfinite(score):
        raise PredictionsError(f"a score must be a finite number, got {score!r}")


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _interval(estimate: Estimate, decimals: int) -> str:
    low, high = (_number(bound, decimals) for bound in (estimate.low, estimate.high))
    return "" if estimate.low is None else f"{low} to {high}"

"""The challenge's prediction file: write, read, validate and score it.

    {version, challenge, results: {videos: [{video_uid, clips: [{clip_uid, predictions:
      [{annotation_uid, query_sets: {"1": {bboxes: [{fno, x1, x2, y1, y2}], score}}}]}]}]}}

Videos, clips and predictions are in the order of the annotation file, every valid query set has an answer,
and "not seen" is {"bboxes": [], "score": 0.0}. Unknown keys are ignored. We add one key of our own:
"absent": [{query_uid, score}], the answers to questions about absent things.

`version` must be that of the annotation file, which is what the official evaluation asserts and what we
write. The official validator asserts "1.0" instead, so a file can satisfy both only if the annotations are
of version "1.0". We therefore refuse a version that every official script refuses, and warn of one that
only some of them accept.

Otherwise we refuse what any official script refuses, and more: a score that is not a number (only the last
official step fails on it) and boxes without coordinates. Lines that begin with `warning: ` are about what the
official evaluation accepts, and we score it as it does: a missing annotation_uid (the position identifies
it), inverted or empty boxes (they overlap nothing), frames at or after the question, negative scores. An
answer to an invalid query set is ignored, as in the official evaluation; we write "not seen" there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lastseen.box import Box
from lastseen.datasets import AbsentQuestion, Annotations, ClipAnnotation, Question, QuestionGroup
from lastseen.datasets.vq2d import is_number, one_track, read_json, shown
from lastseen.errors import AnnotationError, PredictionsError, TrackError
from lastseen.evaluate.metrics import AbsentScore, Outcome, Report, ScoredTrack, evaluate
from lastseen.files import whole_file
from lastseen.track import ResponseTrack

CHALLENGE = "ego4d_vq2d_challenge"
VALIDATOR_VERSION = "1.0"  # the only one that the official validator accepts
WARNING = "warning: "
CORNERS = ("x1", "x2", "y1", "y2")

Key = tuple[str, str]  # annotation_uid, query set


def build_predictions(
    annotations: Annotations,
    answers: Mapping[Key, ResponseTrack | None],
    absent: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The content of the prediction file; a question without an answer is "not seen".

    `absent` maps query_uid to score.
    """
    keys = [question.key for question in annotations.questions]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise AnnotationError(
            f"{annotations.path}: annotation {twice[0]}, query set {twice[1]} is there twice"
        )
    if strangers := sorted(set(answers) - set(keys)):
        raise PredictionsError(
            f"{len(strangers)} of {len(answers)} answers are to no valid question of {annotations.path}, "
            f"first annotation {strangers[0][0]}, query set {strangers[0][1]}"
        )
    videos = [
        {"video_uid": video.video_uid, "clips": [_clip_predictions(clip, answers) for clip in video.clips]}
        for video in annotations.videos
    ]
    predictions: dict[str, Any] = {
        "version": annotations.version,
        "challenge": CHALLENGE,
        "results": {"videos": videos},
    }
    if absent:
        predictions["absent"] = [{"query_uid": uid, "score": float(score)} for uid, score in absent.items()]
    return predictions


def write_predictions(predictions: Mapping[str, Any], path: str | Path) -> None:
    try:
        text = json.dumps(predictions, allow_nan=False)
    except ValueError:
        raise PredictionsError(f"{path}: not written: a score or coordinate is not a finite number") from None
    with whole_file(path) as building:
        building.write_text(text, encoding="utf-8")


def read_predictions(path: str | Path) -> dict[str, Any]:
    """The file's JSON object; `check_predictions` compares it with an annotation file."""
    predictions = read_json(Path(path), PredictionsError)
    if not isinstance(predictions, dict):
        raise PredictionsError(
            f"{path}: expected an object with version, challenge and results, got {shown(predictions)}"
        )
    return predictions


def check_predictions(annotations: Annotations, predictions: Any) -> list[str]:
    """Every problem, one line each; a file whose problems all begin with `warning: ` can be scored."""
    if not isinstance(predictions, dict):
        return [f"expected an object with version, challenge and results, got {shown(predictions)}"]
    problems = [*_check_head(predictions, annotations.version), *_check_absent(predictions.get("absent", []))]
    results = predictions.get("results", {})
    if not isinstance(results, dict):
        return [*problems, f'results: expected an object with "videos", got {shown(results)}']
    if "results" not in predictions:
        return problems
    uids = [video.video_uid for video in annotations.videos]
    for v, place, item in _pair_up(results, "videos", uids, "video_uid", "results", problems):
        clips = annotations.videos[v].clips
        clip_uids = [clip.clip_uid for clip in clips]
        for c, clip_place, clip_item in _pair_up(item, "clips", clip_uids, "clip_uid", place, problems):
            groups = clips[c].groups
            group_uids = [group.annotation_uid for group in groups]
            for g, group_place, group_item in _pair_up(
                clip_item, "predictions", group_uids, "annotation_uid", clip_place, problems
            ):
                problems += _check_group(groups[g], group_item.get("query_sets"), f"{group_place}.query_sets")
    return problems


def read_answers(annotations: Annotations, predictions: Any) -> dict[Key, ScoredTrack]:
    """The answer to every valid question; raises a PredictionsError with the first problem."""
    return {question.key: answer for _, question, answer in _answered(annotations, predictions)}


def answer_from(bboxes: Sequence[Mapping[str, Any]], score: float, fps: float) -> ScoredTrack:
    """Boxes of the challenge file, in any order, as an answer; they must form a single track."""
    numbered = [(int(box["fno"]), Box(box["x1"], box["y1"], box["x2"], box["y2"])) for box in bboxes]
    try:
        return ScoredTrack(track=one_track(numbered, fps, score), score=score)
    except TrackError as error:
        raise PredictionsError(str(error)) from None


def score_file(
    annotations: Annotations,
    predictions: Any,
    absent: Sequence[AbsentQuestion] = (),
    *,
    draws: int = 1000,
    seed: int = 0,
) -> Report:
    """Score a prediction file; `absent` names the videos of the file's "absent" answers.

    Questions whose true track is empty count as absent, too. Without any absent question there is no AUROC;
    without `absent`, the file's "absent" scores give an AUROC without an interval.
    """
    outcomes, absent_scores = [], _absent_scores(annotations, predictions, absent)
    for clip, question, answer in _answered(annotations, predictions):
        if question.truth:
            outcomes.append(
                Outcome(
                    video_uid=clip.video_uid,
                    truth=question.truth,
                    answers=(answer,),
                    crop_area=question.crop.box.area,
                )
            )
        elif question.truth_known:
            absent_scores.append(AbsentScore(video_uid=clip.video_uid, score=answer.score))
    if not outcomes:
        raise AnnotationError(
            f"{annotations.path}: no question has a true track (a test file?): nothing to score"
        )
    return evaluate(outcomes, absent_scores, draws=draws, seed=seed)


def _clip_predictions(clip: ClipAnnotation, answers: Mapping[Key, ResponseTrack | None]) -> dict[str, Any]:
    predictions = [
        {
            "annotation_uid": group.annotation_uid,
            "query_sets": {
                name: _raw_answer(answers.get((group.annotation_uid, name)), clip.fps)
                for name in group.query_sets
            },
        }
        for group in clip.groups
    ]
    return {"clip_uid": clip.clip_uid, "predictions": predictions}


def _raw_answer(track: ResponseTrack | None, fps: float) -> dict[str, Any]:
    if track is None:
        return {"bboxes": [], "score": 0.0}
    if track.fps != fps:
        raise PredictionsError(f"an answer counts frames at {track.fps} fps, the annotations at {fps} fps")
    # A model's numbers may be NumPy's, which JSON does not know.
    boxes = [
        {"fno": int(frame)} | {corner: float(getattr(box, corner)) for corner in CORNERS}
        for frame, box in enumerate(track.boxes, track.first_frame)
    ]
    return {"bboxes": boxes, "score": float(track.score)}


def _answered(
    annotations: Annotations, predictions: Any
) -> Iterator[tuple[ClipAnnotation, Question, ScoredTrack]]:
    errors = [one for one in check_predictions(annotations, predictions) if not one.startswith(WARNING)]
    if errors:
        more = f" (and {len(errors) - 1} more problems)" if len(errors) > 1 else ""
        raise PredictionsError(f"the predictions do not fit {annotations.path}: {errors[0]}{more}")
    # Checked: both trees have the same shape and order.
    for video, raw_video in zip(annotations.videos, predictions["results"]["videos"], strict=True):
        for clip, raw_clip in zip(video.clips, raw_video["clips"], strict=True):
            for group, raw_group in zip(clip.groups, raw_clip["predictions"], strict=True):
                for question in group.questions:
                    raw = raw_group["query_sets"][question.query_set]
                    yield clip, question, answer_from(raw["bboxes"], raw["score"], clip.fps)


def _absent_scores(
    annotations: Annotations, predictions: Any, absent: Sequence[AbsentQuestion]
) -> list[AbsentScore]:
    raw = predictions.get("absent", []) if isinstance(predictions, dict) else []
    if problem := next(_check_absent(raw), None):
        raise PredictionsError(problem)
    scores = {item["query_uid"]: item["score"] for item in raw}
    if not absent:
        return [AbsentScore(video_uid=None, score=score) for score in scores.values()]
    unanswered = [question.query_uid for question in absent if question.query_uid not in scores]
    if unanswered:
        raise PredictionsError(
            f"absent: {len(unanswered)} of {len(absent)} questions have no score, first {unanswered[0]}"
        )
    videos = {clip.clip_uid: clip.video_uid for clip in annotations.clips}
    return [AbsentScore(video_uid=videos.get(one.clip_uid), score=scores[one.query_uid]) for one in absent]


def _check_head(predictions: Mapping[str, Any], annotated_version: str) -> Iterator[str]:
    for key in ("version", "challenge", "results"):
        if key not in predictions:
            yield f'"{key}" is missing'
    version = predictions.get("version", annotated_version)
    if not isinstance(version, str):
        yield f"version: expected a string, got {shown(version)}"
    elif version not in (annotated_version, VALIDATOR_VERSION):
        yield f"version: expected {shown(annotated_version)}, as in the annotations, got {shown(version)}"
    elif version != annotated_version:
        yield (
            f"{WARNING}version: the official evaluation expects that of the annotations, "
            f"{shown(annotated_version)}, got {shown(version)}"
        )
    elif version != VALIDATOR_VERSION:
        yield f'{WARNING}version: the official validator expects "{VALIDATOR_VERSION}", got {shown(version)}'
    if predictions.get("challenge", CHALLENGE) != CHALLENGE:
        yield f'challenge: expected "{CHALLENGE}", got {shown(predictions["challenge"])}'


def _check_absent(absent: Any) -> Iterator[str]:
    if not isinstance(absent, list):
        yield f"absent: expected a list, got {shown(absent)}"
        return
    seen = set()
    for i, item in enumerate(absent):
        uid, score = (item.get("query_uid"), item.get("score")) if isinstance(item, dict) else (None, None)
        if not isinstance(uid, str) or not is_number(score):
            yield f"absent[{i}]: expected {{query_uid: a string, score: a number}}, got {shown(item)}"
        elif uid in seen:
            yield f"absent[{i}].query_uid: {shown(uid)} is there twice"
        seen.add(uid if isinstance(uid, str) else None)


def _pair_up(
    holder: Mapping[str, Any],
    name: str,
    expected: Sequence[str | None],
    key: str,
    holder_place: str,
    problems: list[str],
) -> list[tuple[int, str, dict[str, Any]]]:
    """(position in the annotation file, place, item) of every item of holder[name] that can be identified.

    Items are matched by uid and not by position, so a missing or misplaced one is a single problem and does
    not make a problem of everything after it.
    """
    place = f"{holder_place}.{name}"
    items = holder.get(name)
    if not isinstance(items, list):
        got = shown(items) if name in holder else "nothing"
        problems.append(f"{place}: expected a list, got {got}")
        return []
    free: dict[str | None, list[int]] = {}
    for position, uid in enumerate(expected):
        free.setdefault(uid, []).append(position)
    pairs = []
    for i, item in enumerate(items):
        here = f"{place}[{i}]"
        wanted = f"expected {shown(expected[i])}" if i < len(expected) else "expected nothing here"
        if not isinstance(item, dict):
            problems.append(f"{here}: expected an object, got {shown(item)}")
        elif key not in item:
            level = WARNING if key == "annotation_uid" and i < len(expected) else ""
            problems.append(f"{level}{here}: {key} is missing, {wanted}")
            if i < len(expected) and i in free[expected[i]]:
                free[expected[i]].remove(i)
                pairs.append((i, here, item))
        elif not isinstance(item[key], str | None) or item[key] not in free:
            problems.append(
                f"{here}.{key}: {wanted}, got {shown(item[key])}, which the annotation file lacks"
            )
        elif not free[item[key]]:
            problems.append(f"{here}.{key}: {wanted}, got {shown(item[key])} once more")
        else:
            pairs.append((free[item[key]].pop(0), here, item))
    for position in sorted(position for left in free.values() for position in left):
        problems.append(f"{place}: {key} {shown(expected[position])} is missing, expected at [{position}]")
    for (before, _, _), (after, here, _) in pairwise(pairs):
        if after < before:
            order = f"expected {shown(expected[after])} before {shown(expected[before])}"
            problems.append(f"{here}: not in the order of the annotation file: {order}, got it after")
    return pairs


def _check_group(group: QuestionGroup, sets: Any, place: str) -> Iterator[str]:
    if not isinstance(sets, dict):
        yield f"{place}: expected an object, got {shown(sets)}"
        return
    for name in sets:
        if name not in group.query_sets:
            known = ", ".join(map(shown, group.query_sets)) or "none"
            yield f"{place}[{shown(name)}]: no such query set, expected {known}"
    for question in group.questions:
        here = f"{place}[{shown(question.query_set)}]"
        if question.query_set not in sets:
            yield f'{here}: is missing, expected an answer; "not seen" is {{"bboxes": [], "score": 0.0}}'
        elif not isinstance(sets[question.query_set], dict):
            yield f"{here}: expected an object with bboxes and score, got {shown(sets[question.query_set])}"
        else:
            yield from _check_score(sets[question.query_set], here)
            yield from _check_boxes(sets[question.query_set], question.query_frame, here)


def _check_score(answer: Mapping[str, Any], place: str) -> Iterator[str]:
    if "score" not in answer:
        yield f"{place}.score: is missing, expected a number"
    elif not is_number(answer["score"]):
        yield f"{place}.score: expected a finite number, got {shown(answer['score'])}"
    elif answer["score"] < 0:
        yield f"{WARNING}{place}.score: expected at least 0, got {shown(answer['score'])}"


def _check_boxes(answer: Mapping[str, Any], query_frame: int, place: str) -> Iterator[str]:
    boxes = answer.get("bboxes")
    if not isinstance(boxes, list):
        got = shown(boxes) if "bboxes" in answer else "nothing"
        yield f"{place}.bboxes: expected a list, got {got}"
        return
    wrong = [problem for i, box in enumerate(boxes) for problem in _check_box(box, f"{place}.bboxes[{i}]")]
    yield from wrong
    if wrong:
        return
    try:
        answer_from(boxes, 0.0, 1.0)
    except PredictionsError as error:
        yield f"{place}.bboxes: {error}"
    late = sorted(box["fno"] for box in boxes if box["fno"] >= query_frame)
    if late:
        yield (
            f"{WARNING}{place}.bboxes: expected frames before the question's, {query_frame}, "
            f"got {len(late)} from it on, first {late[0]}"
        )
    flat = sorted(box["fno"] for box in boxes if box["x2"] <= box["x1"] or box["y2"] <= box["y1"])
    if flat:
        yield (
            f"{WARNING}{place}.bboxes: expected x1 < x2 and y1 < y2, "
            f"got {len(flat)} boxes turned over or empty, first at frame {flat[0]}"
        )


def _check_box(box: Any, place: str) -> Iterator[str]:
    if not isinstance(box, dict):
        yield f"{place}: expected an object with fno, x1, x2, y1, y2, got {shown(box)}"
        return
    for key in ("fno", *CORNERS):
        if key not in box:
            yield f"{place}.{key}: is missing, expected a number"
        elif not is_number(box[key]):
            yield f"{place}.{key}: expected a finite number, got {shown(box[key])}"
        elif key == "fno" and (box[key] != int(box[key]) or box[key] < 0):
            yield f"{place}.fno: expected a whole number that is not negative, got {shown(box[key])}"

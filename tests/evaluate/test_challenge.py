"""The challenge's prediction file: built, checked and scored as the official scripts would."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastseen.box import Box
from lastseen.datasets import AbsentQuestion, Annotations
from lastseen.datasets.vq2d import load_vq2d
from lastseen.errors import AnnotationError, OutputError, PredictionsError
from lastseen.evaluate.challenge import (
    CHALLENGE,
    WARNING,
    build_predictions,
    check_predictions,
    read_answers,
    read_predictions,
    score_file,
    write_predictions,
)
from lastseen.track import ResponseTrack

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "metrics.json").read_text())
SCRIPTS = (
    "validate_challenge_predictions.py",
    "evaluate_vq.py",
    "vqloc/evaluate.py",
    "full_evaluate_vq.evaluate",
)
VALIDATOR_CASES = {case["name"]: case for case in GOLDEN["validator_cases"]}
OFFICIAL_ORDER = ("tap", "tap25", "stap", "stap25", "recovery", "success")
FILE_CASES = pytest.mark.parametrize("case", GOLDEN["file_cases"], ids=lambda case: f"file-{case['id']}")


def loaded(folder: Path, data: dict[str, Any]) -> Annotations:
    path = folder / "annotations.json"
    path.write_text(json.dumps(data))
    return load_vq2d(path)


def annotations_of(version: str) -> dict[str, Any]:
    """The validator cases' annotations; only those of version "1.0" please every official script."""
    return {**copy.deepcopy(VALIDATOR_CASES["valid_version_1.0.5"]["annotations"]), "version": version}


@pytest.fixture(name="annotations")
def good_annotations(tmp_path: Path) -> Annotations:
    return loaded(tmp_path, annotations_of("1.0"))


@pytest.fixture(name="predictions")
def good_predictions() -> dict[str, Any]:
    good = copy.deepcopy(VALIDATOR_CASES["valid_version_1.0.5"]["predictions"])
    return {**good, "version": "1.0"}


@FILE_CASES
def test_a_file_has_the_official_score(case: dict[str, Any], tmp_path: Path) -> None:
    """These files also answer invalid query sets: the official evaluation leaves those answers out."""
    report = score_file(loaded(tmp_path, case["annotations"]), case["predictions"], draws=0)
    official = list(case["expected"]["metrics"]["all"].values())
    assert [report.value(name) for name in OFFICIAL_ORDER] == pytest.approx(official, abs=1e-9)


@FILE_CASES
def test_answers_to_invalid_query_sets_may_be_left_out(case: dict[str, Any], tmp_path: Path) -> None:
    annotations, predictions = loaded(tmp_path, case["annotations"]), copy.deepcopy(case["predictions"])
    valid = {question.key for question in annotations.questions}
    dropped = 0
    for video in predictions["results"]["videos"]:
        for clip in video["clips"]:
            for item in clip["predictions"]:
                for name in list(item["query_sets"]):
                    if (item["annotation_uid"], name) not in valid:
                        del item["query_sets"][name]
                        dropped += 1
    assert dropped == annotations.invalid_count > 0
    without, with_them = (score_file(annotations, one, draws=0) for one in (predictions, case["predictions"]))
    assert without.to_dict() == with_them.to_dict()


@pytest.mark.parametrize("name", VALIDATOR_CASES)
def test_what_any_official_script_refuses_is_refused_and_what_all_accept_is_scored(
    name: str, tmp_path: Path
) -> None:
    case = VALIDATOR_CASES[name]
    annotations = loaded(tmp_path, annotations_of("1.0.5" if name == "valid_version_1.0.5" else "1.0"))
    problems = check_predictions(annotations, case["predictions"])
    errors = [problem for problem in problems if not problem.startswith(WARNING)]
    if case["evaluate_vq.py"] == case["full_evaluate_vq.evaluate"] == "ok":
        assert not errors
        score_file(annotations, case["predictions"], draws=0)
    else:
        assert errors
        with pytest.raises(PredictionsError) as caught:
            score_file(annotations, case["predictions"])
        assert "\n" not in str(caught.value)
    # Silence means that no official script complains either.
    assert problems or all(case[script] == "ok" for script in SCRIPTS)


def test_the_version_is_that_of_the_annotations_and_one_that_no_script_accepts_is_refused(
    tmp_path: Path,
) -> None:
    """The official evaluation asserts the annotations' version, the official validator "1.0"."""
    annotations = loaded(tmp_path, annotations_of("1.0.5"))
    good = VALIDATOR_CASES["valid_version_1.0.5"]["predictions"]
    for version, expected in (
        ("1.0.5", f'{WARNING}version: the official validator expects "1.0", got "1.0.5"'),
        (
            "1.0",
            f'{WARNING}version: the official evaluation expects that of the annotations, "1.0.5", got "1.0"',
        ),
        ("9", 'version: expected "1.0.5", as in the annotations, got "9"'),
        ("", 'version: expected "1.0.5", as in the annotations, got ""'),
    ):
        assert check_predictions(annotations, {**good, "version": version}) == [expected]
    with pytest.raises(PredictionsError, match="version: expected") as caught:
        score_file(annotations, {**good, "version": "9"}, draws=0)
    assert "\n" not in str(caught.value)
    assert build_predictions(annotations, {})["version"] == "1.0.5"


def test_a_missing_annotation_uid_is_a_warning_because_its_place_tells(annotations: Annotations) -> None:
    (problem,) = check_predictions(annotations, VALIDATOR_CASES["no_annotation_uid"]["predictions"])
    place = "results.videos[0].clips[0].predictions[0]"
    assert problem == f'{WARNING}{place}: annotation_uid is missing, expected "a-0-0-0"'


def test_a_good_file_has_no_problems_and_may_carry_other_keys(
    annotations: Annotations, predictions: dict[str, Any]
) -> None:
    assert check_predictions(annotations, predictions) == []
    more = {**predictions, "foo": 1, "absent": [{"query_uid": "q", "score": 0.5}]}
    assert check_predictions(annotations, more) == []


MISSING = '["1"]: is missing, expected an answer; "not seen" is {"bboxes": [], "score": 0.0}'
FIRST = 'results.videos[0].clips[0].predictions[0].query_sets["1"]'


def first_answer(predictions: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = predictions["results"]["videos"][0]["clips"][0]["predictions"][0]["query_sets"][
        "1"
    ]
    return answer


def changed(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda predictions: first_answer(predictions).update({key: value})


def changed_box(index: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda predictions: first_answer(predictions)["bboxes"][index].update(values)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p: p.pop("version"), '"version" is missing'),
        (lambda p: p.update(version=1.0), "version: expected a string, got 1.0"),
        (lambda p: p.update(challenge="x"), f'challenge: expected "{CHALLENGE}", got "x"'),
        (lambda p: p.pop("results"), '"results" is missing'),
        (lambda p: p.update(results=[]), 'results: expected an object with "videos", got []'),
        (lambda p: p["results"].pop("videos"), "results.videos: expected a list, got nothing"),
        (
            lambda p: p.update(absent=[{"score": 1}]),
            "absent[0]: expected {query_uid: a string, score: a number}",
        ),
        (lambda p: p.update(absent=3), "absent: expected a list, got 3"),
        (
            lambda p: p["results"]["videos"].pop(),
            'results.videos: video_uid "v-1" is missing, expected at [1]',
        ),
        (
            lambda p: p["results"]["videos"].reverse(),
            'results.videos[1]: not in the order of the annotation file: expected "v-0" before "v-1"',
        ),
        (
            lambda p: p["results"]["videos"][0]["clips"].insert(1, {"clip_uid": "c-0-0", "predictions": []}),
            'results.videos[0].clips[1].clip_uid: expected "c-0-1", got "c-0-0" once more',
        ),
        (
            lambda p: p["results"]["videos"].append(3),
            "results.videos[2]: expected an object, got 3",
        ),
        (
            lambda p: p["results"]["videos"].append({"video_uid": "v-9", "clips": []}),
            'results.videos[2].video_uid: expected nothing here, got "v-9", which the annotation file lacks',
        ),
        (lambda p: first_answer(p).pop("score"), f"{FIRST}.score: is missing, expected a number"),
        (lambda p: first_answer(p).pop("bboxes"), f"{FIRST}.bboxes: expected a list, got nothing"),
        (changed("score", "high"), f'{FIRST}.score: expected a finite number, got "high"'),
        (changed("score", None), f"{FIRST}.score: expected a finite number, got null"),
        (changed("score", math.nan), f"{FIRST}.score: expected a finite number, got NaN"),
        (changed("score", -0.5), f"{WARNING}{FIRST}.score: expected at least 0, got -0.5"),
        (changed_box(0, x1=None), f"{FIRST}.bboxes[0].x1: expected a finite number, got null"),
        (
            changed_box(0, fno=1.5),
            f"{FIRST}.bboxes[0].fno: expected a whole number that is not negative, got 1.5",
        ),
        (
            lambda p: first_answer(p)["bboxes"][2].pop("y2"),
            f"{FIRST}.bboxes[2].y2: is missing, expected a number",
        ),
        (lambda p: first_answer(p)["bboxes"].pop(2), f"{FIRST}.bboxes: frames jump from 102 to 104"),
        (changed_box(0, fno=103), f"{FIRST}.bboxes: frame 103 has two boxes"),
        (
            changed_box(1, x1=5, x2=5),
            f"{WARNING}{FIRST}.bboxes: expected x1 < x2 and y1 < y2, got 1 boxes turned over or empty",
        ),
        (
            changed("bboxes", [{"fno": n, "x1": 0, "x2": 1, "y1": 0, "y2": 1} for n in (401, 399, 400)]),
            f"{WARNING}{FIRST}.bboxes: expected frames before the question's, 400, got 2 from it on",
        ),
    ],
)
def test_a_problem_is_told_with_its_place_and_what_was_expected(
    annotations: Annotations,
    predictions: dict[str, Any],
    change: Callable[[dict[str, Any]], Any],
    expected: str,
) -> None:
    change(predictions)
    (problem,) = check_predictions(annotations, predictions)
    assert problem.startswith(expected) and "\n" not in problem


def test_every_problem_is_told_not_only_the_first(
    annotations: Annotations, predictions: dict[str, Any]
) -> None:
    predictions["challenge"] = "x"
    changed("score", "high")(predictions)
    second_clip = predictions["results"]["videos"][0]["clips"][1]
    del second_clip["predictions"][0]["query_sets"]["1"]
    second_clip["predictions"][0]["query_sets"]["99"] = {"bboxes": [], "score": 0.0}
    second_clip["predictions"][1]["annotation_uid"] = "other"
    problems = check_predictions(annotations, predictions)
    place = "results.videos[0].clips[1].predictions"
    assert problems == [
        f'challenge: expected "{CHALLENGE}", got "x"',
        f'{FIRST}.score: expected a finite number, got "high"',
        f'{place}[1].annotation_uid: expected "a-0-1-1", got "other", which the annotation file lacks',
        f'{place}: annotation_uid "a-0-1-1" is missing, expected at [1]',
        f'{place}[0].query_sets["99"]: no such query set, expected "1", "2"',
        f"{place}[0].query_sets{MISSING}",
    ]
    with pytest.raises(PredictionsError, match="and 5 more problems"):
        score_file(annotations, predictions)


@pytest.mark.parametrize("junk", [None, 3, "x", [], [[]]])
def test_what_is_no_prediction_file_is_told_in_one_line(annotations: Annotations, junk: Any) -> None:
    assert len(check_predictions(annotations, junk)) == 1
    with pytest.raises(PredictionsError):
        read_answers(annotations, junk)


JUNK: tuple[Any, ...] = (None, True, -1, 2.5, math.nan, math.inf, 10**400, "", "x", [], {}, [None], {"x": 1})


def test_junk_anywhere_is_scored_or_a_predictions_error_of_one_line(annotations: Annotations) -> None:
    answers = {question.key: answer_track() for question in annotations.questions[:2]}
    good = build_predictions(annotations, answers, {"q": 0.5})
    for spot in range(len(list(spots(good)))):
        for junk in JUNK:
            bad = copy.deepcopy(good)
            holder, key = list(spots(bad))[spot]
            holder[key] = junk
            problems = check_predictions(annotations, bad)
            assert not any("\n" in problem for problem in problems)
            try:
                read_answers(annotations, bad)
            except PredictionsError:
                assert any(not problem.startswith(WARNING) for problem in problems)


def spots(value: Any) -> Any:
    for key in range(len(value)) if isinstance(value, list) else list(value):
        yield value, key
        if isinstance(value[key], (list, dict)):
            yield from spots(value[key])


def answer_track(frame: int = 3, score: float = 0.5, fps: float = 5.0) -> ResponseTrack:
    return ResponseTrack(first_frame=frame, fps=fps, boxes=(Box(0.25, 1, 2, 3), Box(4, 5, 6, 7)), score=score)


def test_what_is_built_is_what_is_read_back(tmp_path: Path, annotations: Annotations) -> None:
    answers = {question.key: answer_track(i) for i, question in enumerate(annotations.questions)}
    missing = annotations.questions[2].key
    del answers[missing]
    path = tmp_path / "predictions.json"
    write_predictions(build_predictions(annotations, answers), path)
    predictions = read_predictions(path)
    assert check_predictions(annotations, predictions) == []
    read = read_answers(annotations, predictions)
    assert list(read) == [question.key for question in annotations.questions]
    assert read[missing].track is None and read[missing].score == 0.0
    assert {key: answer.track for key, answer in read.items() if key != missing} == answers


def test_the_written_file_names_corners_and_frames_as_the_challenge_does(annotations: Annotations) -> None:
    key = annotations.questions[0].key
    written = build_predictions(annotations, {key: answer_track(score=np.float32(0.5))})  # type: ignore[arg-type]
    assert first_answer(json.loads(json.dumps(written))) == {
        "bboxes": [
            {"fno": 3, "x1": 0.25, "x2": 2, "y1": 1, "y2": 3},
            {"fno": 4, "x1": 4, "x2": 6, "y1": 5, "y2": 7},
        ],
        "score": 0.5,
    }
    assert written["version"] == "1.0" and written["challenge"] == CHALLENGE


def test_invalid_and_empty_parts_of_the_annotations_keep_their_place(tmp_path: Path) -> None:
    data = copy.deepcopy(GOLDEN["file_cases"][0]["annotations"])
    data["version"] = "1.0"
    data["videos"].insert(0, {"video_uid": "empty", "clips": []})
    data["videos"][1]["clips"][0]["clip_uid"] = None
    annotations = loaded(tmp_path, data)
    predictions = build_predictions(annotations, {})
    assert check_predictions(annotations, predictions) == []
    for video, written in zip(data["videos"], predictions["results"]["videos"], strict=True):
        for clip, written_clip in zip(video["clips"], written["clips"], strict=True):
            for annotation, item in zip(clip["annotations"], written_clip["predictions"], strict=True):
                assert list(item["query_sets"]) == list(annotation["query_sets"])


def test_an_answer_to_an_unknown_question_or_at_another_rate_is_not_written(annotations: Annotations) -> None:
    with pytest.raises(PredictionsError, match="1 of 1 answers are to no valid question"):
        build_predictions(annotations, {("nobody", "1"): answer_track()})
    with pytest.raises(PredictionsError, match=r"30\.0 fps"):
        build_predictions(annotations, {annotations.questions[0].key: answer_track(fps=30.0)})


def test_one_question_that_stands_in_the_annotations_twice_cannot_be_answered(tmp_path: Path) -> None:
    data = annotations_of("1.0")
    data["videos"][0]["clips"].append(data["videos"][0]["clips"][0])
    with pytest.raises(AnnotationError, match="twice"):
        build_predictions(loaded(tmp_path, data), {})


def test_a_file_that_cannot_be_read_or_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    for name, text in (("empty.json", ""), ("list.json", "[]"), ("broken.json", "{")):
        (tmp_path / name).write_text(text)
        with pytest.raises(PredictionsError, match=name):
            read_predictions(tmp_path / name)
    with pytest.raises(PredictionsError, match="no such file"):
        read_predictions(tmp_path / "nowhere.json")
    with pytest.raises(OutputError):
        write_predictions({}, tmp_path / "no" / "folder.json")
    with pytest.raises(PredictionsError, match="finite"):
        write_predictions({"score": math.nan}, tmp_path / "nan.json")


def test_a_test_file_can_be_checked_but_not_scored(tmp_path: Path, predictions: dict[str, Any]) -> None:
    data = annotations_of("1.0")
    for video in data["videos"]:
        for clip in video["clips"]:
            for annotation in clip["annotations"]:
                for query in annotation["query_sets"].values():
                    del query["response_track"]
    annotations = loaded(tmp_path, data)
    assert check_predictions(annotations, predictions) == []
    with pytest.raises(AnnotationError, match="nothing to score"):
        score_file(annotations, predictions)


def test_absent_questions_make_an_auroc(annotations: Annotations) -> None:
    answers = {question.key: answer_track(score=0.8) for question in annotations.questions}
    crop = annotations.questions[0].crop
    questions = [
        AbsentQuestion(query_uid=uid, clip_uid=clip, query_frame=9, object_title="", crop=crop)
        for uid, clip in (("q1", "c-0-0"), ("q2", "c-1-0"))
    ]
    predictions = build_predictions(annotations, answers, {"q1": 0.1, "q2": 0.8})
    report = score_file(annotations, predictions, questions)
    assert report.auroc.value == 0.75 and report.auroc.low is not None and report.absent == 2
    assert score_file(annotations, predictions).auroc.low is None, "whose videos nobody told"
    with pytest.raises(PredictionsError, match="1 of 2 questions have no score, first q2"):
        score_file(annotations, build_predictions(annotations, answers, {"q1": 0.1}), questions)


def test_a_question_with_an_empty_true_track_counts_as_absent(tmp_path: Path) -> None:
    data = annotations_of("1.0")
    data["videos"][0]["clips"][0]["annotations"][0]["query_sets"]["1"]["response_track"] = []
    annotations = loaded(tmp_path, data)
    answers = {question.key: answer_track(score=0.8) for question in annotations.questions[1:]}
    report = score_file(annotations, build_predictions(annotations, answers), draws=0)
    assert report.absent == 1 and report.auroc.value == 1.0
    assert report.questions["all"] == len(annotations.questions) - 1

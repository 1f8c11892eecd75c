"""The metrics against the official ones, and what ours adds to them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastseen.box import Box
from lastseen.errors import LastSeenError, PredictionsError
from lastseen.evaluate import metrics
from lastseen.evaluate.challenge import answer_from
from lastseen.evaluate.metrics import (
    METRICS,
    AbsentScore,
    Outcome,
    ScoredTrack,
    auroc,
    compare,
    evaluate,
    measure,
    score,
)
from lastseen.track import ResponseTrack

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "metrics.json").read_text())
OFFICIAL = {
    "tap": "Temporal AP                    @ IoU=0.25:0.95",
    "tap25": "Temporal AP                    @ IoU=0.25     ",
    "stap": "SpatioTemporal AP              @ IoU=0.25:0.95",
    "stap25": "SpatioTemporal AP              @ IoU=0.25     ",
    "recovery": "Tracking % recovery (max scr)  @ IoU=0.50     ",
    "success": "Success (max scr)              @ IoU=0.05     ",
}
ORDER_FREE = ("recovery", "success")


def outcome_of(query: dict[str, Any]) -> Outcome:
    crop, truth = query["visual_crop"], answer_from(query["gt"], 1.0, 5.0).track
    return Outcome(
        video_uid="v",
        truth=truth,  # type: ignore[arg-type]
        answers=tuple(answer_from(one["bboxes"], one["score"], 5.0) for one in query["preds"]),
        crop_area=(crop["x2"] - crop["x1"]) * (crop["y2"] - crop["y1"]),
    )


def outcomes_of(kind: str) -> list[Outcome]:
    (case,) = (case for case in GOLDEN["cases"] if case["kind"] == kind)
    return [outcome_of(query) for query in case["queries"]]


def numbered(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[f"{case['id']}-{case['kind']}" for case in cases])


SCORED = [case for case in GOLDEN["cases"] if "metrics" in case["expected"]]
DISTINCT = [case for case in SCORED if not case["tie_sensitive"]]


def assert_official(ours: dict[str, float | None], official: dict[str, float], names: Any = OFFICIAL) -> None:
    for name in names:
        assert ours[name] == pytest.approx(official[OFFICIAL[name]], abs=1e-9), name


def groups(case: dict[str, Any], ranges: Any, pairings: Any) -> Iterator[tuple[str, dict[str, float | None]]]:
    """The official area filter: the class of the visual crop and that of the response track."""
    measured = measure([outcome_of(query) for query in case["queries"]])
    for name, (crop_class, track_class) in pairings.items():
        keep = np.ones(len(measured), bool)
        for areas, (low, high) in (
            (measured.crop_area, ranges[crop_class]),
            (measured.track_area, ranges[track_class]),
        ):
            keep &= (low <= areas) & (areas < high)
        yield name, score(measured.where(keep))


@numbered(DISTINCT)
def test_every_golden_case_has_the_official_numbers(case: dict[str, Any]) -> None:
    pairings = case.get("kwargs", {}).get("vc_rt_pairings", {"all": ("all", "all")})
    for name, ours in groups(case, GOLDEN["about"]["area_ranges_ego4d"], pairings):
        official = case["expected"]["metrics"].get(name)
        if official is None:
            assert set(ours.values()) == {None}, "the official code leaves out a group without questions"
        else:
            assert_official(ours, official)


@numbered([case for case in DISTINCT if "metrics" in case.get("expected_vqloc_release", {})])
def test_the_size_of_a_track_is_its_largest_box_as_in_the_release(case: dict[str, Any]) -> None:
    """The release's own "all" holds only large response tracks: a filter that tells max from mean."""
    pairings = {"all": GOLDEN["about"]["vqloc_pair_all"]}
    ((_, ours),) = groups(case, GOLDEN["about"]["area_ranges_vqloc"], pairings)
    official = case["expected_vqloc_release"]["metrics"].get("all")
    if official is None:
        assert set(ours.values()) == {None}
    else:
        assert_official(ours, official)


@numbered([case for case in SCORED if case["tie_sensitive"] and len(case["queries"]) > 1])
def test_equal_scores_leave_the_numbers_without_an_order_as_they_are(case: dict[str, Any]) -> None:
    ours = score(measure([outcome_of(query) for query in case["queries"]]))
    assert_official(ours, case["expected"]["metrics"]["all"], ORDER_FREE)


@numbered(SCORED)
def test_every_golden_pair_has_the_official_overlaps(case: dict[str, Any]) -> None:
    for query, pairs in zip(case["queries"], case["pairs"], strict=True):
        outcome = outcome_of(query)
        for answer, pair in zip(outcome.answers, pairs, strict=True):
            overlap = compare(outcome.truth, answer.track)
            assert overlap.tiou == pytest.approx(pair["tiou"], abs=1e-9)
            assert overlap.stiou == pytest.approx(pair["stiou"], abs=1e-9)
            assert overlap.truth_volume == pytest.approx(pair["gt_volume"], abs=1e-9)
            assert overlap.answer_volume == pytest.approx(pair["pred_volume"], abs=1e-9)
            frames = outcome.truth.first_frame + np.arange(len(overlap.frame_ious))
            assert dict(zip(map(str, frames), overlap.frame_ious, strict=True)) == pytest.approx(
                pair["frame_iou"]
            )


def test_zero_areas_overlap_nothing_where_the_official_code_divides_by_zero() -> None:
    (both,) = outcomes_of("zero_area_both")
    overlap = compare(both.truth, both.answers[0].track)
    assert overlap.stiou == 0 and overlap.tiou == 1 and not overlap.frame_ious.any()
    (unanswered,) = outcomes_of("zero_area_gt_empty_pred")
    assert score(measure([unanswered]))["success"] == 0
    (one_frame,) = outcomes_of("one_zero_area_frame_both")
    values = score(measure([one_frame]))
    assert values["tap"] == 1 and values["stap"] == 1, (
        "a frame without area does not count against the others"
    )
    assert values["recovery"] == pytest.approx(100 * (1 - 1 / len(one_frame.truth.boxes)))


@pytest.mark.parametrize("kind", ["gap_in_pred", "duplicate_frame_in_pred", "gap_in_gt", "score_none"])
def test_what_the_official_code_trips_over_is_a_predictions_error(kind: str) -> None:
    with pytest.raises(PredictionsError, match=r"frames jump|two boxes|finite number"):
        outcomes_of(kind)


def test_a_question_without_a_true_track_cannot_be_scored() -> None:
    with pytest.raises(PredictionsError, match="AbsentScore"):
        outcomes_of("empty_gt")
    with pytest.raises(LastSeenError, match="nothing to score"):
        evaluate([])


def test_a_question_without_any_answer_is_missed() -> None:
    assert set(score(measure(outcomes_of("no_prediction_list_single"))).values()) == {0.0}
    first, missed = outcomes_of("no_prediction_list_among_others")
    both = score(measure([first, missed]))
    alone = score(measure([first]))
    assert not missed.answers and both["tap25"] == pytest.approx(alone["tap25"] / 2)  # type: ignore[operator]
    assert both["success"] == pytest.approx(alone["success"] / 2)  # type: ignore[operator]


def test_of_two_answers_with_one_score_the_earlier_one_counts() -> None:
    (outcome,) = outcomes_of("two_preds_equal_score")
    first, second = outcome.answers
    reverse = Outcome(video_uid="v", truth=outcome.truth, answers=(second, first))
    for one, best in ((outcome, first), (reverse, second)):
        assert measure([one]).best_stiou[0] == compare(outcome.truth, best.track).stiou
    assert measure([outcome]).best_stiou[0] != measure([reverse]).best_stiou[0]


def track(first_frame: int = 0, frames: int = 10, side: float = 100.0, x: float = 0.0) -> ResponseTrack:
    boxes = (Box(x, 0, x + side, side),) * frames
    return ResponseTrack(first_frame=first_frame, fps=5.0, boxes=boxes, score=1.0)


def outcome(right: bool, score: float, video: str = "v", side: float = 100.0) -> Outcome:
    answer = ScoredTrack(track=track(side=side) if right else track(50), score=score)
    return Outcome(video_uid=video, truth=track(side=side), answers=(answer,))


@given(
    a=st.lists(st.floats(-50, 50), min_size=4, max_size=4),
    b=st.lists(st.floats(-50, 50), min_size=4, max_size=4),
)
def test_the_overlap_of_one_frame_is_the_iou_of_its_boxes(a: list[float], b: list[float]) -> None:
    one, other = (Box(min(v[0], v[2]), min(v[1], v[3]), max(v[0], v[2]), max(v[1], v[3])) for v in (a, b))
    tracks = [ResponseTrack(first_frame=3, fps=5.0, boxes=(box,), score=1.0) for box in (one, other)]
    overlap = compare(*tracks)
    assert overlap.stiou == pytest.approx(one.iou(other)) and overlap.frame_ious[0] == overlap.stiou


def test_turned_over_boxes_overlap_nothing_and_keep_every_iou_in_range() -> None:
    boxes = (Box(0, 0, 100, 100), Box(90, 0, 10, 100), Box(90, 90, 10, 10))
    answer = ResponseTrack(first_frame=0, fps=5.0, boxes=boxes, score=1.0)
    overlap = compare(track(frames=3), answer)
    assert overlap.frame_ious.tolist() == [1, 0, 0] and 0 <= overlap.stiou <= 1


def test_a_better_ranking_of_the_same_answers_is_worth_ap_and_nothing_else() -> None:
    right, wrong = [True] * 3 + [False] * 3, [False] * 3 + [True] * 3
    good, bad = (
        score(measure([outcome(r, s) for r, s in zip(hits, (0.9, 0.8, 0.7, 0.3, 0.2, 0.1), strict=True)]))
        for hits in (right, wrong)
    )
    assert good["tap25"] == 0.5 and bad["tap25"] == 0.25
    for name in set(METRICS) - {"tap25", "tap", "stap25", "stap"}:
        assert good[name] == bad[name]
    assert good["tap25_unranked"] == 0.25, "with one score for all, AP is precision times recall"


def test_an_empty_answer_with_a_high_score_costs_the_answers_below_it() -> None:
    empty = Outcome(video_uid="v", truth=track(), answers=(ScoredTrack(track=None, score=0.9),))
    assert score(measure([empty, outcome(True, 0.5)]))["tap25"] == 0.25
    assert score(measure([outcome(True, 0.95), empty]))["tap25"] == 0.5


def test_an_answer_that_counts_frames_at_another_rate_is_an_error() -> None:
    answer = ResponseTrack(first_frame=0, fps=30.0, boxes=(Box(0, 0, 1, 1),), score=1.0)
    with pytest.raises(PredictionsError, match=r"30\.0 fps"):
        Outcome(video_uid="v", truth=track(), answers=(ScoredTrack(track=answer, score=1.0),))


@pytest.mark.parametrize("bad", [None, "high", math.nan, math.inf, True])
def test_a_score_that_cannot_be_ranked_is_an_error(bad: Any) -> None:
    for make in (lambda: ScoredTrack(track=None, score=bad), lambda: AbsentScore(video_uid="v", score=bad)):
        with pytest.raises(PredictionsError, match="finite number"):
            make()


def test_size_classes_go_by_the_largest_box_of_the_truth_and_borders_belong_to_the_larger() -> None:
    sides = (63.9, 64.0, 191.9, 192.0, 500.0)
    report = evaluate([outcome(True, 0.5, side=side) for side in sides])
    assert dict(report.questions) == {"all": 5, "small": 1, "medium": 2, "large": 2}


def mixed_outcomes(questions: int = 40, videos: int = 8) -> list[Outcome]:
    random = np.random.default_rng(1)
    return [
        Outcome(
            video_uid=f"v{i % videos}",
            truth=track(frames=12, side=float(random.choice([50, 150, 250]))),
            answers=tuple(
                ScoredTrack(track=track(int(random.integers(0, 14)), 12, 150), score=float(random.random()))
                for _ in range(random.integers(0, 3))
            ),
        )
        for i in range(questions)
    ]


def test_intervals_are_those_of_drawing_whole_videos_again() -> None:
    """Against the plain way: repeat the questions of every drawn video and score the longer list."""
    outcomes, draws, seed = mixed_outcomes(), 60, 3
    report = evaluate(outcomes, draws=draws, seed=seed)
    drawn = []
    for counts in np.random.default_rng(seed).multinomial(8, np.full(8, 1 / 8), draws):
        copies = [outcome for i, outcome in enumerate(outcomes) for _ in range(counts[i % 8])]
        drawn.append(score(measure(copies)))
    for name in METRICS:
        low, high = np.percentile([values[name] for values in drawn], (2.5, 97.5))  # type: ignore[misc]
        estimate = report.metrics["all"][name]
        assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=1e-9), name
        assert estimate.low <= estimate.value <= estimate.high  # type: ignore[operator]


def test_a_seed_fixes_the_intervals() -> None:
    outcomes = mixed_outcomes()
    assert evaluate(outcomes, draws=50).to_dict() == evaluate(outcomes, draws=50).to_dict()
    assert evaluate(outcomes, draws=50).to_dict() != evaluate(outcomes, draws=50, seed=1).to_dict()


def test_one_video_has_values_without_intervals() -> None:
    estimate = evaluate([outcome(True, 0.5), outcome(False, 0.4)]).metrics["all"]["tap25"]
    assert estimate.value == 0.5 and estimate.low is None and estimate.high is None


def test_auroc_counts_ties_half() -> None:
    assert auroc([0.9, 0.8], [0.1, 0.2]) == 1.0
    assert auroc([0.5], [0.5]) == 0.5
    assert auroc([0.9, 0.5, 0.1], [0.5]) == 0.5
    assert auroc([], [0.5]) is None and auroc([0.5], []) is None


@given(st.lists(st.integers(0, 4), min_size=1), st.lists(st.integers(0, 4), min_size=1))
@settings(max_examples=50)
def test_auroc_is_the_share_of_pairs_won(present: list[int], absent: list[int]) -> None:
    wins = [(p > a) + 0.5 * (p == a) for p in present for a in absent]
    assert auroc(present, absent) == pytest.approx(sum(wins) / len(wins))  # type: ignore[arg-type]


def test_the_report_tells_present_from_absent_with_an_interval_if_the_videos_are_known() -> None:
    outcomes = mixed_outcomes()
    known = [AbsentScore(video_uid=f"v{i % 8}", score=i / 40) for i in range(20)]
    report = evaluate(outcomes, known, draws=50)
    best = [max((answer.score for answer in one.answers), default=0.0) for one in outcomes]
    assert report.auroc.value == pytest.approx(auroc(best, [one.score for one in known]))
    assert report.auroc.low is not None and report.auroc.low <= report.auroc.value  # type: ignore[operator]
    unknown = evaluate(outcomes, [AbsentScore(video_uid=None, score=0.1)], draws=50)
    assert unknown.auroc.value is not None and unknown.auroc.low is None
    assert evaluate(outcomes, draws=0).auroc.value is None


def test_the_report_is_json_for_programs_and_a_table_for_people() -> None:
    report = evaluate(mixed_outcomes(), [AbsentScore(video_uid="v0", score=0.1)], draws=20)
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["groups"]["all"]["tap25"]["value"] == report.value("tap25")
    assert data["groups"]["small"]["questions"] == report.questions["small"]
    header, *lines = report.to_text().splitlines()
    assert header.split() == ["metric", "all", "95", "%", "interval", "small", "medium", "large"]
    assert len(lines) == 1 + len(METRICS) + 1 and "\t" not in report.to_text()
    shown = f"{report.value('stap25'):.3f}"
    assert any(line.startswith("stAP @ 0.25 ") and shown in line for line in lines)


def test_a_class_without_questions_is_shown_as_such() -> None:
    report = evaluate([outcome(True, 0.5, f"v{i}") for i in range(3)], draws=20)
    assert report.value("tap25", "small") is None
    assert report.to_dict()["groups"]["small"]["tap25"] == {"value": None, "low": None, "high": None}
    assert "-" in report.to_text()


def test_resampling_measures_every_question_once_and_weighs_whole_arrays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So thousands of questions take seconds: Python's work grows with questions and not with draws."""
    calls = Counter()

    def counted(name: str) -> None:
        real = getattr(metrics, name)

        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return real(*arguments)

        monkeypatch.setattr(metrics, name, call)

    for name in ("compare", "_average_precisions", "_auroc"):
        counted(name)
    outcomes = mixed_outcomes(questions=500, videos=50)
    absent = [AbsentScore(video_uid="v1", score=0.5)] * 50
    work = []
    for draws in (10, 1000):
        calls.clear()
        evaluate(outcomes, absent, draws=draws)
        work.append(dict(calls))
    assert work[0] == work[1]
    assert work[0]["compare"] == sum(max(1, len(outcome.answers)) for outcome in outcomes)
    assert work[0]["_average_precisions"] > 1 < work[0]["_auroc"]

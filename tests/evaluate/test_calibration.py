"""Scores that mean something: fitted on known answers, checked on others."""

from dataclasses import replace

import numpy as np
import pytest

from lastseen.box import Box
from lastseen.errors import AnnotationError
from lastseen.evaluate import calibration
from lastseen.evaluate.calibration import (
    Answered,
    best_guess,
    calibration_error,
    fit_extraction,
    fit_logistic,
    fit_rule,
    fit_threshold,
    held_out,
    load_answered,
    mistaken,
    outcome,
    rule_key,
    save_answered,
)
from lastseen.rule import Rule
from lastseen.sighting import Evidence, Extraction
from lastseen.track import ResponseTrack

BOX = Box(10, 10, 50, 50)


def answered(seed: int, *, there: bool, scale: float = 1.0, shift: float = 0.0) -> Answered:
    """A thing seen for ten of sixty frames; the model's logits are good, but on a scale of their own."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-4, 0.7, 60)
    truth = None
    boxes = np.tile(np.array([200.0, 200, 240, 240]), (60, 1))
    if there:
        start = int(rng.integers(5, 45))
        logits[start : start + 10] = rng.normal(2.0, 0.7, 10)
        if rng.random() < 0.75:  # otherwise it is found at the wrong place
            boxes[start : start + 10] = BOX.xyxy
        truth = ResponseTrack(first_frame=start, fps=5.0, boxes=(BOX,) * 10, score=1.0)
    elif rng.random() < 0.3:  # something like it
        logits[20:28] = rng.normal(1.0, 0.7, 8)
    evidence = Evidence(fps=5.0, boxes_px=boxes, logits=(logits + shift) * scale)
    return Answered(video_uid=f"v{seed % 10}", evidence=evidence, truth=truth)


def several(count: int, **how: float) -> list[Answered]:
    return [answered(seed, there=seed % 3 > 0, **how) for seed in range(count)]


def test_a_fitted_score_is_the_share_of_right_answers():
    cases = several(120)
    rule = fit_rule(cases)
    plain = calibration_error(*outcome(cases, Rule()))
    scores, right = held_out(cases, Rule(), folds=3)
    assert calibration_error(scores, right) < 0.7 * plain
    assert rule.confidence.slope > 0


def test_the_rule_makes_up_for_a_models_own_scale():
    """Logits all far above zero: every frame looks like an occurrence until the shift is found."""
    cases = several(60, scale=0.6, shift=6.0)
    fitted, default = (outcome(cases, rule)[1].mean() for rule in (fit_rule(cases), Rule()))
    assert fitted > default + 0.2


def test_every_set_counts_alike_however_many_questions_it_has():
    """Logits far above zero in a few questions, below it in many."""
    few, many = several(12, scale=2, shift=6.0), several(150, scale=2, shift=-3.0)
    alone, pooled, averaged = (
        fit_extraction(sets, Rule()).shift for sets in ([few], [few + many], [few, many])
    )
    assert alone <= averaged < pooled
    right = [
        outcome(few, replace(Rule(), extraction=fit_extraction(sets, Rule())))[1].mean()
        for sets in ([few + many], [few, many])
    ]
    assert right[1] >= right[0]


def test_processes_fit_the_same_extraction():
    cases = several(12, scale=0.6, shift=6.0)
    assert fit_extraction([cases], Rule(), workers=2) == fit_extraction([cases], Rule())


@pytest.mark.parametrize("steady", [True, False])
def test_boxes_are_smoothed_if_that_answers_better(steady):
    """One box in three jumps away; or boxes follow a thing that moves fast, and smoothing makes them lag."""
    rng, cases = np.random.default_rng(0), []
    for number in range(12):
        x = np.zeros(60) if steady else np.where(np.arange(60) % 2, 0.0, 45.0)
        true = [Box(10 + dx, 10, 60 + dx, 60) for dx in x]
        boxes = np.array([box.xyxy for box in true])
        if steady:
            boxes[:, 2] += 75  # right enough, unless a third of them are elsewhere
            boxes[1::3] += 150
        logits = rng.normal(-6, 0.1, 60)
        logits[20:32] = 4
        truth = ResponseTrack(first_frame=20, fps=5.0, boxes=tuple(true[20:32]), score=1.0)
        evidence = Evidence(fps=5.0, boxes_px=boxes, logits=logits)
        cases.append(Answered(video_uid=f"v{number}", evidence=evidence, truth=truth))
    rule = fit_rule(cases)
    assert (rule.extraction.box_median_frames > 1) == steady
    assert outcome(cases, rule)[1].all()


def test_ends_are_where_answers_are_right(monkeypatch):
    """Saturated scores: frames beside the thing have .948 of its score, and the paper takes them for it."""
    monkeypatch.setattr(calibration, "GAINS", (1.0,))
    monkeypatch.setattr(calibration, "SHIFTS", (2.0,))
    cases = []
    for number in range(8):
        scores = np.full(60, 0.02)
        scores[3:57], scores[20:32] = 0.6, 0.8
        logits = np.log(scores / (1 - scores))
        truth = ResponseTrack(first_frame=20, fps=5.0, boxes=(BOX,) * 12, score=1.0)
        boxes = np.tile(BOX.xyxy, (60, 1))
        boxes[:20] = boxes[32:] = 200, 200, 240, 240
        evidence = Evidence(fps=5.0, boxes_px=boxes, logits=logits)
        cases.append(Answered(video_uid=f"v{number}", evidence=evidence, truth=truth))
    fitted = fit_extraction([cases], Rule())
    assert fitted.extent_ratio == 0.95
    tracks = [best_guess(one, Rule(extraction=fitted)) for one in cases]
    assert {(track.first_frame, track.last_frame) for track in tracks} == {(20, 31)}


def test_a_confidence_keeps_the_order_even_if_scores_mislead():
    scores, right = np.linspace(0.1, 0.9, 50), np.arange(50) < 25
    assert fit_logistic(scores, right)[0] > 0


def test_the_threshold_refuses_as_many_as_it_lets_through():
    # A scale this low leaves peaks of present and absent things close together.
    cases = several(40, scale=0.3)
    rule = fit_threshold(cases, fit_rule(cases))
    refused, seen = mistaken(cases, rule)
    for threshold in (0.05, 0.5, 0.95):
        other = replace(rule, confidence=replace(rule.confidence, threshold=threshold))
        assert max(refused, seen) <= max(mistaken(cases, other))
    present = [one for one in cases if one.truth]
    assert fit_threshold(present, Rule()) == Rule()
    assert mistaken(present, rule)[1] is None


def test_few_answers_make_nobody_certain():
    slope, offset = fit_logistic(np.array([0.6, 0.7]), np.array([True, True]))
    assert slope * 1.0 + offset < 4


def test_calibration_error_is_zero_for_honest_scores():
    rng = np.random.default_rng(0)
    scores = rng.random(20_000)
    assert calibration_error(scores, rng.random(20_000) < scores) < 0.02
    assert calibration_error(np.full(100, 0.9), np.zeros(100, bool)) == pytest.approx(0.9)


def test_nothing_can_be_fitted_without_a_true_answer():
    with pytest.raises(AnnotationError, match="no question has a true answer"):
        fit_rule([answered(1, there=False)])


def test_gain_and_shift_move_scores_before_sightings_are_extracted():
    evidence = Evidence(fps=5.0, boxes_px=np.zeros((3, 4)), logits=np.array([0.0, 1.0, -1.0]))
    scores = Extraction(gain=2.0, shift=-1.0).scores(evidence)
    np.testing.assert_allclose(scores, 1 / (1 + np.exp([1.0, -1.0, 3.0])))


def test_evidence_is_judged_only_by_the_rule_that_refined_it():
    rule = Rule().with_step("extend", min_cosine=0.5)
    one = replace(answered(1, there=True), refined_by=rule_key(rule))
    assert best_guess(one, rule).score > 0
    other_confidence = replace(rule, confidence=replace(rule.confidence, slope=3.0))
    assert best_guess(one, other_confidence).score > 0  # confidences come after refinement
    for other in (Rule(), replace(rule, extraction=Extraction(gain=2.0))):
        with pytest.raises(ValueError, match="refined by another rule"):
            best_guess(one, other)
    with pytest.raises(ValueError, match="refined by another rule"):
        fit_extraction([[one]], rule)


def test_answers_are_kept_as_they_were(tmp_path):
    cases = [
        replace(
            one,
            refined_by="a rule",
            evidence=replace(one.evidence, extents=((3, 9),), penalties=((1, 2, 0.5),)),
        )
        for one in several(6)
    ]
    save_answered(cases, tmp_path / "answers.json.gz")
    again = load_answered(tmp_path / "answers.json.gz")
    assert [one.truth for one in again] == [one.truth for one in cases]
    assert [one.video_uid for one in again] == [one.video_uid for one in cases]
    for one, other in zip(cases, again):
        assert other.evidence.boxes_px == pytest.approx(one.evidence.boxes_px, abs=0.01)
        assert other.evidence.logits == pytest.approx(one.evidence.logits, abs=1e-4)
        assert (other.evidence.extents, other.evidence.penalties) == (((3, 9),), ((1, 2, 0.5),))
        assert other.refined_by == "a rule"

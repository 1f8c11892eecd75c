"""Scores become sightings, and sightings answers."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from evidence import rule
from evidence import spans as seen_spans
from hypothesis import given
from hypothesis import strategies as st

from lastseen.box import Box
from lastseen.sighting import Confidence, Evidence, Extraction
from lastseen.track import ResponseTrack


def evidence(scores: list[float]) -> Evidence:
    """Frame i has the box (i, 0, i + 10, 10)."""
    p = np.clip(np.array(scores), 1e-6, 1 - 1e-6)
    left = np.arange(len(p), dtype=float)
    boxes = np.stack([left, 0 * left, left + 10, 0 * left + 10], 1)
    return Evidence(fps=5.0, boxes_px=boxes, logits=np.log(p / (1 - p)))


def spans(scores: list[float], **fields: float) -> list[tuple[int, int]]:
    return seen_spans(evidence(scores), **fields)


def last_track(of: Evidence, **fields: float) -> ResponseTrack | None:
    tracks, _ = rule(**fields).tracks(of)
    return tracks[-1] if tracks else None


LOW, HIGH = [0.1] * 10, [0.9] * 6


def test_the_last_of_several_occurrences_is_the_answer():
    scores = LOW + HIGH + LOW + HIGH + LOW
    assert spans(scores) == [(10, 15), (26, 31)]
    track = last_track(evidence(scores))
    assert track is not None
    assert (track.start, track.end, track.score) == (5.2, 6.2, pytest.approx(0.9))
    assert track.last_box == Box(31, 0, 41, 10)


def test_a_thing_in_view_at_the_start_is_found_from_frame_zero():
    assert spans(HIGH + LOW) == [(0, 5)]


def test_a_thing_still_in_view_when_the_question_is_asked_is_the_last_one():
    assert spans(HIGH + LOW + HIGH) == [(0, 5), (16, 21)]


def test_nothing_above_the_threshold_is_not_seen():
    assert last_track(evidence(LOW)) is None
    assert last_track(evidence(LOW + HIGH + LOW), threshold=0.95) is None


def test_the_score_is_calibrated_and_the_threshold_applies_to_it():
    scores = LOW + HIGH + LOW
    ((track,), _) = rule(slope=2.0, offset=-1.0).tracks(evidence(scores))
    assert track.score == pytest.approx(1 / (1 + np.exp(1 - 2 * np.log(9))))
    tracks, guess = rule(offset=-3.0).tracks(evidence(scores))
    assert tracks == []
    assert (guess.first_frame, guess.last_frame) == (10, 15)


def test_a_longer_search_makes_the_same_peak_less_sure_up_to_what_was_fitted():
    plain, peak = Confidence(slope=2.0, offset=-1.0), 0.8
    careful = replace(plain, search_length_penalty=0.5)
    assert careful.of(peak, 60.0) == plain.of(peak, 60.0) == plain.of(peak, 1e4)
    shorter, minute, longer, hour = (careful.of(peak, s) for s in (20.0, 60.0, 300.0, 3600.0))
    assert shorter > minute > longer == hour
    odds = minute / (1 - minute) / (longer / (1 - longer))
    assert odds == pytest.approx(5)  # slope times cost is 1: five times as much to be mistaken


def test_the_search_length_penalty_is_a_number():
    for wrong in (-0.1, float("nan"), float("inf"), "0.5", None):
        with pytest.raises(ValueError, match="search_length_penalty must be a number, 0 or more"):
            Confidence(search_length_penalty=wrong)


def test_what_was_searched_is_all_of_the_frames():
    scores = [0.1] * 40 + [0.9] * 10 + [0.1] * 50
    short, long = (
        last_track(evidence(some), search_length_penalty=0.5) for some in (scores, scores + [0.1] * 900)
    )
    assert (short.first_frame, short.last_frame) == (long.first_frame, long.last_frame)
    assert short.score > long.score


def test_penalties_lower_what_they_are_for_and_nothing_else():
    scores = [0.1] * 20 + [0.9] * 10 + [0.1] * 20 + [0.88] * 10 + [0.1] * 20
    plain = evidence(scores)
    assert seen_spans(plain) == [(20, 29), (50, 59)]
    assert seen_spans(replace(plain, penalties=((50, 59, 3.0),))) == [(20, 29)]


def test_a_flicker_of_two_frames_is_not_an_occurrence():
    assert spans([*LOW, 0.9, 0.9, *LOW]) == []


def test_a_dip_of_two_frames_does_not_end_a_track():
    assert spans([*LOW, *HIGH, 0.1, 0.1, *HIGH, *LOW]) == [(10, 23)]


def test_a_weaker_occurrence_counts_only_near_the_best():
    weak = [0.6] * 6
    assert spans(LOW + HIGH + LOW + weak + LOW) == [(10, 15)]
    assert spans(LOW + weak + LOW) == [(10, 15)]  # alone, it is the best


def test_frames_that_are_smoothed_over_are_at_least_one():
    for wrong in ({"median_frames": 0}, {"box_median_frames": 0}, {"box_median_frames": 1.5}):
        with pytest.raises(ValueError, match=r"median_frames must be a whole number, 1 or more"):
            Extraction(**wrong)


def test_a_single_frame_or_none_at_all_is_no_problem():
    assert spans([0.9]) == [(0, 0)]
    assert spans([]) == []


def test_a_box_that_jumps_for_one_frame_is_smoothed_away():
    frames = evidence(LOW + HIGH + LOW)
    frames.boxes_px[12] = [500, 500, 600, 600]
    track = last_track(frames)
    assert track is not None
    assert track.boxes[2].x1 < 20


def test_steady_motion_is_not_held_back_by_smoothing():
    track = last_track(evidence(LOW + HIGH + LOW))
    assert track is not None
    assert [box.x1 for box in track.boxes[1:-1]] == [11, 12, 13, 14]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=80))
def test_tracks_are_in_order_apart_and_inside_the_video(scores):
    found, _ = rule(threshold=0.0).tracks(evidence(scores))
    assert found
    assert found[0].first_frame >= 0
    assert found[-1].last_frame < len(scores)
    for earlier, later in pairwise(found):
        assert earlier.last_frame + 1 < later.first_frame


def test_evidence_of_a_trimmed_recording_is_delayed_as_a_whole():
    """Frames that were dropped come back as frames on which the model did not run."""
    trimmed = replace(evidence(LOW + HIGH + LOW), extents=((8, 17),), penalties=((20, 25, 1.0),))
    whole = trimmed.delayed(7)
    assert len(whole) == len(trimmed) + 7
    assert np.isneginf(whole.logits[:7]).all()
    assert (whole.extents, whole.penalties) == (((15, 24),), ((27, 32, 1.0),))
    extraction = Extraction()
    assert np.array_equal(extraction.scores(whole)[7:], extraction.scores(trimmed))


def saturated(valley: float, gap: int = 5) -> Evidence:
    """Two peaks of a logit of 8 with a valley between, and a logit of -8 around them."""
    logits = np.array([-8.0] * 10 + [8.0] * 6 + [8.0 - valley] * gap + [8.0] * 6 + [-8.0] * 10)
    return Evidence(fps=5.0, boxes_px=np.tile([0.0, 0.0, 10.0, 10.0], (len(logits), 1)), logits=logits)


def test_a_drop_of_the_logit_ends_a_sighting_that_no_ratio_of_saturated_scores_does():
    assert seen_spans(saturated(3.0)) == [(10, 26)]
    assert seen_spans(saturated(3.0), extent_drop=2.0) == [(10, 15), (21, 26)]
    assert seen_spans(saturated(3.0), extent_drop=4.0) == [(10, 26)]
    assert seen_spans(saturated(1.0), extent_drop=2.0) == [(10, 26)]


def test_the_drop_is_of_the_models_logit_whatever_the_gain_and_shift():
    for gain, shift in ((0.5, 0.0), (2.0, 0.0), (1.0, 3.0)):
        assert seen_spans(saturated(3.0), extent_drop=2.0, gain=gain, shift=shift) == [(10, 15), (21, 26)]
        assert seen_spans(saturated(3.0), extent_drop=4.0, gain=gain, shift=shift) == [(10, 26)]


def test_a_valley_shorter_than_the_median_filter_ends_nothing():
    assert seen_spans(saturated(3.0, gap=2), extent_drop=2.0) == [(10, 23)]


def test_a_drop_does_not_lengthen_what_the_ratio_ends():
    low = evidence(LOW + HIGH + [0.5] * 6 + LOW)  # a logit of 2.2 and then 0
    assert seen_spans(low) == seen_spans(low, extent_drop=100.0) == [(10, 15)]


def test_frames_on_which_the_model_did_not_run_are_no_sighting_with_a_drop():
    delayed = saturated(3.0).delayed(7)
    assert seen_spans(delayed, extent_drop=2.0) == [(17, 22), (28, 33)]
    nothing = Evidence(fps=5.0, boxes_px=np.zeros((4, 4)), logits=np.full(4, -np.inf))
    assert seen_spans(nothing, extent_drop=2.0) == []


def test_a_drop_is_a_number_above_zero_or_none():
    for wrong in (0, -1.0, float("nan"), float("inf"), "2"):
        with pytest.raises(ValueError, match="extent_drop must be a number above 0, or null"):
            Extraction(extent_drop=wrong)

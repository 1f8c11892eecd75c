import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastseen.box import Box
from lastseen.errors import TrackError
from lastseen.track import FramePredictions, ResponseTrack, TrackRule, all_tracks, last_track


def predictions(scores: list[float]) -> FramePredictions:
    """Frame i has the box (i, 0, i + 10, 10)."""
    p = np.clip(np.array(scores), 1e-6, 1 - 1e-6)
    left = np.arange(len(p), dtype=float)
    boxes = np.stack([left, 0 * left, left + 10, 0 * left + 10], 1)
    return FramePredictions(fps=5.0, boxes_px=boxes, logits=np.log(p / (1 - p)))


def spans(scores: list[float], **rule: float) -> list[tuple[int, int]]:
    return [(t.first_frame, t.last_frame) for t in all_tracks(predictions(scores), TrackRule(**rule))]


LOW, HIGH = [0.1] * 10, [0.9] * 6


def test_the_last_of_several_occurrences_is_the_answer():
    scores = LOW + HIGH + LOW + HIGH + LOW
    assert spans(scores) == [(10, 15), (26, 31)]
    track = last_track(predictions(scores))
    assert track is not None
    assert (track.start, track.end, track.score) == (5.2, 6.2, pytest.approx(0.9))
    assert track.last_box == Box(31, 0, 41, 10)


def test_a_thing_in_view_at_the_start_is_found_from_frame_zero():
    assert spans(HIGH + LOW) == [(0, 5)]


def test_a_thing_still_in_view_when_the_question_is_asked_is_the_last_one():
    assert spans(HIGH + LOW + HIGH) == [(0, 5), (16, 21)]


def test_nothing_above_the_threshold_is_not_seen():
    assert last_track(predictions(LOW)) is None
    assert last_track(predictions(LOW + HIGH + LOW), TrackRule(threshold=0.95)) is None


def test_the_score_is_calibrated_and_the_threshold_applies_to_it():
    scores = LOW + HIGH + LOW
    (track,) = all_tracks(predictions(scores), TrackRule(slope=2.0, offset=-1.0))
    assert track.score == pytest.approx(1 / (1 + np.exp(1 - 2 * np.log(9))))
    assert all_tracks(predictions(scores), TrackRule(offset=-3.0)) == []


def test_a_longer_search_makes_the_same_peak_less_sure_up_to_what_was_fitted():
    plain, peak = TrackRule(slope=2.0, offset=-1.0), 0.8
    rule = replace(plain, length_cost=0.5)
    assert rule.confidence(peak, 60.0) == plain.confidence(peak, 60.0) == plain.confidence(peak, 1e4)
    shorter, minute, longer, hour = (rule.confidence(peak, s) for s in (20.0, 60.0, 300.0, 3600.0))
    assert shorter > minute > longer == hour
    odds = minute / (1 - minute) / (longer / (1 - longer))
    assert odds == pytest.approx(5)  # slope times cost is 1: five times as much to be mistaken


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf"), "0.5", None])
def test_what_length_costs_is_a_number(wrong):
    with pytest.raises(ValueError, match="length_cost must be a number, 0 or more"):
        TrackRule(length_cost=wrong)


def test_what_was_searched_is_all_of_the_frames():
    scores = [0.1] * 40 + [0.9] * 10 + [0.1] * 50
    rule = TrackRule(length_cost=0.5)
    (short,), (long,) = (all_tracks(predictions(some), rule) for some in (scores, scores + [0.1] * 900))
    assert (short.first_frame, short.last_frame) == (long.first_frame, long.last_frame)
    assert short.score > long.score


def test_doubts_lower_what_is_in_doubt_and_nothing_else():
    scores = [0.1] * 20 + [0.9] * 10 + [0.1] * 20 + [0.88] * 10 + [0.1] * 20
    plain = predictions(scores)
    assert [t.first_frame for t in all_tracks(plain)] == [20, 50]
    (track,) = all_tracks(replace(plain, doubts=((50, 59, 3.0),)))
    assert (track.first_frame, track.last_frame) == (20, 29)


def test_a_flicker_of_two_frames_is_not_an_occurrence():
    assert spans([*LOW, 0.9, 0.9, *LOW]) == []


def test_a_dip_of_two_frames_does_not_end_a_track():
    assert spans([*LOW, *HIGH, 0.1, 0.1, *HIGH, *LOW]) == [(10, 23)]


def test_a_weaker_occurrence_counts_only_near_the_best():
    weak = [0.6] * 6
    assert spans(LOW + HIGH + LOW + weak + LOW) == [(10, 15)]
    assert spans(LOW + weak + LOW) == [(10, 15)]  # alone, it is the best


@pytest.mark.parametrize("wrong", [{"median": 0}, {"box_median": 0}, {"box_median": 1.5}])
def test_frames_that_are_smoothed_over_are_at_least_one(wrong):
    with pytest.raises(ValueError, match=r"median must be a whole number, 1 or more"):
        TrackRule(**wrong)


def test_a_single_frame_or_none_at_all_is_no_problem():
    assert spans([0.9]) == [(0, 0)]
    assert spans([]) == []


def test_a_box_that_jumps_for_one_frame_is_smoothed_away():
    frames = predictions(LOW + HIGH + LOW)
    frames.boxes_px[12] = [500, 500, 600, 600]
    track = last_track(frames)
    assert track is not None
    assert track.boxes[2].x1 < 20


def test_steady_motion_is_not_held_back_by_smoothing():
    track = last_track(predictions(LOW + HIGH + LOW))
    assert track is not None
    assert [box.x1 for box in track.boxes[1:-1]] == [11, 12, 13, 14]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=80))
def test_tracks_are_in_order_apart_and_inside_the_video(scores):
    found = all_tracks(predictions(scores), TrackRule(threshold=0.0))
    assert found
    assert found[0].first_frame >= 0
    assert found[-1].last_frame < len(scores)
    for earlier, later in pairwise(found):
        assert earlier.last_frame + 1 < later.first_frame


def test_boxes_between_sampled_frames_are_interpolated():
    track = ResponseTrack(first_frame=10, fps=5.0, boxes=(Box(0, 0, 10, 10), Box(10, 0, 20, 10)), score=0.9)
    assert track.box_at(2.1) == Box(5, 0, 15, 10)
    assert track.box_at(1.95) == Box(0, 0, 10, 10)
    assert track.box_at(1.8) is None
    assert track.box_at(2.5) is None


def test_a_track_goes_to_json_and_back():
    track = ResponseTrack(first_frame=7, fps=5.0, boxes=(Box(1.5, 2, 3, 4), Box(2, 2, 4, 4)), score=0.75)
    again = ResponseTrack.from_json(track.to_json())
    assert again == track
    assert json.loads(track.to_json())["start"] == 1.4


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        "[]",
        "null",
        '{"schema": "something else"}',
        '{"schema": "lastseen/track@1"}',
        '{"schema": "lastseen/track@1", "fps": 5, "score": 1, "boxes": []}',
        '{"schema": "lastseen/track@1", "fps": 0, "score": 1, "boxes": [{"frame":1,"x1":0,"y1":0,"x2":1,"y2":1}]}',  # noqa: E501
        '{"schema": "lastseen/track@1", "fps": 5, "score": 1, "boxes": [{"frame":1,"x1":0,"y1":0,"x2":1}]}',
        '{"schema": "lastseen/track@1", "fps": 5, "score": "high", "boxes": []}',
    ],
)
def test_a_broken_track_is_one_clear_line(broken):
    with pytest.raises(TrackError) as caught:
        ResponseTrack.from_json(broken)
    assert "\n" not in str(caught.value)


def test_a_track_with_a_gap_is_refused():
    track = ResponseTrack(first_frame=0, fps=5.0, boxes=(Box(0, 0, 1, 1),) * 3, score=1.0).to_dict()
    del track["boxes"][1]
    with pytest.raises(TrackError, match="consecutive"):
        ResponseTrack.from_dict(track)

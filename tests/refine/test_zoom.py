"""The most confident sightings are searched again, enlarged, and nothing else is."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from evidence import rule
from scenes import box_at, quick_localizer, thing, write_scene

from lastseen.box import Letterbox
from lastseen.index import Index
from lastseen.index.answers import answers_dict, answers_text
from lastseen.query import Query
from lastseen.refine import Zoom
from lastseen.refine.window import Window
from lastseen.search.run import MAX_GUESSES, next_to_check
from lastseen.sighting import Evidence, Sighting
from lastseen.video import Video

pytestmark = pytest.mark.usefixtures("one_thread", "remembered")

HERE, THERE = (40, 60), (210, 90)
PLACES = [None] * 6 + [HERE] * 6 + [None] * 10 + [THERE] * 6 + [None] * 8
ZOOM = Zoom(sightings=2)
VIDEO: Any = SimpleNamespace(letterbox=Letterbox.square(320, 180, 112), clip_length=30)


def said(*peaks: tuple[int, int, float, float], frames: int = 60, side: float = 30.0) -> Evidence:
    """(first, last, logit, middle's x): a box of `side` there, no sighting elsewhere."""
    logits, boxes = np.full(frames, -6.0), np.tile([0.0, 0, 8, 8], (frames, 1))
    for first, last, logit, x in peaks:
        logits[first : last + 1] = logit
        logits[(first + last) // 2] += 0.1
        boxes[first : last + 1] = [x - side / 2, 100 - side / 2, x + side / 2, 100 + side / 2]
    return Evidence(fps=5.0, boxes_px=boxes, logits=logits)


def windows(evidence: Evidence, zoom: Zoom = ZOOM) -> list[Window]:
    return [window for _, window in zoom.windows(rule().extract(evidence, zoom.peak_ratio), VIDEO)]


def test_the_best_peaks_are_chosen_with_a_margin_and_no_others():
    three = said((5, 10, 1.0, 80), (25, 30, 3.0, 160), (45, 50, 2.0, 240))
    best, second = windows(three)
    margin = ZOOM.margin_frames
    assert (best.start, best.stop) == (25 - margin, 30 + margin + 1)
    assert (second.start, second.stop) == (45 - margin, 50 + margin + 1)
    assert len(windows(three, Zoom(sightings=9))) == 3


def test_a_far_weaker_peak_and_what_fills_the_picture_are_not_worth_it():
    assert len(windows(said((5, 10, 3.0, 80), (40, 45, -3.0, 160)))) == 1
    assert windows(said((5, 10, 3.0, 160), side=120)) == []


def test_of_a_long_sighting_the_middle_is_enlarged():
    (one,) = windows(said((2, 57, 3.0, 160)))
    assert one.stop - one.start == 30
    assert one.start <= 29 < one.stop


def test_windows_hold_the_thing_and_lie_in_the_picture_if_they_can():
    for side in (4, 30, 60, 90):
        for x in (0, 160, 320):
            (one,) = windows(said((5, 20, 3.0, x), side=side))
            assert ZOOM.min_window_px <= one.side <= 320
            assert one.side >= 2.5 * side
            across, down = one.corners.T
            assert ((across >= 0) & (across + one.side <= 320)).all()
            if one.side <= 180:
                assert ((down >= 0) & (down + one.side <= 180)).all()
            else:  # the picture in the middle, black above and below
                assert ((down <= 0) & (down + one.side >= 180)).all()


def test_the_first_and_the_last_frame_are_frames_like_any_other():
    first, last = sorted(windows(said((0, 4, 3.0, 80), (55, 59, 3.0, 160))), key=lambda one: one.start)
    assert first.start == 0
    assert last.stop == 60


def test_crops_are_parts_of_the_frame_and_boxes_find_their_way_back():
    frame = np.arange(12 * 20 * 3, dtype=np.uint8).reshape(12, 20, 3)
    inside = Window(start=0, corners=np.array([[3, 2]]), side=8)
    assert np.array_equal(next(inside.crops([frame])), frame[2:10, 3:11])
    beyond = Window(start=0, corners=np.array([[0, -4]]), side=20)
    (window,) = beyond.crops([frame])
    assert window.shape == (20, 20, 3)
    assert np.array_equal(window[4:16], frame)
    assert not window[:4].any() and not window[16:].any()
    np.testing.assert_allclose(inside.to_px(np.array([[0, 0, 1, 0.5]])), [[3, 2, 11, 6]])


def zoomed(evidence: Evidence, start: int, boxes: Any, logits: Any, first: int, last: int) -> Any:
    window = Window(start=start, corners=np.zeros((len(logits), 2)), side=112)
    sighting = Sighting(evidence=evidence, first=first, last=last, peak_score=0.9)
    return sighting, window, np.asarray(boxes), np.asarray(logits)


def test_the_window_counts_half_and_where_two_overlap_the_higher_logit():
    first = said((5, 10, 1.0, 80))
    boxes = np.tile([1.0, 2, 3, 4], (6, 1))
    one = zoomed(first, 5, boxes, np.full(6, 2.0), 5, 10)
    other = zoomed(first, 8, 2 * boxes[:4], [1.0, 3.0, 1.0, -1.0], 8, 11)
    again = ZOOM.merged(first, [one, other])
    np.testing.assert_allclose(again.logits[4:13], [-6, 1.5, 1.5, 1.55, 1.5, 2, 1.5, -3.5, -6])
    np.testing.assert_allclose(again.boxes_px[9], [2, 4, 6, 8])
    np.testing.assert_allclose(again.boxes_px[10], [1, 2, 3, 4])
    assert first.logits[5] == 1.0  # untouched


def test_frames_on_which_the_model_did_not_run_stay_so():
    first = said((5, 10, 1.0, 80))
    first.logits[:7] = -np.inf
    again = ZOOM.merged(first, [zoomed(first, 5, np.zeros((6, 4)), np.full(6, 2.0), 3, 12)])
    assert not np.isnan(again.logits).any()
    np.testing.assert_array_equal(np.isfinite(again.logits), np.isfinite(first.logits))


def test_a_long_sighting_is_confirmed_or_refused_as_a_whole():
    for then, seen in ((3.0, 1), (-8.0, 0)):
        first = said((10, 50, 0.5, 160))
        ((sighting, window),) = ZOOM.windows(rule().extract(first, ZOOM.peak_ratio), VIDEO)
        assert window.stop - window.start == 30
        boxes, logits = np.tile([145.0, 85, 175, 115], (30, 1)), np.full(30, then)
        tracks, _ = rule(offset=-0.2).tracks(ZOOM.merged(first, [(sighting, window, boxes, logits)]))
        assert [(track.first_frame, track.last_frame) for track in tracks] == [(10, 50)] * seen


def test_how_many_sightings_is_a_whole_number():
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match=r"zoom.sightings must be a whole number, 1 or more"):
            Zoom(sightings=wrong)


# --- in a video ---


@pytest.fixture(scope="module")
def localizer():
    plain = quick_localizer()
    return plain.with_rule(plain.rule.with_step("zoom", sightings=2))


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Video:
    return Video(write_scene(tmp_path_factory.mktemp("scene") / "scene.mp4", PLACES))


@pytest.fixture(scope="module")
def alone(localizer, video):
    return localizer.ask(video, Query.from_array(thing()))


def test_sightings_are_enlarged_and_the_answer_stays_right(localizer, video, alone):
    query = Query.from_array(thing())
    predictions = localizer.predict(video, [query])
    (evidence,) = localizer.refine(video, [query], predictions)
    changed = np.flatnonzero(np.abs(predictions[0].logits - evidence.logits) > 1e-3)
    reach = ZOOM.margin_frames + 2
    near = {n for n in range(len(PLACES)) if any(PLACES[max(0, n - reach) : n + reach + 1])}
    assert len(changed) >= 10
    assert set(changed.tolist()) <= near
    assert (evidence.boxes_px >= 0).all() and (evidence.boxes_px <= [320, 180, 320, 180]).all()
    earlier, last = alone.sightings
    assert earlier.boxes[2].iou(box_at(HERE)) > 0.5
    assert last.boxes[2].iou(box_at(THERE)) > 0.5
    assert abs(last.first_frame - PLACES.index(THERE)) <= 1
    assert alone.steps == ("zoom",)


def test_frames_after_the_question_are_never_read(localizer, video, monkeypatch):
    read_to = []
    frames = Video.frames

    def watched(self, fps, start_s=0.0, end_s=None, **options):
        read_to.append(end_s)
        return frames(self, fps, start_s, end_s, **options)

    monkeypatch.setattr(Video, "frames", watched)
    localizer.ask(video, Query.from_array(thing(), asked_at=1.8))
    assert len(read_to) >= 2
    assert max(read_to) <= 1.8 + 1e-6


def test_an_index_zooms_as_one_search_does_and_says_when_it_cannot(localizer, alone, tmp_path):
    query, path = Query.from_array(thing()), write_scene(tmp_path / "scene.mp4", PLACES)
    with Index(tmp_path / "index", localizer=localizer) as index:
        index.add(path)
        for exhaustive in (True, False):
            (answer,) = index.ask_many({"it": query}, every=True, exhaustive=exhaustive)["it"]
            assert "zoom" in answer.steps
            ran = answer.curve.searched
            assert np.array_equal(answer.curve.scores[ran], alone.curve.scores[ran])
            assert answer.sightings == alone.sightings
        path.unlink()
        found = index.ask_many({"it": query})
        (answer,) = found["it"]
        assert "zoom" not in answer.steps
        assert answer.last.last_box.iou(box_at(THERE)) > 0.5
        assert "is not there to zoom in" in answers_text(found, False)
        (thing_,) = answers_dict(None, "model", found, False)["things"]
        assert thing_["answers"][0]["looked_again"] is False


def test_a_sighting_that_a_later_zoom_refuses_is_not_seen(localizer, tmp_path, monkeypatch):
    path = write_scene(tmp_path / "scene.mp4", [*[None] * 8, *[HERE] * 6, *[None] * 60])
    calls = []

    def refusing(self, evidence, extract, video):
        calls.append(evidence)
        return evidence if len(calls) == 1 else replace(evidence, logits=evidence.logits - 30)

    with Index(tmp_path / "index", localizer=localizer) as index:
        index.add(path)
        monkeypatch.setattr(Zoom, "__call__", refusing)
        (answer,) = index.ask_many({"it": Query.from_array(thing())}, candidates=1)["it"]
    assert len(calls) > 1
    assert not answer.found and answer.best_guess


class Case:
    """As the search sees it: when it was last seen, how sure a guess is, what refinement makes of it."""

    def __init__(self, seen_at: float, score: float, seen: bool, then: "Case | None" = None) -> None:
        self.seen_at, self.then, self.zoomed = seen_at, then, False
        guess = None if seen else SimpleNamespace(score=score)
        self.answer = SimpleNamespace(found=seen, best_guess=guess)

    def may_be_seen(self, draft: "Case") -> bool:
        return bool(draft.answer.found or draft.answer.best_guess.score >= 0.2)


def checked(cases: list[Case], every: bool = False) -> list[int]:
    drafts, tried, order = dict(zip(cases, cases)), set(), []
    while (case := next_to_check(drafts, tried, every)) is not None:
        tried.add(case)
        order.append(cases.index(case))
        drafts[case] = case.then or case
        drafts[case].zoomed = True
    return order


def test_of_several_videos_the_one_to_be_answered_is_refined():
    refused_then_earlier = Case(1090, 0.6, True, then=Case(1010, 0.8, True))
    assert checked([Case(900, 0.9, True), refused_then_earlier, Case(1040, 0.6, True)]) == [1, 2]
    assert checked([Case(900, 0.9, True), Case(1000, 0.9, True)]) == [1]
    assert checked([Case(900, 0.9, True), Case(1000, 0.9, True)], every=True) == [1, 0]
    almost = Case(1100, 0.3, False)
    assert checked([Case(900, 0.9, True), almost]) == [1, 0]


def test_a_thing_that_is_nowhere_is_looked_for_in_the_best_guesses_and_no_further():
    hopeless = [Case(1000 + n, 0.1 + n / 100, False, then=Case(1000 + n, 0.01, False)) for n in range(9)]
    assert checked(hopeless) == [8, 7, 6, 5][:MAX_GUESSES]

"""The likeliest sightings are looked at again, enlarged, and nothing else is."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scenes import box_at, quick_localizer, thing, write_scene

from lastseen.index import Index
from lastseen.index.answers import answers_dict, answers_text
from lastseen.index.record import add_file
from lastseen.index.search import MOST_GUESSES, _next_to_look_at, search
from lastseen.query import Query
from lastseen.second_look import LEAST_PX, RIM, Sighting, likeliest, replaced
from lastseen.track import FramePredictions, TrackRule, all_tracks
from lastseen.video import Video

HERE, THERE = (40, 60), (210, 90)
PLACES = [None] * 6 + [HERE] * 6 + [None] * 10 + [THERE] * 6 + [None] * 8
RULE = TrackRule(looks=2)


def said(*peaks: tuple[int, int, float, float], frames: int = 60, side: float = 30.0) -> FramePredictions:
    """(first, last, logit, middle's x): a box of `side` there, no sighting elsewhere."""
    logits, boxes = np.full(frames, -6.0), np.tile([0.0, 0, 8, 8], (frames, 1))
    for first, last, logit, x in peaks:
        logits[first : last + 1] = logit
        logits[(first + last) // 2] += 0.1
        boxes[first : last + 1] = [x - side / 2, 100 - side / 2, x + side / 2, 100 + side / 2]
    return FramePredictions(fps=5.0, boxes_px=boxes, logits=logits)


def test_the_best_peaks_are_chosen_with_a_rim_and_no_others():
    three = said((5, 10, 1.0, 80), (25, 30, 3.0, 160), (45, 50, 2.0, 240))
    best, second = likeliest(three, RULE, 320, 180, most_frames=30)
    assert (best.start, best.stop) == (25 - RIM, 30 + RIM + 1)
    assert (second.start, second.stop) == (45 - RIM, 50 + RIM + 1)
    assert len(likeliest(three, replace(RULE, looks=9), 320, 180, 30)) == 3
    assert likeliest(three, replace(RULE, looks=0), 320, 180, 30) == []


def test_a_far_weaker_peak_is_not_worth_a_look():
    assert len(likeliest(said((5, 10, 3.0, 80), (40, 45, -3.0, 160)), RULE, 320, 180, 30)) == 1


def test_of_a_long_sighting_the_middle_is_looked_at():
    (one,) = likeliest(said((2, 57, 3.0, 160)), RULE, 320, 180, most_frames=30)
    assert one.stop - one.start == 30
    assert one.start <= 29 < one.stop


@pytest.mark.parametrize("side", [4, 30, 60, 90])
@pytest.mark.parametrize("x", [0, 160, 320])
def test_windows_hold_the_thing_and_the_picture_if_they_can(side, x):
    (one,) = likeliest(said((5, 20, 3.0, x), side=side), RULE, 320, 180, 30)
    assert LEAST_PX <= one.side <= 320
    assert one.side >= 2.5 * side
    across, down = one.corners.T
    assert ((across >= 0) & (across + one.side <= 320)).all()
    if one.side <= 180:
        assert ((down >= 0) & (down + one.side <= 180)).all()
    else:  # the picture in the middle, black above and below
        assert ((down <= 0) & (down + one.side >= 180)).all()


def test_the_first_and_the_last_frame_are_frames_like_any_other():
    first, last = sorted(likeliest(said((0, 4, 3.0, 80), (55, 59, 3.0, 160)), RULE, 320, 180, 30), key=_start)
    assert first.start == 0
    assert last.stop == 60


def test_cut_pictures_are_parts_of_the_frame_and_boxes_find_their_way_back():
    frame = np.arange(12 * 20 * 3, dtype=np.uint8).reshape(12, 20, 3)
    inside = sighting(0, corners=[[3, 2]], side=8)
    assert np.array_equal(next(inside.cut([frame])), frame[2:10, 3:11])
    beyond = sighting(0, corners=[[0, -4]], side=20)
    (window,) = beyond.cut([frame])
    assert window.shape == (20, 20, 3)
    assert np.array_equal(window[4:16], frame)
    assert not window[:4].any() and not window[16:].any()
    np.testing.assert_allclose(inside.to_px(np.array([[0, 0, 1, 0.5]])), [[3, 2, 11, 6]])


def sighting(
    start: int, corners, side: int = 112, first: int | None = None, last: int | None = None
) -> Sighting:
    """What was seen at first is what is looked at again, unless it is given."""
    first, last = start if first is None else first, start + len(corners) - 1 if last is None else last
    return Sighting(first=first, last=last, start=start, corners=np.array(corners), side=side)


def test_what_is_seen_then_counts_half_and_where_two_meet_the_surer():
    first = said((5, 10, 1.0, 80))
    boxes = np.tile([1.0, 2, 3, 4], (6, 1))
    seen = [
        (sighting(5, np.zeros((6, 2))), (boxes, np.full(6, 2.0))),
        (sighting(8, np.zeros((4, 2))), (2 * boxes[:4], np.array([1.0, 3.0, 1.0, -1.0]))),
    ]
    again = replaced(first, seen)
    np.testing.assert_allclose(again.logits[4:13], [-6, 1.5, 1.5, 1.55, 1.5, 2, 1.5, -3.5, -6])
    np.testing.assert_allclose(again.boxes_px[9], [2, 4, 6, 8])
    np.testing.assert_allclose(again.boxes_px[10], [1, 2, 3, 4])
    assert first.logits[5] == 1.0  # untouched


def test_what_nobody_looked_at_at_first_stays_so():
    first = said((5, 10, 1.0, 80))
    first.logits[:7] = -np.inf
    one = sighting(5, np.zeros((6, 2)), first=3, last=12)
    again = replaced(first, [(one, (np.zeros((6, 4)), np.full(6, 2.0)))])
    assert not np.isnan(again.logits).any()
    np.testing.assert_array_equal(np.isfinite(again.logits), np.isfinite(first.logits))


@pytest.mark.parametrize(("then", "seen"), [(3.0, 1), (-8.0, 0)])
def test_a_long_sighting_is_confirmed_or_refused_as_a_whole(then, seen):
    first = said((10, 50, 0.5, 160))
    (one,) = likeliest(first, RULE, 320, 180, most_frames=30)
    assert one.stop - one.start == 30
    look = np.tile([145.0, 85, 175, 115], (30, 1)), np.full(30, then)
    tracks = all_tracks(replaced(first, [(one, look)]), replace(RULE, offset=-0.2))
    assert len(tracks) == seen
    assert [(track.first_frame, track.last_frame) for track in tracks] == [(10, 50)] * seen


def test_what_fills_the_picture_is_not_looked_at_again():
    assert likeliest(said((5, 10, 3.0, 160), side=120), RULE, 320, 180, 30) == []


def test_a_number_of_looks_below_zero_is_refused():
    with pytest.raises(ValueError, match="looks must be a whole number, 0 or more"):
        TrackRule(looks=-1)


# --- in a video ---


@pytest.fixture(scope="module")
def localizer():
    localizer = quick_localizer()
    localizer.rule = replace(localizer.rule, looks=2)
    return localizer


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Video:
    return Video(write_scene(tmp_path_factory.mktemp("scene") / "scene.mp4", PLACES))


def first_look(localizer, video, query):
    once = quick_localizer()
    assert not once.looks
    return once.predict(video, [query])[0]


def test_sightings_are_looked_at_again_and_the_answer_stays_right(localizer, video):
    query = Query.from_array(thing())
    once, twice = first_look(localizer, video, query), localizer.predict(video, [query])[0]
    changed = np.flatnonzero(np.abs(once.logits - twice.logits) > 1e-3)
    near = {n for n, place in enumerate(PLACES) if any(PLACES[max(0, n - RIM - 2) : n + RIM + 3])}
    assert len(changed) >= 10
    assert set(changed.tolist()) <= near
    assert (twice.boxes_px >= 0).all() and (twice.boxes_px <= [320, 180, 320, 180]).all()
    earlier, last = localizer.tracks(twice)
    assert earlier.boxes[2].iou(box_at(HERE)) > 0.5
    assert last.boxes[2].iou(box_at(THERE)) > 0.5
    assert abs(last.first_frame - PLACES.index(THERE)) <= 1


def test_frames_after_the_question_are_never_looked_at(localizer, video, monkeypatch):
    looked_to = []
    frames = Video.frames

    def watched(self, fps, start_s=0.0, end_s=None, **options):
        looked_to.append(end_s)
        return frames(self, fps, start_s, end_s, **options)

    monkeypatch.setattr(Video, "frames", watched)
    localizer.predict(video, [Query.from_array(thing(), asked_at=1.8)])
    assert len(looked_to) >= 2
    assert max(looked_to) <= 1.8 + 1e-6


def test_paper_mode_looks_once(video):
    localizer = quick_localizer()
    localizer.rule, localizer.paper = replace(localizer.rule, looks=2), True
    assert localizer.looks == 0


def test_an_index_looks_again_as_one_shot_does_and_says_when_it_cannot(localizer, video, tmp_path):
    query = Query.from_array(thing())
    alone = localizer.predict(video, [query])[0]
    path = write_scene(tmp_path / "scene.mp4", PLACES)
    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, path, keep="full")
        for exhaustive in (True, False):
            (finding,) = search(index, localizer, {"it": query}, every=True, exhaustive=exhaustive)["it"]
            assert finding.looked_again
            looked = np.isfinite(finding.predictions.logits)
            assert np.array_equal(finding.predictions.logits[looked], alone.logits[looked])
            assert list(finding.tracks) == localizer.tracks(alone)
        path.unlink()
        found = search(index, localizer, {"it": query})
        (finding,) = found["it"]
        assert not finding.looked_again
        assert finding.tracks[-1].last_box.iou(box_at(THERE)) > 0.5
        assert "first look only" in answers_text(found, False, 0.5)
        (thing_,) = answers_dict(None, "model", found, False)["things"]
        assert thing_["answers"][0]["looked_again"] is False


def _start(sighting: Sighting) -> int:
    return sighting.start


def test_a_sighting_that_a_later_look_refuses_is_not_seen(localizer, tmp_path, monkeypatch):
    path = write_scene(tmp_path / "scene.mp4", [*[None] * 8, *[HERE] * 6, *[None] * 60])
    calls = []

    def refusing(video, views, predictions, *rest):
        calls.append(predictions)
        return predictions if len(calls) == 1 else replace(predictions, logits=predictions.logits - 30)

    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, path)
        monkeypatch.setattr(localizer, "look_again", refusing)
        (finding,) = search(index, localizer, {"it": Query.from_array(thing())}, candidates=1)["it"]
    assert len(calls) > 1
    assert not finding.tracks and finding.guess


class Case:
    """As the search sees it: when it was last seen, how sure a guess is, what a second look makes of it."""

    def __init__(self, seen_at: float, score: float, seen: bool, then: "Case | None" = None) -> None:
        self.seen_at, self.then, self.looked_again = seen_at, then, False
        self.tracks, self.guess = (["track"], None) if seen else ([], SimpleNamespace(score=score))

    def hopeful(self, finding: "Case") -> bool:
        return bool(finding.tracks or finding.guess.score >= 0.2)


def looked_at(cases: list[Case], every: bool = False) -> list[int]:
    found, tried, order = dict(zip(cases, cases)), set(), []
    while (case := _next_to_look_at(found, tried, every)) is not None:
        tried.add(case)
        order.append(cases.index(case))
        found[case] = case.then or case
        found[case].looked_again = True
    return order


def test_of_several_videos_the_one_to_be_answered_is_looked_at():
    refused_then_earlier = Case(1090, 0.6, True, then=Case(1010, 0.8, True))
    assert looked_at([Case(900, 0.9, True), refused_then_earlier, Case(1040, 0.6, True)]) == [1, 2]
    assert looked_at([Case(900, 0.9, True), Case(1000, 0.9, True)]) == [1]
    assert looked_at([Case(900, 0.9, True), Case(1000, 0.9, True)], every=True) == [1, 0]
    almost = Case(1100, 0.3, False)
    assert looked_at([Case(900, 0.9, True), almost]) == [1, 0]


def test_a_thing_that_is_nowhere_is_looked_for_in_the_best_guesses_and_no_further():
    hopeless = [Case(1000 + n, 0.1 + n / 100, False, then=Case(1000 + n, 0.01, False)) for n in range(9)]
    assert looked_at(hopeless) == [8, 7, 6, 5][:MOST_GUESSES]

"""Every phase is counted, and the time left is that of all phases, from measured speeds."""

import time
from dataclasses import replace

import pytest
from evidence import answer_of, box_mask
from scenes import PLACES, thing, write_scene
from web import tiny

from lastseen import seen_so_far
from lastseen.answer import Answer
from lastseen.box import Box
from lastseen.index import Index
from lastseen.localizer import Localizer
from lastseen.progress import (
    ENCODED,
    LOCALIZED,
    LOOKING_CLOSER,
    MEASURING,
    PREPARING,
    READING,
    SEARCHING,
    SEGMENTED,
    Pace,
    Progress,
    Speeds,
    Tracker,
)
from lastseen.query import Query
from lastseen.refine import Extend, Mask, Verify, Zoom
from lastseen.seen_so_far import SeenSoFar
from lastseen.track import ResponseTrack
from lastseen.video import Video


class Clock:
    """Time that passes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def work(self, tracker: Tracker, kind: str, units: int, seconds: float) -> None:
        self.now += seconds
        tracker.did(kind, units)
        tracker.tell()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_time_left_counts_phases_that_have_not_begun(clock):
    told: list[Progress] = []
    tracker = Tracker(told.append, clock=clock)
    tracker.plan(SEARCHING, "video", {ENCODED: 12})
    tracker.plan(LOOKING_CLOSER, "zoom", {ENCODED: 24})
    tracker.begin(SEARCHING, "video", ENCODED)
    assert told == [Progress(SEARCHING, 0, 12, "frames", None)]  # nothing is measured yet
    for _ in range(3):
        clock.work(tracker, ENCODED, 4, 2.0)
    assert [one.left_s for one in told[1:]] == [16.0, 14.0, 12.0]
    tracker.finish(SEARCHING, "video")
    tracker.begin(LOOKING_CLOSER, "zoom", ENCODED)
    for _ in range(6):
        clock.work(tracker, ENCODED, 4, 4.0)  # twice as slow as the search was
    tracker.finish(LOOKING_CLOSER, "zoom")
    closer = [one for one in told if one.phase == LOOKING_CLOSER]
    assert [one.done for one in closer] == [0, 4, 8, 12, 16, 20, 24]
    assert {one.total for one in closer} == {24}
    left = [one.left_s for one in closer]
    assert left[1] > 20 * 0.5 and left[-2] > 4 * 0.5  # it notices
    assert left[-1] == 0.0


def test_what_takes_more_or_less_than_planned_never_exceeds_its_total(clock):
    told: list[Progress] = []
    tracker = Tracker(told.append, clock=clock)
    tracker.plan(LOOKING_CLOSER, "extend", {ENCODED: 8})
    tracker.plan(LOOKING_CLOSER, "zoom", {ENCODED: 30})
    tracker.begin(LOOKING_CLOSER, "extend", ENCODED)
    for _ in range(5):
        clock.work(tracker, ENCODED, 4, 1.0)  # 20 instead of 8
    tracker.finish(LOOKING_CLOSER, "extend")
    tracker.begin(LOOKING_CLOSER, "zoom", ENCODED)
    clock.work(tracker, ENCODED, 10, 1.0)  # 10 instead of 30
    tracker.finish(LOOKING_CLOSER, "zoom")
    assert all(one.done <= one.total for one in told)
    assert all(one.left_s for one in told[1:-1])  # never 0 before the end
    assert (told[-1].done, told[-1].total, told[-1].left_s) == (30, 30, 0.0)


def test_a_kind_of_work_that_was_not_measured_is_guessed_from_another(clock):
    speeds = Speeds()
    assert speeds.seconds_for({SEGMENTED: 1}) is None
    assert speeds.seconds_for({SEGMENTED: 0}) == 0.0
    speeds.add(ENCODED, 10, 1.0)
    assert speeds.seconds_for({ENCODED: 1, LOCALIZED: 1, SEGMENTED: 1}) == pytest.approx(0.1 + 0.02 + 0.5)
    speeds.add(SEGMENTED, 1, 2.0)
    assert speeds.seconds_for({SEGMENTED: 2}) == pytest.approx(4.0)


def test_a_cold_start_is_forgotten_and_recent_speeds_count_more():
    speeds = Speeds()
    speeds.add(ENCODED, 4, 60.0)
    speeds.add(ENCODED, 4, 4.0)
    assert speeds.seconds_for({ENCODED: 1}) == 1.0
    for _ in range(60):
        speeds.add(ENCODED, 4, 8.0)
    assert speeds.seconds_for({ENCODED: 1}) == pytest.approx(2.0, abs=0.1)


def test_the_time_that_a_callback_takes_is_no_work(clock):
    def slow(_: Progress) -> None:
        clock.now += 50.0

    tracker = Tracker(slow, clock=clock)
    tracker.plan(SEARCHING, "video", {ENCODED: 12})
    tracker.begin(SEARCHING, "video", ENCODED)
    for _ in range(2):
        clock.work(tracker, ENCODED, 4, 1.0)
    assert tracker.left_s == 1.0


def test_what_must_be_prepared_first_is_a_phase_of_its_own_and_slows_no_estimate(clock):
    told: list[Progress] = []
    tracker = Tracker(told.append, clock=clock)
    tracker.plan(SEARCHING, "video", {ENCODED: 16})
    tracker.begin(SEARCHING, "video", ENCODED)
    for _ in range(2):
        clock.work(tracker, ENCODED, 4, 1.0)
    with tracker.aside(PREPARING, "networks"):
        clock.now += 50.0
    clock.work(tracker, ENCODED, 4, 1.0)
    assert [(one.phase, one.done, one.total) for one in told[-4:]] == [
        (PREPARING, 0, 1),
        (PREPARING, 1, 1),
        (SEARCHING, 8, 16),
        (SEARCHING, 12, 16),
    ]
    assert tracker.left_s == 1.0


def test_work_that_counts_itself_gets_the_time_left(clock):
    told: list[Progress] = []
    pace = Pace(told.append, "evaluating", "clips", clock)
    for number in range(1, 4):
        clock.now += 10.0
        pace(number, 5)
    assert told[-1] == Progress("evaluating", 3, 5, "clips", 20.0)
    Pace(None, "evaluating", "clips")(1, 2)  # nobody listens


# --- the whole way ---


class Slow(Localizer):
    """Encoding takes a while, so that times can be compared on any machine."""

    def __init__(self, inner: Localizer) -> None:
        self.__dict__.update(inner.__dict__)

    def encode_pictures(self, pictures):
        time.sleep(0.02 * len(pictures))
        return super().encode_pictures(pictures)


class Squares:
    """A segmenter that finds what it is told is there."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.pause_s = pause_s

    def masks(self, pictures, boxes):
        time.sleep(self.pause_s * len(pictures))
        return [box_mask(picture, box) for picture, box in zip(pictures, boxes)]


@pytest.fixture(scope="module")
def localizer() -> Localizer:
    localizer = tiny()  # its threshold is 0: whatever comes closest is seen
    localizer._segmenter = Squares()
    return localizer.with_rule(replace(localizer.rule, refinement=(Zoom(), Verify(), Extend(), Mask())))


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Video:
    return Video(write_scene(tmp_path_factory.mktemp("scene") / "scene.mp4", PLACES))


def check_phases(told: list[Progress], *phases: str) -> None:
    """They come in this order, each is counted to its end, and the time left ends at 0."""
    assert list(dict.fromkeys(one.phase for one in told)) == list(phases)
    order = [phases.index(one.phase) for one in told]
    assert order == sorted(order)
    assert all(0 <= one.done <= one.total for one in told)
    for phase in phases:
        of_phase = [one for one in told if one.phase == phase]
        assert [one.done for one in of_phase] == sorted(one.done for one in of_phase)
        assert of_phase[-1].done == of_phase[-1].total
    assert told[-1].left_s == 0.0


def test_the_estimate_at_the_end_of_the_search_is_about_what_the_rest_takes(localizer, video):
    told: list[tuple[float, Progress]] = []
    slow = Slow(localizer)
    slow._segmenter = Squares(pause_s=0.04)
    slow.ask(video, Query.from_array(thing()), lambda one: told.append((time.monotonic(), one)))
    check_phases([one for _, one in told], SEARCHING, LOOKING_CLOSER, MEASURING)
    searched_at, searched = next((at, one) for at, one in told if (one.phase, one.done) == (SEARCHING, 26))
    took_s = told[-1][0] - searched_at
    assert 0.3 * took_s < searched.left_s < 3 * took_s


def test_several_questions_go_through_the_phases_together(localizer, video):
    told: list[Progress] = []
    said = []
    queries = [Query.from_array(thing()), Query.from_array(thing(8), asked_at=3.0)]
    answers = localizer.ask_many(video, queries, told.append, said.append)
    check_phases(told, SEARCHING, LOOKING_CLOSER, MEASURING)
    assert [answer.query for answer in said] == queries
    assert all(answer.preliminary and not answer.steps for answer in said)
    assert not any(answer.preliminary for answer in answers)


def test_the_first_pass_answers_before_anything_is_looked_at_closer(localizer, video):
    events: list[str] = []
    answers = []

    def so_far(answer):
        events.append("answer")
        answers.append(answer)

    final = localizer.ask(
        video, Query.from_array(thing()), lambda one: events.append(one.phase), preliminary=so_far
    )
    at = events.index("answer")
    assert set(events[:at]) == {SEARCHING} and SEARCHING not in events[at:]
    (first,) = answers
    assert first.found and final.found and first.curve is not None


def test_what_was_seen_is_told_while_a_long_video_is_searched(localizer, tmp_path, monkeypatch):
    video = Video(write_scene(tmp_path / "long.mp4", [*PLACES, *PLACES, *PLACES]))
    monkeypatch.setattr(seen_so_far, "EVERY_S", 0.0)
    monkeypatch.setattr(seen_so_far, "MOST_SHARE", 1e9)
    query = Query.from_array(thing())
    events: list[Answer | Progress] = []
    final = localizer.ask(video, query, events.append, events.append)
    said = [one for one in events if isinstance(one, Answer)]
    assert said[-1].searched_to_s == final.searched_to_s == pytest.approx(78 / 5)
    early = said[:-1]
    assert len(early) > 1 and all(one.preliminary and one.found and one.query is query for one in early)
    assert early[0].searched_to_s < 10 and early[-1].searched_to_s <= 78 / 5
    searched = max(n for n, one in enumerate(events) if isinstance(one, Progress) and one.phase == SEARCHING)
    assert events.index(early[0]) < searched
    assert final.last == localizer.ask(video, query).last


def test_what_was_seen_is_told_once_and_not_too_often(clock):
    asked, said = [], []
    answers = iter([(0, 5), (0, 5), (3, 9)])

    def answer(video, query, found):
        asked.append(clock.now)
        first, last = next(answers)
        clock.now += 1.0  # it took long
        track = ResponseTrack(
            first_frame=first, fps=5.0, boxes=(Box(0, 0, 9, 9),) * (last + 1 - first), score=1.0
        )
        return answer_of(video, [track])

    seen = SeenSoFar(answer, None, [None], said.append, clock)
    for _ in range(50):
        clock.now += 1.0
        seen(lambda: [[0]])
    assert asked == [102.0, 123.0, 144.0]  # looking took a second: at most a twentieth of the time
    assert [one.last.first_frame for one in said] == [0, 3]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("keep", ["full", "compact"])
def test_an_index_counts_its_phases_and_answers_early(localizer, video, tmp_path, keep):
    told: list[Progress] = []
    with Index(tmp_path / "index", localizer=localizer) as index:
        index.add(video.path, keep=keep, progress=told.append)
        check_phases(told, READING)
        assert told[-1].total == 26
        for exhaustive in (False, True):
            # Asked for one video only, an exhaustive search looks closer as it goes: it ends when it is sure.
            closer = () if exhaustive and keep == "full" else (LOOKING_CLOSER,)
            told.clear()
            said = []
            final = index.ask(
                Query.from_array(thing()),
                exhaustive=exhaustive,
                progress=told.append,
                preliminary=said.append,
            )
            assert final.found and not final.preliminary
            check_phases(told, SEARCHING, *closer, MEASURING)
            assert len(said) == 1 and said[0].preliminary and said[0].found


@pytest.mark.usefixtures("one_thread")
def test_every_video_is_looked_at_closer_after_all_were_searched(localizer, video, tmp_path):
    told: list[Progress] = []
    said = []
    other = write_scene(tmp_path / "other.mp4", [None] * 8 + [(100, 50)] * 6 + [None] * 4)
    with Index(tmp_path / "index", localizer=localizer) as index:
        index.add(video.path)
        index.add(other)
        found = index.ask_many(
            {"thing": Query.from_array(thing())},
            every=True,
            exhaustive=True,
            progress=told.append,
            preliminary=lambda name, answers: said.append((name, len(answers))),
        )
    assert len(found["thing"]) == 2
    check_phases(told, SEARCHING, LOOKING_CLOSER, MEASURING)
    assert next(one.total for one in told) == 26 + 18
    assert said == [("thing", 2)]

"""What is said of an answer: no more than is known."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from scenes import PLACES, THERE, box_at, quick_localizer, thing, write_scene

from lastseen import Answer, Query, ResponseTrack, Video
from lastseen.answer import VideoFacts
from lastseen.formats.answer_json import answer_json, parse_answer
from lastseen.words import answer_text, date_words, headline, tips_text

VIDEO = VideoFacts(path=Path("walk.mp4"), width=320, height=180, fps=30.0, duration_s=4.03)  # 21 samples
WHOLE, STOPPED = 4.2, 3.0  # searched, in seconds


def until(last_frame: int) -> ResponseTrack:
    return ResponseTrack(first_frame=last_frame - 4, fps=5.0, boxes=(box_at(THERE),) * 5, score=0.9)


@pytest.mark.parametrize(
    ("last_frame", "searched_s", "says"),
    [
        (20, WHOLE, "still in view when the video ends"),
        (20, None, "still in view when the video ends"),
        (19, WHOLE, None),
        (14, WHOLE, None),
        (14, STOPPED, "still in view where the search ends (0:03.0)"),
        (13, STOPPED, None),
    ],
)
def test_a_thing_in_view_to_the_end_of_the_search_is_said_to_be(last_frame, searched_s, says):
    answer = Answer(video=VIDEO, sightings=(until(last_frame),), searched_to_s=searched_s)
    for one in (answer, parse_answer(answer_json(answer))):
        assert one.still_in_view is (says is not None)
        for text in (answer_text(one), headline(one)):
            assert (says in text) if says else ("still" not in text)
    earlier = replace(answer, sightings=(until(6), until(20)))
    assert answer_text(earlier).count("still in view") == int(earlier.still_in_view)


def test_what_was_not_seen_is_not_still_in_view():
    answer = Answer(video=VIDEO, sightings=(), best_guess=until(20), searched_to_s=WHOLE)
    assert not answer.still_in_view and "still" not in answer_text(answer) + headline(answer)


@pytest.mark.usefixtures("one_thread", "remembered")
def test_a_search_knows_where_it_ended(tmp_path):
    video = Video(write_scene(tmp_path / "walk.mp4", PLACES))
    query, localizer = Query.from_array(thing()), quick_localizer()
    to_the_end, stopped = localizer.ask_many(video, [query, query.asked(4.0)])
    assert (to_the_end.searched_s, to_the_end.still_in_view) == (5.2, False)
    assert (stopped.searched_s, stopped.still_in_view, stopped.searched_to_end) == (4.0, True, False)


def test_a_date_is_only_as_sure_as_its_source():
    video = SimpleNamespace(name="walk.mp4", time_of=lambda _: datetime(2026, 11, 14, 9, 30))
    for source, sure in (("recorded", True), ("container", True), ("file time", False)):
        video.date_source = source
        words = date_words(video, 0.0)
        assert words.startswith("2026-11-14 at 09:30:00") and ("by the file's date" not in words) is sure


def test_the_tips_are_those_of_the_cookbook():
    cookbook = (Path(__file__).parents[1] / "docs" / "cookbook.md").read_text()
    for option in ("--box", "--at", "--threshold"):
        assert option in tips_text() and option in cookbook
    assert len(tips_text().splitlines()) == 5

"""A first question to a long file: a coarse look at some frames, the model where it is promising."""

import numpy as np
import pytest
from scenes import HERE, SIDE, THERE, box_at, quick_localizer, texture, thing, write_scene
from videos import overwrite_packets

from lastseen.procedure import Published
from lastseen.query import Query
from lastseen.search.ranking import by_rank
from lastseen.video import Video

pytestmark = pytest.mark.usefixtures("one_thread", "remembered_in_module")

PLACES = [None] * 20 + [HERE] * 7 + [None] * 43 + [THERE] * 6 + [None] * 74  # 5 frames a second


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return write_scene(tmp_path_factory.mktemp("scene") / "walk.mp4", PLACES)


@pytest.fixture(scope="module")
def localizer():
    return quick_localizer()


@pytest.fixture(scope="module")
def exhaustive(localizer, scene, remembered_in_module):
    return localizer.ask(Video(scene), Query.from_array(thing()), exhaustive=True)


def test_the_answer_is_that_of_an_exhaustive_search_for_fewer_frames(
    localizer, scene, exhaustive, monkeypatch
):
    counted = []
    encode = type(localizer).encode_pictures

    def counting(self, pictures):
        counted.append(len(pictures))
        return encode(self, pictures)

    monkeypatch.setattr(type(localizer), "encode_pictures", counting)
    told = []
    answer = localizer.ask(Video(scene), Query.from_array(thing()), None, told.append, candidates=2)
    assert answer.last == exhaustive.last
    assert answer.last.boxes[2].iou(box_at(THERE)) > 0.5
    assert sum(counted) < 0.9 * len(PLACES)
    assert answer.curve.searched.any() and not answer.curve.searched.all()
    assert told and all(one.preliminary for one in told) and not answer.preliminary
    ran = answer.curve.searched
    np.testing.assert_array_equal(answer.curve.scores[ran], exhaustive.curve.scores[ran])


def test_progress_goes_on_to_the_end(localizer, scene):
    told = []
    localizer.ask(Video(scene), Query.from_array(thing(), asked_at=12.0), told.append, candidates=1)
    assert {one.phase for one in told} >= {"searching"}
    assert all(one.done <= one.total for one in told)
    assert told[-1].done == told[-1].total


def test_several_questions_share_the_first_look(localizer, scene, exhaustive):
    earlier = Query.from_array(thing(), asked_at=12.0)
    nowhere = Query.from_array(texture(99, SIDE, SIDE, 4))
    both, before, none = localizer.ask_many(
        Video(scene), [Query.from_array(thing()), earlier, nowhere], candidates=2
    )
    assert both.last == exhaustive.last
    assert before.last.boxes[2].iou(box_at(HERE)) > 0.5 and before.last.end <= 12.0
    assert not none.found and none.best_guess is not None


def test_a_short_video_and_the_paper_s_procedure_are_searched_whole(localizer, scene):
    query = Query.from_array(thing(), asked_at=12.0)
    assert localizer.ask(Video(scene), query).curve.searched.all()
    paper = quick_localizer()
    paper.procedure = Published()
    assert paper.ask(Video(scene), query, candidates=1).curve.searched.all()


def test_all_sightings_are_asked_for_on_every_frame(localizer, scene, exhaustive):
    earlier = Query.from_array(thing(), asked_at=12.0)
    (found,) = localizer.locate_all(Video(scene), earlier)
    assert len(exhaustive.sightings) == 2 and found.boxes == exhaustive.sightings[0].boxes


def test_a_file_that_ends_early_is_searched_to_where_it_ends(localizer, tmp_path):
    damaged = write_scene(tmp_path / "cut.mp4", PLACES[:60])
    overwrite_packets(damaged, 50, 60, b"\xff")
    video = Video(damaged, allow_truncated=True)
    query = Query.from_array(thing())
    quick = localizer.ask(video, query, candidates=1)
    exact = localizer.ask(video, query, exhaustive=True)
    assert quick.last == exact.last and quick.unreadable_s == exact.unreadable_s


def test_clips_are_ranked_over_all_videos_and_neighbours_of_better_ones_later():
    first, second = np.array([0.1, 0.9, 0.8, 0.2]), np.array([0.5, 0.7])
    assert by_rank([first, second])[:3] == [(0, 1), (1, 1), (0, 2)]

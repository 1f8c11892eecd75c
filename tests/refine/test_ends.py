"""A sighting reaches as far as the thing is like itself, and no further."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from scenes import box_at, frames, quick_localizer, thing, write_scene
from videos import write_video

from lastseen.box import Letterbox
from lastseen.ends import AT_ONCE, PATIENCE, REACH, UNLIKE, Eye
from lastseen.evaluate.calibration import Answered, load_answered, save_answered
from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.index.search import search
from lastseen.query import Query
from lastseen.track import FramePredictions, ResponseTrack, TrackRule, all_tracks
from lastseen.video import Video

FRAMES, SIDE = 100, 8
BOX = (40.0, 40.0, 80.0, 80.0)  # patches 2 and 3 of 8 in either direction
SQUARE = Letterbox.square(160, 160, 8 * 14)


def world(shown: range | set[int], *, alike: float = 1.0) -> torch.Tensor:
    """Features in which the thing's patches, of two kinds, are in the box of some frames."""
    features = torch.zeros(FRAMES, 4, SIDE, SIDE)
    features[:, 3] = 1.0
    for frame in shown:
        features[frame, :, 2:4, 2:4] = torch.tensor([0, 0, np.sqrt(1 - alike**2), 0])[:, None, None]
        features[frame, 0, 2:4, 2] = features[frame, 1, 2:4, 3] = alike
    return features


def wide(shown: range | set[int]) -> torch.Tensor:
    """The same with patches a quarter as large: there is room to move."""
    return world(shown).repeat_interleave(4, 2).repeat_interleave(4, 3)


def moving(places: dict[int, int]) -> torch.Tensor:
    """A thing of which no two patches are alike, so many patches down and to the right."""
    features = wide(range(0)).repeat(1, 16, 1, 1)
    looks = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 8, 8))).float()
    for frame, at in places.items():
        features[frame, :, at : at + 8, at : at + 8] = looks
    return features


def said(first: int, last: int) -> FramePredictions:
    logits = np.full(FRAMES, -5.0)
    logits[first : last + 1] = 2.0
    return FramePredictions(fps=5.0, boxes_px=np.tile(np.array(BOX), (FRAMES, 1)), logits=logits)


def eye(predictions: FramePredictions, features: torch.Tensor) -> Eye:
    return Eye(predictions, SQUARE, lambda start, stop: features[start:stop])


def span(predictions: FramePredictions, features: torch.Tensor, least: float = 0.5) -> tuple[int, int]:
    (track,) = all_tracks(predictions)
    found = eye(predictions, features).followed([track], least)
    return found.spans[0]


def test_a_track_is_followed_to_where_the_thing_is_no_longer_there():
    assert span(said(40, 45), world(range(31, 62))) == (31, 61)


def test_what_is_not_there_beyond_the_track_leaves_it_as_it_is():
    assert span(said(40, 45), world(range(40, 46))) == (40, 45)


def test_the_first_and_the_last_frame_are_ends_too():
    assert span(said(5, 95), world(range(FRAMES))) == (0, FRAMES - 1)


def test_a_short_gap_is_passed_over_and_a_longer_one_is_an_end():
    gap = set(range(46, 46 + PATIENCE))
    assert span(said(40, 45), world(set(range(30, 60)) - gap)) == (30, 59)
    longer = gap | {46 + PATIENCE}
    assert span(said(40, 45), world(set(range(30, 60)) - longer)) == (30, 45)


def test_nothing_is_followed_for_ever():
    assert span(said(48, 50), world(range(FRAMES))) == (48 - REACH, 50 + REACH)


def test_how_alike_it_must_be_decides():
    features = world(range(30, 60), alike=0.6)
    features[40:46] = world(range(40, 46))[40:46]
    assert span(said(40, 45), features, least=0.55) == (30, 59)
    assert span(said(40, 45), features, least=0.65) == (40, 45)


def test_a_part_of_the_thing_is_not_the_thing():
    """Half of what the peak shows is half alike, however well that half fits."""
    features = world(range(30, 60))
    features[46:60, :, 2:4, 3] = torch.tensor([0.0, 0, 0, 1])[:, None]
    assert span(said(40, 45), features, least=0.6) == (30, 45)


def test_the_thing_is_looked_for_around_the_box_and_not_everywhere():
    features, moved = wide(range(40, 46)), wide(range(FRAMES))
    features[46:60] = moved[46:60].roll(1, dims=3)  # by a patch: still around the box
    features[30:40] = moved[30:40].roll(20, dims=3)
    assert span(said(40, 45), features) == (40, 59)


def test_a_thing_is_followed_where_it_goes_though_boxes_stay_behind():
    """Boxes are where they were, the thing moves on by a patch a frame, down and to the right."""
    features = moving({frame: 8 + max(0, frame - 45) for frame in range(40, 60)})
    predictions = said(40, 45)
    found = eye(predictions, features).followed(all_tracks(predictions), 0.5)
    assert found.spans == ((40, 59),)
    patch = 160 / 32
    for frame in range(46 + 8, 60):  # by then the box of old does not show it
        assert found.boxes_px[frame] == pytest.approx(np.array(BOX) + (frame - 45) * patch, abs=patch)
    assert np.array_equal(found.boxes_px[:46], predictions.boxes_px[:46])


def test_a_box_that_shows_the_thing_is_kept_however_far_it_jumped():
    features, predictions = wide(range(40, 46)), said(40, 45)
    features[46:50] = wide(range(FRAMES))[46:50].roll(16, dims=3)
    boxes_px = predictions.boxes_px.copy()
    boxes_px[46:50] += [80, 0, 80, 0]
    predictions = replace(predictions, boxes_px=boxes_px)
    found = eye(predictions, features).followed(all_tracks(predictions), 0.5)
    assert found.spans == ((40, 49),)
    assert np.array_equal(found.boxes_px, boxes_px)


def test_what_the_rest_of_the_frame_shows_as_well_is_not_followed():
    """A plain thing before a wall of its colour: everything is like it, everywhere."""
    features = world(range(FRAMES))
    features[46:] = features[45:46].roll(3, dims=3).maximum(features[45:46])
    assert span(said(40, 45), features) == (40 - REACH, 45)


def test_frames_that_nobody_looked_at_are_not_entered():
    predictions = said(40, 45)
    predictions.logits[50:] = -np.inf
    assert span(predictions, world(range(30, 60))) == (30, 49)


def test_few_frames_are_asked_for():
    asked = []
    features, predictions = world(range(40, 46)), said(40, 45)

    def read(start, stop):
        asked.append(stop - start)
        return features[start:stop]

    Eye(predictions, SQUARE, read).followed(all_tracks(predictions), 0.5)
    assert sum(asked) <= 1 + 2 * AT_ONCE


def test_boxes_of_another_track_stay_its_own():
    """The thing stays where it was, while another is seen elsewhere in the frame."""
    features, predictions = moving(dict.fromkeys(range(20, 60), 8)), said(20, 25)
    boxes_px = predictions.boxes_px.copy()
    boxes_px[40:46] += [80, 0, 80, 0]
    predictions.logits[40:46] = 2.2
    predictions = replace(predictions, boxes_px=boxes_px)
    found = eye(predictions, features).followed(all_tracks(predictions), 0.5)
    assert found.spans[0] == (20, 59)
    assert np.array_equal(found.boxes_px[40:46], boxes_px[40:46])


# --- doubts ---


def twice_said(second_logit: float) -> FramePredictions:
    predictions = said(20, 25)
    predictions.logits[60:66] = second_logit
    return predictions


def doubts(predictions: FramePredictions, features: torch.Tensor, least: float) -> FramePredictions:
    return eye(predictions, features).doubted(all_tracks(predictions), least)


def test_a_later_sighting_like_the_surest_one_is_not_in_doubt():
    found = doubts(twice_said(1.9), world({*range(20, 26), *range(60, 66)}), 0.6)
    assert found.doubts == ()
    assert [t.first_frame for t in all_tracks(found)] == [20, 60]


def test_a_later_sighting_that_is_unlike_the_surest_one_is_no_answer():
    features = world(range(20, 26))  # at 60 there is a wall
    found = doubts(twice_said(1.9), features, 0.6)
    ((first, last, loss),) = found.doubts
    assert (first, last, loss) == (60, 65, pytest.approx(UNLIKE * 0.6))
    assert [t.first_frame for t in all_tracks(found)] == [20]
    assert found.logits[62] == 1.9  # what the model said stays


def test_the_surest_one_is_not_in_doubt_wherever_it_is():
    features = world(range(20, 26))
    features[60:66, :, 2:4, 2:4] = torch.tensor([0.0, 0, 1, 0])[:, None, None]  # something else
    found = doubts(twice_said(2.5), features, 0.6)
    assert [(first, last) for first, last, _ in found.doubts] == [(20, 25)]
    assert [t.first_frame for t in all_tracks(found)] == [60]


def test_a_little_unlike_costs_little():
    features = world({*range(20, 26), *range(60, 66)}, alike=0.8)
    features[20:26] = world(range(20, 26))[20:26]
    ((_, _, loss),) = doubts(twice_said(1.9), features, 0.85).doubts
    assert loss == pytest.approx(UNLIKE * 0.05, abs=1e-4)


def test_one_good_frame_near_the_peak_is_enough():
    predictions = twice_said(1.9)
    predictions.logits[62] = 1.95
    features = world({*range(20, 26), 63})
    assert doubts(predictions, features, 0.6).doubts == ()


# --- what a span does to tracks ---


def test_a_track_that_peaks_in_a_span_reaches_through_it_and_joins_what_it_meets():
    predictions = said(40, 45)
    predictions.logits[30:35] = 2.0
    assert [(t.first_frame, t.last_frame) for t in all_tracks(predictions)] == [(30, 34), (40, 45)]
    reaching = replace(predictions, spans=((36, 50),))
    assert [(t.first_frame, t.last_frame) for t in all_tracks(reaching)] == [(30, 34), (36, 50)]
    joining = replace(predictions, spans=((32, 50),))
    assert [(t.first_frame, t.last_frame) for t in all_tracks(joining)] == [(30, 50)]


def test_one_span_joins_several_earlier_tracks():
    predictions = said(60, 65)
    predictions.logits[20:25] = predictions.logits[40:45] = 2.0
    (track,) = all_tracks(replace(predictions, spans=((18, 70),)))
    assert (track.first_frame, track.last_frame) == (18, 70)


def test_spans_and_doubts_are_kept_with_answers(tmp_path):
    kept = replace(said(40, 45), spans=((36, 50),), doubts=((60, 65, 1.5),))
    save_answered([Answered(video_uid="v", predictions=kept, truth=None)], tmp_path / "a.json.gz")
    (back,) = load_answered(tmp_path / "a.json.gz")
    assert back.predictions.spans == kept.spans
    assert back.predictions.doubts == kept.doubts


@pytest.mark.parametrize("name", ["like_itself", "like_surest"])
@pytest.mark.parametrize("wrong", [-0.1, 1.5, "much"])
def test_likeness_is_a_cosine(name, wrong):
    with pytest.raises(ValueError, match=f"{name} must be a number from 0 to 1, or null"):
        TrackRule(**{name: wrong})


# --- in a video ---

HERE = (60, 60)
PLACES = [None] * 10 + [HERE] * 14 + [None] * 16


@pytest.fixture(scope="module")
def localizer():
    localizer = quick_localizer()
    localizer.rule = replace(localizer.rule, like_itself=0.6)
    return localizer


def halved(predictions: FramePredictions) -> FramePredictions:
    """The thing is seen in the first half of its frames only."""
    logits = predictions.logits.copy()
    logits[17:24] = -9.0
    return replace(predictions, logits=logits, spans=())


def test_a_broken_sighting_is_made_whole_and_frames_of_the_background_are_not(localizer, tmp_path):
    video = Video(write_scene(tmp_path / "scene.mp4", PLACES))
    found = localizer.predict(video, [Query.from_array(thing())])[0]
    (whole,) = localizer.tracks(found)
    assert (whole.first_frame, whole.last_frame) == (10, 23)
    (broken,) = localizer.tracks(halved(found))
    assert broken.last_frame < 18
    features = localizer.features_of(video, len(found))
    (mended,) = localizer.tracks(localizer.follow(video, halved(found), features))
    assert (mended.first_frame, mended.last_frame) == (10, 23)
    assert mended.last_box.iou(box_at(HERE)) > 0.5


def test_without_a_rule_for_it_or_as_the_paper_nothing_is_followed(localizer, tmp_path):
    def never(start, stop):
        raise AssertionError

    plain = quick_localizer()
    assert plain.follow(None, said(40, 45), never).spans == ()
    plain.rule, plain.paper = localizer.rule, True
    assert plain.follow(None, said(40, 45), never).spans == ()


def test_an_index_follows_as_one_shot_does_into_clips_that_it_had_not_looked_at(localizer, tmp_path):
    localizer = copy.copy(localizer)
    localizer.rule = replace(localizer.rule, extent_ratio=0.9999)  # a track is hardly more than its peak
    path = write_scene(tmp_path / "scene.mp4", [None] * 40 + [HERE] * 40 + [None] * 10)
    query = Query.from_array(thing())
    (alone,) = localizer.predict(Video(path), [query])
    last = localizer.tracks(alone)[-1]
    assert (last.first_frame, last.last_frame) == (40, 79)
    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, path)
        (exact,) = search(index, localizer, {"it": query}, exhaustive=True)["it"]
        assert exact.predictions.spans == alone.spans
        (quick,) = search(index, localizer, {"it": query}, candidates=1)["it"]
        assert quick.tracks[-1] == exact.tracks[-1] == last
        assert not np.isfinite(quick.predictions.logits).all()


def test_a_later_look_alike_in_other_colours_is_not_the_answer(tmp_path):
    places = [*[None] * 4, *[HERE] * 6, *[None] * 4]
    repainted = [np.ascontiguousarray(picture[..., [1, 2, 0]]) for picture in frames(places)]
    path = write_video(tmp_path / "two.mp4", frames(places) + repainted, fps=5)
    query, localizer = Query.from_array(thing()), quick_localizer()
    localizer.rule = replace(localizer.rule, looks=2, like_surest=1.0)
    alone = localizer.predict(Video(path), [query])[0]
    assert [t.first_frame for t in localizer.tracks(replace(alone, doubts=()))] == [4, 18]
    assert [(t.first_frame, t.last_frame) for t in localizer.tracks(alone)] == [(4, 9)]
    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, path)
        (quick,) = search(index, localizer, {"it": query}, candidates=1)["it"]
        assert list(quick.tracks) == localizer.tracks(alone)


def test_a_look_alike_does_not_hide_what_another_video_showed_before_it(tmp_path):
    """Without a second look, too. One video is around the other in time, and ends with a look-alike."""
    places = [*[None] * 4, *[HERE] * 6, *[None] * 4]
    repainted = [np.ascontiguousarray(picture[..., [1, 2, 0]]) for picture in frames(places)]
    around = write_video(tmp_path / "around.mp4", frames(places) + frames([None] * 30) + repainted, fps=5)
    between = write_scene(tmp_path / "between.mp4", places)
    query, localizer = Query.from_array(thing()), quick_localizer()
    localizer.rule = replace(localizer.rule, like_surest=1.0)
    with Index(tmp_path / "index", create=True) as index:
        add_file(index, localizer, around, recorded=1000.0)
        add_file(index, localizer, between, recorded=1004.0)
        for how in ({"exhaustive": True}, {"candidates": 8}):
            (found,) = search(index, localizer, {"it": query}, **how)["it"]
            assert found.video.name == "between.mp4"


def test_a_track_needs_no_more_than_its_own_frames():
    track = ResponseTrack(first_frame=0, fps=5.0, boxes=(box_at(HERE),), score=0.9)
    lone = FramePredictions(fps=5.0, boxes_px=np.array([BOX]), logits=np.array([1.0]))
    found = eye(lone, world(range(1))).followed([track], 0.5)
    assert found.spans == ((0, 0),)

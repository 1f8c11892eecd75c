"""A sighting is extended as far as the thing looks like it does at the peak, and no further."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from evidence import BOX, FRAMES, Features, rule, seen, spans, world
from scenes import box_at, quick_localizer, thing, write_scene

from lastseen.access import VideoAccess, VideoFeatures
from lastseen.index import Index
from lastseen.procedure import Published, Standard
from lastseen.query import Query
from lastseen.refine import Extend, refine
from lastseen.sighting import Evidence
from lastseen.track import FramePredictions
from lastseen.video import Video

pytestmark = pytest.mark.usefixtures("one_thread", "remembered")

EXTEND = Extend(min_cosine=0.5)


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


def extended(evidence: Evidence, features: torch.Tensor, step: Extend = EXTEND) -> Evidence:
    return step(evidence, rule().extract, Features(features))


def span(evidence: Evidence, features: torch.Tensor, min_cosine: float = 0.5) -> tuple[int, int]:
    (found,) = extended(evidence, features, Extend(min_cosine=min_cosine)).extents
    return found


def test_a_sighting_is_extended_to_where_the_thing_is_no_longer_there():
    assert span(seen(40, 45), world(range(31, 62))) == (31, 61)
    assert span(seen(40, 45), world(range(40, 46))) == (40, 45)
    assert span(seen(5, 95), world(range(FRAMES))) == (0, FRAMES - 1)  # both ends of the video


def test_a_short_gap_is_passed_over_and_a_longer_one_is_an_end():
    gap = set(range(46, 46 + EXTEND.max_gap_frames))
    assert span(seen(40, 45), world(set(range(30, 60)) - gap)) == (30, 59)
    longer = gap | {46 + EXTEND.max_gap_frames}
    assert span(seen(40, 45), world(set(range(30, 60)) - longer)) == (30, 45)


def test_nothing_is_extended_for_ever():
    assert span(seen(48, 50), world(range(FRAMES))) == (48 - EXTEND.max_frames, 50 + EXTEND.max_frames)


def test_the_least_cosine_decides():
    features = world(range(30, 60), cosine=0.6)
    features[40:46] = world(range(40, 46))[40:46]
    assert span(seen(40, 45), features, min_cosine=0.55) == (30, 59)
    assert span(seen(40, 45), features, min_cosine=0.65) == (40, 45)


def test_a_part_of_the_thing_is_not_the_thing():
    """Half of what the peak shows has half the cosine, however well that half fits."""
    features = world(range(30, 60))
    features[46:60, :, 2:4, 3] = torch.tensor([0.0, 0, 0, 1])[:, None]
    assert span(seen(40, 45), features, min_cosine=0.6) == (30, 45)


def test_the_thing_is_looked_for_around_the_box_and_not_everywhere():
    features, moved = wide(range(40, 46)), wide(range(FRAMES))
    features[46:60] = moved[46:60].roll(1, dims=3)  # by a patch: still around the box
    features[30:40] = moved[30:40].roll(20, dims=3)
    assert span(seen(40, 45), features) == (40, 59)


def test_a_thing_is_followed_where_it_goes_though_boxes_stay_behind():
    """Boxes are where they were, the thing moves on by a patch a frame, down and to the right."""
    features = moving({frame: 8 + max(0, frame - 45) for frame in range(40, 60)})
    evidence = seen(40, 45)
    found = extended(evidence, features)
    assert found.extents == ((40, 59),)
    patch = 160 / 32
    for frame in range(46 + 8, 60):  # by then the box of old does not show it
        assert found.boxes_px[frame] == pytest.approx(np.array(BOX) + (frame - 45) * patch, abs=patch)
    assert np.array_equal(found.boxes_px[:46], evidence.boxes_px[:46])


def test_a_box_that_shows_the_thing_is_kept_however_far_it_jumped():
    features, evidence = wide(range(40, 46)), seen(40, 45)
    features[46:50] = wide(range(FRAMES))[46:50].roll(16, dims=3)
    boxes_px = evidence.boxes_px.copy()
    boxes_px[46:50] += [80, 0, 80, 0]
    found = extended(replace(evidence, boxes_px=boxes_px), features)
    assert found.extents == ((40, 49),)
    assert np.array_equal(found.boxes_px, boxes_px)


def test_what_the_rest_of_the_frame_shows_as_well_is_no_reason_to_extend():
    """A plain thing before a wall of its colour: everything is similar, everywhere."""
    features = world(range(FRAMES))
    features[46:] = features[45:46].roll(3, dims=3).maximum(features[45:46])
    assert span(seen(40, 45), features) == (40 - EXTEND.max_frames, 45)


def test_frames_on_which_the_model_did_not_run_are_not_entered():
    evidence = seen(40, 45)
    evidence.logits[50:] = -np.inf
    assert span(evidence, world(range(30, 60))) == (30, 49)


def test_few_frames_are_read():
    video = Features(world(range(40, 46)))
    EXTEND(seen(40, 45), rule().extract, video)
    assert video.frames_read <= 1 + 2 * EXTEND.batch_frames


def test_boxes_of_another_sighting_stay_its_own():
    """The thing stays where it was, while another is seen elsewhere in the frame."""
    features, evidence = moving(dict.fromkeys(range(20, 60), 8)), seen(20, 25)
    boxes_px = evidence.boxes_px.copy()
    boxes_px[40:46] += [80, 0, 80, 0]
    evidence.logits[40:46] = 2.2
    found = extended(replace(evidence, boxes_px=boxes_px), features)
    assert found.extents[0] == (20, 59)
    assert np.array_equal(found.boxes_px[40:46], boxes_px[40:46])


def test_a_video_of_one_frame_is_extended_by_nothing():
    lone = Evidence(fps=5.0, boxes_px=np.array([BOX]), logits=np.array([1.0]))
    assert extended(lone, world(range(1))).extents == ((0, 0),)


def test_a_sighting_that_peaks_in_an_extent_reaches_through_it_and_joins_what_it_meets():
    evidence = seen(40, 45)
    evidence.logits[30:35] = 2.0
    assert spans(evidence) == [(30, 34), (40, 45)]
    assert spans(replace(evidence, extents=((36, 50),))) == [(30, 34), (36, 50)]
    assert spans(replace(evidence, extents=((32, 50),))) == [(30, 50)]
    several = seen(60, 65)
    several.logits[20:25] = several.logits[40:45] = 2.0
    assert spans(replace(several, extents=((18, 70),))) == [(18, 70)]


def test_the_least_cosine_is_a_cosine():
    for wrong in (-0.1, 1.5, "much"):
        with pytest.raises(ValueError, match=r"extend.min_cosine must be a number from 0 to 1"):
            Extend(min_cosine=wrong)


# --- in a video ---

HERE = (60, 60)
PLACES = [None] * 10 + [HERE] * 14 + [None] * 16


@pytest.fixture(scope="module")
def localizer():
    plain = quick_localizer()
    return plain.with_rule(plain.rule.with_step("extend", min_cosine=0.6))


def test_a_broken_sighting_is_made_whole_and_the_predictions_stay_as_they_are(localizer, tmp_path):
    video, query = Video(write_scene(tmp_path / "scene.mp4", PLACES)), Query.from_array(thing())
    (whole,) = localizer.locate_all(video, query)
    assert (whole.first_frame, whole.last_frame) == (10, 23)
    (predictions,) = localizer.predict(video, [query])
    predictions.logits[17:24] = -9.0  # seen in the first half of its frames only
    before = predictions.logits.copy()
    ((broken,), _) = localizer.procedure.tracks(Evidence.of(predictions))
    assert broken.last_frame < 18
    (evidence,) = localizer.refine(video, [query], [predictions])
    ((mended,), _) = localizer.procedure.tracks(evidence)
    assert (mended.first_frame, mended.last_frame) == (10, 23)
    assert mended.last_box.iou(box_at(HERE)) > 0.5
    assert np.array_equal(predictions.logits, before)
    encoded = localizer.encode_query(query)
    features = VideoFeatures(localizer, lambda: video, len(predictions), 64)
    access = VideoAccess(localizer, video, encoded, features.read, lambda: video)
    left_out = refine(predictions, localizer.rule.refinement, localizer.rule.extract, access, skip={"extend"})
    assert left_out.extents == ()


def test_without_a_step_for_it_or_by_the_papers_procedure_nothing_is_refined():
    said = FramePredictions(fps=5.0, boxes_px=seen(40, 45).boxes_px, logits=seen(40, 45).logits)
    for procedure in (Standard(), Published()):
        evidence = procedure.refine(said, None)
        assert (evidence.extents, evidence.penalties) == ((), ())
        assert evidence.logits is said.logits


def test_an_index_extends_as_one_search_does_into_clips_on_which_the_model_did_not_run(localizer, tmp_path):
    tight = replace(localizer.rule, extraction=replace(localizer.rule.extraction, extent_ratio=0.9999))
    localizer = localizer.with_rule(tight)  # a sighting is hardly more than its peak
    path = write_scene(tmp_path / "scene.mp4", [None] * 40 + [HERE] * 40 + [None] * 10)
    query = Query.from_array(thing())
    last = localizer.locate(Video(path), query)
    assert (last.first_frame, last.last_frame) == (40, 79)
    with Index(tmp_path / "index", localizer=localizer) as index:
        index.add(path)
        exact = index.ask(query, exhaustive=True)
        (quick,) = index.ask_many({"it": query}, candidates=1)["it"]
        assert quick.last == exact.last == last
        assert exact.curve.searched.all()
        assert not quick.curve.searched.all()

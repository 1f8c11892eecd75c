"""Sightings that do not look like the most confident one lose confidence."""

import numpy as np
import pytest
import torch
from evidence import Features, rule, seen, spans, world
from scenes import frames, quick_localizer, thing, write_scene
from videos import write_video

from lastseen.index import Index
from lastseen.query import Query
from lastseen.refine import Verify
from lastseen.sighting import Evidence
from lastseen.video import Video

pytestmark = pytest.mark.usefixtures("one_thread", "remembered")
PENALTY = Verify().logit_per_cosine


def twice(second_logit: float) -> Evidence:
    evidence = seen(20, 25)
    evidence.logits[60:66] = second_logit
    return evidence


def verified(evidence: Evidence, features: torch.Tensor, min_cosine: float) -> Evidence:
    return Verify(min_cosine=min_cosine)(evidence, rule().extract, Features(features))


def test_a_later_sighting_that_looks_like_the_most_confident_one_is_not_penalised():
    found = verified(twice(1.9), world({*range(20, 26), *range(60, 66)}), 0.6)
    assert found.penalties == ()
    assert spans(found) == [(20, 25), (60, 65)]


def test_a_later_sighting_that_looks_different_is_no_answer():
    found = verified(twice(1.9), world(range(20, 26)), 0.6)  # at 60 there is a wall
    ((first, last, loss),) = found.penalties
    assert (first, last, loss) == (60, 65, pytest.approx(PENALTY * 0.6))
    assert spans(found) == [(20, 25)]
    assert found.logits[62] == 1.9  # penalties stand beside the logits


def test_the_most_confident_one_is_not_penalised_wherever_it_is():
    features = world(range(20, 26))
    features[60:66, :, 2:4, 2:4] = torch.tensor([0.0, 0, 1, 0])[:, None, None]  # something else
    found = verified(twice(2.5), features, 0.6)
    assert [(first, last) for first, last, _ in found.penalties] == [(20, 25)]
    assert spans(found) == [(60, 65)]


def test_a_small_difference_costs_little():
    features = world({*range(20, 26), *range(60, 66)}, cosine=0.8)
    features[20:26] = world(range(20, 26))[20:26]
    ((_, _, loss),) = verified(twice(1.9), features, 0.85).penalties
    assert loss == pytest.approx(PENALTY * 0.05, abs=1e-4)


def test_one_good_frame_near_the_peak_is_enough():
    evidence = twice(1.9)
    evidence.logits[62] = 1.95
    assert verified(evidence, world({*range(20, 26), 63}), 0.6).penalties == ()


def test_the_least_cosine_is_a_cosine():
    for wrong in (-0.1, 1.5, "much"):
        with pytest.raises(ValueError, match=r"verify.min_cosine must be a number from 0 to 1"):
            Verify(min_cosine=wrong)


# --- in videos ---

HERE = (60, 60)
PLACES = [*[None] * 4, *[HERE] * 6, *[None] * 4]


@pytest.fixture(scope="module")
def repainted() -> list[np.ndarray]:
    return [np.ascontiguousarray(picture[..., [1, 2, 0]]) for picture in frames(PLACES)]


def test_a_later_look_alike_in_other_colours_is_not_the_answer(repainted, tmp_path):
    path = write_video(tmp_path / "two.mp4", frames(PLACES) + repainted, fps=5)
    query, plain = Query.from_array(thing()), quick_localizer()
    zooming = plain.rule.with_step("zoom", sightings=2)
    assert [t.first_frame for t in plain.with_rule(zooming).locate_all(Video(path), query)] == [4, 18]
    localizer = plain.with_rule(zooming.with_step("verify", min_cosine=1.0))
    alone = localizer.ask(Video(path), query)
    assert [(t.first_frame, t.last_frame) for t in alone.sightings] == [(4, 9)]
    with Index(tmp_path / "index", localizer=localizer) as index:
        index.add(path)
        (quick,) = index.ask_many({"it": query}, candidates=1)["it"]
        assert quick.sightings == alone.sightings


def test_a_look_alike_does_not_hide_what_another_video_showed_before_it(repainted, tmp_path):
    """Without zoom, too. One video is around the other in time, and ends with a look-alike."""
    around = write_video(tmp_path / "around.mp4", frames(PLACES) + frames([None] * 30) + repainted, fps=5)
    between = write_scene(tmp_path / "between.mp4", PLACES)
    query, plain = Query.from_array(thing()), quick_localizer()
    localizer = plain.with_rule(plain.rule.with_step("verify", min_cosine=1.0))
    with Index(tmp_path / "index", localizer=localizer) as index:
        index.add(around, recorded=1e9)
        index.add(between, recorded=1e9 + 4.0)
        for how in ({"exhaustive": True}, {"candidates": 8}):
            (found,) = index.ask_many({"it": query}, **how)["it"]
            assert found.video.name == "between.mp4"

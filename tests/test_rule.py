"""A rule is kept as rule.json, and rules of version 1 are still read."""

import json

import pytest

from lastseen.errors import WeightsError
from lastseen.refine import Extend, Verify, Zoom
from lastseen.rule import Rule
from lastseen.sighting import Confidence, Extraction
from lastseen.weights import bundled_model, load_rule, save_rule

VERSION_1 = {
    "gain": 1.0,
    "shift": 2.0,
    "median": 5,
    "peak_ratio": 0.8,
    "extent_ratio": 0.7,
    "box_median": 1,
    "slope": 1.5589792524909767,
    "offset": -2.0840496471752736,
    "length_cost": 0.5,
    "threshold": 0.5,
    "looks": 2,
    "like_itself": 0.52,
    "like_surest": 0.6,
}


def test_the_bundled_rule_is_what_it_was_in_version_1():
    assert load_rule(bundled_model()) == Rule.from_dict(VERSION_1)


def test_a_rule_goes_to_json_and_back(tmp_path):
    rule = Rule(
        extraction=Extraction(gain=0.7, box_median_frames=1),
        confidence=Confidence(slope=2.0, search_length_penalty=0.5),
        refinement=(Zoom(sightings=3), Verify(min_cosine=0.7), Extend(max_frames=10)),
    )
    save_rule(rule, tmp_path)
    assert load_rule(tmp_path) == rule
    assert Rule.from_dict(json.loads(json.dumps(Rule().to_dict()))) == Rule()


def test_a_rule_with_a_drop_goes_to_json_and_back_and_files_without_one_have_none(tmp_path):
    for drop in (None, 2.0):
        folder = tmp_path / str(drop)
        folder.mkdir()
        rule = Rule(extraction=Extraction(extent_drop=drop))
        save_rule(rule, folder)
        assert load_rule(folder) == rule
        assert load_rule(folder).extraction.extent_drop == drop
    old = Rule(extraction=Extraction(gain=0.7)).to_dict()
    del old["extraction"]["extent_drop"]
    assert Rule.from_dict(old) == Rule(extraction=Extraction(gain=0.7))
    assert Rule.from_dict(VERSION_1).extraction.extent_drop is None
    (tmp_path / "rule.json").write_text(json.dumps({**old, "extraction": {"extent_drop": "2"}}))
    with pytest.raises(WeightsError, match="extent_drop must be a number above 0, or null, got '2'"):
        load_rule(tmp_path)


def test_a_model_without_a_rule_has_the_default(tmp_path):
    assert load_rule(tmp_path) == Rule()


def test_a_rule_that_cannot_be_read_is_one_line_with_a_remedy(tmp_path):
    for wrong, says in (
        ("{", "not a rule"),
        ("[]", "expected an object"),
        ('{"gian": 1}', "unknown gian"),
        ('{"schema": "lastseen/rule@9"}', "is lastseen/rule@9, this lastseen reads lastseen/rule@2"),
        ('{"schema": "lastseen/rule@2", "refinement": {"blur": {}}}', "unknown blur"),
        ('{"schema": "lastseen/rule@2", "extraction": {"gian": 1}}', "gian"),
        ('{"median": 0}', "median_frames must be a whole number"),
        ('{"looks": -1}', "zoom.sightings must be a whole number"),
        ('{"like_itself": 2}', "extend.min_cosine must be a number from 0 to 1"),
    ):
        (tmp_path / "rule.json").write_text(wrong)
        with pytest.raises(WeightsError, match="lastseen calibrate") as caught:
            load_rule(tmp_path)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)


def test_steps_are_added_changed_and_left_out_by_name():
    rule = Rule().with_step("extend", min_cosine=0.5).with_step("zoom", sightings=3)
    assert [step.name for step in rule.refinement] == ["zoom", "extend"]  # in their usual order
    assert rule.with_step("zoom", sightings=None) == rule
    assert rule.with_step("zoom", sightings=0).refinement == (Extend(min_cosine=0.5),)
    assert rule.without(["extend"]).refinement == (Zoom(sightings=3),)
    with pytest.raises(ValueError, match="no such refinement step: blur"):
        rule.without(["blur"])

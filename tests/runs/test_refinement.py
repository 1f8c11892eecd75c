"""Steps of refinement, measured one by one, on parts of sets that are judged together."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from refinement import answers, name_of, part, print_table, refined, rows

from lastseen.box import Box
from lastseen.evaluate.calibration import Answered, rule_key, save_answered
from lastseen.rule import Rule
from lastseen.sighting import Evidence
from lastseen.track import FramePredictions, ResponseTrack
from lastseen.weights import bundled_model, load_rule

FRAMES = 40
TRUTH = ResponseTrack(first_frame=10, fps=5.0, boxes=(Box(10, 10, 90, 90),) * 8, score=1.0)


def answered(video: str, truth: ResponseTrack | None = TRUTH, *, plain: bool = False, row: str = "all"):
    logits = np.full(FRAMES, -6.0)
    logits[10:18] = 4.0 if truth else -4.0
    evidence = Evidence(fps=5.0, boxes_px=np.tile([10.0, 10, 90, 90], (FRAMES, 1)), logits=logits)
    key = rule_key(rows(load_rule(bundled_model()))[row])
    return Answered(video_uid=video, evidence=evidence, truth=truth, refined_by=key, plain=plain)


def test_each_row_has_one_step_more():
    rule = load_rule(bundled_model())
    steps = {name: [step.name for step in made.refinement] for name, made in rows(rule, masks=True).items()}
    assert steps == {
        "none": [],
        "zoom": ["zoom"],
        "zoom-verify": ["zoom", "verify"],
        "all": ["zoom", "verify", "extend"],
        "mask": ["zoom", "verify", "extend", "mask"],
    }
    assert list(rows(rule.without(["zoom", "verify", "extend"]))) == ["all"]


@dataclass(frozen=True)
class Higher:
    """A step that raises all logits."""

    name: str
    by: float

    def __call__(self, evidence, extract, video):
        return replace(evidence, logits=evidence.logits + self.by)


def test_a_row_is_what_its_rule_alone_would_give():
    rule = Rule(refinement=(Higher("zoom", 1.0), Higher("verify", 2.0), Higher("extend", 4.0)))
    said = FramePredictions(fps=5.0, boxes_px=np.zeros((3, 4)), logits=np.array([-1.0, 0, 1]))
    made = rows(rule)
    found = dict(refined(said, made, video=None))
    for name, alone in made.items():
        assert np.array_equal(found[name].logits, alone.refine(said, None).logits)
    assert [evidence.logits[1] for evidence in found.values()] == [0, 1, 3, 7]


def test_parts_are_named_by_their_number_and_must_be_in_range():
    assert part("1/4") == (1, 4)
    assert name_of(Path("sets/val"), (1, 4)) == "val.1" and name_of(Path("sets/val"), (0, 1)) == "val"
    for wrong in ("4/4", "-1/4", "1", "a/b"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected K/N"):
            part(wrong)


def test_the_table_judges_parts_as_one_set_and_plain_things_apart(tmp_path, capsys):
    save_answered([answered("a", plain=True), answered("a", None)], tmp_path / "val.0-photo@all.json.gz")
    save_answered([answered("b")], tmp_path / "val.1-photo@all.json.gz")
    save_answered([answered("c", row="none")], tmp_path / "val.1-photo@none.json.gz")
    assert [one.video_uid for one in answers(tmp_path, "val-photo", "all")] == ["a", "a", "b"]
    print_table(tmp_path, None, [])
    lines = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()]
    head, found = lines[0], {(line[1], line[2]): line for line in lines[2:] if line[1]}
    assert set(found) == {("val-photo", row) for row in ("none", "all", "all, no length penalty")}
    of_all = dict(zip(head, found["val-photo", "all"]))
    assert of_all["success"].startswith("100.0") and of_all["present refused, absent seen %"] == "0.0, 0.0"
    assert any(line[2] == "plain, 1" for line in lines)

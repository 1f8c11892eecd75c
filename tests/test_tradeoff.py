"""The accuracy-speed figure shows what the JSON of a run says, and nothing else."""

import json
import math
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[1] / "docs"))
    from make_tradeoff import PAPER, SCHEMA, drawing_of, label_of, main, radius_of

SVG = "{http://www.w3.org/2000/svg}"


def estimate(value):
    return {"value": value, "low": value - 0.05, "high": value + 0.05}


RUN = {
    "schema": SCHEMA,
    "machine": "imagined GPU",
    "rows": [
        {"name": "siamrcnn-448", "weights": 26_000_000, "first_fps": 100.0, "further_fps": 10_000.0,
         "stap25": estimate(0.2), "set": "rooms12"},
        {"name": "bundled", "weights": 104_000_000, "first_fps": 1000.0, "further_fps": 20_000.0,
         "stap25": estimate(0.6), "set": "rooms12"},
        {"name": "stark-448", "weights": 30_000_000, "first_fps": 900.0, "further_fps": 1500.0},
    ],
}  # fmt: skip


def circles(drawing):
    """Of the run's panel: filled (first question) or not -> centre and radius"""
    tree = ElementTree.fromstring(drawing.svg())
    found = [
        (float(c.get("cx")), float(c.get("cy")), float(c.get("r")), "fill-opacity" in c.get("style"))
        for c in tree.iter(f"{SVG}circle")
    ]
    return found[: -len(PAPER)], found[-len(PAPER) :]


def test_every_answered_method_is_a_pair_of_circles_and_the_others_are_named():
    drawing, absent = drawing_of(RUN)
    ours, paper = circles(drawing)
    assert absent == ["stark-448"]
    assert [filled for *_, filled in ours] == [False, True] * 2
    assert len(paper) == 6
    text = drawing.svg()
    assert "SiamRCNN, 448 px" in text and "imagined GPU" in text and "rooms12" in text
    assert "STARK, 448 px" not in text


def test_faster_is_further_right_and_better_higher_and_area_is_weights():
    (_, first, _, other), _ = circles(drawing_of(RUN)[0])
    assert first[0] < other[0] and first[1] > other[1]
    assert other[2] / first[2] == pytest.approx(2, abs=0.02)  # four times the weights
    assert radius_of(101.5e6) / radius_of(36.2e6) == pytest.approx(math.sqrt(101.5 / 36.2))
    # Ten times as fast is a decade of the axis, as is the step from 1,000 to 10,000.
    (further, start, *_), _ = circles(drawing_of(RUN)[0])
    assert (further[0] - start[0]) / 2 == pytest.approx(other[0] - start[0], abs=0.2)


def test_the_papers_points_are_those_of_its_figure():
    points = {point.name: (point.fps, point.stap25_percent) for point in PAPER}
    assert points["VQLoC, ViT-B"] == (36, 22.0) and points["SiamRCNN"] == (3, 15.0)
    sizes = {point.name: point.weights for point in PAPER}
    assert sizes["VQLoC, ViT-B"] / sizes["VQLoC, ViT-S"] == pytest.approx(2.8, abs=0.01)


def test_names_of_folders_become_those_of_methods():
    assert [label_of(name) for name in ("nfm-896", "stark-positions-448", "bundled", "mine")] == [
        "NFM, 896 px", "STARK with positions, 448 px", "lastseen", "mine",
    ]  # fmt: skip


def test_the_script_writes_the_picture_and_refuses_another_file(tmp_path, monkeypatch, capsys):
    run, picture = tmp_path / "speed.json", tmp_path / "tradeoff.svg"
    run.write_text(json.dumps(RUN))
    monkeypatch.setattr(sys, "argv", ["make_tradeoff.py", str(run), str(picture)])
    main()
    assert "without stark-448" in capsys.readouterr().out
    assert len(re.findall("<circle", picture.read_text())) == 10
    run.write_text("{}")
    with pytest.raises(SystemExit, match="expected schema"):
        main()

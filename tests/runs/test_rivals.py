"""What the scripts of the rivals keep, carry and judge."""

import json
import sys

import numpy as np
import pytest
import rivals
import rivals_answers
from models import TINY
from scenes import PLACES, scene_annotations, write_scene
from scipy.special import logit

from lastseen.baselines.siamrcnn import SiamRCNNConfig
from lastseen.baselines.stark import Stark, StarkConfig
from lastseen.baselines.stored import AfterPeak, load_after_peak, load_rival, make_rival, save_rival
from lastseen.box import Box
from lastseen.evaluate.calibration import Answered, save_answered
from lastseen.sighting import Evidence
from lastseen.track import ResponseTrack

SMALL = {"backbone": TINY, "image_size": 112, "query_size": 56, "channels": 16, "hidden": 16, "proposals": 20}


def small_rival():
    return make_rival(SiamRCNNConfig(**SMALL))


def track(first, last, score=0.5, x=10):
    boxes = tuple(Box(x, 10, x + 60, 70) for _ in range(first, last + 1))
    return ResponseTrack(first_frame=first, fps=5.0, boxes=boxes, score=score)


def call(monkeypatch, module, *arguments):
    monkeypatch.setattr(sys, "argv", ["script", *map(str, arguments)])
    module.main()


def test_a_folder_comes_out_of_its_pieces_as_it_went_in(tmp_path, monkeypatch):
    folder, parts = tmp_path / "siamrcnn-448", tmp_path / "parts"
    save_rival(small_rival(), AfterPeak(least_score=0.3), folder)
    monkeypatch.setattr(rivals, "PART_BYTES", 100_000)
    rivals.split(folder, parts, slice(0, 2))
    assert len(list(parts.iterdir())) == 2
    rivals.split(folder, parts, slice(2, None))
    pieces = sorted(parts.iterdir())
    assert len(pieces) > 3 and all(piece.stat().st_size <= 100_000 for piece in pieces)
    rivals.join(parts, tmp_path / "joined")
    joined = tmp_path / "joined" / folder.name
    assert all((joined / name).read_bytes() == (folder / name).read_bytes() for name in rivals.FILES)
    assert load_rival(joined)[1].least_score == 0.3


@pytest.mark.parametrize("missing", [0, 1, -1])
def test_pieces_that_are_not_all_there_make_no_folder(tmp_path, monkeypatch, capsys, missing):
    save_rival(small_rival(), AfterPeak(), tmp_path / "nfm-448")
    monkeypatch.setattr(rivals, "PART_BYTES", 100_000)
    rivals.split(tmp_path / "nfm-448", tmp_path / "parts")
    sorted((tmp_path / "parts").iterdir())[missing].unlink()
    rivals.join(tmp_path / "parts", tmp_path / "joined")
    assert "nfm-448 is not whole" in capsys.readouterr().out
    assert not (tmp_path / "joined" / "nfm-448").exists()


def test_what_is_saved_is_half_as_large_and_the_same_to_three_digits(tmp_path):
    model = small_rival()
    exact = {name: value.clone() for name, value in model.state_dict().items()}
    save_rival(rivals.halved(model), AfterPeak(), tmp_path / "model")
    loaded = load_rival(tmp_path / "model")[0].state_dict()
    assert all(np.allclose(loaded[name], value, rtol=1e-3, atol=1e-6) for name, value in exact.items())
    bytes_ = sum(value.numel() * 4 for value in exact.values())
    assert (tmp_path / "model" / "model.safetensors").stat().st_size < 0.55 * bytes_


def test_the_table_ranks_by_own_scores_and_as_published(tmp_path, monkeypatch, capsys):
    answers = [
        rivals_answers.Answer(video_uid="a", truth=track(10, 19), track=track(10, 19, 0.9)),
        rivals_answers.Answer(video_uid="b", truth=track(10, 19), track=track(40, 49, 0.1)),
        rivals_answers.Answer(video_uid="b", truth=None, track=track(5, 6, 0.4)),
    ]
    out = tmp_path / "answers"
    out.mkdir()
    rivals_answers.save(answers, out / "nfm-448+ends@rooms.json")
    call(monkeypatch, rivals_answers, "table", "--out", out, "--json", tmp_path / "results.json")
    row = json.loads((tmp_path / "results.json").read_text())["nfm-448+ends@rooms"]
    assert row["groups"]["all"]["stap25"]["value"] == 0.5
    assert row["groups"]["all"]["stap25_unranked"]["value"] == 0.25
    assert row["auroc_present_absent"]["value"] == 0.5
    printed = capsys.readouterr().out
    assert "| rooms | nfm-448+ends |" in printed


def test_the_least_score_is_fitted_and_the_stop_is_taken_over(tmp_path, monkeypatch):
    """A peak of .45 is right; the published .5 would miss it and answer with the last frame."""
    folder, out = tmp_path / "siamrcnn-448", tmp_path / "answers"
    save_rival(small_rival(), AfterPeak(), folder)
    out.mkdir()
    scores = np.full(80, 0.02)
    scores[30:40] = 0.45
    evidence = Evidence(fps=5.0, boxes_px=np.tile([10.0, 10, 70, 70], (80, 1)), logits=logit(scores))
    save_answered(
        [Answered(video_uid="a", evidence=evidence, truth=track(30, 39))], out / "siamrcnn-448@val.json.gz"
    )
    stops = tmp_path / "stops.json"
    stops.write_text(json.dumps({"tracker": "particles", "best_stop": 0.6}))
    given = ("fit", "--set", tmp_path / "val", "--weights", folder, "--out", out, "--stops", stops)
    call(monkeypatch, rivals_answers, *given)
    after = load_after_peak(folder)
    assert (after.least_score, after.particles_stop, after.nano_stop) == (0.25, 0.6, 0.8)


def test_every_rival_gets_the_same_number_of_clips():
    arguments = rivals.parser().parse_args(["--out", "x"])
    clips = {
        name: (training := rivals.training_of(name, arguments)).steps * training.batch
        for name in rivals.STAGES
        if name != "proposals"
    }
    assert set(clips.values()) == {rivals.CLIPS}


def test_answers_are_kept_and_not_made_again(tmp_path, monkeypatch):
    """A set of one video, asked of a detector and of STARK, and judged together with itself."""
    monkeypatch.setattr("lastseen.baselines.proposals.BEFORE_NMS", 100)
    monkeypatch.setenv("LASTSEEN_ENGINE", "torch-fp32")
    for name in ("rooms1", "rooms2"):
        (tmp_path / name / "videos").mkdir(parents=True)
        write_scene(tmp_path / name / "videos" / "clip.mp4", PLACES)
        (tmp_path / name / "annotations.json").write_text(json.dumps(scene_annotations(range(16, 22))))
    save_rival(small_rival(), AfterPeak(), tmp_path / "siamrcnn-112")
    small = {"dim": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_hidden": 32, "decoder_hidden": 32}
    save_rival(
        Stark(StarkConfig(backbone=TINY, image_size=112, **small)), AfterPeak(), tmp_path / "stark-112"
    )
    out = tmp_path / "answers"
    command = ["answer", "--out", out, "--device", "cpu", "--tracker", "ends"]
    for name in ("rooms1", "rooms2"):
        command += ["--set", tmp_path / name]
    command += ["--weights", tmp_path / "siamrcnn-112", "--weights", tmp_path / "stark-112"]
    call(monkeypatch, rivals_answers, *command)
    made = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert set(made) == {
        f"{name}@{of_set}"
        for of_set in ("rooms1.json", "rooms2.json")
        for name in ("siamrcnn-112+ends", "stark-112")
    } | {"siamrcnn-112@rooms1.json.gz", "siamrcnn-112@rooms2.json.gz"}
    call(monkeypatch, rivals_answers, *command)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == made
    given = ("table", "--out", out, "--together", "rooms1", "rooms2", "--json", tmp_path / "results.json")
    call(monkeypatch, rivals_answers, *given)
    results = json.loads((tmp_path / "results.json").read_text())
    questions = {name: row["groups"]["all"]["questions"] for name, row in results.items()}
    assert questions["stark-112@rooms1"] == 1 and questions["siamrcnn-112+ends@rooms1+rooms2"] == 2

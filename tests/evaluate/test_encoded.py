"""Many heads on one encoding: the same answers as by the long way."""

import json

import numpy as np
import pytest
import torch

from lastseen.datasets.vq2d import load_absent, load_vq2d
from lastseen.evaluate.calibration import predict_all, unrefined
from lastseen.evaluate.encoded import EncodedSet, cross_fitted, in_advance, report
from lastseen.localizer import Localizer
from lastseen.model import BackboneConfig, SimilarityConfig, SimilarityModel, VQLoCConfig
from lastseen.refine import Extend, Verify, Zoom
from lastseen.rule import Rule
from lastseen.weights import load_rule, make_model, save_model
from lastseen_synth.dataset_writer import write_dataset
from lastseen_synth.episode import EpisodeSettings
from lastseen_synth.library import open_library

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = VQLoCConfig(backbone=BackboneConfig(dim=32, depth=1, heads=2), image_size=112, dim=32, clip_length=12)
OURS = SimilarityConfig(
    backbone=TINY.backbone,
    image_size=112,
    dim=32,
    clip_length=12,
    query_scales=(1.0, 0.5),
    query_size=56,
    skip_connection=False,
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("set")
    settings = EpisodeSettings(
        width_px=160, height_px=120, fps=5.0, duration_s=(6.0, 6.0), things=(2, 3), antialias=False,
        max_triangles=15_000,
    )  # fmt: skip
    write_dataset(root, lambda: open_library("val"), split="val", episodes=2, seed=3, settings=settings)
    return root


@pytest.mark.parametrize("config", [TINY, OURS], ids=["paper", "ours"])
def test_answers_from_features_are_those_from_the_video(dataset, config):
    torch.manual_seed(0)
    model = make_model(config).eval()
    with torch.no_grad():
        model.head.score.weight.normal_(std=0.5)
    annotations, absent = load_vq2d(dataset / "annotations.json"), load_absent(dataset / "absent.json")
    encoded = EncodedSet.of(annotations, dataset / "videos", absent, model.backbone, config, "cpu")
    fast = encoded.answer(model)
    localizer = Localizer(model)
    slow = unrefined(predict_all(localizer, annotations, dataset / "videos", absent))
    for clip in encoded.clips:
        assert clip.queries.shape[1:] == (len(config.query_scales), 32, config.query_side, config.query_side)
        places = zip(clip.query_boxes_unit, clip.query_shown_unit, strict=True)
        for query, (box, shown), asked in zip(clip.queries, places, clip.asked, strict=True):
            with torch.no_grad():
                view = model.encode_query_features(query[None].float(), box[None], shown[None]).row(0)
            wanted = localizer.encode_query(asked)[0]
            torch.testing.assert_close(view.vectors, wanted.vectors, rtol=0.01, atol=0.01)
            if config is OURS:
                assert torch.equal(view.on_thing, wanted.on_thing)
    assert len(fast) == len(slow) == sum(q.truth is not None for q in annotations.questions) + len(absent)
    for ours, theirs in zip(fast, slow, strict=True):
        assert ours.truth == theirs.truth
        # Features are kept with 11 bits.
        np.testing.assert_allclose(ours.evidence.logits, theirs.evidence.logits, atol=0.05)
    assert report(fast, Rule(), draws=0).absent == len(absent)
    json.dumps(cross_fitted(fast, draws=0).to_dict())


def test_calibrate_writes_the_rule_with_what_it_was_fitted_with(dataset, tmp_path, run):
    torch.manual_seed(0)
    save_model(SimilarityModel.from_config(OURS), tmp_path / "model")
    asked = ("--annotations", dataset / "annotations.json", "--videos", dataset / "videos")
    asked += ("--absent", dataset / "absent.json", "--quiet")
    given = ("--zoom-sightings", 1, "--extend-min-cosine", 0.5, "--verify-min-cosine", 0.6)
    given += ("--search-length-penalty", 0.4)
    status, out, _ = run("calibrate", tmp_path / "model", *asked, *given)
    assert status == 0 and "calibration error" in out
    fitted = load_rule(tmp_path / "model")
    assert fitted.refinement == (Zoom(sightings=1), Verify(min_cosine=0.6), Extend(min_cosine=0.5))
    assert fitted.confidence.search_length_penalty == 0.4
    status, out, _ = run("calibrate", tmp_path / "model", *asked, "--json")
    assert status == 0
    assert (
        json.loads(out)["rule"]["refinement"]["extend"]["min_cosine"] == 0.5
    )  # as the rule says unless given
    before = (tmp_path / "model" / "rule.json").read_bytes()
    status, _, err = run("calibrate", tmp_path / "model", *asked, "--extend-min-cosine", 1.5)
    assert status == 2 and "--extend-min-cosine" in err
    assert (tmp_path / "model" / "rule.json").read_bytes() == before


def test_work_done_in_advance_comes_in_order_and_is_bounded():
    running = []

    def work(number: int) -> int:
        running.append(number)
        return number

    results = in_advance(work, [(n,) for n in range(50)], ahead=3)
    assert next(results) == 0
    assert len(running) <= 5
    assert list(results) == list(range(1, 50))

"""The model and the paper's rules against the reference's own outputs (tests/golden)."""

import json

import numpy as np
import pytest
import torch
from models import GOLDEN, drawn

from lastseen.box import Box, Letterbox
from lastseen.model.head import make_anchors
from lastseen.procedure import paper_track
from lastseen.track import FramePredictions
from lastseen.weights import convert_published, load_model, save_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    golden = np.load(GOLDEN / "model_tiny.npz")
    recipe = json.loads(str(golden["recipe"]))
    path = tmp_path_factory.mktemp("tiny") / "tiny.pt"
    torch.save({"state_dict": {k: drawn(k, s) for k, s in recipe["keys"].items()}}, path)
    model, unused = convert_published(path)
    return golden, model, unused


def test_a_converted_checkpoint_gives_the_reference_outputs(tiny):
    golden, model, _ = tiny
    rng = np.random.RandomState(11)
    clip = torch.from_numpy(rng.standard_normal((1, 4, 3, 224, 224)).astype(np.float32))
    query = torch.from_numpy(rng.standard_normal((1, 3, 224, 224)).astype(np.float32))
    with torch.no_grad():
        features = model.backbone(query)
        reduced = model.encode_query_pictures(query[:, None]).vectors[:, 0]
        predictions = model(clip, query)
    y1x1y2x2 = predictions.boxes[..., [1, 0, 3, 2]]
    np.testing.assert_allclose(features, golden["query_backbone_feat"], atol=1e-4)
    np.testing.assert_allclose(reduced, golden["query_reduced"], atol=1e-4)
    np.testing.assert_allclose(predictions.logits, golden["prob"], atol=1e-4)
    np.testing.assert_allclose(y1x1y2x2, golden["bbox"], atol=1e-4)


def test_conversion_names_the_keys_that_no_forward_pass_uses(tiny):
    _, _, unused = tiny
    assert {key.split(".")[0] for key in unused} == {"backbone", "query_down_heads", "down_heads"}
    assert "backbone.mask_token" in unused


def test_a_vit_b_checkpoint_with_the_published_keys_converts_and_loads_strictly(tmp_path):
    keys = json.loads((GOLDEN / "checkpoint_keys.json").read_text())["vitb14"]["state_dict"]
    state = {f"module.{k}": torch.full(s, 0.01) for k, s in keys.items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "vitb.pth")
    model, unused = convert_published(tmp_path / "vitb.pth")
    assert model.config.image_size == 448
    assert model.config.clip_length == 30
    assert model.config.backbone.dim == 768
    unused_numbers = sum(np.prod(keys[k]) for k in unused if not k.endswith("num_batches_tracked"))
    assert 27.5e6 < unused_numbers < 27.9e6  # the release carries 27.7 M that nothing reads
    save_model(model, tmp_path / "out")
    again = load_model(tmp_path / "out")
    assert again.config == model.config


def test_anchors_are_the_reference_anchors():
    golden = np.load(GOLDEN / "losses.npz")["anchors_yxhw_448"]
    np.testing.assert_allclose(make_anchors(16, 448) * 448, golden, atol=1e-4)


@pytest.mark.parametrize("case", json.loads((GOLDEN / "geometry.json").read_text())["unpad"])
def test_letterbox_takes_boxes_back_to_the_frame_like_the_reference(case):
    unit = np.array(case["pred_y1x1y2x2_norm"])[:, [1, 0, 3, 2]]
    boxes_px = Letterbox.square(case["w"], case["h"], 448).to_px(unit)
    np.testing.assert_allclose(boxes_px, case["expected_x1y1x2y2_px"], rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("case", json.loads((GOLDEN / "geometry.json").read_text())["square"])
def test_the_square_query_crop_is_the_reference_crop(case):
    y1, x1, y2, x2 = case["y1x1y2x2"]
    square = Box(x1, y1, x2, y2).squared(case["w"], case["h"])
    got = [square.y1, square.x1, square.y2, square.x2]
    np.testing.assert_allclose(got, case["expected"], rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("case", json.loads((GOLDEN / "postprocess.json").read_text())["cases"])
@pytest.mark.filterwarnings("ignore:kernel_size exceeds")
def test_paper_mode_finds_the_reference_track(case):
    logits = np.array(case["logits"])
    boxes_px = 4 * np.arange(len(logits))[:, None] + np.array([0.75, 1.75, 2.75, 3.75])
    predictions = FramePredictions(fps=5.0, boxes_px=boxes_px, logits=logits)
    track = paper_track(predictions, case["query_frame"])
    expected = case["expected"]
    assert (track.first_frame, track.last_frame, track.score) == (
        expected["start"],
        expected["end"],
        expected["score"],
    )
    first = expected["first_box_json"]
    assert [int(v) for v in track.boxes[0].xyxy] == [first[k] for k in ("x1", "y1", "x2", "y2")]

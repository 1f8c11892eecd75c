"""The comparison of segmenters: differences by question, and one line if something is missing."""

import sys
from argparse import Namespace

import numpy as np
import pytest
import sam2_tiny
from measure_masks import open_segmenter, print_table

from lastseen.box import Box
from lastseen.refine import Mask


def record(segmenter, question, x2, prompt="grown"):
    """A mask that ends at x2; the truth ends at 10, the box at 12."""
    return {
        "set": "some",
        "question": question,
        "segmenter": segmenter,
        "prompt": prompt,
        "box": (0, 0, 12, 10),
        "truth": (0, 0, 10, 10),
        "bounds": (0, 0, x2, 10),
        "predicted_iou": 0.9,
        "cpu_s": 1.0,
    }


def test_segmenters_are_compared_on_the_same_boxes_question_by_question(capsys):
    records = [record("mobile-sam", question, 8) for question in "aab"]
    records += [record("sam2-tiny", "a", 9), record("sam2-tiny", "a", 10), record("sam2-tiny", "b", 8)]
    print_table(records, Mask())
    *_, mobile, sam2, _, difference = capsys.readouterr().out.splitlines()
    assert mobile.startswith("| some | grown | mobile-sam | 3 | 0.833 | 0.800 |")
    assert sam2.startswith("| some | grown | sam2-tiny | 3 | 0.833 | 0.900 |")
    # +.1 and +.2 for one question, nothing for the other.
    assert difference.startswith("some, grown: +0.075 [+0.000, +0.150], 1 better and 0 worse of 2")


def test_one_segmenter_has_no_differences(capsys):
    print_table([record("mobile-sam", "a", 9)], Mask())
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_what_sam_2_lacks_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(SystemExit, match=r"^SAM 2 is run by ONNX Runtime: pip install onnxruntime$"):
        open_segmenter("sam2-tiny", Namespace(onnx=tmp_path))
    monkeypatch.setitem(sys.modules, "onnxruntime", FakeRuntime)
    with pytest.raises(SystemExit, match=r"encoder\S+: no such file; how to get it"):
        sam2_tiny.Sam2TinySegmenter(tmp_path)
    (tmp_path / next(iter(sam2_tiny.SHA256))).write_bytes(b"another")
    with pytest.raises(SystemExit, match="not the published file"):
        sam2_tiny.Sam2TinySegmenter(tmp_path)


def test_a_window_becomes_a_prompt_of_1024_px_and_bounds_of_the_window(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", FakeRuntime)
    monkeypatch.setattr(sam2_tiny, "_checked", lambda file: file)
    segmenter = sam2_tiny.Sam2TinySegmenter(tmp_path)
    (found,) = segmenter.masks([np.zeros((512, 512, 3), np.uint8)], [Box(64, 128, 256, 384)])
    assert np.allclose(found.bounds.xyxy, (64, 128, 256, 384), atol=2)
    assert found.predicted_iou == pytest.approx(0.9)


class FakeRuntime:
    """Encoder: returns the picture. Decoder: three masks, of which the second fills the prompt."""

    class SessionOptions:
        intra_op_num_threads = inter_op_num_threads = 0

    class InferenceSession:
        def __init__(self, file, options, providers):
            assert providers == ["CPUExecutionProvider"] and options.intra_op_num_threads == 1

        def get_outputs(self):
            return [Namespace(name="image_embed")]

        def run(self, names, inputs):
            if "image" in inputs:
                assert inputs["image"].shape == (1, 3, 1024, 1024)
                return [inputs["image"]]
            assert inputs["point_labels"].tolist() == [[2, 3]]
            (x1, y1), (x2, y2) = (inputs["point_coords"][0] / 4).round().astype(int)
            logits = np.full((1, 3, 256, 256), -5, np.float32)
            logits[0, 1, y1:y2, x1:x2] = 5
            return logits, np.array([[0.5, 0.9, 0.7]], np.float32)

"""Rivals as they are asked: by name or folder, through the Localizer, encoded once."""

import json

import numpy as np
import pytest
import torch
from models import TINY, Evil, randomised
from PIL import Image
from scenes import PLACES, SIDE, thing, write_scene

from lastseen.baselines.detector import RivalDetector
from lastseen.baselines.stored import (
    DETECTORS,
    NAMES,
    AfterPeak,
    Rival,
    StarkConfig,
    load_rival,
    make_rival,
    save_rival,
)
from lastseen.errors import LastSeenError, WeightsError
from lastseen.localizer import Localizer
from lastseen.masks.stored import VARIABLE
from lastseen.query import Query
from lastseen.video import Video

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"backbone": TINY, "image_size": 112}
HEAD = {"query_size": 56, "channels": 16, "hidden": 16, "proposals": 20}
STARK = {"dim": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_hidden": 32, "decoder_hidden": 32}
SHORT = PLACES[2:10]  # two batches
ROUNDED_PX = 3  # of 320: what half precision may move a box


def small_rival(name: str) -> Rival:
    if name.startswith("stark"):
        config = StarkConfig(**SMALL, **STARK, clip_length=8, positions=name == "stark-positions")
        return randomised(make_rival(config))
    torch.manual_seed(0)
    return make_rival(DETECTORS[name][0](**SMALL, **HEAD)).eval()


@pytest.fixture(autouse=True)
def few_boxes(monkeypatch):
    """Small pictures need no thousand of them."""
    monkeypatch.setattr("lastseen.baselines.proposals.BEFORE_NMS", 100)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name in NAMES:
        save_rival(small_rival(name), AfterPeak(least_score=0.05), root / "rivals" / name)
    return root


@pytest.fixture
def by_name(folders, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(folders))


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Video:
    return Video(write_scene(tmp_path_factory.mktemp("scene") / "scene.mp4", SHORT))


def query() -> Query:
    return Query.from_array(thing())


def test_every_rival_is_asked_by_its_name_and_always_answers(by_name, video):
    for name in NAMES:
        tracker = None if name.startswith("stark") else "ends"
        localizer = Localizer.from_pretrained(name, device="cpu", tracker=tracker)
        track = localizer.locate(video, query())
        assert 0 < track.score < 1, name
        assert all(0 <= v <= 320 for box in track.boxes for v in box.xyxy), name
        as_published = Localizer.from_pretrained(name, device="cpu", tracker=tracker, paper=True)
        assert as_published.locate(video, query()).score == 1.0, name


def test_questions_asked_together_are_answered_as_one_by_one(by_name, video):
    turned = Query.from_array(np.ascontiguousarray(thing()[:, ::-1]))
    for name in ("siamrcnn", "cocoformer", "stark"):
        tracker = None if name == "stark" else "ends"
        localizer = Localizer.from_pretrained(name, device="cpu", tracker=tracker)
        together = localizer.ask_many(video, [query(), turned])
        assert [answer.last for answer in together] == [
            localizer.locate(video, one) for one in (query(), turned)
        ]


def test_encoded_frames_are_all_that_a_further_question_needs(by_name, video):
    for name in ("nfm", "cocoformer", "stark-positions"):
        localizer = Localizer.from_pretrained(name, device="cpu")
        features = torch.cat(list(localizer.encoded(video, 0, len(SHORT))))
        (kept,) = localizer.predict_encoded(
            video, [features], [localizer.encode_query(query())], [len(SHORT)]
        )
        (whole,) = localizer.predict(video, [query()])
        np.testing.assert_array_equal(kept.logits, whole.logits)
        np.testing.assert_array_equal(kept.boxes_px, whole.boxes_px)


def test_the_particle_filter_follows_unless_another_tracker_is_named(by_name, video):
    localizer = Localizer.from_pretrained("siamrcnn", device="cpu")
    assert localizer.procedure.after_peak.tracker.name == "particles"
    assert localizer.procedure.after_peak.peaks.least_score == 0.05  # as its folder says
    track = localizer.locate(video, Query.from_array(thing(), asked_at=1.0))
    assert track.last_frame < 5


def test_half_precision_moves_no_box_by_pixels(by_name, video):
    for name in ("siamrcnn", "stark"):
        exact, rounded = (
            Localizer.from_pretrained(name, device="cpu", engine=engine).predict(video, [query()])[0]
            for engine in ("torch-fp32", "torch-bf16")
        )
        close = np.abs(exact.boxes_px - rounded.boxes_px).max(1) < ROUNDED_PX
        assert close.mean() > 0.8, name  # another proposal may be the best by a hair
        np.testing.assert_allclose(exact.logits, rounded.logits, atol=0.1)


def test_a_rival_that_was_stored_computes_the_same(folders):
    model, after = load_rival(folders / "rivals" / "cocoformer")
    assert isinstance(model, RivalDetector)
    assert after == AfterPeak(least_score=0.05)
    original = small_rival("cocoformer").state_dict()
    assert all(torch.equal(value, original[name]) for name, value in model.state_dict().items())


def test_mistakes_are_told_in_one_line(folders, tmp_path, monkeypatch, video):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nothing"))
    siamrcnn = folders / "rivals" / "siamrcnn"
    cases = [
        (("siamrcnn", {}), "has no weights", "runs/rivals.py"),
        ((siamrcnn, {"tracker": "kys"}), "no such tracker: kys", "particles, nano, ends"),
        ((siamrcnn, {"tracker": "nano"}), "--tracker-weights", "nano"),
        ((siamrcnn, {"engine": "openvino-bf16"}), "not for rivals", "torch-fp32"),
        ((siamrcnn, {"masks": True}), "rival", "mask"),
        ((folders / "rivals" / "stark", {"tracker": "ends"}), "STARK", "leave --tracker out"),
        ((None, {"tracker": "ends"}), "tracker", "rival"),
    ]
    for (path, options), *words in cases:
        with pytest.raises(LastSeenError) as error:
            Localizer.from_pretrained(path, device="cpu", **options)
        assert "\n" not in str(error.value)
        for word in words:
            assert word in str(error.value), str(error.value)


def test_damaged_folders_are_refused(tmp_path):
    folder = tmp_path / "rival"
    save_rival(small_rival("nfm"), AfterPeak(), folder)
    config = json.loads((folder / "config.json").read_text())
    for change, word in (
        ({"hidden": 0}, "hidden must be 1"),
        ({"proposals": 10**9}, "proposals must be"),
        ({"image_size": 115}, "multiple of 28"),
        ({"colour": 3}, "unknown fields"),
        ({"channels": 24}, "does not fit"),
    ):
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(WeightsError, match=word):
            load_rival(folder)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "procedure.json").write_text('{"least_score": "high"}')
    with pytest.raises(WeightsError, match=r"procedure\.json"):
        load_rival(folder)
    (folder / "procedure.json").unlink()
    (folder / "model.safetensors").unlink()
    torch.save({"a": Evil()}, folder / "model.safetensors")
    with pytest.raises(WeightsError):
        load_rival(folder)


def test_a_thing_with_its_surroundings_is_the_query(by_name):
    """The picture around the box counts, up to its margin: what is farther away does not."""
    localizer = Localizer.from_pretrained("siamrcnn", device="cpu")
    picture = np.full((200, 200, 3), 90, np.uint8)
    picture[70 : 70 + SIDE, 70 : 70 + SIDE] = thing()
    far, near = picture.copy(), picture.copy()
    far[:40] = 255
    near[60:66, 70:130] = 255
    asked = [Query.from_array(one, (70, 70, 70 + SIDE, 70 + SIDE)) for one in (picture, far, near)]
    vectors = [localizer.encode_query(one)[0].vectors for one in asked]
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


def test_the_command_line_takes_rivals_where_they_answer(folders, tmp_path, run, monkeypatch):
    monkeypatch.delenv("LASTSEEN_ENGINE")
    picture, film = tmp_path / "thing.png", write_scene(tmp_path / "walk.mp4", SHORT)
    Image.fromarray(thing()).save(picture)
    rival = folders / "rivals" / "stark"
    status, printed, _ = run(
        "find", picture, film, "--weights", rival, "--device", "cpu", "--json", "--quiet"
    )
    assert status == 0 and json.loads(printed)["tracks"]
    for command in (
        ["index", film, "--index", tmp_path / "index", "--weights", rival],
        ["affinity", picture, film, "--at", 1, "--out", tmp_path / "a.png", "--weights", rival],
    ):
        status, _, error = run(*command)
        assert status == 2 and "rival of the paper" in error and error.count("\n") == 1

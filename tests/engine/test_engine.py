"""Engines compute the same answers, within what their rounding allows."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from models import SMALL, SMALL_MAPS, random_model, random_query, randomised, vqloc
from PIL import Image
from scenes import PLACES, quick_localizer, texture, thing, write_scene
from videos import write_video

from lastseen.box import Box, Letterbox
from lastseen.cli.index import engine_of
from lastseen.engine import ENGINES, default_engine
from lastseen.engine.half import HalfBackbone, half_precision
from lastseen.errors import IndexStoreError, LastSeenError
from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.localizer import Localizer
from lastseen.model import Backbone, VQLoC
from lastseen.model.inputs import letterboxed, resized, resized_by_products
from lastseen.procedure import Published, Standard
from lastseen.query import Query
from lastseen.video import Video
from lastseen.weights import load_backbone

CONFIGS = {
    "paper": SMALL,
    "three layers, no anchors": replace(SMALL, spatial_layers=3, anchors=False),
    "conv": replace(SMALL, fusion="conv"),
    "similarity maps": SMALL_MAPS,
    "similarity maps with coverage": replace(SMALL_MAPS, coverage_windows=(0.5, 1.0, 2.0)),
    "similarity maps, no skip": replace(SMALL_MAPS, skip_connection=False, query_size=56, anchors=False),
}


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """The smallest of all patches."""
    return F.cosine_similarity(one.float(), other.float(), dim=1).min().item()


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    return [texture(i, 320, 180, 12) for i in range(3)]


@torch.inference_mode()
def test_the_bundled_backbone_keeps_its_features_in_half_precision():
    backbone = load_backbone()
    pictures = torch.randn(2, 3, 224, 280, generator=torch.Generator().manual_seed(0))
    whole = backbone(pictures)
    assert cosine(HalfBackbone(backbone, torch.float32)(pictures), whole) > 0.999999
    assert cosine(HalfBackbone(backbone, torch.float16)(pictures), whole) > 0.999
    assert F.cosine_similarity(HalfBackbone(backbone, torch.bfloat16)(pictures), whole).mean() > 0.999


@torch.inference_mode()
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_folding_and_fusing_do_not_change_a_model(config):
    model = random_model(config)
    same = half_precision(model, torch.float32)
    generator = torch.Generator().manual_seed(1)
    clip = torch.randn(7, 3, config.image_size, config.image_size, generator=generator)
    features = model.encode(clip)
    torch.testing.assert_close(same.encode(clip), features, rtol=1e-4, atol=1e-4)
    picture, box = torch.from_numpy(texture(0, 90, 60, 8)), Box(20, 10, 60, 50)
    query, expected = same.encode_query(picture, box), model.encode_query(picture, box)
    torch.testing.assert_close(query.vectors, expected.vectors, rtol=1e-4, atol=1e-4)
    query = model.encode_query_pictures(random_query(config)).row(0)
    said, expected = same.localize_clip(features, query), model.localize_clip(features, query)
    torch.testing.assert_close(said.logits, expected.logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(said.boxes, expected.boxes, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_every_model_computes_in_half_precision():
    frames = torch.from_numpy(np.stack([texture(i, 90, 60, 8) for i in range(2)]))
    covering = CONFIGS["similarity maps with coverage"]
    for model in (*map(random_model, (SMALL, SMALL_MAPS, covering)), quick_localizer().model):
        half = half_precision(model, torch.bfloat16)
        assert half.title == model.title
        features, query = half.encode_frames(frames), half.encode_query(frames[0], Box(20, 10, 60, 50))
        expected = model.encode_frames(frames)
        assert F.cosine_similarity(features.float(), expected, dim=1).mean() > 0.99
        predictions = half.localize_clip(features.bfloat16(), query.to(dtype=torch.bfloat16))
        assert torch.isfinite(predictions.logits).all()


@torch.inference_mode()
@pytest.mark.parametrize("config", [SMALL, *(CONFIGS[name] for name in CONFIGS if "maps" in name)])
def test_clips_of_a_run_get_the_predictions_of_each_alone(config):
    model = random_model(config)
    channels = config.dim if config is SMALL else config.backbone.channels
    query = model.encode_query_pictures(random_query(config)).row(0)
    for context in (6, 0):
        step, kept = 30 - 2 * context, slice(context, 30 - context)
        features = F.normalize(torch.randn(30 + 2 * step, channels, config.side, config.side), dim=1)
        alone = [model.localize_clip(features[at : at + 30], query) for at in range(0, 2 * step + 1, step)]
        for first in sorted({0, context}):
            run = model.localize_run(features, query, context, first)
            logits = torch.cat([alone[0].logits[0, first:context], *(one.logits[0, kept] for one in alone)])
            boxes = torch.cat([alone[0].boxes[0, first:context], *(one.boxes[0, kept] for one in alone)])
            torch.testing.assert_close(run.logits[0], logits, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(run.boxes[0], boxes, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("windows", [(), (0.5, 1.0, 2.0)], ids=["without", "with coverage"])
def test_a_run_of_clips_can_be_traced_by_the_compiler_as_one_graph(windows):
    model = random_model(replace(SMALL_MAPS, clip_length=4, coverage_windows=windows))
    query = model.encode_query_pictures(random_query(SMALL_MAPS)).row(0)
    features = torch.randn(6, 32, SMALL_MAPS.side, SMALL_MAPS.side)
    traced = torch.compile(model.localize_run, backend="eager", fullgraph=True, dynamic=False)
    found, expected = traced(features, query, 1, 1), model.localize_run(features, query, 1, 1)
    torch.testing.assert_close(found.logits, expected.logits)


SIZES = [(320, 180), (180, 320), (1000, 760), (112, 112), (50, 40)]


def test_resizing_by_products_is_resizing():
    for size in SIZES:
        frames = torch.from_numpy(np.stack([texture(i, *size, 7) for i in range(2)]))
        expected = resized(frames, 112, 84)
        torch.testing.assert_close(resized_by_products(frames, 112, 84, torch.float32) / 255, expected)
        half = resized_by_products(frames, 112, 84)
        torch.testing.assert_close(half.float(), 255 * expected, rtol=0, atol=0.25)


@torch.inference_mode()
@pytest.mark.parametrize("registers", [0, 4])
def test_uint8_frames_have_the_features_of_their_pictures(registers):
    backbone = randomised(Backbone(replace(SMALL.backbone, registers=registers)))
    exact, half = (HalfBackbone(backbone, dtype) for dtype in (torch.float32, torch.float16))
    for size in SIZES:
        frames = torch.from_numpy(np.stack([texture(i, *size, 7) for i in range(2)]))
        for box in (Letterbox.square(*size, 112), Letterbox.snug(*size, 112, 14)):
            expected = backbone(letterboxed(frames, box, 0.3))
            torch.testing.assert_close(exact.of_frames(frames, box, 0.3), expected, rtol=1e-4, atol=1e-4)
            assert cosine(half.of_frames(frames, box, 0.3), expected) > 0.9999


@pytest.fixture(scope="module")
def noise(tmp_path_factory) -> Video:
    pictures = [texture(i, 64, 48, 8) for i in range(113)]
    return Video(write_video(tmp_path_factory.mktemp("noise") / "noise.mp4", pictures, fps=5))


@pytest.mark.parametrize("procedure", [Standard(), Published()])
def test_many_clips_at_once_are_as_clips_one_by_one(noise, procedure):
    queries = [
        Query.from_array(texture(40, 64, 48, 8), asked_at=asked_at)
        for asked_at in (None, 1.0, 5.1, 6.2, 9.7, 10.9, 12.0, 18.0, 22.0)
    ]
    localizer = Localizer(vqloc(positions=True), procedure=procedure)
    views = [localizer.encode_query(query) for query in queries]
    ends = [localizer.frames_searched(noise, query) for query in queries]
    features = list(localizer.encoded(noise, 0, max(ends)))
    one_by_one = localizer.predict_encoded(noise, features, views, ends)
    for localizer.clips_at_once in (2, 3, 16):
        for found, expected in zip(localizer.predict_encoded(noise, features, views, ends), one_by_one):
            np.testing.assert_allclose(found.logits, expected.logits, atol=1e-4)
            np.testing.assert_allclose(found.boxes_px, expected.boxes_px, atol=1e-2)


def test_half_precision_finds_the_same(tmp_path):
    video = Video(write_scene(tmp_path / "scene.mp4", PLACES))
    exact = quick_localizer()
    quicker = Localizer(exact.model, procedure=exact.procedure, engine="torch-bf16")
    query = Query.from_array(thing())
    one, other = exact.locate(video, query), quicker.locate(video, query)
    assert one is not None and other is not None
    assert (one.first_frame, one.last_frame) == (other.first_frame, other.last_frame)
    assert min(a.iou(b) for a, b in zip(one.boxes, other.boxes)) > 0.8
    assert other.boxes[2].iou(one.boxes[2]) > 0.8
    assert abs(one.score - other.score) < 0.05


def test_features_of_another_precision_are_other_features():
    model = vqloc()
    names = ("torch-fp32", "torch-fp16", "torch-fp16-grouped", "torch-bf16")
    assert len({Localizer(model, engine=name).feature_fingerprint() for name in names}) == 4
    assert Localizer(model).at(2.0).engine.rounding == "torch float32"


def test_an_unknown_engine_is_an_error():
    with pytest.raises(LastSeenError, match="engine steam is unknown; choose one of torch-fp32, "):
        Localizer(vqloc(), engine="steam")
    assert "torch-fp32" in ENGINES


def test_the_default_engine_is_the_fastest_of_the_machine(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr("lastseen.engine.why_no_openvino", lambda: None)
    assert default_engine(cpu, paper=False) == "openvino-bf16"
    monkeypatch.setattr("lastseen.engine.why_no_openvino", lambda: "not installed")
    assert default_engine(cpu, paper=False) == "torch-fp32-grouped"
    assert default_engine(cpu, paper=True) == "torch-fp32"
    assert default_engine(cpu, paper=False, model=vqloc()) == "torch-fp32"
    assert default_engine(torch.device("cuda"), paper=False) == "torch-fp16"


def test_compiling_without_a_gpu_is_an_error():
    with pytest.raises(LastSeenError, match="is for GPUs"):
        Localizer(vqloc(), engine="torch-fp16-compiled")


def test_the_paper_is_followed_in_float32():
    assert Localizer.from_pretrained(paper=True).engine.rounding == "torch float32"


# --- OpenVINO ---


@pytest.fixture
def openvino(tmp_path, monkeypatch) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def bf16_or_skip(model: VQLoC) -> Localizer:
    try:
        return Localizer(model, engine="openvino-bf16")
    except LastSeenError as error:
        assert "needs a CPU with bfloat16" in str(error)
        pytest.skip("no bfloat16 here")


@pytest.mark.parametrize("config", [SMALL, SMALL_MAPS], ids=["paper", "similarity maps"])
def test_openvino_agrees_with_float32(openvino, config, pictures):
    model = random_model(config)
    exact, other = Localizer(model, engine="torch-fp32-grouped"), bf16_or_skip(model)
    one, two = exact.encode_pictures(pictures), other.encode_pictures(pictures)
    assert one.shape == two.shape and one.dtype == two.dtype
    assert F.cosine_similarity(one.float(), two.float(), dim=1).mean() > 0.999
    assert exact.feature_fingerprint() != other.feature_fingerprint()


def test_openvino_converts_once(openvino, pictures, tmp_path, monkeypatch):
    model = vqloc()
    first = bf16_or_skip(model).encode_pictures(pictures)
    (kept,) = (tmp_path / "lastseen" / "openvino").iterdir()
    assert {file.name for file in kept.iterdir()} == {"model.xml", "model.bin"}
    monkeypatch.setattr("lastseen.engine.openvino.converted", None)
    assert torch.equal(bf16_or_skip(model).encode_pictures(pictures), first)


def test_a_damaged_conversion_is_made_again(openvino, pictures, tmp_path):
    model = vqloc()
    first = bf16_or_skip(model).encode_pictures(pictures)
    (kept,) = (tmp_path / "lastseen" / "openvino").iterdir()
    (kept / "model.xml").write_text("<net")
    assert torch.equal(bf16_or_skip(model).encode_pictures(pictures), first)


@pytest.mark.parametrize("config", [SMALL, SMALL_MAPS], ids=["paper", "similarity maps"])
def test_a_network_just_converted_one_from_the_cache_and_one_without_have_the_same_bits(
    openvino, config, pictures, tmp_path, monkeypatch
):
    """A cache that cannot be written costs time only."""
    model = random_model(config)

    def features() -> torch.Tensor:  # before they are rounded for an index
        return bf16_or_skip(model).engine.encode_pictures(pictures, len(pictures))

    first, cached = features(), features()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert torch.equal(first, cached) and torch.equal(first, features())


def test_openvino_reports_to_nobody(openvino):
    code = (
        "import sys\n"
        "from lastseen.engine.openvino import load_openvino\n"
        "load_openvino()\n"
        "assert not any(name.startswith('openvino_telemetry') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_openvino_that_is_not_installed_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(LastSeenError, match=r"pip install 'lastseen\[openvino\]'"):
        Localizer(vqloc(), engine="openvino-bf16")


# --- an index is made and asked with one engine ---


def test_an_index_is_asked_with_the_engine_that_made_it(tmp_path, noise, run):
    folder = tmp_path / "index"
    with Index(folder, create=True) as index:
        assert index.engine is None
        add_file(index, Localizer(vqloc(), engine="torch-bf16"), noise.path)
        assert index.engine == "torch-bf16"
        with pytest.raises(IndexStoreError, match=r"torch-bf16.* not by .*torch-fp32.*--engine"):
            index.bind(Localizer(vqloc()))
        index.bind(Localizer(vqloc(), engine="torch-bf16"))
    assert engine_of(folder) == "torch-bf16"
    assert engine_of(tmp_path / "nothing") is None


def test_an_index_from_before_engines_is_of_float32(tmp_path):
    with Index(tmp_path, create=True) as index:
        index.catalogue.set_about(fingerprint="some", made_by="a model", fps=5.0)
        assert index.engine == "torch-fp32"


def test_the_command_line_takes_an_engine(tmp_path, run):
    picture, video = tmp_path / "thing.png", write_scene(tmp_path / "scene.mp4", PLACES[:6])
    Image.fromarray(thing()).save(picture)
    status, _, err = run("find", picture, video, "--engine", "steam")
    assert status == 2
    assert "engine steam is unknown; choose one of" in err

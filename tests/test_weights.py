import json
import resource

import pytest
import torch
from models import CONFIG_OF_BEFORE, WIDE, Evil
from safetensors.torch import save_file

from lastseen import weights
from lastseen.errors import OutputError, WeightsError
from lastseen.localizer import Localizer
from lastseen.model import Backbone, BackboneConfig, VQLoC, VQLoCConfig
from lastseen.rule import Rule
from lastseen.tensors import read_state
from lastseen.weights import (
    backbone_config,
    convert_published,
    load_backbone,
    load_model,
    save_model,
)


@pytest.fixture(scope="module")
def model() -> VQLoC:
    torch.manual_seed(0)
    return VQLoC.from_config(VQLoCConfig(backbone=WIDE, image_size=112, dim=32)).eval()


def test_a_saved_model_loads_as_it_was(model, tmp_path):
    save_model(model, tmp_path / "models" / "one")
    again = load_model(tmp_path / "models" / "one")
    assert again.config == model.config
    for name, value in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=0, atol=0)
    assert sorted(p.name for p in (tmp_path / "models").iterdir()) == ["one"]  # nothing left behind


def test_a_model_is_never_saved_over_another(model, tmp_path):
    save_model(model, tmp_path / "one")
    with pytest.raises(WeightsError, match="not empty"):
        save_model(model, tmp_path / "one")


@pytest.mark.parametrize("kind", ["pth", "wrapped", "safetensors"])
def test_a_backbone_file_loads_whatever_its_wrapping(tmp_path, kind):
    torch.manual_seed(0)
    state = {**Backbone(WIDE).state_dict(), "mask_token": torch.zeros(1, 64)}
    path = tmp_path / f"backbone.{'safetensors' if kind == 'safetensors' else 'pth'}"
    if kind == "safetensors":
        save_file(state, path)
    else:
        torch.save({"teacher": state} if kind == "wrapped" else state, path)
    backbone = load_backbone(path, blocks=(0,), final_norm=False)
    assert backbone.config == WIDE.using(0, final_norm=False)


@pytest.mark.parametrize(
    ("dim", "heads", "registers", "ffn"),
    [(384, 6, 0, "mlp"), (768, 12, 4, "mlp"), (1024, 16, 0, "mlp"), (1536, 24, 4, "swiglu")],
)
def test_the_shape_of_official_files_is_read_off_their_tensors(dim, heads, registers, ffn):
    config = BackboneConfig(dim=dim, depth=2, heads=heads, registers=registers, ffn=ffn)
    with torch.device("meta"):
        state = Backbone(config).state_dict()
    assert backbone_config(state) == config


def test_the_published_g_shape_has_dinov2s_hidden_width():
    with torch.device("meta"):
        state = Backbone(BackboneConfig(dim=1536, depth=1, heads=24, ffn="swiglu")).state_dict()
    assert state["blocks.0.mlp.w12.weight"].shape == (8192, 1536)
    assert state["blocks.0.mlp.w3.weight"].shape == (1536, 4096)


def test_a_damaged_bundled_file_is_noticed(monkeypatch):
    monkeypatch.setattr(weights, "BUNDLED_BACKBONE_SHA256", "0" * 64)
    with pytest.raises(WeightsError, match="damaged"):
        weights.bundled_backbone()
    monkeypatch.setattr(weights, "BUNDLED_MODEL_SHA256", "0" * 64)
    with pytest.raises(WeightsError, match="damaged"):
        weights.bundled_model()


def test_the_bundled_model_is_small_half_precision_and_has_its_rule_and_its_card():
    folder = weights.bundled_model()
    state = read_state(folder / "model.safetensors")
    assert {value.dtype for value in state.values() if value.is_floating_point()} == {torch.float16}
    heads = sum(v.numel() * v.element_size() for k, v in state.items() if not k.startswith("backbone."))
    assert heads < 30e6
    assert weights.load_rule(folder) != Rule()
    card = (folder / "README.md").read_text()
    for part in ("licence", "Training data", "Accuracy", "Limits", "cannot be made again"):
        assert part in card
    assert Localizer.from_pretrained().rule == weights.load_rule(folder)


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all", b"PK\x03\x04 half a zip"])
def test_a_file_that_holds_no_weights_is_one_clear_line(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(WeightsError) as caught:
        read_state(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_weights_and_folders_are_told_apart(tmp_path):
    with pytest.raises(WeightsError, match="no such weights file"):
        read_state(tmp_path / "none.pt")
    with pytest.raises(WeightsError, match="is a folder"):
        read_state(tmp_path)
    with pytest.raises(WeightsError, match=r"config\.json is missing"):
        load_model(tmp_path)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, capsys):
    torch.save({"state_dict": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(WeightsError, match="refused"):
        convert_published(tmp_path / "evil.pt")
    assert capsys.readouterr().out == ""


def test_weights_of_another_model_are_refused(model, tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "other.pt")
    with pytest.raises(WeightsError, match="not a DINOv2 backbone"):
        load_backbone(tmp_path / "other.pt")
    with pytest.raises(WeightsError, match="not a published VQLoC checkpoint"):
        convert_published(tmp_path / "other.pt")
    save_model(model, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "spatial_layers": 3}))
    with pytest.raises(WeightsError, match=r"does not fit VQLoC: keys .* missing"):
        load_model(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match="not a model's config"):
        load_model(tmp_path / "model")


def test_config_files_of_before_there_were_two_models_are_read(model):
    bundled = json.loads((weights.bundled_model() / "config.json").read_text())
    assert bundled["model"] == "similarity"
    assert weights.read_config(CONFIG_OF_BEFORE) == weights.read_config(bundled)
    since = ("model", "query_scales", "masked_query")
    papers = {name: value for name, value in model.config.to_dict().items() if name not in since}
    added = {"match_dim": 0, "query_shares": [1.0], "query_size": None, "heads_say": 1.0, "mask_query": False}
    for old in (papers, {**papers, **added, "query_background": None, "fine": False}):
        assert weights.read_config(old) == model.config
    without_size = {k: v for k, v in CONFIG_OF_BEFORE.items() if k != "query_size"}
    assert weights.read_config(without_size).query_size == 448


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fusion": "attention"}, "not supported any more; train it again with the recipe synth_small"),
        ({"match_dim": 128}, "not supported any more"),
        ({"mask_query": False}, "not supported any more"),
        ({"query_share": 1}, "unknown fields in the model's config: query_share"),
        ({"model": "magic"}, "\"model\" must be one of vqloc, similarity, got 'magic'"),
    ],
)
def test_a_config_that_no_model_has_is_one_clear_line(model, tmp_path, change, says):
    save_model(model, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps({**CONFIG_OF_BEFORE, **change}))
    with pytest.raises(WeightsError) as caught:
        load_model(tmp_path / "model")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_saved_similarity_model_loads_as_it_was(tmp_path):
    model = load_model(weights.bundled_model())
    assert model.title == "similarity-map model (ViT-S/14, 8 blocks, 448 px)"
    save_model(model, tmp_path / "again")
    again = load_model(tmp_path / "again")
    assert again.config == model.config
    assert again.fingerprint() == model.fingerprint()


# --- malformed files ---


def test_a_model_that_does_not_fit_on_the_disk_is_told_and_not_there(model, tmp_path):
    save_model(model, tmp_path / "whole")
    size = (tmp_path / "whole" / "model.safetensors").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (100, size // 2, size - 1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            with pytest.raises(OutputError, match="cut cannot be written") as caught:
                save_model(model, tmp_path / "cut")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert "\n" not in str(caught.value)
        assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_a_model_needs_a_place_for_a_folder(model, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WeightsError, match="is a file: choose the name of a new folder"):
        save_model(model, tmp_path / "file")
    with pytest.raises(OutputError, match="cannot be made: "):
        save_model(model, tmp_path / "file" / "model")
    assert (tmp_path / "file").read_text() == "mine"

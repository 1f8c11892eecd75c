"""Weight files, configs and rules that are malformed in every way: one line each, or a model."""

import itertools
import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from models import CONFIG_OF_BEFORE, GOLDEN, WIDE, Evil, drawn
from safetensors.torch import save_file

from lastseen import weights
from lastseen.errors import WeightsError
from lastseen.model import Backbone, VQLoC, VQLoCConfig
from lastseen.rule import Rule
from lastseen.sighting import Evidence
from lastseen.tensors import read_state
from lastseen.track import FramePredictions
from lastseen.weights import convert_published, load_backbone, load_model, save_model


@pytest.fixture(scope="module")
def model() -> VQLoC:
    torch.manual_seed(0)
    return VQLoC.from_config(VQLoCConfig(backbone=WIDE, image_size=112, dim=32)).eval()


def reading(call, *paths):
    """Calls; whatever is wrong must be a WeightsError of one line that names one of the paths."""
    with pytest.raises(WeightsError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400 + sum(len(str(path)) for path in paths)
    assert any(str(path) in message for path in paths), message
    return message


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    save_model(model, folder)
    (folder / "rule.json").write_text(json.dumps(Rule().with_step("zoom", sightings=2).to_dict()))
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "model")
    return tmp_path / "model"


def header_and_data(path):
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def packed(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_safetensors_malformed_in_every_way_are_one_line(folder):
    path = folder / "model.safetensors"
    sound, (header, data) = path.read_bytes(), header_and_data(path)
    name = "propagation.positions"
    begin, end = header[name]["data_offsets"]
    shape = header[name]["shape"]

    def changed(**fields):
        return packed({**header, name: {**header[name], **fields}}, data)

    wrong = {
        "empty": b"",
        "cut in the header": sound[:100],
        "cut in the data": sound[:-1],
        "cut in the length": sound[:5],
        "more than it says": sound + b"more",
        "a header longer than the file": struct.pack("<Q", len(sound)) + sound[8:],
        "a huge header": struct.pack("<Q", 2**63) + sound[8:],
        "a header that is no JSON": packed(b"{not json", data),
        "a header that is no text": packed(b"\xff\xfe", data),
        "a header that is a list": packed([], data),
        "no tensors": packed({}, b""),
        "an unknown type": changed(dtype="F13"),
        "a type of another size": changed(dtype="F64"),
        "whole numbers": changed(dtype="I32"),
        "bytes": changed(dtype="U8", shape=[end - begin]),
        "another shape": changed(shape=shape[::-1]),
        "a negative shape": changed(shape=[-1, *shape[1:]]),
        "a huge shape": changed(shape=[2**62, 2**62]),
        "no shape": changed(shape=None),
        "no numbers at all": changed(shape=[0], data_offsets=[begin, begin]),
        "offsets backwards": changed(data_offsets=[end, begin]),
        "offsets beyond": changed(data_offsets=[begin, 2**60]),
        "a pickle": pickle.dumps({"state_dict": Evil()}),
    }
    for what, content in wrong.items():
        path.write_bytes(content)
        reading(lambda: load_model(folder), path)
        message = reading(lambda: load_backbone(path), path)
        assert "Traceback" not in message, what
    for make in (Path.mkdir, os.mkfifo):
        path.unlink()
        make(path)
        reading(lambda: read_state(path), path)
        reading(lambda: load_model(folder), folder)
        path.rmdir() if path.is_dir() else path.unlink()
        path.touch()


def test_states_that_do_not_fit_are_one_line(model, folder):
    path, sound = folder / "model.safetensors", model.state_dict()
    name = "propagation.positions"
    value = sound[name]
    for what, state in {
        "missing": {k: v for k, v in sound.items() if k != name},
        "one too many": {**sound, "another": value.clone()},
        "another shape": {**sound, name: value[:, :-1].clone()},
        "no numbers": {**sound, name: value[:, :0].clone()},
        "a number": {**sound, name: torch.tensor(1.0)},
        "whole numbers": {**sound, name: value.to(torch.int32)},
        "yes and no": {**sound, name: value > 0},
        "complex": {**sound, name: value.to(torch.complex64)},
        "nan": {**sound, name: torch.full_like(value, torch.nan)},
        "infinite": {**sound, name: torch.full_like(value, torch.inf)},
        "infinite, of half precision": {**sound, name: torch.full_like(value, 1e9).half()},
        "nan of 8 bits": {**sound, name: torch.full_like(value, torch.nan).to(torch.float8_e4m3fn)},
    }.items():
        save_file({k: v.contiguous() for k, v in state.items()}, path)
        message = reading(lambda: load_model(folder), path)
        assert name in message or "another" in message, what
    save_file({k: v.half() if v.is_floating_point() else v for k, v in sound.items()}, path)
    assert load_model(folder)  # any precision will do


def test_pickles_malformed_in_every_way_are_one_line(tmp_path):
    torch.manual_seed(0)
    sound, path = Backbone(WIDE).state_dict(), tmp_path / "weights.pt"
    itself: dict = {}
    itself["model"] = itself
    far = {f"blocks.{10**9}.norm1.weight": torch.zeros(64)}
    for what, content in {
        "a list": [1, 2],
        "a number": 3,
        "a dictionary of numbers": {"a": 1},
        "an empty one": {},
        "names that are numbers": {1: torch.zeros(1)},
        "one that contains itself": itself,
        "code": {"state_dict": Evil()},
        "a tensor without content": {**sound, "pos_embed": sound["pos_embed"].to("meta")},
        "a sparse tensor": {**sound, "norm.weight": torch.ones(64).to_sparse()},
        "position embeddings without a shape": {**sound, "pos_embed": torch.tensor(1.0)},
        "no width": {**sound, "pos_embed": torch.zeros(1, 1370, 0)},
        "a width of any number": {**sound, "pos_embed": torch.zeros(1).expand(1, 1, 2**50)},
        "registers without a shape": {**sound, "register_tokens": torch.tensor(1.0)},
        "any number of registers": {**sound, "register_tokens": torch.zeros(1).expand(1, 2**50, 64)},
        "any number of blocks": {**sound, **far},
        "nan": {**sound, "norm.weight": torch.full((64,), torch.nan)},
    }.items():
        torch.save(content, path)
        for call in (load_backbone, convert_published):
            assert "Traceback" not in reading(lambda call=call: call(path), path), what
    for content in (b"", b"PK\x03\x04", pickle.dumps(sound), pickle.dumps(Evil()), b"\x80\x02" * 1000):
        path.write_bytes(content)
        reading(lambda: read_state(path), path)


def published(**changes):
    """The reference's small checkpoint, with some tensors replaced, added or (None) left out."""
    recipe = json.loads(str(np.load(GOLDEN / "model_tiny.npz")["recipe"]))
    state = {**{k: drawn(k, s) for k, s in recipe["keys"].items()}, **changes}
    return {k: v for k, v in state.items() if v is not None}


def test_published_checkpoints_malformed_in_every_way_are_one_line(tmp_path):
    path = tmp_path / "tiny.pt"
    sound = published()
    attention = next(k for k in sound if k.endswith("self_attn.in_proj_weight"))
    for what, changes in {
        "positions without a shape": {"pe_3d": torch.tensor(1.0)},
        "positions of no frames": {"pe_3d": torch.zeros(1, 0, 32)},
        "any number of positions": {"pe_3d": torch.zeros(1).expand(1, 2**40, 32)},
        "any number of halvings": {f"down_heads.{n}.0.weight": torch.zeros(1) for n in range(300)},
        "any number of layers": {f"CQ_corr_transformer.{n}.norm1.weight": torch.zeros(1) for n in range(99)},
        "no positions of the backbone": {"backbone.pos_embed": None},
        "a joint projection that is a number": {attention: torch.tensor(1.0)},
        "nan": {"pe_3d": torch.full_like(sound["pe_3d"], torch.nan)},
    }.items():
        torch.save({"state_dict": published(**changes)}, path)
        assert "Traceback" not in reading(lambda: convert_published(path), path), what
    torch.save({"state_dict": sound}, path)
    assert convert_published(path)


NO_NUMBERS = (float("nan"), float("inf"))
WRONG_VALUES = (None, "x", "4", -1, 0, 3, 0.5, 1e300, 10**30, True, [], [1], {}, [[]], *NO_NUMBERS)


@pytest.mark.parametrize("kind", ["vqloc", "similarity", "before"])
def test_a_config_with_any_wrong_value_is_one_line_or_a_model(model, folder, kind):
    """Each field of each kind of config with each wrong value; nothing takes memory or time for it."""
    bundled = json.loads((weights.bundled_model() / "config.json").read_text())
    sound = {"vqloc": model.config.to_dict(), "similarity": bundled, "before": CONFIG_OF_BEFORE}[kind]
    path, weights_file = folder / "config.json", folder / "model.safetensors"
    places = [(None, name) for name in (*sound, "another")]
    places += [("backbone", name) for name in (*sound["backbone"], "another")]
    for (place, name), value in itertools.product(places, WRONG_VALUES):
        changed = json.loads(json.dumps(sound))
        (changed if place is None else changed[place])[name] = value
        path.write_text(json.dumps(changed))
        try:
            loaded = load_model(folder)
        except WeightsError as error:
            assert "\n" not in str(error) and any(str(p) in str(error) for p in (path, weights_file))
            assert len(str(error).replace(str(folder), "")) < 400, str(error)
        else:
            assert kind == "vqloc", (name, value)
            frames = torch.zeros(1, 2, 3, loaded.config.image_size, loaded.config.image_size)
            if loaded.config.image_size <= 224:
                loaded(frames, frames[:, 0])


@pytest.mark.parametrize("name", ["config.json", "rule.json"])
def test_json_malformed_in_every_way_is_one_line(folder, name):
    path = folder / name
    sound = path.read_text()
    deep = '{"backbone": ' + "[" * 100_000 + "]" * 100_000 + "}"
    for content in (
        b"", b"{", b"nope", b"\xff\xfe\x00", b"[]", b"3", b"null", b'"backbone"', b"\0" * 100,
        sound[:-5].encode(), deep.encode(), b'{"backbone": ' + b"9" * 5000 + b"}", b" " * 2_000_000 + b"{}",
    ):  # fmt: skip
        path.write_bytes(content)
        reading(lambda: (load_model(folder), weights.load_rule(folder)), path)
    for make in (Path.mkdir, os.mkfifo, lambda p: p.symlink_to("nowhere")):
        path.rmdir() if path.is_dir() else path.unlink()
        make(path)
        reading(lambda: (load_model(folder), weights.load_rule(folder)), folder)


def test_a_rule_with_any_wrong_value_is_one_line_or_a_rule(folder):
    """What is read as a rule then works on evidence."""
    every = Rule()
    for step, fields in (
        ("zoom", {"sightings": 2}),
        ("verify", {"min_cosine": 0.5}),
        ("extend", {"min_cosine": 0.5}),
    ):
        every = every.with_step(step, **fields)
    sound = json.loads(json.dumps(every.with_mask().to_dict()))
    places = [(), ("extraction",), ("confidence",), ("refinement",)]
    places += [("refinement", step) for step in sound["refinement"]]
    predictions = FramePredictions(fps=5.0, boxes_px=np.ones((40, 4)), logits=np.sin(np.arange(40.0)))
    for place in places:
        inside = sound
        for key in place:
            inside = inside[key]
        for name, value in [(name, value) for name in (*inside, "another") for value in WRONG_VALUES]:
            changed = json.loads(json.dumps(sound))
            inside = changed
            for key in place:
                inside = inside[key]
            inside[name] = value
            (folder / "rule.json").write_text(json.dumps(changed))
            try:
                rule = weights.load_rule(folder)
            except WeightsError as error:
                assert "\n" not in str(error) and "lastseen calibrate" in str(error), (place, name, value)
            else:
                assert place or value == {} or name == "schema", (name, value)
                rule.tracks(Evidence.of(predictions))


def test_any_damage_to_the_files_of_a_model_is_one_line_or_a_model(folder):
    """Bytes changed, cut and doubled, by seed."""
    rng = np.random.default_rng(0)
    files = [folder / name for name in ("config.json", "rule.json", "model.safetensors")]
    sound = {path: path.read_bytes() for path in files}
    refused = 0
    for _ in range(200):
        path = files[rng.integers(len(files))]
        content = bytearray(sound[path])
        head = min(len(content), 4000)  # of weights: where the header is
        for at in rng.integers(0, head, rng.integers(1, 8)):
            content[at] = rng.integers(256)
        if rng.random() < 0.2:
            del content[rng.integers(len(content)) :]
        if rng.random() < 0.1:
            content = content * 2
        path.write_bytes(content)
        try:
            load_model(folder)
            weights.load_rule(folder)
        except WeightsError as error:
            refused += 1
            assert "\n" not in str(error) and str(folder) in str(error)
        path.write_bytes(sound[path])
    assert refused > 100
    state = Backbone(WIDE).state_dict()
    path = folder / "backbone.pt"
    torch.save(state, path)
    content = path.read_bytes()
    for _ in range(100):
        changed = bytearray(content)
        for at in rng.integers(0, len(content), rng.integers(1, 8)):
            changed[at] = rng.integers(256)
        front = rng.integers(0, 3000)
        changed[front] = rng.integers(256)
        path.write_bytes(changed[: rng.integers(1, len(changed))] if rng.random() < 0.3 else changed)
        try:
            load_backbone(path)
        except WeightsError as error:
            assert "\n" not in str(error) and str(path) in str(error)

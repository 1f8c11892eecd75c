"""lastseen doctor on healthy and on broken machines: it always answers."""

import builtins
import importlib
import json
import sys

import pytest
import torch

from lastseen import doctor, engine, weights
from lastseen.cpu import Cpu
from lastseen.doctor import NOTE, OK, PROBLEM, examine
from lastseen.engine import devices, openvino
from lastseen.model.backbone import BackboneConfig
from lastseen.model.vqloc import VQLoC, VQLoCConfig


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in doctor.SETTINGS:
        monkeypatch.delenv(name, raising=False)


def state(name: str, **options) -> tuple[str, str, str]:
    """(state, what was found, advice) of one check."""
    (finding,) = (finding for finding in examine(**options) if finding.name == name)
    return finding.state, finding.found, finding.advice


def test_a_healthy_machine(run):
    status, out, err = run("doctor", "--json")
    report = json.loads(out)
    assert (status, err) == (0, "")
    assert report["schema"] == "lastseen/doctor@1"
    assert report["ok"] is True
    assert {finding["name"] for finding in report["findings"]} >= {"torch", "decoder", "weights", "disk"}
    found = {finding["name"]: finding["found"] for finding in report["findings"]}
    assert torch.__version__ in found["torch"]
    assert "h264" in found["codecs"]
    assert "checksums verified" in found["weights"]


def test_in_words_and_with_status_1_if_something_is_broken(run, monkeypatch):
    status, out, _ = run("doctor")
    assert status == 0
    assert out.endswith("All that is needed works.\n")
    monkeypatch.setattr(weights, "BUNDLED_BACKBONE_SHA256", "0" * 64)
    status, out, err = run("doctor")
    assert (status, err) == (1, "")
    assert "problem  weights" in out
    assert "-> install lastseen again" in out
    assert out.endswith("1 problem.\n")


@pytest.mark.parametrize(
    ("library", "checks"),
    [
        ("torch", {"torch", "device", "engine", "weights"}),
        ("av", {"decoder", "codecs"}),
        ("scipy", {"libraries"}),
        ("PIL", {"libraries"}),
    ],
)
@pytest.mark.parametrize("failure", [ImportError("no such\nlibrary"), OSError("undefined symbol")])
def test_a_library_that_cannot_be_imported_is_a_finding(monkeypatch, library, checks, failure):
    users = ("lastseen.weights", "lastseen.engine.devices") if library == "torch" else ()
    for name in list(sys.modules):
        if name.split(".")[0] == library or name in users:
            monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__, importlib.import_module

    def broken(name, *arguments, **options):
        if name.split(".")[0] == library:
            raise failure
        return real[0](name, *arguments, **options)

    def broken_module(name, *arguments):
        if name.split(".")[0] == library:
            raise failure
        return real[1](name, *arguments)

    monkeypatch.setattr(builtins, "__import__", broken)
    monkeypatch.setattr(doctor, "import_module", broken_module)
    findings = examine()
    monkeypatch.undo()
    assert {finding.name for finding in findings if finding.state == PROBLEM} == checks
    for finding in findings:
        assert "\n" not in finding.found
        assert finding.advice or finding.state == OK


def test_damaged_or_missing_weights_are_told(monkeypatch, tmp_path):
    (tmp_path / "assets").mkdir()
    monkeypatch.setattr(weights, "files", lambda _: tmp_path)
    assert state("weights")[0] == PROBLEM
    assert "is missing" in state("weights")[1]
    (tmp_path / "assets" / weights.BUNDLED_MODEL).mkdir()
    (tmp_path / "assets" / weights.BUNDLED_MODEL / "model.safetensors").write_bytes(b"half of it")
    found = state("weights")
    assert found[0] == PROBLEM
    assert "is damaged" in found[1]
    assert "install lastseen again" in found[2]


def test_a_demo_that_is_not_there_is_a_note_and_a_broken_one_a_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "files", lambda _: tmp_path)
    assert state("decoder")[0] == NOTE
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "demo.mp4").write_text("not a video")
    assert state("decoder")[0] == PROBLEM


@pytest.mark.parametrize(("missing", "expected"), [("libdav1d", OK), ("hevc", NOTE), ("h264", PROBLEM)])
def test_a_missing_codec_is_told(monkeypatch, missing, expected):
    import av

    names = {"h264", "hevc", "vp9", "libdav1d", "av1", "libx264"} - {missing}
    monkeypatch.setattr(av, "codecs_available", names)
    assert state("codecs")[0] == expected


def test_a_folder_that_cannot_be_written_to_is_told(monkeypatch, tmp_path, run):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refused)
    assert state("disk")[0] == NOTE  # nobody asked for an index here
    found = state("disk", index=tmp_path / "deep" / "index")
    assert found[0] == PROBLEM
    assert "permission denied" in found[1]
    status, out, _ = run("doctor", "--index", tmp_path)
    assert status == 1
    assert "choose another folder" in out


def test_a_full_disk_is_told(monkeypatch, tmp_path):
    for free, expected in ((1e6, PROBLEM), (1e9, NOTE), (1e12, OK)):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _, usage=usage: usage)
        assert state("disk", index=tmp_path)[0] == expected


def test_settings_are_checked(monkeypatch, tmp_path):
    monkeypatch.setenv("LASTSEEN_DEVICE", "toaster")
    monkeypatch.setenv("LASTSEEN_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("LASTSEEN_WEIGHT", "x")
    assert state("device")[0] == PROBLEM
    assert "unset LASTSEEN_DEVICE" in state("device")[2]
    assert state("model")[0] == PROBLEM
    assert state("settings")[0] == NOTE
    assert "did you mean LASTSEEN_WEIGHTS?" in state("settings")[2]


def test_a_model_folder_that_works_is_named(monkeypatch, tmp_path):
    small = VQLoCConfig(
        backbone=BackboneConfig(dim=64, depth=1, heads=1), image_size=224, dim=32, clip_length=4
    )
    weights.save_model(VQLoC.from_config(small), tmp_path / "model")
    monkeypatch.setenv("LASTSEEN_WEIGHTS", str(tmp_path / "model"))
    assert state("model")[0] == OK
    assert "VQLoC" in state("model")[1]


@pytest.mark.parametrize("name", [n for n in dir(doctor) if n.startswith("check_")])
def test_whatever_happens_in_a_check_is_a_finding(monkeypatch, name):
    def crash(*_, **__):
        raise RuntimeError("boom\nat line 2")

    monkeypatch.setattr(doctor, name, crash)
    state_, found, advice = state(name.removeprefix("check_"))
    assert state_ == PROBLEM
    assert found == "could not be checked: RuntimeError: boom"
    assert advice


def test_a_graphics_card_is_listed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A Card")
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: type("P", (), {"total_memory": 8 * 2**30})
    )
    monkeypatch.setattr(devices, "best_device", lambda: torch.device("cuda"))
    assert state("device")[1] == "cuda is used; there is cuda:0 A Card, 8 GiB; cpu"


def test_the_engine_is_named(monkeypatch):
    monkeypatch.setattr(devices, "best_device", lambda: torch.device("cpu"))
    monkeypatch.setitem(sys.modules, "openvino", None)  # as if it were not installed
    monkeypatch.setattr(doctor, "this_cpu", lambda: Cpu("old", frozenset({"sse2", "avx2"})))
    assert state("engine")[:2] == (OK, "torch-fp32-grouped is used: the fastest without bfloat16 in the CPU")
    monkeypatch.setattr(doctor, "this_cpu", lambda: Cpu("new", frozenset({"sse2", "avx512_bf16"})))
    assert "lastseen[openvino]" in state("engine")[2]
    for module in (openvino, engine):
        monkeypatch.setattr(module, "why_no_openvino", lambda: None)
    assert state("engine")[1].startswith("openvino-bf16 is used: OpenVINO ")
    monkeypatch.setenv("LASTSEEN_ENGINE", "torch-bf16")
    assert state("engine")[1].startswith("torch-bf16 is used")
    monkeypatch.setenv("LASTSEEN_ENGINE", "steam")
    assert state("engine")[0] == PROBLEM


def test_an_engine_that_is_not_installed_is_a_problem(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.setenv("LASTSEEN_ENGINE", "openvino-bf16")
    found = state("engine")
    assert found[0] == PROBLEM
    assert "lastseen[openvino]" in found[1]

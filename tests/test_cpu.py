"""What the processor supports, read as each system tells it."""

import platform
from pathlib import Path

import pytest

from lastseen import cpu, doctor
from lastseen.cpu import Cpu, parse_cpuinfo, parse_sysctl, this_cpu

ZEN4 = "processor\t: 0\nmodel name\t: AMD EPYC 9454\nflags\t\t: fpu sse2 avx2 avx512f avx512_bf16\n"
XEON = "processor : 0\nmodel name : Xeon\nflags : sse2 avx2 avx512f amx_tile amx_bf16\n"
HASWELL = "processor : 0\nmodel name : Core i5\nflags : sse2 avx avx2\n"
GRAVITON = "processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n"
M2 = "machdep.cpu.brand_string: Apple M2\nhw.optional.arm.FEAT_BF16: 1\nhw.optional.arm.FEAT_SME: 0\n"
MAC_INTEL = (
    "machdep.cpu.brand_string: Intel(R) Core(TM) i7\n"
    "machdep.cpu.features: FPU SSE2 AVX1.0\n"
    "machdep.cpu.leaf7_features: BMI1 AVX2\n"
)


@pytest.mark.parametrize(
    ("found", "name", "features", "engine"),
    [
        (parse_cpuinfo(ZEN4), "AMD EPYC 9454", ["AVX2", "AVX-512", "bfloat16"], "openvino-bf16"),
        (parse_cpuinfo(XEON), "Xeon", ["AVX2", "AVX-512", "AMX", "bfloat16"], "openvino-bf16"),
        (parse_cpuinfo(HASWELL), "Core i5", ["AVX2"], "torch-fp32-grouped"),
        (parse_cpuinfo(GRAVITON), platform.machine(), ["bfloat16"], "torch-fp32-grouped"),
        (parse_sysctl(M2), "Apple M2", ["bfloat16"], "torch-fp32-grouped"),
        (parse_sysctl(MAC_INTEL), "Intel(R) Core(TM) i7", ["AVX2"], "torch-fp32-grouped"),
    ],
)
def test_each_system_tells_it_in_its_own_words(found, name, features, engine):
    assert (found.name, found.features, found.suggested_engine) == (name, features, engine)


def test_a_feature_counts_if_all_processors_have_it():
    assert parse_cpuinfo(ZEN4 + "\n" + HASWELL).features == ["AVX2"]


def test_what_cannot_be_read_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "missing")
    monkeypatch.setattr(cpu, "SYSCTL", (str(tmp_path / "missing"),))
    for system in ("Linux", "Darwin", "Windows"):
        found = this_cpu(system)
        assert found.name
        assert (found.has("AVX2"), found.features, found.suggested_engine) == (None, [], None)
    assert parse_cpuinfo("processor : 0\n").flags is None
    assert parse_sysctl("").flags is None


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="not Linux")
def test_this_machine_is_read():
    found = this_cpu()
    assert found.flags and found.suggested_engine
    assert found.has("AVX2") == ("avx2" in Path("/proc/cpuinfo").read_text().split())


def test_doctor_names_what_matters_and_the_engine(monkeypatch):
    monkeypatch.setattr(doctor, "this_cpu", lambda: parse_cpuinfo(ZEN4))
    found = doctor.check_cpu()
    assert found.state == doctor.OK
    assert found.found == (
        "AMD EPYC 9454 with AVX2, AVX-512, bfloat16, without AMX; its fastest engine is openvino-bf16"
    )
    monkeypatch.setattr(doctor, "this_cpu", lambda: parse_cpuinfo("model name: Old\nflags: sse2"))
    assert doctor.check_cpu().state == doctor.NOTE
    assert doctor.check_cpu().advice
    monkeypatch.setattr(doctor, "this_cpu", lambda: parse_sysctl(M2))
    assert doctor.check_cpu().found == "Apple M2 with bfloat16; its fastest engine is torch-fp32-grouped"
    monkeypatch.setattr(doctor, "this_cpu", lambda: Cpu("A Chip", None))
    assert doctor.check_cpu().found == "A Chip; what it supports is unknown on this system"

"""What the processor can compute with, as far as it decides how fast a search is.

Linux tells in /proc/cpuinfo, macOS by sysctl; elsewhere nothing is known, and nothing is suggested.
"""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
SYSCTL = ("/usr/sbin/sysctl", "machdep.cpu", "hw.optional")
# What is said -> flags of which any means that it is there: Linux on x86, Linux on ARM, macOS.
FEATURES = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512f",),
    "AMX": ("amx_tile", "amx-tile"),
    "bfloat16": ("avx512_bf16", "amx_bf16", "amx-bf16", "bf16", "feat_bf16"),
}
X86_BFLOAT16 = ("avx512_bf16", "amx_bf16", "amx-bf16")


@dataclass(frozen=True)
class Cpu:
    name: str
    flags: frozenset[str] | None  # lower case, as the system calls them; None: the system does not say

    def has(self, feature: str) -> bool | None:
        """Whether it has one of FEATURES; None if that is not known."""
        return None if self.flags is None else not self.flags.isdisjoint(FEATURES[feature])

    @property
    def features(self) -> list[str]:
        return [feature for feature in FEATURES if self.has(feature)]

    @property
    def is_x86(self) -> bool:
        return self.flags is not None and "sse2" in self.flags

    @property
    def suggested_engine(self) -> str | None:
        """The fastest engine on such processors (docs/speed.md); None if the flags are not known.

        OpenVINO computes in bfloat16 on x86 only; PyTorch is not faster with bfloat16 where it is emulated.
        """
        if self.flags is None:
            return None
        return "openvino-bf16" if not self.flags.isdisjoint(X86_BFLOAT16) else "torch-fp32-grouped"


def this_cpu(system: str | None = None) -> Cpu:
    """The processor of this machine; what cannot be read is unknown, never an error."""
    system = system or platform.system()
    try:
        if system == "Linux":
            return parse_cpuinfo(CPUINFO.read_text(errors="replace"))
        if system == "Darwin":
            done = subprocess.run(SYSCTL, capture_output=True, text=True, timeout=10, check=False)
            return parse_sysctl(done.stdout)
    except (OSError, subprocess.SubprocessError):
        pass
    return Cpu(platform.processor() or platform.machine() or "unknown", None)


def parse_cpuinfo(text: str) -> Cpu:
    """/proc/cpuinfo: "flags" on x86, "Features" on ARM; what all processors have counts."""
    names, flags = [], []
    for key, value in _pairs(text):
        if key.lower() in ("flags", "features"):
            flags.append(frozenset(value.lower().split()))
        elif key == "model name":
            names.append(value)
    name = names[0] if names else platform.machine() or "unknown"
    return Cpu(name, frozenset.intersection(*flags) if flags else None)


def parse_sysctl(text: str) -> Cpu:
    """`sysctl machdep.cpu hw.optional`: lists of flags on Intel, a line each ("...: 1") on Apple silicon."""
    name, flags = "", set()
    for key, value in _pairs(text):
        if key == "machdep.cpu.brand_string":
            name = value
        elif key.startswith("machdep.cpu.") and key.endswith("features"):
            flags |= set(value.lower().split())
        elif key.startswith("hw.optional.") and value == "1":
            flags.add(key.rsplit(".", 1)[-1].lower())
    return Cpu(name or platform.machine() or "unknown", frozenset(flags) or None)


def _pairs(text: str) -> list[tuple[str, str]]:
    lines = (line.partition(":") for line in text.splitlines())
    return [(key.strip(), value.strip()) for key, colon, value in lines if colon]

"""Check this machine: what works, what is wrong, and how to fix it.

Each check is a function that returns one Finding; an exception inside it becomes a Finding, too.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from lastseen import __version__
from lastseen.cpu import FEATURES, this_cpu
from lastseen.errors import LastSeenError

OK, NOTE, PROBLEM = "ok", "note", "problem"
SCHEMA = "lastseen/doctor@1"
LIBRARIES = ("numpy", "scipy", "pillow", "einops", "safetensors", "rich", "typer")
MODULES = {"pillow": "PIL"}  # package -> module, where the names differ
DECODERS = {  # codec -> PyAV's names of its decoders
    "h264": ("h264",),
    "hevc": ("hevc",),
    "vp9": ("vp9", "libvpx-vp9"),
    "av1": ("libdav1d", "av1", "libaom-av1"),
}
SETTINGS = {
    "LASTSEEN_DEVICE": "the device, like --device",
    "LASTSEEN_ENGINE": "the engine, like --engine",
    "LASTSEEN_WEIGHTS": "the model folder, like --weights",
    "LASTSEEN_INDEX": "the folder of the index, like --index",
    "LASTSEEN_TOKEN": "the token that requests to the page need, like --token",
    "LASTSEEN_MODELS": "the folder of models that 'lastseen models add' added",
}
SCARCE_BYTES, LITTLE_BYTES = 200e6, 2e9
REINSTALL = "install lastseen again: pip install --force-reinstall lastseen"


@dataclass(frozen=True)
class Finding:
    name: str
    state: str  # ok; note: works, but worth knowing; problem: something needed is broken
    found: str
    advice: str = ""


def examine(index: Path | None = None, *, usual: Path = Path()) -> list[Finding]:
    """Run all checks; disk space is checked at `index` (else LASTSEEN_INDEX, else the usual folder)."""
    named = index or os.environ.get("LASTSEEN_INDEX")
    checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("python", check_python),
        ("cpu", check_cpu),
        ("libraries", check_libraries),
        ("torch", check_torch),
        ("device", check_device),
        ("decoder", check_decoder),
        ("codecs", check_codecs),
        ("engine", check_engine),
        ("weights", check_weights),
        ("model", check_model),
        ("disk", lambda: check_disk(Path(named or usual), needed=bool(named))),
        ("settings", check_settings),
    )
    return [_safely(name, check) for name, check in checks]


def is_healthy(findings: list[Finding]) -> bool:
    return all(finding.state != PROBLEM for finding in findings)


def as_dict(findings: list[Finding]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "version": __version__,
        "ok": is_healthy(findings),
        "findings": [asdict(finding) for finding in findings],
    }


def as_text(findings: list[Finding]) -> str:
    lines = [f"lastseen {__version__}"]
    for finding in findings:
        lines.append(f"{finding.state:8} {finding.name:10} {finding.found}")
        if finding.advice:
            lines.append(f"{'':19} -> {finding.advice}")
    broken = sum(finding.state == PROBLEM for finding in findings)
    lines.append(f"{broken} problem{'s' if broken > 1 else ''}." if broken else "All that is needed works.")
    return "\n".join(lines)


def check_python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return Finding("python", OK, found)


def check_cpu() -> Finding:
    """Name what the processor has of what makes a search fast, and the engine that uses it."""
    cpu = this_cpu()
    if cpu.flags is None:
        return Finding("cpu", OK, f"{cpu.name}; what it supports is unknown on this system")
    relevant = FEATURES if cpu.is_x86 else ("bfloat16",)  # the others are Intel's and AMD's
    missing = [feature for feature in relevant if not cpu.has(feature)]
    said = [
        f"{word} {', '.join(part)}" for word, part in (("with", cpu.features), ("without", missing)) if part
    ]
    found = f"{cpu.name} {', '.join(said)}; its fastest engine is {cpu.suggested_engine}"
    if cpu.is_x86 and not cpu.has("AVX2"):
        return Finding("cpu", NOTE, found, "a processor with AVX2 (2013 and later) is several times faster")
    return Finding("cpu", OK, found)


def check_libraries() -> Finding:
    broken = {}
    for name in LIBRARIES:
        try:
            import_module(MODULES.get(name, name))
        except Exception as error:
            broken[name] = _first_line(error)
    if broken:
        found = "; ".join(f"{name}: {reason}" for name, reason in broken.items())
        return Finding("libraries", PROBLEM, found, f"pip install --force-reinstall {' '.join(broken)}")
    return Finding("libraries", OK, ", ".join(f"{name} {_version(name)}" for name in LIBRARIES))


def check_torch() -> Finding:
    try:
        import torch
    except Exception as error:
        return Finding("torch", PROBLEM, _first_line(error), "install PyTorch: pip install torch")
    threads = torch.get_num_threads()
    found = f"{torch.__version__}, {threads} thread{'s' if threads > 1 else ''}"
    cores = os.cpu_count() or 1
    if threads == 1 < cores and not torch.cuda.is_available():
        return Finding("torch", NOTE, found, f"OMP_NUM_THREADS={cores} would use all cores")
    return Finding("torch", OK, found)


def check_device() -> Finding:
    import torch

    from lastseen.engine.devices import best_device, checked_device

    names = [
        f"cuda:{i} {torch.cuda.get_device_name(i)}, "
        f"{torch.cuda.get_device_properties(i).total_memory / 2**30:.0f} GiB"
        for i in range(torch.cuda.device_count())
    ]
    wanted = os.environ.get("LASTSEEN_DEVICE")
    if wanted:
        try:
            checked_device(wanted)
        except LastSeenError as error:
            return Finding("device", PROBLEM, f"LASTSEEN_DEVICE: {error}", "unset LASTSEEN_DEVICE")
    found = f"{wanted or best_device()} is used; there is {'; '.join([*names, 'cpu'])}"
    return Finding("device", OK, found)


def check_decoder() -> Finding:
    """Decode a frame of the bundled video."""
    try:
        import av
    except Exception as error:
        return Finding("decoder", PROBLEM, _first_line(error), "install PyAV: pip install av")
    from lastseen.video import Video

    libraries = {name: ".".join(map(str, number)) for name, number in av.library_versions.items()}
    found = f"PyAV {av.__version__}, libavcodec {libraries.get('libavcodec', 'unknown')}"
    demo = Path(str(files("lastseen") / "assets" / "demo.mp4"))
    if not demo.is_file():
        return Finding("decoder", NOTE, f"{found}; not tried: the demo video is missing", REINSTALL)
    Video(demo).frame_at(0.0)
    return Finding("decoder", OK, f"{found}, decodes the demo video")


def check_codecs() -> Finding:
    import av

    from lastseen.video.writer import ENCODERS

    known = set(av.codecs_available)
    reads = [codec for codec, names in DECODERS.items() if known & set(names)]
    writes = next((name for name in ENCODERS if name in known), "")
    found = f"reads {', '.join(reads) or 'nothing'}; writes with {writes or 'nothing'}"
    missing = [codec for codec in DECODERS if codec not in reads]
    if "h264" in missing or not writes:
        return Finding("codecs", PROBLEM, found, "install PyAV as a wheel: pip install --force-reinstall av")
    if missing:
        advice = f"convert {' and '.join(missing)} videos first: ffmpeg -i IN -c:v libx264 OUT.mp4"
        return Finding("codecs", NOTE, found, advice)
    return Finding("codecs", OK, found)


def check_engine() -> Finding:
    """Which engine is used, and why no faster one."""
    from lastseen.engine import ENGINES, default_engine
    from lastseen.engine.devices import best_device
    from lastseen.engine.openvino import why_no_openvino

    wanted, device = os.environ.get("LASTSEEN_ENGINE"), best_device()
    if wanted and wanted not in ENGINES:
        found = f"LASTSEEN_ENGINE: {wanted} is unknown"
        return Finding("engine", PROBLEM, found, f"choose one of {', '.join(ENGINES)}, or unset it")
    used = wanted or default_engine(device, paper=False)
    missing = why_no_openvino()
    if used == "openvino-bf16" and missing:
        return Finding("engine", PROBLEM, f"LASTSEEN_ENGINE: {missing}", "or unset LASTSEEN_ENGINE")
    if wanted:
        return Finding("engine", OK, f"{used} is used: LASTSEEN_ENGINE names it")
    if device.type != "cpu":
        return Finding("engine", OK, f"{used} is used: the fastest on a {device.type} device")
    if missing is None:
        found = f"{used} is used: OpenVINO {version('openvino')} is installed, and the CPU has bfloat16"
        return Finding("engine", OK, found)
    if this_cpu().suggested_engine == "openvino-bf16":
        advice = "pip install 'lastseen[openvino]' makes searching about four times as fast on this CPU"
        return Finding("engine", NOTE, f"{used} is used", advice)
    return Finding("engine", OK, f"{used} is used: the fastest without bfloat16 in the CPU")


def check_weights() -> Finding:
    from lastseen.weights import bundled_backbone, bundled_model

    try:
        found = {"model": bundled_model() / "model.safetensors", "backbone": bundled_backbone()}
    except LastSeenError as error:
        return Finding("weights", PROBLEM, str(error), REINSTALL)
    sizes = ", ".join(f"{name} {path.stat().st_size / 1e6:.1f} MB" for name, path in found.items())
    return Finding("weights", OK, f"{sizes}, checksums verified")


def check_model() -> Finding:
    """Check the model folder in LASTSEEN_WEIGHTS."""
    folder = os.environ.get("LASTSEEN_WEIGHTS")
    if not folder:
        return Finding("model", OK, "the bundled one; LASTSEEN_WEIGHTS names no other")
    from lastseen.baselines.stored import load_rival, rival_folder
    from lastseen.localizer import TRAINING_FREE
    from lastseen.weights import load_model, load_training_free

    model: Any
    try:
        rival = rival_folder(folder)
        if rival is not None:
            model, _ = load_rival(rival)
        else:
            model = load_training_free() if folder == TRAINING_FREE else load_model(folder)
    except LastSeenError as error:
        advice = "let LASTSEEN_WEIGHTS name a folder made by 'lastseen convert', or unset it"
        return Finding("model", PROBLEM, str(error), advice)
    return Finding("model", OK, f"{folder}: {model.title}")


def check_disk(folder: Path, *, needed: bool) -> Finding:
    """Free space and write permission at the index folder (`needed` if the user chose it)."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:.1f} GB free at {folder.absolute()}"
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        found = f"{found}, which cannot be written to ({(error.strerror or str(error)).lower()})"
        advice = "choose another folder for the index and outputs, or change who may write there"
        return Finding("disk", PROBLEM if needed else NOTE, found, advice)
    if free < SCARCE_BYTES:
        return Finding("disk", PROBLEM, found, "free some space: outputs and an index need it")
    if free < LITTLE_BYTES:
        return Finding("disk", NOTE, found, "an index of many hours may not fit")
    return Finding("disk", OK, found)


def check_settings() -> Finding:
    there = {name: value for name, value in sorted(os.environ.items()) if name.startswith("LASTSEEN_")}
    shown = {
        name: "(set)" if name == "LASTSEEN_TOKEN" else value for name, value in there.items()
    }  # a secret
    found = ", ".join(f"{name}={value}" for name, value in shown.items()) or "no LASTSEEN_ variables"
    unknown = [name for name in there if name not in SETTINGS]
    if not unknown:
        return Finding("settings", OK, found)
    near = get_close_matches(unknown[0], SETTINGS, n=1)
    advice = f"{unknown[0]} is no setting; " + (
        f"did you mean {near[0]}?" if near else f"known: {', '.join(SETTINGS)}"
    )
    return Finding("settings", NOTE, found, advice)


def _safely(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        return Finding(name, PROBLEM, f"could not be checked: {_first_line(error)}", REINSTALL)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "of unknown version"

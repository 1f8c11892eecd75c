"""Encode frames with OpenVINO on the CPU; queries and heads, a small part of the work, run in PyTorch.

The network is converted once per input size and cached in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import threading
import warnings
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from lastseen.box import Letterbox
from lastseen.engine.eager import Engine
from lastseen.errors import LastSeenError
from lastseen.model import Model
from lastseen.model.inputs import letterboxed
from lastseen.model.padding import PaddingGroups, padding_groups

Key = tuple[tuple[int, ...], PaddingGroups | None]  # shape of the pictures, and their padding
FORMAT = 2  # version of the cache; changing it discards cached networks


class OpenVinoEngine(Engine):
    """openvino-bf16"""

    name = "openvino-bf16"
    rounding = "openvino bfloat16, padding in groups"
    group_padding = True

    def __init__(self, model: Model, device: torch.device) -> None:
        if device.type != "cpu":
            raise LastSeenError(
                f"engine openvino-bf16 is for the CPU, not {device.type}; take torch-fp16 there"
            )
        super().__init__(model, device)
        if why := why_no_openvino():
            raise LastSeenError(why)
        self._openvino = load_openvino()
        self._core = self._openvino.Core()
        self._compiled: dict[Key, Any] = {}
        self._lock = threading.Lock()  # a compiled network is not thread-safe; the web server has threads
        self._weights = model.fingerprint()

    def is_prepared(self, width: int, height: int, batch: int) -> bool:
        key = self._key(self.model.letterbox(width, height), batch)
        return key in self._compiled or (self._place(key) / "model.xml").is_file()

    def prepare(self, width: int, height: int, batch: int) -> None:
        with self._lock:
            self._ready(self._key(self.model.letterbox(width, height), batch))

    def encode_frames(self, frames: Tensor) -> Tensor:
        letterbox = self.model.letterbox(frames.shape[2], frames.shape[1])
        pictures = letterboxed(frames, letterbox, self.model.padding)
        with self._lock:
            network = self._ready(self._key(letterbox, len(frames)))
            return torch.from_numpy(network(pictures.numpy())[0].copy())

    def _key(self, letterbox: Letterbox, count: int) -> Key:
        shape = count, 3, letterbox.canvas_height, letterbox.canvas_width
        return shape, padding_groups(letterbox, self.model.patch)

    def _ready(self, key: Key) -> Any:
        if key not in self._compiled:
            self._compiled[key] = self._core.compile_model(
                self._network(key),
                "CPU",
                {
                    "INFERENCE_PRECISION_HINT": "bf16",
                    "PERFORMANCE_HINT": "LATENCY",
                    "INFERENCE_NUM_THREADS": torch.get_num_threads(),
                },
            )
        return self._compiled[key]

    def _place(self, key: Key) -> Path:
        made_by = FORMAT, version("openvino"), torch.__version__, key, self._weights
        return cache_folder() / "openvino" / hashlib.sha256(repr(made_by).encode()).hexdigest()[:32]

    def _network(self, key: Key) -> Any:
        """From the cache, or converted and put there."""
        place = self._place(key)
        if (place / "model.xml").is_file():
            with suppress(RuntimeError):  # damaged: converted again below
                return self._core.read_model(place / "model.xml")
            shutil.rmtree(place, ignore_errors=True)
        network = converted(self.model, *key)
        with suppress(OSError):  # cannot be cached: converted again next time
            self._keep(network, place)
        # A network that was saved and read rounds otherwise than the one that was saved: all are read.
        if (place / "model.xml").is_file():
            return self._core.read_model(place / "model.xml")
        with tempfile.TemporaryDirectory(prefix="lastseen-") as folder:
            self._openvino.save_model(network, Path(folder) / "model.xml", compress_to_fp16=False)
            return self._core.read_model(Path(folder) / "model.xml")

    def _keep(self, network: Any, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        try:
            self._openvino.save_model(network, building / "model.xml", compress_to_fp16=False)
            building.rename(place)  # atomic; another process may have been first
        finally:
            shutil.rmtree(building, ignore_errors=True)


def why_no_openvino() -> str | None:
    """Why openvino-bf16 cannot be used on this machine; None if it can."""
    try:
        load_openvino()
    except LastSeenError as error:
        return str(error)
    if not _has_bfloat16():
        return "engine openvino-bf16 needs a CPU with bfloat16, unlike this one; take torch-fp32-grouped"
    return None


@lru_cache
def _has_bfloat16() -> bool:
    return "BF16" in load_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def load_openvino() -> Any:
    """Import OpenVINO with its telemetry disabled: nothing may leave this machine."""
    reporter = "openvino_telemetry"
    known = sys.modules.get(reporter)
    sys.modules[reporter] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import openvino
    except ImportError:
        raise LastSeenError(
            "engine openvino-bf16 needs OpenVINO: pip install 'lastseen[openvino]', or take torch-bf16"
        ) from None
    finally:
        del sys.modules[reporter]
        if known is not None:
            sys.modules[reporter] = known
    return openvino


class _Encoder(nn.Module):
    """`Model.encode` as a module that can be traced."""

    def __init__(self, model: Model, groups: PaddingGroups | None) -> None:
        super().__init__()
        self.model, self.groups = cast(nn.Module, model), groups

    def forward(self, pictures: Tensor) -> Tensor:
        return cast(Model, self.model).encode(pictures, self.groups)


def converted(model: Model, shape: tuple[int, ...], groups: PaddingGroups | None) -> Any:
    """The PyTorch module converted for inputs of one shape and padding; takes about 10 s for a ViT-S."""
    load_openvino()
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of sizes traced as constants: the shape is fixed
        traced = TorchScriptPythonDecoder(_Encoder(model, groups).eval(), example_input=(torch.zeros(shape),))
        frontend = FrontEndManager().load_by_framework("pytorch")
        network = frontend.convert(frontend.load(traced))
    network.reshape(list(shape))
    return network


def cache_folder() -> Path:
    """The user's cache folder."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "lastseen" / "cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "lastseen"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "lastseen"

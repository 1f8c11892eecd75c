"""A server for tests: a tiny model, little videos, and ways to wait for its jobs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from PIL import Image
from scenes import box_at, write_scene

from lastseen.localizer import Localizer
from lastseen.sighting import Confidence
from lastseen.web.media import Settings
from lastseen.web.run import address_of, config_of, open_socket
from lastseen.web.server import create_app

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from index_kill import tiny_localizer

HERE = "http://127.0.0.1:8765"  # what tests without a socket call the server
PLACE, EARLIER = (210, 90), (40, 60)
PLACES = [None] * 4 + [EARLIER] * 5 + [None] * 5 + [PLACE] * 5 + [None] * 4  # 5 frames a second


class Paced(Localizer):
    """Waits before each batch while `hold` is set, so that a test can look at a running job."""

    def __init__(self, inner: Localizer) -> None:
        self.__dict__.update(inner.__dict__)
        self.hold = threading.Event()

    def encode_pictures(self, pictures: Any) -> Any:
        waited_s = 0.0
        while self.hold.is_set() and waited_s < 0.4:
            time.sleep(0.02)
            waited_s += 0.02
        return super().encode_pictures(pictures)


def tiny(threshold: float = 0.0) -> Paced:
    """Random weights; with threshold 0 anything is seen, over 1 nothing."""
    localizer = tiny_localizer()
    localizer = localizer.with_rule(replace(localizer.rule, confidence=Confidence(threshold=threshold)))
    return Paced(localizer)


def write_walk(path: Path, places: list[Any] = PLACES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_scene(path, places)


def finished(client: Any, job: str, within_s: float = 30.0) -> dict[str, Any]:
    """The job, once it has ended."""
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        state = client.get(f"/api/jobs/{job}").json()
        if state["state"] in ("done", "failed", "cancelled"):
            return state
        time.sleep(0.02)
    raise AssertionError(f"the job has not ended: {state}")


def jpeg(image: np.ndarray) -> bytes:
    stream = BytesIO()
    Image.fromarray(image).save(stream, "JPEG")
    return stream.getvalue()


def look(video: str, time: float = 3.0) -> dict:
    return {"video": video, "time": time, "box": list(box_at(PLACE).xyxy)}


def left_over(folder: Path) -> list[str]:
    uploads = folder / "index" / "uploads"
    # os.walk, as folders go away while they are looked at.
    return sorted(name for _, _, names in os.walk(uploads) for name in names if name != "lock")


@contextmanager
def served(settings: Settings, localizer: Localizer) -> Iterator[str]:
    """A real server on a free port, in a thread; its address."""
    listening = open_socket(settings.host, 0)
    app = create_app(settings, localizer)
    server = uvicorn.Server(config_of(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    try:
        yield address_of(listening)
    finally:
        app.state.jobs.closed = True
        server.should_exit = True
        thread.join(20)
        listening.close()
    assert not thread.is_alive(), "the server did not end"

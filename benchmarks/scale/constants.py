"""What the cost model starts from: what was measured here, what is given (prices, machines), and for whom.

Each number says its unit and where it is from; docs/scale.md shows all of them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).with_name("measured.json")
FRAME_RATE = 5.0  # frames a second that are searched
FRAMES_AN_HOUR = FRAME_RATE * 3600


def number(value: float, unit: str, about: str) -> Any:
    """A number with its unit and where it is from, or what it means."""
    return field(default=value, metadata={"unit": unit, "about": about})


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The bundled model, 448 px. Of several measurements the slowest."""

    full_frame_bytes: float = number(
        786_432, "bytes a frame", "`full` index ([indexing.md](indexing.md#sizes))"
    )
    compact_frame_bytes: float = number(
        25_476, "bytes a frame", "`compact` index ([indexing.md](indexing.md#sizes))"
    )
    gpu_frames_s: float = number(
        3_434,
        "frames/s",
        "one H200, 1080p frames in host memory to the track ([speed.md](speed.md#gpu-measured))",
    )
    decode_frames_core_s: float = number(
        30, "frames a core-second", "1080p H.264, sampled frames ([speed.md](speed.md#gpu-measured))"
    )
    gpu_exhaustive_hour_s: float = number(
        0.542,
        "GPU-seconds an hour",
        "exact model on all of 18,000 frames on the GPU ([speed.md](speed.md#gpu-measured))",
    )
    clip_core_s: float = number(
        0.63, "core-seconds a clip", "exact model on the CPU ([speed.md](speed.md#cpu-measured))"
    )
    candidates: float = number(
        24, "clips a question", "first round of quick search ([indexing.md](indexing.md#asking))"
    )
    clip_frames: float = number(30, "frames a clip", "model configuration")
    wrong_later_an_hour: float = number(
        round(6 / 94, 4),
        "of questions",
        "6 of 94 to an hour of 24 rooms: exhaustive search finds a late sighting with a low score "
        "that quick search does not ([indexing.md](indexing.md#quick-search-against-exhaustive-search))",
    )


@dataclass(frozen=True)
class Samples:
    """measured.json: single questions to the index of the bundled demo."""

    raw: dict[str, Any]

    @classmethod
    def read(cls, path: Path = SAMPLES) -> Samples:
        return cls(json.loads(path.read_text()))

    @property
    def score_hour_core_s(self) -> float:
        """First stage: every token of an hour against the query's vectors."""
        return self.raw["score_frame_core_s"] * FRAMES_AN_HOUR

    @property
    def tokens_an_hour(self) -> float:
        return self.raw["tokens_a_frame"] * FRAMES_AN_HOUR

    @property
    def encode_query_core_s(self) -> float:
        return self.raw["encode_query_core_s"]

    @property
    def index_frame_core_s(self) -> float:
        """Decoding (640x360), encoding and writing a frame."""
        return self.raw["index_frame_core_s"]

    def shape(self, clock: str) -> tuple[float, ...]:
        """How questions differ: sorted, as multiples of their median. `clock`: "wall" or "core"."""
        return shape(self.raw[f"ask_{clock}_s"])


def shape(seconds: Sequence[float]) -> tuple[float, ...]:
    middle = statistics.median(seconds)
    return tuple(sorted(second / middle for second in seconds))


@dataclass(frozen=True, kw_only=True)
class Given:
    """Not measured: examples, to be replaced by what one pays and has. Each is an option of the command."""

    gpu_hour_usd: float = number(3.0, "USD", "one GPU for an hour")
    core_hour_usd: float = number(0.04, "USD", "one CPU core with its memory for an hour")
    gb_month_usd: float = number(0.02, "USD", "one GB on disk for a month")
    cores_a_machine: float = number(16, "cores", "of a machine that searches")
    memory_gb: float = number(128, "GB", "of such a machine, for tokens")
    disk_gb_s: float = number(1.0, "GB/s", "reading features of candidates from its disk")
    gpu_memory_gb: float = number(140, "GB", "of a GPU, for features")
    video_gb_an_hour: float = number(2.25, "GB", "an hour of 1080p video at 5 Mbit/s")
    hours_a_day: float = number(16, "hours", "that a person records")
    round_trip_s: float = number(0.001, "s", "between two machines, there and back")
    merge_shard_s: float = number(0.00001, "s", "merging the candidates of one machine")
    target_s: float = number(1.0, "s", "that the first stage may take")
    straggler_share: float = number(0.001, "of tasks", "that meet a pause of their machine")
    straggler_factor: float = number(10, "times", "as long as others these take")
    hedge_after_medians: float = number(2, "medians", "after which a task is sent to another replica, too")


@dataclass(frozen=True)
class Corpus:
    """`touched`: of how many hours every frame is scored for one question."""

    name: str
    stored_hours: float
    touched_hours: float


def corpora(given: Given) -> tuple[Corpus, ...]:
    year = 365 * given.hours_a_day
    return (
        Corpus("1 hour", 1, 1),
        Corpus("1 year of a person", year, year),
        Corpus("1,000 people, a year", 1_000 * year, year),  # everybody asks only of what is theirs
        Corpus("1 million hours", 1e6, 1e6),
    )

"""Formulas: storage, indexing, one question at a time, dollars. Queues are in simulate.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scale.constants import FRAMES_AN_HOUR, Corpus, Given, Measured, Samples

HOURS_A_MONTH = 730.0
GB = 1e9
SCALE_BYTES = 2  # of a compact token, beside one byte for each channel


@dataclass(frozen=True)
class Model:
    measured: Measured
    samples: Samples
    given: Given

    # storage

    def full_gb(self, hours: float) -> float:
        return hours * FRAMES_AN_HOUR * self.measured.full_frame_bytes / GB

    def compact_gb(self, hours: float) -> float:
        return hours * FRAMES_AN_HOUR * self.measured.compact_frame_bytes / GB

    def video_gb(self, hours: float) -> float:
        return hours * self.given.video_gb_an_hour

    # indexing, once

    def gpu_hours(self, hours: float) -> float:
        return hours * FRAMES_AN_HOUR / self.measured.gpu_frames_s / 3600

    def decode_core_hours(self, hours: float) -> float:
        return hours * FRAMES_AN_HOUR / self.measured.decode_frames_core_s / 3600

    def cpu_core_hours(self, hours: float) -> float:
        """Without a GPU: decode 1080p, then as measured on the demo, which includes its own decoding."""
        encode = hours * FRAMES_AN_HOUR * self.samples.index_frame_core_s / 3600
        return self.decode_core_hours(hours) + encode

    def decoding_cores_a_gpu(self) -> float:
        return self.measured.gpu_frames_s / self.measured.decode_frames_core_s

    def index_usd(self, hours: float) -> float:
        given = self.given
        cores = self.decode_core_hours(hours) * given.core_hour_usd
        return cores + self.gpu_hours(hours) * given.gpu_hour_usd

    def index_without_gpu_usd(self, hours: float) -> float:
        return self.cpu_core_hours(hours) * self.given.core_hour_usd

    # a question, alone on its machines

    def scan_core_s(self, hours: float) -> float:
        return hours * self.samples.score_hour_core_s

    def scan_operations(self, hours: float) -> float:
        """Multiplications and additions: each token with each vector of the query."""
        channels = self.measured.compact_frame_bytes / self.samples.raw["tokens_a_frame"] - SCALE_BYTES
        return 2 * hours * self.samples.tokens_an_hour * self.samples.raw["query_vectors"] * channels

    def machines_for_memory(self, hours: float) -> int:
        """The fewest whose memory holds the tokens of all hours."""
        return math.ceil(self.compact_gb(hours) / self.given.memory_gb)

    def machines_for_target(self, hours: float) -> int:
        """The fewest that score the tokens of all hours in the target time."""
        return math.ceil(self.scan_core_s(hours) / self.given.cores_a_machine / self.given.target_s)

    def machines_serving(self, corpus: Corpus) -> int:
        """All that is stored in memory, and what a question touches scored in the target time."""
        least = self.machines_for_memory(corpus.stored_hours)
        return max(least, self.machines_for_target(corpus.touched_hours))

    def scan_median_s(self, hours: float, machines: int) -> float:
        """On one of the machines, its cores sharing the work evenly."""
        return self.scan_core_s(hours) / machines / self.given.cores_a_machine

    def scan_slowest_s(self, hours: float, machines: int, shape: Sequence[float]) -> float:
        return self.scan_median_s(hours, machines) * expected_slowest(shape, machines)

    def merge_s(self, machines: int) -> float:
        return self.given.round_trip_s + machines * self.given.merge_shard_s

    def clip_s(self, keep: str) -> float:
        """The exact model on one candidate, on all cores of a machine."""
        given, measured = self.given, self.measured
        core_s, read_s = measured.clip_core_s, 0.0
        if keep == "full":
            read_s = measured.clip_frames * measured.full_frame_bytes / GB / given.disk_gb_s
        else:
            core_s += measured.clip_frames / measured.decode_frames_core_s
            core_s += measured.clip_frames * self.samples.index_frame_core_s
        return core_s / given.cores_a_machine + read_s

    def exact_s(self, keep: str, machines: int) -> float:
        """Candidates lie on different machines, as evenly as they can."""
        return math.ceil(self.measured.candidates / machines) * self.clip_s(keep)

    def question_s(self, keep: str, hours: float, machines: int, shape: Sequence[float]) -> float:
        """Encode the query, score on all machines at once, merge, run the exact model on the candidates."""
        scan_s = self.scan_slowest_s(hours, machines, shape)
        return (
            self.samples.encode_query_core_s
            + scan_s
            + self.merge_s(machines)
            + self.exact_s(keep, machines)
            + self.given.round_trip_s
        )

    def question_core_s(self, keep: str, hours: float) -> float:
        given, measured = self.given, self.measured
        clips = measured.candidates * self.clip_s(keep) * given.cores_a_machine
        return self.samples.encode_query_core_s + self.scan_core_s(hours) + clips

    def question_usd(self, keep: str, hours: float) -> float:
        """Of machines that are always busy; idle ones cost `fleet_usd` a month."""
        return self.question_core_s(keep, hours) / 3600 * self.given.core_hour_usd

    def exhaustive_gpu_s(self, hours: float) -> float:
        """The exact model on every frame, features in the memory of GPUs."""
        return hours * self.measured.gpu_exhaustive_hour_s

    # every month

    def store_usd(self, keep: str, hours: float) -> float:
        """A month on disk; a compact index needs the videos as well."""
        gb = self.full_gb(hours) if keep == "full" else self.compact_gb(hours) + self.video_gb(hours)
        return gb * self.given.gb_month_usd

    def fleet_usd(self, machines: int) -> float:
        return machines * self.given.cores_a_machine * self.given.core_hour_usd * HOURS_A_MONTH

    # limits

    def touched_share_for_target(self, hours: float) -> float:
        """Of all tokens, what a question may touch so that the machines that memory asks for are enough."""
        return min(1.0, self.given.target_s / self.scan_median_s(hours, self.machines_for_memory(hours)))

    def hours_until_wrong(self, chance: float = 0.5) -> float:
        """Hours of other footage after which a later wrong sighting is as likely as `chance`, if hours are
        independent and alike."""
        return math.log(1 - chance) / math.log(1 - self.measured.wrong_later_an_hour)


def expected_slowest(shape: Sequence[float], machines: int) -> float:
    """Expected maximum of so many draws from the samples."""
    count = len(shape)
    return sum(
        value * ((rank / count) ** machines - ((rank - 1) / count) ** machines)
        for rank, value in enumerate(sorted(shape), 1)
    )

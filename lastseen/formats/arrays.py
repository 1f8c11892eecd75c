"""Tracks as NumPy arrays, in the layout of detection libraries.

arrays = to_arrays(tracks)
for frame in np.unique(arrays.frame):
    here = arrays.at(frame)
    detections = supervision.Detections(xyxy=here.xyxy, confidence=here.confidence, tracker_id=here.track)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lastseen.answer import VideoInfo
from lastseen.formats.answer_json import source_frame
from lastseen.track import ResponseTrack


@dataclass(frozen=True, eq=False)
class TrackArrays:
    """One row per box, in time order; empty arrays keep their shapes."""

    xyxy: np.ndarray  # [n, 4] float32, pixels
    confidence: np.ndarray  # [n] float32
    track: np.ndarray  # [n] int64, from 1
    frame: np.ndarray  # [n] int64
    time_s: np.ndarray  # [n] float64

    def __len__(self) -> int:
        return len(self.xyxy)

    def at(self, frame: int) -> TrackArrays:
        here = self.frame == frame
        return TrackArrays(
            self.xyxy[here], self.confidence[here], self.track[here], self.frame[here], self.time_s[here]
        )


def to_arrays(tracks: Sequence[ResponseTrack], video: VideoInfo | None = None) -> TrackArrays:
    """`frame` is the sample's number, or with `video` the number of its frame in the file, from 0."""
    rows = [
        (number, track, sample, box.xyxy)
        for number, track in enumerate(tracks, 1)
        for sample, box in enumerate(track.boxes, track.first_frame)
    ]
    times_s = [sample / track.fps for _, track, sample, _ in rows]
    samples = [sample for _, _, sample, _ in rows]
    frames = samples if video is None else [source_frame(video, time_s) for time_s in times_s]
    return TrackArrays(
        xyxy=np.array([xyxy for *_, xyxy in rows], np.float32).reshape(-1, 4),
        confidence=np.array([track.score for _, track, _, _ in rows], np.float32),
        track=np.array([number for number, *_ in rows], np.int64),
        frame=np.array(frames, np.int64),
        time_s=np.array(times_s, np.float64),
    )

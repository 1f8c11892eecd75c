"""The peak rule of the three detectors: which frame of the score curve the answer starts at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import median_filter
from scipy.signal import find_peaks


@dataclass(frozen=True, kw_only=True)
class PeakRule:
    """The last peak of the smoothed scores that is high enough. All but `least_score` are the originals' for
    every rival; `wlen` of their config files is never used."""

    least_score: float = 0.5  # of the smoothed score; CocoFormer's is 0.25
    median_frames: int = 5
    distance_frames: int = 25
    width_frames: int = 3
    prominence: float = 0.2

    def smoothed(self, scores: np.ndarray) -> np.ndarray:
        """Zeros stand before the first and after the last frame, as in the originals: a thing that is in view
        in the last two frames loses score."""
        return median_filter(np.asarray(scores, np.float64), self.median_frames, mode="constant")

    def peaks(self, smoothed: np.ndarray) -> np.ndarray:
        found, _ = find_peaks(
            smoothed, distance=self.distance_frames, width=self.width_frames, prominence=self.prominence
        )
        return found[smoothed[found] >= self.least_score]

    def last(self, smoothed: np.ndarray) -> int | None:
        found = self.peaks(smoothed)
        return int(found[-1]) if len(found) else None

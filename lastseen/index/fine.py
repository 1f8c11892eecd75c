"""The full features of an indexed video: read from the index, or encoded again from the video file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from lastseen.access import VideoFeatures
from lastseen.errors import IndexStoreError, VideoError
from lastseen.index.catalogue import IndexedVideo
from lastseen.index.folder import IndexFolder
from lastseen.index.originals import check_unchanged
from lastseen.index.rows import Rows
from lastseen.localizer import Localizer
from lastseen.video import Video

PIECE_ROWS = 64  # read at a time by `pieces`
HELD_FRAMES = 512  # re-encoded frames that are cached, shared by neighbouring clips and by several queries


class FineFeatures:
    """Features of frames [start, end) of a video, bit-identical whether stored or encoded again."""

    def __init__(self, index: IndexFolder, localizer: Localizer, video: IndexedVideo) -> None:
        self.index, self.localizer, self.video = index, localizer, video
        self._rows: Rows | None = index.fine(video)
        self._video: Video | None = None
        self._unavailable = False
        self._encoded_again = VideoFeatures(localizer, self.opened, video.frames, HELD_FRAMES)

    def read(self, start: int, end: int) -> Tensor:
        return self._stored(start, end) if self._rows else self._encoded_again.read(start, end)

    def pieces(self, start: int, end: int) -> Iterator[Tensor]:
        if self._rows is None:
            yield from self.localizer.encoded(self.opened(), start, end)
            return
        for at in range(start, end, PIECE_ROWS):
            yield self._stored(at, min(end, at + PIECE_ROWS))

    def _stored(self, start: int, end: int) -> Tensor:
        assert self._rows is not None and self.video.grid is not None
        dtype = torch.empty(0, dtype=self.localizer.feature_dtype).numpy().dtype
        rows = self._rows.read(start, end).view(np.dtype(dtype))
        return torch.from_numpy(rows).view(end - start, *self.video.grid)

    def can_open(self) -> bool:
        """Whether the video file exists and is unchanged since it was indexed."""
        if not self._unavailable:
            try:
                self.opened()
            except (IndexStoreError, VideoError, OSError):
                self._unavailable = True  # cached: checking a changed file hashes all of it
        return not self._unavailable

    def opened(self) -> Video:
        if self._video is None:
            self.video = check_unchanged(self.index, self.video)
            self._video = Video(self.video.path, allow_truncated=True)
            if self._video.frame_count(self.localizer.fps) < self.video.frames:
                raise IndexStoreError(f"{self.video.source} is shorter than what was indexed of it")
        return self._video

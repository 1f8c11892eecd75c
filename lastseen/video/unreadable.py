"""How much of a video could not be decoded, counted in samples."""

from __future__ import annotations

from lastseen.errors import VideoError
from lastseen.video import Frame, Video

# Beyond this share the answer "not seen" would be about what is missing more than about what is there.
MOST_UNREADABLE = 0.5


class Unreadable:
    """Counts the samples of one run through a video that could not be decoded; VideoError if they are most of
    it, unless the video may be incomplete."""

    def __init__(self, video: Video, samples: int, count: int = 0) -> None:
        self.video, self.samples, self.count = video, samples, count

    @property
    def is_most(self) -> bool:
        return self.count > MOST_UNREADABLE * self.samples

    def add(self, frame: Frame) -> None:
        self.count += frame.lost_before + (not frame.readable)
        if self.is_most and not self.video.allow_truncated:
            raise VideoError(
                f"{self.video.path}: more than half of it cannot be decoded; "
                "copy it again, or pass allow_truncated=True (--allow-truncated) to search the readable part"
            )

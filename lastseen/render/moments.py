"""Frames of a track to show in figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from lastseen.box import Box
from lastseen.render.canvas import CYAN, YELLOW, outline
from lastseen.track import ResponseTrack
from lastseen.video import Video


@dataclass(frozen=True, eq=False)
class Moment:
    """A frame, its box and, if known, the ground-truth box."""

    time_s: float
    image: np.ndarray  # [h, w, 3] uint8
    box: Box | None
    truth: Box | None = None

    def drawn(self, width: int, height: int) -> Image.Image:
        """The frame resized, with boxes drawn in lines of suitable width."""
        return self._boxed(Image.fromarray(self.image), Box(0, 0, *self.image.shape[1::-1]), width, height)

    def zoomed(self, width: int, height: int) -> Image.Image:
        """The region around the boxes, resized."""
        frame_height, frame_width = self.image.shape[:2]
        boxes = [box.xyxy for box in (self.box, self.truth) if box is not None]
        corners = np.array(boxes or [(0, 0, frame_width, frame_height)], float)
        both = Box(*map(float, (*corners[:, :2].min(0), *corners[:, 2:].max(0))))
        window = around(both, frame_width, frame_height, width / height)
        return self._boxed(Image.fromarray(self.image), window, width, height)

    def _boxed(self, picture: Image.Image, window: Box, width: int, height: int) -> Image.Image:
        shown = picture.resize((width, height), Image.Resampling.BICUBIC, box=window.xyxy, reducing_gap=3)
        line = max(2, round(min(width, height) / 80))
        for box, colour, dashed in ((self.truth, CYAN, True), (self.box, YELLOW, False)):
            if box is not None:
                placed = box.shifted(-window.x1, -window.y1)
                placed = placed.scaled(width / window.width, height / window.height)
                outline(shown, placed, colour, line, dashed=dashed)
        return shown


def moments(
    video: Video, track: ResponseTrack | None, count: int, truth: ResponseTrack | None = None
) -> list[Moment]:
    """`count` frames, evenly spaced over the track, or over the whole video if there is none."""
    if track is None:
        times_s = (np.arange(count) + 0.5) * video.duration_s / count
    else:
        frames = 1 + int((track.end - track.start) * video.fps + 0.5)  # a short track has fewer
        times_s = np.linspace(track.start, track.end, min(count, frames))
    found = []
    for time_s in map(float, times_s):
        image = video.frame_at(min(time_s, video.duration_s)).image
        box = track.box_at(time_s) if track else None
        found.append(Moment(time_s, image, box, truth.box_at(time_s) if truth else None))
    return found


def around(box: Box, frame_width: float, frame_height: float, aspect: float) -> Box:
    """A window of the given aspect (width / height) inside the frame, centred on the box, with a margin."""
    largest = min(frame_width, frame_height * aspect)
    width = min(max(1.5 * box.width, 1.2 * box.height * aspect, frame_width / 12), largest)
    height = width / aspect
    x = min(max((box.x1 + box.x2 - width) / 2, 0.0), frame_width - width)
    y = min(max((box.y1 + box.y2 - height) / 2, 0.0), frame_height - height)
    return Box(x, y, x + width, y + height)

"""Where a sighting ends: as long as a thing is in view, it is like itself.

A track reaches as far as the thing is like the picture that was asked with. It turns, blurs or comes into
another light, and the track ends or breaks, though the thing is still there. But what was seen at the peak is
known by then, in the same light and from nearly the same side: from both ends of the track the frames are
followed on while their boxes show that, and show it better than the rest of the frame does.

    tracks --patches at the peak--> frames before and after, likeness to them --> FramePredictions with spans
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.model.inputs import patches_inside
from lastseen.model.matching import lengths_of_patches
from lastseen.track import FramePredictions, ResponseTrack

AROUND = 1.5  # times a frame's box is where the thing is looked for
AHEAD = 0.05  # of the rest of the frame: plain things and walls are all alike
BACKGROUND = 0.5  # a patch that is as like one around the thing's box does not tell it from the rest
PATIENCE = 2  # frames in a row that may not show it: a blur, a hand before it
REACH = 40  # frames beyond an end
AT_ONCE = 4  # frames whose features are asked for

Features = Callable[[int, int], Tensor]  # frames [start, stop) -> [n, channels, rows, columns]


def followed(
    predictions: FramePredictions,
    tracks: Sequence[ResponseTrack],
    letterbox: Letterbox,
    features: Features,
    least: float,
) -> FramePredictions:
    """With the spans of these tracks: as far as the thing is at least so like itself at the peak.

    Nothing is followed into frames that nobody looked at (logit -inf), as their boxes are not known.
    """
    whole = np.array([[0, 0, letterbox.frame_width, letterbox.frame_height]])
    boxes, picture = (torch.from_numpy(letterbox.to_unit(px)).float() for px in (predictions.boxes_px, whole))
    follower = _Follower(predictions, boxes, picture, features, least)
    return replace(predictions, spans=tuple(follower.span(track) for track in tracks))


@dataclass(frozen=True)
class _Follower:
    predictions: FramePredictions
    boxes: Tensor  # [T, 4] in the canvas of the features
    picture: Tensor  # [1, 4] where the frame is in it
    features: Features
    least: float

    def span(self, track: ResponseTrack) -> tuple[int, int]:
        first, last = track.first_frame, track.last_frame
        peak = first + int(np.argmax(self.predictions.logits[first : last + 1]))
        thing = self._thing(peak)
        return self._reached(thing, first, -1), self._reached(thing, last, 1)

    def _thing(self, frame: int) -> _Thing:
        shown = _unit(self.features(frame, frame + 1))
        inside = _inside(self.boxes[frame : frame + 1], shown)
        lengths = lengths_of_patches(shown, inside.to(shown), self.picture.to(shown), BACKGROUND)
        return _Thing(shown[0][:, inside[0, 0]], lengths[0, 0][inside[0, 0]] == 1)

    def _reached(self, thing: _Thing, end: int, step: int) -> int:
        reached = end
        for frame, is_it in self._beyond(thing, end, step):
            if is_it:
                reached = frame
            elif abs(frame - reached) > PATIENCE:
                break
        return reached

    def _beyond(self, thing: _Thing, end: int, step: int) -> Iterator[tuple[int, bool]]:
        """The frames beyond an end, one by one, and whether they show it."""
        logits = self.predictions.logits
        frames = [end + step * n for n in range(1, REACH + 1) if 0 <= end + step * n < len(logits)]
        known = next((n for n, frame in enumerate(frames) if not np.isfinite(logits[frame])), len(frames))
        for at in range(0, known, AT_ONCE):
            part = sorted(frames[at : min(at + AT_ONCE, known)])
            shown = _unit(self.features(part[0], part[-1] + 1))
            here = _inside(_grown(self.boxes[part[0] : part[-1] + 1]), shown)
            elsewhere = _inside(self.picture, shown) & ~here
            cosine = torch.einsum("nchw,ck->nkhw", shown, thing.patches)
            best, other = (cosine.masked_fill(~where, -1.0).flatten(2).amax(2) for where in (here, elsewhere))
            ahead = (best - other)[:, thing.own].mean(1)
            is_it = ((best.mean(1) >= self.least) & (ahead >= AHEAD)).tolist()
            yield from list(zip(part, is_it))[::step]


@dataclass(frozen=True)
class _Thing:
    patches: Tensor  # [channels, k] in its box at the peak
    own: Tensor  # [k] which of them are not like what is around it


def _unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=1)


def _grown(boxes: Tensor) -> Tensor:
    middles, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    return torch.cat([middles - AROUND * sides / 2, middles + AROUND * sides / 2], 1)


def _inside(boxes: Tensor, features: Tensor) -> Tensor:
    """[n, 1, rows, columns]: the patches of these boxes."""
    return patches_inside(boxes.to(features), features.shape[2], features.shape[3]) > 0

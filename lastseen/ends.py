"""Where a sighting ends, and whether it is one: a thing is like itself.

A track reaches as far as the thing is like the picture that was asked with. It turns, blurs or comes into
another light, and the track ends or breaks, though the thing is still there. But what was seen at the peak is
known by then, in the same light and from nearly the same side: from both ends of the track the frames are
followed on while they show that, in their own box or near where it was last, and better than the rest of the
frame does. And what was seen at the surest of all peaks that count casts doubt on others that are unlike it.

    tracks --patches at the peak--> other frames, likeness to them --> FramePredictions with spans and doubts
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.box import Letterbox
from lastseen.model.encoded_query import background_patches
from lastseen.model.inputs import patches_inside
from lastseen.track import FramePredictions, ResponseTrack

AROUND = 1.5  # times a box is where the thing is looked for
STRAY = 2  # patches that it may move in a frame, beyond that
AHEAD = 0.05  # of the rest of the frame: plain things and walls are all alike
BACKGROUND = 0.5  # a patch that is as like one around the thing's box does not tell it from the rest
PATIENCE = 2  # frames in a row that may not show it: a blur, a hand before it
REACH = 40  # frames beyond an end
AT_ONCE = 4  # frames whose features are asked for
UNLIKE = 8.0  # what a sighting's logit loses for each unit of likeness that it lacks
NEAR_PEAK = 2  # frames before and after a peak that may show the thing better

Features = Callable[[int, int], Tensor]  # frames [start, stop) -> [n, channels, rows, columns]


@dataclass(frozen=True)
class _Thing:
    patches: Tensor  # [channels, k] in its box at a peak
    own: Tensor  # [k] which of them are not like what is around it
    places: Tensor  # [k, 2] x and y from the middle of the box, in the unit square


@dataclass(frozen=True)
class Eye:
    """Looks at what a video's boxes show."""

    predictions: FramePredictions
    letterbox: Letterbox
    features: Features

    def doubted(self, tracks: Sequence[ResponseTrack], least: float) -> FramePredictions:
        """With doubts about those of these tracks that are less than that like the surest one."""
        surest = max(tracks, key=lambda track: track.score)
        thing = self._thing(self._peak(surest))
        doubts = []
        for track in tracks:
            if track is not surest:
                lacking = least - self._likeness(thing, track)
                if lacking > 0:
                    doubts.append((track.first_frame, track.last_frame, UNLIKE * lacking))
        return replace(self.predictions, doubts=tuple(doubts))

    def followed(self, tracks: Sequence[ResponseTrack], least: float) -> FramePredictions:
        """With the spans of these tracks: as far as the thing is at least so like itself at the peak; and
        with boxes of its size where it is seen but not in a frame's own, unless that is in another track.

        Nothing is followed into frames that nobody looked at (logit -inf), as their boxes are not known.
        """
        boxes_px, spans = self.predictions.boxes_px.copy(), []
        theirs = {frame for track in tracks for frame in range(track.first_frame, track.last_frame + 1)}
        for track in tracks:
            first, last = track.first_frame, track.last_frame
            thing = self._thing(self._peak(track))
            before, after = (self._path(thing, end, step, least) for end, step in ((first, -1), (last, 1)))
            for frame, box in (before | after).items():
                if box is not None and frame not in theirs:
                    boxes_px[frame] = self.letterbox.to_px(box.numpy())
            spans.append((min(before, default=first), max(after, default=last)))
        return replace(self.predictions, boxes_px=boxes_px, spans=tuple(spans))

    @cached_property
    def _boxes(self) -> Tensor:
        """[T, 4] in the canvas of the features"""
        return torch.from_numpy(self.letterbox.to_unit(self.predictions.boxes_px)).float()

    @cached_property
    def _picture(self) -> Tensor:
        """[1, 4] where the frame is in it"""
        whole = np.array([[0, 0, self.letterbox.frame_width, self.letterbox.frame_height]])
        return torch.from_numpy(self.letterbox.to_unit(whole)).float()

    def _peak(self, track: ResponseTrack) -> int:
        seen = self.predictions.logits[track.first_frame : track.last_frame + 1]
        return track.first_frame + int(np.argmax(seen))

    def _thing(self, frame: int) -> _Thing:
        """What a frame's box shows."""
        shown, box = _unit(self.features(frame, frame + 1)), self._boxes[frame : frame + 1]
        rows, columns = shown.shape[2:]
        inside = patches_inside(box, rows, columns).to(shown)
        background = background_patches(shown, inside, self._picture.to(shown), BACKGROUND)
        its = inside[0, 0] > 0
        places = _middles(rows, columns)[its.flatten().cpu()] - (box[:, :2] + box[:, 2:]) / 2
        return _Thing(shown[0][:, its], ~background[0, 0][its].cpu(), places)

    def _likeness(self, thing: _Thing, track: ResponseTrack) -> float:
        """How well the boxes around a track's peak show the thing, at best."""
        peak = self._peak(track)
        start, stop = max(track.first_frame, peak - NEAR_PEAK), min(track.last_frame, peak + NEAR_PEAK) + 1
        found = zip(self._boxes[start:stop], self._cosines(thing, start, stop))
        return max(_best(cosine, self._around(box, cosine))[0].mean().item() for box, cosine in found)

    def _path(self, thing: _Thing, end: int, step: int, least: float) -> dict[int, Tensor | None]:
        """The frames beyond an end that show the thing, outwards, each with a box if its own does not."""
        path: dict[int, Tensor | None] = {}
        box, reached = self._boxes[end], end
        for frame, cosine in self._beyond(thing, end, step):
            strayed = abs(frame - reached)
            if self._shows(self._boxes[frame], thing, cosine, least):
                path[frame], box, reached = None, self._boxes[frame], frame
                continue
            moved = self._moved(box, thing, cosine, STRAY * strayed)
            if self._shows(moved, thing, cosine, least):
                path[frame], box, reached = moved, moved, frame
            elif strayed > PATIENCE:
                break
        return path

    def _beyond(self, thing: _Thing, end: int, step: int) -> Iterator[tuple[int, Tensor]]:
        """The frames beyond an end that somebody looked at, one by one, and their cosines."""
        logits = self.predictions.logits
        frames = [end + step * n for n in range(1, REACH + 1) if 0 <= end + step * n < len(logits)]
        known = list(takewhile(lambda frame: np.isfinite(logits[frame]), frames))
        for at in range(0, len(known), AT_ONCE):
            part = sorted(known[at : at + AT_ONCE])
            yield from list(zip(part, self._cosines(thing, part[0], part[-1] + 1)))[::step]

    def _cosines(self, thing: _Thing, start: int, stop: int) -> Tensor:
        """Of the thing's patches with those of frames: [n, k, rows, columns]"""
        return torch.einsum("nchw,ck->nkhw", _unit(self.features(start, stop)), thing.patches).cpu()

    def _shows(self, box: Tensor, thing: _Thing, cosine: Tensor, least: float) -> bool:
        where = self._around(box, cosine)
        elsewhere = self._inside(self._picture, cosine) & ~where
        (best, _), (other, _) = _best(cosine, where), _best(cosine, elsewhere)
        return bool(best.mean() >= least and (best - other)[thing.own].mean() >= AHEAD)

    def _moved(self, box: Tensor, thing: _Thing, cosine: Tensor, patches: int) -> Tensor:
        """The box to where its patches went, at most so far beyond what is around it."""
        _, at = _best(cosine, self._around(box, cosine, patches))
        middles = (_middles(*cosine.shape[1:])[at] - thing.places)[thing.own]
        half = (box[2:] - box[:2]) / 2
        low, high = self._picture[0, :2], self._picture[0, 2:]
        middle = middles.median(0).values.clamp(low, high)
        return torch.cat([middle - half, middle + half])

    def _around(self, box: Tensor, cosine: Tensor, patches: int = 0) -> Tensor:
        """A box and what is around it, so many patches more to every side, in the picture."""
        one = 1 / torch.tensor([cosine.shape[2], cosine.shape[1]])
        half = (AROUND * (box[2:] - box[:2]) / 2) + patches * one
        middle = (box[:2] + box[2:]) / 2
        grown = torch.cat([middle - half, middle + half])[None]
        return self._inside(grown, cosine) & self._inside(self._picture, cosine)

    @staticmethod
    def _inside(boxes: Tensor, cosine: Tensor) -> Tensor:
        return patches_inside(boxes, *cosine.shape[1:])[0, 0] > 0


def _best(cosine: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """The likest patch for each of the thing's, and which it is; nothing is like what is not there."""
    best, at = cosine.masked_fill(~where, -1.0).flatten(1).max(1)
    return best, at


def _unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=1)


def _middles(rows: int, columns: int) -> Tensor:
    """Of patches, in the unit square: [rows * columns, 2] x and y"""
    down, across = (torch.arange(count) + 0.5 for count in (rows, columns))
    grid = torch.stack(torch.meshgrid(across / columns, down / rows, indexing="xy"), -1)
    return grid.flatten(0, 1)

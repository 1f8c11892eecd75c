"""Questions about rendered walks, answered as those about videos are, without decoding a file: a training run
can ask them again and again, also where no decoder is installed.

A question asks for the last time that a thing is seen in a walk, with a picture from elsewhere; others ask
for things that are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lastseen.box import Box, Letterbox
from lastseen.evaluate.calibration import Answered
from lastseen.evaluate.encoded import report
from lastseen.localizer import Localizer
from lastseen.model import Backbone, TrainedConfig, TrainedModel
from lastseen.model.inputs import letterboxed, normalised
from lastseen.rule import Rule
from lastseen.sighting import Evidence
from lastseen.track import ResponseTrack
from lastseen.train.gallery import Gallery

AT_ONCE = 64  # pictures
FPS = 5.0  # of walks
METRICS = ("tap25", "stap25", "recovery", "success", "stap25_unranked")


@dataclass(frozen=True, kw_only=True)
class WalkFootage:
    """What a search needs to know of a walk."""

    path: Path
    width: int
    height: int
    frames: int

    @property
    def duration_s(self) -> float:
        return self.frames / FPS

    def frame_count(self, fps: float) -> int:
        return self.frames


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedWalk:
    """| features | float16 [frames, channels, side, side]      |
    | views    | numbers of the questions' pictures            |
    | truths   | one each; None: the thing is not in the walk  |
    """

    footage: WalkFootage
    features: Tensor
    views: list[int]
    truths: list[ResponseTrack | None]


class WalkQuestions:
    """A gallery's walks with `things` questions each and `absent` about things that are not there."""

    def __init__(
        self, gallery: Gallery, backbone: Backbone, config: TrainedConfig, *, things: int = 6, absent: int = 2
    ) -> None:
        self.gallery, self.config = gallery, config
        self.backbone = backbone.to(gallery.device).eval()
        self._views: dict[int, Tensor] = {}  # [scales, channels, q side, q side] of those that are asked with
        self.walks = [self._encoded(number, things, absent) for number in range(len(gallery.walks))]

    def metrics(self, model: TrainedModel) -> dict[str, float]:
        """By the rule that models have before one is fitted: a fit would take longer than the answers."""
        found = report(self.answer(model), Rule(), draws=0)
        values = {name: found.value(name) for name in METRICS} | {"auroc": found.auroc.value}
        return {name: value for name, value in values.items() if value is not None}

    @torch.inference_mode()
    def answer(self, model: TrainedModel) -> list[Answered]:
        model = model.eval()
        device, answered = self.gallery.device, []
        localizer = Localizer(model, fps=FPS, device=device)
        for walk in self.walks:
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                views = [
                    [
                        model.encode_query_features(
                            self._views[view][None].float(),
                            self.gallery.view_boxes[view][None],
                            self.gallery.view_shown[view][None],
                        ).row(0)
                    ]
                    for view in walk.views
                ]
                pieces = (model.encode_features(part.float()) for part in torch.split(walk.features, AT_ONCE))
                ends = [walk.footage.frames] * len(views)
                found = localizer.predict_encoded(walk.footage, pieces, views, ends)
            answered += [
                Answered(video_uid=str(walk.footage.path), evidence=Evidence.of(predictions), truth=truth)
                for predictions, truth in zip(found, walk.truths)
            ]
        return answered

    @torch.inference_mode()
    def _encoded(self, number: int, things: int, absent: int) -> EncodedWalk:
        walk, frames = self.gallery.walks[number], self.gallery.frames[number]
        rng = np.random.default_rng(number)
        views, truths = self._questions(number, things, rng)
        others = self._absent(number, absent, rng)
        for view in (*views, *others):
            if view not in self._views:
                pictures = self.gallery.views[view].permute(0, 3, 1, 2).float() / 255
                self._views[view] = self._features(normalised(pictures))
        letterbox = Letterbox.square(walk.width, walk.height, self.config.image_size)
        return EncodedWalk(
            footage=WalkFootage(
                path=Path(f"walk-{number:04d}"), width=walk.width, height=walk.height, frames=len(frames)
            ),
            features=self._features(letterboxed(frames, letterbox, self.config.padding)),
            views=[*views, *others],
            truths=[*truths, *(None for _ in others)],
        )

    def _questions(
        self, number: int, things: int, rng: np.random.Generator
    ) -> tuple[list[int], list[ResponseTrack]]:
        walk = self.gallery.walks[number]
        views: list[int] = []
        truths: list[ResponseTrack] = []
        for thing in rng.permutation(len(walk.names)):
            frames = last_run(walk.visible[:, thing])
            options = self.gallery.askable(number, int(thing), frames) if len(frames) else []
            if options and len(views) < things:
                boxes = tuple(Box(*map(float, box)) for box in walk.boxes_px[frames, thing])
                truths.append(ResponseTrack(first_frame=frames[0], fps=FPS, boxes=boxes, score=1.0))
                views.append(int(options[rng.integers(len(options))]))
        return views, truths

    def _absent(self, number: int, count: int, rng: np.random.Generator) -> list[int]:
        """Views of things of other walks of which nothing alike is in this one."""
        present = set(self.gallery.walks[number].present)
        groups = {name: group for walk in self.gallery.walks for name, group in zip(walk.names, walk.groups)}
        names = sorted(name for name, views in self.gallery.views_of.items() if views)
        absent = [name for name in names if groups[name] not in present]
        chosen = [absent[i] for i in rng.permutation(len(absent))[:count]]
        return [int(rng.choice(self.gallery.views_of[name])) for name in chosen]

    def _features(self, pictures: Tensor) -> Tensor:
        device = pictures.device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            return torch.cat([self.backbone(part).half() for part in torch.split(pictures, AT_ONCE)])


def last_run(visible: np.ndarray) -> Sequence[int]:
    """The frames of the last unbroken run in which a thing is visible."""
    seen = np.flatnonzero(visible)
    if not len(seen):
        return []
    breaks = np.flatnonzero(np.diff(seen) > 1)
    first = seen[breaks[-1] + 1] if len(breaks) else seen[0]
    return list(range(int(first), int(seen[-1]) + 1))

"""Keeps what decisions are made of, so that rules can be compared without a model or a video.

    python runs/keep_evidence.py --model MODEL --set val --set real_pan --out kept
    python runs/compare_rules.py kept --model MODEL

For each set and way of asking NAME@WAY.json.gz, a list with a `Kept` for each question: what the model says
in the first pass, in enlarged windows around the likeliest sightings, and when it is asked again with what it
found (a memory of found views); and how similar every frame is to the peak frame of each sighting.

Windows and peaks are those of the model's rule.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from refinement import Decoded, between, name_of, part, same

from lastseen.access import VideoAccess
from lastseen.box import Box
from lastseen.datasets import AbsentQuestion, Question
from lastseen.datasets.vq2d import find_videos, load_absent, load_vq2d
from lastseen.evaluate.asking import WAYS, asked_as, is_plain
from lastseen.evaluate.benchmark import query_of, to_annotated_px
from lastseen.evaluate.encoded import in_advance
from lastseen.files import whole_file
from lastseen.localizer import Localizer
from lastseen.model import EncodedQuery, SimilarityModel
from lastseen.model.inputs import patches_inside
from lastseen.query import LEAST_SIDE_PX, Query, View
from lastseen.refine import Extend, Zoom
from lastseen.refine.appearance import BoxPatches
from lastseen.sighting import Evidence, Sighting
from lastseen.track import FramePredictions, ResponseTrack

WINDOWS = Zoom(sightings=4, peak_ratio=0.2)  # more than the rule's, to compare numbers of them
PEAKS, PEAK_RATIO = 4, 0.4  # sightings whose appearance is compared with all frames, after the rule's zoom
REACH_FRAMES = 60  # on either side of a peak
ARRAYS = ("boxes_px", "logits", "similarity")  # endings of the names of fields that are arrays
THING_PATCHES = 96  # of a peak frame's box, at most


@dataclass(frozen=True, kw_only=True)
class KeptWindow:
    """A sighting of the first pass, and what the model says in an enlarged window around it."""

    first: int
    last: int
    confidence: float
    start: int  # frame at which the window begins
    side: int  # px
    boxes_px: np.ndarray  # [n, 4]
    logits: np.ndarray  # [n]
    full_logits: np.ndarray  # [n] with all of the head's score


@dataclass(frozen=True, kw_only=True)
class KeptPeak:
    """A sighting after the rule's zoom, compared with other frames by the patches in its peak's box.

    | similarity | [n, 3] of frames from `start`: mean best cosine in and around the frame's box, how    |
    |            | much higher that is than in the rest of the frame, and mean best cosine anywhere    |
    | others     | the same mean best cosine near the peaks of the other sightings: peak, cosine       |
    """

    peak: int
    confidence: float
    start: int
    similarity: np.ndarray
    others: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One question. `factors` take boxes to pixels of the annotated size."""

    video_uid: str
    truth: ResponseTrack | None
    plain: bool
    fps: float
    factors: tuple[float, ...]
    boxes_px: np.ndarray  # [T, 4]
    logits: np.ndarray  # [T]
    full_logits: np.ndarray  # [T] with all of the head's score
    windows: tuple[KeptWindow, ...]
    peaks: tuple[KeptPeak, ...]  # most confident first
    found_logits: np.ndarray  # [T] asked with the frame of the first peak and its box


class Keeper:
    """Answers questions about one set with a model, as saved and with all of its head's score."""

    def __init__(self, model: Path, device: str | None, engine: str | None) -> None:
        self.saved = Localizer.from_pretrained(model, device=device, engine=engine)
        self.full = with_head_score(self.saved, 1.0)

    def features(self, video: Decoded, fps: float) -> torch.Tensor:
        return torch.cat(list(self.saved.at(fps).encoded(video, 0, video.frame_count(fps))))

    def clip(
        self,
        video: Decoded,
        features: torch.Tensor,
        uid: str,
        questions: Sequence[Question | AbsentQuestion],
        fps: float,
        way: str,
    ) -> list[Kept]:
        here, full = self.saved.at(fps), self.full.at(fps)
        asked = [asked_as(query_of(question, video, fps), way) for question in questions]
        encoded = [here.encode_query(query) for query in asked]
        ends = [here.frames_searched(video, query) for query in asked]
        both = [one.predict_encoded(video, [features], encoded, ends) for one in (here, full)]
        kept = []
        for question, query, views, end, said, in_full in zip(questions, asked, encoded, ends, *both):
            access = VideoAccess(here, video, views, partial(between, features), partial(same, video))
            zoomed = Zoom()(Evidence.of(said), here.rule.extract, access)
            peaks = sorted(here.rule.extract(zoomed, PEAK_RATIO), key=lambda s: -s.confidence)[:PEAKS]
            found = here.predict_encoded(video, [features], [self._found(video, peaks[0])], [end])[0]
            kept.append(
                Kept(
                    video_uid=uid,
                    truth=getattr(question, "truth", None),
                    plain=is_plain(query.views[0]),
                    fps=fps,
                    factors=tuple(map(float, to_annotated_px(question, video) * 2)),
                    boxes_px=said.boxes_px,
                    logits=said.logits,
                    full_logits=in_full.logits,
                    windows=tuple(self._windows(said, access, views)),
                    peaks=tuple(compared(zoomed, access, peaks)),
                    found_logits=found.logits,
                )
            )
        return kept

    def _windows(
        self, said: FramePredictions, access: VideoAccess, views: list[EncodedQuery]
    ) -> list[KeptWindow]:
        kept = []
        for sighting, window in WINDOWS.windows(
            self.saved.rule.extract(Evidence.of(said), WINDOWS.peak_ratio), access
        ):
            boxes_px, logits = access.localize(window)
            pictures = list(window.crops(access.pictures(window.start, window.stop)))
            batch = self.full.batch
            parts = [
                self.full.encode_pictures(pictures[at : at + batch]) for at in range(0, len(pictures), batch)
            ]
            full_logits = self.full.localize_clip(torch.cat(parts), views)[1] if parts else np.empty(0)
            kept.append(
                KeptWindow(
                    first=sighting.first,
                    last=sighting.last,
                    confidence=sighting.confidence,
                    start=window.start,
                    side=window.side,
                    boxes_px=boxes_px,
                    logits=logits,
                    full_logits=full_logits,
                )
            )
        return kept

    def _found(self, video: Decoded, sighting: Sighting) -> list[EncodedQuery]:
        """The peak frame and its box as a query."""
        picture = video.held[sighting.peak]
        height, width = picture.shape[:2]
        x1, y1, x2, y2 = sighting.evidence.boxes_px[sighting.peak].clip(0, [width, height, width, height])
        x1, y1 = min(x1, width - LEAST_SIDE_PX), min(y1, height - LEAST_SIDE_PX)
        box = Box(
            float(x1), float(y1), float(max(x2, x1 + LEAST_SIDE_PX)), float(max(y2, y1 + LEAST_SIDE_PX))
        )
        return self.saved.encode_query(Query((View(picture, box),)))


def with_head_score(localizer: Localizer, weight: float) -> Localizer:
    """The same localizer with another weight of the head's score. Engines in half precision copy the
    model, and a change of its config would not reach the copy."""
    model = copy.deepcopy(localizer.model)
    assert isinstance(model, SimilarityModel)
    model.config = replace(model.config, head_score_weight=weight)
    return Localizer(
        model,
        procedure=localizer.procedure,
        fps=localizer.fps,
        device=localizer.device,
        batch=localizer.batch,
        engine=localizer.engine.name,
    )


def compared(evidence: Evidence, access: VideoAccess, sightings: Sequence[Sighting]) -> list[KeptPeak]:
    """The peak of each sighting with the frames around it and with the other sightings."""
    patches = BoxPatches(evidence, access)
    kept = []
    for sighting in sightings:
        thing = patches.appearance(sighting.peak, Extend.background_cosine)
        some = slice(None, None, max(1, -(-thing.patches.shape[1] // THING_PATCHES)))
        vectors, own = thing.patches[:, some], thing.foreground[some].to(thing.patches.device)
        start = max(0, sighting.peak - REACH_FRAMES)
        stop = min(len(evidence), sighting.peak + REACH_FRAMES + 1)
        others = []
        for other in sightings:
            if other is not sighting:
                low, high = max(other.first, other.peak - 2), min(other.last, other.peak + 2) + 1
                others.append((other.peak, float(_similarity(patches, vectors, own, low, high)[:, 0].max())))
        kept.append(
            KeptPeak(
                peak=sighting.peak,
                confidence=sighting.confidence,
                start=start,
                similarity=_similarity(patches, vectors, own, start, stop),
                others=tuple(others),
            )
        )
    return kept


def _similarity(
    patches: BoxPatches, vectors: torch.Tensor, own: torch.Tensor, start: int, stop: int
) -> np.ndarray:
    """[n, 3] as in KeptPeak; vectors [c, k], of which `own` [k] are not background"""
    cosine = torch.einsum("nchw,ck->nkhw", patches.video.vectors(start, stop), vectors)
    boxes = patches.boxes[start:stop]
    middles, reach = (
        (boxes[:, :2] + boxes[:, 2:]) / 2,
        Extend.search_ratio * (boxes[:, 2:] - boxes[:, :2]) / 2,
    )
    around, frame = (
        (patches_inside(unit, *cosine.shape[2:]) > 0).to(cosine.device)
        for unit in (torch.cat([middles - reach, middles + reach], 1), patches.frame)
    )
    near, rest = (
        cosine.masked_fill(~where, -1.0).flatten(2).amax(2) for where in (around & frame, ~around & frame)
    )
    columns = (near.mean(1), (near - rest)[:, own].mean(1), torch.maximum(near, rest).mean(1))
    return torch.stack(columns, 1).cpu().numpy()


def save_kept(kept: Sequence[Kept], path: Path) -> None:
    rows = [{**asdict(one), "truth": one.truth.to_dict() if one.truth else None} for one in kept]
    text = json.dumps(rows, default=lambda array: np.round(array.astype(float), 3).tolist())
    with whole_file(path) as building:
        building.write_bytes(gzip.compress(text.encode()))


def load_kept(path: Path) -> list[Kept]:
    return [
        Kept(
            **{
                **_with_arrays(row),
                "truth": ResponseTrack.from_dict(row["truth"]) if row["truth"] else None,
                "windows": tuple(KeptWindow(**_with_arrays(window)) for window in row["windows"]),
                "peaks": tuple(KeptPeak(**_with_arrays(peak)) for peak in row["peaks"]),
            }
        )
        for row in json.loads(gzip.decompress(path.read_bytes()))
    ]


def _with_arrays(row: dict[str, Any]) -> dict[str, Any]:
    return {key: np.array(value) if key.endswith(ARRAYS) else value for key, value in row.items()}


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--set", type=Path, action="append", required=True, dest="sets", metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ask", action="append", choices=WAYS, help="photo unless given")
    parser.add_argument("--part", type=part, default=(0, 1), metavar="K/N", help="every Nth video, from K on")
    parser.add_argument("--device")
    parser.add_argument("--engine")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keeper = Keeper(arguments.model, arguments.device, arguments.engine)
    for folder in arguments.sets:
        annotations, absent = load_vq2d(folder / "annotations.json"), load_absent(folder / "absent.json")
        sections = find_videos(annotations, folder / "videos")[arguments.part[0] :: arguments.part[1]]
        cases = [(clip, section.path) for clip, section in sections]
        videos = in_advance(lambda clip, path: Decoded(path).hold(clip.fps), cases)
        kept: dict[str, list[Kept]] = {way: [] for way in arguments.ask or ["photo"]}
        for (clip, _), video in zip(sections, videos):
            asides = [question for question in absent if question.clip_uid == clip.clip_uid]
            questions: list[Question | AbsentQuestion] = [*(q for q in clip.questions if q.truth), *asides]
            features = keeper.features(video, clip.fps)
            for way, rows in kept.items():
                rows += keeper.clip(video, features, clip.video_uid, questions, clip.fps, way)
                save_kept(rows, arguments.out / f"{name_of(folder, arguments.part)}@{way}.json.gz")
            print(folder.name, clip.clip_uid, sum(map(len, kept.values())), flush=True)


if __name__ == "__main__":
    main()

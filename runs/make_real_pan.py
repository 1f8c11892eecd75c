"""The shots of a real-video set through a virtual head: a window pans, zooms and rolls over each shot.

    python runs/make_real_pan.py --real-dev real_dev --out real_pan

Things leave by the edge of the frame, are cut by it and come back; few sightings end with a cut. `real_dev`
has the VQ2D schema and a segments.json: {clip_uid: [{shot, start_frame, end_frame, source_start, is_target}]}
in frames of 25 fps; an annotated object has the name of its shot. What is made of it may be used as it may.

A shot is played forward and backward, one annotated frame (5 fps) per frame of the result, so that every box
is an annotated one, mapped through the window.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pan_sets import (
    CRF,
    FPS,
    HEIGHT_PX,
    WIDTH_PX,
    clip,
    draw_questions,
    query_set,
    runs_of,
    save_picture,
    sightings,
    summary,
    write_lists,
)
from virtual_head import IN_VIEW, TILTED_DEG, WINDOW_SIDE, View, box_areas, draw_view, path_cost

from lastseen.box import Box
from lastseen.datasets import ClipAnnotation, Question
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.query import read_picture
from lastseen.video import Video, VideoWriter

VERSION = "real-pan-1"
SOURCE_STEP = 5  # source frames per annotated frame
TARGETS, DISTRACTORS = 7, 2  # shots of one video
TARGET_S, DISTRACTOR_S = (11.0, 16.0), (4.0, 6.0)
SMALL_WINDOW_SIDE = (0.66, 0.8)  # over small things, so that they stay small
ROLLING_SHARE = 1 / 3  # of target shots
SMALL_PX = 48  # side of a thing in the source that is to stay small in the frame
SMALL_WEIGHT = 3.0  # of shots with such things when shots are chosen
PATHS = 200  # drawn for each shot, of which the one nearest to what is wanted is taken
ABSENT = 4  # questions of one video about things that are not in it
OWN = "own_"  # begins the names of query pictures that are the source's own
HELD_OUT = 10  # source frames between a query picture and anything that is shown


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of a shot in one of the source videos; frames are annotated ones (5 fps)."""

    uid: str
    shot: str
    first: int
    stop: int
    source_start: int  # frame of the original shot (25 fps) that is annotated frame `first`
    is_target: bool

    def source_frame(self, frame: int) -> int:
        return self.source_start + SOURCE_STEP * (frame - self.first)


@dataclass(frozen=True, kw_only=True)
class Played:
    """A segment as it is shown: the annotated frames [T] in the order of play, and the window over them."""

    segment: Segment
    frames: np.ndarray
    view: View
    content: Box


class RealSet:
    """The source: boxes by object and frame, segments, and the part of the canvas that each shot fills."""

    def __init__(self, folder: Path) -> None:
        annotations = load_vq2d(folder / "annotations.json")
        sections = find_videos(annotations, folder / "videos")
        self.paths = {str(clip.clip_uid): section.path for clip, section in sections}
        self.questions = {str(clip.clip_uid): clip.questions for clip, _ in sections}
        self.boxes = {str(clip.clip_uid): _known_boxes(clip) for clip, _ in sections}
        self.titles = {q.object_uid: q.object_title for q in annotations.questions}
        listed = json.loads((folder / "segments.json").read_text())
        self.segments = {uid: [self._segment(uid, row) for row in rows] for uid, rows in listed.items()}
        self.content = self._contents()

    def annotated(self, segment: Segment, frames: np.ndarray) -> np.ndarray:
        """[T, 4]: boxes of the segment's object in these frames."""
        known = self.boxes[segment.uid][segment.shot]
        return np.array([known[frame].xyxy for frame in frames.tolist()])

    def _segment(self, uid: str, row: dict[str, Any]) -> Segment:
        first, stop = (-(-row[key] // SOURCE_STEP) for key in ("start_frame", "end_frame"))
        boxes = self.boxes[uid].get(row["shot"], {})
        source_start = row["source_start"] + SOURCE_STEP * first - row["start_frame"]
        if row["is_target"]:  # only its longest part whose boxes are known
            known = runs_of(np.array([frame in boxes for frame in range(first, stop)]))
            low, high = max(known, key=lambda run: run[1] - run[0], default=(0, 0))
            first, stop, source_start = first + low, first + high, source_start + SOURCE_STEP * low
        return Segment(
            uid=uid,
            shot=row["shot"],
            first=first,
            stop=stop,
            source_start=source_start,
            is_target=row["is_target"],
        )

    def _contents(self) -> dict[str, Box]:
        """Shot -> the canvas without its black bars, which are as wide on either side."""
        brightest: dict[str, np.ndarray] = {}
        for uid, path in self.paths.items():
            images = [frame.image for frame in Video(path).frames(FPS)]
            for segment in self.segments[uid]:
                light = np.max(images[segment.first : segment.stop], axis=(0, 3))
                brightest[segment.shot] = np.maximum(light, brightest.get(segment.shot, np.uint8(0)))
        return {shot: _without_bars(light) for shot, light in brightest.items()}


def make_real_pan(real_dev: Path, out: Path, seed: int) -> str:
    """Writes the set; returns its counts."""
    for folder in ("videos", "queries"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    source = RealSet(real_dev)
    plans = {
        uid: _plan(source, uid, np.random.default_rng([seed, number]))
        for number, uid in enumerate(sorted(source.paths))
    }
    pictures = _Pictures(source, out)
    videos, absent = [], []
    for number, (uid, played) in enumerate(plans.items()):
        rng = np.random.default_rng([seed, number, 1])
        _write_video(source, uid, played, out / "videos" / f"{_name(uid)}.mp4")
        videos.append(_questions(source, uid, played, pictures, rng))
        absent += _absent(source, uid, played, pictures, rng)
        print(_name(uid), len(videos[-1]["clips"][0]["annotations"]), flush=True)
    write_lists(out, VERSION, videos, absent)
    return summary(videos, absent)


def _name(uid: str) -> str:
    return f"pan_{uid}"


def _plan(source: RealSet, uid: str, rng: np.random.Generator) -> list[Played]:
    """Chosen segments in random order, no two of one shot in a row; the last one is a distractor."""
    able = [s for s in source.segments[uid] if s.is_target and s.stop - s.first >= 5]
    others = [s for s in source.segments[uid] if not s.is_target]
    weight = np.array([SMALL_WEIGHT if _is_small(source, segment) else 1.0 for segment in able])
    order = rng.choice(len(able), TARGETS, replace=False, p=weight / weight.sum()).tolist()
    last, *between = [others[i] for i in rng.permutation(len(others))[:DISTRACTORS].tolist()]
    mixed = [*(able[i] for i in order), *between]
    while True:
        chosen = [*(mixed[i] for i in rng.permutation(len(mixed))), last]
        if all(a.shot != b.shot for a, b in pairwise(chosen)):
            break
    targets = [s for s in chosen if s.is_target]
    rolling = {targets[i] for i in rng.permutation(len(targets))[: round(ROLLING_SHARE * len(targets))]}
    return [_play(source, segment, rng, rolls=segment in rolling) for segment in chosen]


def _is_small(source: RealSet, segment: Segment) -> bool:
    frames = np.arange(segment.first, segment.stop)
    return segment.is_target and bool(np.median(box_areas(source.annotated(segment, frames))) < SMALL_PX**2)


def _play(source: RealSet, segment: Segment, rng: np.random.Generator, *, rolls: bool) -> Played:
    count = round(float(rng.uniform(*(TARGET_S if segment.is_target else DISTRACTOR_S))) * FPS)
    frames = there_and_back(segment.first, segment.stop, count, rng)
    content = source.content[segment.shot]
    sides = SMALL_WINDOW_SIDE if _is_small(source, segment) else WINDOW_SIDE
    tries = PATHS if segment.is_target else 1
    paths = [draw_view(content, count, rng, rolls=rolls, sides=sides) for _ in range(tries)]
    if segment.is_target:
        boxes = source.annotated(segment, frames)
        wanted = float(rng.uniform(*IN_VIEW))
        costs = [path_cost(view, boxes, wanted, rolls=rolls) for view in paths]
        paths = [paths[int(np.argmin(costs))]]
    return Played(segment=segment, frames=frames, view=paths[0], content=content)


def there_and_back(first: int, stop: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """[count] frames of [first, stop), forward and backward again and again, from a random one on."""
    period = max(2 * (stop - first) - 2, 1)
    phase = (np.arange(count) + int(rng.integers(period))) % period
    return first + np.minimum(phase, period - phase)


def _write_video(source: RealSet, uid: str, played: list[Played], path: Path) -> None:
    images = [frame.image for frame in Video(source.paths[uid]).frames(FPS)]
    with VideoWriter(path, WIDTH_PX, HEIGHT_PX, FPS, crf=CRF) as writer:
        for part in played:
            for number, frame in enumerate(part.frames.tolist()):
                writer.write(part.view.frame(number, images[frame]))


def _questions(
    source: RealSet, uid: str, played: list[Played], pictures: _Pictures, rng: np.random.Generator
) -> dict[str, Any]:
    starts = np.cumsum([0, *(len(part.frames) for part in played)]).tolist()
    total = starts[-1]
    asked_sets = []
    for shot in sorted({part.segment.shot for part in played if part.segment.is_target}):
        boxes, roll = np.zeros((total, 4)), np.zeros(total)
        runs = []
        for part, start in zip(played, starts):
            if part.segment.shot == shot:
                mapped, share = part.view.boxes(source.annotated(part.segment, part.frames))
                boxes[start : start + len(mapped)] = mapped
                roll[start : start + len(mapped)] = part.view.roll_rad
                runs += [(start + first, start + stop) for first, stop in sightings(share)]
        for asked in draw_questions(runs, total, rng):
            crop = pictures.of(shot, uid, played, rng)
            if crop is not None:
                turned = float(np.rad2deg(np.abs(roll[slice(*asked.answer)]).max()))
                fields = {
                    "object_title": source.titles[shot],
                    "object_uid": shot,
                    "tilted": turned > TILTED_DEG,
                    # "own": the source's picture, which is cut to the thing with a margin
                    "query_source": "own" if OWN in crop["image"] else "whole_frame",
                }
                asked_sets.append(query_set(asked, runs, boxes, crop, **fields))
    return clip(_name(uid), total, asked_sets)


def _absent(
    source: RealSet, uid: str, played: list[Played], pictures: _Pictures, rng: np.random.Generator
) -> list[dict[str, Any]]:
    shown = {part.segment.shot for part in played}
    names = [name for name in sorted(map(str, source.titles)) if name not in shown]
    total = sum(len(part.frames) for part in played)
    found: list[dict[str, Any]] = []
    for name in rng.permutation(names)[:ABSENT].tolist():
        crop = pictures.of(name, uid, played, rng)
        assert crop is not None  # no frame of its shot is shown, so all are free
        found.append(
            {
                "query_uid": f"{_name(uid)}_absent_{len(found)}",
                "clip_uid": _name(uid),
                "query_frame": int(rng.integers(total // 2, total + 1)),
                "object_title": source.titles[name],
                "object_uid": name,
                "visual_crop": crop,
            }
        )
    return found


class _Pictures:
    """Query pictures: whole frames of the source's videos, without the black bars."""

    def __init__(self, source: RealSet, out: Path) -> None:
        self.source, self.out = source, out
        self._videos = {uid: Video(path) for uid, path in source.paths.items()}

    def of(
        self, shot: str, uid: str, played: list[Played], rng: np.random.Generator
    ) -> dict[str, Any] | None:
        """A picture of the shot's object from a frame that is not shown here, nor near one that is; or else
        the source's own picture for this video, if that is held out."""
        shown = [
            part.segment.source_frame(frame)
            for part in played
            if part.segment.shot == shot
            for frame in np.unique(part.frames).tolist()
        ]
        free = [
            (segment, frame)
            for segments in self.source.segments.values()
            for segment in segments
            if segment.shot == shot
            for frame in range(segment.first, segment.stop)
            if all(abs(segment.source_frame(frame) - other) >= HELD_OUT for other in shown)
        ]
        if free:
            segment, frame = free[int(rng.integers(len(free)))]
            return self._frame(segment, frame)
        own = [q for q in self.source.questions[uid] if q.object_uid == shot and q.crop.frame is None]
        return self._own(own[0]) if own else None

    def _frame(self, segment: Segment, frame: int) -> dict[str, Any]:
        image = self._videos[segment.uid].frame_at(frame / FPS).image
        content = self.source.content[segment.shot]
        x1, y1, x2, y2 = (int(v) for v in content.xyxy)
        box = self.source.boxes[segment.uid][segment.shot][frame].shifted(-x1, -y1)
        return save_picture(self.out, f"{segment.uid}_{segment.shot}_{frame}", image[y1:y2, x1:x2], box)

    def _own(self, question: Question) -> dict[str, Any]:
        assert question.crop.image and question.crop.image_box
        name = f"{OWN}{question.crop.image.stem}"
        return save_picture(self.out, name, read_picture(question.crop.image), question.crop.image_box)


def _known_boxes(clip: ClipAnnotation) -> dict[str, dict[int, Box]]:
    """Object -> annotated frame -> box, of all questions about it."""
    known: dict[str, dict[int, Box]] = {}
    for question in clip.questions:
        for track in (*question.occurrences, *((question.truth,) if question.truth else ())):
            numbered = enumerate(track.boxes, track.first_frame)
            known.setdefault(str(question.object_uid), {}).update(numbered)
    return known


def _without_bars(brightest: np.ndarray) -> Box:
    height, width = brightest.shape
    rows, columns = (np.flatnonzero(np.quantile(brightest, 0.9, axis) > 24) for axis in (1, 0))
    # The same on both sides, as wide as the narrower one: a dark edge is no bar.
    x = min(int(columns[0]), width - 1 - int(columns[-1]))
    y = min(int(rows[0]), height - 1 - int(rows[-1]))
    x, y = x + (x > 0), y + (y > 0)  # compression blends the first row or column with the bar
    return Box(x, y, width - x, height - y)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--real-dev", type=Path, required=True, help="folder of the source set")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(make_real_pan(asked.real_dev, asked.out, asked.seed))

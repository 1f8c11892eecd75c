"""What the makers of development sets share: sightings out of visibility, questions, and the set's files.

OUT/videos/UID.mp4   OUT/queries/*.png   OUT/annotations.json   OUT/absent.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lastseen.box import Box
from lastseen.evaluate.metrics import SIZE_CLASSES
from lastseen.files import whole_file

FPS = 5.0
WIDTH_PX, HEIGHT_PX = 480, 360
CRF = 23
LEAST_VISIBLE = 0.25  # share of a box inside the frame from which its thing counts as visible
STILL_VISIBLE = 0.05  # share that bridges a gap of one or two frames
LEAST_FRAMES = 3  # of a sighting; and of the gap between two
PAUSE = 3  # frames between the end of an answer and its question

Run = tuple[int, int]  # first frame, one past the last


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A moment to ask at, and the sighting that is the answer."""

    query_frame: int
    answer: Run


def runs_of(flags: np.ndarray) -> list[Run]:
    """[N] bool -> runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2])]


def sightings(share: np.ndarray) -> list[Run]:
    """Share of the thing's box inside each frame [N] -> its sightings.

    A gap shorter than LEAST_FRAMES is bridged if the thing stays in the picture, else it is cut there;
    what remains shorter than LEAST_FRAMES is none.
    """
    visible = share >= LEAST_VISIBLE
    for first, stop in runs_of(~visible):
        inside = first > 0 and stop < len(share)
        if inside and stop - first < LEAST_FRAMES and share[first:stop].min() >= STILL_VISIBLE:
            visible[first:stop] = True
    return [run for run in runs_of(visible) if run[1] - run[0] >= LEAST_FRAMES]


def draw_questions(
    runs: Sequence[Run], frames: int, rng: np.random.Generator, *, most: int = 2
) -> list[Asked]:
    """The last sighting is asked for and, if there are several, an earlier one: asked before the next."""
    ends = [first for first, _ in runs[1:]] + [frames]
    possible = [(run, run[1] + PAUSE, end) for run, end in zip(runs, ends) if run[1] + PAUSE <= end]
    if not possible:
        return []
    *earlier, last = possible
    order = rng.permutation(len(earlier))[: most - 1].tolist()
    chosen = [*(earlier[i] for i in sorted(order)), last]
    return [Asked(query_frame=int(rng.integers(low, high + 1)), answer=run) for run, low, high in chosen]


def size_class(boxes_px: np.ndarray) -> str:
    """Of an answer's boxes [n, 4], by the largest, as the metrics count it."""
    area = float(((boxes_px[:, 2] - boxes_px[:, 0]) * (boxes_px[:, 3] - boxes_px[:, 1])).max())
    return next(name for name, (low, high) in SIZE_CLASSES.items() if low <= area < high)


def query_set(
    asked: Asked, runs: Sequence[Run], boxes_px: np.ndarray, crop: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    """One question of the VQ2D schema; `boxes_px` [N, 4] are the thing's in all frames."""
    return {
        "is_valid": True,
        "query_frame": asked.query_frame,
        **fields,
        "size_class": size_class(boxes_px[slice(*asked.answer)]),
        "n_occurrences": len(runs),
        "answer_is_last_occurrence": asked.answer == runs[-1],
        "visual_crop": crop,
        "response_track": _boxes(asked.answer, boxes_px),
        "lt_track": [box for run in runs for box in _boxes(run, boxes_px)],
    }


def clip(uid: str, frames: int, query_sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One video of the annotation file, with its questions."""
    return {
        "video_uid": f"video_{uid}",
        "split": "val",
        "clips": [
            {
                "clip_uid": uid,
                "video_start_sec": 0.0,
                "video_end_sec": frames / FPS,
                "video_start_frame": 0,
                "video_end_frame": frames,
                "video_fps": FPS,
                "clip_fps": FPS,
                "annotations": [
                    {"annotation_uid": f"{uid}_{number:02d}", "query_sets": {"1": one}}
                    for number, one in enumerate(query_sets)
                ],
            }
        ],
    }


def save_picture(out: Path, name: str, picture: np.ndarray, box: Box) -> dict[str, Any]:
    """Saves a query picture; returns its `visual_crop`."""
    height, width = picture.shape[:2]
    box = box.clipped(width, height)
    with whole_file(out / "queries" / f"{name}.png") as building:
        Image.fromarray(picture).save(building, format="PNG")
    place = [round(v, 2) for v in (box.x1, box.y1, box.width, box.height)]
    return {
        "frame_number": None,
        **dict(zip(("x", "y", "width", "height"), place)),
        "original_width": width,
        "original_height": height,
        "image": f"queries/{name}.png",
        "image_width": width,
        "image_height": height,
        "image_box": place,
    }


def write_lists(
    out: Path, version: str, videos: Sequence[dict[str, Any]], absent: Sequence[dict[str, Any]]
) -> None:
    for name, content in (("annotations", {"videos": videos}), ("absent", {"queries": absent})):
        with whole_file(out / f"{name}.json") as building:
            building.write_text(json.dumps({"version": version, **content}))


def summary(videos: Sequence[dict[str, Any]], absent: Sequence[dict[str, Any]]) -> str:
    """Counts, for the log."""
    clips = [one for video in videos for one in video["clips"]]
    asked = [group["query_sets"]["1"] for one in clips for group in one["annotations"]]
    counts = {
        "videos": len(clips),
        "frames": sum(one["video_end_frame"] for one in clips),
        "questions": len(asked),
        "absent": len(absent),
        **{name: sum(one["size_class"] == name for one in asked) for name in SIZE_CLASSES},
        "tilted": sum(one["tilted"] for one in asked),
        "earlier occurrence asked": sum(not one["answer_is_last_occurrence"] for one in asked),
        "objects": len({one["object_uid"] for one in asked}),
    }
    return "  ".join(f"{name} {count}" for name, count in counts.items())


def _boxes(run: Run, boxes_px: np.ndarray) -> list[dict[str, Any]]:
    return [
        {
            "frame_number": number,
            "x": round(float(x1), 2),
            "y": round(float(y1), 2),
            "width": round(float(x2 - x1), 2),
            "height": round(float(y2 - y1), 2),
            "original_width": WIDTH_PX,
            "original_height": HEIGHT_PX,
        }
        for number, (x1, y1, x2, y2) in enumerate(boxes_px[run[0] : run[1]], run[0])
    ]

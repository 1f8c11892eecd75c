"""Writing a dataset: mp4 videos and annotations in the VQ2D schema of Ego4D.

    OUT/videos/UID.mp4   OUT/queries/*.png   OUT/episodes/UID.json   OUT/annotations.json   OUT/absent.json

An episode's JSON is written after its video, so that a stopped run can be resumed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from lastseen.box import Box
from lastseen.errors import OutputError, SynthError
from lastseen.files import whole_file, write_whole
from lastseen.video import VideoWriter
from lastseen_synth.annotation import Run, annotated_visibility, box_sides, draw_query, runs_of
from lastseen_synth.assets import Asset, AssetLibrary, attribution
from lastseen_synth.episode import (
    ANNOTATION_FPS,
    EpisodePlan,
    EpisodeSettings,
    plan_episode,
    render_episode,
    seen_from_rad,
)
from lastseen_synth.parallel import OpenLibrary, run_jobs
from lastseen_synth.query_pictures import query_pictures

VERSION = "lastseen-synth-2"  # a folder of another version is not resumed
FROM_VIDEO_SHARE = 0.3  # of queries with another occurrence: their picture is a crop of that one
TRIES = 4
Progress = Callable[[int, int], None]


def write_dataset(
    out: str | Path,
    open_library: OpenLibrary,
    *,
    split: str,
    episodes: int,
    seed: int = 0,
    settings: EpisodeSettings = EpisodeSettings(),
    device: torch.device | str = "cpu",
    workers: int = 1,
    progress: Progress | None = None,
) -> Path:
    """Writes, or resumes writing, `episodes` episodes; `open_library` must return one split."""
    root = Path(out)
    _claim_folder(root, {"version": VERSION, "split": split, "seed": seed, "settings": asdict(settings)})
    entries = [root / "episodes" / f"{split}-{seed}-{number:04d}.json" for number in range(episodes)]
    missing = [number for number, entry in enumerate(entries) if not entry.exists()]
    job = partial(_write_episode, root, f"{split}-{seed}", seed, settings, device)
    for done, _ in enumerate(run_jobs(job, missing, open_library, workers=workers), 1):
        if progress:
            progress(episodes - len(missing) + done, episodes)
    _write_lists(root, split, [json.loads(entry.read_text()) for entry in entries], open_library())
    return root / "annotations.json"


def _write_lists(root: Path, split: str, entries: list[dict[str, Any]], library: AssetLibrary) -> None:
    videos = [{"video_uid": e["uid"], "split": split, "clips": [e["clip"]]} for e in entries]
    _write_json(root / "annotations.json", {"version": VERSION, "videos": videos})
    _write_json(
        root / "absent.json", {"version": VERSION, "queries": [q for e in entries for q in e["absent"]]}
    )
    used = {name for entry in entries for name in entry["items"]}
    with whole_file(root / "ATTRIBUTION.md") as building:
        building.write_text(
            attribution([a for a in library.assets if a.name in used] + list(library.surfaces))
        )


def settings_from(size: str, fps: float, seconds: str) -> EpisodeSettings:
    """Settings from the command line's strings: 640x480, 10, 30-300."""
    try:
        width, height = (int(side) for side in size.split("x"))
        shortest, longest = (float(part) for part in seconds.split("-"))
    except ValueError:
        raise SynthError(
            f"expected a size like 640x480 and seconds like 30-300, got {size} and {seconds}"
        ) from None
    if min(width, height) < 64 or width % 2 or height % 2:
        raise SynthError(f"a size has even sides of 64 pixels or more, got {size}")
    return EpisodeSettings(width_px=width, height_px=height, fps=fps, duration_s=(shortest, longest))


def _claim_folder(root: Path, what: dict[str, Any]) -> None:
    """Makes the folder this dataset's; one with other settings is refused."""
    try:
        for folder in ("videos", "queries", "episodes"):
            (root / folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{root} cannot be written: {error.strerror}") from None
    marker, text = root / "settings.json", json.dumps(what, indent=1) + "\n"
    if marker.exists() and marker.read_text() != text:
        raise OutputError(f"{root} holds another dataset (see {marker}); choose another folder, or remove it")
    if not marker.exists():
        with whole_file(marker) as building:
            building.write_text(text)


def _write_episode(
    root: Path,
    prefix: str,
    first_seed: int,
    settings: EpisodeSettings,
    device: torch.device | str,
    library: AssetLibrary,
    episode: int,
) -> None:
    # An episode depends only on the seed and its own number.
    uid, seed = f"{prefix}-{episode:04d}", (first_seed, episode)
    plan, rng = _plan(library, seed, settings, device)
    runs, boxes = _write_video(plan, root / "videos" / f"{uid}.mp4")
    side = box_sides(boxes, max(settings.width_px, settings.height_px))
    drawn = [(number, draw_query(runs[number], side[:, number], rng)) for number in runs]
    asked = [(number, *query) for number, query in drawn if query]
    shown_from = [
        seen_from_rad(plan, n, (first + last) / 2 / ANNOTATION_FPS) for n, _, (first, last) in asked
    ]
    shown = [*(plan.things[number] for number, _, _ in asked), *plan.absent]
    pictures = _all_query_pictures(library, shown, [*shown_from, *(None for _ in plan.absent)], seed, device)
    queries, absent = [], []
    images = iter(pictures)
    for number, query_frame, answer in asked:
        thing = plan.things[number]
        crop = _save_picture(root, f"{uid}-{number}", *next(images))
        others = [run for run in runs[number] if run != answer]
        if others and rng.random() < FROM_VIDEO_SHARE:
            crop = _frame_crop(others[rng.integers(len(others))], boxes[:, number], settings)
        queries.append(
            _query(
                f"{uid}-{number}", thing, query_frame, crop, answer, runs[number], boxes[:, number], settings
            )
        )
    for number, thing in enumerate(plan.absent):
        absent.append(
            {
                "query_uid": f"{uid}-absent-{number}",
                "clip_uid": uid,
                "query_frame": round(plan.duration_s * ANNOTATION_FPS),
                "object_title": thing.type,
                "object_uid": thing.name,
                "visual_crop": _save_picture(root, f"{uid}-absent-{number}", *next(images)),
            }
        )
    clip = {
        "clip_uid": uid,
        "video_start_sec": 0.0,
        "video_end_sec": plan.duration_s,
        "video_start_frame": 0,
        "video_end_frame": round(plan.duration_s * settings.fps),
        "video_fps": settings.fps,
        "clip_fps": ANNOTATION_FPS,
        "annotations": queries,
    }
    items = sorted({asset.name for asset in plan.items()})
    entry = {"uid": uid, "clip": clip, "absent": absent, "room": plan.room.kind, "items": items}
    _write_json(root / "episodes" / f"{uid}.json", entry)


def _query(
    uid: str,
    thing: Asset,
    query_frame: int,
    crop: dict[str, Any],
    answer: Run,
    runs: list[Run],
    boxes_px: np.ndarray,
    settings: EpisodeSettings,
) -> dict[str, Any]:
    """One annotation of the VQ2D schema; `boxes_px` [N, 4] are the thing's."""
    query_set = {
        "is_valid": True,
        "query_frame": query_frame,
        "object_title": thing.type,
        "object_uid": thing.name,
        "visual_crop": crop,
        "response_track": _boxes(answer, boxes_px, settings),
        "lt_track": [box for run in runs for box in _boxes(run, boxes_px, settings)],
    }
    return {"annotation_uid": uid, "query_sets": {"1": query_set}}


def _plan(
    library: AssetLibrary, seed: tuple[int, int], settings: EpisodeSettings, device: torch.device | str
) -> tuple[EpisodePlan, np.random.Generator]:
    """Drawn again with another seed if the things do not fit."""
    for attempt in range(TRIES):
        rng = np.random.default_rng([*seed, 0] if not attempt else [*seed, 2, attempt])
        try:
            return plan_episode(library, rng, settings, device=device), rng
        except SynthError:
            if attempt == TRIES - 1:
                raise
    raise AssertionError


def _write_video(plan: EpisodePlan, path: Path) -> tuple[dict[int, list[Run]], np.ndarray]:
    """Writes the video; returns the visible runs of each thing and all boxes [N, things, 4]."""
    settings = plan.settings
    parts = []
    with VideoWriter(path, settings.width_px, settings.height_px, settings.fps) as writer:
        for footage in render_episode(plan):
            for image in footage.images.cpu().numpy():
                writer.write(image)
            parts.append((footage.boxes_px, footage.share))
    boxes, share = (np.concatenate(rows) for rows in zip(*parts))
    seen = annotated_visibility(boxes, share, max(settings.width_px, settings.height_px))
    return {n: runs_of(seen[:, n]) for n in range(len(plan.things))}, boxes


def _all_query_pictures(
    library: AssetLibrary,
    things: list[Asset],
    shown_from: list[float | None],
    seed: tuple[int, int],
    device: torch.device | str,
) -> list[tuple[np.ndarray, Box]]:
    for attempt in range(TRIES):
        rng = np.random.default_rng([*seed, 1, attempt])
        try:
            return query_pictures(library, things, rng, seen_from_rad=shown_from, device=device)
        except SynthError:
            if attempt == TRIES - 1:
                raise
    raise AssertionError


def _save_picture(root: Path, name: str, image: np.ndarray, box: Box) -> dict[str, Any]:
    path = root / "queries" / f"{name}.png"
    stream = io.BytesIO()  # not the file: Pillow takes a short write on a full disk for success
    Image.fromarray(image).save(stream, "PNG")
    write_whole(path, stream.getvalue())
    height, width = image.shape[:2]
    place = {"x": box.x1, "y": box.y1, "width": box.width, "height": box.height}
    return {
        "frame_number": None,
        **place,
        "original_width": width,
        "original_height": height,
        "image": f"queries/{name}.png",
        "image_width": width,
        "image_height": height,
        "image_box": list(place.values()),
    }


def _frame_crop(run: Run, boxes_px: np.ndarray, settings: EpisodeSettings) -> dict[str, Any]:
    """The frame of this occurrence in which the box is largest."""
    area = [(b[2] - b[0]) * (b[3] - b[1]) for b in boxes_px[run[0] : run[1]]]
    best = run[0] + int(np.argmax(area))
    return _boxes((best, best + 1), boxes_px, settings)[0]


def _boxes(run: Run, boxes_px: np.ndarray, settings: EpisodeSettings) -> list[dict[str, Any]]:
    return [
        {
            "frame_number": number,
            "x": float(x1),
            "y": float(y1),
            "width": float(x2 - x1),
            "height": float(y2 - y1),
            "original_width": settings.width_px,
            "original_height": settings.height_px,
        }
        for number, (x1, y1, x2, y2) in enumerate(boxes_px[run[0] : run[1]], run[0])
    ]


def _write_json(path: Path, content: Any) -> None:
    with whole_file(path) as building:
        building.write_text(json.dumps(content))

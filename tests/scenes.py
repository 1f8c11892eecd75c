"""A little textured world for tests: a distinctive thing that appears in some frames of a video."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from videos import write_video

from lastseen.box import Box
from lastseen.localizer import TRAINING_FREE_RULE, Localizer
from lastseen.model.training_free import TrainingFreeConfig, TrainingFreeModel
from lastseen.procedure import Standard
from lastseen.rule import Rule
from lastseen.weights import MATCHING_BLOCK, load_backbone

WIDTH, HEIGHT, SIDE = 320, 180, 64
HERE, THERE = (40, 60), (210, 90)
PLACES = [None] * 4 + [HERE] * 6 + [None] * 6 + [THERE] * 6 + [None] * 4  # 5 frames a second


def texture(seed: int, width: int, height: int, grain: int) -> np.ndarray:
    """Blocks of random colours, `grain` pixels each."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(40, 216, (-(-height // grain), -(-width // grain), 3), dtype=np.uint8)
    return cells.repeat(grain, 0).repeat(grain, 1)[:height, :width]


def thing(seed: int = 7) -> np.ndarray:
    """A bright disc with rings on a checkered square: nothing like the background."""
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    radius = np.hypot(x, y)
    image = np.where(((x // 8 + y // 8) % 2 == 0)[..., None], [250, 220, 0], [10, 10, 10]).astype(np.uint8)
    colours = np.random.default_rng(seed).integers(0, 255, (4, 3), dtype=np.uint8)
    for ring in range(4):
        image[radius < 30 - 7 * ring] = colours[ring]
    image[28:36, 8:56] = 255
    return image


def frames(places: list[tuple[int, int] | None], mirrored: bool = False) -> list[np.ndarray]:
    """One picture a place; None: the thing is not there."""
    background = (texture(0, WIDTH, HEIGHT, 20) // 2 + texture(1, WIDTH, HEIGHT, 45) // 3).astype(np.uint8)
    pictures = []
    for place in places:
        picture = background.copy()
        if place:
            x, y = place
            picture[y : y + SIDE, x : x + SIDE] = thing()
        pictures.append(np.ascontiguousarray(picture[:, ::-1]) if mirrored else picture)
    return pictures


def write_scene(path: Path, places: list[tuple[int, int] | None], mirrored: bool = False) -> Path:
    return write_video(path, frames(places, mirrored), fps=5)


def box_at(place: tuple[int, int]) -> Box:
    return Box.from_xywh(*place, SIDE, SIDE)


def scene_annotations(truth: range) -> dict[str, Any]:
    """VQ2D annotations of one question to the scene of PLACES: where the thing was THERE, in these frames."""
    x, y = THERE
    about = {"original_width": 640, "original_height": 360}  # twice the video's size
    box = {"x": 2 * x, "y": 2 * y, "width": 2 * SIDE, "height": 2 * SIDE, **about}
    query_set = {
        "is_valid": True,
        "query_frame": len(PLACES),
        "object_title": "disc",
        "visual_crop": {"frame_number": 18, **box},
        "response_track": [{"frame_number": n, **box} for n in truth],
    }
    clip = {
        "clip_uid": "clip", "video_start_sec": 0, "video_end_sec": len(PLACES) / 5, "video_start_frame": 0,
        "video_end_frame": len(PLACES), "clip_fps": 5.0,
        "annotations": [{"annotation_uid": "a", "query_sets": {"1": query_set}}],
    }  # fmt: skip
    return {"version": "1.0", "videos": [{"video_uid": "video", "split": "val", "clips": [clip]}]}


def quick_localizer(rule: Rule = TRAINING_FREE_RULE, **options: int) -> Localizer:
    """The bundled backbone at half the resolution and fewer scales: real, and quick enough for tests."""
    backbone = load_backbone(blocks=(MATCHING_BLOCK,), final_norm=False)
    config = TrainingFreeConfig(longer_edge=280, query_scales_px=(40, 56, 80), query_canvas_px=(196, 280))
    return Localizer(TrainingFreeModel(backbone, config).eval(), procedure=Standard(rule), **options)

"""A contact sheet: what an episode looks like, with its true boxes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from lastseen.files import check_writable, whole_file
from lastseen.synth.assets import Library
from lastseen.synth.episode import TRUTH_FPS, EpisodeSettings, plan_episode, render_episode

COLUMNS, ROWS = 6, 4
COLOURS = ((255, 210, 0), (0, 230, 120), (255, 90, 90), (90, 170, 255), (240, 120, 255), (255, 160, 60))


def write_preview(
    path: str | Path,
    library: Library,
    *,
    seed: int,
    settings: EpisodeSettings,
    device: torch.device | str = "cpu",
) -> None:
    check_writable(path, (".jpg", ".jpeg", ".png", ".webp"))
    short = replace(settings, fps=TRUTH_FPS, duration_s=(24.0, 24.0))
    plan = plan_episode(library, np.random.default_rng(seed), short, device=device)
    images, boxes, visible = [], [], []
    for footage in render_episode(plan):
        images.append(footage.images.cpu().numpy())
        boxes.append(footage.boxes_px)
        visible.append(footage.visible)
    sheet = contact_sheet(np.concatenate(images), np.concatenate(boxes), np.concatenate(visible))
    with whole_file(path) as building:
        Image.fromarray(sheet).save(building, quality=90)


def contact_sheet(images: np.ndarray, boxes_px: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """images [N, h, w, 3] with boxes [N, things, 4] -> some of them side by side."""
    tiles = []
    for number in np.linspace(0, len(images) - 1, COLUMNS * ROWS).astype(int):
        picture = Image.fromarray(images[number])
        draw = ImageDraw.Draw(picture)
        for thing in np.flatnonzero(visible[number]):
            draw.rectangle(boxes_px[number, thing].tolist(), outline=COLOURS[thing % len(COLOURS)], width=2)
        tiles.append(np.asarray(picture))
    rows = [np.concatenate(tiles[r * COLUMNS : (r + 1) * COLUMNS], 1) for r in range(ROWS)]
    return np.concatenate(rows)

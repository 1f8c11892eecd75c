"""Preview of an episode with its annotated boxes: a contact sheet or a short video."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from lastseen.files import check_writable, write_whole
from lastseen.video import VideoWriter
from lastseen_synth.annotation import annotated_visibility
from lastseen_synth.assets import AssetLibrary, attribution
from lastseen_synth.episode import ANNOTATION_FPS, EpisodePlan, EpisodeSettings, plan_episode, render_episode

SECONDS = 24.0
COLUMNS, ROWS = 6, 4
COLOURS = ((255, 210, 0), (0, 230, 120), (255, 90, 90), (90, 170, 255), (240, 120, 255), (255, 160, 60))
CRF = 30  # a video to look at, small enough for a page


def write_preview(
    path: str | Path,
    library: AssetLibrary,
    *,
    seed: int,
    settings: EpisodeSettings,
    device: torch.device | str = "cpu",
) -> str:
    """Writes a picture, or a video if the name ends in .mp4; returns the credits as Markdown."""
    check_writable(path, (".jpg", ".jpeg", ".png", ".webp", ".mp4"))
    # Only annotated frames: boxes in between would be interpolated.
    short = replace(settings, fps=ANNOTATION_FPS, duration_s=(SECONDS, SECONDS))
    plan = plan_episode(library, np.random.default_rng(seed), short, device=device)
    frames = drawn_frames(plan)
    if Path(path).suffix.lower() == ".mp4":
        with VideoWriter(path, short.width_px, short.height_px, short.fps, crf=CRF) as writer:
            for frame in frames:
                writer.write(frame)
    else:
        stream = io.BytesIO()  # not the file: Pillow takes a short write on a full disk for success
        kind = Image.registered_extensions()[Path(path).suffix.lower()]
        Image.fromarray(contact_sheet(list(frames))).save(stream, kind, quality=90)
        write_whole(path, stream.getvalue())
    return attribution([*plan.items(), *library.surfaces])


def drawn_frames(plan: EpisodePlan) -> Iterator[np.ndarray]:
    """All frames with a box around each visible thing."""
    parts = list(render_episode(plan))
    boxes = np.concatenate([part.boxes_px for part in parts])
    share = np.concatenate([part.share for part in parts])
    visible = annotated_visibility(boxes, share, max(plan.settings.width_px, plan.settings.height_px))
    images = (image for part in parts for image in part.images.cpu().numpy())
    for image, around, seen in zip(images, boxes, visible):
        picture = Image.fromarray(image)
        draw = ImageDraw.Draw(picture)
        for thing in np.flatnonzero(seen):
            draw.rectangle(around[thing].tolist(), outline=COLOURS[thing % len(COLOURS)], width=2)
        yield np.asarray(picture)


def contact_sheet(images: list[np.ndarray]) -> np.ndarray:
    """Equally spaced frames [h, w, 3] in a grid."""
    chosen = np.linspace(0, len(images) - 1, COLUMNS * ROWS).astype(int)
    rows = [
        np.concatenate([images[n] for n in chosen[r * COLUMNS : (r + 1) * COLUMNS]], 1) for r in range(ROWS)
    ]
    return np.concatenate(rows)

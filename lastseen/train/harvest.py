"""Rendering training walks to disk: once, by many processes, for every stage of training."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from lastseen.errors import SynthError
from lastseen_synth.annotated_walk import annotated_photo_walk, annotated_room_walk, appearance_groups
from lastseen_synth.assets import AssetLibrary
from lastseen_synth.fresh_covers import with_fresh_covers
from lastseen_synth.parallel import OpenLibrary, run_jobs
from lastseen_synth.photo_walks import PhotoWalks
from lastseen_synth.plain_things import with_everyday_things, with_plain_things

TRIES = 4
PHOTO_FRAMES = 60  # of a walk over a photograph: a clip, and frames for queries
PLAIN_SHARE = 0.35  # of objects that are in one colour, and of cut-outs with little texture
ABSENT_SHARE = 0.2  # of photo walks without the thing, but with a similar one
Progress = Callable[[int, int], None]


def harvest(
    folder: str | Path,
    open_library: OpenLibrary,
    *,
    walks: int,
    photos: int,
    seed: int = 0,
    seconds: float = 50.0,
    plain_share: float = PLAIN_SHARE,
    fresh_share: float = 0.0,
    device: torch.device | str = "cpu",
    workers: int = 1,
    minutes: float | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Renders the missing walks through rooms and over photographs; returns the files of all.

    `plain_share` 0: only the objects of the library, as they are. `fresh_share` of the other objects have
    covers drawn with this seed, and things cut out of photographs are regions drawn with it: another seed has
    other ones. Files that exist are kept, whatever their shares were.
    """
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    until_s = None if minutes is None else time.monotonic() + 60 * minutes
    # Interleaved, so that what a short time allows is a mixture, too.
    order = sorted(
        [(n / max(walks, 1), f"room-{seed}-{n:05d}") for n in range(walks)]
        + [(n / max(photos, 1), f"photo-{seed}-{n:05d}") for n in range(photos)]
    )
    paths = [root / f"{name}.npz" for _, name in order]
    missing = [number for number, path in enumerate(paths) if not path.exists()]
    job = partial(_render, [str(path) for path in paths], seed, seconds, plain_share, fresh_share, device)
    for done, _ in enumerate(run_jobs(job, missing, open_library, workers=workers, until_s=until_s), 1):
        if progress:
            progress(len(paths) - len(missing) + done, len(paths))
    return [path for path in paths if path.exists()]


def _render(
    paths: list[str],
    seed: int,
    seconds: float,
    plain_share: float,
    fresh_share: float,
    device: torch.device | str,
    library: AssetLibrary,
    number: int,
) -> None:
    path = Path(paths[number])
    kind, _, own = path.stem.split("-")
    for attempt in range(TRIES):
        rng = np.random.default_rng([seed, int(own), int(kind == "room"), attempt])
        things = library
        if plain_share > 0:
            things = with_plain_things(with_everyday_things(library), rng, plain_share)
        if fresh_share > 0:
            things = with_fresh_covers(things, rng, fresh_share, seed=seed)
        try:
            if kind == "room":
                census = annotated_room_walk(things, rng, seconds=seconds, device=device)
            else:
                walks = PhotoWalks(
                    things,
                    frames=PHOTO_FRAMES,
                    plain_share=plain_share,
                    region_seed=seed if fresh_share > 0 else None,
                    device=device,
                )
                present = bool(rng.random() > ABSENT_SHARE)
                census = annotated_photo_walk(walks, rng, groups=appearance_groups(things), present=present)
            census.save(path)
            return
        except SynthError:
            continue  # this draw found no room for its things, the next one may

"""How often the box that the page suggests in a photo fits the thing (IoU above 0.5).

    python benchmarks/suggestion.py FOLDER --pictures 36

FOLDER holds annotations.json (VQ2D) and pictures of things with their surroundings (`visual_crop.image`, the
thing's box is `image_box`). Each is shown as it is, with the thing in its middle, and cut so that it is not.
Needs MobileSAM: `lastseen models add mobile-sam`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from lastseen.box import Box
from lastseen.masks import MobileSam, load_mobile_sam
from lastseen.masks.suggestion import suggested
from lastseen.picture import read_picture

FITS = 0.5
Photo = tuple[np.ndarray, Box]


def photos(folder: Path) -> list[Photo]:
    data = json.loads((folder / "annotations.json").read_text())
    crops = {
        query["visual_crop"]["image"]: query["visual_crop"]["image_box"]
        for video in data["videos"]
        for clip in video["clips"]
        for annotation in clip["annotations"]
        for query in annotation["query_sets"].values()
    }
    return [
        (read_picture(folder / name), Box(x, y, x + width, y + height))
        for name, (x, y, width, height) in sorted(crops.items())
    ]


def off_centre(photo: Photo, rng: np.random.Generator) -> Photo:
    """Cut at one side and at the top or the bottom, at most to the thing."""
    picture, box = photo
    height, width = picture.shape[:2]
    left, right, top, bottom = (
        int(rng.uniform(0, 0.95) * max(0.0, room))
        for room in (box.x1, width - box.x2, box.y1, height - box.y2)
    )
    left, right = (left, 0) if rng.random() < 0.5 else (0, right)
    top, bottom = (top, 0) if rng.random() < 0.5 else (0, bottom)
    return picture[top : height - bottom, left : width - right], box.shifted(-left, -top)


def middle(picture: np.ndarray) -> Box:
    """What the page shows without a suggestion would be something like this."""
    height, width = picture.shape[:2]
    return Box(0.22 * width, 0.22 * height, 0.78 * width, 0.78 * height)


def report(name: str, model: MobileSam, asked: list[Photo]) -> None:
    began = time.perf_counter()
    found = [suggested(model, picture) for picture, _ in asked]
    took_s = (time.perf_counter() - began) / len(asked)
    fits = sum(box is not None and box.iou(true) > FITS for box, (_, true) in zip(found, asked))
    fixed = sum(middle(picture).iou(true) > FITS for picture, true in asked)
    print(
        f"{name}: the suggestion fits in {fits} of {len(asked)}, a fixed box in {fixed}; "
        f"none in {found.count(None)}; {took_s:.2f} s each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=int, default=36)
    given = parser.parse_args()
    rng, model = np.random.default_rng(0), load_mobile_sam()
    every = photos(given.folder)
    chosen = [every[i] for i in sorted(rng.permutation(len(every))[: given.pictures])]
    report("in the middle", model, chosen)
    report("off centre", model, [off_centre(photo, rng) for photo in chosen])


if __name__ == "__main__":
    main()

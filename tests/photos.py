"""A photo for tests: the thing of the little world, large, with surroundings."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from scenes import texture, thing

from lastseen.box import Box

PHOTO = (2400, 1800)  # more than the page is sent and more than fits a screen
MARKED = Box(1500, 300, 2140, 940)  # the thing; not in the middle, so that no turned photo has it there


def write_photo(path: Path, orientation: int = 1) -> Path:
    """A JPEG that is `PHOTO` large when upright; its pixels are stored turned, as EXIF then says."""
    photo = Image.fromarray(texture(5, *PHOTO, 150) // 2)
    x1, y1, x2, y2 = map(round, MARKED.xyxy)
    photo.paste(Image.fromarray(thing()).resize((x2 - x1, y2 - y1), Image.Resampling.NEAREST), (x1, y1))
    stored = {1: photo, 6: photo.transpose(Image.Transpose.ROTATE_90)}[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(path, quality=90, exif=exif)
    return path

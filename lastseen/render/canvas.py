"""A canvas to draw on: colours, text, fitted pictures, antialiased lines.

Yellow is the answer, as in the paper. Ground truth is cyan and dashed: the paper's green is hard to tell from
yellow for the colour-blind. The two also differ in lightness.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lastseen.box import Box
from lastseen.errors import OutputError
from lastseen.files import write_whole

Colour = tuple[int, int, int]
Area = tuple[float, float, float, float]  # x1 y1 x2 y2
Painter = Callable[[ImageDraw.ImageDraw, Callable[[float], float]], None]  # (pen, units to its pixels)

YELLOW: Colour = (255, 210, 0)  # the answer
CYAN: Colour = (0, 200, 240)  # ground truth
BLUE: Colour = (0, 90, 181)  # peaks, the query's point
BLACK: Colour = (0, 0, 0)
WHITE: Colour = (255, 255, 255)
INK: Colour = (31, 35, 40)
MUTED: Colour = (101, 109, 118)
FAINT: Colour = (223, 227, 232)
SMOOTHING = 4  # supersampling factor of lines


class Canvas:
    """A white image; coordinates are in units that are pixels at scale 1."""

    def __init__(self, width: float, height: float, scale: float = 1.0) -> None:
        self.scale = scale
        self.image = Image.new("RGB", (round(width * scale), round(height * scale)), WHITE)

    def text(
        self, x: float, y: float, text: str, *, size: int = 15, fill: Colour = INK, anchor: str = "ls"
    ) -> None:
        """`anchor` is Pillow's: "ls" puts the start of the base line at (x, y)."""
        place = (x * self.scale, y * self.scale)
        ImageDraw.Draw(self.image).text(place, text, fill=fill, font=self._font(size), anchor=anchor)

    def text_width(self, text: str, size: int = 15) -> float:
        return self._font(size).getlength(text) / self.scale

    def shortened(self, text: str, size: int, most: float) -> str:
        """The text with its middle elided if it is too wide."""
        kept = len(text)
        shown = text
        while kept > 2 and self.text_width(shown, size) > most:
            kept -= 1
            shown = f"{text[: (kept + 1) // 2]}...{text[len(text) - kept // 2 :]}"
        return shown

    def picture(self, image: Image.Image, area: Area) -> None:
        x1, y1, x2, y2 = (round(v * self.scale) for v in area)
        self.image.paste(image.resize((max(1, x2 - x1), max(1, y2 - y1)), Image.Resampling.LANCZOS), (x1, y1))

    def smooth(self, area: Area, paint: Painter) -> None:
        """Let `paint` draw antialiased in an area, relative to its corner; colours may have opacity."""
        x1, y1, x2, y2 = (round(v * self.scale) for v in area)
        part = self.image.crop((x1, y1, x2, y2))
        large = part.resize((part.width * SMOOTHING, part.height * SMOOTHING), Image.Resampling.NEAREST)
        factor = self.scale * SMOOTHING
        paint(ImageDraw.Draw(large, "RGBA"), lambda length: length * factor)
        self.image.paste(large.reduce(SMOOTHING), (x1, y1))

    def array(self) -> np.ndarray:
        return np.asarray(self.image)

    def _font(self, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
        return font(round(size * self.scale))


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)


def fitted(width: float, height: float, area: Area) -> Area:
    """The largest area of that aspect ratio, centred in an area."""
    x1, y1, x2, y2 = area
    factor = min((x2 - x1) / width, (y2 - y1) / height)
    left, top = (x1 + x2 - width * factor) / 2, (y1 + y2 - height * factor) / 2
    return left, top, left + width * factor, top + height * factor


def outline(picture: Image.Image, box: Box, colour: Colour, width: int, *, dashed: bool = False) -> None:
    """Draw a box with a dark border, visible on any background."""
    draw = ImageDraw.Draw(picture)
    right, bottom = picture.width - 1, picture.height - 1
    x1, y1, x2, y2 = box.clipped(right, bottom).xyxy
    x2, y2 = max(x1, x2), max(y1, y2)
    rim = max(1, width // 3)
    outer = (max(0, x1 - rim), max(0, y1 - rim), min(right, x2 + rim), min(bottom, y2 + rim))
    draw.rectangle(outer, outline=BLACK, width=width + 2 * rim)
    if not dashed:
        draw.rectangle((x1, y1, x2, y2), outline=colour, width=width)
        return
    dash = 5 * width
    for across, down, length in ((1, 0, x2 - x1), (0, 1, y2 - y1)):
        for start in np.arange(0, max(length, 1), 2 * dash):
            end = min(start + dash, length)
            for x, y in ((x1, y1), (x2 - width + 1, y1) if down else (x1, y2 - width + 1)):
                span = (x + across * start, y + down * start, x + across * end, y + down * end)
                draw.rectangle(
                    (*span[:2], span[2] + down * (width - 1), span[3] + across * (width - 1)), colour
                )


def save_picture(path: str | os.PathLike[str], image: np.ndarray) -> None:
    """Save in the format of the path's suffix, atomically."""
    write_whole(path, encoded(image, path, quality=92))


def encoded(image: np.ndarray, path: str | os.PathLike[str], quality: int) -> bytes:
    """In memory: writing to a file itself, Pillow takes a short write on a full disk for success."""
    stream = io.BytesIO()
    kind = Image.registered_extensions().get(Path(path).suffix.lower())
    if kind not in Image.SAVE:
        raise OutputError(f"{path}: choose a name that ends in .jpg, .png or .webp")
    Image.fromarray(image).save(stream, kind, quality=quality)
    return stream.getvalue()

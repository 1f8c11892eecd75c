"""Read a picture file as RGB: any usual format and kind of pixels, in bounded memory."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from lastseen.errors import QueryError

# Pillow knows many more. Some of them run other programs (EPS: Ghostscript), and no camera writes them.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF")
READABLE = "give a JPEG, PNG or WebP file"
# What reading one picture may take, beside what the process holds. A JPEG of 120 megapixels fits (phones make
# 50 to 108); a few kilobytes can claim far more.
MAX_READING_BYTES = 1_200_000_000
PIXEL_BYTES, RGB_BYTES = 4, 3  # of Pillow's picture, at most, and of ours
# Bytes a pixel that a decoder holds beside Pillow's picture, measured. JPEG: for each colour, if progressive.
DECODER_BYTES = {"WEBP": 12, "AVIF": 8, "HEIF": 8, "TIFF": 4}
JPEG_COLOUR_BYTES = 2
MAX_SIDE_PX = 65_535  # a JPEG's; a narrow picture is widened before it is shortened for a model
STRIP_PX = 2**20  # converted at a time
GREY = (128, 128, 128, 255)  # behind what is transparent
OTHER_FORMATS = ((b"%!PS", "an EPS"), (b"%PDF", "a PDF"), (b"8BPS", "a Photoshop"), (b"<svg", "an SVG"))
VIDEO = "a video, not a picture; give a picture of the thing, or a moment of the video (--at SECONDS)"
HEIF_BRANDS = (b"heic", b"heix", b"mif1", b"msf1", b"avif")
# EXIF orientation -> the upright picture
TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda rgb: rgb[:, ::-1],
    3: lambda rgb: rgb[::-1, ::-1],
    4: lambda rgb: rgb[::-1],
    5: lambda rgb: rgb.swapaxes(0, 1),
    6: lambda rgb: np.rot90(rgb, 3),
    7: lambda rgb: rgb[::-1, ::-1].swapaxes(0, 1),
    8: lambda rgb: np.rot90(rgb, 1),
}


def read_picture(path: str | os.PathLike[str]) -> np.ndarray:
    """[h, w, 3] uint8 RGB; EXIF orientation applied, transparency composited over grey.

    Grey levels of more than 8 bits are scaled: 16 bits by 257; floats from 0 to 1 by 255; other numbers stay
    as they are if they are levels from 0 to 255, and are stretched from their least to their largest if not.
    """
    name = os.fspath(path)
    _check_file(name)
    try:
        with _opened(name) as image:
            _check_size(name, image)
            image.load()
            turn = TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
            rgb = _rgb(image)
        return rgb if turn is None else np.ascontiguousarray(turn(rgb))
    except QueryError:
        raise
    except UnidentifiedImageError:
        raise QueryError(_what_it_is(name)) from None
    except Image.DecompressionBombError:
        raise QueryError(f"{name} is too large a picture; scale it down to a few thousand pixels") from None
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise QueryError(f"{name} cannot be read: {reason}; save the picture again") from None


def resized(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """[height, width, 3] of a picture [h, w, 3] uint8"""
    return np.asarray(Image.fromarray(picture).resize((width, height), reducing_gap=3))


def _check_file(name: str) -> None:
    """Opening a pipe would wait for its writer, and a device may never end."""
    try:
        mode = Path(name).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise QueryError(f"{name}: no such picture") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise QueryError(f"{name} cannot be read: {reason}; {READABLE}") from None
    if stat.S_ISDIR(mode):
        raise QueryError(f"{name} is a folder; give a picture such as keys.jpg")
    if not stat.S_ISREG(mode):
        raise QueryError(f"{name} is a pipe or a device, not a file; save the picture to a file first")


def _opened(name: str) -> Image.Image:
    """Only the header is read."""
    Image.init()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about large pictures and missing codecs; we say that ourselves
        return Image.open(name, formats=[known for known in FORMATS if known in Image.OPEN])


def _check_size(name: str, image: Image.Image) -> None:
    decoder = DECODER_BYTES.get(image.format or "", 0)
    if image.format in ("JPEG", "MPO"):
        decoder = JPEG_COLOUR_BYTES * len(image.getbands())
    pixels = image.width * image.height
    most = MAX_READING_BYTES // (PIXEL_BYTES + max(decoder, RGB_BYTES))
    if pixels > most:
        raise QueryError(
            f"{name} is {image.width}x{image.height} pixels, too large a picture: at most "
            f"{most / 1e6:.0f} megapixels in {image.format}; scale it down to a few thousand pixels a side"
        )
    if max(image.size) > MAX_SIDE_PX:
        raise QueryError(
            f"{name} is {image.width}x{image.height} pixels, too long a picture: at most {MAX_SIDE_PX} "
            "pixels a side; cut it to the thing and its surroundings"
        )


def _rgb(image: Image.Image) -> np.ndarray:
    """[h, w, 3], writable as torch requires; converted in strips, so that no other copy of it is made."""
    to_rgb = _converter(image)
    rgb = np.empty((image.height, image.width, 3), np.uint8)
    for top, strip in _strips(image):
        rgb[top : top + strip.height] = to_rgb(strip)
    return rgb


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    rows = max(1, STRIP_PX // image.width)
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _converter(image: Image.Image) -> Callable[[Image.Image], np.ndarray]:
    if image.mode.startswith("I;16"):
        return lambda strip: _grey((np.asarray(strip).astype(np.uint32) + 128) // 257)
    if image.mode in ("I", "F"):
        scale, shift = _levels(image)
        return lambda strip: _grey(_finite(strip) * scale + shift)
    if image.has_transparency_data:
        return lambda strip: np.asarray(_over_grey(strip).convert("RGB"))
    return lambda strip: np.asarray(strip.convert("RGB"))


def _over_grey(strip: Image.Image) -> Image.Image:
    if strip.mode in ("La", "RGBa"):  # colours multiplied by opacity
        strip = strip.convert({"La": "LA", "RGBa": "RGBA"}[strip.mode])
    return Image.alpha_composite(Image.new("RGBA", strip.size, GREY), strip.convert("RGBA"))


def _levels(image: Image.Image) -> tuple[float, float]:
    """Scale and shift from an image of whole numbers or floats to levels from 0 to 255."""
    extremes = [(float(v.min()), float(v.max())) for v in (_finite(strip) for _, strip in _strips(image))]
    low, high = min(low for low, _ in extremes), max(high for _, high in extremes)
    if low >= 0 and high <= 1 and image.mode == "F":
        return 255.0, 0.0
    if low >= 0 and high <= 255:
        return 1.0, 0.0
    if low >= 0 and high <= 65535 and image.mode == "I":
        return 1 / 257, 0.0
    return 255 / (high - low or 1.0), -255 * low / (high - low or 1.0)


def _finite(strip: Image.Image) -> np.ndarray:
    return np.nan_to_num(np.asarray(strip).astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _grey(levels: np.ndarray) -> np.ndarray:
    """[h, w] from 0 to 255 -> [h, w, 1] uint8"""
    return levels.round().clip(0, 255).astype(np.uint8)[..., None]


def _what_it_is(name: str) -> str:
    with Path(name).open("rb") as file:
        head = file.read(64)
    if head[4:8] == b"ftyp" and head[8:12] in HEIF_BRANDS:
        return f"{name} is a HEIC or AVIF picture, which this Pillow cannot read; {READABLE}"
    if head[4:8] == b"ftyp" or head.startswith(b"\x1aE\xdf\xa3") or head[8:12] == b"AVI ":
        return f"{name} is {VIDEO}"
    for begin, known in OTHER_FORMATS:
        if head.startswith(begin):
            return f"{name} is {known} file, not a picture that can be read; {READABLE}"
    return f"{name} is not a picture that can be read; {READABLE}"

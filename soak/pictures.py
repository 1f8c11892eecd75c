"""Damaged pictures, and pictures that unpack to far more than they weigh: read, and scaled for a model."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from lastseen.model.inputs import query_crop
from lastseen.query import Query
from soak.case import NORMAL, Broken, Case
from soak.mutate import DAMAGE, damaged
from soak.samples import blocks

NAME = "pictures"
CASES = 1500
LIMIT_S = 20.0
EVERY = 25  # of the cases one is a bomb
SIDE = 24_000  # pixels of a bomb's side
MODEL_PX = 224  # a model's input


def prepare(folder: Path) -> None:
    (folder / "bombs").mkdir()
    for name, make in BOMBS.items():
        (folder / "bombs" / name).write_bytes(make(SIDE))
    (folder / "sound").mkdir()
    _write_sound(folder / "sound")


def _write_sound(folder: Path) -> None:
    picture = Image.fromarray(blocks(1))
    grey = picture.convert("L")
    deep = Image.fromarray(np.array(grey).astype(np.uint16) * 257)
    clear = picture.convert("RGBA")
    clear.putalpha(grey)
    turned = Image.Exif()
    turned[0x0112] = 6  # EXIF orientation: a quarter turn
    second = Image.fromarray(blocks(2))
    picture.save(folder / "rgb.png")
    deep.save(folder / "deep.png")
    deep.save(folder / "deep.tiff")
    clear.save(folder / "clear.png")
    picture.quantize(16).save(folder / "palette.png", transparency=3)
    picture.save(folder / "baseline.jpg", quality=90)
    picture.save(folder / "turned.jpg", exif=turned, progressive=True)
    picture.convert("CMYK").save(folder / "cmyk.jpg")
    picture.save(folder / "lossy.webp")
    clear.save(folder / "lossless.webp", lossless=True, exif=turned)
    picture.save(folder / "moving.gif", save_all=True, append_images=[second], duration=50)
    picture.save(folder / "moving.webp", save_all=True, append_images=[second])
    picture.save(folder / "rgb.bmp")
    picture.quantize(16).save(folder / "palette.bmp")
    picture.save(folder / "plain.tiff")
    picture.save(folder / "packed.tiff", compression="tiff_lzw", exif=turned)


def run(case: Case) -> str:
    if case.number % EVERY == EVERY - 1:
        turn, names = case.number // EVERY, list(BOMBS)
        path = case.scratch / names[turn % len(names)]
        damage = "untouched" if turn < len(names) else case.rng.choice(list(DAMAGE))
        case.say(f"{path.name}, {damage}")
        data = (case.prepared / "bombs" / path.name).read_bytes()
        path.write_bytes(DAMAGE[damage](case.rng, bytearray(data), [data]))
    else:
        paths, sound = _sound(case.prepared / "sound")
        which, damage, data = damaged(case.rng, case.number, sound)
        path = case.scratch / paths[which].name
        case.say(f"{path.name}, {damage}")
        path.write_bytes(data)
    (view,) = Query.from_image(path).views
    if view.picture.dtype != np.uint8 or view.picture.ndim != 3 or view.picture.shape[2] != 3:
        raise Broken(f"a picture of {view.picture.shape} {view.picture.dtype}")
    query_crop(torch.from_numpy(view.picture), view.box, MODEL_PX)  # as every model begins
    return NORMAL


# --- bombs: a few kilobytes that say that they are half a gigapixel


def png(side: int, bits: int = 1, colour: int = 0) -> bytes:
    row = b"\0" + bytes((side * bits + 7) // 8)
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, min(bits, 8), colour, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", packed), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def png_just_below(side: int) -> bytes:
    """As many pixels as are read, in colour and half transparent: a camera's picture might have them."""
    return png(13_000, 32, 6)


def png_text(side: int) -> bytes:
    """Text that unpacks to 64 MiB, before a small picture."""
    text = b"Comment\0\0" + zlib.compress(bytes(64 * 2**20), 9)
    whole = png(16)
    chunk = struct.pack(">I", len(text)) + b"zTXt" + text + struct.pack(">I", zlib.crc32(b"zTXt" + text))
    return whole[:33] + chunk * 3 + whole[33:]


def gif(side: int) -> bytes:
    image = b"\x2c" + struct.pack("<HHHHB", 0, 0, side, side, 0) + b"\x02\x02\x4c\x01\0\x3b"
    return b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(6) + image


def bmp(side: int) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(head), 0, 0, 54) + head + bytes(1000)


def tiff(side: int) -> bytes:
    tags = (
        (256, side),
        (257, side),
        (258, 8),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, side),
        (279, 64),
    )
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", 72) + bytes(64) + struct.pack("<H", len(tags)) + entries + bytes(4)


def jpeg(side: int) -> bytes:
    """A sound small picture whose header says that it is large."""
    from io import BytesIO

    stream = BytesIO()
    Image.fromarray(blocks(3)).save(stream, "JPEG")
    data = bytearray(stream.getvalue())
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", side, side)
    return bytes(data)


def jpeg_just_below(side: int) -> bytes:
    return jpeg(13_000)


BOMBS: dict[str, Callable[[int], bytes]] = {
    "bomb.png": png,
    "below.png": png_just_below,
    "text.png": png_text,
    "bomb.gif": gif,
    "bomb.bmp": bmp,
    "bomb.tiff": tiff,
    "bomb.jpg": jpeg,
    "below.jpg": jpeg_just_below,
}


@cache
def _sound(folder: Path) -> tuple[list[Path], list[bytes]]:
    paths = sorted(folder.iterdir())
    return paths, [path.read_bytes() for path in paths]

"""Picture files as they come: every kind of pixels, every turn, any damage, any size, and other formats."""

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from lastseen import picture as reading
from lastseen.errors import QueryError
from lastseen.picture import read_picture

RAMP = np.tile(np.linspace(0, 65535, 64).round().astype(np.uint16), (8, 1))  # [h, w] black to white
LEVELS = (RAMP.astype(np.uint32) + 128) // 257


def png(path: Path, width: int, height: int, depth: int, colour: int, row: bytes) -> Path:
    """Written by hand, a row at a time: every row is the same."""
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(b"\0" + row) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", data), (b"IEND", b""))
    parts = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    return path


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        ("16 bit.png", RAMP),
        ("16 bit.tif", RAMP),
        ("16 bit big-endian.tif", RAMP.astype(">u2")),
        ("32 bit.tif", RAMP.astype(np.int32)),
        ("32 bit of 8 bit levels.tif", LEVELS.astype(np.int32)),
        ("32 bit, stretched.tif", RAMP.astype(np.int32) * 1000 - 7_000_000),
        ("float 0 to 1.tif", RAMP.astype(np.float32) / 65535),
        ("float of 8 bit levels.tif", LEVELS.astype(np.float32)),
        ("float, stretched.tif", RAMP.astype(np.float32) * 3 - 50_000),
    ],
)
def test_grey_levels_of_more_than_8_bits_keep_their_places_between_black_and_white(tmp_path, name, pixels):
    Image.fromarray(pixels).save(tmp_path / name)
    read = read_picture(tmp_path / name)
    assert read.shape == (8, 64, 3) and read.dtype == np.uint8 and read.flags.writeable
    assert np.abs(read.astype(int) - LEVELS[..., None].astype(int)).max() <= 1
    assert (read[0, 0, 0], read[0, -1, 0]) == (0, 255)


def test_16_bits_a_colour_are_read_as_8(tmp_path):
    row = RAMP[0].astype(">u2").repeat(3).tobytes()
    read = read_picture(png(tmp_path / "deep.png", 64, 8, 16, 2, row))
    assert np.abs(read.astype(int) - LEVELS[..., None].astype(int)).max() <= 1


def test_numbers_that_are_none_are_black(tmp_path):
    pixels = np.full((4, 4), 0.5, np.float32)
    pixels[0] = np.nan, np.inf, -np.inf, 1.0
    Image.fromarray(pixels).save(tmp_path / "holes.tif")
    assert read_picture(tmp_path / "holes.tif")[:2, :, 0].tolist() == [[0, 0, 0, 255], [128] * 4]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr"])
def test_other_kinds_of_pixels_are_as_pillow_says_to_the_bit(tmp_path, mode):
    noise = np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    path = tmp_path / ("p.tif" if mode in ("CMYK", "YCbCr") else "p.png")
    Image.fromarray(noise).convert(mode).save(path)
    with Image.open(path) as image:
        assert np.array_equal(read_picture(path), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(("mode", "opaque"), [("LA", (200, 255)), ("RGBA", (200, 200, 200, 255))])
def test_what_is_transparent_is_grey(tmp_path, mode, opaque):
    image = Image.new(mode, (2, 1))
    image.putpixel((1, 0), opaque)
    image.save(tmp_path / "p.png")
    image.convert("RGBA").quantize(2).save(tmp_path / "palette.png")
    for name in ("p.png", "palette.png"):
        assert read_picture(tmp_path / name).tolist() == [[[128] * 3, [200] * 3]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_turn_of_the_camera_is_undone(tmp_path, orientation, monkeypatch):
    monkeypatch.setattr(reading, "STRIP_PX", 100)
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    for name in ("turned.jpg", "turned.png", "turned.tif"):
        Image.fromarray(noise).save(tmp_path / name, exif=exif)
        with Image.open(tmp_path / name) as image:
            upright = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
        read = read_picture(tmp_path / name)
        assert np.array_equal(read, upright) and read.flags.c_contiguous and read.flags.writeable, name


def test_a_picture_that_would_fill_the_memory_is_refused_before_it_is_decoded(tmp_path):
    """A few kilobytes may claim any number of pixels."""
    for side in (13_200, 30_000):
        path = png(tmp_path / "bomb.png", side, side, 8, 2, b"")
        assert path.stat().st_size < 100_000
        with pytest.raises(QueryError, match=r"too large a picture.*scale it down") as caught:
            read_picture(path)
        assert "\n" not in str(caught.value)


def test_a_picture_that_is_narrow_beyond_any_camera_is_refused(tmp_path):
    """Scaled for a model, it would be widened to gigabytes first."""
    Image.new("L", (2, 65_536)).save(tmp_path / "narrow.png")
    with pytest.raises(QueryError, match=r"2x65536 pixels, too long a picture: at most 65535 pixels a side"):
        read_picture(tmp_path / "narrow.png")
    Image.new("L", (65_535, 2)).save(tmp_path / "wide.png")
    assert read_picture(tmp_path / "wide.png").shape == (2, 65_535, 3)


READ = """
import sys
import numpy, PIL.Image
from lastseen import picture

def most():  # ru_maxrss would count the parent's, too
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

PIL.Image.init()
picture.MAX_READING_BYTES = int(sys.argv[2]) or picture.MAX_READING_BYTES
before = most()
picture.read_picture(sys.argv[1])
print(1024 * (most() - before), picture.MAX_READING_BYTES)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("name", "bytes_a_pixel"),
    [("120 megapixels.png", 0), ("progressive.jpg", 10), ("p.webp", 16), ("p.avif", 12), ("zip.tif", 8)],
)
def test_reading_takes_no_more_memory_than_we_say(tmp_path, name, bytes_a_pixel):
    """Those that decode in more memory are smaller here, and only just accepted."""
    path, width, height = tmp_path / name, 4096, 4096
    if not bytes_a_pixel:
        png(path, 12_000, 10_000, 8, 6, bytes(48_000))  # with transparency
    else:
        coarse = np.random.default_rng(0).integers(0, 256, (height // 32, width // 32, 3), dtype=np.uint8)
        options = {
            "progressive.jpg": {"progressive": True, "subsampling": 0},
            "p.webp": {"method": 0},
            "p.avif": {"speed": 10},
            "zip.tif": {"compression": "tiff_adobe_deflate"},
        }[name]
        try:
            Image.fromarray(coarse).resize((width, height), 0).save(path, **options)
        except (OSError, KeyError, ValueError) as error:
            pytest.skip(f"this Pillow cannot write it: {error}")
    most = str(width * height * bytes_a_pixel)
    command = [sys.executable, "-W", "error", "-c", READ, str(path), most]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    grown, allowed = map(int, done.stdout.split())
    assert allowed / 3 < grown < allowed + 32 * 2**20


def test_other_formats_are_not_even_begun(tmp_path, monkeypatch):
    """Pillow would run Ghostscript for this one."""
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    Image.new("RGB", (20, 10)).save(tmp_path / "evil.jpg", "EPS")
    with pytest.raises(QueryError, match=r"evil\.jpg is an EPS file, not .* give a JPEG, PNG or"):
        read_picture(tmp_path / "evil.jpg")
    assert not (tmp_path / "ran").exists()
    for kind in ("ppm", "tga", "pcx", "ico", "sgi"):
        Image.new("RGB", (20, 10)).save(tmp_path / f"p.{kind}")
        with pytest.raises(QueryError, match="is not a picture that can be read; give a JPEG"):
            read_picture(tmp_path / f"p.{kind}")


def test_usual_formats_are_read_whatever_their_name(tmp_path):
    for kind in ("jpeg", "png", "webp", "gif", "bmp", "tiff"):
        Image.new("RGB", (20, 10), (200, 10, 10)).save(tmp_path / "picture", kind)
        assert abs(int(read_picture(tmp_path / "picture")[5, 5, 0]) - 200) < 12, kind


def test_a_pipe_or_a_device_is_told_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    code = "import sys; from lastseen.picture import read_picture; read_picture(sys.argv[1])"
    for path in (tmp_path / "pipe.jpg", "/dev/zero"):
        command = [sys.executable, "-c", code, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert f"QueryError: {path} is a pipe or a device, not a file" in done.stderr


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "gif", "bmp", "tiff", "avif"])
def test_damage_of_any_kind_is_one_line(tmp_path, kind):
    rng = np.random.default_rng(0)
    if kind.upper() not in Image.registered_extensions().values():
        pytest.skip("this Pillow has no such format")
    path = tmp_path / "p"
    Image.fromarray(rng.integers(0, 256, (24, 40, 3), dtype=np.uint8)).save(path, kind)
    sound = np.frombuffer(path.read_bytes(), np.uint8)
    for _ in range(150):
        damaged = sound[: rng.integers(1, len(sound))].copy() if rng.random() < 0.3 else sound.copy()
        at = rng.integers(0, min(len(damaged), 400), rng.integers(1, 6))
        damaged[at] = rng.integers(0, 256, len(at))
        path.write_bytes(damaged.tobytes())
        try:
            assert read_picture(path).dtype == np.uint8
        except QueryError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)

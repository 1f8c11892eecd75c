"""Files that would make a reader hang, open others, or ask for more memory or disk than there is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from videos import assert_helpful, numbers, pictures, write_video

from lastseen import video as video_module
from lastseen.errors import VideoError
from lastseen.model import inputs
from lastseen.video import Video, decoding
from lastseen.video.sources import is_live

FAR_S = 157_680_000_000  # 5,000 years


def jumping(path: Path, frames: int, at: int, by_s: float) -> Path:
    """Frames 25 a second whose timestamps jump before frame `at`."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.options = {"bf": "0"}
        packets = []
        for image in pictures(frames):
            packets += stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24"))
        packets += stream.encode(None)
        for number, packet in enumerate(packets):
            if number >= at:
                later = int(by_s / packet.time_base)
                packet.pts, packet.dts = packet.pts + later, packet.dts + later
            container.mux(packet)
    return path


# --- time


def test_timestamps_that_jump_by_years_are_refused_when_the_file_is_opened(tmp_path: Path) -> None:
    path = jumping(tmp_path / "v.mkv", 10, 6, FAR_S)
    assert path.stat().st_size < 3000
    with pytest.raises(VideoError) as caught:
        Video(path, allow_truncated=True)
    message = str(caught.value)
    assert message.startswith(f"{path}: at 0.2 s its timestamps jump by {FAR_S} s; ") and "\n" not in message
    assert "ffmpeg -i IN -vf setpts=N/25/TB" in message


def test_a_jump_in_a_file_that_is_large_enough_to_be_hours_is_refused_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video_module, "SPARSE_BYTES", 0)
    video = Video(jumping(tmp_path / "v.mkv", 50, 25, 7200))
    frames = video.frames(5)
    assert [next(frames).index for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(VideoError, match=r"at 1\.0 s its timestamps jump by 7200 s"):
        list(frames)


def test_a_last_frame_that_never_ends_is_refused(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mp4", pictures(3), [0.0, 0.04, 9000.0])
    with pytest.raises(VideoError, match="its timestamps jump by"):
        Video(path)


def test_a_pause_of_almost_an_hour_is_a_pause(tmp_path: Path) -> None:
    video = Video(write_video(tmp_path / "v.mp4", pictures(4), [0.0, 0.2, 3590.0, 3590.2]))
    assert numbers(video, fps=0.01)[:36] == [0, *[1] * 35]


# --- memory


def test_frames_too_large_for_memory_are_refused_before_one_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_video(tmp_path / "v.mp4", pictures(5, 128, 96))
    monkeypatch.setattr(decoding, "MOST_PIXELS", 128 * 96)
    Video(path)
    monkeypatch.setattr(decoding, "MOST_PIXELS", 128 * 96 - 1)
    monkeypatch.setattr(decoding.Source, "frames", None)
    with pytest.raises(VideoError) as caught:
        Video(path)
    assert_helpful(caught.value, path, "128 x 96 pixels", "ffmpeg -i IN -vf scale=")


def test_a_frame_of_80_million_pixels_is_refused(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "v.mkv"), "w") as container:
        stream = container.add_stream("mjpeg", rate=5)
        stream.width, stream.height, stream.pix_fmt = 16000, 5000, "yuvj420p"
        black = av.VideoFrame(16000, 5000, "yuvj420p")
        for plane in black.planes:
            plane.update(bytes(plane.buffer_size))
        container.mux(stream.encode(black))
        container.mux(stream.encode(None))
    with pytest.raises(VideoError, match="16000 x 5000 pixels are too large"):
        Video(tmp_path / "v.mkv")


def test_large_frames_are_scaled_a_few_at_a_time_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = torch.from_numpy(np.random.default_rng(0).integers(0, 255, (4, 90, 160, 3), np.uint8))
    at_once = inputs.resized(frames, 64, 36)
    sizes: list[int] = []
    honest = torch.nn.functional.interpolate

    def counted(planes: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        sizes.append(len(planes))
        return honest(planes, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(inputs.F, "interpolate", counted)
    monkeypatch.setattr(inputs, "AT_ONCE_PX", 90 * 160 + 1)
    assert torch.equal(inputs.resized(frames, 64, 36), at_once)
    assert sizes == [1, 1, 1, 1]


@pytest.mark.parametrize(("width", "height"), [(64, 36), (160, 40), (30, 90), (300, 200), (1, 1)])
def test_a_picture_too_large_for_floats_is_scaled_in_strips_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, width: int, height: int
) -> None:
    picture = torch.from_numpy(np.random.default_rng(0).integers(0, 255, (1, 90, 160, 3), np.uint8))
    at_once = inputs.resized(picture, width, height)
    honest, largest = inputs._planes, []

    def counted(pictures: torch.Tensor) -> torch.Tensor:
        largest.append(pictures.numel() // 3)
        return honest(pictures)

    monkeypatch.setattr(inputs, "_planes", counted)
    monkeypatch.setattr(inputs, "AT_ONCE_PX", 90 * 160 - 1)
    monkeypatch.setattr(inputs, "STRIP_PX", 7 * 160 + 5)
    assert torch.equal(inputs.resized(picture, width, height), at_once)
    assert max(largest) == 7 * 160 and sum(largest) == 90 * 160


# --- what is no file


@contextmanager
def socket_at(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as there:
        old = Path.cwd()
        os.chdir(path.parent)  # names of sockets are short
        there.bind(path.name)
        os.chdir(old)
        yield


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_pipes_devices_and_sockets_are_refused_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    with socket_at(tmp_path / "socket.mp4"):
        places = {
            tmp_path / "pipe.mp4": "is a pipe",
            tmp_path / "socket.mp4": "is a socket",
            Path("/dev/zero"): "is a device",
            tmp_path: "is a directory",
        }
        for path, words in places.items():
            code = "import sys; from lastseen.video import Video\ntry: Video(sys.argv[1])\n"
            code += "except Exception as error: print(error)"
            done = subprocess.run(  # in a process of its own, since opening a pipe cannot be interrupted
                [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60, check=True
            )
            assert done.stdout.startswith(f"{path}: {words}") and done.stdout.count("\n") == 1, done.stdout


@pytest.mark.parametrize("name", ["x" * 300 + ".mp4", "a\0b.mp4", os.fsdecode(b"caf\xe9.mp4"), "loop.mp4"])
def test_a_name_that_cannot_be_opened_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop.mp4").symlink_to("loop.mp4")
    if "\0" not in name and len(name) < 255 and name != "loop.mp4":
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(VideoError) as caught:
        Video(tmp_path / name)
    assert "\n" not in str(caught.value) and os.fsencode(str(caught.value))


# --- files that name others


def concat(path: Path, video: Path) -> None:
    path.write_text(f"ffconcat version 1.0\nfile {video.name}\n")


def hls(path: Path, video: Path) -> None:
    path.write_text(
        f"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n#EXTINF:2.0,\n{video.name}\n#EXT-X-ENDLIST\n"
    )


def dash(path: Path, video: Path) -> None:
    profile = 'profiles="urn:mpeg:dash:profile:isoff-on-demand:2011"'
    path.write_text(f'<?xml version="1.0"?><MPD {profile}><BaseURL>{video}</BaseURL></MPD>')


def sdp(path: Path, video: Path) -> None:
    path.write_text(
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
        "m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"
    )


@pytest.mark.parametrize(
    ("name", "make"), [("a.ffconcat", concat), ("a.m3u8", hls), ("a.mpd", dash), ("a.sdp", sdp)]
)
def test_playlists_are_refused_and_nothing_they_name_is_opened(
    tmp_path: Path, name: str, make: Callable[[Path, Path], None]
) -> None:
    video = write_video(tmp_path / "v.ts", pictures(50))
    make(tmp_path / name, video)
    with pytest.raises(VideoError) as caught:
        Video(tmp_path / name)
    assert_helpful(caught.value, tmp_path / name, "is a list that names other files", "give the video files")
    assert Video(video).duration_s > 1


def test_numbered_pictures_are_not_gathered_to_a_video(tmp_path: Path) -> None:
    from PIL import Image

    for number, image in enumerate(pictures(5)):
        Image.fromarray(image).save(tmp_path / f"{number}.jpg")
        Image.fromarray(image).save(tmp_path / "%d.jpg")
    with pytest.raises(VideoError, match="is a picture"):
        Video(tmp_path / "%d.jpg")


@pytest.mark.parametrize(
    "name", ["a:b.mp4", "concat:a|b.mp4", "http:x.mp4", "camera:1.mp4", "camera", "file:x.mp4", "pipe:0"]
)
def test_a_file_is_a_file_whatever_its_name_begins_with(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_video(tmp_path / "v.mp4", pictures(25)).rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert not is_live(name)
    assert numbers(Video(name)) == [0, 5, 10, 15, 20]
    assert is_live("rtsp://hall/live") and is_live("camera:1") and is_live("/dev/video0")

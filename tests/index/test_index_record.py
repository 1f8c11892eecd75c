"""Recording into an index: killed, crowded, short of disk, from files that grow and from streams."""

import errno
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from questions import IDS, keep, question
from videos import pictures, write_video

from lastseen.errors import IndexStoreError, VideoError
from lastseen.index import Index, record, recorder, rows
from lastseen.index.live import record_live
from lastseen.index.record import ADDED, KNOWN, add_file, follow_file
from lastseen.index.search import search
from lastseen.progress import Progress
from lastseen.query import Query
from lastseen.video.sources import LiveVideo, is_live, recorded_at, without_password

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from index_kill import contents, make_video, tiny_localizer  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
QUERY = Query.from_array(np.random.default_rng(0).integers(0, 255, (48, 48, 3), np.uint8))


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> list[Path]:
    root = tmp_path_factory.mktemp("videos")
    return [make_video(root / f"{i}.mp4", seconds, i) for i, seconds in enumerate((20, 12.2))]


@pytest.fixture(scope="module")
def whole(videos, tmp_path_factory) -> dict[str, bytes]:
    """What an uninterrupted run keeps."""
    folder = tmp_path_factory.mktemp("whole")
    with Index(folder, create=True) as index:
        for video in videos:
            add_file(index, tiny_localizer(), video)
    return contents(folder)


def python(code: str, *arguments: object) -> subprocess.Popen:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_twenty_kills_lose_nothing_and_corrupt_nothing():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    script = ROOT / "benchmarks" / "index_kill.py"
    done = subprocess.run(
        [sys.executable, script, "--kills", "20"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == 20 and report["indexes finished and equal"] >= 1


def test_two_processes_on_the_same_and_on_different_videos(videos, whole, tmp_path):
    code = (
        "import sys; from index_kill import *; index_all(Path(sys.argv[1]), [Path(p) for p in sys.argv[2:]])"
    )
    # Both take the first video: one of them has to leave it to the other. Then each has one of its own.
    third = make_video(tmp_path / "third.mp4", 8, 3)
    writers = [python(code, tmp_path / "index", videos[0], other) for other in (videos[1], third)]
    for writer in writers:
        _, problems = writer.communicate(timeout=60)
        assert writer.returncode == 0, problems
    found = contents(tmp_path / "index")
    assert {name: found[name] for name in whole} == whole
    with Index(tmp_path / "index") as index:
        assert sorted(video.name for video in index.videos()) == ["0.mp4", "1.mp4", "third.mp4"]
        assert all(video.complete and index.verify(video) == [] for video in index.videos())


# --- a full disk ---


def test_a_full_disk_leaves_what_was_committed(videos, whole, tmp_path, monkeypatch):
    """Real bytes are written until the quota is used up, in the middle of a row."""
    honest, left = rows.write_all, 150_001

    def limited(handle: int, data: memoryview) -> None:
        nonlocal left
        honest(handle, data[: max(0, left)] if data.ndim == 1 else data.cast("B")[: max(0, left)])
        left -= data.nbytes
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    localizer = tiny_localizer()
    with Index(tmp_path, create=True) as index:
        with monkeypatch.context() as patched:
            patched.setattr(rows, "write_all", limited)
            with pytest.raises(IndexStoreError, match=r"disk of .* is full; what was committed is safe"):
                add_file(index, localizer, videos[0], commit_s=0)
        video = index.videos()[0]
        assert 0 < video.frames < 100 and not video.complete
        assert index.verify(video) == []
        assert index.size_bytes(video) == video.frames * (video.fine_bytes + video.compact_bytes)
        assert search(index, localizer, {"it": QUERY})["it"], "it can be asked"
        assert add_file(index, localizer, videos[0]).outcome == ADDED
    assert contents(tmp_path)["0.mp4:fine"] == whole["0.mp4:fine"]


@contextmanager
def small_disk(folder: Path, size: str):
    folder.mkdir()
    if (
        os.name != "posix"
        or os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
    ):
        pytest.skip("a small disk can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full_leaves_a_usable_index(videos, tmp_path):
    localizer = tiny_localizer()
    with small_disk(tmp_path / "disk", "600k") as disk:
        with Index(disk / "index", create=True) as index, pytest.raises(IndexStoreError, match="is full"):
            for video in videos:
                add_file(index, localizer, video, commit_s=0)
        with Index(disk / "index") as index:
            assert index.videos()[0].frames > 0
            assert [line for video in index.videos() for line in index.verify(video)] == []
            found = search(index, localizer, {"it": QUERY})["it"]
            assert found
            index.remove(index.videos()[0])


# --- files that grow ---

GROW = """
import sys, time
data = open(sys.argv[1], "rb").read()
with open(sys.argv[2], "wb") as out:
    for start in range(0, len(data), len(data) // 20):
        out.write(data[start : start + len(data) // 20])
        out.flush()
        time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize("ending", ["ts", "mp4"])
def test_a_file_that_another_process_is_writing_is_indexed_as_it_grows(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(record, "POLL_S", 0.1)
    muxer = {"movflags": "frag_keyframe+empty_moov"} if ending == "mp4" else None
    finished = write_video(
        tmp_path / f"finished.{ending}", pictures(300), fps=25, gop=12, muxer=muxer, options={"bf": "2"}
    )
    localizer = tiny_localizer()
    growing = tmp_path / f"growing.{ending}"
    progress: list[int] = []
    writer = python(GROW, finished, growing, 0.12)
    with Index(tmp_path / "index", create=True) as index:
        done = follow_file(
            index,
            localizer,
            growing,
            settle_s=0.8,
            commit_s=0,
            progress=lambda told: progress.append(told.done),
        )
        assert writer.communicate()[1] == ""
        assert done.outcome == ADDED and done.video.complete
        blocks = index.catalogue.blocks(done.video.id)
        assert len(blocks) > 3 and progress == sorted(progress)
        assert add_file(index, localizer, growing).outcome == KNOWN
    with Index(tmp_path / "once", create=True) as index:
        add_file(index, localizer, finished, name=growing.name)
    assert contents(tmp_path / "index") == contents(tmp_path / "once")


def test_following_a_file_can_be_interrupted_and_goes_on(tmp_path, monkeypatch, whole, videos):
    monkeypatch.setattr(record, "POLL_S", 0.05)

    def interrupt(told: Progress) -> None:
        if told.done >= 32:
            raise KeyboardInterrupt

    with Index(tmp_path, create=True) as index:
        with pytest.raises(KeyboardInterrupt):
            follow_file(index, tiny_localizer(), videos[0], settle_s=0.2, commit_s=0, progress=interrupt)
        assert 0 < index.videos()[0].frames <= 32
        assert add_file(index, tiny_localizer(), videos[0]).outcome == ADDED
        assert index.videos()[0].complete and len(index.videos()) == 1
    assert contents(tmp_path)["0.mp4:fine"] == whole["0.mp4:fine"]


def test_a_file_that_never_becomes_a_video_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "POLL_S", 0.05)
    (tmp_path / "x.mp4").write_bytes(b"nothing of the kind" * 100)
    with Index(tmp_path / "index", create=True) as index, pytest.raises(VideoError, match="not a video"):
        follow_file(index, tiny_localizer(), tmp_path / "x.mp4", settle_s=0.2)


@pytest.fixture
def short_segments(monkeypatch):
    for module in (rows, recorder):
        monkeypatch.setattr(module, "SEGMENT_ROWS", 16)


def test_the_ring_buffer_drops_the_oldest(tmp_path, monkeypatch, short_segments, videos):
    monkeypatch.setattr(record, "POLL_S", 0.05)
    localizer = tiny_localizer()
    with Index(tmp_path, create=True) as index:
        done = follow_file(index, localizer, videos[0], settle_s=0.2, commit_s=0, keep_hours=8 / 3600)
        video = done.video
        assert (video.first, video.frames) == (48, 100)  # at least 8 s of 5 frames, in whole files of 16
        assert index.size_bytes(video) == 52 * (video.fine_bytes + video.compact_bytes)
        assert index.verify(video) == []
        for options in ({"exhaustive": True}, {}):
            answer = search(index, localizer, {"it": QUERY}, **options)["it"][0]
            shown = answer.shown[-1]
            assert 48 <= shown.first_frame <= shown.last_frame < 100
        asked = search(index, localizer, {"it": QUERY.asked(12.0)}, exhaustive=True)["it"][0]
        assert (len(asked.curve), asked.curve.searched.sum()) == (60, 60 - 48)


def test_a_question_survives_that_old_frames_are_dropped_meanwhile(tmp_path, short_segments, videos):
    localizer = tiny_localizer()
    with Index(tmp_path, create=True) as index:
        add_file(index, localizer, videos[0])
        encode, dropped = localizer.clips, []

        def dropping(features, *options):
            if not dropped:
                video = index.videos()[0]
                keep(index.questions, question(IDS[1], (1,), notes=()))  # its sighting ends at 4 s
                later = replace(question().lines[0], end_s=64 / 5)
                keep(index.questions, question(IDS[2], (1,), notes=(), lines=(later,)))
                dropped.append(recorder.Recorder(index, localizer, video).drop(64))
            return encode(features, *options)

        localizer.clips = dropping
        found = search(index, localizer, {"it": QUERY}, exhaustive=True)["it"][0]
        assert index.videos()[0].first == 64 == found.video.first
        assert (len(found.curve), found.curve.searched.sum()) == (100, 100 - 64)
        assert [kept.id for kept in index.questions.read()[0]] == [IDS[2]], (
            "the other is older than all frames"
        )


# --- streams ---


@contextmanager
def server(data: bytes, seconds: float, then: str = "close"):
    """Sends `data` evenly over so many seconds to whoever connects; then closes, hangs or dies."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def send() -> None:
            connection, _ = listening.accept()
            with connection:
                for start in range(0, len(data), len(data) // 40):
                    connection.sendall(data[start : start + len(data) // 40])
                    time.sleep(seconds / 40)
                if then == "hang":
                    over.wait(10)
                if then == "die":  # closed without lingering: the other side gets a reset
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        thread.join(10)


@pytest.fixture(scope="module")
def stream(tmp_path_factory) -> bytes:
    path = write_video(tmp_path_factory.mktemp("stream") / "s.ts", pictures(250), fps=25, gop=12)
    return path.read_bytes()


def test_a_stream_is_indexed_while_it_runs(tmp_path, stream, short_segments):
    localizer = tiny_localizer()
    with Index(tmp_path, create=True) as index, server(stream, 2.0) as address:
        before = time.time()
        done = record_live(index, localizer, address, name="hall", commit_s=0, keep_hours=5 / 3600)
        video = done.video
        assert video.name.startswith("hall 20") and video.complete
        assert 45 <= video.frames <= 51
        assert video.first == 16
        assert before - 1 < video.recorded_at < time.time()
        assert index.verify(video) == []
        assert search(index, localizer, {"it": QUERY})["it"]


@pytest.mark.parametrize(
    ("then", "says"), [("hang", "nothing came for 1 s"), ("die", "broke off (Connection")]
)
def test_of_a_stream_that_breaks_off_what_came_before_is_kept(tmp_path, stream, then, says):
    localizer = tiny_localizer()
    with Index(tmp_path, create=True) as index, server(stream[: len(stream) // 2], 0.4, then) as address:
        done = record_live(index, localizer, address, timeout_s=1.0)
        assert done.broke_off.startswith(f"{address}: ") and says in done.broke_off
        assert 24 <= done.video.frames <= 27  # half of ten seconds; also what the decoder still held
        assert done.video.complete and index.verify(done.video) == []
        assert search(index, localizer, {"it": QUERY})["it"]


class _Http(BaseHTTPRequestHandler):
    """The stream over HTTP: whole, or less than was promised."""

    data = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "video/mp2t")
        promised = len(self.data) * (2 if self.path == "/short" else 1)
        self.send_header("Content-Length", str(promised))
        self.end_headers()
        self.wfile.write(self.data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("path", "broke_off"), [("/whole", False), ("/short", True)])
def test_a_stream_over_http(tmp_path, stream, path, broke_off):
    kind = type("Http", (_Http,), {"data": stream})
    with Index(tmp_path, create=True) as index, ThreadingHTTPServer(("127.0.0.1", 0), kind) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{listening.server_port}{path}"
        done = record_live(index, tiny_localizer(), address, timeout_s=2.0)
        listening.shutdown()
        assert bool(done.broke_off) is broke_off
        assert done.video.frames + done.skipped >= 49 and done.video.source == address


def test_samples_that_come_too_fast_are_lost_but_keep_their_places(monkeypatch, tmp_path, stream):
    monkeypatch.setattr("lastseen.video.sources.WAITING", 4)
    localizer = tiny_localizer()
    honest = localizer.encode_pictures
    monkeypatch.setattr(localizer, "encode_pictures", lambda images: time.sleep(0.2) or honest(images))
    with Index(tmp_path, create=True) as index, server(stream, 0.8) as address:
        done = record_live(index, localizer, address)
        assert done.skipped > 0
        assert done.video.frames > 20
        assert index.verify(done.video) == []


def test_the_end_of_a_stream_is_known_to_a_consumer_that_was_busy(monkeypatch, stream):
    with server(stream, 0.0) as address, LiveVideo(address, 5.0) as live:
        every = [frame.index for frame in live.frames()]
    monkeypatch.setattr("lastseen.video.sources.WAITING", 4)
    with server(stream, 0.0) as address, LiveVideo(address, 5.0) as live:
        live._thread.join(20)  # nothing is taken before all of it has come
        late = [frame.index for frame in live.frames()]
    assert late == [0, 1, 2, 3, every[-1]]


def test_a_stream_is_sampled_by_its_own_clock(stream):
    with server(stream, 0.5) as address, LiveVideo(address, 5.0) as live:
        indices = [frame.index for frame in live.frames()]
    assert indices[0] == 0 and indices == sorted(set(indices))


def test_what_is_a_stream_and_what_a_file():
    assert all(map(is_live, ("rtsp://a/b", "http://a", "camera", "camera:2", "/dev/video0")))
    assert not any(map(is_live, ("walk.mp4", "cameras/walk.mp4", "/home/me/camera.mp4", "a:b.mp4")))
    with pytest.raises(VideoError, match="cannot be opened"), LiveVideo("tcp://127.0.0.1:9", 5.0):
        pass


def test_a_password_in_an_address_is_neither_kept_nor_said():
    assert without_password("rtsp://me:se@ret@hall/live?a=b@c") == "rtsp://hall/live?…"
    assert without_password("rtsp://hall/live") == "rtsp://hall/live"
    with pytest.raises(VideoError) as refused, LiveVideo("rtsp://me:secret@127.0.0.1:9/x", 5.0):
        pass
    assert "secret" not in str(refused.value)


def test_the_date_of_a_recording_is_the_files_own(tmp_path, videos):
    assert recorded_at(videos[0]) is None
    dated = write_video(tmp_path / "dated.mkv", pictures(10))
    import av

    with av.open(str(dated)) as source, av.open(str(tmp_path / "d.mkv"), "w") as out:
        out.metadata["creation_time"] = "2026-03-04T05:06:07Z"
        copied = out.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = copied
                out.mux(packet)
    assert recorded_at(tmp_path / "d.mkv") == 1772600767.0


# --- memory ---


def test_memory_does_not_grow_with_the_video(tmp_path):
    code = (
        "import sys, resource; from index_kill import *; import torch; torch.set_num_threads(1)\n"
        "index_all(Path(sys.argv[1]), [Path(p) for p in sys.argv[2:3]])\n"
        "a = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "index_all(Path(sys.argv[1]), [Path(p) for p in sys.argv[3:]])\n"
        "print(a, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    short, long = make_video(tmp_path / "short.mp4", 10, 0), make_video(tmp_path / "long.mp4", 120, 0)
    process = python(code, tmp_path / "index", short, long)
    out, problems = process.communicate(timeout=60)
    assert process.returncode == 0, problems
    before, after = map(int, out.split())
    unit = 1024 if sys.platform == "linux" else 1
    assert (after - before) * unit < 8e6  # its pictures are 22 MB

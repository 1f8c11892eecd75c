"""Connections of `lastseen serve` that do nothing, or almost nothing: they are ended, others are served."""

import logging
import re
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from web import left_over, served, tiny

from lastseen.web.limits import Limits
from lastseen.web.media import Settings

pytestmark = pytest.mark.usefixtures("one_thread")
SOON_S = 10.0  # generous: the limits below are a fraction of a second
SHORT = Limits(head_s=0.4, body_window_s=0.4, body_bytes_s=1000, reader_s=0.6)


@contextmanager
def server(folder: Path, limits: Limits):
    with served(Settings(index=folder / "index", limits=limits), tiny()) as address:
        yield urlsplit(address).netloc


def connected(host: str) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", int(host.rsplit(":", 1)[1])))
    line.settimeout(SOON_S)
    return line


def rest(line: socket.socket) -> bytes:
    """What comes until the server closes; fails if it does not close."""
    data = b""
    while part := line.recv(65536):
        data += part
    return data


def answer(line: socket.socket) -> bytes:
    """One whole answer, head and body, which may come in pieces."""
    data, size = b"", None
    while size is None or len(data) < size:
        part = line.recv(65536)
        assert part, f"it ended after {data!r}"
        data += part
        head, end, _ = data.partition(b"\r\n\r\n")
        if end:
            (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
            size = len(head) + len(end) + int(length)
    return data


def get(host: str, path: str = "/api/videos", more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def test_a_connection_that_says_nothing_is_ended(tmp_path):
    with server(tmp_path, SHORT) as host, connected(host) as line:
        assert rest(line) == b""


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_head_that_trickles_in_is_ended_with_one_line(tmp_path, asked_before):
    stop = threading.Event()
    with server(tmp_path, SHORT) as host, connected(host) as line:
        if asked_before:
            line.sendall(get(host))
            assert answer(line).startswith(b"HTTP/1.1 200")

        def trickle() -> None:
            line.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n".encode())
            try:
                while not stop.wait(0.05):
                    line.sendall(b"X-A: b\r\n")
            except OSError:
                pass  # ended, as it should be

        trickling = threading.Thread(target=trickle)
        trickling.start()
        try:
            said = answer(line)
        finally:
            stop.set()
            trickling.join()
    assert said.startswith(b"HTTP/1.1 408")
    assert said.endswith(b'{"detail": "the head of the request did not come in time"}')


def test_a_body_that_trickles_in_is_ended_and_nothing_stays_of_it(tmp_path):
    with server(tmp_path, SHORT) as host, connected(host) as line:
        head = f"POST /api/uploads?name=slow.mp4 HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\n"
        line.sendall(head.encode())
        ends = time.monotonic() + SOON_S
        line.settimeout(0.05)
        said = b""
        while not said:
            assert time.monotonic() < ends, "the upload goes on for ever"
            line.sendall(b"x")
            try:
                said = line.recv(65536)
            except TimeoutError:
                continue
        assert said.startswith(b"HTTP/1.1 408")
        while left_over(tmp_path):
            assert time.monotonic() < ends, "half an upload stays"
            time.sleep(0.02)


def test_a_body_that_comes_slowly_but_well_is_taken(tmp_path):
    limits = Limits(body_window_s=0.4, body_bytes_s=1000)
    with server(tmp_path, limits) as host, connected(host) as line:
        head = f"POST /api/pictures?name=a.jpg HTTP/1.1\r\nHost: {host}\r\nContent-Length: 8000\r\n\r\n"
        line.sendall(head.encode())
        for _ in range(16):  # 5000 bytes a second, for four windows
            line.sendall(bytes(500))
            time.sleep(0.1)
        assert line.recv(65536).startswith(b"HTTP/1.1 422")  # all of it has come; it is no picture


def test_a_reader_that_takes_nothing_is_ended_and_one_that_is_slow_is_not(tmp_path):
    (tmp_path / "videos").mkdir()
    with ExitStack() as stack:
        host = stack.enter_context(server(tmp_path, SHORT))
        lines = [stack.enter_context(small_buffer(host)) for _ in range(2)]
        for line in lines:
            line.sendall(get(host, "/openapi.json") * 400)  # megabytes of answers
        stuck, slow = lines
        taken, ends = 0, time.monotonic() + 2.5
        while time.monotonic() < ends:
            taken += len(slow.recv(65536))
            time.sleep(0.05)
        assert taken > 100_000
        slow.sendall(b"")
        assert slow.recv(10)
        with pytest.raises(ConnectionError):
            while True:  # what was on its way is still there; then it broke off
                if not stuck.recv(65536):
                    raise ConnectionError


def small_buffer(host: str) -> socket.socket:
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(SOON_S)
    line.connect(("127.0.0.1", int(host.rsplit(":", 1)[1])))
    return line


def test_a_body_that_is_none_is_refused_once_though_its_request_is_under_way(tmp_path, monkeypatch):
    logged = []
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "error", lambda *said, **_: logged.append(said))
    for path in ("/api/find", "/api/pictures", "/nothing"):
        with server(tmp_path, SHORT) as host, connected(host) as line:
            head = f"POST {path} HTTP/1.1\r\nHost: elsewhere\r\nTransfer-Encoding: chunked\r\n\r\n"
            line.sendall(f"{head}no length\r\n".encode())
            assert rest(line).startswith(b"HTTP/1.1 400")
    assert not logged


def test_silent_connections_make_room_for_people(tmp_path):
    with ExitStack() as stack:
        host = stack.enter_context(server(tmp_path, Limits(connections=5)))
        for _ in range(40):
            stack.enter_context(connected(host))
        for _ in range(3):
            assert httpx.get(f"http://{host}/api/videos").status_code == 200


def test_more_connections_than_there_may_be_are_told_to_come_later(tmp_path):
    with ExitStack() as stack:
        host = stack.enter_context(server(tmp_path, Limits(connections=3)))
        for _ in range(3):
            busy = stack.enter_context(connected(host))
            busy.sendall(get(host, "/api/events"))
            assert busy.recv(65536).startswith(b"HTTP/1.1 200")
        refused = httpx.get(f"http://{host}/api/videos")
        assert refused.status_code == 429
        assert refused.json()["detail"] == "too many connections; try again in a moment"
        assert int(refused.headers["retry-after"]) > 0
        busy.close()
        ends = time.monotonic() + SOON_S
        while httpx.get(f"http://{host}/api/videos").status_code != 200:
            assert time.monotonic() < ends, "the place of a connection that ended stays taken"


def test_event_streams_are_counted_and_given_back(tmp_path):
    with server(tmp_path, Limits(streams=2)) as host, ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=f"http://{host}"))
        streams = [stack.enter_context(client.stream("GET", "/api/events")) for _ in range(2)]
        assert [stream.status_code for stream in streams] == [200, 200]
        refused = client.get("/api/events")
        assert refused.status_code == 429
        assert "too many event streams" in refused.json()["detail"]
        assert client.get("/api/videos").status_code == 200
        streams[0].close()
        ends = time.monotonic() + SOON_S
        while True:
            with client.stream("GET", "/api/events") as again:
                if again.status_code == 200:
                    break
            assert time.monotonic() < ends, "a stream that ended still counts"


def test_a_quiet_event_stream_stays_open(tmp_path):
    with server(tmp_path, SHORT) as host, connected(host) as line:
        line.sendall(get(host, "/api/events"))
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        line.settimeout(1.5)
        with pytest.raises(TimeoutError):  # nothing to say, and not ended
            while line.recv(65536):
                pass

"""Floods, slow clients and malformed requests: a real server must answer afterwards as it did before."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from random import Random

from PIL import Image

from soak.case import NORMAL, Broken, Case
from soak.client import Server, back_to, check_status, serving
from soak.mutate import damaged, damaged_json
from soak.programs import wait_until
from soak.samples import blocks, moving, save_tiny_model, write_video, write_videos

NAME = "servers"
CASES = 24
LIMIT_S = 240.0
QUIET_S = 120.0  # for the jobs that were accepted
ALLOWANCE_BYTES = 300 * 2**20
AT_A_TIME = 8  # requests
MOST_BYTES = 2**20  # --max-upload
SECRET = b"what nobody may read"
JSON = "Content-Type: application/json\r\n"


def prepare(folder: Path) -> None:
    save_tiny_model(folder / "model")
    for name in ("videos", "elsewhere", "samples"):
        (folder / name).mkdir()
    write_video(folder / "videos" / "walk.mp4", moving(8, 5), "libx264", fps=5)
    (folder / "elsewhere" / "secret.mp4").write_bytes(SECRET * 100)
    (folder / "videos" / "link.mp4").symlink_to(folder / "elsewhere" / "secret.mp4")
    write_videos(folder / "samples")


def run(case: Case) -> str:
    scenario = SCENARIOS[case.number % len(SCENARIOS)]
    case.say(scenario.__name__.replace("_", " "))
    sound = case.prepared
    words = ("--index", case.scratch / "index", "--videos", sound / "videos", "--weights", sound / "model")
    most = ("--max-upload", "1M", "--device", "cpu")
    with serving(case.scratch, sound / "videos" / "walk.mp4", *words, *most) as server:
        picture = warm(server)
        before = server.memory_bytes()
        scenario(case, server, picture)
        back_to(server, before, ALLOWANCE_BYTES, QUIET_S)
        check_question(server, add_picture(server, 7))
    left = [
        path.name for path in (case.scratch / "index" / "uploads" / "incoming").rglob("*") if path.is_file()
    ]
    if left:
        raise Broken(f"unfinished uploads are left: {', '.join(left[:5])}")
    return NORMAL


def warm(server: Server) -> str:
    """Wait for its video, and ask once: what is loaded then is not a leak."""
    if not wait_until(server.is_quiet, QUIET_S, every_s=0.1):
        raise Broken("its own video was not read")
    picture = add_picture(server, 7)
    check_question(server, picture)
    return picture


def add_picture(server: Server, seed: int) -> str:
    status, data = server.ask("POST", "/api/pictures?name=thing.png", png(seed))
    if status != 201:
        raise Broken(f"a sound picture was refused with {status}: {data[:200]!r}")
    return str(json.loads(data)["id"])


def check_question(server: Server, picture: str) -> None:
    status, job = server.json("POST", "/api/find", {"looks": [{"picture": picture}]})
    if status != 202:
        raise Broken(f"a sound question was refused with {status}: {job}")
    where = f"/api/jobs/{job['id']}"
    ends = ("done", "failed", "cancelled")
    if not wait_until(lambda: server.json("GET", where)[1]["state"] in ends, QUIET_S, every_s=0.1):
        raise Broken("a sound question was not answered")
    status, answers = server.json("GET", f"{where}/answers")
    if status != 200 or not answers["found"]:
        raise Broken(f"a sound question has no answer: {status} {str(answers)[:200]}")


def png(seed: int, side: int = 64) -> bytes:
    stream = BytesIO()
    Image.fromarray(blocks(seed, side, side)).save(stream, "PNG")
    return stream.getvalue()


# --- floods: of what the page itself sends


def questions(case: Case, server: Server, picture: str) -> None:
    ask = partial(server.json, "POST", "/api/find", {"looks": [{"picture": picture}]})
    flood(lambda _: ask(), 150)


def pictures(case: Case, server: Server, picture: str) -> None:
    sound = [png(seed, 600) for seed in range(4)]
    sent = [damaged(case.rng, number, sound)[2] if number % 2 else sound[0] for number in range(120)]
    flood(lambda number: server.ask("POST", "/api/pictures", sent[number]), len(sent))


def videos(case: Case, server: Server, picture: str) -> None:
    paths = sorted((case.prepared / "samples").iterdir())
    sound = [path.read_bytes() for path in paths]
    sent = [damaged(case.rng, number, sound) for number in range(40)]

    def upload(number: int) -> None:
        which, _, data = sent[number]
        server.ask("POST", f"/api/uploads?name=..%2F{number}-{paths[which].name}", data)

    flood(upload, len(sent))


def event_streams(case: Case, server: Server, picture: str) -> None:
    with ExitStack() as open_ones:
        for _ in range(100):
            with suppress(ConnectionError):
                connection = open_ones.enter_context(server.raw())
                connection.sendall(head("GET", "/api/events"))
        check_alive(server)


def flood(request: Callable[[int], object], count: int) -> None:
    """Every request gets an answer, if only that it is too much."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for _ in pool.map(request, range(count)):
            pass


# --- slow clients


def slow_heads(case: Case, server: Server, picture: str) -> None:
    with ExitStack() as open_ones:
        for _ in range(200):
            with suppress(ConnectionError):
                connection = open_ones.enter_context(server.raw())
                whole = head("GET", "/api/videos")
                connection.sendall(whole[: case.rng.randrange(len(whole) - 2)])
        check_alive(server)


def slow_bodies(case: Case, server: Server, picture: str) -> None:
    with ExitStack() as open_ones:
        connections = []
        for number in range(40):
            path = ("/api/uploads?name=slow.mp4", "/api/pictures", "/api/find")[number % 3]
            with suppress(ConnectionError):
                connection = open_ones.enter_context(server.raw())
                connection.sendall(head("POST", path, f"Content-Length: {MOST_BYTES}\r\n{JSON}"))
                connections.append(connection)
        for _ in range(5):
            check_alive(server)
            for connection in connections:
                with suppress(OSError):
                    connection.sendall(case.rng.randbytes(10))


def slow_readers(case: Case, server: Server, picture: str) -> None:
    _, listed = server.json("GET", "/api/videos")
    path = f"/api/videos/{listed['videos'][0]['id']}"
    with ExitStack() as open_ones:
        for number in range(60):
            with suppress(ConnectionError):
                connection = open_ones.enter_context(server.raw())
                what = (f"{path}/file", f"{path}/frame?time=1", "/openapi.json")[number % 3]
                connection.sendall(head("GET", what))
        check_alive(server)


def check_alive(server: Server) -> None:
    """Someone else is served meanwhile."""
    status, _ = server.ask("GET", "/api/videos")
    if status != 200:
        raise Broken(f"meanwhile others get status {status}")


# --- requests that are wrong


def malformed(case: Case, server: Server, picture: str) -> None:
    body = json.dumps({"looks": [{"picture": picture}]}).encode()
    sound = [
        head("GET", "/api/videos"),
        head("POST", "/api/find", f"{JSON}Content-Length: {len(body)}\r\n") + body,
        head("POST", "/api/pictures", "Transfer-Encoding: chunked\r\n") + b"5\r\nabcde\r\n0\r\n\r\n",
        head("GET", "/api/events?job=1", "Range: bytes=0-1\r\nOrigin: http://elsewhere\r\n"),
    ]
    for number in range(300):
        send_raw(server, damaged(case.rng, number, sound)[2])


def json_bodies(case: Case, server: Server, picture: str) -> None:
    _, listed = server.json("GET", "/api/videos")
    video = listed["videos"][0]["id"]
    look = {"video": video, "time": 1.0, "box": [1.0, 2.0, 30.0, 40.0]}
    sound = {"looks": [{"picture": picture}, look], "videos": [video], "before": 5.0}
    for number in range(200):
        text = damaged_json(case.rng, sound if number % 4 else {"path": "walk.mp4"})
        path = "/api/find" if number % 4 else "/api/videos"
        server.ask("POST", path, text.encode("utf-8", "surrogatepass"), {"Content-Type": "application/json"})


def other_paths(case: Case, server: Server, picture: str) -> None:
    """Nothing outside the given folder can be had, however it is written."""
    secret = str(case.prepared / "elsewhere" / "secret.mp4")
    ways = [
        "link.mp4",
        "../elsewhere/secret.mp4",
        secret,
        f"file://{secret}",
        f"{secret}\0.mp4",
        f"/./{secret}",
    ]
    ways += [
        "walk.mp4/../../elsewhere/secret.mp4",
        "/etc/passwd",
        "~/.profile",
        "",
        "/dev/zero",
        "\\\\host\\x",
    ]
    for way in ways:
        status, said = server.json("POST", "/api/videos", {"path": way})
        if status < 400:
            raise Broken(f"{way!r} was accepted: {said}")
        quoted = way.replace("/", case.rng.choice(("/", "%2f", "%252f", "%5c", "//"))).replace("\0", "%00")
        for before in ("/", "/page/", "/page/..%2f..%2f", "/api/videos/", "/api/pictures/", "/../../../.."):
            status, data = server.ask("GET", before + quoted.replace(" ", "%20"))
            if SECRET in data or b"root:" in data:
                raise Broken(f"GET {before + quoted} gave the content of a file outside")


def too_large(case: Case, server: Server, picture: str) -> None:
    """Bodies over the limit, announced and not."""
    for path in ("/api/uploads?name=large.mp4", "/api/find", "/api/videos", "/api/pictures"):
        for announced in (MOST_BYTES * 1000, 2**63, -1):
            send_raw(server, head("POST", path, f"{JSON}Content-Length: {announced}\r\n") + bytes(1000))
        part = b"10000\r\n" + case.rng.randbytes(65536) + b"\r\n"
        send_raw(server, head("POST", path, f"{JSON}Transfer-Encoding: chunked\r\n") + part * 80)


def send_raw(server: Server, data: bytes) -> None:
    """Send bytes, hang up after what comes back in a moment; a status that comes must be a documented one."""
    with suppress(ConnectionError, TimeoutError, HTTPException), server.raw() as connection:
        connection.settimeout(0.3)
        connection.sendall(data)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        words = connection.recv(100).split()
        if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit():
            check_status(int(words[1]), repr(data[:60]))


def head(method: str, path: str, more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode()


def mixed(case: Case, server: Server, picture: str) -> None:
    """Several at once."""
    chosen = Random(case.rng.random()).sample([questions, pictures, slow_heads, malformed, json_bodies], 3)
    with ThreadPoolExecutor(len(chosen)) as pool:
        for _ in pool.map(lambda scenario: scenario(case, server, picture), chosen):
            pass


SCENARIOS: tuple[Callable[[Case, Server, str], None], ...] = (
    questions,
    slow_heads,
    malformed,
    videos,
    other_paths,
    pictures,
    slow_bodies,
    json_bodies,
    event_streams,
    too_large,
    slow_readers,
    mixed,
)

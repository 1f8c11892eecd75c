"""What goes wrong around kept questions: killed servers, full disks, damage, strange ids."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2 as httpx
import pytest
from disks import fill, mounted
from fastapi.testclient import TestClient
from web import HERE, PLACES, finished, look, tiny, write_walk

from lastseen.index import Index
from lastseen.web.limits import Limits
from lastseen.web.media import Settings
from lastseen.web.server import create_app

pytestmark = pytest.mark.usefixtures("one_thread")
ROUTES = ("", "/thumbnail.jpg", "/pictures/0.jpg", "/pictures/0.jpg?box=true")
SERVER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
import uvicorn
from web import Settings, address_of, config_of, create_app, open_socket, tiny
settings = Settings(index=Path({index!r}), files=(Path({video!r}),))
listening = open_socket("127.0.0.1", 0)
print(address_of(listening), flush=True)
uvicorn.Server(config_of(create_app(settings, tiny()), log_level="error")).run(sockets=[listening])
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    write_walk(tmp_path / "videos" / "walk.mp4", PLACES[:10])
    return tmp_path


def server(folder: Path, index: Path | None = None, localizer=None, **limits) -> TestClient:
    settings = Settings(
        index=index or folder / "index", folders=(folder / "videos",), limits=Limits(**limits)
    )
    app = create_app(settings, localizer or tiny())
    return TestClient(app, base_url=HERE, raise_server_exceptions=False)


def read(client, name: str = "walk.mp4") -> str:
    added = client.post("/api/videos", json={"path": name}).json()
    assert finished(client, added["job"]["id"])["state"] == "done"
    return added["video"]["id"]


def ask(client, video: str, **more) -> str:
    asked = client.post("/api/find", json={"looks": [look(video, 1.0)], **more})
    assert asked.status_code == 202, asked.text
    assert finished(client, asked.json()["id"])["state"] == "done"
    return asked.json()["id"]


def ids(client) -> list[str]:
    listed = client.get("/api/questions")
    assert listed.status_code == 200, listed.text
    return [one["id"] for one in listed.json()]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_what_was_answered_before_a_server_was_killed_is_there_after(folder):
    tests = str(Path(__file__).parents[1])
    code = SERVER.format(
        path=[tests, *sys.path], index=str(folder / "index"), video=str(folder / "videos" / "walk.mp4")
    )
    running = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        with httpx.Client(base_url=running.stdout.readline().strip(), timeout=30) as client:
            ends = time.monotonic() + 30
            while True:
                try:
                    (job,) = client.get("/api/jobs").json()
                    break
                except httpx.TransportError:
                    assert time.monotonic() < ends
                    time.sleep(0.05)
            finished(client, job["id"])
            walk = client.get("/api/videos").json()["videos"][0]["id"]
            id = ask(client, walk)
            before = client.get(f"/api/questions/{id}").json()
            for _ in range(3):  # some of them are being answered or kept at that moment
                client.post("/api/find", json={"looks": [look(walk, 1.0)]})
    finally:
        running.send_signal(signal.SIGKILL)
        running.communicate()
    with server(folder) as client:
        assert client.get(f"/api/questions/{id}").json() == before
        assert client.get(f"/api/jobs/{id}/answers/0/picture.jpg").status_code == 200
        for one in ids(client):
            assert client.get(f"/api/questions/{one}").status_code == 200
    assert list((folder / "index" / "questions").glob(".*")) == []
    with Index(folder / "index") as index:
        assert index.problems() == []


@pytest.mark.skipif(os.name != "posix", reason="mounts are those of POSIX")
def test_on_a_full_disk_a_question_is_answered_and_not_kept(folder, caplog):
    (folder / "disk").mkdir()
    with mounted(folder / "disk", "-t", "tmpfs", "-o", "size=8m", "tmpfs") as disk:
        with server(folder, disk / "index") as client:
            walk = read(client)
            kept = ask(client, walk)
            fill(disk)
            lost = ask(client, walk)
            assert [line for line in caplog.messages if "is answered, but not kept: " in line]
            assert ids(client) == [lost, kept]
            for id in (lost, kept):
                details = client.get(f"/api/questions/{id}").json()
                assert details["kept"] == (id == kept) and details["answers"]["found"]
                assert client.get(f"/api/questions/{id}/pictures/0.jpg").status_code == 200
                assert client.get(f"/api/jobs/{id}/answers/0?format=csv").status_code == 200
            assert client.get(f"/api/questions/{lost}/thumbnail.jpg").status_code == 404
            assert client.delete(f"/api/questions/{kept}").status_code == 204
            assert client.delete(f"/api/videos/{walk}").status_code == 204
            assert ids(client) == []
            assert client.get(f"/api/jobs/{lost}/answers").status_code == 404
        assert list((disk / "index" / "questions").iterdir()) == []


def test_where_nothing_can_be_kept_questions_are_answered_all_the_same(folder, caplog):
    with server(folder) as client:
        walk = read(client)
        (folder / "index" / "questions").write_text("a file in the folder's place")
        id = ask(client, walk)
        assert ids(client) == [id]
        assert client.get(f"/api/questions/{id}").json()["answers"]["found"]
        assert client.delete(f"/api/questions/{id}").status_code == 204
        assert ids(client) == [] and client.get(f"/api/jobs/{id}").status_code == 404
    assert len([line for line in caplog.messages if "not kept" in line]) == 1


def test_the_oldest_go_first(folder):
    with server(folder, questions_kept=2) as client:
        walk = read(client)
        first, second, third = (ask(client, walk) for _ in range(3))
        assert ids(client) == [third, second]
        assert client.get(f"/api/questions/{first}").status_code == 404
        assert client.get(f"/api/jobs/{first}/answers").status_code == 404


@pytest.mark.parametrize("name", ["question.json", "answer-1.npz", "picture-0.jpg", "thumbnail.jpg"])
def test_a_damaged_question_is_left_out_and_the_log_has_a_line(folder, name, caplog):
    with server(folder) as client:
        walk = read(client)
        sound, damaged = ask(client, walk), ask(client, walk)
        path = folder / "index" / "questions" / damaged / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        for _ in range(2):
            codes = {route: client.get(f"/api/questions/{damaged}{route}").status_code for route in ROUTES}
            codes["answers"] = client.get(f"/api/jobs/{damaged}/answers").status_code
            assert sound in ids(client) and set(codes.values()) <= {200, 404}
            assert 404 in codes.values()
        assert name != "question.json" or ids(client) == [sound]
        assert len([line for line in caplog.messages if f"{damaged} is left out" in line]) == 1
        assert client.delete(f"/api/questions/{damaged}").status_code == 204
        assert ids(client) == [sound]


STRANGE = (
    *("...", "%2e%2e", "..%2fquestions", "..%2f..%2fcatalogue.sqlite", "%2fetc%2fpasswd"),
    *("%00", "0" * 12, "0" * 500, "%ff%fe", "ä" * 12, "A" * 12, "*", "catalogue.sqlite", ".part", "con"),
)


def test_an_id_that_was_not_given_out_reaches_nothing(folder):
    with server(folder) as client:
        (folder / "index" / "questions").mkdir(mode=0o700)
        for id in STRANGE:
            paths = [f"questions/{id}{route}" for route in (*ROUTES, "/pictures/-1.jpg")]
            for path in (*paths, f"jobs/{id}/answers/0"):
                assert client.get(f"/api/{path}").status_code in (404, 405, 422), path
            for path in (f"questions/{id}", f"questions/{id}/pictures/..%2f..%2fquestion.json"):
                assert client.delete(f"/api/{path}").status_code in (404, 405), path
        assert (folder / "index" / "catalogue.sqlite").exists()


def test_a_question_is_listed_while_it_is_answered_and_not_if_it_is_cancelled(folder):
    localizer = tiny()
    with server(folder, localizer=localizer) as client:
        walk = read(client)
        gate, search = threading.Event(), localizer.encode_query
        localizer.encode_query = lambda *args: gate.wait(20) and search(*args)
        first, second = (
            client.post("/api/find", json={"looks": [look(walk, 1.0)], "videos": [walk]}).json()["id"]
            for _ in range(2)
        )
        listed = {one["id"]: one for one in client.get("/api/questions").json()}
        assert listed.keys() == {first, second}
        assert listed[second]["state"] == "waiting" and listed[first]["state"] in ("waiting", "running")
        assert (
            not listed[first]["kept"] and listed[first]["words"] == "" and listed[first]["videos"] == [walk]
        )
        details = client.get(f"/api/questions/{first}").json()
        assert details["answers"] is None and details["asked"]["looks"][0]["video"] == walk
        assert client.get(f"/api/questions/{first}/pictures/0.jpg").status_code == 200
        assert client.delete(f"/api/questions/{first}").status_code == 409
        client.post(f"/api/jobs/{second}/cancel")
        gate.set()
        finished(client, first)
        assert ids(client) == [first]


def test_a_picture_from_a_video_that_is_only_read_later_is_forgotten_with_it(folder):
    """Its frame was asked with before it was in the index."""
    write_walk(folder / "videos" / "other.mp4", PLACES[5:12])
    localizer = tiny()
    with server(folder, localizer=localizer) as client:
        walk = read(client)
        localizer.hold.set()
        added = client.post("/api/videos", json={"path": "other.mp4"}).json()
        client.post(f"/api/jobs/{added['job']['id']}/cancel")
        finished(client, added["job"]["id"])
        localizer.hold.clear()
        other = added["video"]["id"]
        id = ask(client, other, videos=[walk])
        assert client.get(f"/api/questions/{id}").json()["asked"]["looks"][0]["video"] == other
        assert client.delete(f"/api/videos/{other}").status_code == 204
        assert ids(client) == []

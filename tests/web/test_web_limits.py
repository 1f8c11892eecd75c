"""What one client can take up of `lastseen serve`: waiting jobs, answers in memory, pictures, the disk."""

import shutil
import socket
import threading
import time
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from scenes import texture
from web import HERE, PLACES, finished, jpeg, left_over, look, served, tiny, write_walk

from lastseen.errors import LastSeenError
from lastseen.web import media, pictures
from lastseen.web.errors import Ending, TooMany
from lastseen.web.jobs import Jobs
from lastseen.web.limits import Limits
from lastseen.web.media import Settings
from lastseen.web.server import create_app

pytestmark = pytest.mark.usefixtures("one_thread")
PICTURE = jpeg(texture(3, 80, 60, 6))


@contextmanager
def client_of(folder: Path, localizer=None, *, files=(), **limits):
    settings = Settings(
        index=folder / "index", folders=(folder / "videos",), files=files, limits=Limits(**limits)
    )
    with TestClient(create_app(settings, localizer or tiny()), base_url=HERE) as client:
        yield client


@pytest.fixture
def folder(tmp_path) -> Path:
    write_walk(tmp_path / "videos" / "walk.mp4", PLACES[:10])
    return tmp_path


def read(client, path: str = "walk.mp4") -> str:
    added = client.post("/api/videos", json={"path": path}).json()
    assert finished(client, added["job"]["id"])["state"] == "done"
    return added["video"]["id"]


def give(client) -> str:
    return client.post("/api/pictures?name=thing.jpg", content=PICTURE).json()["id"]


# --- jobs ---


def test_so_many_questions_wait_and_the_next_is_told_to_come_later(folder):
    localizer = tiny()
    with client_of(folder, localizer, questions=3) as client:
        question = {"looks": [look(read(client), 1.0)]}
        gate = held(client)
        kept = [client.post("/api/find", json=question) for _ in range(3)]
        refused = [client.post("/api/find", json=question) for _ in range(5)]
        assert [answer.status_code for answer in kept + refused] == [202] * 3 + [429] * 5
        assert refused[0].json()["detail"] == "3 questions are waiting; ask again in a moment"
        assert int(refused[0].headers["retry-after"]) > 0
        gate.set()
        for job in kept:
            assert finished(client, job.json()["id"])["state"] == "done"
        assert client.post("/api/find", json=question).status_code == 202


def held(client) -> threading.Event:
    """Let a question be at work until the event is set, so that all others wait."""
    gate, began = threading.Event(), threading.Event()

    def work(job) -> None:
        began.set()
        gate.wait(30)

    client.app.state.jobs.submit("find", "first", work, urgent=True)
    assert began.wait(10)
    return gate


def test_one_address_cannot_take_all_places():
    jobs = Jobs(Limits(questions=4, questions_of_one=2))
    for _ in range(2):
        jobs.submit("find", "", str, client="10.0.0.1")
    with pytest.raises(TooMany, match="of your questions"):
        jobs.submit("find", "", str, client="10.0.0.1")
    for _ in range(2):
        jobs.submit("find", "", str, client="10.0.0.2")
    with pytest.raises(TooMany, match="4 questions are waiting"):
        jobs.submit("find", "", str, client="10.0.0.3")
    jobs.submit("index", "", str)  # videos wait in a place of their own


def test_so_many_videos_wait_to_be_read_and_nothing_stays_of_an_upload_after_that(folder):
    for number in range(3):
        write_walk(folder / "videos" / f"{number}.mp4", [None] * (number + 3))
    with client_of(folder, readings=2) as client:
        gate = held(client)
        said = [client.post("/api/videos", json={"path": f"{number}.mp4"}) for number in range(3)]
        assert [answer.status_code for answer in said] == [202, 202, 429]
        data = (folder / "videos" / "walk.mp4").read_bytes()
        assert client.post("/api/uploads?name=more.mp4", content=data).status_code == 429
        assert left_over(folder) == []
        gate.set()
        for answer in said[:2]:
            assert finished(client, answer.json()["job"]["id"])["state"] == "done"
        assert client.post("/api/uploads?name=more.mp4", content=data).status_code == 202


def test_more_videos_on_the_command_line_than_can_wait_are_one_line(folder):
    with pytest.raises(LastSeenError, match="2 videos are more than can wait"):
        settings = Settings(index=folder / "index", files=(folder, folder), limits=Limits(readings=1))
        create_app(settings, tiny())


def test_finished_jobs_are_kept_up_to_a_number_and_a_size_of_memory():
    jobs = Jobs(Limits(results_bytes=1000))
    jobs.start()

    def work(job) -> None:
        job.result_bytes = 300

    for round in range(3):
        given = [jobs.submit("find", "", work if round else str) for _ in range(40)]
        ends = time.monotonic() + 20
        while not all(job.finished for job in given):
            assert time.monotonic() < ends
            time.sleep(0.01)
        assert len(jobs.all()) == (40 if not round else 3)  # of 300 bytes each, three fit
    assert jobs.all() == given[-3:]
    jobs.close()


def test_an_answer_that_is_not_kept_with_the_index_says_how_much_memory_it_takes(folder):
    with client_of(folder, questions_kept_bytes=0) as client:
        job = client.post("/api/find", json={"looks": [look(read(client), 1.0)]}).json()["id"]
        assert finished(client, job)["state"] == "done"
        kept = client.app.state.jobs.find(job)
    curve = kept.result.answers[0].curve
    assert kept.result_bytes >= curve.boxes_px.nbytes + curve.scores.nbytes


def test_a_long_job_that_ends_after_many_short_ones_is_still_told():
    jobs = Jobs()
    gate = threading.Event()
    long = jobs.submit("index", "long", lambda job: gate.wait(20))
    jobs.start()
    while long.state == "waiting":
        time.sleep(0.01)
    for _ in range(60):  # they end without having begun
        jobs.cancel(jobs.submit("find", "", str))
    gate.set()
    while not long.finished:
        time.sleep(0.01)
    assert jobs.find(long.id) is long
    jobs.close()


def test_a_server_that_ends_takes_no_more_and_tells_those_who_wait(folder):
    with client_of(folder) as client:
        walk = read(client)
        gate, jobs = held(client), client.app.state.jobs
        waiting = jobs.find(client.post("/api/find", json={"looks": [look(walk, 1.0)]}).json()["id"])
        jobs.closed = True
        refused = client.post("/api/find", json={"looks": [look(walk, 1.0)]})
        assert refused.status_code == 503
        assert refused.json()["detail"].startswith("the server is being shut down")
        assert int(refused.headers["retry-after"]) > 0
        gate.set()
    assert waiting.state == "cancelled"
    with pytest.raises(Ending):
        jobs.submit("find", "", str)


# --- bodies ---


def test_a_body_that_is_no_file_is_small(folder):
    with client_of(folder, json_bytes=10_000) as client:
        for content in (b'{"looks": [' + b" " * 20_000, (b" " * 1000 for _ in range(20))):
            refused = client.post("/api/find", content=content, headers={"Content-Type": "application/json"})
            assert refused.status_code == 413
            assert refused.json()["detail"] == "a request like this takes at most 10000 bytes"
        assert client.post("/api/pictures", content=bytes(20_000)).status_code == 422  # a file may be larger


@pytest.mark.parametrize("says_its_size", [False, True])
def test_an_upload_ends_where_the_disk_does_whatever_it_says(folder, monkeypatch, says_its_size):
    """The disk has 1 MiB more than must stay free, and other uploads fill it meanwhile."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(media, "SPARE_BYTES", 1000)
    monkeypatch.setattr("lastseen.web.videos.ROOM_EVERY", 2**16)
    incoming = folder / "index" / "uploads"

    def disk(path):
        taken = sum(file.stat().st_size for file in incoming.rglob("*") if file.is_file())
        return usage(2**30, 0, max(0, 2**20 + 1000 - taken))

    with served(Settings(index=folder / "index"), tiny()) as address:
        monkeypatch.setattr(shutil, "disk_usage", disk)
        if says_its_size:
            other = incoming / "other"
            said = upload_beside(address, lambda: other.write_bytes(bytes(2**20)))
        else:
            parts = (bytes(2**16) for _ in range(64))  # 4 MiB
            answer = httpx.post(f"{address}api/uploads?name=a.mp4", content=parts)
            said = f"{answer.status_code} {answer.text}"
    assert said.startswith("507"), said
    assert "the disk has no room" in said
    assert [name for name in left_over(folder) if name != "other"] == []


def upload_beside(address: str, meanwhile) -> str:
    """An upload of half a MiB that fits, until another one fills the disk."""
    at = urlsplit(address)
    with socket.create_connection((at.hostname, at.port)) as line:
        head = (
            f"POST /api/uploads?name=a.mp4 HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Length: {2**19}\r\n\r\n"
        )
        line.sendall(head.encode() + bytes(1000))
        time.sleep(0.2)
        meanwhile()
        line.settimeout(10)
        line.sendall(bytes(2**18))
        said = b""
        while not said.endswith(b"}"):
            part = line.recv(65536)
            assert part, said
            said += part
        return said.partition(b" ")[2].decode()


# --- pictures ---


def test_pictures_are_kept_up_to_a_number_and_a_size_the_last_used_ones(folder):
    for limits, stay in (
        ({"pictures": 3}, 3),
        ({"pictures_bytes": 2 * len(PICTURE) + 1}, 2),
        ({"pictures_bytes": 1}, 1),  # the one that was just given is there in any case
    ):
        with client_of(folder, **limits) as client:
            given = []
            for _ in range(6):
                given.append(give(client))
                client.get(f"/api/pictures/{given[0]}")  # the first is in use
            there = [client.get(f"/api/pictures/{id}").status_code == 200 for id in given]
            assert there[0] or stay == 1
            assert sum(there) == stay == len(left_over(folder))
            gone = client.post("/api/find", json={"looks": [{"picture": given[there.index(False)]}]})
            assert gone.status_code == 404
            assert gone.json()["detail"] == "the picture is no longer there; give it again"


def test_a_picture_that_nobody_used_for_long_is_removed_without_any_request(folder, monkeypatch):
    monkeypatch.setattr("lastseen.web.server.SWEEP_S", 0.05)
    with client_of(folder, picture_age_s=0.3) as client:
        give(client)
        assert left_over(folder) == ["thing.jpg"]
        ends = time.monotonic() + 10
        while left_over(folder):
            assert time.monotonic() < ends
            time.sleep(0.02)


def test_pictures_are_decoded_one_at_a_time_and_others_are_answered_meanwhile(folder, monkeypatch):
    now, most, lock = 0, 0, threading.Lock()

    def slow(path):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.1)
        with lock:
            now -= 1
        return np.zeros((60, 80, 3), np.uint8)

    settings = Settings(index=folder / "index", folders=(folder / "videos",))
    with served(settings, tiny()) as address, httpx.Client(base_url=address, timeout=30) as client:
        read(client)
        picture = give(client)
        monkeypatch.setattr(pictures, "read_picture", slow)
        said: list[int] = []

        def ask(number: int) -> None:
            with httpx.Client(base_url=address, timeout=60) as own:
                if number % 3 == 0:
                    answer = own.post("/api/pictures", content=PICTURE)
                elif number % 3 == 1:
                    answer = own.get(f"/api/pictures/{picture}")
                else:
                    answer = own.post("/api/find", json={"looks": [{"video": "none"}]})
                said.append(answer.status_code)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(60)]
        for thread in threads:
            thread.start()
        assert client.get("/api/videos").status_code == 200  # although sixty wait
        for thread in threads:
            thread.join()
    assert most == 1
    assert sorted(set(said)) == [200, 201, 404]


def test_many_large_pictures_in_one_question_are_refused(folder, monkeypatch):
    monkeypatch.setattr("lastseen.web.work.MOST_PIXELS", 3 * 80 * 60)
    with client_of(folder) as client:
        read(client)
        looks = [{"picture": give(client)} for _ in range(4)]
        assert client.post("/api/find", json={"looks": looks[:3]}).status_code == 202
        refused = client.post("/api/find", json={"looks": looks})
        assert refused.status_code == 413
        assert "too large together" in refused.json()["detail"]


def test_whoever_asks_and_leaves_again_and_again_makes_no_endless_line(folder, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(
        pictures, "read_picture", lambda path: gate.wait(30) and np.zeros((60, 80, 3), np.uint8)
    )
    limits = Limits(in_line=5)
    with served(Settings(index=folder / "index", limits=limits), tiny()) as address:
        at = urlsplit(address)
        head = f"POST /api/pictures HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Length: {len(PICTURE)}\r\n\r\n"
        for _ in range(20):
            with socket.create_connection((at.hostname, at.port)) as line:
                line.sendall(head.encode() + PICTURE)
                time.sleep(0.05)
        refused = httpx.post(f"{address}api/pictures", content=PICTURE)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert len(left_over(folder)) <= 6
        gate.set()
        ends = time.monotonic() + 10
        while httpx.post(f"{address}api/pictures", content=PICTURE).status_code != 201:
            assert time.monotonic() < ends


def test_so_many_requests_are_under_way_at_once(folder):
    settings = Settings(index=folder / "index", limits=Limits(requests=2))
    with served(settings, tiny()) as address, httpx.Client(base_url=address) as client:
        with client.stream("GET", "/api/events"), client.stream("GET", "/api/events"):
            refused = client.get("/api/videos")
            assert refused.status_code == 429
            assert refused.headers["x-content-type-options"] == "nosniff"
        ends = time.monotonic() + 10
        while client.get("/api/videos").status_code != 200:
            assert time.monotonic() < ends

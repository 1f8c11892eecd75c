"""What goes wrong around `lastseen serve`: odd videos, lost files, a full disk. One line each, no 500."""

import errno
import os
import shutil
import sys
import time
from pathlib import Path

import httpx2 as httpx
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from scenes import texture
from web import HERE, PLACES, finished, jpeg, left_over, look, served, tiny, write_walk

from lastseen.errors import VideoError
from lastseen.index import Index
from lastseen.web import work
from lastseen.web.media import Settings, Shelf, is_text, video_id
from lastseen.web.server import create_app

pytestmark = pytest.mark.usefixtures("one_thread")
FULL = "the disk is full; free some space and try again"
JSON = {"Content-Type": "application/json"}
REPORTS = ("picture.jpg", "filmstrip.jpg", "film.mp4", "report.html")


@pytest.fixture
def folder(tmp_path) -> Path:
    write_walk(tmp_path / "videos" / "walk.mp4", PLACES[:10])
    write_walk(tmp_path / "videos" / "other.mp4", PLACES[5:12])
    return tmp_path


@pytest.fixture
def localizer():
    return tiny()


@pytest.fixture
def client(folder, localizer):
    settings = Settings(index=folder / "index", folders=(folder / "videos",))
    # As a browser sees it: an exception inside is an answer with status 500.
    with TestClient(create_app(settings, localizer), base_url=HERE, raise_server_exceptions=False) as client:
        yield client


def read(client, path: str = "walk.mp4") -> str:
    added = client.post("/api/videos", json={"path": path}).json()
    assert finished(client, added["job"]["id"])["state"] == "done"
    return added["video"]["id"]


def ask(client, video: str, **more) -> str:
    asked = client.post("/api/find", json={"looks": [look(video, 1.0)], **more})
    assert asked.status_code == 202, asked.text
    return asked.json()["id"]


def change(folder: Path, name: str, **values) -> None:
    with Index(folder / "index") as index:
        index.catalogue.update(index.named(name).id, **values)


@pytest.mark.parametrize("recorded_at", [1e30, -1e30, 1e13, float("inf")])
def test_a_video_with_an_impossible_date_is_listed_searched_and_hides_no_other(client, folder, recorded_at):
    walk, other = read(client), read(client, "other.mp4")
    change(folder, "walk.mp4", recorded_at=recorded_at)
    listed = client.get("/api/videos")
    assert listed.status_code == 200
    dates = {video["id"]: video["recorded_at"] for video in listed.json()["videos"]}
    assert set(dates) == {walk, other}
    assert dates[walk] is None or dates[walk][:4].isdigit()
    assert dates[other][:2] == "20"
    job = ask(client, other, videos=[walk])
    assert finished(client, job)["state"] == "done"
    assert client.get(f"/api/jobs/{job}/answers").status_code == 200
    assert client.get(f"/api/jobs/{job}/answers/0").status_code == 200


def test_a_video_whose_features_are_gone_is_listed_searched_and_can_be_removed(client, folder):
    walk, other = read(client), read(client, "other.mp4")
    with Index(folder / "index") as index:
        shutil.rmtree(index.place(index.named("walk.mp4")))
    assert {video["id"] for video in client.get("/api/videos").json()["videos"]} == {walk, other}
    state = finished(client, ask(client, other))
    assert state["state"] == "done"  # they are encoded again from the file
    seen = client.get(f"/api/jobs/{state['id']}/answers").json()["answers"]
    assert "damaged" in " ".join(one["left_out"] for one in seen)
    assert client.delete(f"/api/videos/{walk}").status_code == 204
    assert finished(client, ask(client, other))["state"] == "done"


def test_a_video_that_cannot_be_measured_hides_no_other(client, folder, monkeypatch):
    walk, other = read(client), read(client, "other.mp4")
    real = Index.size_bytes

    def size_bytes(index, video):
        if video.name == "walk.mp4":
            raise FileNotFoundError(errno.ENOENT, "gone between listing and looking")
        return real(index, video)

    monkeypatch.setattr(Index, "size_bytes", size_bytes)
    sizes = {video["id"]: video["bytes"] for video in client.get("/api/videos").json()["videos"]}
    assert sizes[walk] == 0 < sizes[other]


def test_a_video_that_was_not_read_yet_and_went_away_hides_no_other(client, folder, localizer):
    walk = read(client)
    localizer.hold.set()
    added = client.post("/api/videos", json={"path": "other.mp4"}).json()
    client.post(f"/api/jobs/{added['job']['id']}/cancel")
    localizer.hold.clear()
    assert finished(client, added["job"]["id"])["state"] == "cancelled"
    (folder / "videos" / "other.mp4").unlink()
    assert walk in {video["id"] for video in client.get("/api/videos").json()["videos"]}
    again = client.post(f"/api/videos/{added['video']['id']}/read")
    if again.status_code == 202:
        state = finished(client, again.json()["job"]["id"])
        assert state["state"] == "failed" and "something went wrong" not in state["message"]
    else:
        assert again.status_code in (404, 409)


@pytest.mark.skipif(sys.platform != "linux", reason="names that are no UTF-8 are of Linux")
def test_a_file_whose_name_is_no_text_hides_no_other_and_is_refused_in_one_line(client, folder):
    odd = Path(os.fsdecode(os.fsencode(folder / "videos") + b"/odd\xff.mp4"))
    shutil.copy(folder / "videos" / "walk.mp4", odd)
    assert not is_text(str(odd)) and len(video_id(odd)) == 16
    listed = client.get("/api/folders")
    assert listed.status_code == 200
    assert listed.json()[0]["videos"] == ["other.mp4", "walk.mp4"]
    shelf = Shelf(Settings(index=folder / "index", files=(odd,)))
    with pytest.raises(VideoError, match="rename it first") as refused:
        shelf.checked(odd)
    str(refused.value).encode()
    said = client.post("/api/videos", content=b'{"path": "odd\\udcff.mp4"}', headers=JSON)
    assert said.status_code in (403, 422)


def test_a_video_that_is_removed_while_a_question_waits_or_runs_is_told(client, folder, monkeypatch):
    walk, other = read(client), read(client, "other.mp4")
    real = work.search

    def search(index, *args, **options):
        if index.catalogue.videos(name="walk.mp4"):
            assert client.delete(f"/api/videos/{walk}").status_code == 204
        return real(index, *args, **options)

    monkeypatch.setattr(work, "search", search)
    state = finished(client, ask(client, other, videos=[walk, other]))
    assert state["state"] == "failed"
    assert state["message"] == "walk.mp4: removed during the search; ask again"
    answers = client.get(f"/api/jobs/{state['id']}/answers")
    assert (answers.status_code, answers.json()["detail"]) == (409, "there is no answer: the job is failed")
    assert client.post("/api/find", json={"looks": [look(walk, 1.0)]}).status_code == 404
    assert finished(client, ask(client, other))["state"] == "done"


def shown(video: str, job: str) -> list[str]:
    """Everything that is made of the video's file."""
    reports = [f"jobs/{job}/answers/0/{report}" for report in REPORTS]
    return [f"videos/{video}/file", f"videos/{video}/frame", *reports]


def test_what_an_answer_shows_may_be_gone_when_it_is_drawn(client, folder):
    walk = read(client)
    job = ask(client, walk)
    assert finished(client, job)["state"] == "done"
    (folder / "videos" / "walk.mp4").rename(folder / "aside.mp4")
    for path in (
        f"videos/{walk}/file",
        f"videos/{walk}/frame",
        *(f"jobs/{job}/answers/0/{r}" for r in REPORTS),
    ):
        refused = client.get(f"/api/{path}")
        assert refused.status_code == 409, path
        assert "gone; put it back" in refused.json()["detail"]
    assert client.get("/api/videos").json()["videos"][0]["file"] is False
    client.delete(f"/api/videos/{walk}")
    for path in ("", "/0", *(f"/0/{report}" for report in REPORTS)):  # forgotten with its video
        assert client.get(f"/api/jobs/{job}/answers{path}").status_code == 404
    assert left_over(folder) == []


def test_a_file_that_goes_away_between_check_and_use_is_no_error_of_the_server(client, folder, monkeypatch):
    walk = read(client)
    job = ask(client, walk)
    assert finished(client, job)["state"] == "done"
    monkeypatch.setattr("lastseen.web.media.check_unchanged", lambda index, video: video)
    (folder / "videos" / "walk.mp4").unlink()
    for path in (
        f"videos/{walk}/file",
        f"videos/{walk}/frame",
        *(f"jobs/{job}/answers/0/{r}" for r in REPORTS),
    ):
        refused = client.get(f"/api/{path}")
        assert refused.status_code == 404, path
        assert refused.json()["detail"].startswith("a file went away meanwhile")
    asked = client.post("/api/find", json={"looks": [look(walk, 1.0)]})
    assert asked.status_code == 404


def test_a_file_that_goes_away_while_it_is_sent_ends_the_connection_and_is_one_line_in_the_log(
    folder, monkeypatch, caplog
):
    async def gone(*args, **options):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    settings = Settings(index=folder / "index", folders=(folder / "videos",))
    with served(settings, tiny()) as address, httpx.Client(base_url=address) as client:
        walk = read(client)
        monkeypatch.setattr("anyio.open_file", gone)
        with pytest.raises(httpx.TransportError):
            client.get(f"/api/videos/{walk}/file")
        assert client.get("/api/videos").status_code == 200
    assert [r.getMessage() for r in caplog.records if r.name == "lastseen"] == [
        f"/api/videos/{walk}/file broke off: No such file or directory"
    ]
    assert not any(record.exc_info for record in caplog.records)


def test_a_full_disk_is_said_where_a_file_is_drawn_or_kept(client, folder, monkeypatch):
    walk = read(client)
    job = ask(client, walk)
    assert finished(client, job)["state"] == "done"
    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", no_room)
        full = client.get(f"/api/jobs/{job}/answers/0/picture.jpg")
    assert (full.status_code, full.json()["detail"]) == (
        507,
        "the disk is full; free some space and try again",
    )
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", no_room)
        full = client.post("/api/pictures", content=jpeg(texture(1, 64, 48, 8)))
    assert (full.status_code, full.json()["detail"]) == (
        507,
        "the disk is full; free some space and try again",
    )
    assert left_over(folder) == []


def no_room(*args, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/path")


def test_a_full_disk_or_memory_ends_a_question_in_one_line(client, monkeypatch):
    walk = read(client)
    for error, says in (
        (OSError(errno.ENOSPC, "no"), "the disk is full"),
        (MemoryError(), "not enough memory"),
    ):

        def search(*args, error=error, **options):
            raise error

        monkeypatch.setattr(work, "search", search)
        state = finished(client, ask(client, walk))
        assert state["state"] == "failed"
        assert says in state["message"]


def test_a_cancelled_question_has_a_clear_state_and_can_be_cancelled_again(client, localizer):
    walk = read(client)
    localizer.hold.set()
    reading = client.post("/api/videos", json={"path": "other.mp4"}).json()["job"]["id"]
    job = client.post(
        "/api/find", json={"looks": [look(walk, 1.0)], "videos": [video_of(client, "other.mp4")]}
    ).json()["id"]
    for _ in range(2):
        assert client.post(f"/api/jobs/{job}/cancel").status_code == 200
    assert client.get(f"/api/jobs/{job}").json()["state"] == "cancelled"
    assert client.get(f"/api/jobs/{job}/answers").status_code == 409
    assert client.get(f"/api/events?job={job}").text.count("cancelled") == 1
    localizer.hold.clear()
    assert finished(client, reading)["state"] == "done"


def video_of(client, name: str) -> str:
    return next(video["id"] for video in client.get("/api/videos").json()["videos"] if video["name"] == name)


def test_a_job_that_is_at_work_when_the_server_ends_is_cancelled_and_resumes_later(folder, localizer):
    settings = Settings(index=folder / "index", folders=(folder / "videos",))
    localizer.hold.set()
    with TestClient(create_app(settings, localizer), base_url=HERE) as client:
        job = client.post("/api/videos", json={"path": "walk.mp4"}).json()["job"]["id"]
        ends = time.monotonic() + 20
        while client.get(f"/api/jobs/{job}").json()["state"] == "waiting":
            assert time.monotonic() < ends
            time.sleep(0.01)
        jobs = client.app.state.jobs
    assert jobs.find(job).state == "cancelled"
    localizer.hold.clear()
    with TestClient(create_app(settings, localizer), base_url=HERE) as client:
        read(client)
        (video,) = client.get("/api/videos").json()["videos"]
        assert video["complete"]

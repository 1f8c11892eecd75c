"""Questions stay: they survive the server, and go with the index's videos."""

import re
from datetime import datetime
from io import BytesIO
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from scenes import box_at, texture
from web import HERE, PLACE, PLACES, finished, jpeg, look, tiny, write_walk

from lastseen.index import Index
from lastseen.web.media import Settings
from lastseen.web.server import create_app

pytestmark = pytest.mark.usefixtures("one_thread")
DRAWN = ("picture.jpg", "filmstrip.jpg", "film.mp4", "report.html")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder of two videos, and an index of both."""
    root = tmp_path_factory.mktemp("questions")
    write_walk(root / "videos" / "walk.mp4", PLACES[:16])
    write_walk(root / "videos" / "other.mp4", PLACES[6:])
    return root


@pytest.fixture
def folder(made, tmp_path) -> Path:
    (tmp_path / "videos").symlink_to(made / "videos")
    return tmp_path


def server(folder: Path, threshold: float = 0.0, **options) -> TestClient:
    settings = Settings(index=folder / "index", folders=(folder / "videos",), **options)
    return TestClient(create_app(settings, tiny(threshold)), base_url=HERE)


def read(client, name: str) -> str:
    added = client.post("/api/videos", json={"path": name}).json()
    assert finished(client, added["job"]["id"])["state"] == "done"
    return added["video"]["id"]


def ask(client, *looks, **more) -> str:
    asked = client.post("/api/find", json={"looks": list(looks), **more})
    assert asked.status_code == 202, asked.text
    assert finished(client, asked.json()["id"])["state"] == "done"
    return asked.json()["id"]


def upload(client, seed: int = 3) -> str:
    return client.post("/api/pictures?name=thing.jpg", content=jpeg(texture(seed, 800, 600, 9))).json()["id"]


def everything(client, id: str) -> dict:
    """All that can be asked of a question."""
    paths = [f"/api/questions/{id}", f"/api/questions/{id}/thumbnail.jpg", f"/api/jobs/{id}/answers"]
    paths += [f"/api/questions/{id}/pictures/{n}.jpg{box}" for n in (0, 1) for box in ("", "?box=true")]
    paths += [f"/api/jobs/{id}/answers/0?format={name}" for name in ("json", "csv", "coco", "vtt")]
    found = {}
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        is_json = answer.headers["content-type"] == "application/json"
        found[path] = answer.json() if is_json else answer.content
    return found


def test_a_question_and_its_answers_survive_the_server(folder):
    with server(folder) as client:
        walk = read(client, "walk.mp4")
        picture = {"picture": upload(client), "box": [100, 60, 500, 420]}
        id = ask(client, look(walk, 2.0), picture, videos=[walk], before=3.0)
        before = everything(client, id)
        (listed,) = client.get("/api/questions").json()
    with server(folder) as client:
        assert client.get("/api/jobs").json() == []
        assert everything(client, id) == before
        assert client.get("/api/questions").json() == [listed]
        for drawn in DRAWN:
            answer = client.get(f"/api/jobs/{id}/answers/0/{drawn}")
            assert answer.status_code == 200 and len(answer.content) > 1000
        assert client.get(f"/api/jobs/{id}/answers/1").status_code == 404
    assert listed["looks"] == 2 and listed["found"] and listed["state"] == "done" and listed["kept"]
    assert listed["video"] == walk and listed["videos"] == [walk] and listed["name"] == "walk.mp4"
    assert re.fullmatch(r"Last seen [\d:.]+ to [\d:.]+(, still in view .+)?, score \d\.\d\d", listed["words"])
    assert abs(datetime.now().astimezone() - datetime.fromisoformat(listed["asked_at"])).seconds < 60
    details = before[f"/api/questions/{id}"]
    assert details["answers"] == before[f"/api/jobs/{id}/answers"] and details["answers"]["pictures"] == 2
    assert listed["seen_at"] == details["answers"]["answers"][0]["seen_at"]
    assert details["answers"]["answers"][0]["date_source"] == "file time"
    assert details["answers"]["answers"][0]["still_in_view"] in (True, False)
    first, second = details["asked"]["looks"]
    assert details["asked"]["before"] == 3.0
    assert first == {
        "video": walk,
        "time": 2.0,
        "box": list(box_at(PLACE).xyxy),
        "width": 320,
        "height": 180,
    }
    assert second == {"video": None, "time": 0.0, "box": picture["box"], "width": 800, "height": 600}


def test_its_pictures_are_small_and_may_have_the_box_drawn_in(folder):
    with server(folder) as client:
        read(client, "walk.mp4")
        id = ask(client, {"picture": upload(client), "box": [100, 60, 500, 420]})
        plain, boxed = (client.get(f"/api/questions/{id}/pictures/0.jpg?box={box}").content for box in (0, 1))
        sizes = [Image.open(BytesIO(picture)).size for picture in (plain, boxed)]
        assert sizes == [(640, 480)] * 2 and plain != boxed
        thumbnail = client.get(f"/api/questions/{id}/thumbnail.jpg").content
        assert Image.open(BytesIO(thumbnail)).size == (320, 180)
        assert client.get(f"/api/questions/{id}/pictures/1.jpg").status_code == 404


def test_not_seen_is_kept_as_well(folder):
    with server(folder, threshold=1.01) as client:
        walk = read(client, "walk.mp4")
        id = ask(client, look(walk, 2.0))
    with server(folder, threshold=1.01) as client:
        (listed,) = client.get("/api/questions").json()
        assert listed["words"].startswith("Not seen; best guess") and not listed["found"]
        assert listed["videos"] == [] and listed["video"] == walk and listed["seen_at"] is None
        assert client.get(f"/api/jobs/{id}/answers").json()["found"] is False
        assert client.get(f"/api/questions/{id}/thumbnail.jpg").status_code == 200  # of the best guess


def traces(folder: Path, *words: bytes) -> list[str]:
    """Files below that hold one of the words."""
    found = (path for path in (folder / "index").rglob("*") if path.is_file())
    return [str(path) for path in found if any(word in path.read_bytes() for word in words)]


@pytest.mark.parametrize("way", ["page", "command line"])
def test_what_is_known_of_a_video_is_forgotten_with_it(folder, run, way):
    with server(folder) as client:
        walk, other = read(client, "walk.mp4"), read(client, "other.mp4")
        photo = {"picture": upload(client)}
        only = ask(client, photo, videos=[walk])
        both = ask(client, look(walk, 2.0), photo, look(other, 1.0))
        taken = ask(client, look(walk, 2.0), videos=[other])
        kept = ask(client, photo, videos=[other])
        assert len(client.get(f"/api/jobs/{both}/answers").json()["answers"]) == 2
        shown = client.get(f"/api/questions/{both}/pictures/1.jpg").content
        with Index(folder / "index") as index:
            identity = index.named("walk.mp4").identity.encode()
        if way == "page":
            assert client.delete(f"/api/videos/{walk}").status_code == 204
        else:
            assert run("index", "remove", "walk.mp4", "--index", folder / "index")[0] == 0
        assert {one["id"] for one in client.get("/api/questions").json()} == {both, kept}
        for id in (only, taken):
            for path in (f"jobs/{id}/answers", f"questions/{id}", f"questions/{id}/pictures/0.jpg"):
                assert client.get(f"/api/{path}").status_code == 404
        details = client.get(f"/api/questions/{both}").json()
        assert details["looks"] == 2 and [a["name"] for a in details["answers"]["answers"]] == ["other.mp4"]
        assert [one["video"] for one in details["asked"]["looks"]] == [None, other]
        assert client.get(f"/api/questions/{both}/pictures/0.jpg").content == shown
        assert client.get(f"/api/jobs/{both}/answers/0/picture.jpg").status_code == 200
        assert client.get(f"/api/jobs/{both}/answers/1").status_code == 404
    assert traces(folder, b"walk.mp4", identity, walk.encode()) == []
    assert len(traces(folder, b"other.mp4")) > 0  # it would be found


def test_a_question_can_be_forgotten(folder):
    with server(folder) as client:
        walk = read(client, "walk.mp4")
        first, second = ask(client, look(walk, 2.0)), ask(client, look(walk, 2.2))
        assert [one["id"] for one in client.get("/api/questions").json()] == [second, first]
        assert client.delete(f"/api/questions/{first}").status_code == 204
        assert client.delete(f"/api/questions/{first}").status_code == 404
        assert [one["id"] for one in client.get("/api/questions").json()] == [second]
        assert client.get(f"/api/jobs/{first}").status_code == 404
        assert client.get(f"/api/jobs/{first}/answers").status_code == 404
        assert [path.name for path in (folder / "index" / "questions").iterdir()] == [second]
        reading = client.get("/api/jobs").json()[0]["id"]
        assert client.delete(f"/api/questions/{reading}").status_code == 404

"""The API of `lastseen serve`: what it does, and what it refuses."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import httpx2 as httpx
import jsonschema
import numpy as np
import pytest
from evidence import box_mask
from fastapi.testclient import TestClient
from PIL import Image
from scenes import box_at, texture
from web import HERE, PLACE, PLACES, finished, jpeg, left_over, look, served, tiny, write_walk

from lastseen.errors import LastSeenError
from lastseen.formats import FORMATS
from lastseen.formats.answer_json import answer_schema
from lastseen.index import Index
from lastseen.query import Query
from lastseen.refine import Extend, Zoom
from lastseen.video import Video
from lastseen.web.media import Settings
from lastseen.web.run import open_socket
from lastseen.web.server import create_app

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(tmp_path) -> Path:
    write_walk(tmp_path / "videos" / "walk.mp4")
    write_walk(tmp_path / "elsewhere" / "secret.mp4", PLACES[:6])
    (tmp_path / "videos" / "notes.txt").write_text("not a video\n" * 40)
    return tmp_path


@pytest.fixture
def localizer():
    return tiny()


@pytest.fixture
def client(folder, localizer):
    settings = Settings(index=folder / "index", folders=(folder / "videos",), max_upload=2**20)
    with TestClient(create_app(settings, localizer), base_url=HERE) as client:
        yield client


@pytest.fixture
def walk(client) -> str:
    """The id of a video that has been read."""
    added = client.post("/api/videos", json={"path": "walk.mp4"}).json()
    assert finished(client, added["job"]["id"])["state"] == "done"
    return added["video"]["id"]


def asked(client, **question) -> dict:
    job = client.post("/api/find", json=question)
    assert job.status_code == 202, job.text
    state = finished(client, job.json()["id"])
    assert state["state"] == "done", state
    return state


# --- what it does ---


def test_a_video_is_added_read_and_listed(client, walk):
    (video,) = client.get("/api/videos").json()["videos"]
    assert video["id"] == walk
    assert (video["name"], video["complete"], video["frames"]) == ("walk.mp4", True, len(PLACES))
    assert (video["width"], video["height"], video["file"], video["uploaded"]) == (320, 180, True, False)


def test_only_videos_in_the_given_folders_are_offered(client, folder):
    (offered,) = client.get("/api/folders").json()
    assert offered == {"path": str((folder / "videos").resolve()), "videos": ["walk.mp4"]}


def test_the_answer_keeps_the_documented_schema_and_is_that_of_one_shot(client, walk, localizer, folder):
    job = asked(client, looks=[look(walk)], videos=[walk])["id"]
    answers = client.get(f"/api/jobs/{job}/answers").json()
    assert answers["found"] is True
    (seen,) = answers["answers"]
    jsonschema.validate(seen["answer"], answer_schema())
    text = client.get(f"/api/jobs/{job}/answers/0").text
    assert json.loads(text) == seen["answer"]
    video = Video(folder / "videos" / "walk.mp4")
    alone = localizer.locate_all(video, Query.from_video(video, 3.0, box_at(PLACE)))
    assert seen["answer"]["tracks"] == [track.to_dict() for track in alone]
    curve = seen["curve"]
    assert len(curve["times"]) == len(curve["scores"]) == len(PLACES)
    assert len(curve["peaks"]) == len(alone)


def test_a_picture_can_be_asked_for_with_or_without_a_box(client, walk):
    picture = client.post("/api/pictures?name=thing.jpg", content=jpeg(texture(3, 80, 60, 6))).json()
    assert (picture["width"], picture["height"]) == (80, 60)
    shown = client.get(f"/api/pictures/{picture['id']}")
    with Image.open(BytesIO(shown.content)) as image:
        assert image.size == (80, 60)
    for box in (None, [10, 10, 60, 50]):
        asked(client, looks=[{"picture": picture["id"], "box": box}])


def test_not_seen_is_an_answer_with_a_guess_behind_it(folder):
    settings = Settings(index=folder / "index", files=(folder / "videos" / "walk.mp4",))
    with TestClient(create_app(settings, tiny(1.01)), base_url=HERE) as client:
        (job,) = client.get("/api/jobs").json()  # the video that was named is read at once
        finished(client, job["id"])
        walk = client.get("/api/videos").json()["videos"][0]["id"]
        answers = client.get(f"/api/jobs/{asked(client, looks=[look(walk)])['id']}/answers").json()
    assert answers["found"] is False
    answer = answers["answers"][0]["answer"]
    jsonschema.validate(answer, answer_schema())
    assert answer["tracks"] == []
    assert answer["best_guess"]["boxes"]


class Centred:
    """A segmenter whose masks are the middle of their prompts."""

    def masks(self, pictures, boxes):
        return [box_mask(picture, box.expanded(0.8)) for picture, box in zip(pictures, boxes)]


def test_with_masks_an_answer_has_their_boxes(folder):
    localizer = tiny()
    localizer = localizer.with_rule(localizer.rule.with_mask())
    localizer._segmenter = Centred()
    settings = Settings(index=folder / "index", files=(folder / "videos" / "walk.mp4",))
    with TestClient(create_app(settings, localizer), base_url=HERE) as client:
        (job,) = client.get("/api/jobs").json()
        finished(client, job["id"])
        walk = client.get("/api/videos").json()["videos"][0]["id"]
        job = asked(client, looks=[look(walk)])["id"]
        answer = client.get(f"/api/jobs/{job}/answers/0").json()
        (seen,) = client.get(f"/api/jobs/{job}/answers").json()["answers"]
        assert "mask" in seen["steps"] and seen["left_out"] == ""
    video = Video(folder / "videos" / "walk.mp4")
    query = Query.from_video(video, 3.0, box_at(PLACE))
    assert answer["tracks"] == [track.to_dict() for track in localizer.locate_all(video, query)]
    plain = tiny().locate_all(video, query)
    assert answer["tracks"][-1]["boxes"] != plain[-1].to_dict()["boxes"]


def test_an_answer_without_its_video_says_what_was_left_out(folder):
    localizer = tiny()
    localizer = localizer.with_rule(localizer.rule.with_mask())
    localizer._segmenter = Centred()
    path = folder / "videos" / "walk.mp4"
    frame = Video(path).frame_at(3.0).image
    settings = Settings(index=folder / "index", files=(path,))
    with TestClient(create_app(settings, localizer), base_url=HERE) as client:
        (job,) = client.get("/api/jobs").json()
        finished(client, job["id"])
        photo = client.post("/api/pictures?name=frame.jpg", content=jpeg(frame)).json()["id"]
        path.unlink()
        job = asked(client, looks=[{"picture": photo, "box": list(box_at(PLACE).xyxy)}])["id"]
        (seen,) = client.get(f"/api/jobs/{job}/answers").json()["answers"]
    assert "mask" not in seen["steps"]
    assert seen["left_out"].startswith("walk.mp4 is not there to ")


def test_a_question_ends_at_the_moment_it_is_asked(client, walk):
    job = asked(client, looks=[look(walk)], videos=[walk], before=2.0)["id"]
    seen = client.get(f"/api/jobs/{job}/answers").json()["answers"][0]
    assert seen["curve"]["searched"] == 2.0
    assert all(track["end"] < 2.0 for track in seen["answer"]["tracks"])


def test_a_question_about_a_video_that_was_not_read_reads_it_first(client, localizer):
    localizer.hold.set()
    added = client.post("/api/videos", json={"path": "walk.mp4"}).json()
    client.post(f"/api/jobs/{added['job']['id']}/cancel")
    assert finished(client, added["job"]["id"])["state"] == "cancelled"
    localizer.hold.clear()
    asked(client, looks=[look(added["video"]["id"])], videos=[added["video"]["id"]])
    assert client.get("/api/videos").json()["videos"][0]["complete"]


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_is_saved_in_every_format(client, walk, format):
    job = asked(client, looks=[look(walk)])["id"]
    saved = client.get(f"/api/jobs/{job}/answers/0?format={format}")
    assert saved.status_code == 200
    assert saved.headers["content-disposition"].startswith('attachment; filename="walk.')
    assert len(saved.text) > 20


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("picture.jpg", b"\xff\xd8"),
        ("filmstrip.jpg", b"\xff\xd8"),
        ("film.mp4", b"\0\0\0"),
        ("report.html", b"<!DOCTYPE"),
    ],
)
def test_an_answer_is_drawn_and_nothing_stays_behind(client, walk, folder, name, starts):
    job = asked(client, looks=[look(walk)])["id"]
    drawn = client.get(f"/api/jobs/{job}/answers/0/{name}")
    assert drawn.status_code == 200
    assert drawn.content.startswith(starts)
    assert left_over(folder) == []


def test_a_frame_is_the_picture_of_that_moment(client, walk):
    for time_s, there in ((0.2, False), (3.2, True)):
        frame = client.get(f"/api/videos/{walk}/frame?time={time_s}")
        with Image.open(BytesIO(frame.content)) as image:
            assert image.size == (320, 180)
            x1, y1, x2, y2 = map(int, box_at(PLACE).xyxy)
            middle = np.asarray(image, float)[(y1 + y2) // 2, x1 + 12 : x2 - 12]
        assert bool(middle.mean() > 200) is there  # the thing has a white bar there
    assert client.get(f"/api/videos/{walk}/frame?time=500").status_code == 404


def test_parts_of_the_file_come_by_range(client, walk, folder):
    data = (folder / "videos" / "walk.mp4").read_bytes()
    address = f"/api/videos/{walk}/file"
    whole = client.get(address)
    assert (whole.status_code, whole.content) == (200, data)
    assert (whole.headers["accept-ranges"], whole.headers["content-type"]) == ("bytes", "video/mp4")
    part = client.get(address, headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, data[100:200])
    assert part.headers["content-range"] == f"bytes 100-199/{len(data)}"
    assert client.get(address, headers={"Range": "bytes=-10"}).content == data[-10:]
    assert client.get(address, headers={"Range": f"bytes={len(data) + 1}-"}).status_code == 416


def test_progress_is_told_live(client):
    job = client.post("/api/videos", json={"path": "walk.mp4"}).json()["job"]["id"]
    with client.stream("GET", f"/api/events?job={job}") as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        told = [json.loads(line[6:]) for line in events.iter_lines() if line.startswith("data: ")]
    assert told[-1]["state"] == "done"
    assert told[-1]["done"] == told[-1]["total"] == len(PLACES)
    assert {one["phase"] for one in told} <= {"", "reading"}
    assert (told[-1]["unit"], told[-1]["step"]) == ("frames", "Reading walk.mp4")


def test_the_first_pass_answers_while_the_job_looks_closer(folder):
    localizer = tiny()
    localizer = localizer.with_rule(replace(localizer.rule, refinement=(Zoom(), Extend())))
    settings = Settings(index=folder / "index", folders=(folder / "videos",))
    with TestClient(create_app(settings, localizer), base_url=HERE) as client:
        added = client.post("/api/videos", json={"path": "walk.mp4"}).json()
        finished(client, added["job"]["id"])
        localizer.hold.set()
        job = client.post("/api/find", json={"looks": [look(added["video"]["id"])]}).json()["id"]
        states = []
        while not states or not states[-1]["answered"]:
            assert client.get(f"/api/jobs/{job}/answers").status_code in (200, 409)
            states.append(client.get(f"/api/jobs/{job}").json())
        assert (states[-1]["state"], states[-1]["phase"]) == ("running", "looking closer")
        early = client.get(f"/api/jobs/{job}/answers").json()
        assert early["preliminary"] and early["found"] and early["answers"][0]["steps"] == []
        assert client.get(f"/api/jobs/{job}/answers/0/picture.jpg").status_code == 200
        question = client.get(f"/api/questions/{job}").json()
        assert question["answers"] == early and question["words"].startswith("Last seen")
        assert (question["state"], question["kept"]) == ("running", False)
        assert client.get(f"/api/jobs/{job}").json()["left"] > 0
        localizer.hold.clear()
        assert finished(client, job)["answered"]
        late = client.get(f"/api/jobs/{job}/answers").json()
        assert not late["preliminary"] and late["answers"][0]["steps"] == ["zoom", "extend"]
        localizer.hold.set()
        job = client.post("/api/find", json={"looks": [look(added["video"]["id"])]}).json()["id"]
        while not client.get(f"/api/jobs/{job}").json()["answered"]:
            time.sleep(0.01)
        client.post(f"/api/jobs/{job}/cancel")
        localizer.hold.clear()
        assert not finished(client, job)["answered"]
        assert client.get(f"/api/jobs/{job}/answers").status_code == 409


def test_reading_is_cancelled_and_goes_on_where_it_was(client, localizer):
    localizer.hold.set()
    added = client.post("/api/videos", json={"path": "walk.mp4"}).json()
    job, video = added["job"]["id"], added["video"]["id"]
    while client.get(f"/api/jobs/{job}").json()["done"] == 0:
        time.sleep(0.01)
    assert client.delete(f"/api/videos/{video}").status_code == 409
    assert client.post(f"/api/jobs/{job}/cancel").status_code == 200
    assert finished(client, job)["state"] == "cancelled"
    assert not client.get("/api/videos").json()["videos"][0]["complete"]
    localizer.hold.clear()
    again = client.post(f"/api/videos/{video}/read").json()["job"]["id"]
    assert finished(client, again)["state"] == "done"
    assert client.get("/api/videos").json()["videos"][0]["complete"]


def test_a_question_does_not_wait_for_another_video_to_be_read(client, walk, localizer, folder):
    write_walk(folder / "videos" / "long.mp4", [None] * 40)
    localizer.hold.set()
    reading = client.post("/api/videos", json={"path": "long.mp4"}).json()["job"]["id"]
    asked(client, looks=[look(walk)], videos=[walk])
    assert client.get(f"/api/jobs/{reading}").json()["state"] == "running"
    waiting = client.post("/api/find", json={"looks": [look(walk)], "videos": [walk]}).json()["id"]
    client.post(f"/api/jobs/{waiting}/cancel")
    localizer.hold.clear()
    assert finished(client, reading)["state"] == "done"


def test_a_removed_video_is_forgotten_and_its_file_stays(client, walk, folder):
    assert client.delete(f"/api/videos/{walk}").status_code == 204
    assert client.get("/api/videos").json()["videos"] == []
    assert client.get(f"/api/videos/{walk}/file").status_code == 404
    assert (folder / "videos" / "walk.mp4").is_file()


# --- the command ---


def test_serve_says_what_is_wrong_in_one_line(run, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        status, out, err = run("serve", "--port", port, "--index", "index")
        assert (status, out) == (2, "")
        assert err == f"lastseen: port {port} is in use; choose another one: --port {port + 1}\n"
    cases = {
        ("missing.mp4",): "missing.mp4: no such file",
        ("--videos", "nowhere"): "nowhere: no such folder",
        ("--max-upload", "lots"): "expected a size like 500M",
        ("--host", "no.such.host.invalid"): "no such address",
    }
    for arguments, says in cases.items():
        status, out, err = run("serve", "--port", "0", "--index", "index", *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert says in err


def test_serve_with_masks_needs_their_weights_before_anything_is_served(run, folder, monkeypatch):
    monkeypatch.setenv("LASTSEEN_MODELS", str(folder / "models"))
    status, out, err = run("serve", "--port", "0", "--index", folder / "index", "--masks")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "masks need MobileSAM" in err and "lastseen models add mobile-sam" in err


def test_serve_without_its_libraries_says_how_to_get_them():
    # In a process of its own: importing lastseen.web twice in this one leaves half of it to later tests.
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['lastseen', 'serve']\n"
        "from lastseen.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lastseen: the page needs uvicorn; run: pip install 'lastseen[web]'\n"


def test_help_of_serve_waits_for_nothing():
    code = (
        "import sys; sys.argv = ['lastseen', 'serve', '--help']\n"
        "from lastseen.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'av', 'numpy', 'fastapi', 'uvicorn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Example: lastseen serve walk.mp4 --open" in done.stdout


def test_an_index_of_another_model_is_refused_before_anything_is_served(folder):
    settings = Settings(index=folder / "index")
    with Index(settings.index, create=True) as index:
        index.catalogue.set_about(fingerprint="other", made_by="another", fps=5.0)
    with pytest.raises(LastSeenError, match="made by another model"):
        create_app(settings, tiny())


def test_a_real_server_ends_although_a_page_is_open(folder):
    settings = Settings(index=folder / "index")
    # `served` fails if the server has not ended by itself.
    with httpx.Client() as client, served(settings, tiny()) as address:
        events = client.send(client.build_request("GET", f"{address}api/events"), stream=True)
        assert events.status_code == 200
    assert list((folder / "index" / "uploads" / "incoming").iterdir()) == []


def test_the_command_serves_until_it_is_interrupted(folder):
    command = [
        sys.executable,
        "-m",
        "lastseen",
        "serve",
        "--port",
        "0",
        "--index",
        str(folder / "index"),
        "-q",
    ]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = running.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)[0]
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with suppress(httpx.TransportError):
                assert httpx.get(f"{address}api/videos").json()["videos"] == []
                break
        running.send_signal(signal.SIGINT)
        assert running.wait(15) == 0
        assert running.stderr.read() == ""
    finally:
        running.kill()
        running.communicate()
    assert list((folder / "index" / "uploads" / "incoming").iterdir()) == []

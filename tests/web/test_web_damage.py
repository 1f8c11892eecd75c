"""What the page's API says of videos that are damaged or would never end."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from scenes import texture
from videos import overwrite_packets, pictures, write_video
from web import HERE, finished, jpeg, tiny

from lastseen.web.media import Settings
from lastseen.web.server import create_app

pytestmark = pytest.mark.usefixtures("one_thread")


def damaged(path: Path, first: int, last: int) -> None:
    keys = {"x264-params": "keyint=25:min-keyint=25:scenecut=0:bframes=0"}
    write_video(path, pictures(150), gop=25, options=keys)
    overwrite_packets(path, first, last, b"\0")


def test_an_answer_says_how_much_could_not_be_decoded_and_a_ruin_is_refused(tmp_path):
    damaged(tmp_path / "walk.mp4", 25, 75)
    damaged(tmp_path / "ruin.mp4", 25, 125)
    write_video(tmp_path / "years.mkv", pictures(4), [0.0, 0.2, 20_000.0, 20_000.2])
    settings = Settings(index=tmp_path / "index", folders=(tmp_path,))
    with TestClient(create_app(settings, tiny()), base_url=HERE) as client:
        refused = client.post("/api/videos", json={"path": "years.mkv"})
        assert refused.status_code == 422 and "its timestamps jump by 20000 s" in refused.text
        jobs = {
            name: client.post("/api/videos", json={"path": f"{name}.mp4"}).json()["job"]["id"]
            for name in ("ruin", "walk")
        }
        ruin = finished(client, jobs["ruin"])
        assert ruin["state"] == "failed" and "more than half of it cannot be decoded" in ruin["message"]
        assert finished(client, jobs["walk"])["state"] == "done"
        photo = client.post("/api/pictures?name=a.jpg", content=jpeg(texture(3, 80, 60, 6))).json()["id"]
        job = client.post("/api/find", json={"looks": [{"picture": photo}]}).json()["id"]
        assert finished(client, job)["state"] == "done"
        (seen,) = client.get(f"/api/jobs/{job}/answers").json()["answers"]
    assert seen["answer"]["unreadable"] == 2.0
    assert seen["left_out"] == "2.0 s of walk.mp4 could not be decoded; what was in view then is not known."

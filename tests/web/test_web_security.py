"""What `lastseen serve` refuses: other sites, files outside its folders, uploads that are no videos."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from scenes import texture
from videos import pictures, write_video
from web import HERE, PLACES, finished, jpeg, left_over, look, served, tiny, write_walk

from lastseen.video.containers import is_video_container
from lastseen.web.jobs import Jobs
from lastseen.web.media import Settings, safe_name
from lastseen.web.security import is_own_host
from lastseen.web.server import create_app

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One for all: what is refused changes nothing."""
    root = tmp_path_factory.mktemp("web")
    videos, elsewhere = root / "videos", root / "elsewhere"
    write_walk(videos / "walk.mp4")
    write_walk(elsewhere / "secret.mp4", PLACES[:6])
    (videos / "notes.txt").write_text("not a video\n" * 40)
    (videos / "link.mp4").symlink_to(elsewhere / "secret.mp4")
    (videos / "there").symlink_to(elsewhere)
    (videos / "circle.mp4").symlink_to(videos / "circle.mp4")
    return root


@pytest.fixture(scope="module")
def client(folder):
    settings = Settings(index=folder / "index", folders=(folder / "videos",), max_upload=2**20)
    with TestClient(create_app(settings, tiny()), base_url=HERE) as client:
        yield client


@pytest.fixture
def walk(client):
    """The id of a video that has been read, which is removed in the end."""
    added = client.post("/api/videos", json={"path": "walk.mp4"}).json()
    assert finished(client, added["job"]["id"])["state"] == "done"
    yield added["video"]["id"]
    client.delete(f"/api/videos/{added['video']['id']}")


# --- uploads ---


def test_an_upload_is_kept_read_and_removed_with_its_video(client, folder):
    data = (folder / "elsewhere" / "secret.mp4").read_bytes()
    added = client.post("/api/uploads?name=../../my%20walk.mp4", content=data).json()
    assert finished(client, added["job"]["id"])["state"] == "done"
    assert added["video"]["name"] == "my walk.mp4"
    assert left_over(folder) == ["my walk.mp4"]
    again = client.post("/api/uploads?name=copy.mp4", content=data).json()
    assert finished(client, again["job"]["id"])["state"] == "done"
    assert left_over(folder) == ["my walk.mp4"]  # the same bytes are kept once
    assert client.delete(f"/api/videos/{added['video']['id']}").status_code == 204
    assert left_over(folder) == []


def test_an_upload_of_what_is_there_is_answered_even_if_it_is_dealt_with_at_once(client, folder, monkeypatch):
    data = (folder / "elsewhere" / "secret.mp4").read_bytes()
    added = client.post("/api/uploads?name=first.mp4", content=data).json()
    assert finished(client, added["job"]["id"])["state"] == "done"
    submit = Jobs.submit

    def submit_and_wait(*args, **options):
        job = submit(*args, **options)
        while not job.finished:
            time.sleep(0.01)
        return job

    monkeypatch.setattr(Jobs, "submit", submit_and_wait)
    again = client.post("/api/uploads?name=second.mp4", content=data)
    assert again.status_code == 202
    assert again.json()["job"]["state"] == "done"
    assert left_over(folder) == ["first.mp4"]
    assert client.delete(f"/api/videos/{added['video']['id']}").status_code == 204
    assert left_over(folder) == []


def bad_uploads(folder: Path) -> dict[str, tuple[bytes, int, str]]:
    walk = (folder / "videos" / "walk.mp4").read_bytes()
    secret = (folder / "elsewhere" / "secret.mp4").resolve()
    return {
        "too large": (walk + bytes(2**20), 413, "more than this server takes"),
        "empty": (b"", 422, "is empty"),
        "text": (b"hello\n" * 100, 422, "not a video"),
        "picture": (jpeg(texture(1, 64, 48, 8)), 422, "not a video"),
        "truncated": (walk[: len(walk) // 2], 422, "cut off"),
        "playlist": (f"#EXTM3U\n#EXTINF:1,\n{secret}\n#EXT-X-ENDLIST\n".encode(), 422, "not a video"),
        "list of files": (f"ffconcat version 1.0\nfile {secret}\n".encode(), 422, "not a video"),
    }


@pytest.mark.parametrize(
    "kind", ["too large", "empty", "text", "picture", "truncated", "playlist", "list of files"]
)
def test_a_bad_upload_is_one_clear_message_and_nothing_stays(client, folder, kind):
    data, status, says = bad_uploads(folder)[kind]
    refused = client.post("/api/uploads?name=bad.mp4", content=data)
    assert refused.status_code == status
    assert says in refused.json()["detail"]
    assert str(folder) not in refused.json()["detail"]
    assert left_over(folder) == []
    assert client.get("/api/videos").json()["videos"] == []


def test_an_upload_that_does_not_say_its_size_is_stopped_when_it_is_too_large(client, folder):
    refused = client.post("/api/uploads", content=(bytes(2**16) for _ in range(40)))
    assert refused.status_code == 413
    assert left_over(folder) == []


def test_nothing_stays_of_an_upload_that_breaks_off(tmp_path):
    with served(Settings(index=tmp_path / "index"), tiny()) as address:
        with socket.create_connection(("127.0.0.1", urlsplit(address).port)) as line:
            host = urlsplit(address).netloc
            head = (
                f"POST /api/uploads?name=half.mp4 HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\n"
            )
            line.sendall(head.encode() + bytes(5000))
            wait_until(lambda: left_over(tmp_path) == ["half.mp4"])
        wait_until(lambda: left_over(tmp_path) == [])


def wait_until(holds, within_s: float = 10.0) -> None:
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_file_that_is_no_picture_is_one_clear_message(client, folder):
    refused = client.post("/api/pictures?name=thing.jpg", content=b"hello")
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("thing.jpg is not a picture")
    assert left_over(folder) == []


def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path):
    folder = tmp_path
    incoming = folder / "index" / "uploads" / "incoming"
    code = (
        "import os, signal, sys; sys.path[:0] = ['tests']\n"
        "from pathlib import Path\n"
        "from lastseen.web.media import Settings, Shelf\n"
        f"shelf = Shelf(Settings(index=Path({str(folder / 'index')!r})))\n"
        "with shelf.open():\n"
        "    shelf.arriving('half.mp4').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", code], cwd=root, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert left_over(folder) == ["half.mp4"]
    settings = Settings(index=folder / "index")
    with TestClient(create_app(settings, tiny()), base_url=HERE):
        assert left_over(folder) == []
        assert len(list(incoming.iterdir())) == 1  # its own
        other = create_app(settings, tiny())
        with TestClient(other, base_url=HERE):
            assert len(list(incoming.iterdir())) == 2  # that of a running server stays
    assert list(incoming.iterdir()) == []


# --- what may be read ---


@pytest.mark.parametrize(
    "path",
    [
        "../elsewhere/secret.mp4",
        "link.mp4",
        "there/secret.mp4",
        "{folder}/elsewhere/secret.mp4",
        "{folder}/videos/../elsewhere/secret.mp4",
        "{folder}/videos/link.mp4",
        "/etc/passwd",
        "/nowhere/at/all.mp4",
        "/dev/zero",
        "~/walk.mp4/../../../etc/passwd",
        "file:///etc/passwd",
        "walk.mp4\0.txt",
        "",
    ],
)
def test_nothing_outside_the_folders_can_be_added(client, folder, path):
    refused = client.post("/api/videos", json={"path": path.format(folder=folder)})
    assert refused.status_code in (403, 404)
    assert client.get("/api/videos").json()["videos"] == []
    assert client.get("/api/folders").json()[0]["videos"] == ["walk.mp4"]


def test_what_is_outside_is_refused_in_the_same_words_whether_it_is_there_or_not(client, folder):
    there, nowhere = folder / "elsewhere" / "secret.mp4", folder / "elsewhere" / "nothing.mp4"
    said = [client.post("/api/videos", json={"path": str(path)}) for path in (there, nowhere)]
    assert [answer.status_code for answer in said] == [403, 403]
    words = [answer.json()["detail"].replace(path.name, "") for answer, path in zip(said, (there, nowhere))]
    assert words[0] == words[1]


@pytest.mark.parametrize("path", ["notes.txt", "circle.mp4", ".", "missing.mp4", "x" * 4000])
def test_what_is_inside_but_no_video_is_refused(client, folder, path):
    refused = client.post("/api/videos", json={"path": path})
    assert refused.status_code in (403, 404, 422)
    assert client.get("/api/videos").json()["videos"] == []


def test_a_file_that_was_replaced_by_a_link_is_not_read(client, walk, folder):
    video, aside = folder / "videos" / "walk.mp4", folder / "walk.mp4"
    video.rename(aside)
    video.symlink_to(folder / "elsewhere" / "secret.mp4")
    try:
        assert client.get(f"/api/videos/{walk}/file").status_code == 409
        assert client.get(f"/api/videos/{walk}/frame").status_code == 409
    finally:
        aside.replace(video)


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/../server.py",
        "/page/%2e%2e/server.py",
        "/page/..%2fserver.py",
        "/videos",
        "/docs",
        "/redoc",
    ],
)
def test_there_are_no_other_pages(client, path):
    assert client.get(path).status_code == 404


# --- who may ask ---


def test_the_page_asks_for_nothing_outside_itself(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "http" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    again = client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "192.168.1.5", ""]
)
def test_another_host_is_refused(client, host):
    for path in ("/", "/api/videos", "/openapi.json"):
        assert client.get(path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:8765"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_site_is_refused(client, walk, headers):
    changes = [
        client.post("/api/videos", json={"path": "walk.mp4"}, headers=headers),
        client.post("/api/find", json={"looks": [look(walk)]}, headers=headers),
        client.post("/api/uploads", content=b"", headers=headers),
        client.delete(f"/api/videos/{walk}", headers=headers),
        client.get(f"/api/videos/{walk}/file", headers=headers),
    ]
    assert [answer.status_code for answer in changes] == [403] * len(changes)
    assert len(client.get("/api/videos").json()["videos"]) == 1


def test_the_servers_own_page_and_programs_are_welcome(client, walk):
    own = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/find", json={"looks": [look(walk)]}, headers=own).status_code == 202
    assert (
        client.get("/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status_code
        == 200
    )
    assert client.get("/", headers={"Host": "localhost:8765"}).status_code == 200


def test_a_server_for_the_network_answers_to_addresses_but_not_to_names():
    assert is_own_host("192.168.1.5:8765", "0.0.0.0")
    assert not is_own_host("evil.example", "0.0.0.0")
    assert not is_own_host("192.168.1.5", "127.0.0.1")
    assert is_own_host("[::1]:8765", "127.0.0.1")
    assert not is_own_host("me@127.0.0.1", "127.0.0.1")
    assert not is_own_host("127.0.0.1:port", "127.0.0.1")


# --- small parts ---


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("walk.mp4", "walk.mp4"),
        ("../../etc/passwd", "passwd"),
        ("C:\\videos\\walk.mp4", "walk.mp4"),
        (".hidden.mp4", "hidden.mp4"),
        ("Küche (2).mov", "Küche (2).mov"),
        ("", "video"),
        ("..", "video"),
        ("a\nb<script>.mp4", "a_b_script_.mp4"),
        ("x" * 300 + ".mp4", "x" * 80 + ".mp4"),
    ],
)
def test_a_name_from_outside_leads_nowhere(given, safe):
    assert safe_name(given) == safe


def test_videos_are_told_by_their_first_bytes(tmp_path):
    for ending in ("mp4", "mkv", "avi", "ts", "mov", "mpg", "webm"):
        codec = {"webm": "libvpx", "mpg": "mpeg2video"}.get(ending, "libx264")
        path = write_video(tmp_path / f"walk.{ending}", pictures(5), codec=codec)
        assert is_video_container(path.read_bytes()[:400]), ending

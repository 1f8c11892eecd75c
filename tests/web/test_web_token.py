"""A server that others can reach: it has a token, and without it nobody sees, adds or removes anything."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from fastapi.testclient import TestClient
from web import HERE, PLACES, finished, look, served, tiny, write_walk

from lastseen.doctor import check_settings
from lastseen.errors import LastSeenError
from lastseen.web.media import Settings
from lastseen.web.run import address_of, open_socket
from lastseen.web.server import create_app
from lastseen.web.token import checked, is_loopback, random_token, with_token

pytestmark = pytest.mark.usefixtures("one_thread")
TOKEN = "correct-horse-battery"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A real server on all addresses that has read a video: its addresses, the video's id and the job's."""
    folder = tmp_path_factory.mktemp("token")
    write_walk(folder / "walk.mp4", PLACES[:8])
    settings = Settings(index=folder / "index", files=(folder / "walk.mp4",), host="0.0.0.0", token=TOKEN)
    with served(settings, tiny()) as address:
        local = f"http://127.0.0.1:{urlsplit(address).port}"
        with httpx.Client(base_url=local, headers=BEARER) as client:
            (job,) = client.get("/api/jobs").json()
            finished(client, job["id"])
            video = client.get("/api/videos").json()["videos"][0]["id"]
        yield {"addresses": {local, address.rstrip("/")}, "video": video, "job": job["id"]}


def requests(place) -> list[tuple[str, str]]:
    video, job = place["video"], place["job"]
    return [
        ("GET", "/"),
        ("GET", "/page/app.js"),
        ("GET", "/openapi.json"),
        ("GET", "/api"),
        ("GET", "/api/videos"),
        ("GET", "/api/folders"),
        ("GET", f"/api/videos/{video}/file"),
        ("GET", f"/api/videos/{video}/frame?time=0.2"),
        ("GET", "/api/jobs"),
        ("GET", f"/api/jobs/{job}"),
        ("GET", f"/api/events?job={job}"),
        ("POST", "/api/find"),
        ("POST", "/api/uploads?name=a.mp4"),
        ("POST", "/api/pictures"),
        ("POST", "/api/videos"),
        ("POST", f"/api/jobs/{job}/cancel"),
        ("DELETE", f"/api/videos/{video}"),
        ("GET", "/api/questions"),
        ("GET", f"/api/questions/{job}"),
        ("GET", f"/api/questions/{job}/pictures/0.jpg"),
        ("GET", f"/api/questions/{job}/thumbnail.jpg"),
        ("DELETE", f"/api/questions/{job}"),
        ("GET", "/api/settings"),
        ("POST", f"/api/pictures/{job}/suggestion"),
        ("GET", "/nothing"),
    ]


WRONG = [
    {},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer wrong-wrong-wrong-wrong"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Cookie": f"lastseen={TOKEN}"},
    {"Cookie": "lastseen-PORT=\xff; =; lastseen-PORT="},
]


@pytest.mark.parametrize("headers", WRONG)
def test_without_the_token_nothing_is_answered(place, headers):
    for address in place["addresses"]:
        port = str(urlsplit(address).port)
        given = {name: value.replace("PORT", port).encode("latin-1") for name, value in headers.items()}
        with httpx.Client(base_url=address, headers=given) as client:
            for method, path in requests(place):
                refused = client.request(method, path)
                assert refused.status_code == 401, (method, path)
                assert refused.headers["www-authenticate"] == "Bearer"
                assert refused.json()["detail"].startswith("this server needs its token: ")
            assert client.get("/?token=wrong").status_code == 401
            assert client.get(f"/api/videos?token={TOKEN}").status_code == 401  # only the page takes it so


def test_the_address_with_the_token_sets_a_cookie_and_leads_to_the_page_without_it(place):
    for address in place["addresses"]:
        with httpx.Client(base_url=address) as browser:
            led = browser.get(f"/?token={TOKEN}")
            assert (led.status_code, led.headers["location"]) == (303, "/")
            cookie = led.headers["set-cookie"].lower()
            assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie
            assert TOKEN not in cookie
            assert "<html" in browser.get("/").text
            assert len(browser.get("/api/videos").json()["videos"]) == 1
            assert browser.get(f"/api/videos/{place['video']}/frame").status_code == 200
            with browser.stream("GET", "/api/events") as events:
                assert events.status_code == 200


def test_a_program_with_the_token_may_do_everything(place):
    for address in place["addresses"]:
        with httpx.Client(base_url=address, headers=BEARER) as client:
            assert len(client.get("/api/videos").json()["videos"]) == 1
            asked = client.post("/api/find", json={"looks": [look(place["video"], 1.0)]})
            assert asked.status_code == 202
            assert client.post("/api/uploads", content=b"").status_code == 422
            assert client.delete("/api/videos/nothing").status_code == 404


def test_other_sites_and_names_are_refused_even_with_the_token(place):
    local = next(address for address in place["addresses"] if "127.0.0.1" in address)
    port = urlsplit(local).port
    for headers in (
        {"Host": f"evil.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert httpx.get(f"{local}/api/videos", headers={**BEARER, **headers}).status_code == 403
    for address in place["addresses"]:
        own = {"Origin": address, "Sec-Fetch-Site": "same-origin"}
        assert httpx.get(f"{address}/api/videos", headers={**BEARER, **own}).status_code == 200


def test_on_this_machine_alone_nothing_is_asked_for(tmp_path):
    with TestClient(create_app(Settings(index=tmp_path / "index"), tiny()), base_url=HERE) as client:
        assert client.get("/api/videos").status_code == 200
        assert client.get("/?token=whatever", follow_redirects=False).status_code == 200


def test_a_token_is_long_and_random_and_fits_into_an_address():
    tokens = {random_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(checked(token)) >= 32 for token in tokens)
    assert with_token("http://192.168.1.5:8765/", "a&b=c/d+e") == (
        "http://192.168.1.5:8765/?token=a%26b%3Dc%2Fd%2Be"
    )
    for bad in (
        "short",
        "with a space in the middle",
        "wörter-mit-umlauten",
        "line\nbreak-in-the-middle",
        "",
    ):
        with pytest.raises(LastSeenError, match="16 or more"):
            checked(bad)


def test_a_server_on_all_addresses_says_one_that_others_can_use():
    with open_socket("0.0.0.0", 0) as everywhere, open_socket("127.0.0.1", 0) as here:
        assert not is_loopback(everywhere)
        assert is_loopback(here)
        assert "0.0.0.0" not in address_of(everywhere)
        assert address_of(here) == f"http://127.0.0.1:{here.getsockname()[1]}/"


def test_the_token_is_not_shown_by_the_doctor(monkeypatch):
    monkeypatch.setenv("LASTSEEN_TOKEN", TOKEN)
    finding = check_settings()
    assert finding.state == "ok" and "LASTSEEN_TOKEN=(set)" in finding.found
    assert TOKEN not in str(finding)


def said_by_serve(folder: Path, *arguments: str, **environment: str):
    """What the command prints, and what an httpx client without and with that address gets."""
    command = [sys.executable, "-m", "lastseen", "serve", "--port", "0", "--index", str(folder), "-q"]
    with subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as running:
        try:
            said = running.stdout.readline()
            address = re.search(r"http://\S+", said)[0]
            bare = f"{address.partition('?')[0]}api/videos"
            status = httpx.get(bare).status_code
            led = httpx.get(address, follow_redirects=False).status_code
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 0
            return address, status, led, running.stderr.read()
        finally:
            running.kill()


def test_host_makes_a_token_and_warns(tmp_path):
    address, status, led, err = said_by_serve(tmp_path / "index", "--host", "0.0.0.0")
    assert re.fullmatch(r"http://[\d.]+:\d+/\?token=[\w-]{32}", address)
    assert (status, led) == (401, 303)
    assert err.count("\n") == 1 and err.startswith("lastseen: warning: others on the network")


def test_a_token_can_be_chosen_or_left_out_only_by_name(tmp_path, run):
    address, status, led, _ = said_by_serve(
        tmp_path / "index", "--host", "0.0.0.0", LASTSEEN_TOKEN="my-own-token-2026"
    )
    assert (address.partition("token=")[2], status, led) == ("my-own-token-2026", 401, 303)
    address, status, _, err = said_by_serve(tmp_path / "index", "--host", "0.0.0.0", "--no-token")
    assert ("token" in address, status) == (False, 200)
    assert err.startswith("lastseen: warning: everybody who can reach this address")
    for arguments, says in {
        ("--token", "short"): "16 or more",
        ("--token", "my-own-token-2026", "--no-token"): "contradict",
    }.items():
        status, out, err = run("serve", "--port", "0", "--index", tmp_path / "index", *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert says in err

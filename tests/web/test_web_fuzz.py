"""Requests made up from the API's own description, wrong ones too: none makes the server fail."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import booleans
from scenes import box_at
from web import PLACE, finished, served, tiny, write_walk

from lastseen.web.media import Settings

schemathesis = pytest.importorskip("schemathesis")
httpx = pytest.importorskip("httpx2")
pytestmark = pytest.mark.usefixtures("one_thread")
EXAMPLES = 12  # of each request


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A real server that has read a video and answered a question."""
    root = tmp_path_factory.mktemp("fuzz")
    walk = write_walk(root / "videos" / "walk.mp4")
    allowed = Settings(index=root / "index", folders=(walk.parent,), files=(walk,), max_upload=2**20)
    with served(allowed, tiny()) as address, httpx.Client(base_url=address) as client:
        (job,) = client.get("/api/jobs").json()
        finished(client, job["id"])
        video = client.get("/api/videos").json()["videos"][0]["id"]
        look = {"video": video, "time": 3.0, "box": list(box_at(PLACE).xyxy)}
        found = client.post("/api/find", json={"looks": [look]}).json()["id"]
        finished(client, found)
        yield address, {"video": video, "job": found}


ENDLESS = "/api/events"  # a stream


def test_no_request_makes_the_server_fail(server):
    address, known = server
    described = schemathesis.openapi.from_url(f"{address}openapi.json")
    operations = [found.ok() for found in described.get_all_operations()]
    tried = {operation.label for operation in operations if operation.path != ENDLESS}
    assert len(tried) >= 15
    for operation in operations:
        if operation.label in tried:
            for mode in schemathesis.GenerationMode:  # as described, and against the description
                fuzz(operation, mode, known)


def fuzz(operation, mode, known: dict[str, str]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode), booleans())
    def call(case, knows):
        if knows and "id" in case.path_parameters and case.method != "DELETE":
            # What is there can go wrong in more ways.
            case.path_parameters["id"] = known["video" if "/videos/" in case.path else "job"]
        response = case.call(timeout=20)
        assert response.status_code < 500, f"{operation.label}: {response.text}"
        if response.status_code != 400:  # not even HTTP: uvicorn answers by itself
            assert response.headers["x-content-type-options"] == ["nosniff"]

    with suppress(Unsatisfiable):  # a request without parameters cannot be wrong
        call()

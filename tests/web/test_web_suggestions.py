"""A box is suggested in a photo if there is a mask model; random weights stand for it here."""

import pytest
import torch
from fastapi.testclient import TestClient
from scenes import texture
from web import HERE, jpeg, tiny

from lastseen.masks import MobileSam
from lastseen.masks.stored import VARIABLE, save_mobile_sam
from lastseen.web.media import Settings
from lastseen.web.server import create_app

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "models"))
    with TestClient(create_app(Settings(index=tmp_path / "index"), tiny()), base_url=HERE) as client:
        yield client


def suggestion(client) -> dict:
    picture = client.post("/api/pictures", content=jpeg(texture(3, 80, 60, 6))).json()["id"]
    answer = client.post(f"/api/pictures/{picture}/suggestion")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_without_the_model_nothing_is_suggested_and_why_is_said(client):
    assert client.get("/api/settings").json() == {"masks": False, "suggestions": False}
    said = suggestion(client)
    assert said["box"] is None and "lastseen models add mobile-sam" in said["reason"]
    assert client.post("/api/pictures/none/suggestion").status_code == 404


def test_with_the_model_a_box_inside_the_picture_is_suggested_or_none_with_a_reason(client):
    torch.manual_seed(0)
    save_mobile_sam(MobileSam().state_dict())
    assert client.get("/api/settings").json()["suggestions"] is True
    said = suggestion(client)
    if said["box"] is None:
        assert said["reason"] == "nothing stands out in this picture"
    else:
        x1, y1, x2, y2 = said["box"]
        assert 0 <= x1 < x2 <= 80 and 0 <= y1 < y2 <= 60 and said["reason"] == ""


def test_damaged_weights_are_a_reason_too(client, tmp_path, caplog):
    (tmp_path / "models" / "mobile-sam").mkdir(parents=True)
    (tmp_path / "models" / "mobile-sam" / "model.safetensors").write_bytes(b"damaged")
    assert client.get("/api/settings").json()["suggestions"] is True
    assert "cannot be loaded" in suggestion(client)["reason"]
    assert "cannot be loaded" in suggestion(client)["reason"]
    assert client.get("/api/settings").json()["suggestions"] is False
    assert len([line for line in caplog.messages if "no boxes are suggested" in line]) == 1

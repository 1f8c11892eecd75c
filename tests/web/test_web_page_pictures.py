"""LASTSEEN_PICTURES=1 makes these write docs/pictures/web_*.png with the bundled demo."""

import io
import os
from importlib.resources import files
from pathlib import Path

import pytest
from browser import PHONE, Watched, drag, find, give_whole, seek
from PIL import Image
from web import served

from lastseen.box import Box
from lastseen.video import Video
from lastseen.web.media import Settings

playwright = pytest.importorskip("playwright.sync_api")
DEMO = Path(str(files("lastseen") / "assets" / "demo.mp4"))
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
THING = Box(273, 133, 336, 304)  # in the photo
COLOURS = 128  # of a picture, and so under 150 KB
RARE = ("ffffff", "ffd200", "005ab5", "7cc0ff", "b3261e")  # of the page, in too few pixels to be among them
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif("LASTSEEN_PICTURES" not in os.environ, reason="writes pictures for the documentation"),
]


@pytest.fixture(scope="module")
def localizer():
    from lastseen.localizer import Localizer

    return Localizer.from_pretrained(device="cpu")


@pytest.fixture(scope="module")
def address(tmp_path_factory, localizer):
    allowed = Settings(index=tmp_path_factory.mktemp("pictures") / "index", files=(DEMO,))
    with served(allowed, localizer) as address:
        yield address


@pytest.fixture
def demo(browser, address):
    watched = Watched(browser, address, device_scale_factor=1)
    watched.page.set_default_timeout(300_000)
    watched.page.wait_for_selector('[aria-label="Remove demo.mp4"]')
    yield watched.page
    watched.context.close()
    assert watched.wrong == []


@pytest.fixture
def photo(tmp_path) -> Path:
    """A frame of the demo stands for a photo of the thing with its surroundings."""
    path = tmp_path / "photo.png"
    Image.fromarray(Video(DEMO).frame_at(21.0).image).save(path)
    return path


def mark(page, photo: Path) -> None:
    page.set_input_files("#choose", photo)
    page.wait_for_selector("#mark .picture:not([hidden])")
    drag(page, "#mark canvas", THING, (640, 360))
    page.wait_for_selector("#find:enabled")
    page.locator("#mark canvas").blur()


def write(page, name: str, full_page: bool = False) -> None:
    page.wait_for_timeout(700)
    page.evaluate("scrollTo(0, 0)")
    shown = Image.open(io.BytesIO(page.screenshot(full_page=full_page))).convert("RGB")
    few = shown.quantize(COLOURS, dither=Image.Dither.NONE)
    few.putpalette([*(few.getpalette() or [])[: 3 * COLOURS], *bytes.fromhex("".join(RARE))])
    shown.quantize(palette=few, dither=Image.Dither.NONE).save(PICTURES / name, optimize=True)


def test_pictures_of_the_question(demo, photo):
    mark(demo, photo)
    write(demo, "web_question.png")
    demo.set_viewport_size(PHONE)
    demo.emulate_media(color_scheme="dark")
    write(demo, "web_question_phone.png")


def test_pictures_of_the_answer_and_of_questions_that_stay(demo, photo, tmp_path):
    seek(demo, 8.0)
    mark(demo, photo)
    find(demo)
    demo.wait_for_selector("#save")
    write(demo, "web_answer.png", full_page=True)
    demo.emulate_media(color_scheme="dark")
    write(demo, "web_dark.png", full_page=True)
    demo.set_viewport_size(PHONE)
    demo.emulate_media(color_scheme="light")
    write(demo, "web_phone.png")
    demo.set_viewport_size({"width": 1280, "height": 860})
    Image.fromarray(Video(DEMO).frame_at(0.5).image).crop((0, 0, 160, 160)).save(tmp_path / "other.png")
    give_whole(demo, tmp_path / "other.png")
    find(demo)
    demo.wait_for_selector("#answer .tips")
    write(demo, "web_not_seen.png")

"""A server and a browser for the tests of the page."""

from pathlib import Path

import pytest
from browser import CHROMIUM, NO_BROWSER, PATIENCE_MS, Watched
from photos import write_photo
from PIL import Image
from scenes import SIDE, quick_localizer, texture, thing
from web import Paced, served, write_walk

from lastseen.web.media import Settings


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip(NO_BROWSER)
    playwright.expect.set_options(timeout=PATIENCE_MS)
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def localizer():
    return Paced(quick_localizer())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("page")
    write_walk(root / "videos" / "walk.mp4")
    write_walk(root / "videos" / "long.mp4", [None] * 32)
    Image.fromarray(thing()).save(root / "thing.png")
    Image.fromarray(texture(99, SIDE, SIDE, 4)).save(root / "other.png")
    write_photo(root / "photo.jpg")
    write_photo(root / "turned.jpg", orientation=6)
    (root / "text.mp4").write_text("not a video\n" * 50)
    return root


@pytest.fixture(scope="module")
def address(folder, localizer, remembered_in_module):
    allowed = Settings(index=folder / "index", folders=(folder / "videos",))
    with served(allowed, localizer) as address:
        yield address


@pytest.fixture
def page(browser, address):
    watched = Watched(browser, address)
    watched.page.wait_for_selector("#welcome:not([hidden]), #videos li")  # what there is has come
    yield watched.page
    watched.context.close()
    assert watched.wrong == []


@pytest.fixture
def walk(page, folder):
    """walk.mp4, uploaded by the first test that needs it, read, on the screen."""
    if not page.locator("#videos .name", has_text="walk.mp4").count():
        page.set_input_files("#upload", folder / "videos" / "walk.mp4")
    page.locator("#videos .name", has_text="walk.mp4").first.click()
    page.wait_for_selector('#videos [aria-label="Remove walk.mp4"]')
    page.wait_for_selector("#stage:not([hidden])")
    return page
